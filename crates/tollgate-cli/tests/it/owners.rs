//! Who owns a task, for how long, and that a former owner can do nothing.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

use crate::world::{Process, World, until};

const SETTINGS: &str = "[vault]\ndurability = \"fast\"\nsettle = \"50ms\"\nretry = []\n";

fn world(more: &str) -> World {
    let world = World::with(&format!("{SETTINGS}{more}"));
    world.run("init --vault").is(0);
    world
}

/// A worker whose command runs this script.
fn worker(world: &World, agent: &str, script: &str) -> Process {
    let words = ["work", "--agent", agent, "--interval", "1", "--", "sh", "-c", script];
    world.tollgate(words).env("TMP", world.tmp()).starts()
}

/// The process id that a script wrote to a file.
fn pid(path: &Path) -> Pid {
    let number = || fs::read_to_string(path).ok()?.trim().parse().ok();
    Pid::from_raw(until("a process to write its id", number)).unwrap()
}

/// Whether a process is dead. A zombie counts as dead.
fn is_dead(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    test_kill_process(pid).is_err()
        || stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

fn reclaimed(world: &World) -> Vec<Value> {
    world.json("task reclaim").as_array().unwrap().clone()
}

#[test]
fn killing_everything_frees_the_task_at_once() {
    let world = world("lease = \"10h\"\n");
    world.run("task add Long").is(0);
    let script = "echo $$ > $TMP/pid.new; mv $TMP/pid.new $TMP/pid; exec sleep 1000";
    let mut worker = worker(&world, "blue", script);
    let command = pid(&world.tmp().join("pid"));
    assert_eq!(reclaimed(&world), Vec::<Value>::new(), "it is at work");
    worker.signal(Signal::KILL);
    worker.ends();
    // The command dies with its worker, and the claim ends with both. No lease has to expire.
    until("the command to die with its worker", || is_dead(command).then_some(()));
    let back = until("the lock to be released", || reclaimed(&world).pop());
    assert_eq!(
        back,
        json!({"task": "long.md", "agent": "blue", "state": "Needs_Action", "reason": "interrupted"})
    );
    assert_eq!(world.json("task claim long --agent red")["claimed"], true);
}

#[test]
fn after_tollgate_alone_is_killed_nobody_gets_the_task_while_the_command_runs() {
    let world = world("lease = \"1ms\"\n");
    world.run("task add Long").is(0);
    // A process that the command started gets no signal and keeps running. Scripts use these file descriptors.
    let numbers: String = (3..=9).map(|number| format!("exec {number}> /dev/null; ")).collect();
    let script = "sleep 1000 & echo $! > $TMP/pid.new; mv $TMP/pid.new $TMP/pid; wait";
    let mut first = worker(&world, "blue", &format!("{numbers}{script}"));
    let survivor = pid(&world.tmp().join("pid"));
    first.signal(Signal::KILL);
    first.ends();
    // A second worker waits in the meantime and does not get the task.
    let marker = world.tmp().join("second");
    let _second = worker(&world, "red", "echo x > $TMP/second");
    for _ in 0..20 {
        assert_eq!(reclaimed(&world), Vec::<Value>::new());
        let answer = world.run("task claim long --agent green --json").is(1).json();
        assert_eq!(answer["reason"], "lost");
        assert!(!is_dead(survivor) && !marker.exists());
    }
    kill_process(survivor, Signal::KILL).unwrap();
    until("the second worker to do it", || world.path("vault/Done/long.md").exists().then_some(()));
    assert!(marker.exists());
    let text = fs::read_to_string(world.path("vault/Done/long.md")).unwrap();
    assert_eq!(text.matches("**Note**: interrupted").count(), 1, "{text}");
}

#[test]
fn a_process_that_a_failed_command_leaves_running_keeps_the_task() {
    let world = world("");
    world.run("task add Long").is(0);
    // The process leaves the process group, so that it is not killed with it.
    let script =
        "setsid sh -c 'echo $$ > $TMP/pid.new; mv $TMP/pid.new $TMP/pid; exec sleep 1000' > /dev/null 2>&1 &
        while [ ! -e $TMP/pid ]; do sleep 0.01; done
        exit 1";
    let words = ["work", "--agent", "blue", "--once", "--", "sh", "-c", script];
    let ran = world.tollgate(words).env("TMP", world.tmp()).ends().is(0);
    assert!(ran.filtered.contains("still runs; the task is free when that process ends"), "{}", ran.filtered);
    let survivor = pid(&world.tmp().join("pid"));
    assert_eq!(reclaimed(&world), Vec::<Value>::new());
    kill_process(survivor, Signal::KILL).unwrap();
    let back = until("the lock to be released", || reclaimed(&world).pop());
    assert_eq!(back["state"], "Needs_Action");
}

#[test]
fn a_running_command_keeps_its_task_however_long_it_runs() {
    let world = world("lease = \"1ms\"\n");
    world.run("task add Long").is(0);
    let script = "echo x > $TMP/began; while [ ! -e $TMP/go ]; do sleep 0.01; done";
    let _worker = worker(&world, "blue", script);
    until("the work to begin", || world.tmp().join("began").exists().then_some(()));
    for _ in 0..10 {
        assert_eq!(reclaimed(&world), Vec::<Value>::new());
    }
    fs::write(world.tmp().join("go"), "").unwrap();
    until("the work to end", || world.path("vault/Done/long.md").exists().then_some(()));
}

#[test]
fn an_expired_lease_is_reclaimed_and_the_old_claim_can_do_nothing() {
    let world = world("lease = \"1ms\"\n");
    world.run("task add X").is(0);
    let old = world.json("task claim x --agent blue")["claim_id"].as_str().unwrap().to_owned();
    let back = until("the lease to expire", || reclaimed(&world).pop());
    assert_eq!(back["reason"], "interrupted");
    let new = world.json("task claim --next --agent blue")["claim_id"].as_str().unwrap().to_owned();
    assert_ne!(old, new);
    let before = fs::read(world.path("vault/In_Progress/blue/x.md")).unwrap();
    for verb in ["renew x", "release x", "release x --result failure", "progress x note", "draft x text"] {
        let answer = world.run(&format!("task {verb} --claim-id {old} --json")).is(1).json();
        assert_eq!((&answer["refused"], &answer["reason"]), (&json!(true), &json!("not_owner")), "{verb}");
    }
    assert_eq!(
        world.run(&format!("task verify x --claim-id {old} --json")).is(1).json(),
        json!({"valid": false, "hint": "stop working on it, because another agent may do the same work"})
    );
    assert_eq!(fs::read(world.path("vault/In_Progress/blue/x.md")).unwrap(), before);
    assert_eq!(world.json(&format!("task verify x --claim-id {new}")), json!({"valid": true}));
    insta::assert_snapshot!(world.run(&format!("task release x --claim-id {old}")).filtered, @r"
    exit 1
    --- stderr
    refused: claim `[CLAIM]` does not own `x.md`: `blue` owns it, under another claim
    hint: check the claim ID; if it is right, the claim has ended: stop working on the task
    ");
    world.run(&format!("task release x --claim-id {new}")).is(0);
    world.run(&format!("task release x --claim-id {new}")).is(1);
}

#[test]
fn two_agents_with_the_same_name_have_separate_claims() {
    let world = world("");
    for task in ["a", "b"] {
        world.run(&format!("task add {task}")).is(0);
    }
    let first = world.json("task claim a --agent blue")["claim_id"].as_str().unwrap().to_owned();
    let second = world.json("task claim b --agent blue")["claim_id"].as_str().unwrap().to_owned();
    assert_eq!(world.run("task claim a --agent blue --json").is(1).json()["reason"], "lost");
    world.run(&format!("task release a --claim-id {second}")).is(1);
    world.run(&format!("task release b --claim-id {first}")).is(1);
    world.run(&format!("task release a --claim-id {first}")).is(0);
    // Two workers with the same name at the same time: each task is done once.
    for number in 0..40 {
        world.run(&format!("task add t{number}")).is(0);
    }
    let script = "echo $TOLLGATE_TASK_ID >> $TMP/record";
    let _both = [worker(&world, "blue", script), worker(&world, "blue", script)];
    until("all to be done", || (fs::read_dir(world.path("vault/Done")).unwrap().count() == 41).then_some(()));
    let record = fs::read_to_string(world.tmp().join("record")).unwrap();
    let mut tasks: Vec<_> = record.lines().collect();
    tasks.sort_unstable();
    tasks.dedup();
    assert_eq!((tasks.len(), record.lines().count()), (40, 40));
    assert!(world.path("vault/In_Progress/blue/b.md").exists());
}

#[test]
fn two_workspaces_that_share_a_vault_exclude_each_other() {
    let world = world("");
    let other = world.tmp().join("other");
    fs::create_dir(&other).unwrap();
    let vault = world.path("vault");
    world.tollgate(["init", "--vault", vault.to_str().unwrap()]).folder(&other).ends().is(0);
    for number in 0..60 {
        world.run(&format!("task add t{number}")).is(0);
    }
    let words =
        ["work", "--agent", "blue", "--once", "--", "sh", "-c", "echo $TOLLGATE_TASK_ID >> $TMP/record"];
    let mut both = [
        world.tollgate(words).env("TMP", world.tmp()).starts(),
        world.tollgate(words).env("TMP", world.tmp()).folder(&other).starts(),
    ];
    for worker in &mut both {
        assert!(worker.ends().success());
    }
    let record = fs::read_to_string(world.tmp().join("record")).unwrap();
    let mut tasks: Vec<_> = record.lines().collect();
    tasks.sort_unstable();
    tasks.dedup();
    assert_eq!((tasks.len(), record.lines().count()), (60, 60));
    // Each workspace has its own ledger. Together they have each claim once.
    let claims = |folder: &Path| {
        let ran = world
            .tollgate(["ledger", "tail", "--type", "CLAIM", "-n", "1000", "--json"])
            .folder(folder)
            .ends();
        ran.is(0).json().as_array().unwrap().len()
    };
    let (here, there) = (claims(&world.root()), claims(&other));
    assert_eq!(here + there, 60);
    assert!(here > 0 && there > 0, "{here} {there}");
    // The lock of a claim also excludes the other workspace.
    world.run("task add held").is(0);
    let script = "echo $$ > $TMP/pid.new; mv $TMP/pid.new $TMP/pid; exec sleep 1000";
    let mut worker = worker(&world, "blue", script);
    let _command = pid(&world.tmp().join("pid"));
    let there = |line: &str| world.tollgate(line.split(' ')).folder(&other).ends();
    assert_eq!(there("task reclaim --json").is(0).json(), json!([]));
    assert_eq!(there("task claim held --agent red --json").is(1).json()["reason"], "lost");
    worker.signal(Signal::KILL);
    worker.ends();
    until("the other workspace to reclaim it", || {
        there("task reclaim --json").is(0).json().as_array().unwrap().first().cloned()
    });
}
