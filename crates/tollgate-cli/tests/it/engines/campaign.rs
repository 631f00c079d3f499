//! Eight machines whose clocks differ by minutes, many tasks, and everything that can go wrong: workers that are killed, machines
//! that are cut off, a leader that is killed or hangs, all nodes killed. `TOLLGATE_ETCD_CROWD=tasks,machines` changes the
//! size; `2000,8` is the full one.
//!
//! Who works on what is checked outside the engine: each command takes a kernel lock for its task and says so if it is taken.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::etcd::Etcd;
use super::{Engine, FAKETIME, Ways, lines, machine};
use crate::chance::{Dice, executable, size};
use crate::world::{Process, World};

/// Records when the work on a task begins and ends, in one file for all machines. Some tasks take longer than a lease.
const COMMAND: &str = r#"#!/bin/bash
exec 9> "$LOCKS/$TOLLGATE_TASK_ID"
flock -n 9 || echo "double $TOLLGATE_TASK_ID $TOLLGATE_CLAIM_ID" >> "$WITNESS"
echo "began $TOLLGATE_TASK_ID $TOLLGATE_CLAIM_ID" >> "$WITNESS"
case "$TOLLGATE_TASK_ID" in *0.md) sleep 4 9>&- ;; *) sleep 0.0$(($$ % 10)) 9>&- ;; esac
echo "ended $TOLLGATE_TASK_ID $TOLLGATE_CLAIM_ID" >> "$WITNESS"
"#;

#[test]
fn eight_machines_and_everything_that_can_go_wrong() {
    let (tasks, machines) = size("TOLLGATE_ETCD_CROWD", (24, 8));
    let mut engine = Etcd::start();
    let ways: Vec<Ways> = (0..machines).map(|_| Ways::to(&engine)).collect();
    let worlds: Vec<World> = ways.iter().map(|ways| machine(&ways.url, "3s")).collect();
    let person = machine(&engine.url(), "3s");
    let add: String = (0..tasks).map(|n| format!("tollgate task add t{n} --agent ada && ")).collect();
    person.script(&format!("{add} true")).ends().is(0);

    let (witness, locks) = (person.tmp().join("witness"), person.tmp().join("locks"));
    fs::create_dir(&locks).unwrap();
    let command = person.tmp().join("command");
    executable(&command, COMMAND);
    let start = |n: usize| {
        let mut run = worlds[n].tollgate(["work", "--agent", &format!("a{n}"), "--interval", "1", "--"]);
        run.command.arg(&command);
        let run = run.env("WITNESS", &witness).env("LOCKS", &locks);
        // Every second clock is wrong, by up to some minutes in both directions.
        let wrong = ["+0", "+3m", "-4m", "+0", "+7m", "+0", "-2m", "+0"][n % 8];
        let run = run.env("LD_PRELOAD", FAKETIME).env("FAKETIME", wrong);
        run.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1").starts()
    };
    assert!(fs::exists(FAKETIME).unwrap(), "`faketime` is installed by `scripts/test`");
    let mut crew: Vec<Process> = (0..machines).map(start).collect();
    let mut dice = Dice::new();
    let mut tally: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut dead, mut paused, mut cut) = (Vec::new(), None, Vec::new());
    let began = Instant::now();
    let patience = Duration::from_secs(1800 + 2 * tasks as u64);
    let mut done = 0;
    while done < tasks {
        assert!(began.elapsed() < patience, "{done} of {tasks} done: {tally:?}");
        // The pace of the faults, not a synchronisation.
        std::thread::sleep(Duration::from_millis(700));
        let is_whole = dead.is_empty() && paused.is_none();
        let what = match dice.roll(12) {
            0..=3 => {
                let n = dice.roll(machines);
                crew[n].signal(Signal::KILL);
                crew[n].ends();
                crew[n] = start(n);
                "worker killed"
            }
            4 | 5 => {
                let n = dice.roll(machines);
                ways[n].cut(true);
                cut.push(n);
                "machine cut off"
            }
            6 | 7 if is_whole => {
                let leader = engine.cluster.leader();
                engine.cluster.kill(leader);
                dead.push(leader);
                "leader killed"
            }
            8 | 9 if is_whole => {
                let leader = engine.cluster.leader();
                engine.cluster.pause(leader);
                paused = Some(leader);
                "leader paused"
            }
            10 if is_whole => {
                (0..3).for_each(|node| engine.cluster.kill(node));
                dead.extend(0..3);
                "all nodes killed"
            }
            _ => "nothing",
        };
        *tally.entry(what).or_default() += 1;
        if dice.roll(2) == 0 {
            dead.drain(..).for_each(|node| engine.cluster.restart(node));
            paused.take().into_iter().for_each(|node| engine.cluster.resume(node));
        }
        if cut.len() > 2 || dice.roll(5) == 0 {
            cut.drain(..).for_each(|n| ways[n].cut(false));
        }
        done = finished(&witness);
        // A task may have been finished and not released, so the engine is asked at the end.
        if done == tasks {
            dead.drain(..).for_each(|node| engine.cluster.restart(node));
            paused.take().into_iter().for_each(|node| engine.cluster.resume(node));
            cut.drain(..).for_each(|n| ways[n].cut(false));
            engine.cluster.wait_until_ready();
            done = listed(&person, "Done").len();
        }
    }
    let took = began.elapsed();
    for worker in &mut crew {
        worker.signal(Signal::TERM);
    }
    for worker in &mut crew {
        worker.ends();
    }
    println!("{tasks} tasks, {machines} machines, {took:?}: {tally:?}");
    let elsewhere = ["Needs_Action", "In_Progress", "Pending_Approval", "Approved", "Rejected"];
    for state in elsewhere {
        assert_eq!(listed(&person, state), [""; 0], "in {state}");
    }
    let mut done = listed(&person, "Done");
    done.sort();
    let mut expected: Vec<String> = (0..tasks).map(|n| format!("t{n}.md")).collect();
    expected.sort();
    assert_eq!(done, expected, "every task is done, in one place");
    check(&lines(&witness), &engine.events(), tasks);
}

