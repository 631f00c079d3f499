//! Tasks in folders: a claim is a move, and the move decides.
//!
//! Every step of a task is taken under a kernel lock of that task's name, so the processes of all workspaces that share
//! the vault exclude each other. People and programs that know nothing of the lock only ever see atomic moves, and a
//! move never replaces anything. The step is written down before it is taken (`log`); one that was cut short is
//! settled by whoever comes next (`settle`).
//!
//! Invariants: the folder a file lies in is its state, whoever put it there; what is in `.tollgate/` only explains it.

mod cache;
mod carry;
#[cfg(test)]
mod chaos;
#[cfg(test)]
mod crash;
pub(crate) mod disk;
mod log;
mod scan;
mod settle;
mod stripe;
mod sums;
mod sweep;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use self::cache::Stat;
use self::disk::{Disk, Seen};
use self::log::{FORMAT, Noted};
use self::stripe::{Log, Stripes};
use self::sums::Sums;
use super::claim::{Claim, ClaimId, Note};
use super::event::{Event, Journal};
use super::figures::{Count, Tally};
use super::hold::{Hold, Owner};
use super::name::TaskName;
use super::state::{Slot, State};
use super::store::{
    FirstStep, Healed, Landed, NextStep, Outcome, Placed, Ready, Scan, Step, Store, Stored, Taken, Version,
};
use super::task::{Brief, HEAD};
use crate::digest::{Digest, Hasher};
use crate::error::{At, Fault, Result};
use crate::name::{Agent, random_id};
use crate::settings::Durability;

/// The longest that a task's lock is waited for. A step takes a millisecond; a disk that is slow to flush, a second.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// Whether nobody else has this file open for writing.
pub type Quiet = fn(File) -> io::Result<bool>;

/// How the folders are used.
#[derive(Clone)]
pub struct FolderOptions {
    /// Whether what was answered survives a power cut.
    pub durability: Durability,
    /// A file that was not renamed into place is complete when it has not changed for so long.
    pub settle: Duration,
    /// Where events are written down.
    pub journal: Arc<dyn Journal>,
    /// How to find out whether somebody is writing. Without it only `settle` protects from half-written tasks.
    pub quiet: Option<Quiet>,
}

/// A task's file, open, as it was found.
struct Opened {
    slot: Slot,
    path: PathBuf,
    file: File,
    seen: Seen,
}

/// Tasks in folders.
#[derive(Clone)]
pub struct FolderStore {
    vault: PathBuf,
    private: PathBuf,
    options: FolderOptions,
    disk: Disk,
    stripes: Arc<Stripes>,
    /// The file of the locks of held claims.
    held: PathBuf,
    sums: Arc<Sums>,
}

impl FolderStore {
    /// Opens a vault, making what is missing of its folders.
    pub fn open(vault: &Path, options: FolderOptions) -> Result<Self> {
        // A folder of its own, because a vault may be a workspace too, whose state lies beside it.
        let private = vault.join(".tollgate").join("vault");
        for state in State::ALL {
            make_folder(&vault.join(state.as_str()))?;
        }
        for folder in ["log", "figures", "owed", "stage", "cache"] {
            make_folder(&private.join(folder))?;
        }
        check_format(&private)?;
        // Without what may stand at the end of a path or twice in it.
        let vault: PathBuf = vault.components().collect();
        let root = File::open(&vault).at("open", &vault)?;
        let disk = Disk {
            durability: options.durability,
            root: Arc::new((vault.clone(), root)),
            #[cfg(test)]
            fates: None,
        };
        let stripes = Arc::new(Stripes::open(private.join("stripes"), private.join("log"))?);
        let held = private.join("held");
        super::hold::make(&held)?;
        let sums = Arc::new(Sums::new(private.join("figures")));
        Ok(Self { vault, private, options, disk, stripes, held, sums })
    }

    /// The vault's folder.
    pub fn vault(&self) -> &Path {
        &self.vault
    }

