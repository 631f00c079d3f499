//! Processes: exit codes, signals, kills, and what a command leaves behind.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use super::{go, ledger, opens_for_a_reader, payloads, run, world};
use crate::world::{World, until};

fn paused(world: &World) {
    until("the program to pause", || world.tmp().join("ready").exists().then_some(()));
}

/// The supervisor of the run that this process waits for: its child.
fn supervisor(waiting: u32) -> Pid {
    until("the supervisor", || {
        let children = fs::read_to_string(format!("/proc/{waiting}/task/{waiting}/children")).ok()?;
        children.split_whitespace().next().and_then(|id| Pid::from_raw(id.parse().ok()?))
    })
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    let world = world();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255)] {
        run(&world, "gate", &["sh", "-c", script]).is(code);
    }
    for (script, signal) in [("kill -9 $$", "signal: 9"), ("kill -15 $$", "signal: 15")] {
        let ran = run(&world, "gate", &["sh", "-c", script]);
        assert!(ran.to_string().starts_with(signal), "{ran}");
    }
    run(&world, "gate", &["./f"]).is(126);
    run(&world, "gate", &["no-such-program"]).is(127);
}

#[test]
fn a_command_has_the_input_the_output_the_folder_and_the_environment_of_its_caller() {
    let world = world();
    fs::create_dir(world.path("sub")).unwrap();
    let script = "read x; echo \"$x $A $PWD\"; echo err >&2; ls /proc/self/fd | wc -l";
    let words = ["run", "--mode", "gate", "--", "sh", "-c", script];
    let ran = world.tollgate(words).folder(world.path("sub")).env("A", "a").stdin("in\n").ends().is(0);
    let plain =
        world.program("sh", ["-c", script]).folder(world.path("sub")).env("A", "a").stdin("in\n").ends();
    assert_eq!((ran.stdout(), ran.stderr()), (plain.stdout(), plain.stderr()));
}

#[test]
fn every_process_and_thread_of_a_command_is_supervised() {
    let python = "import threading\nthreading.Thread(target=lambda: open('f', 'w').write('two')).start()";
    for words in [
        &["sh", "-c", "sh -c 'sh -c \"echo two > f\"'; true"][..],
        &["sh", "-c", "(echo two > f) & wait"],
        &["sh", "-c", "echo f | xargs -I{} sh -c 'echo two > {}'; true"],
        &["find", ".", "-name", "f", "-exec", "sh", "-c", "echo two > {}", ";"],
        &["python3", "-c", python],
        &["env", "-i", "/bin/sh", "-c", "echo two > f"],
        &["setsid", "-w", "sh", "-c", "echo two > f"],
    ] {
        let world = world();
        let turn = world.turn("blue");
        world.run(&format!("read f --turn {turn}")).is(0);
        world.puts("f", "foreign\n");
        let all = [&["run", "--mode", "gate", "--turn", turn.as_str(), "--"], words].concat();
        payloads(world.tollgate(all).ends());
        world.holds("f", "foreign\n");
    }
}

#[test]
fn signals_reach_the_command() {
    let world = world();
    for (signal, name) in
        [(Signal::TERM, "TERM"), (Signal::HUP, "HUP"), (Signal::INT, "INT"), (Signal::USR1, "USR1")]
    {
        let _ = fs::remove_file(world.tmp().join("ready"));
        let script = format!(
            "trap 'echo got > got.{name}; exit 3' {name}; : > ../ready; while :; do read x < ../go; done"
        );
        let words = ["run", "--mode", "gate", "--", "sh", "-c", &script];
        let mut process = world.tollgate(words).starts();
        paused(&world);
        process.signal(signal);
        assert_eq!(process.ends().code(), Some(3), "{name}");
        world.holds(format!("got.{name}"), "got\n");
    }
}

/// As a service or a CI starts agents: in a session without a terminal.
#[test]
fn the_end_of_a_command_hangs_nobody_up() {
    let world = world();
    let script =
        "sleep 1000 & kill -STOP $!; tollgate run --mode gate -- true; kill -KILL $!; echo alive > f";
    world.script(&format!("setsid -w sh -c '{script}'")).ends().is(0);
    world.holds("f", "alive\n");
}

#[test]
fn without_its_supervisor_a_command_changes_nothing_more() {
    let world = world();
    // The waiting process kills the command itself, so a child of the command tries to change files.
    let script = "(../pause; echo two > f; echo x > new; rm f; mv f g) 2> /dev/null & wait";
    let words = ["run", "--mode", "gate", "--", "sh", "-c", script];
    let mut process = world.tollgate(words).starts();
    paused(&world);
    kill_process(supervisor(process.0.id()), Signal::KILL).unwrap();
    assert_eq!(process.ends().code(), Some(125));
    // The process that was left goes on, and its calls fail. It ends when it has tried all of them.
    let left = || fs::read_dir("/proc").unwrap().flatten().any(|entry| is_in(&entry.path(), &world));
    until("the end of what was left", || {
        opens_for_a_reader(&world.tmp().join("go"));
        (!left()).then_some(())
    });
    world.holds("f", "one\n");
    assert!(!world.path("new").exists() && !world.path("g").exists());
}

