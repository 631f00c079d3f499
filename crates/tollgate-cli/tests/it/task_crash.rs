//! Real processes, killed before every file-changing system call of claim, release, approve and reclaim.
//!
//! `strace` kills the command just before the call. The next command must find the task in exactly one folder, either in its
//! old state or in its new one. The same verb must then succeed, or have succeeded. The ledger has it once.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tollgate_testing::strace;

use crate::world::World;

/// All calls that can change a file, and those that can create one.
pub(crate) const CALLS: &str = "openat,openat2,write,pwrite64,rename,renameat,renameat2,unlink,unlinkat,ftruncate,mkdir,mkdirat,link,linkat,\
                     symlinkat,utimensat,fchmod,fallocate,copy_file_range,sendfile";

/// One verb under test.
struct Verb {
    /// Prepares the task.
    before: fn(&World, &str),
    /// The arguments of the command.
    words: fn(&World, &str) -> Vec<String>,
    /// The verb's type in the ledger.
    line: &'static str,
    /// The state of the task before and after the verb.
    states: [&'static str; 2],
}

fn row(world: &World, task: &str) -> Value {
    let board = world.json("task list");
    let rows: Vec<_> =
        board.as_array().unwrap().iter().filter(|row| row["task"] == format!("{task}.md")).cloned().collect();
    assert_eq!(rows.len(), 1, "{task} is in exactly one folder: {board}");
    rows[0].clone()
}

fn claim_id(world: &World, task: &str) -> String {
    row(world, task)["claim_id"].as_str().unwrap().to_owned()
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn trace(world: &World, kill: &[String], verb: &[String], log: &Path) {
    let command = [env!("CARGO_BIN_EXE_tollgate")].into_iter().chain(verb.iter().map(String::as_str));
    // The log tells whether the command was killed. A person decides on a terminal.
    let _ = world.program("strace", strace::arguments(CALLS, log, kill, command)).typed("yes");
}

/// The calls that change a file.
pub(crate) fn changing_calls(log: &str) -> Vec<strace::Call> {
    strace::calls(log).into_iter().filter(strace::Call::changes).collect()
}

fn dies_at_every_call(settings: &str, verb: &Verb) {
    let world = World::with(settings);
    world.run("init --vault").is(0);
    let log = world.tmp().join("strace");
    // Lists the calls without killing. The second run counts, because then all folders exist.
    for task in ["warm", "count"] {
        world.run(&format!("task add {task}")).is(0);
        (verb.before)(&world, task);
        trace(&world, &[], &(verb.words)(&world, task), &log);
        assert_eq!(row(&world, task)["state"], verb.states[1]);
    }
    let calls = changing_calls(&fs::read_to_string(&log).unwrap());
    assert!(calls.len() > 5, "{calls:?}");
    let (mut undone, mut done) = (0, 0);
    for (number, call) in calls.iter().enumerate() {
        let task = format!("t{number}");
        world.run(&format!("task add {task}")).is(0);
        (verb.before)(&world, &task);
        trace(&world, &[call.inject("signal=KILL")], &(verb.words)(&world, &task), &log);
        let trace = fs::read_to_string(&log).unwrap();
        assert!(trace.contains("+++ killed by SIGKILL +++"), "{call:?}\n{trace}");
        // The next command recovers the interrupted step, whatever it does itself.
        let found = row(&world, &task);
        let state = found["state"].as_str().unwrap();
        if state == verb.states[0] {
            undone += 1;
            world.tollgate((verb.words)(&world, &task)).typed("yes").is(0);
            assert_eq!(row(&world, &task)["state"], verb.states[1], "{call:?}");
        } else {
            assert_eq!(state, verb.states[1], "{call:?}");
            done += 1;
        }
        recorded_once(&world, &format!("{task}.md"), verb.line, &format!("{call:?}"));
    }
    assert!(undone > 0 && done > 0, "some of each: {undone} {done} of {}", calls.len());
    world.run("ledger verify").is(0);
    assert_eq!(world.run("doctor --json").json()["healthy"], true);
}

/// The ledger has the step once. If it has an interrupted claim, it also has the line that rolls the claim back.
fn recorded_once(world: &World, task: &str, kind: &str, at: &str) {
    let ledger = fs::read_to_string(world.path(".tollgate/ledger.jsonl")).unwrap();
    let lines = ledger.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lines: Vec<Value> = lines.filter(|line| line["payload"]["task"] == task).collect();
    let rolled_back = lines.iter().filter(|line| line["payload"]["reason"] == "claim cut short").count();
    let recorded = lines.iter().filter(|line| line["action_type"] == kind).count();
    let expected = if kind == "CLAIM" { 1 + rolled_back } else { 1 };
    assert_eq!(recorded, expected, "{at}: {lines:#?}");
    assert!(rolled_back <= 1, "{at}: {lines:#?}");
}

const SETTINGS: &str = "[vault]\ndurability = \"fast\"\nsettle = \"0ms\"\n";

#[test]
fn a_killed_claim_is_complete_or_rolled_back() {
    let verb = Verb {
        before: |_, _| {},
        words: |_, task| words(&format!("task claim {task} --agent blue --json")),
        line: "CLAIM",
        states: ["Needs_Action", "In_Progress"],
    };
    dies_at_every_call(SETTINGS, &verb);
}

#[test]
fn a_killed_release_moves_the_task_once() {
    let verb = Verb {
        before: |world, task| drop(world.json(&format!("task claim {task} --agent blue"))),
        words: |world, task| {
            words(&format!("task release {task} --claim-id {} --json", claim_id(world, task)))
        },
        line: "RELEASE",
        states: ["In_Progress", "Done"],
    };
    dies_at_every_call(SETTINGS, &verb);
}

#[test]
fn a_killed_approval_is_complete_or_rolled_back() {
    let verb = Verb {
        before: |world, task| {
            world.run(&format!("task claim {task} --agent blue")).is(0);
            let id = claim_id(world, task);
            world.run(&format!("task release {task} --claim-id {id} --to Pending_Approval")).is(0);
        },
        words: |_, task| words(&format!("task approve {task} --json")),
        line: "APPROVAL",
        states: ["Pending_Approval", "Approved"],
    };
    dies_at_every_call(SETTINGS, &verb);
}

#[test]
fn a_killed_reclaim_happens_once() {
    let verb = Verb {
        before: |world, task| {
            world.run(&format!("task claim {task} --agent blue")).is(0);
            // The lease of one millisecond has expired when the next process has started.
            assert_eq!(row(world, task)["attempts"], json!(1));
        },
        words: |_, _| words("task reclaim --json"),
        line: "RECLAIM",
        states: ["In_Progress", "Needs_Action"],
    };
    dies_at_every_call(&format!("{SETTINGS}lease = \"1ms\"\n"), &verb);
}
