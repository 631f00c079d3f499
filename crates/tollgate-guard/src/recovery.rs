//! Recovery: files that guarded writes replaced, and late writes by programs outside tollgate, kept for a limited time.
//!
//! A file in recovery is the replaced file itself, renamed and not copied: a program that still writes into it then writes
//! into what is kept. Copied are only files on other file systems, and foreign saves that go back to their path. The name of
//! a file says what it was (see `stage.rs`). Later, when the kernel says that no program has the file open for writing, its bytes
//! go to the store of contents (`content.rs`), and a file with the number of bytes takes its place here.
//!
//! Recovery and the store are limited together, by age and by size; a late write is never deleted for lack of space before
//! bytes that an agent wrote.
//!
//! The late-write check: a program may have resolved a path just before a guarded write replaced the file, and opened it
//! just after. It then writes into the replaced file, which nobody reads any more. So tollgate keeps replaced files in the
//! stage, hashes each one again after a grace time, and moves it to recovery. The ledger reports a file that was changed.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use jiff::Timestamp;
use rustix::fs::Mode;
use serde::Serialize;

use crate::content::{self, Content};
use crate::disk::{Found, Quiet, Spot, Target, gone_is_none};
use crate::path::FilePath;
use crate::root::Root;
pub use crate::stage::RecoveryKind;
use crate::stage::{ChangeId, StageName, Standing, TargetName, owner_of_aside, to_base64, unfinished_name};
use crate::stripe_lock::stripe;
use crate::turn::FileState;
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::event::{Event, LateWrite};
use tollgate_base::file::names_in;
use tollgate_base::name::Agent;
use tollgate_base::private;
use tollgate_base::settings::Durability;

/// The number of replaced files that a process collects before it checks those that are due. The ledger is then flushed
/// once for all of them.
const BATCH: usize = 64;

/// The number of grace times after which a file is checked even though a program still has it open for writing.
const PATIENCE: u32 = 10;

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
    /// What the path had after the write that replaced it.
    #[serde(skip)]
    pub replaced_with: FileState,
    #[serde(skip)]
    name: OsString,
    /// The bytes are in the store of contents.
    #[serde(skip)]
    is_stored: bool,
}

impl RecoveryEntry {
    /// The entry with this id, or the only one whose id begins like this.
    pub fn named(entries: Vec<Self>, id: &str) -> Result<Self> {
        let mut similar =
            entries.into_iter().filter(|entry| !id.is_empty() && entry.id.starts_with(id)).peekable();
        match (similar.next(), similar.peek().is_some()) {
            (Some(entry), false) => Ok(entry),
            (Some(entry), true) if entry.id == id => Ok(entry),
            (Some(_), true) => Err(Fault::invalid_with_hint(
                format!("several recovery entries begin with `{}`", id.escape_debug()),
                "give more characters of the id, which `tollgate recovery list` shows",
            )),
            (None, _) => Err(Fault::no_recovery_entry(id)),
        }
    }
}

/// The files in recovery, newest first. Includes replaced files that still await their late-write check.
pub(crate) fn list(root: &Root) -> Result<Vec<RecoveryEntry>> {
    let mut entries = Vec::new();
    for kind in RecoveryKind::ALL {
        let folder = root.recovery_folder(kind)?;
        for name in folder.names()? {
            entries.extend(entry(root, &Spot::new(&folder, name), kind)?);
        }
    }
    for name in root.stage.names()? {
        let staged = entry(root, &root.staged(name), RecoveryKind::Replaced)?;
        entries.extend(staged.filter(|entry| entry.sha256.is_some()));
    }
    entries.sort_by(|a, b| b.id.cmp(&a.id));
    entries.dedup_by(|a, b| a.id == b.id);
    Ok(entries)
}

/// One file in recovery, with its bytes.
pub(crate) fn read(root: &Root, id: &str) -> Result<(RecoveryEntry, Vec<u8>)> {
    let entry = RecoveryEntry::named(list(root)?, id)?;
    let id = entry.id.clone();
    read_entry(root, entry)?.ok_or_else(|| Fault::no_longer_kept(&id))
}