    /// The file of the locks of held claims. A lock that is let go is seen as a closing of this file.
    pub fn held(&self) -> &Path {
        &self.held
    }

    fn folder(&self, slot: &Slot) -> PathBuf {
        let folder = self.vault.join(slot.state().as_str());
        match slot {
            Slot::InProgress(agent) => folder.join(agent.as_str()),
            Slot::Free(_) => folder,
        }
    }

    pub(crate) fn path(&self, task: &TaskName, slot: &Slot) -> PathBuf {
        let state = slot.state().as_str();
        let agent = slot.agent().map_or("", |agent| agent.as_str());
        let mut path = PathBuf::with_capacity(
            self.vault.as_os_str().len() + state.len() + agent.len() + task.as_str().len() + 3,
        );
        path.push(&self.vault);
        path.push(state);
        if !agent.is_empty() {
            path.push(agent);
        }
        path.push(task.as_str());
        path
    }

    /// The only code that changes files here, for the store that lays its own tree over this one.
    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// What is to become of every act from here on.
    #[cfg(test)]
    pub(crate) fn set_fates(&mut self, fates: disk::Fates) {
        self.disk.fates = Some(fates);
    }

    /// Where a file is made before it gets its name.
    pub(crate) fn stage(&self, name: &str) -> PathBuf {
        self.private("stage", name)
    }

    fn private(&self, folder: &str, name: &str) -> PathBuf {
        let mut path = self.private.join(folder);
        path.push(name);
        path
    }

    /// The slots in which a task may be, likeliest first.
    fn places(&self, state: Option<State>) -> Result<Vec<Slot>> {
        let wanted = |at: State| state.is_none_or(|state| state == at);
        let mut slots = Vec::new();
        for at in [State::NeedsAction, State::Approved, State::PendingApproval] {
            if wanted(at) {
                slots.push(Slot::Free(at));
            }
        }
        if wanted(State::InProgress) {
            slots.extend(self.agents()?.into_iter().map(Slot::InProgress));
        }
        slots.extend([State::Done, State::Rejected].into_iter().filter(|at| wanted(*at)).map(Slot::Free));
        Ok(slots)
    }

