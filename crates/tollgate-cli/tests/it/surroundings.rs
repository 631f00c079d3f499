//! What is taken from the surroundings, and what happens where they are bare.

use std::fs;

use crate::world::World;

fn agent_of(world: &World) -> String {
    let lines = world.json("ledger tail -n 1");
    lines[0]["agent"].as_str().unwrap().to_owned()
}

#[test]
fn who_acts() {
    let world = World::new();
    let write = |words: &[&str]| world.tollgate(["write", "a"].iter().chain(words)).stdin("x");
    write(&[]).ends().is(0);
    assert_eq!(agent_of(&world), "ada");
    write(&[]).env("TOLLGATE_AGENT", "blue").ends().is(0);
    assert_eq!(agent_of(&world), "blue");
    write(&["--agent", "red"]).env("TOLLGATE_AGENT", "blue").ends().is(0);
    assert_eq!(agent_of(&world), "red");
    write(&[]).env("USER", "CORP\\ada l").ends().is(0);
    assert_eq!(agent_of(&world), "CORP-ada-l");
    write(&[]).without("USER").ends().is(0);
    assert_eq!(agent_of(&world), "cli");
    write(&[]).env("TOLLGATE_AGENT", "no name").ends().is(2);
}

#[test]
fn bare_surroundings_are_enough() {
    let world = World::new();
    let run = |words: &[&str]| {
        let run = world.tollgate(words).without("HOME").without("USER");
        run.without("XDG_RUNTIME_DIR").without("XDG_STATE_HOME").stdin("x").ends()
    };
    run(&["write", "a"]).is(0);
    run(&["read", "a"]).is(0);
    run(&["ledger", "verify"]).is(0);
    run(&["doctor"]).is(0);
    assert_eq!(fs::read_dir(world.tmp().join("home")).unwrap().count(), 0);
}

#[test]
fn folders_that_are_not_absolute_do_not_count() {
    let world = World::new();
    let run = world.tollgate(["write", "a"]).env("XDG_STATE_HOME", "state").env("HOME", "home").stdin("x");
    run.ends().is(0);
    assert!(!world.path("state").exists() && !world.path("home").exists());
}

#[test]
fn the_head_of_the_ledger_is_remembered_in_the_users_state() {
    let world = World::new();
    world.tollgate(["write", "a"]).stdin("x").ends().is(0);
    assert_eq!(fs::read_dir(world.tmp().join("state/tollgate/heads")).unwrap().count(), 1);
    world.tollgate(["write", "a"]).without("XDG_STATE_HOME").stdin("y").ends().is(0);
    assert_eq!(fs::read_dir(world.tmp().join("home/.local/state/tollgate/heads")).unwrap().count(), 1);
}
