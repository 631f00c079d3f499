//! Eight machines whose clocks differ by minutes, many tasks, and everything that can go wrong: workers that are killed, machines
//! that are cut off, and what the engine suffers. Every kind of fault happens in every run. `TOLLGATE_ETCD_CROWD=tasks,machines`
//! changes the size, on PostgreSQL `TOLLGATE_POSTGRES_CROWD`; `2000,8` is the full one.
//!
//! Who works on what is checked outside the engine: each command takes a kernel lock for its task and says so if it is taken. Which
//! releases were acknowledged is also known outside the engine: from what the workers print.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tollgate_testing::postgres::is_installed;

use super::check::{findings, released};
use super::etcd::Etcd;
use super::postgres::Postgres;
use super::proxy::{Cut, Proxy};
use super::{Engine, FAKETIME, Ways, lines, machine};
use crate::chance::{Dice, executable, size};
use crate::world::{Process, World, until};

/// Records when the work on a task begins and ends, in one file for all machines. Some tasks take longer than a lease. What it prints
/// tells which claim the next message of its worker is about. The processes that it starts have the lock, too, and one of them would
/// outlive a killed worker for longer than a lease: if the worker's death does not end it, the next owner notices. 75 says that
/// somebody else has the lock. Any other failure of `flock` says nothing about owners, and is a fault of its own.
const COMMAND: &str = r#"#!/bin/bash
exec 9> "$LOCKS/$TOLLGATE_TASK_ID"
flock -n -E 75 9
case $? in 0) locked= ;; 75) locked=double ;; *) locked=unlocked ;; esac
[ -z "$locked" ] || echo "$locked $TOLLGATE_TASK_ID $TOLLGATE_CLAIM_ID" >> "$WITNESS"
echo "began $TOLLGATE_TASK_ID $TOLLGATE_CLAIM_ID" | tee -a "$WITNESS" >&2
case "$TOLLGATE_TASK_ID" in *0.md) sleep 20 >&- 2>&- & sleep 4; kill $!; wait ;; *) sleep 0.0$(($$ % 10)) ;; esac
echo "ended $TOLLGATE_TASK_ID $TOLLGATE_CLAIM_ID" >> "$WITNESS"
"#;

/// What happens to machines, whatever the engine is.
const WORKER_KILLED: &str = "worker killed";
const MACHINE_CUT_OFF: &str = "machine cut off";
const CUT_FROM_ONE_SERVER: &str = "machine cut off from one server";

#[test]
fn eight_machines_and_everything_that_can_go_wrong() {
    let (tasks, machines) = size("TOLLGATE_ETCD_CROWD", (24, 8));
    let mut campaign = Campaign::start(Etcd::start(), Ways::to, tasks, machines);
    campaign.rages();
    assert_eq!(campaign.end(), [""; 0]);
}

/// The control: machines that fight over the same tasks, on an engine that lets each of them have its way.
#[test]
fn on_an_etcd_without_conditions_the_campaign_finds_two_live_owners() {
    let without = |engine: &Etcd| Ways::by(engine, Proxy::without_conditions);
    let wrong = Campaign::start(Etcd::start(), without, 24, 8).ends_with_two_owners();
    assert!(wrong.iter().any(|found| found.starts_with("two live owners")), "{wrong:?}");
}

#[test]
fn on_postgresql_eight_machines_and_everything_that_can_go_wrong() {
    if !is_installed() {
        return;
    }
    let (tasks, machines) = size("TOLLGATE_POSTGRES_CROWD", (24, 8));
    let mut campaign = Campaign::start(Postgres::with_standby(), Ways::to, tasks, machines);
    campaign.rages();
    assert_eq!(campaign.end(), [""; 0]);
}

/// The control, as above.
#[test]
fn on_a_postgresql_that_does_not_compare_versions_the_campaign_finds_two_live_owners() {
    if !is_installed() {
        return;
    }
    let wrong = Campaign::start(Postgres::without_comparison(), Ways::to, 24, 8).ends_with_two_owners();
    assert!(wrong.iter().any(|found| found.starts_with("two live owners")), "{wrong:?}");
}

/// Machines that work off the tasks of an engine. If a test fails, what they and the servers recorded is kept.
struct Campaign<E: Engine> {
    engine: E,
    ways: Vec<Ways>,
    worlds: Vec<World>,
    crew: Vec<Process>,
    /// Adds tasks and looks at them. Nobody cuts this machine off.
    person: World,
    tasks: usize,
}

