//! The journal of a commit that changes more than one name: what to undo if the process dies before the commit point.
//!
//! It holds names and hashes only, no data: a swap leaves both contents on disk. Paths are relative, so that a copied or
//! moved workspace heals itself and not the one it was copied from. Undoing looks at the state of the disk and not at
//! how far the commit came, so it may itself be interrupted and repeated any number of times.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::disk::{Found, Spot};
use crate::error::{Fault, Result};
use crate::lock::stripe;
use crate::name::{Agent, TurnId, random_id};
use crate::path::{escape, unescape};
use crate::settings::Durability;
use crate::stage::{ChangeId, StageName, Standing, TargetName};
use crate::turn::FileState;
use crate::workspace::Workspace;

use super::Author;
use super::step::{finish_swap, give_back, put_back, remove_folder, take_back};

/// The version of the format. A later one is refused, not misread.
const VERSION: u32 = 1;

/// One file of the commit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The id that its ledger line has once the commit stands.
    pub(crate) id: String,
    #[serde(with = "as_word")]
    pub(crate) path: PathBuf,
    #[serde(with = "as_word_or_none")]
    pub(crate) to: Option<PathBuf>,
    pub(crate) base: Option<Digest>,
    pub(crate) new: Option<Digest>,
    /// The name of the staged file: in the stage, or beside the target if it begins with a dot.
    #[serde(with = "as_word_or_none")]
    pub(crate) staged: Option<PathBuf>,
    #[serde(with = "as_words")]
    pub(crate) made: Vec<PathBuf>,
}

