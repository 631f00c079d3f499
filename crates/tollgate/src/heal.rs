//! Putting right what a crash has left half done, and the second look at what guarded writes replaced.
//!
//! Both are the same question: what is this file in the stage? Its name says which bytes it should hold, before the
//! swap and after it; its bytes say which it is; the ledger says whether the change was acknowledged.
//!
//! | in the ledger | bytes | it is | what happens |
//! |---|---|---|---|
//! | no  | the new ones  | a change that never came about | settled |
//! | no  | the old ones  | a change whose author died before its ledger line | the line is added |
//! | no  | neither       | a foreign save that was swapped out | put back if the path still holds the new bytes, else kept and reported |
//! | yes | the old ones  | what an acknowledged change replaced | kept in recovery after the grace time |
//! | yes | neither       | a foreign program wrote it after it came out | kept in recovery and reported |
//!
//! A file that is settled belongs to a change that did not come about, and nothing is left to decide: it only waits for
//! its second look. Nothing that has stood at the path for a moment is ever removed, it is moved to recovery: whoever
//! opened it there may still be writing into it.
//!
//! Whether its author lives is told by the lock of its path: who holds it is at work, and the file is left alone.

use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::Mode;

use crate::commit::{
    Displaced, Journal, JournalContent, Record, finish_journalled, finish_swap, give_back, mutation_payload,
    prefixed, put_back, stage_file_name, undo_journalled,
};
use crate::digest::Digest;
use crate::disk::{Found, Quiet, Spot, Target};
use crate::error::{Fault, Result};
use crate::ledger::{ActionType, Entry, Flush};
use crate::lock::{Lock, StripeLocks, stripe};
use crate::name::Agent;
use crate::recovery::Kind;
use crate::settings::Durability;
use crate::stage::{
    ChangeId, StageName, Standing, TargetName, owner_of_aside, parse_unfinished, unfinished_name,
};
use crate::turn::FileState;
use crate::workspace::Workspace;

/// How many displaced files a process lets gather before it looks at those that are due. The flush of the ledger that
/// precedes the look is then paid once for all of them.
const BATCH: usize = 64;

/// Clocks of machines and containers that share a workspace may differ by this much when lines are looked up by time.
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// What a sweep has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Replaced files that got their second look and went to recovery.
    pub kept: usize,
    /// Foreign writes that were found late.
    pub late: usize,
    /// Changes whose missing ledger line was added.
    pub completed: usize,
    /// Foreign saves that were put back.
    pub put_back: usize,
    /// Staged files of changes that never came about.
    pub removed: usize,
    /// Entries of recovery that were too old or too many.
    pub pruned: usize,
}

/// Stripes that were left alone because a living process holds them.
pub(crate) type Stripes = BTreeSet<u8>;

/// What to do with files that are not due yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// Only what a crash has left.
    CrashOnly,
    /// Whatever is due.
    Due,
}

impl Workspace {
    /// Puts right what a crash has left half done. Done by every [`Workspace::open`].
    ///
    /// Says which stripes were left alone because a living process holds them.
    pub(crate) fn heal(&self) -> Result<Stripes> {
        let mut skipped = self.heal_journals()?;
        skipped.extend(self.heal_stage(When::CrashOnly)?.1);
        Ok(skipped)
    }

    /// Takes the second look at everything that is due, and prunes recovery.
    ///
    /// Long-lived processes call it now and then; the command line calls it after each write.
    pub fn sweep(&self) -> Result<Swept> {
        let Some(_alone) = Lock::acquire(&self.state_path().join("locks/sweep"), Duration::ZERO)? else {
            return Ok(Swept::default());
        };
        self.heal_journals()?;
        let (mut swept, _) = self.heal_stage(When::Due)?;
        swept.pruned = self.prune_recovery()?;
        Ok(swept)
    }