impl<E: Engine> Campaign<E> {
    fn start(engine: E, ways: impl Fn(&E) -> Ways, tasks: usize, machines: usize) -> Self {
        assert!(fs::exists(FAKETIME).unwrap(), "`faketime` is installed by `scripts/test`");
        let ways: Vec<Ways> = (0..machines).map(|_| ways(&engine)).collect();
        let worlds = ways.iter().map(|ways| machine(&ways.url, "3s")).collect();
        let person = machine(&engine.url(), "3s");
        for folder in ["locks", "logs"] {
            fs::create_dir(person.tmp().join(folder)).unwrap();
        }
        executable(&person.tmp().join("command"), COMMAND);
        let mut campaign = Self { engine, ways, worlds, crew: Vec::new(), person, tasks: 0 };
        campaign.adds(tasks);
        campaign.crew = (0..machines).map(|n| campaign.worker(n)).collect();
        campaign
    }

    fn adds(&mut self, tasks: usize) {
        let more = self.tasks..self.tasks + tasks;
        let add: String = more.map(|n| format!("tollgate task add t{n} --agent ada && ")).collect();
        self.person.script(&format!("{add} true")).ends().is(0);
        self.tasks += tasks;
    }

    fn worker(&self, n: usize) -> Process {
        // The kernel ends the worker if the test is killed. The thread of the test starts it and outlives it.
        let mut run =
            self.worlds[n].program("setpriv", ["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_tollgate")]);
        run.command.args(["work", "--agent", &format!("a{n}"), "--interval", "1", "--"]);
        run.command.arg(self.person.tmp().join("command"));
        let run = run.env("WITNESS", self.witness()).env("LOCKS", self.person.tmp().join("locks"));
        // Every second clock is wrong, by up to some minutes in both directions.
        let wrong = ["+0", "+3m", "-4m", "+0", "+7m", "+0", "-2m", "+0"][n % 8];
        let run = run.env("LD_PRELOAD", FAKETIME).env("FAKETIME", wrong);
        let mut run = run.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
        // One file for each process: if it is killed in the middle of a line, no other line follows.
        let log = self.logs().join(format!("{n}-{}", fs::read_dir(self.logs()).unwrap().count()));
        run.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create_new(log).unwrap());
        Process(run.command.spawn().unwrap())
    }

    /// The folder with what the workers print.
    fn logs(&self) -> PathBuf {
        self.person.tmp().join("logs")
    }

    fn witness(&self) -> PathBuf {
        self.person.tmp().join("witness")
    }

    /// The number of tasks whose work has ended at least once.
    fn finished(&self) -> usize {
        let ended = |line: &String| line.strip_prefix("ended ")?.split(' ').next().map(str::to_owned);
        lines(&self.witness()).iter().filter_map(ended).collect::<BTreeSet<_>>().len()
    }

    /// The names of all tasks in a state.
    fn listed(&self, state: &str) -> Vec<String> {
        let listed = self.person.json(&format!("task list --state {state}"));
        listed.as_array().unwrap().iter().map(|task| task["task"].as_str().unwrap().to_owned()).collect()
    }

    /// The kinds of faults: what happens to machines, and to this engine.
    fn kinds(&self) -> Vec<&'static str> {
        let of_machines = [WORKER_KILLED, MACHINE_CUT_OFF, CUT_FROM_ONE_SERVER];
        of_machines.into_iter().chain(E::FAULTS.iter().map(|(kind, _)| *kind)).collect()
    }

    /// Lets a fault happen. Whether it did.
    fn suffers(&mut self, kind: &str, dice: &mut Dice) -> bool {
        let n = dice.roll(self.crew.len());
        match kind {
            WORKER_KILLED => {
                self.crew[n].signal(Signal::KILL);
                let status = self.crew[n].ends();
                assert_eq!(status.signal(), Some(9), "a worker outlives every fault but this one");
                self.crew[n] = self.worker(n);
            }
            MACHINE_CUT_OFF => self.ways[n].cut(true),
            CUT_FROM_ONE_SERVER => {
                let proxies = &self.ways[n].proxies;
                proxies[dice.roll(proxies.len())].cut(Cut::Everybody);
            }
            _ => {
                let (_, fault) = E::FAULTS.iter().find(|(name, _)| *name == kind).unwrap();
                self.engine.recover();
                return fault(&mut self.engine);
            }
        }
        true
    }

    /// Lets faults happen until all tasks are done: first every kind once, then any.
    #[allow(clippy::print_stdout, reason = "a long campaign shows what happened")]
    fn rages(&mut self) {
        let (kinds, mut dice) = (self.kinds(), Dice::new());
        let mut tally: BTreeMap<&str, usize> = BTreeMap::new();
        let mut first = kinds.clone();
        let began = Instant::now();
        let mut done = 0;
        while done < self.tasks || !first.is_empty() {
            let patience = Duration::from_secs(1800 + 2 * self.tasks as u64);
            assert!(began.elapsed() < patience, "{done} of {} done: {tally:?}", self.tasks);
            if dice.roll(2) == 0 {
                self.engine.recover();
            }
            if dice.roll(4) == 0 {
                self.ways.iter().for_each(|ways| ways.cut(false));
            }
            // No fault of the first ones happens to machines that have nothing to do.
            let machines = self.crew.len();
            if !first.is_empty() && self.finished() + machines > self.tasks {
                self.engine.recover();
                self.adds(machines);
            }
            let kind = match (first.is_empty(), dice.roll(3)) {
                (false, _) => Some(first.swap_remove(dice.roll(first.len()))),
                (true, 0) => Some(WORKER_KILLED),
                (true, 1) => Some(kinds[dice.roll(kinds.len())]),
                (true, _) => None,
            };
            if let Some(kind) = kind.filter(|kind| self.suffers(kind, &mut dice)) {
                *tally.entry(kind).or_default() += 1;
            }
            // The pace of the faults, not a synchronisation.
            std::thread::sleep(Duration::from_millis(700));
            done = self.finished();
            // A task may have been finished and not released, so the engine is asked at the end.
            if done == self.tasks {
                self.engine.recover();
                self.ways.iter().for_each(|ways| ways.cut(false));
                done = self.listed("Done").len();
            }
        }
        println!("{} tasks, {} machines, {:?}: {tally:?}", self.tasks, self.crew.len(), began.elapsed());
        let missing: Vec<_> = kinds.iter().filter(|kind| !tally.contains_key(*kind)).collect();
        assert!(missing.is_empty(), "these faults did not happen: {missing:?}");
    }

    /// Gives the machines more tasks until two of them work on one. What is wrong with what they did.
    fn ends_with_two_owners(mut self) -> Vec<String> {
        let witness = self.witness();
        let is_double = || lines(&witness).iter().any(|line| line.starts_with("double"));
        for _ in 0..20 {
            until("the end of the work", || (is_double() || self.finished() >= self.tasks).then_some(()));
            if is_double() {
                break;
            }
            self.adds(self.crew.len());
        }
        self.end()
    }

    /// Stops the workers. Names those that had ended before.
    fn stops_workers(&mut self) -> Vec<String> {
        let mut wrong = Vec::new();
        for worker in &mut self.crew {
            match worker.ended() {
                Some(status) => wrong.push(format!("a worker ended by itself: {status}")),
                None => worker.signal(Signal::TERM),
            }
        }
        for worker in &mut self.crew {
            worker.ends();
        }
        wrong
    }

    /// Stops the machines. What is wrong with what they did.
    fn end(&mut self) -> Vec<String> {
        let mut wrong = self.stops_workers();
        let logs = fs::read_dir(self.logs()).unwrap().map(|log| lines(&log.unwrap().path()));
        let released: Vec<_> = logs.flat_map(|log| released(&log)).collect();
        let events = self.engine.events();
        let text: String = events.iter().map(|event| format!("{event}\n")).collect();
        fs::write(self.person.tmp().join("events"), text).unwrap();
        wrong.extend(findings(&lines(&self.witness()), &released, &events, self.tasks));
        for state in ["Needs_Action", "In_Progress", "Pending_Approval", "Approved", "Rejected"] {
            wrong.extend(self.listed(state).iter().map(|task| format!("`{task}` is in {state}")));
        }
        let mut done = self.listed("Done");
        done.sort();
        let mut expected: Vec<String> = (0..self.tasks).map(|n| format!("t{n}.md")).collect();
        expected.sort();
        if done != expected {
            wrong.push(format!("not every task is done, in one place: {done:?}"));
        }
        wrong
    }
}

impl<E: Engine> Drop for Campaign<E> {
    #[allow(clippy::print_stdout, reason = "says where to look")]
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let kept =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("campaign-{}", std::process::id()));
        let copied = Command::new("cp").arg("-r").arg(self.person.tmp()).arg(&kept).status();
        for log in self.engine.log_files() {
            let _ = fs::copy(&log, kept.join(log.file_name().unwrap()));
        }
        println!("what the machines recorded: {} ({copied:?})", kept.display());
    }
}
