//! On a store that other machines share, the command of a worker, and what the command has started, ends before another machine
//! may start the task.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{Remote, git, tollgate};
use crate::world::{Process, World, until};

/// A lease that is long enough for a heartbeat on a busy machine.
const LEASE: Duration = Duration::from_secs(6);
const SETTINGS: &str = "lease = \"6s\"\nremote_timeout = \"2s\"\n";

/// A shell that ends well when it is asked to stop, and a process in its group that does not end.
const SHELL: &str = r#"trap 'exit 0' TERM; sh -c 'trap "" TERM; echo $$ > "$WITNESS"; while true; do sleep 0.05; done' & wait"#;

/// A worker that runs the shell, and the process that the shell has started.
fn starts(world: &World, witness: &Path) -> (Process, i32) {
    let mut run = tollgate(world, "work --agent blue --interval 1 --");
    run.command.args(["sh", "-c", SHELL]);
    let worker = run.env("WITNESS", witness).starts();
    let process = until("the command's process", || {
        let text = fs::read_to_string(witness).ok().filter(|text| text.ends_with('\n'))?;
        text.trim().parse().ok()
    });
    assert!(lives(process));
    (worker, process)
}

fn lives(process: i32) -> bool {
    let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

/// Signals of a process, as bits, from this line of its status.
fn signals(process: i32, line: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let found = status.lines().find_map(|status| status.strip_prefix(line));
    u64::from_str_radix(found.unwrap_or_default().trim(), 16).unwrap_or(0)
}

/// The warden of a worker, if it has one.
fn warden_of(worker: u32) -> Option<i32> {
    let threads = fs::read_dir(format!("/proc/{worker}/task")).ok()?.flatten();
    let children: String =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok()).collect();
    let is_warden = |child: &i32| {
        let call = fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
        call.ends_with("\0warden\0")
    };
    children.split_whitespace().filter_map(|child| child.parse().ok()).find(is_warden)
}

#[test]
fn what_a_command_has_started_ends_with_a_worker_that_is_killed() {
    let remote = Remote::with_tasks(1);
    let world = remote.clone(SETTINGS);
    let (mut worker, process) = starts(&world, &world.tmp().join("witness"));
    worker.signal(Signal::KILL);
    worker.ends();
    until("the end of the process", || (!lives(process)).then_some(()));
}

#[test]
fn a_warden_that_is_killed_is_replaced_by_one_that_knows_as_much() {
    let remote = Remote::with_tasks(1);
    let world = remote.clone(SETTINGS);
    let (mut worker, process) = starts(&world, &world.tmp().join("witness"));
    let first = until("a warden", || warden_of(worker.0.id()));
    let signals = |name: &str| signals(first, name) & (1 << (Signal::TERM.as_raw() - 1)) != 0;
    until("the warden to be ready", || signals("SigCgt:").then_some(()));
    kill_process(Pid::from_raw(first).unwrap(), Signal::TERM).unwrap();
    until("the signal to arrive", || (!signals("ShdPnd:")).then_some(()));
    assert!(lives(first), "it ends only with its worker");
    kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
    until("another warden", || warden_of(worker.0.id()).filter(|warden| *warden != first));
    assert!(lives(process));
    worker.signal(Signal::KILL);
    worker.ends();
    until("the end of the process", || (!lives(process)).then_some(()));
}

#[test]
fn the_command_of_a_worker_that_is_stopped_ends_before_another_machine_takes_the_task() {
    let remote = Remote::with_tasks(1);
    let [stopped, other] = [remote.clone(SETTINGS), remote.clone(SETTINGS)];
    let (mut worker, process) = starts(&stopped, &stopped.tmp().join("witness"));
    // As by Ctrl-Z: it reaches the worker and not its command.
    worker.signal(Signal::STOP);
    until("the takeover", || {
        let round = tollgate(&other, "sync --json").ends().is(0).json();
        (!round["reclaimed"].as_array().unwrap().is_empty()).then_some(())
    });
    assert!(!lives(process), "two at one task");
    worker.signal(Signal::CONT);
    worker.signal(Signal::TERM);
    worker.ends();
    assert_eq!(remote.on_branch(), ["Needs_Action/t0.md"]);
}

#[test]
fn a_command_that_was_killed_because_its_worker_was_stopped_has_not_failed() {
    let remote = Remote::with_tasks(1);
    let world = remote.clone(SETTINGS);
    let (mut worker, process) = starts(&world, &world.tmp().join("witness"));
    worker.signal(Signal::STOP);
    until("the end of the process", || (!lives(process)).then_some(()));
    worker.signal(Signal::CONT);
    worker.signal(Signal::TERM);
    worker.ends();
    let text = git(&remote.path, &["show", "main:vault/Needs_Action/t0.md"]);
    assert!(text.contains("the worker was stopped for a whole lease"), "{text}");
}

#[test]
fn work_that_was_done_while_its_worker_was_stopped_counts() {
    let remote = Remote::with_tasks(1);
    let world = remote.clone(SETTINGS);
    let (go, done) = (world.tmp().join("go"), world.tmp().join("done"));
    let mut run = tollgate(&world, "work --agent blue --once --");
    run.command.args([
        "sh",
        "-c",
        r#"echo > "$GO"; while [ -e "$GO" ]; do sleep 0.05; done; echo > "$DONE""#,
    ]);
    let mut worker = run.env("GO", &go).env("DONE", &done).starts();
    until("the command", || go.exists().then_some(()));
    worker.signal(Signal::STOP);
    let stopped = Instant::now();
    fs::remove_file(&go).unwrap();
    until("the end of the work", || done.exists().then_some(()));
    until("the end of the lease", || (stopped.elapsed() > LEASE).then_some(()));
    worker.signal(Signal::CONT);
    worker.ends();
    assert_eq!(remote.on_branch(), ["Done/t0.md"]);
}

#[test]
fn what_a_command_has_started_ends_although_the_command_ended_well_when_it_was_asked_to_stop() {
    let remote = Remote::with_tasks(1);
    let world = remote.clone(SETTINGS);
    let (_worker, process) = starts(&world, &world.tmp().join("witness"));
    remote.vanishes();
    until("the end of the process", || (!lives(process)).then_some(()));
}
