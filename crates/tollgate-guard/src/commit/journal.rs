//! The journal of a commit that changes more than one name: what to undo if the process dies before the commit point.
//!
//! A journal holds names and hashes, but no data: after a swap, both contents are on disk. Paths are relative, so that a
//! copied or moved workspace heals itself and not the one that it was copied from.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

use crate::disk::{Found, Spot, no_folder_is_none};
use crate::path::EscapedPath;
use crate::request::Request;
use crate::root::Root;
use crate::stage::{ChangeId, StageName};
use crate::stripe_lock::stripe;
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::{Agent, TurnId, random_id};
use tollgate_base::settings::Durability;

/// The ends of the names of complete journals. After a power failure, one that was not flushed may be empty or cut short; then
/// nothing was done that it would undo.
const FLUSHED: &str = "json";
const UNFLUSHED: &str = "unflushed";

/// The version of the format. A later version is refused. Version 2 has what only commands do.
const VERSION: u32 = 2;

fn is_plain(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// One file of the commit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct JournalRecord {
    /// The id of its ledger line.
    pub(crate) id: String,
    pub(crate) path: EscapedPath,
    pub(crate) to: Option<EscapedPath>,
    pub(crate) base: Option<Digest>,
    pub(crate) new: Option<Digest>,
    /// The name of the staged or deleted file. It is in the stage, or beside the target if the name starts with a dot.
    pub(crate) staged: Option<EscapedPath>,
    /// The folders that the change creates.
    pub(crate) made: Vec<EscapedPath>,
    /// The mode of the file before and after, if nothing else changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<[u32; 2]>,
    /// The folders that the change removes to make room, innermost first, with their modes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) clears: Vec<(EscapedPath, u32)>,
}

/// What a commit does to a folder after its commit point. It may be done twice.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FolderChange {
    pub(crate) path: EscapedPath,
    /// The mode of a folder that must exist. `None`: the folder is removed, unless something is in it.
    pub(crate) mode: Option<u32>,
}

impl FolderChange {
    pub(crate) fn make(&self, root: &Root) -> Result<()> {
        let Some(spot) = no_folder_is_none(root.spot(&self.path))? else { return Ok(()) };
        let Some(mode) = self.mode else { return spot.remove_empty_folder() };
        spot.make_folder()?;
        match spot.mode()? {
            Some(now) if now == mode || !root.path().join(&*self.path).is_dir() => Ok(()),
            _ => spot.set_mode(mode),
        }
    }
}

