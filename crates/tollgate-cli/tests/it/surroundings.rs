//! The environment: what tollgate takes from it, and that it works with an empty one.

use std::fs;

use crate::world::World;

fn agent_of(world: &World) -> String {
    let lines = world.json("ledger tail -n 1");
    lines[0]["agent"].as_str().unwrap().to_owned()
}

#[test]
fn the_agent_is_an_argument_or_a_variable_or_the_user() {
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
    assert_eq!(agent_of(&world), format!("uid-{}", rustix::process::getuid().as_raw()));
    write(&[]).env("TOLLGATE_AGENT", "no name").ends().is(2);
}

#[test]
fn an_empty_environment_is_enough() {
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
fn relative_folders_in_the_environment_are_ignored() {
    let world = World::new();
    let run = world.tollgate(["write", "a"]).env("XDG_STATE_HOME", "state").env("HOME", "home").stdin("x");
    run.ends().is(0);
    assert!(!world.path("state").exists() && !world.path("home").exists());
}

#[test]
fn the_head_of_the_ledger_is_stored_in_the_users_state() {
    let world = World::new();
    world.tollgate(["write", "a"]).stdin("x").ends().is(0);
    assert_eq!(fs::read_dir(world.tmp().join("state/tollgate/heads")).unwrap().count(), 1);
    world.tollgate(["write", "a"]).without("XDG_STATE_HOME").stdin("y").ends().is(0);
    assert_eq!(fs::read_dir(world.tmp().join("home/.local/state/tollgate/heads")).unwrap().count(), 1);
}

#[test]
fn the_users_own_folders_may_be_behind_links() {
    let world = World::new();
    for folder in ["home", "run", "state"] {
        let real = world.tmp().join(format!("real-{folder}"));
        fs::rename(world.tmp().join(folder), &real).unwrap();
        std::os::unix::fs::symlink(&real, world.tmp().join(folder)).unwrap();
    }
    world.puts("a", "one");
    let turn = world.turn("blue");
    world.run(&format!("read a --turn {turn}")).is(0);
    world.tollgate(["write", "a", "--turn", &turn]).stdin("two").ends().is(0);
    world.run("ledger verify").is(0);
    // The turn and the head of the ledger are where the links lead.
    for folder in ["real-run/tollgate", "real-state/tollgate/heads"] {
        let found =
            fs::read_dir(world.tmp().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
        assert!(found.count() > 0, "{folder}");
    }
    let without = |name: &str| world.tollgate(["write", "a"]).without(name).stdin("three").ends().is(0);
    without("XDG_STATE_HOME");
    assert!(world.tmp().join("real-home/.local/state/tollgate/heads").exists());
}