    /// All agents that have, or had, something in progress.
    fn agents(&self) -> Result<Vec<Agent>> {
        let folder = self.vault.join(State::InProgress.as_str());
        let mut agents = Vec::new();
        for entry in fs::read_dir(&folder).at("read", &folder)? {
            let entry = entry.at("read", &folder)?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                agents.extend(entry.file_name().to_str().and_then(|name| name.parse::<Agent>().ok()));
            }
        }
        agents.sort();
        Ok(agents)
    }

    /// Opens a task in one slot, to look at it.
    fn open_in(&self, slot: Slot, task: &TaskName) -> Result<Option<Opened>> {
        let path = self.path(task, &slot);
        let opened = self.disk.open_task(&path, false)?;
        Ok(opened.map(|(file, seen)| Opened { slot, path, file, seen }))
    }

    /// Looks at a task that was opened.
    fn look(
        &self,
        task: &TaskName,
        noted: Option<&Noted>,
        Opened { slot, path, file, seen }: Opened,
        now: Timestamp,
    ) -> Result<Option<Stored>> {
        let mut head = vec![0; usize::try_from(seen.len).unwrap_or(HEAD).min(HEAD)];
        let read = file.read_at(&mut head, 0).at("read", &path)?;
        let twin = noted.map(|noted| &noted.note.slot).filter(|other| {
            **other != slot && fs::symlink_metadata(self.path(task, other)).is_ok_and(|found| found.is_file())
        });
        let mut ready = scan::ready(&seen, self.options.settle, now);
        if let (Some(quiet), Slot::Free(_), Ready::Now | Ready::After(_)) = (self.options.quiet, &slot, ready)
            && !quiet(file).at("look at", &path)?
        {
            if !self.disk.is_at(&path, seen.ino) {
                // Taken at this moment: it is the new owner who writes.
                return Ok(None);
            }
            ready = Ready::Open;
        }
        Ok(Some(Stored {
            placed: placed(task, &slot, noted, &seen, path),
            brief: Brief::read(&head[..read]),
            ready,
            twin: twin.cloned(),
            modified: scan::modified(&seen),
        }))
    }

    /// A task, in this state or wherever it is, of which this is known.
    fn find(
        &self,
        task: &TaskName,
        state: Option<State>,
        noted: Option<Arc<Noted>>,
        now: Timestamp,
    ) -> Result<Option<Stored>> {
        self.search(state, noted, |slot, noted| match self.open_in(slot.clone(), task)? {
            Some(opened) => self.look(task, noted, opened, now),
            None => Ok(None),
        })
    }

    /// What `look` finds, where the task was put or anywhere else.
    fn search<T>(
        &self,
        state: Option<State>,
        noted: Option<Arc<Noted>>,
        look: impl Fn(&Slot, Option<&Noted>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let slot = noted.as_deref().map(|noted| &noted.note.slot);
        // Nearly always it is where it was put.
        if let Some(slot) = slot.filter(|slot| state.is_none_or(|state| slot.state() == state))
            && let Some(found) = look(slot, noted.as_deref())?
        {
            return Ok(Some(found));
        }
        for slot in self.places(state)? {
            if let Some(found) = look(&slot, noted.as_deref())? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The lock of everything that is done to a task.
    fn lock(&self, task: &TaskName) -> Result<Log<'_>> {
        let locked = || Fault::Locked { path: self.private.join("stripes"), waited_s: LOCK_WAIT.as_secs() };
        self.stripes.lock(task.stripe(), LOCK_WAIT)?.ok_or_else(locked)
    }

    /// The same; `None` if somebody else has it and we are in a hurry.
    fn lock_for(&self, task: &TaskName, hurry: bool) -> Result<Option<Log<'_>>> {
        if hurry { self.stripes.lock(task.stripe(), Duration::ZERO) } else { self.lock(task).map(Some) }
    }

    /// Takes a step, if the task is as it was.
    fn take_step(&self, log: &mut Log<'_>, step: &Step) -> Result<Outcome> {
        match self.plan(log, step)? {
            Some((plan, file)) => self.carry_out(log, &plan, &file),
            None => Ok(Outcome::Conflict),
        }
    }

    /// A task in progress, of which this is known.
    fn worked_on(&self, task: &TaskName, noted: Option<Arc<Noted>>) -> Result<Option<Placed>> {
        self.search(Some(State::InProgress), noted, |slot, noted| {
            let path = self.path(task, slot);
            match self.disk.look(&path)? {
                Some(seen) if seen.is_file => Ok(Some(placed(task, slot, noted, &seen, path))),
                Some(_) => Err(disk::not_a_file(&path)),
                None => Ok(None),
            }
        })
    }
}

impl Store for FolderStore {
    fn scan(&self, state: State, now: Timestamp) -> Result<Scan> {
        self.scan_state(state, now)
    }

    fn get(&self, task: &TaskName, state: Option<State>, now: Timestamp) -> Result<Option<Stored>> {
        let (noted, _) = self.stripes.noted(task)?;
        self.find(task, state, noted, now)
    }

    fn in_progress(&self, task: &TaskName, _now: Timestamp) -> Result<Option<Placed>> {
        let (mut noted, is_pending) = self.stripes.noted(task)?;
        // Its owner may have died on the way out. If somebody is at it, it is as it was before.
        if is_pending && let Some(mut log) = self.stripes.lock(task.stripe(), Duration::ZERO)? {
            self.settle(&mut log)?;
            noted = log.known.notes.get(task).cloned();
        }
        self.worked_on(task, noted)
    }

