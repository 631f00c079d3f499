//! The records of turns: what an agent had read, in which branch, for which task, and who asked for it.
//!
//! `.tollgate/history/turns/` has one file for each turn, with the id of the turn as its name. It is written once, when the turn ends, or by
//! a later process if nobody has ended the turn. Its first line is JSON; a line for each read follows, compressed where that pays. What
//! the turn has changed is in the ledger, under the same id.
//!
//! Nothing depends on a record, so it is not flushed, and it may be deleted at any time. That of an id that was deleted by age or size is
//! remembered like that of a content. A record that is not complete, because of a power cut, counts as deleted.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::content;
use crate::disk::{Folder, Spot, gone_is_none, modified};
use crate::history::step::Claims;
use crate::protected::is_of_git;
use crate::root::Root;
use crate::turn::{Head, TurnRead, TurnStart, TurnState};
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::event::Event;
use tollgate_base::file::replace_file;
use tollgate_base::name::{Agent, TurnId};
use tollgate_base::private;
use tollgate_base::settings::Durability;
use tollgate_base::task::TaskName;

/// The version of the format. A later version is refused.
const VERSION: u32 = 1;

/// The level of compression: the fastest, because somebody may wait. Most bytes of a record are hashes, of which no level makes more.
const LEVEL: u8 = 1;

/// The number of ledger lines in which to look for the claim of a turn's task. Reading them takes a few milliseconds, and somebody may
/// wait for the end of a turn.
const LEDGER_LINES: usize = 2_000;

/// What a record says of its turn, without the reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnAbout {
    /// The turn.
    pub turn: TurnId,
    /// Its agent.
    pub agent: Agent,
    /// How it began.
    #[serde(flatten)]
    pub start: TurnStart,
    /// When it ended, or was last used if nobody has ended it.
    pub ended: Timestamp,
    /// Where HEAD was at the end; `None` outside of git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_after: Option<Head>,
    /// The task that the agent had claimed. `None` also if it had claimed several: then nobody knows for which of them it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskName>,
    /// The number of reads.
    pub reads: usize,
}

/// What is kept of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeptTurn {
    /// Its record.
    Kept(Box<TurnRecord>),
    /// The record was deleted: too old, no room, or lost in a power cut.
    NoLongerKept,
    /// It never had one.
    NeverKept,
}

impl KeptTurn {
    /// What the record says of the turn, without the reads.
    pub fn about(self) -> Option<TurnAbout> {
        match self {
            Self::Kept(record) => Some(record.about),
            Self::NoLongerKept | Self::NeverKept => None,
        }
    }
}

/// The record of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRecord {
    /// What it says of the turn.
    pub about: TurnAbout,
    /// What the agent was shown, in this order.
    pub reads: Vec<TurnRead>,
}

/// The first line of a file.
#[derive(Serialize, Deserialize)]
struct FirstLine {
    version: u32,
    /// Whether the lines after it are compressed.
    compressed: bool,
    #[serde(flatten)]
    about: TurnAbout,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// A file with a record.
pub(crate) struct StoredRecord {
    pub(crate) kept: Timestamp,
    pub(crate) size: u64,
    /// What is noted when it is deleted.
    pub(crate) note: Digest,
    pub(crate) spot: Spot,
}

/// Keeps the record of a turn that ends. A turn that has read and changed nothing leaves none.
pub(crate) fn keep(
    root: &Root,
    turn: &dyn TurnState,
    ended: Timestamp,
    head_after: Option<Head>,
) -> Result<()> {
    let reads = named(root, turn.reads()?);
    if reads.is_empty() && !turn.has_changed()? {
        return Ok(());
    }
    // A turn that an earlier version began has noted no beginning.
    let start = turn.start()?.unwrap_or(TurnStart {
        began: reads.first().map_or(ended, |read| read.time),
        head_before: None,
        asked: Default::default(),
    });
    let task = task(root, turn)?;
    let about = TurnAbout {
        turn: turn.id().clone(),
        agent: turn.agent().clone(),
        start,
        ended,
        head_after,
        task,
        reads: reads.len(),
    };
    let lines: String = reads.iter().map(TurnRead::line).collect();
    let smaller = content::compressed_at(lines.as_bytes(), LEVEL);
    let first = FirstLine { version: VERSION, compressed: smaller.is_some(), about };
    let mut bytes = serde_json::to_vec(&first).map_err(|error| Fault::invalid(error.to_string()))?;
    bytes.push(b'\n');
    bytes.extend(smaller.as_deref().unwrap_or(lines.as_bytes()));
    let folder = folder(root);
    private::create_folder(&folder, 0o770).at("make the folder", &folder)?;
    let file = file(root, turn.id());
    replace_file(&file, &bytes, Durability::Fast)?;
    content::set_time(&file, root.now())
}

/// Reads of a turn, with their files as the ledger names them. What a command read of git's own data says nothing of its agent.
pub(crate) fn named(root: &Root, mut reads: Vec<TurnRead>) -> Vec<TurnRead> {
    reads.retain(|read| !is_of_git(&read.path));
    for read in &mut reads {
        if let Ok(below) = read.path.strip_prefix(root.path()) {
            read.path = below.to_owned();
        }
    }
    reads
}

impl TurnRecord {
    /// The record of a turn.
    pub fn load(root: &Root, turn: &TurnId) -> Result<KeptTurn> {
        let path = file(root, turn);
        if let Some(bytes) = gone_is_none(private::read(&path).at("read", &path))? {
            let record = Self::of_bytes(&path, &bytes)?;
            return Ok(record.map_or(KeptTurn::NoLongerKept, |record| KeptTurn::Kept(Box::new(record))));
        }
        Ok(match content::was_removed(root, note(turn))? {
            true => KeptTurn::NoLongerKept,
            false => KeptTurn::NeverKept,
        })
    }

