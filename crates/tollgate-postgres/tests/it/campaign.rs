//! Campaigns: eight machines work off one vault while something breaks. What they did is judged by evidence outside the
//! database and by the ledger.
//!
//! `TOLLGATE_TEST_LONG=1` runs them with 2,000 tasks instead of a few hundred.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use jiff::Timestamp;
use tempfile::TempDir;
use tollgate_base::lock::Pauses;
use tollgate_postgres::{PostgresOptions, PostgresStore};
use tollgate_vault::event::{Entry, Event};
use tollgate_vault::{State, StepId, Store};

/// The clocks of the machines are ahead or behind by this many seconds.
const CLOCKS: [i64; 8] = [0, 3600, -3600, 300, -300, 60, -60, 86_400];

/// How many tasks a campaign has, unless it is a long one.
pub(crate) fn size(short: usize) -> usize {
    if std::env::var_os("TOLLGATE_TEST_LONG").is_some() { 2000 } else { short }
}

/// A store that waits longer than any fault of the campaigns lasts.
fn patient(url: &str) -> PostgresStore {
    let mut options = PostgresOptions::parse(url).unwrap();
    options.patience = Duration::from_secs(60);
    PostgresStore::open(options).unwrap()
}

/// The path of one of this crate's examples.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is built by `cargo test -p tollgate-postgres`", path.display());
    path
}

/// A process, killed when it is dropped.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Eight machines and their evidence.
pub(crate) struct Crew {
    url: String,
    lease: Duration,
    evidence: TempDir,
    machines: Vec<Machine>,
    store: PostgresStore,
    pub(crate) tasks: usize,
}

impl Crew {
    /// Adds the tasks and starts the machines.
    pub(crate) fn start(url: &str, tasks: usize, lease: Duration) -> Self {
        let store = patient(url);
        for number in 0..tasks {
            let name = format!("task-{number}").parse().unwrap();
            store.add(&StepId::new().unwrap(), &name, b"work\n", Timestamp::now()).unwrap();
        }
        let evidence = tempfile::tempdir().unwrap();
        let mut crew = Self { url: url.to_owned(), lease, evidence, machines: Vec::new(), store, tasks };
        for number in 0..CLOCKS.len() {
            let machine = crew.machine(number);
            crew.machines.push(machine);
        }
        crew
    }

    fn machine(&self, number: usize) -> Machine {
        // Names of both lengths, so that half of the machines hold their claims.
        let name = format!("m{number}{}", "x".repeat(number % 2));
        let mut command = Command::new(example("machine"));
        command.args([&self.url, &name, &CLOCKS[number].to_string(), &self.lease.as_millis().to_string()]);
        Machine(command.arg(self.evidence.path()).spawn().unwrap())
    }

    /// `kill -9`, and another machine in its place.
    pub(crate) fn replace(&mut self, number: usize) {
        self.machines[number] = self.machine(number);
    }

    /// `kill -9` for all of them.
    pub(crate) fn kill(&mut self) {
        self.machines.clear();
    }

    fn evidence(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.evidence.path().join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The number of tasks that are done, as far as the machines were told.
    pub(crate) fn released(&self) -> usize {
        self.evidence("acknowledged").iter().filter(|line| line.starts_with("RELEASE")).count()
    }

    /// Waits until this number of tasks is done.
    pub(crate) fn wait_for(&self, tasks: usize) {
        let mut pauses = Pauses::lasting(Duration::from_secs(120));
        while self.released() < tasks {
            assert!(pauses.pause(), "only {} tasks are done: {:?}", self.released(), self.evidence("faults"));
        }
    }

    /// A reader that reads the ledger from a cursor on, page by page, until every task is done.
    pub(crate) fn follower(&self) -> JoinHandle<Vec<Entry>> {
        let (store, tasks) = (patient(&self.url), self.tasks);
        thread::spawn(move || {
            let (mut cursor, mut events, mut done) = (String::new(), Vec::new(), BTreeSet::new());
            let mut pauses = Pauses::lasting(Duration::from_secs(300));
            while done.len() < tasks {
                let (page, next) = store.events(&cursor, 7).unwrap();
                assert!(!page.is_empty() || pauses.pause(), "{} of {tasks} tasks are done", done.len());
                let released = page.iter().filter(|entry| entry.event.action_type() == "RELEASE");
                done.extend(released.filter_map(|entry| entry.event.keys().task.map(str::to_owned)));
                events.extend(page);
                cursor = next;
            }
            events
        })
    }

    /// Waits until every task is in `Done`.
    pub(crate) fn wait_for_all(&self) {
        let mut pauses = Pauses::lasting(Duration::from_secs(300));
        while self.store.scan(State::Done, Timestamp::now()).unwrap().tasks.len() < self.tasks {
            assert!(pauses.pause(), "{:?}", self.evidence("faults"));
        }
    }

    /// Everything that is wrong with what the machines did. `followed` is what a reader saw while it happened.
    pub(crate) fn judge(self, followed: &[Entry]) -> Vec<String> {
        fs::write(self.evidence.path().join("stop"), "").unwrap();
        let mut wrong = Vec::new();
        for line in self.evidence("two_owners") {
            wrong.push(format!("two live owners: {line}"));
        }
        let now = Timestamp::now();
        let done = self.store.scan(State::Done, now).unwrap().tasks;
        let names: BTreeSet<_> = done.iter().map(|task| task.name.to_string()).collect();
        if (done.len(), names.len()) != (self.tasks, self.tasks) {
            wrong.push(format!("{} tasks in Done, of {}", done.len(), self.tasks));
        }
        let all = self.store.events("", usize::MAX).unwrap().0;
        if all[..followed.len().min(all.len())] != *followed {
            let (seen, there) = (ids(followed), ids(&all));
            wrong.push(format!("the reader missed {:?}", there.difference(&seen).collect::<Vec<_>>()));
        }
        let mut lines: BTreeMap<(String, String), usize> = BTreeMap::new();
        for entry in &all {
            let claim = match &entry.event {
                Event::Claim(claimed) => &claimed.claim_id,
                Event::Release(released, _) => &released.attempt.claim_id,
                _ => continue,
            };
            *lines.entry((entry.event.action_type().to_owned(), claim.to_string())).or_default() += 1;
        }
        for (line, times) in &lines {
            if *times != 1 {
                wrong.push(format!("{line:?} is in the ledger {times} times"));
            }
        }
        for line in self.evidence("acknowledged") {
            let words: Vec<&str> = line.split(' ').collect();
            let [kind, _, claim] = words[..] else { panic!("{line}") };
            if !lines.contains_key(&(kind.to_owned(), claim.to_owned())) {
                wrong.push(format!("acknowledged and lost: {line}"));
            }
        }
        let releases = lines.keys().filter(|(kind, _)| kind == "RELEASE").count();
        if releases != self.tasks {
            wrong.push(format!("{releases} releases of {} tasks", self.tasks));
        }
        wrong
    }
}

fn ids(entries: &[Entry]) -> BTreeSet<String> {
    entries.iter().map(|entry| format!("{:?}", entry.event.keys().step)).collect()
}