    fn is_in(&self, task: &TaskName, state: State) -> Result<bool> {
        let slots = self.places(Some(state))?;
        Ok(slots
            .iter()
            .any(|slot| fs::symlink_metadata(self.path(task, slot)).is_ok_and(|found| found.is_file())))
    }

    fn digest(&self, stored: &Stored) -> Result<Option<Digest>> {
        let path = self.path(&stored.task, &stored.slot);
        let (noted, _) = self.stripes.noted(&stored.task)?;
        let Some((file, seen)) = self.disk.open_task(&path, false)? else { return Ok(None) };
        if version(&seen, noted.as_deref()) != stored.version {
            return Ok(None);
        }
        digest_of(&file, u64::MAX).at("read", &path).map(|hasher| Some(hasher.finish()))
    }

    fn read(&self, stored: &Stored, limit: u64) -> Result<Vec<u8>> {
        let path = self.path(&stored.task, &stored.slot);
        let missing = || Fault::Missing { what: format!("`{}`", stored.task) };
        let (file, _) = self.disk.open_task(&path, false)?.ok_or_else(missing)?;
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes).at("read", &path)?;
        Ok(bytes)
    }

    fn apply(&self, step: &Step) -> Result<Outcome> {
        let Some(mut log) = self.lock_for(&step.task, step.hurry)? else { return Ok(Outcome::Busy) };
        if let Some(landed) = self.settle_first(&mut log, step)? {
            return Ok(Outcome::Done(landed));
        }
        self.take_step(&mut log, step)
    }

    fn take(
        &self,
        task: &TaskName,
        state: Option<State>,
        now: Timestamp,
        hurry: bool,
        next: FirstStep<'_>,
    ) -> Result<Taken> {
        let opened = match state.filter(|state| *state != State::InProgress).map(Slot::Free) {
            // Whether it is there tells the file: whoever goes through a line of tasks meets many that are taken.
            Some(slot) => match self.open_in(slot, task)? {
                Some(opened) => Some(opened),
                None => return Ok(Taken::Gone),
            },
            None => None,
        };
        let Some(mut log) = self.lock_for(task, hurry)? else { return Ok(Taken::Busy) };
        self.settle(&mut log)?;
        let noted = log.known.notes.get(task).cloned();
        let found = match opened {
            Some(opened) => self.look(task, noted.as_deref(), opened, now),
            None => self.find(task, state, noted, now),
        };
        let Some(stored) = found? else { return Ok(Taken::Gone) };
        let Some(step) = next(&stored)? else { return Ok(Taken::Left) };
        let outcome = self.take_step(&mut log, &step)?;
        Ok(Taken::Step(Box::new(step), outcome))
    }

    fn advance(
        &self,
        task: &TaskName,
        _now: Timestamp,
        next: NextStep<'_>,
    ) -> Result<Option<(Step, Outcome)>> {
        let mut log = self.lock(task)?;
        self.settle(&mut log)?;
        let placed = self.worked_on(task, log.known.notes.get(task).cloned())?;
        let Some(step) = next(placed.as_ref())? else { return Ok(None) };
        let outcome = self.take_step(&mut log, &step)?;
        Ok(Some((step, outcome)))
    }

    fn add(&self, task: &TaskName, bytes: &[u8]) -> Result<Option<Landed>> {
        let stage = self.private("stage", &random_id()?);
        let file = self.disk.create(&stage, bytes)?;
        let meta = file.metadata().at("look at", &stage)?;
        disk::date_back(&file).at("date", &stage)?;
        let slot = Slot::NEEDS_ACTION;
        let path = self.path(task, &slot);
        let moved = self.disk.transfer(&stage, &path, meta.ino());
        if !matches!(moved, Ok(disk::Moved::Done)) {
            let _ = fs::remove_file(&stage);
        }
        Ok(match moved? {
            disk::Moved::Done => {
                self.disk.sync_folder(&self.folder(&slot))?;
                Some(Landed { task: task.clone(), slot, path: Some(path) })
            }
            disk::Moved::Taken => None,
            disk::Moved::Missing => return Err(Fault::Missing { what: format!("`{}`", stage.display()) }),
        })
    }

    fn hold(&self, claim: &ClaimId) -> Result<Hold> {
        Hold::new(&self.held, claim)
    }

    fn owner(&self, claim: &Claim, _now: Timestamp) -> Result<Owner> {
        Hold::try_take(&self.held, claim)
    }

    fn tell(&self, events: &[Event]) -> Result<()> {
        self.options.journal.append(events)
    }

    fn count(&self, agent: &Agent, what: Count) -> Result<()> {
        self.sums.add(&self.disk, agent, &what)
    }

    fn figures(&self) -> Result<BTreeMap<Agent, (u64, Tally)>> {
        let mut all = BTreeMap::<Agent, (u64, Tally)>::new();
        for agent in self.agents()? {
            let folder = self.folder(&Slot::InProgress(agent.clone()));
            let active = match fs::read_dir(&folder) {
                Ok(entries) => entries.flatten().filter(|entry| scan::is_task(&entry.file_name())).count(),
                Err(_) => 0,
            };
            all.entry(agent).or_default().0 = active as u64;
        }
        for (agent, tally) in self.sums.all()? {
            all.entry(agent).or_default().1 = tally;
        }
        Ok(all)
    }

    fn heal(&self) -> Result<Vec<Healed>> {
        self.heal_all()
    }

    fn sweep(&self, now: Timestamp) -> Result<()> {
        self.sweep_all(now)
    }
}