    /// All turns that have a record, the newest first.
    pub fn list(root: &Root) -> Result<Vec<TurnAbout>> {
        let mut turns = Vec::new();
        for StoredRecord { spot, .. } in all(root)? {
            let path = spot.shown();
            let Some(bytes) = gone_is_none(private::read(&path).at("read", &path))? else { continue };
            turns.extend(FirstLine::of(&path, &bytes)?.map(|(first, _)| first.about));
        }
        turns.sort_by_key(|turn| std::cmp::Reverse(turn.start.began));
        Ok(turns)
    }

    fn of_bytes(path: &Path, bytes: &[u8]) -> Result<Option<Self>> {
        let Some((FirstLine { about, compressed, .. }, rest)) = FirstLine::of(path, bytes)? else {
            return Ok(None);
        };
        let lines = if compressed { content::inflated(rest) } else { Some(rest.to_vec()) };
        let text = lines.and_then(|lines| String::from_utf8(lines).ok());
        let reads = text.map(|text| TurnRead::all_in(&text)).filter(|reads| reads.len() == about.reads);
        Ok(reads.map(|reads| Self { about, reads }))
    }
}

impl FirstLine {
    /// The first line of a file, and what follows. `None` if it is not complete.
    fn of<'b>(path: &Path, bytes: &'b [u8]) -> Result<Option<(Self, &'b [u8])>> {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let line = &bytes[..end];
        if let Ok(Version { version: found }) = serde_json::from_slice(line)
            && found > VERSION
        {
            return Err(Fault::NewerFormat { path: path.to_owned(), found, known: VERSION });
        }
        Ok(serde_json::from_slice(line).ok().map(|first| (first, &bytes[end + 1..])))
    }
}

/// The one task that the agent of a turn had claimed.
fn task(root: &Root, turn: &dyn TurnState) -> Result<Option<TaskName>> {
    let mut claims = Claims::default();
    let mut first = 0;
    for line in root.ledger().newest_first()?.take(LEDGER_LINES).flatten() {
        claims.take(&line);
        if matches!(line.event, Event::TurnStarted(_)) && line.turn.as_ref() == Some(turn.id()) {
            first = line.seq;
        }
    }
    Ok(claims.task_of(turn.agent(), first..u64::MAX))
}

/// The files with records. Deletes what processes that were killed have not completed.
pub(crate) fn all(root: &Root) -> Result<Vec<StoredRecord>> {
    let path = folder(root);
    if modified(&path).is_none() {
        return Ok(Vec::new());
    }
    content::remove_incomplete(root, &path)?;
    let folder = Folder::of_state(&path)?;
    let mut found = Vec::new();
    for name in folder.names()? {
        let Some(turn) = name.to_str().and_then(|name| name.parse::<TurnId>().ok()) else { continue };
        let spot = Spot::new(&folder, name);
        let Ok(file) = std::fs::symlink_metadata(spot.shown()) else { continue };
        let Some(kept) = modified(&spot.shown()) else { continue };
        found.push(StoredRecord { kept, size: file.len(), note: note(&turn), spot });
    }
    Ok(found)
}

/// What is noted in place of a record that is deleted.
fn note(turn: &TurnId) -> Digest {
    Digest::of(turn.as_str().as_bytes())
}

fn folder(root: &Root) -> PathBuf {
    root.history().join("turns")
}

fn file(root: &Root, turn: &TurnId) -> PathBuf {
    folder(root).join(turn.as_str())
}
