//! Healing: completing or rolling back what a dead process left, and sweeping the stage.
//!
//! The question is always: what is this file in the stage? Its name says which bytes it should have before and after the
//! swap, its bytes say which of the two it is, and the ledger says whether the change was acknowledged.
//!
//! | in the ledger | bytes | the file is | healing |
//! |---|---|---|---|
//! | no  | the new ones | the staged file of a change that was not made | settles it |
//! | no  | the old ones | the replaced file of a change whose author died before the ledger line | adds the line |
//! | no  | neither      | a foreign save that was swapped out | puts it back if the path still has the new bytes, else keeps and reports it |
//! | yes | the old ones | the replaced file of an acknowledged change | moves it to recovery after the grace time |
//! | yes | neither      | a replaced file that another program wrote late | keeps it in recovery and reports it |
//!
//! A settled file belongs to a change that was not made, and only awaits its late-write check. A file that was visible at the
//! path is never deleted but moved to recovery, because another program may have opened it there and still write into it.
//!
//! The lock of its path tells whether the author of a staged file lives. If another process holds the lock, the file is left
//! alone.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use crate::commit::{
    CommitJournal, JournalContent, JournalRecord, complete, file_changed, finish_swap, folder_moved,
    give_back, put_back, roll_back,
};
use crate::disk::{Found, Spot};
use crate::own_commit;
use crate::recovery::{Swept, check, keep_foreign, keep_late, settle};
use crate::retention::prune;
use crate::root::Root;
use crate::run_folder::remove_dead;
use crate::stage::{ChangeId, StageName, Standing, owner_of_aside, parse_unfinished};
use crate::stripe_lock::stripe;
use crate::turn::FileState;
use tollgate_base::error::Result;
use tollgate_base::event::{Event, FileChanged, FolderMoved, Mutation, MutationStatus};
use tollgate_base::ledger::Entry;
use tollgate_base::lock::Lock;

/// The largest difference between the clocks of machines and containers that share a workspace, for look-ups by time.
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// Completes or rolls back what dead processes left. Returns the stripes that were skipped because a living process holds
/// them.
pub(crate) fn heal(root: &Root) -> Result<BTreeSet<u8>> {
    let mut skipped = heal_journals(root)?;
    skipped.extend(heal_stage(root, &mut Swept::default())?.1);
    // A repository that cannot be healed stops no work on files.
    let _ = own_commit::heal(root);
    Ok(skipped)
}

/// Heals, makes the late-write checks that are due, and prunes recovery. Does nothing if another process sweeps.
pub(crate) fn sweep(root: &Root) -> Result<Swept> {
    let Some(_alone) = Lock::acquire(&root.state_path().join("locks/sweep"), Duration::ZERO)? else {
        return Ok(Swept::default());
    };
    heal_journals(root)?;
    let mut swept = Swept::default();
    let (awaiting_check, _) = heal_stage(root, &mut swept)?;
    check(root, awaiting_check, &mut swept)?;
    swept.removed += remove_dead(root)?;
    swept.pruned = prune(root)?;
    Ok(swept)
}

fn heal_journals(root: &Root) -> Result<BTreeSet<u8>> {
    let mut skipped = BTreeSet::new();
    for (number, unfinished) in CommitJournal::unfinished(root)? {
        if let Some(_lock) = root.stripes.acquire_one(number, Duration::ZERO)? {
            unfinished.remove()?;
        }
    }
    for journal in CommitJournal::all(root)? {
        let Some(content) = journal.read()? else { continue };
        let Some(_locks) = root.stripes.acquire(content.paths(), Duration::ZERO)? else {
            skipped.extend(content.paths().map(stripe));
            continue;
        };
        // The author may have finished before we got the locks.
        let Some(content) = journal.read()? else { continue };
        let ids: Vec<ChangeId> =
            content.records.iter().filter_map(|record| ChangeId::parse(&record.id)).collect();
        let acknowledged = acknowledged(root, ids.iter())?;
        if acknowledged.contains(ids.last().map_or("", ChangeId::as_str)) {
            complete(root, &content)?;
        } else if let Some(moved) = missing_line_of_folder(root, &content)? {
            let event = Event::Mutation(Mutation::Folder(moved), MutationStatus::Applied);
            root.record(Some(&content.agent), content.turn.as_ref(), event)?;
        } else {
            roll_back(root, &content)?;
            retract_lines(root, &content, &acknowledged)?;
        }
        journal.remove_for_good(root)?;
    }
    Ok(skipped)
}

