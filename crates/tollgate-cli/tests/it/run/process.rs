//! A command in a run is a process like any other: exit code, signals, terminal, input and output, folder and environment.

use std::fs;
use std::os::unix::process::ExitStatusExt;

use rustix::process::{Pid, Signal};

use super::HOLD;
use crate::world::{World, until};

#[test]
fn the_exit_code_is_that_of_the_command() {
    let world = World::new();
    for code in [0, 1, 2, 75, 125, 255] {
        world.guarded(&format!("exit {code}")).ends().is(code);
    }
    world.run("run -- no-such-program").is(127);
    world.run("run -- ./no-such-program").is(127);
    world.puts("plain", "#!/bin/sh\n");
    world.run("run -- ./plain").is(126);
    world.run("run -- .").is(126);
    world.run("run").is(2);
    world.run("run --mode nonsense -- true").is(2);
}

#[test]
fn a_failed_command_leaves_what_it_wrote() {
    let world = World::new();
    world.guarded("echo half > f; exit 1").ends().is(1);
    world.holds("f", "half\n");
}

#[test]
fn a_command_that_is_killed_ends_tollgate_in_the_same_way() {
    let world = World::new();
    for signal in ["KILL", "TERM", "INT", "SEGV"] {
        let ran = world.guarded(&format!("echo {signal} > f; kill -{signal} $$")).ends();
        assert!(format!("{ran}").starts_with("signal"), "{ran}");
        world.holds("f", format!("{signal}\n"));
    }
}

#[test]
fn a_signal_to_tollgate_is_one_to_the_command() {
    for (name, signal) in
        [("TERM", Signal::TERM), ("HUP", Signal::HUP), ("INT", Signal::INT), ("USR1", Signal::USR1)]
    {
        let world = World::new();
        let mut run = world.guarded(&format!("trap 'echo {name} > f; exit 7' {name}; {HOLD}")).starts();
        until("the command", || world.tmp().join("ready").exists().then_some(()));
        run.signal(signal);
        assert_eq!(run.ends().code(), Some(7), "{name}");
        world.holds("f", format!("{name}\n"));
    }
}

#[test]
fn a_command_that_does_not_catch_a_signal_dies_of_it() {
    let world = World::new();
    let mut run = world.guarded(HOLD).starts();
    until("the command", || world.tmp().join("ready").exists().then_some(()));
    run.signal(Signal::TERM);
    assert_eq!(run.ends().signal(), Some(15));
}

#[test]
fn signals_that_the_caller_ignores_or_blocks_stay_so() {
    let world = World::new();
    let state = "grep -E '^Sig(Blk|Ign)' /proc/self/status";
    let native = world.native(&format!("trap '' HUP USR2; {state}")).ends().is(0).stdout();
    let script = format!("trap '' HUP USR2; tollgate run -- sh -c \"{state}\"");
    let guarded = world.native(&script).ends().is(0).stdout();
    assert_eq!(guarded, native);
}

#[test]
fn input_output_folder_and_environment_are_those_of_the_caller() {
    let world = World::new();
    world.puts("sub/f", "x");
    let script = "cat; echo to-stderr >&2; pwd; echo $TOLLGATE_RUN $MARK; umask";
    let run = world.tollgate(["run", "--", "sh", "-c", script]).env("MARK", "here").stdin("input\n");
    let ran = run.folder(world.path("sub")).ends().is(0);
    let umask = world.native("umask").ends().stdout();
    let here = world.path("sub").display().to_string();
    assert_eq!(ran.stdout(), format!("input\n{here}\ntransaction here\n{umask}"));
    assert_eq!(ran.stderr(), "to-stderr\n");
}

#[test]
fn with_json_stdout_has_only_the_record() {
    let world = World::new();
    let ran = world.guarded_with(&["--json"], "echo out; echo x > f; exit 4").ends().is(4);
    assert_eq!(ran.stderr(), "out\n");
    let record: serde_json::Value = serde_json::from_str(&ran.stdout()).unwrap();
    assert_eq!((&record["level"], &record["exit"]), (&"transaction".into(), &4.into()));
    assert_eq!(record["writes"][0]["path"], "f");
}

#[test]
fn a_run_inside_a_run_is_part_of_it() {
    let world = World::new();
    world.puts("f", "one\n");
    let script = "tollgate run -- sh -c 'sed -i s/one/1/ f; exit 5'; echo $?; cat f; tollgate run -- nothing-there; echo $?";
    let ran = world.guarded(script).ends().is(0);
    assert_eq!(ran.stdout(), "5\n1\n127\n");
    world.holds("f", "1\n");
    assert_eq!(world.lines().len(), 1, "{:?}", world.lines());
}

