//! Machines whose folders show one store in memory, which can be out of reach, counts its calls, and remembers every text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tollgate_base::error::{Fault, Result};
use tollgate_base::settings::Durability;
use tollgate_vault::event::{Entry, EventPage};
use tollgate_vault::store::{Hint, NoticedChange, Scan};
use tollgate_vault::view::{FolderView, Notice, ViewNews, ViewOptions};
use tollgate_vault::{
    ClaimKind, ClaimRequest, Claimed, Release, State, Step, StepId, StepOutcome, Store, Task, TaskName,
    Terms, Vault,
};

use crate::memory::MemoryStore;

/// The store of all machines.
#[derive(Default)]
pub(super) struct Engine {
    store: MemoryStore,
    pub(super) is_down: AtomicBool,
    /// It answers, but refuses changes, as if its user had lost a right.
    pub(super) refuses: AtomicBool,
    pub(super) calls: AtomicUsize,
    pub(super) texts: Mutex<BTreeSet<Vec<u8>>>,
}

impl Engine {
    fn called(&self) -> Result<&MemoryStore> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.is_down.load(Ordering::Relaxed) {
            return Err(Fault::Unreachable { remote: "engine".into(), what: "it is down".into() });
        }
        Ok(&self.store)
    }

    fn changed(&self) -> Result<&MemoryStore> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(Fault::RemoteRefused { remote: "engine".into(), what: "no right".into() });
        }
        self.called()
    }

    fn remember(&self, task: &TaskName) {
        for state in State::ALL {
            if let Some(found) = self.store.get(task, Some(state), now()).unwrap() {
                let text = self.store.read(&found, u64::MAX).unwrap().unwrap();
                self.texts.lock().unwrap_or_else(PoisonError::into_inner).insert(text);
            }
        }
    }

    /// What it has: where, and which text.
    pub(super) fn all(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for state in State::ALL {
            for listed in self.store.scan(state, now()).unwrap().tasks {
                let task = self.store.get(&listed.name, Some(state), now()).unwrap().unwrap();
                let text = self.store.read(&task, u64::MAX).unwrap().unwrap();
                all.insert(format!("{}/{}", task.slot, task.name), String::from_utf8(text).unwrap());
            }
        }
        all
    }
}

impl Store for Engine {
    fn scan(&self, state: State, now: Timestamp) -> Result<Scan> {
        self.called()?.scan(state, now)
    }

    fn get(&self, task: &TaskName, state: Option<State>, now: Timestamp) -> Result<Option<Task>> {
        self.called()?.get(task, state, now)
    }

    fn read(&self, task: &Task, limit: u64) -> Result<Option<Vec<u8>>> {
        self.called()?.read(task, limit)
    }

    fn apply(&self, step: &Step) -> Result<StepOutcome> {
        let outcome = self.changed()?.apply(step);
        self.remember(&step.task);
        outcome
    }

    fn add(&self, id: &StepId, task: &TaskName, text: &[u8], now: Timestamp) -> Result<StepOutcome> {
        let outcome = self.changed()?.add(id, task, text, now);
        self.remember(task);
        outcome
    }

    fn record(&self, events: &[Entry]) -> Result<()> {
        self.called()?.record(events)
    }

    fn events(&self, after: &str, limit: usize) -> Result<EventPage> {
        self.called()?.events(after, limit)
    }
}

pub(super) fn now() -> Timestamp {
    Timestamp::now()
}

pub(super) fn task(name: &str) -> TaskName {
    name.parse().unwrap()
}

/// The agents and people elsewhere.
pub(super) struct Elsewhere {
    pub(super) engine: Arc<Engine>,
    pub(super) vault: Vault,
}

impl Elsewhere {
    pub(super) fn new() -> Self {
        Self::under(Terms { retry: Vec::new(), approve_by_move: true, ..Terms::default() })
    }

    pub(super) fn under(terms: Terms) -> Self {
        let engine = Arc::new(Engine::default());
        let vault = Vault::new(Arc::clone(&engine) as _, terms);
        Self { engine, vault }
    }