/// Whether a process works in the workspace.
fn is_in(process: &Path, world: &World) -> bool {
    fs::read_link(process.join("cwd")).is_ok_and(|folder| folder == world.root())
        && fs::read_to_string(process.join("stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_killed_command_ends_like_without_a_guard_and_what_it_wrote_is_recorded() {
    let world = world();
    // One process from start to end, so that the kill leaves nothing behind, whenever it comes.
    let script = "echo $$ > ../id; echo two > f; : > ../ready; exec cat ../go";
    let mut process = world.tollgate(["run", "--mode", "gate", "--", "sh", "-c", script]).starts();
    paused(&world);
    let id: i32 = fs::read_to_string(world.tmp().join("id")).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(id).unwrap(), Signal::KILL).unwrap();
    assert_eq!(process.ends().signal(), Some(9));
    assert_eq!(ledger(&world, "MUTATION").len(), 1);
}

#[test]
fn a_command_whose_waiting_process_is_killed_is_killed_too() {
    let world = world();
    let words = [
        "run",
        "--mode",
        "gate",
        "--",
        "sh",
        "-c",
        "echo two > f; echo $$ > ../id; ../pause; echo three > f",
    ];
    let mut process = world.tollgate(words).starts();
    paused(&world);
    let supervisor = supervisor(process.0.id());
    let id: i32 = fs::read_to_string(world.tmp().join("id")).unwrap().trim().parse().unwrap();
    process.0.kill().unwrap();
    process.ends();
    let runs =
        |id: i32| fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    until("the end of the command", || (!runs(id)).then_some(()));
    go(&world);
    until("the end of the supervisor", || (!runs(supervisor.as_raw_pid())).then_some(()));
    world.holds("f", "two\n");
    assert_eq!(ledger(&world, "MUTATION").len(), 1, "what it changed is recorded");
}

#[test]
fn what_a_command_leaves_behind_stays_guarded_and_the_command_returns_at_once() {
    let world = world();
    let script = "cat f > /dev/null; (../pause; echo two > f; echo own > g; : > ../done) > /dev/null 2>&1 &";
    let ran = run(&world, "gate", &["sh", "-c", script]).is(0);
    assert_eq!(ran.stderr(), "note: the command left processes behind, which stay guarded until they end\n");
    paused(&world);
    world.puts("f", "foreign\n");
    go(&world);
    until("the end of what was left", || world.tmp().join("done").exists().then_some(()));
    world.holds("f", "foreign\n");
    until("the ledger line of what it wrote", || {
        let lines = ledger(&world, "MUTATION");
        lines.iter().any(|line| line["payload"]["target_file"] == "g").then_some(())
    });
    assert_eq!(ledger(&world, "MUTATION_CONFLICT").len(), 1);
}

#[test]
fn a_reader_of_the_output_does_not_wait_for_what_is_left_behind() {
    let world = world();
    let script = "tollgate run --mode gate -- sh -c '../pause > /dev/null 2>&1 & echo here' 2> /dev/null | cat; echo after";
    assert_eq!(world.script(script).ends().is(0).stdout(), "here\nafter\n");
    paused(&world);
    go(&world);
}

#[test]
fn tollgate_inside_a_run_works_and_guards_itself() {
    let world = world();
    let turn = world.turn("blue");
    let script =
        "cat f > /dev/null; echo two | tollgate write f && tollgate run -- sh -c 'echo in > g' && rm f";
    let words = ["run", "--mode", "gate", "--turn", &turn, "--", "sh", "-c", script];
    world.tollgate(words).env("TOLLGATE_TURN", &turn).ends().is(0);
    world.holds("g", "in\n");
    assert!(!world.path("f").exists());
}

#[test]
fn a_gate_inside_a_gate_is_part_of_it_even_if_no_variable_says_so() {
    let world = world();
    let script =
        "env -u TOLLGATE_RUN -u TOLLGATE_RUN_FOLDER tollgate run --mode gate -- sh -c 'echo in > g; exit 5'";
    run(&world, "gate", &["sh", "-c", script]).is(5);
    world.holds("g", "in\n");
}

#[test]
fn an_unprivileged_user_has_the_same_gate() {
    let world = world();
    let mut words = vec![env!("CARGO_BIN_EXE_tollgate"), "run", "--mode", "gate", "--", "sh", "-c"];
    words.push("cat f > /dev/null; ../pause; echo two > f");
    // Otherwise all tests run as an unprivileged user.
    if rustix::process::geteuid().is_root() {
        let everything = ["-R", "65534:65534", world.tmp().to_str().unwrap()];
        assert!(std::process::Command::new("chown").args(everything).status().unwrap().success());
        words.splice(0..0, ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| {
            paused(&world);
            world.puts("f", "foreign\n");
            go(&world);
        });
        world.program(words[0], &words[1..]).ends()
    });
    assert_eq!(payloads(ran).len(), 1);
    world.holds("f", "foreign\n");
}