#[test]
fn other_commands_of_tollgate_work_inside_a_run() {
    let world = World::new();
    world.puts("f", "one\n");
    let script = "tollgate read f && tollgate ledger verify && echo two | tollgate write f";
    let ran = world.guarded(script).ends().is(0);
    assert!(ran.stdout().starts_with("one\n"), "{ran}");
    world.holds("f", "two\n");
}

/// Otherwise two agents could own the same task.
#[test]
fn a_claim_inside_a_run_is_visible_to_others_at_once() {
    let world = World::new();
    world.run("init --vault").is(0);
    world.run("task add first").is(0);
    let ran = world.held(&[], &format!("tollgate task claim first --agent blue; {HOLD}"), || {
        let lost = world.run("task claim first --agent red");
        assert!(format!("{lost}").starts_with("exit 1"), "{lost}");
    });
    assert!(ran.is(0).stdout().contains("blue"));
}

#[test]
fn a_program_on_a_terminal_is_on_the_terminal() {
    let world = World::new();
    world.puts("f", "one\n");
    // A question to the person, on the terminal itself.
    let script = "tty >/dev/null && stty size >/dev/null && echo 'type `yes`:' >/dev/tty && read a </dev/tty && echo $a > f";
    let run = world.tollgate(["run", "--", "setsid", "-cw", "sh", "-c", script]).everywhere();
    run.typed("an answer").is(0);
    world.holds("f", "an answer\n");
}

#[test]
fn a_job_can_be_stopped_and_continued() {
    let world = World::new();
    // The command starts no other program: a shell that is stopped while it starts one does not count as stopped.
    let script = "set -m; mkfifo ../go; \
         tollgate run -- sh -c 'echo $$ > ../pid; : > ../ready; read line < ../go; echo x > f' & \
         until [ -e ../ready ]; do sleep 0.01; done; kill -STOP -$!; \
         until grep -q 'State:.*T' /proc/$(cat ../pid)/status; do sleep 0.01; done; \
         kill -CONT -$!; echo > ../go; wait $!; echo $?";
    let ran = world.program("bash", ["-c", script]).everywhere().ends().is(0);
    assert!(ran.stdout().ends_with("0\n"), "{ran}");
    world.holds("f", "x\n");
}

#[test]
fn the_front_does_not_outlive_the_command_and_the_command_not_the_front() {
    let world = World::new();
    let mut run = world.guarded(&format!("echo $$ > ../pid; echo x > f; {HOLD}")).starts();
    until("the command", || world.tmp().join("ready").exists().then_some(()));
    let pid: i32 = fs::read_to_string(world.tmp().join("pid")).unwrap().trim().parse().unwrap();
    run.signal(Signal::KILL);
    run.ends();
    until("the end of the command", || {
        rustix::process::test_kill_process(Pid::from_raw(pid).unwrap()).is_err().then_some(())
    });
    assert!(!world.path("f").exists());
    // The next command cleans up.
    world.guarded("true").ends().is(0);
    world.nothing_is_left();
}

#[test]
fn without_a_place_for_the_record_the_command_does_not_start() {
    let world = World::new();
    let ran = world
        .guarded_with(&["--record", "/no/such/folder/record"], "echo x > f; touch ../ran")
        .ends()
        .is(125);
    assert!(ran.stderr().contains("cannot create `/no/such/folder/record`"), "{}", ran.stderr());
    assert!(!world.path("f").exists() && !world.tmp().join("ran").exists());
    // What was in the file is not taken for the record of this run.
    let record = world.tmp().join("record");
    fs::write(&record, "an older record, which is longer than the new one".repeat(100)).unwrap();
    let script = "wc -c < ../record; echo x > f";
    let ran = world.guarded_with(&["--record", record.to_str().unwrap()], script).ends().is(0);
    assert_eq!(ran.stdout().trim(), "0");
    let record: serde_json::Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
    assert_eq!(record["writes"][0]["path"], "f");
}

#[test]
fn the_json_of_a_command_that_did_not_start_says_why() {
    let world = World::new();
    world.puts("not-a-program", "x");
    for mode in ["transaction", "gate", "observe"] {
        for (program, code, why) in
            [("no-such-program", 127, "was not found"), ("./not-a-program", 126, "cannot be executed")]
        {
            let ran =
                world.tollgate(["--json", "run", "--mode", mode, "--", program]).everywhere().ends().is(code);
            let record: serde_json::Value = serde_json::from_str(&ran.stdout()).unwrap();
            assert_eq!(record["exit"], serde_json::Value::Null);
            assert_eq!(record["notes"][0], format!("`{program}` {why}, so the command did not start"));
        }
    }
}