/// The bytes of an entry that was listed; `None` if it was deleted in the meantime.
pub(crate) fn read_entry(root: &Root, mut entry: RecoveryEntry) -> Result<Option<(RecoveryEntry, Vec<u8>)>> {
    // In the meantime, another process may move the file from the stage to recovery, and then to the store.
    let kept = RecoveryKind::ALL.map(|kind| root.recovery_folder(kind));
    for folder in [Ok(root.stage.clone())].into_iter().chain(kept) {
        let spot = Spot::new(&folder?, &entry.name);
        if !entry.is_stored
            && let Found::File(file) = spot.open()?
        {
            let (bytes, digest) = file.read()?;
            entry.sha256 = Some(digest);
            return Ok(Some((entry, bytes)));
        }
    }
    let Some(digest) = entry.sha256 else { return Ok(None) };
    Ok(content::get(root, digest)?.bytes().map(|bytes| (entry, bytes)))
}

/// The bytes with this hash: in the store, or in a file whose bytes have not come there yet.
pub(crate) fn find(root: &Root, digest: Digest) -> Result<Content> {
    let stored = content::get(root, digest)?;
    if matches!(stored, Content::Kept(_)) {
        return Ok(stored);
    }
    // Most names need not be read for this.
    let hash = to_base64(&digest);
    let kept = RecoveryKind::ALL.map(|kind| (root.recovery_folder(kind), kind));
    for (folder, kind) in [(Ok(root.stage.clone()), RecoveryKind::Replaced)].into_iter().chain(kept) {
        let folder = folder?;
        for name in folder.names()? {
            let may_be = kind == RecoveryKind::Late || name.to_string_lossy().contains(&hash);
            let Some(stage) = may_be.then(|| StageName::parse(&name)).flatten() else { continue };
            if stage.standing != Standing::Stored
                && let Found::File(file) = Spot::new(&folder, name).open()?
            {
                let (bytes, found) = file.read()?;
                if found == digest {
                    return Ok(Content::Kept(bytes));
                }
            }
        }
    }
    // Another process may have moved it from there to the store.
    content::get(root, digest)
}

/// The bytes with this hash, if the workspace with this state has them. Changes nothing there, so it is for the workspaces of others.
pub(crate) fn peek(state: &Path, digest: Digest) -> Option<Vec<u8>> {
    let hash = to_base64(&digest);
    let read = |folder: &Path, name: &OsStr| {
        let bytes = name.to_string_lossy().contains(&hash).then(|| private::read(&folder.join(name)).ok())?;
        bytes.filter(|bytes| Digest::of(bytes) == digest)
    };
    let replaced = || {
        let folders = [state.join("stage"), state.join("history").join(RecoveryKind::Replaced.folder())];
        folders.iter().find_map(|folder| names_in(folder).ok()?.iter().find_map(|name| read(folder, name)))
    };
    content::peek(state, digest).or_else(replaced)
}

fn entry(root: &Root, spot: &Spot, kind: RecoveryKind) -> Result<Option<RecoveryEntry>> {
    let Some(stage) = StageName::parse(spot.name()) else { return Ok(None) };
    let Found::File(file) = spot.open()? else { return Ok(None) };
    let (sha256, is_stored) = (stage.kept_digest(kind), stage.standing == Standing::Stored);
    if is_stored && !sha256.is_some_and(|digest| content::has(root, digest)) {
        return Ok(None);
    }
    let relative = root.target_path(&stage.target)?;
    let size = if is_stored { number_in(&file)? } else { file.len() };
    Ok(Some(RecoveryEntry {
        id: stage.id.as_str().to_owned(),
        path: FilePath::trusted(root.path().join(relative)),
        kind,
        replaced_by: stage.agent,
        replaced_with: stage.new,
        time: stage.id.time(),
        size,
        sha256,
        is_stored,
        name: spot.name().to_owned(),
    }))
}