/// A power failure can keep the first lines of a commit and lose the last one, which is the commit point. Then the commit is
/// rolled back, and a new line says so for each line that was kept.
fn retract_lines(root: &Root, content: &JournalContent, written: &HashSet<String>) -> Result<()> {
    let retracted = |record: &&JournalRecord| written.contains(&record.id);
    let entry = |record: &JournalRecord| {
        let (id, before, after) = (ChangeId::parse(&record.id)?, record.new.into(), record.base.into());
        let change = Mutation::File(file_changed(&id, "recovered", &record.path, before, after));
        let event = Event::Mutation(change, MutationStatus::Undone);
        Some(root.entry(Some(&content.agent), content.turn.as_ref(), event))
    };
    let entries: Vec<Entry> = content.records.iter().filter(retracted).filter_map(entry).collect();
    root.ledger().append(&entries, root.durability()).map(drop)
}

/// The ledger line of a folder that was moved by a process that died before it wrote the line. The caller holds the locks of
/// both paths.
fn missing_line_of_folder(root: &Root, content: &JournalContent) -> Result<Option<FolderMoved>> {
    let [record] = content.records.as_slice() else { return Ok(None) };
    let Some(to) = record.folder_to() else { return Ok(None) };
    let exists = |path: &Path| root.folder.open_below(path).is_ok();
    if exists(&record.path) || !exists(to) {
        return Ok(None);
    }
    let moved = folder_moved(&record.id, "recovered", (&record.path, to), root.files_below(to)?.len());
    Ok(Some(FolderMoved { recovered: true, ..moved }))
}

/// Which of these changes have a ledger line. A line that cannot be read is a fault: otherwise a change that was acknowledged
/// could be rolled back, because its line is damaged.
fn acknowledged<'a>(root: &Root, ids: impl Iterator<Item = &'a ChangeId>) -> Result<HashSet<String>> {
    // Ids sort by age.
    let wanted: BTreeMap<&str, Timestamp> = ids.map(|id| (id.as_str(), id.time())).collect();
    let mut found = HashSet::new();
    let Some((_, oldest)) = wanted.first_key_value() else { return Ok(found) };
    let horizon = oldest.saturating_sub(CLOCK_SKEW).unwrap_or(Timestamp::MIN);
    for line in root.ledger().newest_first()? {
        let line = line?;
        if line.time < horizon || found.len() == wanted.len() {
            break;
        }
        if let Some(id) = line.event.keys().change
            && wanted.contains_key(id)
        {
            found.insert(id.to_owned());
        }
    }
    Ok(found)
}

/// Whether the ledger has a change with this id.
pub(crate) fn was_made(root: &Root, id: &str) -> Result<bool> {
    let Some(id) = ChangeId::parse(id) else { return Ok(false) };
    Ok(!acknowledged(root, [&id].into_iter())?.is_empty())
}

/// Heals what dead processes left in the stage. Returns the files that await their late-write check, and the stripes that
/// were skipped.
fn heal_stage(root: &Root, swept: &mut Swept) -> Result<(Vec<StageName>, BTreeSet<u8>)> {
    let mut skipped = BTreeSet::new();
    let mut names = root.stage.names()?;
    if names.iter().any(|name| owner_of_aside(name).is_some()) {
        for name in &names {
            heal_aside(root, name)?;
        }
        // One of them may now have the name of its staged file.
        names = root.stage.names()?;
    }
    let (mut open, mut awaiting_check) = (Vec::new(), Vec::new());
    for name in names {
        if let Some(stage) = StageName::parse(&name) {
            if stage.standing == Standing::Open { open.push(stage) } else { awaiting_check.push(stage) }
        } else if let Some((stripe, _)) = parse_unfinished(&name)
            && let Some(_lock) = root.stripes.acquire_one(stripe, Duration::ZERO)?
        {
            root.staged(name).remove()?;
            swept.removed += 1;
        }
    }
    let acknowledged = acknowledged(root, open.iter().map(|stage| &stage.id))?;
    let mut unacknowledged: BTreeMap<u8, Vec<StageName>> = BTreeMap::new();
    for stage in open {
        if !acknowledged.contains(stage.id.as_str()) {
            let number = stripe(&root.target_path(&stage.target)?);
            unacknowledged.entry(number).or_default().push(stage);
        } else if stage.base == FileState::Absent {
            // The second name of a file that was created and acknowledged. Deleted at once, because until then the file
            // counts as hard-linked.
            root.staged(root.stage_file_name(&stage)?).remove()?;
        } else {
            awaiting_check.push(stage);
        }
    }
    for (number, stages) in unacknowledged {
        if heal_unacknowledged(root, number, &stages, swept)? == Healed::Skipped {
            skipped.insert(number);
        }
    }
    Ok((awaiting_check, skipped))
}

