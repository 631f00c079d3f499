//! Recovery: files that guarded writes replaced, and late writes by programs outside tollgate, kept for a limited time.
//!
//! A file in recovery is the replaced file itself, renamed and never copied: a program that still writes into it then
//! writes into what is kept. Its name says what it was (see `stage.rs`). Recovery is limited by age and by size; a late
//! write is never deleted for lack of space before bytes that an agent wrote.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::Mode;
use serde::Serialize;

use crate::conflict;
use crate::disk::{Found, Spot};
use crate::long_path::{stage_file_name, target_path};
use crate::path::FilePath;
use crate::root::Root;
pub use crate::stage::RecoveryKind;
use crate::stage::{ChangeId, StageName, Standing, TargetName, owner_of_aside, unfinished_name};
use crate::stripe_lock::stripe;
use crate::turn::FileState;
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::event::{Event, LateWrite};
use tollgate_base::ledger::Entry;
use tollgate_base::name::Agent;

/// Often enough to respect the limits, rarely enough that writes do not pay for it.
const PRUNE_EVERY: Duration = Duration::from_secs(60);

/// The old names.
pub use {RecoveryEntry as Kept, RecoveryKind as Kind};

/// One file in recovery.
#[derive(Debug, Clone, Serialize)]
pub struct RecoveryEntry {
    /// The id with which it is shown and restored.
    pub id: String,
    /// The path that it had.
    pub path: FilePath,
    /// Why it is kept.
    pub kind: RecoveryKind,
    /// The agent whose write replaced it.
    pub replaced_by: Agent,
    /// When it was replaced.
    pub time: Timestamp,
    /// The number of bytes.
    pub size: u64,
    /// The hash of the bytes. For a late write, known only once it is read.
    pub sha256: Option<Digest>,
    #[serde(skip)]
    name: OsString,
}

/// All files in recovery, newest first. Includes replaced files that still await their late-write check.
pub(crate) fn list(root: &Root) -> Result<Vec<RecoveryEntry>> {
    let mut entries = Vec::new();
    for kind in RecoveryKind::ALL {
        let folder = root.recovery(kind)?;
        for name in folder.names()? {
            entries.extend(entry(root, &Spot::new(&folder, name), kind)?);
        }
    }
    for name in root.stage().names()? {
        let staged = entry(root, &root.staged(name), RecoveryKind::Replaced)?;
        entries.extend(staged.filter(|entry| entry.sha256.is_some()));
    }
    entries.sort_by(|a, b| b.id.cmp(&a.id));
    entries.dedup_by(|a, b| a.id == b.id);
    Ok(entries)
}

fn entry(root: &Root, spot: &Spot, kind: RecoveryKind) -> Result<Option<RecoveryEntry>> {
    let Some(stage) = StageName::parse(spot.name()) else { return Ok(None) };
    let Found::File(file) = spot.open()? else { return Ok(None) };
    let relative = target_path(root, &stage.target)?;
    Ok(Some(RecoveryEntry {
        id: stage.id.as_str().to_owned(),
        path: FilePath::trusted(root.path().join(relative)),
        kind,
        replaced_by: stage.agent,
        time: stage.id.time(),
        size: file.len(),
        sha256: match kind {
            RecoveryKind::Replaced => stage.base.digest(),
            RecoveryKind::TakenBack => stage.new.digest(),
            RecoveryKind::Late => None,
        },
        name: spot.name().to_owned(),
    }))
}

/// One file in recovery, with its bytes.
pub(crate) fn read(root: &Root, id: &str) -> Result<(RecoveryEntry, Vec<u8>)> {
    let missing = || Fault::Missing { what: format!("the recovery entry `{}`", id.escape_debug()) };
    let mut entry = list(root)?.into_iter().find(|entry| entry.id == id).ok_or_else(missing)?;
    // In the meantime, another process may move the file from the stage to recovery.
    let mut folders = vec![root.stage().clone()];
    for kind in RecoveryKind::ALL {
        folders.push(root.recovery(kind)?);
    }
    for folder in folders {
        if let Found::File(file) = Spot::new(&folder, &entry.name).open()? {
            let (bytes, digest) = file.read()?;
            entry.sha256 = Some(digest);
            return Ok((entry, bytes));
        }
    }
    Err(missing())
}

/// Deletes files beyond the limits in the settings. Returns the number of deleted files.
///
/// This looks at every file in recovery, so it does nothing if the last time was less than a minute ago.
pub(crate) fn prune(root: &Root) -> Result<usize> {
    let settings = &root.settings().recovery;
    let now = root.now();
    let stamp = root.state_path().join("recovery/pruned");
    let last = fs::metadata(&stamp).and_then(|stamp| stamp.modified()).ok();
    let last = last.and_then(|last| Timestamp::try_from(last).ok()).unwrap_or(Timestamp::UNIX_EPOCH);
    if now.duration_since(last).unsigned_abs() < PRUNE_EVERY.min(settings.max_age.0) {
        return Ok(0);
    }
    fs::write(&stamp, "").at("write", &stamp)?;
    let mut room = settings.max_size.0;
    let mut pruned = conflict::prune(root, now, settings.max_age.0)?;
    for kind in RecoveryKind::ALL {
        let folder = root.recovery(kind)?;
        // The names begin with the time: newest first.
        let mut names = folder.names()?;
        names.sort_unstable_by(|a, b| b.cmp(a));
        for name in names {
            let Some(stage) = StageName::parse(&name) else { continue };
            let spot = Spot::new(&folder, name);
            let Found::File(file) = spot.open()? else { continue };
            let young = now.duration_since(stage.id.time()).unsigned_abs() <= settings.max_age.0;
            if young && file.len() <= room {
                room -= file.len();
            } else {
                spot.remove()?;
                pruned += 1;
            }
        }
    }
    Ok(pruned)
}

