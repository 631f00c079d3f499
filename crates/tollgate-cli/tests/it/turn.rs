//! Turns that several commands share.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::world::{World, hash};

#[test]
fn a_turn_is_started_shown_and_ended() {
    let world = World::new();
    world.puts("a", "one\n");
    world.puts("b", "b\n");
    insta::assert_snapshot!(world.run("turn begin --agent blue").filtered, @r#"
    exit 0
    --- stdout
    [TURN]
    "#);
    let begun = world.json("turn begin --agent blue");
    let turn = begun["turn_id"].as_str().unwrap();
    assert_eq!(begun.as_object().unwrap().len(), 1);
    world.run(&format!("read a --turn {turn}")).is(0);
    world.tollgate(["write", "a", "--turn", turn]).stdin("two\n").ends().is(0);
    world.run(&format!("read b --turn {turn}")).is(0);
    world.run(&format!("read gone --turn {turn}")).is(3);
    let shown = world.json(&format!("turn show --turn {turn}"));
    let path = |name: &str| world.path(name).to_str().unwrap().to_owned();
    assert_eq!(
        shown,
        json!({"turn_id": turn, "agent": "blue", "files": [
            {"path": path("a"), "initial_hash": hash("one\n"), "baseline_hash": hash("two\n")},
            {"path": path("b"), "initial_hash": hash("b\n"), "baseline_hash": hash("b\n")},
            {"path": path("gone"), "initial_hash": null, "baseline_hash": null},
        ]})
    );
    insta::assert_snapshot!(world.run(&format!("turn show --turn {turn}")).filtered, @r#"
    exit 0
    --- stdout
    turn `[TURN]` of `blue`, started [N] s ago: 3 files tracked
      first read  last known  file
      2c8b08da    27dd8ed4    a
      02638299    02638299    b
      no file     no file     gone
    "#);
    insta::assert_snapshot!(world.run("turn list").filtered, @r#"
    exit 0
    --- stdout
    [TURN]  blue  started [N] s ago, 0 files tracked
    [TURN]  blue  started [N] s ago, 3 files tracked
    "#);
    assert_eq!(world.json("turn list")[1]["files"], 3);
    insta::assert_snapshot!(world.run(&format!("turn end --turn {turn}")).filtered, @r#"
    exit 0
    --- stdout
    ended `[TURN]`: 3 files tracked
    "#);
    insta::assert_snapshot!(world.run(&format!("turn end --turn {turn}")).filtered, @r#"
    exit 3
    --- stderr
    error: the turn `[TURN]` does not exist
    hint: it has ended, was not used for a day, or belongs to another workspace: `unset TOLLGATE_TURN` if that names it; `tollgate turn list` lists the running turns, `tollgate turn begin` starts one
    "#);
    world.run(&format!("read a --json --turn {turn}")).is(3).fault("NOT_FOUND");
}

/// A workspace with `unread = "known"` and a file that the agent `blue` has read in some way, and that changed since.
fn changed_after(read: impl Fn(&World)) -> World {
    let world = World::with("[guard]\nunread = \"known\"\n");
    world.puts("a", "one\n");
    read(&world);
    world.puts("a", "foreign\n");
    world
}

#[test]
fn known_remembers_open_turns_and_commands_without_a_turn() {
    for world in [
        changed_after(|world| drop(world.run("read a --agent blue").is(0))),
        changed_after(|world| drop(world.run(&format!("read a --turn {}", world.turn("blue"))).is(0))),
        changed_after(|world| {
            drop(world.tollgate(["write", "a", "--agent", "blue"]).stdin("x").ends().is(0));
        }),
    ] {
        let write = |words: &[&str]| {
            world.tollgate([&["write", "a", "--json"], words].concat()).stdin("mine\n").ends()
        };
        write(&["--agent", "blue"]).is(1).payload("STALE_FILE", "RE_READ_REQUIRED");
        let turn = world.turn("blue");
        write(&["--turn", &turn]).is(1).payload("STALE_FILE", "RE_READ_REQUIRED");
        world.run(&format!("turn end --turn {turn}")).is(0);
        world.holds("a", "foreign\n");
        write(&["--agent", "green"]).is(0);
        world.run("read a --agent blue").is(0);
        write(&["--agent", "blue"]).is(0);
    }
}

#[test]
fn the_initial_hash_is_that_of_the_first_read_for_every_spelling_of_the_path() {
    let world = World::new();
    world.puts("sub/a", "one\n");
    let turn = world.turn("blue");
    let hash_of = |path: &str| world.json(&format!("turn hash {path} --turn {turn}"));
    assert_eq!(hash_of("sub/a")["initial_hash"], Value::Null);
    assert_eq!(world.run(&format!("turn hash sub/a --turn {turn}")).is(0).stdout(), "none\n");
    world.run(&format!("read sub/a --turn {turn}")).is(0);
    world.tollgate(["write", "sub/a", "--turn", &turn]).stdin("two\n").ends().is(0);
    fs::remove_file(world.path("sub/a")).unwrap();
    let file_path = world.path("sub/a").to_str().unwrap().to_owned();
    for path in ["sub/a", "./sub/../sub/a", &file_path] {
        assert_eq!(hash_of(path), json!({"file_path": file_path, "initial_hash": hash("one\n")}));
    }
}

#[test]
fn the_turn_can_come_from_the_environment() {
    let world = World::new();
    world.puts("a", "one\n");
    let turn = world.turn("blue");
    world.tollgate(["read", "a"]).env("TOLLGATE_TURN", &turn).ends().is(0);
    world.puts("a", "two\n");
    let write = || world.tollgate(["write", "a", "--json"]).stdin("x").env("TOLLGATE_TURN", &turn);
    write().ends().payload("STALE_FILE", "RE_READ_REQUIRED");
    let other = world.turn("blue");
    world.tollgate(["write", "a", "--turn", &other]).env("TOLLGATE_TURN", &turn).stdin("x").ends().is(0);
    let lines = world.json("ledger tail");
    let conflict =
        lines.as_array().unwrap().iter().find(|line| line["action_type"] == "MUTATION_CONFLICT").unwrap();
    assert_eq!((&conflict["agent"], &conflict["turn"]), (&"blue".into(), &turn.into()));
}

#[test]
fn a_call_without_a_turn_gets_a_hint() {
    let world = World::new();
    insta::assert_snapshot!(world.run("turn end").filtered, @r#"
    exit 2
    --- stderr
    error: no turn given
    hint: start one with `tollgate turn begin`, then give `--turn ID` or set `TOLLGATE_TURN`
    "#);
    world.run("turn show --json").is(2).fault("USAGE");
    let turn = world.turn("blue");
    insta::assert_snapshot!(world.run(&format!("read a --turn {turn} --agent red")).filtered, @r#"
    exit 2
    --- stderr
    error: the turn `[TURN]` belongs to `blue`, not to `red`
    hint: omit `--agent`, or start a turn with `tollgate turn begin --agent red`
    "#);
    let bad = world.tollgate(["read", "a"]).env("TOLLGATE_TURN", "../up").ends();
    insta::assert_snapshot!(bad.filtered, @r#"
    exit 2
    --- stderr
    error: invalid `TOLLGATE_TURN`: `../up` is not a valid turn id: use 1 to 64 letters, digits and `-_.@+`, not starting with a dot or a dash
    hint: set the variable to a valid value, or unset it
    "#);
}

#[test]
fn with_known_a_later_turn_is_guarded_by_the_reads_of_an_earlier_one() {
    let world = World::new();
    world.run("init").is(0);
    world.puts("a", "one\n");
    let first = world.turn("blue");
    world.run(&format!("read a --turn {first}")).is(0);
    world.run(&format!("turn end --turn {first}")).is(0);
    world.puts("a", "two\n");
    let (blue, red) = (world.turn("blue"), world.turn("red"));
    let write = ["write", "a", "--json", "--turn", &blue];
    world.tollgate(write).stdin("x").ends().payload("STALE_FILE", "RE_READ_REQUIRED");
    world.tollgate(["write", "a", "--turn", &red]).stdin("x").ends().is(0);
}

#[test]
fn turns_are_private_and_in_the_best_available_place() {
    let world = World::new();
    world.puts("a", "one\n");
    world.turn("blue");
    let place = world.tmp().join("run/tollgate");
    assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o700);

    // If other users could write to the folder, they could forge what a turn has seen.
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    let refused = world.run("turn list");
    insta::assert_snapshot!(refused.filtered, @r#"
    exit 3
    --- stderr
    error: `[TMP]/run/tollgate` is damaged: it must be a folder that only its owner can enter, and yours
    hint: run `tollgate doctor` to see what can be fixed, and how
    "#);
    let other = world.tollgate(["turn", "begin"]).ends().is(0).stdout().trim().to_owned();
    world.run(&format!("turn show --turn {other}")).is(0);
    world.run(&format!("turn end --turn {other}")).is(0);
    let answer = world.run("doctor --json").is(1).json();
    let turns =
        answer["findings"].as_array().unwrap().iter().find(|found| found["check"] == "turns").unwrap();
    let command = turns["hint"].as_str().unwrap().split('`').nth(1).unwrap().to_owned();
    world.script(&command).ends().is(0);
    assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o700);
    world.run("turn list").is(0);

    // Without a runtime folder, shared memory is used. This test removes what it leaves there.
    let begun = world.tollgate(["turn", "begin"]).without("XDG_RUNTIME_DIR").ends().is(0);
    let turn = begun.stdout().trim().to_owned();
    world.tollgate(["read", "a", "--turn", &turn]).ends().is(0);
    world.tollgate(["turn", "end", "--turn", &turn]).ends().is(0);
    let uid = rustix::process::geteuid().as_raw();
    let id = fs::read_dir(&place).unwrap().next().unwrap().unwrap().file_name();
    let _ = fs::remove_dir_all(std::path::Path::new("/dev/shm").join(format!("tollgate-{uid}")).join(id));
}

#[test]
fn a_new_folder_at_an_old_path_does_not_inherit_its_turns() {
    let world = World::new();
    let turn = world.turn("blue");
    fs::remove_dir_all(world.root()).unwrap();
    fs::create_dir(world.root()).unwrap();
    world.puts(".tollgate/config.toml", "");
    world.puts("a", "x");
    world.run(&format!("read a --json --turn {turn}")).is(3).fault("NOT_FOUND");
    world.run("ledger verify").is(0);
    world.close();
}