/// The number of bytes, in the file of an entry whose bytes are in the store.
fn number_in(file: &Target) -> Result<u64> {
    let (text, _) = file.read()?;
    Ok(str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0))
}

/// Moves a file from the stage to recovery.
fn keep(root: &Root, spot: &Spot, kind: RecoveryKind) -> Result<()> {
    let name = owner_of_aside(spot.name()).unwrap_or(spot.name());
    // If it is gone, another process was faster.
    gone_is_none(spot.rename(&Spot::new(&root.recovery_folder(kind)?, name))).map(drop)
}

/// Moves a late write to recovery and reports it in the ledger.
pub(crate) fn keep_late(root: &Root, spot: &Spot, stage: &StageName) -> Result<()> {
    report_late(root, stage, spot.hash()?)?;
    keep(root, spot, RecoveryKind::Late)
}

/// Keeps a file that the undo of a change could not put back at its path.
pub(crate) fn keep_foreign(root: &Root, spot: &Spot) -> Result<()> {
    let name = owner_of_aside(spot.name()).unwrap_or(spot.name());
    let Some(stage) = StageName::parse(name) else { return Ok(()) };
    match spot.hash()? {
        None => Ok(()),
        found if found == stage.base.digest() => keep(root, spot, RecoveryKind::Replaced),
        Some(_) => keep_late(root, spot, &stage),
    }
}

/// Marks a staged file as settled: its change was not made.
pub(crate) fn settle(root: &Root, spot: &Spot) -> Result<()> {
    let Some(stage) = StageName::parse(spot.name()) else { return Ok(()) };
    match (StageName { standing: Standing::Settled, ..stage }).file_name() {
        Some(name) => gone_is_none(spot.rename(&spot.beside(name))).map(drop),
        // With the mark, the name would be one letter too long for the file system.
        None => keep(root, spot, RecoveryKind::TakenBack),
    }
}

/// Copies a file to recovery that cannot be renamed, because it is on another file system. Then deletes it.
pub(crate) fn keep_copy(root: &Root, spot: &Spot, stage: &StageName) -> Result<()> {
    let Found::File(file) = spot.open()? else {
        // A symbolic link has no bytes to keep.
        return spot.remove();
    };
    let found = file.hash()?;
    let replaced = FileState::Present(found) == stage.base;
    if !replaced {
        report_late(root, stage, Some(found))?;
    }
    let kind = if replaced { RecoveryKind::Replaced } else { RecoveryKind::Late };
    write(root, stage, kind, root.durability(), &|copy| copy_bytes(&file, copy))?;
    spot.remove()
}

/// Keeps a copy of a save by another program that is about to go back to its path. A program that has read the path in the
/// meantime, and saves what it has read by a rename, would destroy the save.
pub(crate) fn keep_before_return(root: &Root, spot: &Spot) {
    // Without a copy, because the disk is full for example, it goes back all the same.
    let _ = try_keep_before_return(root, spot);
}

fn try_keep_before_return(root: &Root, spot: &Spot) -> Result<()> {
    let name = owner_of_aside(spot.name()).unwrap_or(spot.name());
    let Some(stage) = StageName::parse(name) else { return Ok(()) };
    let Found::File(file) = spot.open_itself()? else { return Ok(()) };
    // Recovery would delete a larger one at once.
    let is_too_large = file.len() > root.settings().history.max_size.0;
    if is_too_large || [stage.base, stage.new].contains(&FileState::Present(file.hash()?)) {
        return Ok(());
    }
    let stage = StageName { standing: Standing::Settled, id: ChangeId::new(root.now())?, ..stage };
    // Not flushed: until this ends, others see our bytes at the path.
    write(root, &stage, RecoveryKind::Late, Durability::Fast, &|copy| copy_bytes(&file, copy))
}

fn copy_bytes(from: &Target, to: &Target) -> Result<()> {
    let mut at = 0;
    from.copy(|chunk| {
        to.write(chunk, at)?;
        at += chunk.len() as u64;
        Ok(())
    })
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
    write(root, &stage, RecoveryKind::Late, root.durability(), &|copy| copy.write(bytes, 0))?;
    report_late(root, &stage, Some(Digest::of(bytes)))?;
    Ok(stage.id.as_str().to_owned())
}