impl JournalRecord {
    pub(super) fn new<'a>(
        id: &ChangeId,
        path: &Path,
        staged: Option<&OsStr>,
        made: impl IntoIterator<Item = &'a PathBuf>,
    ) -> Self {
        Self {
            id: id.as_str().to_owned(),
            path: EscapedPath(path.to_owned()),
            to: None,
            base: None,
            new: None,
            staged: staged.map(|name| EscapedPath(name.into())),
            made: made.into_iter().cloned().map(EscapedPath).collect(),
            mode: None,
            clears: Vec::new(),
        }
    }

    /// Whether an older tollgate could not undo this.
    fn is_of_command(&self) -> bool {
        self.mode.is_some() || !self.clears.is_empty()
    }

    /// Whether no path leads out of the workspace, and no staged file out of its folder. The state may come with a
    /// downloaded folder.
    fn stays_inside(&self) -> bool {
        let is_name = |path: &Path| is_plain(path) && path.components().count() == 1;
        let paths = [Some(&self.path), self.to.as_ref()].into_iter().flatten().chain(&self.made);
        let mut paths = paths.chain(self.clears.iter().map(|(path, _)| path));
        paths.all(|path| is_plain(path)) && self.staged.as_deref().is_none_or(is_name)
    }

    /// The new path of a moved folder. A folder has no hash.
    pub(crate) fn folder_to(&self) -> Option<&Path> {
        self.to.as_deref().filter(|_| self.base.is_none())
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct JournalContent {
    version: u32,
    pub(crate) agent: Agent,
    pub(crate) turn: Option<TurnId>,
    pub(crate) records: Vec<JournalRecord>,
    /// Made once the commit is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) later: Vec<FolderChange>,
}

impl JournalContent {
    /// The names of the staged and deleted files.
    pub(crate) fn into_names(self) -> impl Iterator<Item = PathBuf> {
        self.records.into_iter().filter_map(|record| record.staged).map(|name| name.0)
    }

    pub(super) fn new(
        agent: Agent,
        turn: Option<TurnId>,
        records: Vec<JournalRecord>,
        later: Vec<FolderChange>,
    ) -> Self {
        let is_plain = later.is_empty() && !records.iter().any(JournalRecord::is_of_command);
        Self { version: if is_plain { 1 } else { VERSION }, agent, turn, records, later }
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.records.iter().flat_map(|record| [Some(&*record.path), record.to.as_deref()]).flatten()
    }

    /// The folders in which the commit changes names. If it makes folders, also those that they are made in: when the commit
    /// is undone, the new folders are gone, and a power failure brings them back with their files, unless the outer ones are
    /// flushed.
    pub(crate) fn folders(&self) -> BTreeSet<PathBuf> {
        let made = self.records.iter().flat_map(|record| &record.made).map(|folder| &*folder.0);
        let parent = |path: &Path| path.parent().map(Path::to_owned).unwrap_or_default();
        self.paths().chain(made).map(parent).collect()
    }
}

pub(crate) struct CommitJournal {
    spot: Spot,
}

impl CommitJournal {
    /// Writes a journal. Until it is complete and durable it has another name. That name has a stripe, whose lock the writer
    /// holds for as long as it lives.
    pub(crate) fn write(
        root: &Root,
        agent: &Agent,
        turn: Option<&TurnId>,
        records: Vec<JournalRecord>,
        durability: Durability,
    ) -> Result<Self> {
        let (agent, turn) = (agent.clone(), turn.cloned());
        Self::write_content(root, &JournalContent::new(agent, turn, records, Vec::new()), durability)
    }

    pub(super) fn write_content(
        root: &Root,
        content: &JournalContent,
        durability: Durability,
    ) -> Result<Self> {
        let stripe = content.records.first().map_or(0, |record| stripe(&record.path));
        let bytes = serde_json::to_vec(content).map_err(|error| Fault::invalid(error.to_string()))?;
        let id = random_id()?;
        let unfinished = Spot::new(&root.journal, format!("{id}.{stripe:02x}.tmp"));
        let end = if durability == Durability::Durable { FLUSHED } else { UNFLUSHED };
        let spot = Spot::new(&root.journal, format!("{id}.{end}"));
        let file = unfinished.create(Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP)?;
        let written = file
            .write(&bytes, 0)
            .and_then(|()| file.flush(durability))
            .and_then(|()| unfinished.rename(&spot))
            // Otherwise the first swap could reach the disk before the journal that undoes it.
            .and_then(|()| root.journal.flush(durability));
        if let Err(fault) = written {
            unfinished.remove()?;
            spot.remove()?;
            return Err(fault);
        }
        Ok(Self { spot })
    }

    /// The incomplete journals, each with the stripe whose lock its writer holds for as long as it lives.
    pub(crate) fn unfinished(root: &Root) -> Result<Vec<(u8, Spot)>> {
        let names = root.journal.names()?;
        let stripe_of = |name: &OsStr| {
            let stripe = name.to_str()?.strip_suffix(".tmp")?.rsplit_once('.')?.1;
            u8::from_str_radix(stripe, 16).ok()
        };
        Ok(names
            .into_iter()
            .filter_map(|name| Some((stripe_of(&name)?, Spot::new(&root.journal, name))))
            .collect())
    }

    /// All complete journals. With an incomplete one, nothing was swapped yet.
    pub(crate) fn all(root: &Root) -> Result<Vec<Self>> {
        let names = root.journal.names()?;
        let is_finished = |name: &OsString| {
            Path::new(name).extension().is_some_and(|end| end == FLUSHED || end == UNFLUSHED)
        };
        let finished = names.into_iter().filter(is_finished);
        Ok(finished.map(|name| Self { spot: Spot::new(&root.journal, name) }).collect())
    }

    /// The content. `None` if the journal no longer exists, or never reached the disk; then it is deleted.
    pub(crate) fn read(&self) -> Result<Option<JournalContent>> {
        let Found::File(file) = self.spot.open()? else { return Ok(None) };
        let damaged = |error| Fault::damaged(&self.spot.shown(), error);
        let (bytes, _) = file.read()?;
        let value: serde_json::Value = match serde_json::from_slice(&bytes) {
            Err(_) if Path::new(self.spot.name()).extension().is_some_and(|end| end == UNFLUSHED) => {
                // A power failure has left the name without the bytes.
                self.spot.remove()?;
                return Ok(None);
            }
            value => value.map_err(damaged)?,
        };
        match value["version"].as_u64().and_then(|version| u32::try_from(version).ok()) {
            Some(found) if found > VERSION => {
                Err(Fault::NewerFormat { path: self.spot.shown(), found, known: VERSION })
            }
            _ => {
                let content: JournalContent = serde_json::from_value(value).map_err(damaged)?;
                let later = content.later.iter().all(|folder| is_plain(&folder.path));
                match later && content.records.iter().all(JournalRecord::stays_inside) {
                    true => Ok(Some(content)),
                    false => Err(Fault::damaged(
                        &self.spot.shown(),
                        "it has a path that leads out of the workspace",
                    )),
                }
            }
        }
    }

    /// An intent to create folders, or a file beside the target, so that a crash does not leave them behind. Not flushed,
    /// because a power failure cannot do more harm than leave an empty folder or file. But if the file's name is used for
    /// anything else, the deletion of the intent is flushed.
    pub(super) fn of_intent<'a>(
        root: &Root,
        change: &StageName,
        staged: Option<&OsStr>,
        made: impl IntoIterator<Item = &'a PathBuf>,
    ) -> Result<Self> {
        let path = root.target_path(&change.target)?;
        let record = JournalRecord::new(&change.id, &path, staged, made);
        Self::write(root, &change.agent, None, vec![record], Durability::Fast)
    }

    /// An intent to move a folder. A crash does not undo the move: the next process adds the ledger line. Flushed, because
    /// nothing else says which agent moved the folder.
    pub(crate) fn of_move(
        Request { root, turn, .. }: &Request<'_>,
        id: &ChangeId,
        (path, to): (&Path, &Path),
        made: &[PathBuf],
    ) -> Result<Self> {
        let to = Some(EscapedPath(to.to_owned()));
        let record = JournalRecord { to, ..JournalRecord::new(id, path, None, made) };
        Self::write(root, turn.agent(), Some(turn.id()), vec![record], root.durability())
    }

    /// Deletes the journal of a commit that was made. If a power failure brings it back, the ledger says that the commit was
    /// made. An intent that comes back deletes nothing but empty folders.
    pub(crate) fn remove(self) -> Result<()> {
        self.spot.remove()
    }

    /// Deletes a journal that must not come back after a power failure: its commit was undone, and by then another process
    /// may have made the same change.
    pub(crate) fn remove_for_good(self, root: &Root) -> Result<()> {
        self.spot.remove()?;
        root.journal.flush(root.durability())
    }
}