/// Moves a file from the stage to recovery.
pub(crate) fn keep(root: &Root, spot: &Spot, kind: RecoveryKind) -> Result<()> {
    let name: OsString = owner_of_aside(spot.name()).unwrap_or(spot.name()).into();
    match spot.rename(&Spot::new(&root.recovery(kind)?, name)) {
        // Another process was faster.
        Err(Fault::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(()),
        answer => answer,
    }
}

/// Moves a late write to recovery and reports it in the ledger.
pub(crate) fn keep_late(root: &Root, spot: &Spot, stage: &StageName) -> Result<()> {
    report_late(root, stage, hash_at(spot)?)?;
    keep(root, spot, RecoveryKind::Late)
}

/// Keeps a file that the undo of a change could not put back at its path.
pub(crate) fn keep_foreign(root: &Root, spot: &Spot) -> Result<()> {
    let name = owner_of_aside(spot.name()).unwrap_or(spot.name());
    let Some(stage) = StageName::parse(name) else { return Ok(()) };
    match spot.open()? {
        Found::File(file) if FileState::Present(file.hash()?) == stage.base => {
            keep(root, spot, RecoveryKind::Replaced)
        }
        Found::File(_) => keep_late(root, spot, &stage),
        _ => Ok(()),
    }
}

/// Marks a staged file as settled: its change was not made.
pub(crate) fn settle(root: &Root, spot: &Spot) -> Result<()> {
    let Some(stage) = StageName::parse(spot.name()) else { return Ok(()) };
    match (StageName { standing: Standing::Settled, ..stage }).file_name() {
        Some(name) => match spot.rename(&spot.beside(name)) {
            Err(Fault::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(()),
            answer => answer,
        },
        // With the mark, the name would be one letter too long for the file system.
        None => keep(root, spot, RecoveryKind::TakenBack),
    }
}

/// Copies a file to recovery that cannot be renamed, because it is on another file system. Then deletes it.
pub(crate) fn keep_copy(root: &Root, spot: &Spot, stage: &StageName) -> Result<()> {
    let Found::File(file) = spot.open()? else { return Ok(()) };
    let replaced = FileState::Present(file.hash()?) == stage.base;
    if !replaced {
        report_late(root, stage, hash_at(spot)?)?;
    }
    let kind = if replaced { RecoveryKind::Replaced } else { RecoveryKind::Late };
    let name = stage_file_name(root, stage)?;
    let folder = root.recovery(kind)?;
    // Has another name until it is complete. After a crash, the file is copied again.
    let path = target_path(root, &stage.target)?;
    let unfinished = root.staged(unfinished_name(stripe(&path), &stage.id));
    unfinished.remove()?;
    let copy = unfinished.create(Mode::RUSR | Mode::WUSR)?;
    let mut at = 0;
    file.stream(|chunk| {
        copy.file().write_all_at(chunk, at).at("write", spot.shown())?;
        at += chunk.len() as u64;
        Ok(())
    })?;
    copy.flush(root.durability())?;
    unfinished.rename(&Spot::new(&folder, name))?;
    spot.remove()
}

/// Keeps bytes that another program saved and an agent's own tool overwrote, and reports them in the ledger. Returns the
/// id of the entry. The caller holds the lock of the path.
pub(crate) fn keep_overwritten(
    root: &Root,
    path: &Path,
    [base, new]: [FileState; 2],
    agent: &Agent,
    bytes: &[u8],
) -> Result<String> {
    let (standing, id, agent) = (Standing::Settled, ChangeId::new(root.now())?, agent.clone());
    let stage = StageName { standing, id, base, new, agent, target: TargetName::Path(path.to_owned()) };
    let unfinished = root.staged(unfinished_name(stripe(path), &stage.id));
    let copy = unfinished.create(Mode::RUSR | Mode::WUSR)?;
    let folder = root.recovery(RecoveryKind::Late)?;
    let name = stage_file_name(root, &stage)?;
    let kept = copy
        .write(bytes)
        .and_then(|()| copy.flush(root.durability()))
        .and_then(|()| unfinished.rename(&Spot::new(&folder, name)));
    kept.inspect_err(|_| drop(unfinished.remove()))?;
    report_late(root, &stage, Some(Digest::of(bytes)))?;
    Ok(stage.id.as_str().to_owned())
}

fn report_late(root: &Root, stage: &StageName, found: Option<Digest>) -> Result<()> {
    let late = LateWrite {
        recovery_id: stage.id.as_str().to_owned(),
        target_file: target_path(root, &stage.target)?.display().to_string(),
        baseline_hash: stage.base.digest(),
        found_hash: found,
        replaced_by: stage.agent.clone(),
    };
    let entry = Entry { time: root.now(), agent: None, turn: None, event: Event::LateExternalWrite(late) };
    root.ledger().append(&[entry], root.durability()).map(drop)
}

fn hash_at(spot: &Spot) -> Result<Option<Digest>> {
    match spot.open()? {
        Found::File(file) => file.hash().map(Some),
        Found::Nothing | Found::Unreadable | Found::NotAFile => Ok(None),
    }
}