fn make_folder(path: &Path) -> Result<()> {
    match fs::create_dir_all(path) {
        Err(error) if !path.is_dir() => Err(error).at("make the folder", path),
        _ => Ok(()),
    }
}

/// Says once what is in here; refuses what a later tollgate has written.
fn check_format(private: &Path) -> Result<()> {
    let path = private.join("format");
    match fs::read_to_string(&path) {
        Ok(text) => match text.trim().parse::<u32>() {
            Ok(found) if found > FORMAT => Err(Fault::NewerFormat { path, found, known: FORMAT }),
            Ok(_) => Ok(()),
            Err(_) => Err(Fault::damaged(&path, "it should hold the format's number")),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // By rename, so that nobody reads a half-written number.
            let stage = private.join(format!("stage/format-{}", random_id()?));
            fs::write(&stage, format!("{FORMAT}\n")).at("write", &stage)?;
            fs::rename(&stage, &path).at("rename", &stage)?;
            let ignore = private.join(".gitignore");
            if !ignore.exists() {
                fs::write(&ignore, "*\n").at("write", &ignore)?;
            }
            Ok(())
        }
        Err(error) => Err(error).at("read", &path),
    }
}

fn placed(task: &TaskName, slot: &Slot, noted: Option<&Noted>, seen: &Seen, path: PathBuf) -> Placed {
    Placed {
        task: task.clone(),
        slot: slot.clone(),
        version: version(seen, noted),
        note: noted.map_or_else(|| Note::new(slot.clone()), |noted| noted.note.clone().seen_in(slot)),
        changed: scan::changed(seen),
        len: seen.len,
        path: Some(path),
    }
}

/// Another after everything that can happen to a file: ctime cannot be set back, and our own steps have ids.
fn version(seen: &Seen, noted: Option<&Noted>) -> Version {
    Version { bytes: Stat::of(seen).numbers(), step: noted.map(|noted| noted.step.clone()), remote: None }
}

/// Hashes the first `len` bytes.
fn digest_of(file: &File, len: u64) -> io::Result<Hasher> {
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; 256 << 10];
    let mut at = 0;
    while at < len {
        let most = usize::try_from(len - at).unwrap_or(usize::MAX).min(buffer.len());
        match file.read_at(&mut buffer[..most], at) {
            Ok(0) => break,
            Ok(read) => {
                hasher.update(&buffer[..read]);
                at += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hasher)
}