    pub(super) fn claim(&self, name: &str) -> Claimed {
        let request =
            ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: true };
        self.vault.claim(&task(name), &request, now()).unwrap().unwrap()
    }

    pub(super) fn release(&self, claimed: &Claimed, to: State) {
        let how = Release { to: Some(to), ..Release::success() };
        self.vault.release(&claimed.task, &claimed.claim.id, &how, now()).unwrap().unwrap();
    }

    /// Adds a task and brings it to a state.
    pub(super) fn bring(&self, name: &str, state: State) {
        self.vault.add(&task(name), b"as it was\n", now()).unwrap();
        if state == State::NeedsAction {
            return;
        }
        let claimed = self.claim(name);
        match state {
            State::InProgress => {}
            State::Approved => {
                self.release(&claimed, State::PendingApproval);
                self.vault.approve(&task(name), "ada", None, now()).unwrap().unwrap();
            }
            state => self.release(&claimed, state),
        }
    }
}

/// A machine, and the process that maintains its folders.
pub(super) struct Machine {
    pub(super) folder: Arc<tempfile::TempDir>,
    pub(super) view: FolderView,
    told: Arc<Mutex<Vec<Notice>>>,
}

impl Machine {
    pub(super) fn new(elsewhere: &Elsewhere) -> Self {
        Self::settling(elsewhere, Duration::ZERO)
    }

    /// A file that was not renamed into place is complete after this time.
    pub(super) fn settling(elsewhere: &Elsewhere, settle: Duration) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Self::at(elsewhere, folder, settle).unwrap()
    }

    /// Another process on the same machine; `None` if it may not maintain the folders.
    pub(super) fn at(
        elsewhere: &Elsewhere,
        folder: Arc<tempfile::TempDir>,
        settle: Duration,
    ) -> Option<Self> {
        let told: Arc<Mutex<Vec<Notice>>> = Arc::default();
        let tells = Arc::clone(&told);
        let tell = move |notice: &Notice| {
            tells.lock().unwrap_or_else(PoisonError::into_inner).push(notice.clone());
        };
        let options = ViewOptions {
            folder: folder.path().to_owned(),
            settle,
            durability: Durability::Fast,
            now,
            tell: Arc::new(tell),
        };
        let view = FolderView::open(elsewhere.vault.clone(), options).unwrap()?;
        let mut machine = Self { folder, view, told };
        machine.follow();
        Some(machine)
    }

    /// Looks at everything, until nothing is left to do.
    pub(super) fn follow(&mut self) {
        self.view.hear(ViewNews::Store(Hint::Everything));
        self.view.hear(ViewNews::Folder(Hint::Everything));
        self.finish();
    }

    /// Looks at everything once. What cannot be done stays to be done, and people are told why.
    pub(super) fn follow_once(&mut self) {
        self.view.hear(ViewNews::Store(Hint::Everything));
        self.view.hear(ViewNews::Folder(Hint::Everything));
        if let Err(fault) = self.view.work() {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            told.push(Notice::Stale { why: fault.to_string() });
        }
    }

    /// Does what it has heard of.
    pub(super) fn finish(&mut self) {
        while self.view.work().unwrap().is_some() {
            std::thread::yield_now();
        }
    }

    pub(super) fn hears_of(&mut self, name: &str) {
        for state in State::ALL {
            self.view.hear(ViewNews::Store(Hint::Task(task(name), state, NoticedChange::MovedIn)));
        }
        self.view.hear(ViewNews::Folder(Hint::Task(task(name), State::NeedsAction, NoticedChange::Touched)));
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    pub(super) fn puts(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        // The folders of agents are read-only for people, but not for this one.
        let _ = fs::remove_file(&path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(super) fn moves(&self, from: &str, to: &str) {
        fs::create_dir_all(self.path(to).parent().unwrap()).unwrap();
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    /// What the folders show.
    pub(super) fn all(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for state in State::ALL {
            let mut folders = vec![self.path(state.as_str())];
            while let Some(folder) = folders.pop() {
                for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                    if path.is_dir() {
                        folders.push(path);
                    } else {
                        let name = path.strip_prefix(self.folder.path()).unwrap().to_str().unwrap();
                        let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
                        all.insert(name.to_owned(), text);
                    }
                }
            }
        }
        all
    }

    /// The texts that were set aside.
    pub(super) fn kept(&self) -> Vec<Vec<u8>> {
        let entries = fs::read_dir(self.path(".tollgate/view/aside")).unwrap();
        entries.map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect()
    }

    /// What people were told since the last time.
    pub(super) fn told(&self) -> Vec<String> {
        let told = std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner));
        told.iter().map(ToString::to_string).collect()
    }
}