impl Record {
    /// Where to, if this is the move of a folder, which has no hash.
    pub(crate) fn folder_to(&self) -> Option<&Path> {
        self.to.as_deref().filter(|_| self.base.is_none())
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Content {
    version: u32,
    pub(crate) agent: Agent,
    pub(crate) turn: Option<TurnId>,
    pub(crate) records: Vec<Record>,
}

impl Content {
    /// Whether the staged file of this name is one of the commit's.
    pub(crate) fn names(&self, staged: &OsStr) -> bool {
        self.records
            .iter()
            .any(|record| record.staged.as_ref().is_some_and(|name| name.as_os_str() == staged))
    }
}

/// A journal on disk.
pub(crate) struct Journal {
    spot: Spot,
    workspace: Workspace,
}

impl Journal {
    /// Whole and durable before it counts: a half-written journal has another name, which tells by whose lock its
    /// writer is known to live.
    pub(crate) fn write(
        workspace: &Workspace,
        author: Author<'_>,
        records: Vec<Record>,
        durability: Durability,
    ) -> Result<Self> {
        let stripe = records.first().map_or(0, |record| stripe(&record.path));
        let content =
            Content { version: VERSION, agent: author.agent.clone(), turn: author.turn.cloned(), records };
        let bytes = serde_json::to_vec(&content).map_err(|error| Fault::invalid(error.to_string()))?;
        let id = random_id()?;
        let unfinished = workspace.journal().spot(format!("{id}.{stripe:02x}.tmp"));
        let spot = workspace.journal().spot(format!("{id}.json"));
        let file = unfinished.create(Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP)?;
        let written = file
            .write(&bytes)
            .and_then(|()| file.flush(durability))
            .and_then(|()| unfinished.rename(&spot))
            // Without this the first swap could reach the disk before the journal that undoes it.
            .and_then(|()| workspace.journal().flush(durability));
        if let Err(fault) = written {
            unfinished.remove()?;
            spot.remove()?;
            return Err(fault);
        }
        Ok(Self { spot, workspace: workspace.clone() })
    }

    /// Half-written journals, each with the stripe whose lock its writer holds for as long as it lives.
    pub(crate) fn unfinished(workspace: &Workspace) -> Result<Vec<(u8, Spot)>> {
        let names = workspace.journal().names()?;
        let stripe_of = |name: &OsStr| {
            let stripe = name.to_str()?.strip_suffix(".tmp")?.rsplit_once('.')?.1;
            u8::from_str_radix(stripe, 16).ok()
        };
        Ok(names
            .into_iter()
            .filter_map(|name| Some((stripe_of(&name)?, workspace.journal().spot(name))))
            .collect())
    }

    /// The journals that are there. Unfinished ones mean nothing was swapped yet.
    pub(crate) fn all(workspace: &Workspace) -> Result<Vec<Self>> {
        let names = workspace.journal().names()?;
        let finished =
            names.into_iter().filter(|name| Path::new(name).extension().is_some_and(|end| end == "json"));
        Ok(finished
            .map(|name| Self { spot: workspace.journal().spot(name), workspace: workspace.clone() })
            .collect())
    }

    /// What it says; `None` if it is gone by now.
    pub(crate) fn read(&self) -> Result<Option<Content>> {
        let Found::File(file) = self.spot.open()? else { return Ok(None) };
        let damaged = |error| Fault::damaged(&self.spot.shown(), error);
        let (bytes, _) = file.read()?;
        let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(damaged)?;
        match value["version"].as_u64().and_then(|version| u32::try_from(version).ok()) {
            Some(found) if found > VERSION => {
                Err(Fault::NewerFormat { path: self.spot.shown(), found, known: VERSION })
            }
            _ => serde_json::from_value(value).map(Some).map_err(damaged),
        }
    }

    /// An intent to make folders, so that a crash does not leave them behind empty. It holds nothing that a power cut could
    /// hurt, so it is not flushed.
    pub(crate) fn of_folders(
        workspace: &Workspace,
        author: Author<'_>,
        id: &ChangeId,
        path: &Path,
        made: Vec<PathBuf>,
    ) -> Result<Self> {
        let (id, path) = (id.as_str().to_owned(), path.to_owned());
        let record = Record { id, path, to: None, base: None, new: None, staged: None, made };
        Self::write(workspace, author, vec![record], Durability::Fast)
    }

    /// An intent to make an empty file beside the target, only to move it to the stage at once. Not flushed: if it comes back
    /// after a power cut, its name is free, because it is never used again.
    pub(crate) fn of_file(
        workspace: &Workspace,
        author: Author<'_>,
        id: &ChangeId,
        path: &Path,
        name: &OsStr,
    ) -> Result<Self> {
        let (id, path, staged) = (id.as_str().to_owned(), path.to_owned(), Some(name.into()));
        let record = Record { id, path, to: None, base: None, new: None, staged, made: Vec::new() };
        Self::write(workspace, author, vec![record], Durability::Fast)
    }

    /// An intent to move a folder into one of these that are made for it. A folder that was moved is not moved back: the
    /// next process adds the line. Flushed, because nothing else tells then that it was an agent who moved it.
    pub(crate) fn of_move(
        workspace: &Workspace,
        author: Author<'_>,
        id: &ChangeId,
        (path, to): (&Path, &Path),
        made: Vec<PathBuf>,
    ) -> Result<Self> {
        let (id, path, to) = (id.as_str().to_owned(), path.to_owned(), Some(to.to_owned()));
        let record = Record { id, path, to, base: None, new: None, staged: None, made };
        Self::write(workspace, author, vec![record], workspace.settings().guard.durability)
    }

    /// It is done with. If a power cut brings the journal of a commit back, the ledger tells that it stands; an intent
    /// that comes back only removes folders that are empty.
    pub(crate) fn remove(self) -> Result<()> {
        self.spot.remove()
    }

    /// The commit was undone. The journal must not come back: by then somebody may have made the same change for good.
    pub(crate) fn remove_for_good(self) -> Result<()> {
        self.spot.remove()?;
        self.workspace.journal().flush(self.workspace.settings().guard.durability)
    }
}

/// Keeps what an acknowledged commit has replaced on another file system and could not bring to recovery any more.
pub(crate) fn finish_journalled(workspace: &Workspace, content: &Content) -> Result<()> {
    for record in &content.records {
        let (Some(name), Some(id)) = (&record.staged, ChangeId::parse(&record.id)) else { continue };
        let Ok(spot) = workspace.place_of(&record.path).spot(workspace.root()) else { continue };
        let staged = staged_spot(workspace, &spot, name);
        if !is_beside(name) || staged.inode()?.is_none() {
            continue;
        }
        if record.base.is_none() {
            // Only the second name of a new file.
            staged.remove()?;
            continue;
        }
        workspace.keep_beside(&staged, &stage_of(record, id, content))?;
    }
    Ok(())
}

/// What the file's name would say if it were in the stage.
fn stage_of(record: &Record, id: ChangeId, content: &Content) -> StageName {
    let state = |digest: Option<Digest>| digest.map_or(FileState::Absent, FileState::Present);
    StageName {
        standing: Standing::Open,
        id,
        base: state(record.base),
        new: state(record.new),
        agent: content.agent.clone(),
        target: TargetName::Path(record.path.clone()),
    }
}

fn is_beside(name: &Path) -> bool {
    name.as_os_str().as_encoded_bytes().starts_with(b".tollgate-")
}

/// Takes back whatever of a commit was done. The locks of its paths are held by the caller.
pub(crate) fn undo_journalled(workspace: &Workspace, content: &Content) -> Result<()> {
    for record in content.records.iter().rev() {
        undo_record(workspace, record, content)?;
    }
    for record in content.records.iter().rev() {
        for folder in record.made.iter().rev() {
            remove_folder(workspace, folder)?;
        }
    }
    // Before the journal goes: without it nobody would undo what a power cut brings back.
    let durability = workspace.settings().guard.durability;
    workspace.stage().flush(durability)?;
    for path in content.records.iter().flat_map(|record| [Some(&record.path), record.to.as_ref()]).flatten() {
        if let Ok(spot) = workspace.place_of(path).spot(workspace.root()) {
            spot.folder().flush(durability)?;
        }
    }
    Ok(())
}

fn undo_record(workspace: &Workspace, record: &Record, content: &Content) -> Result<()> {
    let Ok(spot) = workspace.place_of(&record.path).spot(workspace.root()) else {
        // Its folder is gone, so nothing can be put back there. What is in the stage is kept by the sweep.
        return Ok(());
    };
    if let Some(to) = &record.to {
        return undo_move(workspace, record, &spot, to);
    }
    let Some(staged) = record.staged.as_ref().map(|name| staged_spot(workspace, &spot, name)) else {
        return Ok(());
    };
    if (record.base, record.new) == (None, None) {
        // An intent: the file was made and nothing else happened to it.
        return staged.remove();
    }
    finish_swap(&staged)?;
    let has = |spot: &Spot, digest: Option<Digest>| -> Result<bool> {
        match (spot.open()?, digest) {
            (Found::File(file), Some(digest)) => Ok(file.hash()? == digest),
            _ => Ok(false),
        }
    };
    let ours = |spot: &Spot| has(spot, record.new);
    match (record.base, record.new) {
        (Some(_), Some(_)) => {
            if staged.inode()?.is_none() || ours(&staged)? {
                // Not swapped, or swapped back already.
            } else if ours(&spot)? {
                // Whatever came out, the old bytes or a foreign save, belongs at the path.
                put_back(workspace, &spot, &staged, &ours)?;
            } else {
                // Somebody saved over our bytes: theirs stays, and what came out is kept.
                workspace.keep_foreign(&staged)?;
            }
        }
        (None, Some(_)) => {
            let made = match staged.inode()? {
                // Two names of one file. Equal bytes would not do: somebody else may have made that file.
                Some(_) => staged.is_same_file(&spot)?,
                // It was moved there, where files cannot have two names.
                None => ours(&spot)?,
            };
            if made {
                take_back(workspace, &spot, &staged, &ours)?;
            }
        }
        (_, None) => {
            if staged.inode()?.is_some() {
                give_back(workspace, &spot, &staged)?;
            }
        }
    }
    // Beside the target nobody sweeps.
    if is_beside(Path::new(staged.name())) && staged.inode()?.is_some() {
        match ChangeId::parse(&record.id) {
            Some(id) if !ours(&staged)? => {
                workspace.keep_beside(&staged, &stage_of(record, id, content))?;
            }
            _ => staged.remove()?,
        }
    }
    Ok(())
}

fn undo_move(workspace: &Workspace, record: &Record, spot: &Spot, to: &Path) -> Result<()> {
    let Ok(to) = workspace.place_of(to).spot(workspace.root()) else { return Ok(()) };
    let moved_away = spot.inode()?.is_none() || spot.is_same_file(&to)?;
    if moved_away
        && let Found::File(moved) = to.open()?
        && Some(moved.hash()?) == record.base
    {
        to.rename_new(spot)?;
    }
    Ok(())
}

fn staged_spot(workspace: &Workspace, spot: &Spot, name: &Path) -> Spot {
    if is_beside(name) { spot.beside(name) } else { workspace.stage().spot(name) }
}

/// Paths need not be UTF-8, JSON must be.
mod as_word {
    use super::{Path, PathBuf, escape, unescape};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&escape(path))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        unescape(&String::deserialize(deserializer)?).ok_or_else(|| D::Error::custom("not a path"))
    }
}

mod as_word_or_none {
    use super::{PathBuf, escape, unescape};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    #[allow(clippy::ref_option, reason = "the shape that serde calls")]
    pub(super) fn serialize<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_deref().map(escape).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        let word = Option::<String>::deserialize(deserializer)?;
        word.map(|word| unescape(&word).ok_or_else(|| D::Error::custom("not a path"))).transpose()
    }
}

mod as_words {
    use super::{PathBuf, escape, unescape};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(|path| escape(path)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
        let words = Vec::<String>::deserialize(deserializer)?;
        words.iter().map(|word| unescape(word).ok_or_else(|| D::Error::custom("not a path"))).collect()
    }
}