/// The number of tasks whose work has ended at least once.
fn finished(witness: &std::path::Path) -> usize {
    let ended: std::collections::BTreeSet<String> = lines(witness)
        .iter()
        .filter_map(|line| line.strip_prefix("ended ")?.split(' ').next().map(str::to_owned))
        .collect();
    ended.len()
}

/// The names of all tasks in a state.
fn listed(person: &World, state: &str) -> Vec<String> {
    let listed = person.json(&format!("task list --state {state}"));
    listed.as_array().unwrap().iter().map(|task| task["task"].as_str().unwrap().to_owned()).collect()
}

/// The control: what the check must notice.
#[test]
fn the_check_notices_two_owners_lost_claims_and_lines_that_are_there_twice() {
    let event = |kind: &str, step: &str| {
        json!({
            "action_type": kind, "result": { "status": "Done" },
            "payload": { "task": "t.md", "claim_id": "c-1", "step": step },
        })
    };
    let told = || vec![event("CLAIM", "s-1"), event("RELEASE", "s-2")];
    let seen = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    let fine = seen(&["began t.md c-1", "ended t.md c-1"]);
    check(&fine, &told(), 1);
    let twice = [told(), vec![event("RELEASE", "s-3")]].concat();
    let line_twice = [told(), vec![event("RECLAIM", "s-2")]].concat();
    let wrong = [
        (seen(&["began t.md c-1", "double t.md c-2", "ended t.md c-1"]), told()),
        (seen(&["began t.md c-1", "began t.md c-2", "ended t.md c-1"]), told()),
        (seen(&["began t.md c-2", "began t.md c-1", "ended t.md c-1"]), told()),
        (fine.clone(), twice),
        (fine.clone(), line_twice),
        (fine, vec![event("CLAIM", "s-1")]),
    ];
    for (witness, events) in wrong {
        let noticed = std::panic::catch_unwind(|| check(&witness, &events, 1));
        assert!(noticed.is_err(), "{witness:?} {events:?}");
    }
}

/// What must hold afterwards, whatever happened.
fn check(witness: &[String], events: &[Value], tasks: usize) {
    let double: Vec<_> = witness.iter().filter(|line| line.starts_with("double")).collect();
    assert!(double.is_empty(), "two live owners: {double:?}");
    // While one works on a task, nobody else begins it. A killed worker records no end.
    let mut last: BTreeMap<&str, &str> = BTreeMap::new();
    for line in witness {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, task, claim] = words[..] else { panic!("{line}") };
        if what == "began" {
            last.insert(task, claim);
        } else {
            assert_eq!(last[task], claim, "another had begun `{task}` before this one had ended");
        }
    }
    // Every claim that a worker was told of is in the ledger, once; so is every other step.
    let mut steps: BTreeMap<&str, usize> = BTreeMap::new();
    let mut claims: BTreeMap<&str, usize> = BTreeMap::new();
    let mut releases: BTreeMap<&str, usize> = BTreeMap::new();
    for event in events {
        if let Some(step) = event["payload"]["step"].as_str() {
            *steps.entry(step).or_default() += 1;
        }
        let task = event["payload"]["task"].as_str().unwrap_or_default();
        match event["action_type"].as_str().unwrap() {
            "CLAIM" => *claims.entry(event["payload"]["claim_id"].as_str().unwrap()).or_default() += 1,
            "RELEASE" if event["result"]["status"] == "Done" => *releases.entry(task).or_default() += 1,
            _ => {}
        }
    }
    assert!(steps.len() >= 2 * tasks && steps.values().all(|times| *times == 1), "every line exactly once");
    for line in witness.iter().filter(|line| line.starts_with("began")) {
        let claim = line.rsplit(' ').next().unwrap();
        assert_eq!(claims.get(claim), Some(&1), "an acknowledged claim is in the ledger: {line}");
    }
    assert_eq!(releases.len(), tasks);
    assert!(releases.values().all(|times| *times == 1), "each was finished once: {releases:?}");
}