/// Writes a new file in recovery. It has another name until it is complete. After a crash, it is written again.
fn write(
    root: &Root,
    stage: &StageName,
    kind: RecoveryKind,
    durability: Durability,
    fill: &dyn Fn(&Target) -> Result<()>,
) -> Result<()> {
    let path = root.target_path(&stage.target)?;
    let kept = Spot::new(&root.recovery_folder(kind)?, root.stage_file_name(stage)?);
    let unfinished = root.staged(unfinished_name(stripe(&path), &stage.id));
    unfinished.remove()?;
    let copy = unfinished.create(Mode::RUSR | Mode::WUSR)?;
    let written = fill(&copy).and_then(|()| copy.flush(durability)).and_then(|()| unfinished.rename(&kept));
    written.inspect_err(|_| drop(unfinished.remove()))
}

fn report_late(root: &Root, stage: &StageName, found: Option<Digest>) -> Result<()> {
    let late = LateWrite {
        recovery_id: stage.id.as_str().to_owned(),
        target_file: root.target_path(&stage.target)?.display().to_string(),
        baseline_hash: stage.base.digest(),
        found_hash: found,
        replaced_by: stage.agent.clone(),
    };
    root.record(None, None, Event::LateExternalWrite(late))
}

/// What a sweep has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Replaced files that passed the late-write check and went to recovery.
    pub kept: usize,
    /// Writes by programs outside tollgate that were found late.
    pub late: usize,
    /// Changes whose missing ledger line was added.
    pub completed: usize,
    /// Saves by programs outside tollgate that were put back at their path.
    pub put_back: usize,
    /// Staged files of changes that were not made.
    pub removed: usize,
    /// Recovery files that were too old or too many.
    pub pruned: usize,
}

/// Remembers a file that this process has replaced. From time to time, checks those that are due.
pub(crate) fn check_later(root: &Root, replaced: StageName) {
    let due: Vec<StageName> = {
        let mut waiting = root.awaiting_check();
        waiting.push(replaced);
        if waiting.len() < BATCH || !is_due(root, &waiting[0].id, 1) {
            return;
        }
        let count = waiting.iter().take_while(|stage| is_due(root, &stage.id, 1)).count();
        waiting.drain(..count).collect()
    };
    // If this fails, the files stay in the stage, and the next sweep checks them.
    let _ = check(root, due, &mut Swept::default());
}

/// Checks those of these files that are due. Their changes have ledger lines, or are settled.
pub(crate) fn check(root: &Root, mut replaced: Vec<StageName>, swept: &mut Swept) -> Result<()> {
    replaced.retain(|stage| is_due(root, &stage.id, 1));
    if !replaced.is_empty() && root.durability() == Durability::Durable {
        // Once a file has left the stage, a lost ledger line can no longer be restored from its name.
        root.ledger().sync()?;
    }
    for stage in replaced {
        let spot = root.staged(root.stage_file_name(&stage)?);
        let Found::File(mut file) = spot.open_itself()? else { continue };
        // Without the lease, a late writer could write just after the hash was taken.
        let busy = file.quiet() == Quiet::Busy;
        if busy && !is_due(root, &stage.id, PATIENCE) {
            continue;
        }
        file.refresh()?;
        let found = FileState::Present(file.hash()?);
        if !busy && found == stage.base {
            swept.kept += 1;
            keep(root, &spot, RecoveryKind::Replaced)?;
        } else if !busy && found == stage.new && stage.standing == Standing::Settled {
            swept.removed += 1;
            keep(root, &spot, RecoveryKind::TakenBack)?;
        } else {
            swept.late += 1;
            keep_late(root, &spot, &stage)?;
        }
    }
    Ok(())
}

fn is_due(root: &Root, id: &ChangeId, times: u32) -> bool {
    let grace = root.settings().guard.grace.0 * times;
    root.age(id.time()) >= grace
}