/// A file set aside: a crash interrupted a two-step swap, or the undo of a creation.
fn heal_aside(root: &Root, name: &OsStr) -> Result<()> {
    let Some(staged) = owner_of_aside(name) else { return Ok(()) };
    let Some(stage) = StageName::parse(staged) else { return Ok(()) };
    let path = root.target_path(&stage.target)?;
    let Some(_lock) = root.stripes.acquire([path.as_path()], Duration::ZERO)? else { return Ok(()) };
    let aside = root.staged(name);
    let Found::File(file) = aside.open()? else { return Ok(()) };
    let digest = FileState::Present(file.hash()?);
    let target = root.spot(&path);
    if target.as_ref().is_ok_and(|target| target.holds(&file).unwrap_or(false)) {
        // A second name of the file at the path.
        return aside.remove();
    }
    if finish_swap(&root.staged(staged))? {
        // It has its stage name now, which says what it is.
        return Ok(());
    }
    if digest == stage.new {
        // Our own bytes.
        return aside.remove();
    }
    match target {
        Ok(target) => give_back(root, &target, &aside),
        Err(_) => keep_foreign(root, &aside),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Healed {
    All,
    /// Some files were left to another process.
    Skipped,
}

/// Heals the staged files of one stripe without ledger lines: all at once, because each look into the ledger may read many
/// lines.
fn heal_unacknowledged(root: &Root, number: u8, stages: &[StageName], swept: &mut Swept) -> Result<Healed> {
    let Some(_lock) = root.stripes.acquire_one(number, Duration::ZERO)? else { return Ok(Healed::Skipped) };
    // Their authors may have finished before we got the lock.
    let acknowledged = acknowledged(root, stages.iter().map(|stage| &stage.id))?;
    // A file of a journalled commit is not healed alone: all of its files or none. Its journal could not be healed a moment
    // ago, because another process works on another of its files.
    let mut journalled = HashSet::new();
    for journal in CommitJournal::all(root)? {
        journalled.extend(journal.read()?.into_iter().flat_map(JournalContent::into_names));
    }
    let mut healed = Healed::All;
    for stage in stages.iter().filter(|stage| !acknowledged.contains(stage.id.as_str())) {
        let spot = root.staged(root.stage_file_name(stage)?);
        if journalled.contains(Path::new(spot.name())) {
            healed = Healed::Skipped;
        } else {
            judge(root, &spot, stage, &root.target_path(&stage.target)?, swept)?;
        }
    }
    Ok(healed)
}

/// Decides whether a change whose author is dead was made. The caller holds the lock of its path.
fn judge(root: &Root, spot: &Spot, stage: &StageName, path: &Path, swept: &mut Swept) -> Result<()> {
    let Found::File(file) = spot.open_itself()? else { return Ok(()) };
    let found = FileState::Present(file.hash()?);
    let target = root.spot(path);
    let at_path = |target: &Spot| target.holds(&file).unwrap_or(false);
    if stage.base == FileState::Absent && target.as_ref().is_ok_and(at_path) {
        // A new file at its path, which still has its name in the stage.
        add_missing_line(root, stage, path)?;
        swept.completed += 1;
        return spot.remove();
    }
    if stage.new == FileState::Absent && target.as_ref().is_ok_and(at_path) {
        // A removal that had not deleted the first of the two names yet.
        return spot.remove();
    }
    if found == stage.new {
        return settle(root, spot);
    }
    if found == stage.base {
        add_missing_line(root, stage, path)?;
        swept.completed += 1;
        return Ok(());
    }
    // A foreign save. It belongs at the path, if the path still has the bytes of the change that is not acknowledged.
    if let Ok(target) = target
        && stage.base != FileState::Absent
    {
        let has_new = |spot: &Spot| {
            Ok(match spot.open()? {
                Found::File(file) => FileState::Present(file.hash()?) == stage.new,
                Found::Nothing => stage.new == FileState::Absent,
                Found::Unreadable | Found::NotAFile => false,
            })
        };
        if has_new(&target)? {
            swept.put_back += 1;
            match stage.new {
                FileState::Absent => give_back(root, &target, spot)?,
                _ => put_back(root, &target, spot, &has_new)?,
            }
            return target.folder().flush(root.durability());
        }
    }
    swept.late += 1;
    keep_late(root, spot, stage)
}

fn add_missing_line(root: &Root, stage: &StageName, path: &Path) -> Result<()> {
    let change = file_changed(&stage.id, "recovered", path, stage.base, stage.new);
    let change = Mutation::File(FileChanged { recovered: true, ..change });
    root.record(Some(&stage.agent), None, Event::Mutation(change, MutationStatus::Applied))
}
