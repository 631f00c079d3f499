//! Sixteen workers, two thousand tasks, and random kills.
//!
//! `TOLLGATE_CROWD=tasks,workers` changes the size.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;

use crate::chance::{Dice, executable, size};
use crate::world::{Process, World};

/// Records who works on which task, and holds its own lock in the meantime. If the lock is taken, two commands work on one
/// task.
///
/// A dying process closes its files in the order of their numbers. The claim's lock has a high number, so this lock is free
/// before the claim is.
const COMMAND: &str = r#"#!/bin/sh
exec 9> "$WITNESS/lock-$TOLLGATE_TASK_ID"
flock -n 9 || echo "TWO $TOLLGATE_TASK_ID $TOLLGATE_CLAIM_ID" >> "$WITNESS/record"
echo $$ > "$WITNESS/pid-$TOLLGATE_CLAIM_ID"
[ -f "$TOLLGATE_TASK" ] || echo "AWAY $TOLLGATE_TASK_ID $TOLLGATE_CLAIM_ID" >> "$WITNESS/record"
echo "began $TOLLGATE_TASK_ID $TOLLGATE_CLAIM_ID" >> "$WITNESS/record"
case $(($$ % 20)) in
    0) sleep 0.1 ;;
    1) exit 1 ;;
    2) sleep 5 & exit 1 ;;
esac
echo "ended $TOLLGATE_TASK_ID $TOLLGATE_CLAIM_ID" >> "$WITNESS/record"
rm "$WITNESS/pid-$TOLLGATE_CLAIM_ID"
"#;

fn count(folder: &Path) -> usize {
    fs::read_dir(folder).map_or(0, Iterator::count)
}

/// Kills a command of this test, and never another process that got its id later.
fn kill_command(witness: &Path, dice: &mut Dice) -> bool {
    let is_pid = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("pid-");
    let mut running: Vec<_> =
        fs::read_dir(witness).unwrap().map(|entry| entry.unwrap().path()).filter(is_pid).collect();
    while !running.is_empty() {
        let path = running.swap_remove(dice.roll(running.len()));
        let pid = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
        let Some(pid) = pid.and_then(Pid::from_raw) else { continue };
        if let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) {
            let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).unwrap_or_default();
            let ours = format!("WITNESS={}", witness.display());
            if environment.split(|byte| *byte == 0).any(|word| word == ours.as_bytes()) {
                return pidfd_send_signal(&handle, Signal::KILL).is_ok();
            }
        }
        // It has died with its worker.
        let _ = fs::remove_file(path);
    }
    false
}

