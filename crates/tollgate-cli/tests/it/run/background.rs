//! Processes that a command leaves behind: the command itself ends at once, and what they change is committed when they end.

use std::fs;

use super::HOLD;
use crate::world::{World, until};

/// A command that leaves a process behind. The process holds, does its work, and then tells that it has ended.
fn leaving(work: &str) -> String {
    format!("echo now > now; (exec >/dev/null 2>&1; {HOLD}; {work}) &")
}

#[test]
fn what_a_process_changes_that_was_left_behind_is_committed_when_it_ends() {
    let world = World::new();
    world.puts("f", "one\n");
    let ran = world
        .guarded(&leaving("sed -i s/one/1/ f; echo later > later; echo again > now; rm -f gone"))
        .ends()
        .is(0);
    assert!(ran.stderr().contains("left processes behind"), "{ran}");
    world.holds("now", "now\n");
    world.holds("f", "one\n");
    until("the process", || world.tmp().join("ready").exists().then_some(()));
    fs::write(world.tmp().join("go"), "").unwrap();
    until("its changes", || world.path("later").exists().then_some(()));
    world.nothing_is_left();
    world.holds("f", "1\n");
    world.holds("now", "again\n");
    let files: Vec<String> =
        world.lines().iter().map(|line| line["payload"]["target_file"].to_string()).collect();
    assert_eq!(files.iter().filter(|file| *file == "\"now\"").count(), 2, "{files:?}");
}

#[test]
fn a_change_by_someone_else_is_not_lost_to_it() {
    for (file, theirs) in [("f", "theirs\n"), ("now", "theirs\n")] {
        let world = World::new();
        world.puts("f", "one\n");
        world.guarded(&leaving("sed -i s/one/1/ f; echo again > now; echo later > later")).ends().is(0);
        until("the process", || world.tmp().join("ready").exists().then_some(()));
        world.puts(file, theirs);
        fs::write(world.tmp().join("go"), "").unwrap();
        world.nothing_is_left();
        world.holds(file, theirs);
        assert!(!world.path("later").exists(), "all or none");
        let last = world.lines().pop().unwrap();
        assert_eq!(
            (&last["action_type"], &last["payload"]["target_file"]),
            (&"MUTATION_CONFLICT".into(), &file.into())
        );
    }
}

#[test]
fn a_process_of_its_own_session_is_waited_for_too() {
    let world = World::new();
    world
        .guarded(&format!("setsid sh -c '{HOLD}; echo later > later' >/dev/null 2>&1 </dev/null &"))
        .ends()
        .is(0);
    until("the process", || world.tmp().join("ready").exists().then_some(()));
    fs::write(world.tmp().join("go"), "").unwrap();
    until("its changes", || world.path("later").exists().then_some(()));
    world.nothing_is_left();
}