    fn heal_journals(&self) -> Result<Stripes> {
        let mut skipped = Stripes::new();
        for (number, unfinished) in Journal::unfinished(self)? {
            if let Some(_lock) = self.try_lock_stripe(number)? {
                unfinished.remove()?;
            }
        }
        for journal in Journal::all(self)? {
            let Some(content) = journal.read()? else { continue };
            let paths =
                content.records.iter().flat_map(|record| [Some(&record.path), record.to.as_ref()]).flatten();
            let paths: Vec<&Path> = paths.map(PathBuf::as_path).collect();
            let Some(_locks) = self.stripes().acquire(paths.iter().copied(), Duration::ZERO)? else {
                skipped.extend(paths.into_iter().map(stripe));
                continue;
            };
            // Its author may have finished while we waited for the locks.
            let Some(content) = journal.read()? else { continue };
            let ids: Vec<ChangeId> =
                content.records.iter().filter_map(|record| ChangeId::parse(&record.id)).collect();
            let acknowledged = self.acknowledged(ids.iter())?;
            if acknowledged.contains(ids.last().map_or("", ChangeId::as_str)) {
                finish_journalled(self, &content)?;
            } else if let Some(entry) = self.missing_line_of_folder(&content)? {
                self.ledger().append(&[entry], self.ledger_flush())?;
            } else {
                undo_journalled(self, &content)?;
                self.take_back_lines(&content, &acknowledged)?;
            }
            journal.remove_for_good()?;
        }
        Ok(skipped)
    }

    /// A power cut can keep the first lines of a commit and take the last, which counts. What they say was undone, and
    /// that is said after them.
    fn take_back_lines(&self, content: &JournalContent, written: &HashSet<String>) -> Result<()> {
        let undone = |record: &&Record| written.contains(&record.id);
        let entry = |record: &Record| {
            let id = ChangeId::parse(&record.id)?;
            let state = |digest: Option<Digest>| digest.map_or(FileState::Absent, FileState::Present);
            let payload =
                mutation_payload(&id, "recovered", &record.path, state(record.new), state(record.base));
            Some(Entry {
                time: self.now(),
                agent: Some(content.agent.clone()),
                turn: content.turn.clone(),
                action_type: ActionType::Mutation,
                payload,
                result: serde_json::json!({"status": "UNDONE"}),
            })
        };
        let entries: Vec<Entry> = content.records.iter().filter(undone).filter_map(entry).collect();
        self.ledger().append(&entries, self.ledger_flush()).map(drop)
    }

