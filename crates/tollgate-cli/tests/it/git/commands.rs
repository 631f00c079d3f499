//! On a store that other machines share, the command of a worker, and what the command has started, ends before another machine
//! may start the task.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

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
    assert!(text.contains("the worker was stopped for most of a lease"), "{text}");
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

/// What a worker prints.
fn said(world: &World) -> PathBuf {
    world.tmp().join("said")
}

fn tally(world: &World) -> Value {
    serde_json::from_str(&fs::read_to_string(said(world)).unwrap()).unwrap()
}

/// A command that releases its own task in this way, says so with a file, and goes on.
fn goes_on_after_its_release(world: &World, how: &str, witness: &Path) -> (Process, i32) {
    let script = format!(
        r#"[ -e "$WITNESS" ] && exit; tollgate task release $TOLLGATE_TASK_ID {how} && echo $$ > "$WITNESS.new" &&
           mv "$WITNESS.new" "$WITNESS"; while [ -e "$WITNESS" ]; do sleep 0.05; done"#
    );
    let mut run = tollgate(world, "work --agent blue --once --json --");
    run.command.args(["sh", "-c", &script]);
    let mut run = run.env("WITNESS", witness);
    run.command.stdin(Stdio::null()).stdout(File::create(said(world)).unwrap()).stderr(Stdio::null());
    let worker = Process(run.command.spawn().unwrap());
    let command = until("the release", || fs::read_to_string(witness).ok()?.trim().parse().ok());
    (worker, command)
}

#[test]
fn a_command_that_has_released_its_task_goes_on_and_the_task_counts_as_done() {
    let remote = Remote::with_tasks(1);
    let world = remote.clone(SETTINGS);
    let witness = world.tmp().join("witness");
    let (mut worker, command) = goes_on_after_its_release(&world, "", &witness);
    let released = Instant::now();
    until("several heartbeats, and the time to kill the command", || {
        (released.elapsed() > LEASE).then_some(())
    });
    assert!(lives(command), "it was killed");
    fs::remove_file(&witness).unwrap();
    worker.ends();
    assert_eq!(tally(&world)["done"], 1, "{}", tally(&world));
    assert_eq!(remote.on_branch(), ["Done/t0.md"]);
}

#[test]
fn a_command_that_has_released_its_task_still_ends_with_its_worker() {
    let remote = Remote::with_tasks(1);
    let world = remote.clone(SETTINGS);
    let (mut worker, command) = goes_on_after_its_release(&world, "", &world.tmp().join("witness"));
    let released = Instant::now();
    until("a heartbeat", || (released.elapsed() > LEASE).then_some(()));
    assert!(lives(command));
    worker.signal(Signal::KILL);
    worker.ends();
    until("the end of the command", || (!lives(command)).then_some(()));
}

#[test]
fn a_command_ends_that_has_released_its_task_for_others_and_the_attempt_counts_as_failed() {
    let remote = Remote::with_tasks(1);
    let world = remote.clone(SETTINGS);
    let witness = world.tmp().join("witness");
    let (mut worker, command) = goes_on_after_its_release(&world, "--result failure", &witness);
    until("the end of the command", || (!lives(command)).then_some(()));
    worker.ends();
    assert_eq!(tally(&world)["failed"], 1, "{}", tally(&world));
}

#[test]
fn a_command_that_has_released_its_task_ends_when_a_person_lets_others_claim_it() {
    let remote = Remote::with_tasks(1);
    let world = remote.clone(SETTINGS);
    let witness = world.tmp().join("witness");
    let (mut worker, command) = goes_on_after_its_release(&world, "--to Pending_Approval", &witness);
    let released = Instant::now();
    until("several heartbeats", || (released.elapsed() > LEASE).then_some(()));
    assert!(lives(command), "it was killed");
    tollgate(&world, "task approve t0").typed("yes").is(0);
    until("the end of the command", || (!lives(command)).then_some(()));
    worker.ends();
    assert_eq!(
        remote.on_branch(),
        ["Done/t0.md"],
        "the worker claims it again, and this attempt ends at once"
    );
}

#[test]
fn the_warden_reads_all_lines_before_it_kills() {
    let mut groups = [(); 2].map(|()| {
        let mut command = Command::new("sleep");
        Process(command.arg("1000").process_group(0).spawn().unwrap())
    });
    let [spared, killed] = [groups[0].0.id(), groups[1].0.id()];
    let mut warden = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let (read, mut write) = std::io::pipe().unwrap();
    // The lines of a worker whose warden was stopped for a while.
    let lines = format!("{spared} 1\n{}{spared}\n{killed} 1\n", "17 word\n".repeat(1000));
    write.write_all(lines.as_bytes()).unwrap();
    let mut warden = Process(warden.arg("warden").stdin(read).spawn().unwrap());
    assert!(!groups[1].ends().success());
    assert!(groups[0].ended().is_none(), "it was killed although a later line spares it");
    drop(write);
    warden.ends();
}

#[test]
fn a_worker_says_that_its_claim_was_lost_when_a_person_has_returned_the_task() {
    let remote = Remote::with_tasks(1);
    let [world, other] = [remote.clone(SETTINGS), remote.clone(SETTINGS)];
    let mut run = tollgate(&world, "work --agent blue --interval 1 --");
    run.command.args(["sh", "-c", SHELL]);
    let mut run = run.env("WITNESS", world.tmp().join("witness"));
    run.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(said(&world)).unwrap());
    let _worker = Process(run.command.spawn().unwrap());
    until("the command", || world.tmp().join("witness").exists().then_some(()));
    tollgate(&other, "sync").ends().is(0);
    tollgate(&other, "task return t0").typed("yes").is(0);
    let message =
        "the claim on `t0.md` was lost; the command was killed, and its changes to the task are kept aside\n";
    until(message, || fs::read_to_string(said(&world)).unwrap().contains(message).then_some(()));
}

#[test]
fn a_command_begins_only_when_its_worker_says_so() {
    let keep = tempfile::tempdir().unwrap();
    let witness = keep.path().join("witness");
    let launch = || {
        let mut launch = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        launch.arg("launch").arg(std::process::id().to_string());
        launch.args(["--", "sh", "-c", r#"cat && echo > "$0""#]).arg(&witness);
        let mut process = Process(launch.stdin(Stdio::piped()).spawn().unwrap());
        let pipe = process.0.stdin.take().unwrap();
        (process, pipe)
    };
    let (mut process, pipe) = launch();
    drop(pipe);
    assert!(!process.ends().success(), "its worker is gone");
    assert!(!witness.exists());
    let (mut process, mut pipe) = launch();
    pipe.write_all(b"\n").unwrap();
    assert!(process.ends().success(), "the input of the command itself is empty");
    assert!(witness.exists());
}