#[test]
fn sixteen_workers_with_random_kills_do_each_task_once() {
    let (tasks, workers) = size("TOLLGATE_CROWD", (2000, 16));
    let world = World::with(
        "[vault]\ndurability = \"fast\"\nmax_attempts = 100000\nretry = []\nsettle = \"100ms\"\n[work]\nbreaker = 0\n[log]\ndir = \"log\"\nmax_size = \"64KiB\"\n",
    );
    world.run("init --vault").is(0);
    let witness = world.tmp().join("witness");
    fs::create_dir(&witness).unwrap();
    let command = world.tmp().join("command");
    executable(&command, COMMAND);
    for number in 0..tasks {
        world.puts(format!("vault/Needs_Action/task-{number}.md"), format!("# Task {number}\n"));
    }
    // Two processes with the same agent name. Their claims tell them apart.
    let start = |number: usize| {
        let agent = format!("agent-{}", number / 2);
        let words = ["work", "--agent", &agent, "--interval", "1", "--", command.to_str().unwrap()];
        world.tollgate(words).env("WITNESS", &witness).starts()
    };
    let mut crew: Vec<Process> = (0..workers).map(start).collect();
    let mut dice = Dice::new();
    let (mut killed_workers, mut killed_commands) = (0, 0);
    let began = Instant::now();
    let done = world.path("vault/Done");
    let mut done_before = 0;
    loop {
        let done = count(&done);
        if done >= tasks {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(600), "{done} of {tasks} done");
        std::thread::sleep(Duration::from_millis(40));
        // On a busy machine, a worker that is killed sooner than it can start does nothing.
        if done == done_before {
            continue;
        }
        done_before = done;
        if dice.roll(2) == 0 {
            killed_commands += usize::from(kill_command(&witness, &mut dice));
        } else {
            let number = dice.roll(workers);
            crew[number].signal(Signal::KILL);
            crew[number].ends();
            crew[number] = start(number);
            killed_workers += 1;
        }
    }
    let took = began.elapsed();
    for worker in &crew {
        worker.signal(Signal::TERM);
    }
    for worker in &mut crew {
        let ended = worker.ends();
        // A worker that has just started does not handle signals yet, and has no task to return.
        assert!(ended.success() || ended.signal() == Some(Signal::TERM.as_raw()), "{ended}");
    }
    println!("{tasks} tasks in {took:?}, killed {killed_workers} workers and {killed_commands} commands");
    assert!(killed_workers > 10 && killed_commands > 10, "{killed_workers} {killed_commands}");
    world.run("task reclaim").is(0);

    // Every task in exactly one folder.
    let board = world.json("task list");
    let names: BTreeSet<&str> =
        board.as_array().unwrap().iter().map(|row| row["task"].as_str().unwrap()).collect();
    assert_eq!((board.as_array().unwrap().len(), names.len()), (tasks, tasks));
    assert!(board.as_array().unwrap().iter().all(|row| row["state"] == "Done"));

    // The workers' own record: never two at one task, and the file was there.
    let record = fs::read_to_string(witness.join("record")).unwrap();
    let strange: Vec<&str> =
        record.lines().filter(|line| line.starts_with("TWO") || line.starts_with("AWAY")).collect();
    assert!(strange.is_empty(), "{strange:#?}");
    let ended: BTreeSet<&str> = record
        .lines()
        .filter(|line| line.starts_with("ended"))
        .map(|line| line.split(' ').nth(1).unwrap())
        .collect();
    assert_eq!(ended.len(), tasks, "every task in `Done` was worked on to its end");

    // The ledger: claims and their ends alternate, and each task was done once.
    world.run("ledger verify").is(0);
    let mut owner: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut times_done: BTreeMap<String, usize> = BTreeMap::new();
    let mut claims = 0;
    for line in lines(&world) {
        let task = line["payload"]["task"].as_str().unwrap().to_owned();
        let id = line["payload"]["claim_id"].as_str().map(str::to_owned);
        let owner = owner.entry(task.clone()).or_default();
        match line["action_type"].as_str().unwrap() {
            "CLAIM" => {
                assert_eq!(*owner, None, "{line}");
                *owner = id;
                claims += 1;
            }
            // An interrupted claim is rolled back without its id, because nobody got that id.
            "RECLAIM" if id.is_none() => *owner = None,
            "RELEASE" | "RECLAIM" => {
                assert_eq!(owner.take(), id, "{line}");
                if line["result"]["status"] == "Done" {
                    *times_done.entry(task).or_default() += 1;
                }
            }
            other => assert_eq!(other, "CLAIM_LOST", "{line}"),
        }
    }
    assert_eq!(times_done.len(), tasks);
    assert!(times_done.values().all(|times| *times == 1));
    assert!(owner.values().all(Option::is_none));

    // The figures, over all processes.
    let figures = world.json("task figures");
    assert_eq!(figures["coordination"]["total_claims"], claims);
    assert_eq!(figures["coordination"]["active_claims"], 0);
    assert_eq!(figures["agents"].as_array().unwrap().len(), workers.div_ceil(2));

    // The files: one success each, and the author's text is unchanged.
    for name in names {
        let text = fs::read_to_string(done.join(name)).unwrap();
        let number = name.strip_prefix("task-").unwrap().strip_suffix(".md").unwrap();
        assert!(text.starts_with(&format!("# Task {number}\n<!-- tollgate ")), "{text}");
        assert_eq!(text.matches("**Result**: success").count(), 1, "{text}");
        assert_eq!(text.matches("<!-- tollgate").count(), text.matches("## Completion").count(), "{text}");
    }
    for entry in fs::read_dir(world.path("log")).unwrap() {
        let entry = entry.unwrap();
        assert!(entry.metadata().unwrap().len() <= 64 << 10, "{entry:?} was not rotated");
    }
}

/// All lines of the ledger.
fn lines(world: &World) -> Vec<Value> {
    let ledger = fs::read_to_string(world.path(".tollgate/ledger.jsonl")).unwrap();
    ledger.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