    /// Which of these changes have a line in the ledger. A fault if a line among those that matter cannot be read: to
    /// take a change for one that never came about, because its line is damaged, would undo what was acknowledged.
    fn acknowledged<'a>(&self, ids: impl Iterator<Item = &'a ChangeId>) -> Result<HashSet<String>> {
        let mut wanted: HashSet<&str> = HashSet::new();
        let mut oldest: Option<Timestamp> = None;
        for id in ids {
            wanted.insert(id.as_str());
            oldest = Some(oldest.map_or(id.time(), |oldest| oldest.min(id.time())));
        }
        let mut found = HashSet::new();
        let Some(oldest) = oldest else { return Ok(found) };
        let horizon = oldest.saturating_sub(CLOCK_SKEW).unwrap_or(Timestamp::MIN);
        for line in self.ledger().newest_first()? {
            let line = line?;
            if line.time < horizon || found.len() == wanted.len() {
                break;
            }
            if let Some(id) = line.payload["id"].as_str()
                && wanted.contains(id)
            {
                found.insert(id.to_owned());
            }
        }
        Ok(found)
    }

    fn heal_stage(&self, when: When) -> Result<(Swept, Stripes)> {
        let mut swept = Swept::default();
        let mut skipped = Stripes::new();
        let mut names = self.stage().names()?;
        if names.is_empty() {
            return Ok((swept, skipped));
        }
        let asides: Vec<_> = names.extract_if(.., |name| owner_of_aside(name).is_some()).collect();
        if !asides.is_empty() {
            for name in asides {
                self.heal_aside(&name)?;
            }
            // One of them may have got the name of its staged file.
            names = self.stage().names()?;
        }
        let (mut staged, mut settled) = (Vec::new(), Vec::new());
        for name in names {
            if let Some(stage) = StageName::parse(&name) {
                match stage.standing {
                    Standing::Open => staged.push(Displaced { name, stage }),
                    Standing::Settled => settled.push(Displaced { name, stage }),
                }
            } else if let Some((stripe, _)) = parse_unfinished(&name) {
                swept.removed += usize::from(self.remove_unfinished(&name, stripe)?);
            }
        }
        let acknowledged = self.acknowledged(staged.iter().map(|displaced| &displaced.stage.id))?;
        let (known, unknown): (Vec<_>, Vec<_>) =
            staged.into_iter().partition(|displaced| acknowledged.contains(displaced.stage.id.as_str()));
        // A file that was made and acknowledged is at its place, and this is only its second name. Not left for later:
        // until it is gone the file counts as hard-linked.
        let (second_names, known): (Vec<_>, Vec<_>) =
            known.into_iter().partition(|displaced| displaced.stage.base == FileState::Absent);
        for displaced in second_names {
            self.stage().spot(displaced.name).remove()?;
        }
        for displaced in unknown {
            skipped.extend(self.heal_unacknowledged(&displaced, &mut swept)?);
        }
        if when == When::Due {
            settled.extend(known);
            self.second_looks(settled, &mut swept)?;
        }
        Ok((swept, skipped))
    }

    fn try_lock(&self, path: &Path) -> Result<Option<StripeLocks>> {
        self.stripes().acquire([path], Duration::ZERO)
    }

    fn try_lock_stripe(&self, number: u8) -> Result<Option<Lock>> {
        Lock::acquire(&self.state_path().join(format!("locks/{number:02x}")), Duration::ZERO)
    }

    fn remove_unfinished(&self, name: &OsStr, number: u8) -> Result<bool> {
        let Some(_lock) = self.try_lock_stripe(number)? else { return Ok(false) };
        self.stage().spot(name).remove()?;
        Ok(true)
    }

    /// What is set aside is the middle of a swap in steps, or of taking a new file back.
    fn heal_aside(&self, name: &OsStr) -> Result<()> {
        let Some(staged) = owner_of_aside(name) else { return Ok(()) };
        let Some(stage) = StageName::parse(staged) else { return Ok(()) };
        let path = self.target_path(&stage.target)?;
        let Some(_lock) = self.try_lock(&path)? else { return Ok(()) };
        let aside = self.stage().spot(name);
        let Found::File(file) = aside.open()? else { return Ok(()) };
        let digest = FileState::Present(file.hash()?);
        let target = self.place_of(&path).spot(self.root());
        if target.as_ref().is_ok_and(|target| file.is_at(target).unwrap_or(false)) {
            // Only a second name of what is at the path.
            return aside.remove();
        }
        if finish_swap(&self.stage().spot(staged))? {
            // What it is will be told by its name.
            return Ok(());
        }
        if digest == stage.new {
            // Bytes of ours.
            return aside.remove();
        }
        if let Ok(target) = target
            && aside.rename_new(&target)?
        {
            return Ok(());
        }
        self.keep_foreign(&aside)
    }

    /// Says its stripe if it was left alone.
    fn heal_unacknowledged(&self, displaced: &Displaced, swept: &mut Swept) -> Result<Option<u8>> {
        let path = self.target_path(&displaced.stage.target)?;
        let Some(_lock) = self.try_lock(&path)? else { return Ok(Some(stripe(&path))) };
        // A file of a journalled commit is not judged alone: all of them or none. Its journal could not be healed a
        // moment ago because somebody else works on another of its files.
        for journal in Journal::all(self)? {
            if journal.read()?.is_some_and(|content| content.names(&displaced.name)) {
                return Ok(Some(stripe(&path)));
            }
        }
        self.judge(displaced, &path, swept).map(|()| None)
    }

    /// Decides what became of a change whose author is dead. The lock of its path is held.
    fn judge(&self, displaced: &Displaced, path: &Path, swept: &mut Swept) -> Result<()> {
        let Displaced { name, stage } = displaced;
        let spot = self.stage().spot(name);
        let Found::File(file) = spot.open()? else { return Ok(()) };
        // Its author may have finished while we waited for the lock.
        if !self.acknowledged([&stage.id].into_iter())?.is_empty() {
            return Ok(());
        }
        let found = FileState::Present(file.hash()?);
        let target = self.place_of(path).spot(self.root());
        let at_path = |target: &Spot| file.is_at(target).unwrap_or(false);
        if stage.base == FileState::Absent && target.as_ref().is_ok_and(at_path) {
            // A new file, at its place, with one name too many.
            self.add_missing_line(stage, path)?;
            swept.completed += 1;
            return spot.remove();
        }
        if stage.new == FileState::Absent && target.as_ref().is_ok_and(at_path) {
            // A removal that had not yet taken the first of the two names away.
            return spot.remove();
        }
        if found == stage.new {
            return self.settle(&spot);
        }
        if found == stage.base {
            self.add_missing_line(stage, path)?;
            swept.completed += 1;
            return Ok(());
        }
        // A foreign save. It belongs at the path, if that still holds what its author never heard of.
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
                    FileState::Absent => give_back(self, &target, &spot)?,
                    _ => put_back(self, &target, &spot, &has_new)?,
                }
                return target.folder().flush(self.settings().guard.durability);
            }
        }
        swept.late += 1;
        self.keep(&spot, stage, Kind::Late)
    }

    /// Marks a staged file as belonging to a change that did not come about.
    pub(crate) fn settle(&self, spot: &Spot) -> Result<()> {
        let Some(stage) = StageName::parse(spot.name()) else { return Ok(()) };
        match (StageName { standing: Standing::Settled, ..stage }).file_name() {
            Some(name) => match spot.rename(&spot.beside(name)) {
                Err(Fault::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(()),
                answer => answer,
            },
            // The mark makes the name one letter longer than the file system takes.
            None => self.keep_quietly(spot, Kind::TakenBack),
        }
    }

    fn add_missing_line(&self, stage: &StageName, path: &Path) -> Result<()> {
        let mut payload = mutation_payload(&stage.id, "recovered", path, stage.base, stage.new);
        payload["recovered"] = true.into();
        let entry = Entry {
            time: self.now(),
            agent: Some(stage.agent.clone()),
            turn: None,
            action_type: ActionType::Mutation,
            payload,
            result: serde_json::json!({"status": "APPLIED"}),
        };
        self.ledger().append(&[entry], self.ledger_flush()).map(drop)
    }

    pub(crate) fn ledger_flush(&self) -> Flush {
        match self.settings().guard.durability {
            Durability::Durable => Flush::Data,
            Durability::Fast => Flush::No,
        }
    }

    fn is_due(&self, id: &ChangeId, times: u32) -> bool {
        let grace = self.settings().guard.grace.0 * times;
        self.now().duration_since(id.time()).unsigned_abs() >= grace
    }

    /// Called after each commit: takes the second look at what this process has replaced, some at a time.
    pub(crate) fn await_second_look(&self, displaced: Displaced) {
        let due: Vec<Displaced> = {
            let mut pending = self.pending().lock().unwrap_or_else(PoisonError::into_inner);
            pending.push(displaced);
            if pending.len() < BATCH || !self.is_due(&pending[0].stage.id, 1) {
                return;
            }
            let count = pending.iter().take_while(|displaced| self.is_due(&displaced.stage.id, 1)).count();
            pending.drain(..count).collect()
        };
        // If it fails, the files stay where they are, and the next sweep finds them.
        let _ = self.second_looks(due, &mut Swept::default());
    }

    /// The files are in the ledger, and what they replaced is acknowledged.
    fn second_looks(&self, displaced: Vec<Displaced>, swept: &mut Swept) -> Result<()> {
        if self.settings().guard.durability == Durability::Durable {
            // A file that leaves the stage is no longer there to make a lost line again.
            self.ledger().sync()?;
        }
        for Displaced { name, stage } in displaced {
            if !self.is_due(&stage.id, 1) {
                continue;
            }
            let spot = self.stage().spot(name);
            let Found::File(mut file) = spot.open()? else { continue };
            if stage.base == FileState::Absent && stage.standing == Standing::Open {
                // A file that was made has its own name; this one is only left over.
                spot.remove()?;
                continue;
            }
            // A hash alone could be taken just before a late writer writes.
            let busy = file.quiet() == Quiet::Busy;
            if busy && !self.is_due(&stage.id, 10) {
                // Somebody has it open: later, but not for ever.
                continue;
            }
            file.refresh()?;
            let found = FileState::Present(file.hash()?);
            if !busy && found == stage.base {
                swept.kept += 1;
                self.keep_quietly(&spot, Kind::Replaced)?;
            } else if !busy && found == stage.new && stage.standing == Standing::Settled {
                swept.removed += 1;
                self.keep_quietly(&spot, Kind::TakenBack)?;
            } else {
                swept.late += 1;
                self.keep(&spot, &stage, Kind::Late)?;
            }
        }
        Ok(())
    }

    /// Keeps in recovery a file that was swapped out of a change that did not come about.
    pub(crate) fn keep_foreign(&self, spot: &Spot) -> Result<()> {
        let name = owner_of_aside(spot.name()).unwrap_or(spot.name());
        let Some(stage) = StageName::parse(name) else { return Ok(()) };
        let kind = match spot.open()? {
            Found::File(file) if FileState::Present(file.hash()?) == stage.base => Kind::Replaced,
            Found::File(_) => Kind::Late,
            _ => return Ok(()),
        };
        self.keep(spot, &stage, kind)
    }

    /// Moves a file to recovery, never copies it: whoever still writes into it goes on writing into what is kept.
    fn keep(&self, spot: &Spot, stage: &StageName, kind: Kind) -> Result<()> {
        if kind == Kind::Late {
            self.report_late(stage, hash_at(spot)?)?;
        }
        self.keep_quietly(spot, kind)
    }

    fn keep_quietly(&self, spot: &Spot, kind: Kind) -> Result<()> {
        let name: OsString = owner_of_aside(spot.name()).unwrap_or(spot.name()).into();
        let folder = self.recovery_folder().open_below(Path::new(kind.folder()))?;
        match spot.rename(&folder.spot(name)) {
            // Another sweep was faster.
            Err(Fault::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(()),
            answer => answer,
        }
    }

    fn report_late(&self, stage: &StageName, found: Option<Digest>) -> Result<()> {
        let path = self.target_path(&stage.target)?;
        let entry = Entry {
            time: self.now(),
            agent: None,
            turn: None,
            action_type: ActionType::LateExternalWrite,
            payload: serde_json::json!({
                "recovery_id": stage.id.as_str(),
                "target_file": path.display().to_string(),
                "baseline_hash": prefixed(stage.base.digest()),
                "found_hash": prefixed(found),
                "replaced_by": stage.agent.as_str(),
            }),
            result: serde_json::json!({"status": "KEPT"}),
        };
        self.ledger().append(&[entry], self.ledger_flush()).map(drop)
    }

    /// Keeps the bytes of a file that cannot be moved to recovery because it is on another file system.
    pub(crate) fn keep_beside(&self, spot: &Spot, stage: &StageName) -> Result<()> {
        let Found::File(file) = spot.open()? else { return Ok(()) };
        let kind = if FileState::Present(file.hash()?) == stage.base { Kind::Replaced } else { Kind::Late };
        if kind == Kind::Late {
            self.report_late(stage, hash_at(spot)?)?;
        }
        let name = stage_file_name(self, stage)?;
        let folder = self.recovery_folder().open_below(Path::new(kind.folder()))?;
        // Under another name until it is whole: a crash may fall in between, and then it is copied again.
        let path = self.target_path(&stage.target)?;
        let unfinished = self.stage().spot(unfinished_name(stripe(&path), &stage.id));
        unfinished.remove()?;
        let copy: Target = unfinished.create(Mode::RUSR | Mode::WUSR)?;
        let mut at = 0;
        file.stream(|chunk| {
            use std::os::unix::fs::FileExt;
            copy.file().write_all_at(chunk, at).map_err(|source| Fault::Io {
                doing: "write",
                path: spot.shown(),
                source,
            })?;
            at += chunk.len() as u64;
            Ok(())
        })?;
        copy.flush(self.settings().guard.durability)?;
        unfinished.rename(&folder.spot(name))?;
        spot.remove()
    }

    /// Keeps what somebody saved and an agent's own tool has overwritten, and says so in the ledger. Gives its id in
    /// recovery. The caller holds the lock of the path.
    pub(crate) fn keep_overwritten(
        &self,
        path: &Path,
        [base, new]: [FileState; 2],
        agent: &Agent,
        bytes: &[u8],
    ) -> Result<String> {
        let (standing, id, agent) = (Standing::Settled, ChangeId::new(self.now())?, agent.clone());
        let stage = StageName { standing, id, base, new, agent, target: TargetName::Path(path.to_owned()) };
        let unfinished = self.stage().spot(unfinished_name(stripe(path), &stage.id));
        let copy = unfinished.create(Mode::RUSR | Mode::WUSR)?;
        let folder = self.recovery_folder().open_below(Path::new(Kind::Late.folder()))?;
        let name = stage_file_name(self, &stage)?;
        let kept = copy
            .write(bytes)
            .and_then(|()| copy.flush(self.settings().guard.durability))
            .and_then(|()| unfinished.rename(&folder.spot(name)));
        kept.inspect_err(|_| drop(unfinished.remove()))?;
        self.report_late(&stage, Some(Digest::of(bytes)))?;
        Ok(stage.id.as_str().to_owned())
    }
}

fn hash_at(spot: &Spot) -> Result<Option<Digest>> {
    match spot.open()? {
        Found::File(file) => file.hash().map(Some),
        Found::Nothing | Found::Unreadable | Found::NotAFile => Ok(None),
    }
}
