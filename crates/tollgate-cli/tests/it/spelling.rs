//! File systems that take `App.conf` and `APP.CONF` for one file.

use std::fs;

use serde_json::json;
use tollgate_testing::mounted::IgnoresCase;

use crate::doors::doors;
use crate::world::{World, hash};

/// A workspace on a file system that ignores case.
fn world(settings: &str) -> (IgnoresCase, World) {
    let world = World::bare();
    let mount = IgnoresCase::over(&world.root(), &world.tmp().join("image"));
    world.puts(
        ".tollgate/config.toml",
        format!("[guard]\ndurability = \"fast\"\ngrace = \"1ms\"\n{settings}"),
    );
    (mount, world)
}

#[test]
fn a_file_in_another_spelling_is_the_file_that_the_agent_has_read() {
    for door in 0..6 {
        let (_mount, world) = world("");
        let (name, mut door) = doors(&world).swap_remove(door);
        let mut spellings = vec![("App.conf", "APP.CONF"), ("É.txt", "é.txt")];
        // NTFS cannot hold an overlay, so there are transactions only in a workspace without folders.
        if name != "transaction" {
            spellings.push(("src/a", "SRC/a"));
        }
        for (read, write) in &spellings {
            world.puts(read, "one");
            door.reads(read);
            world.puts(read, "two");
            let refused = door.writes(write, "mine").unwrap_or_else(|| panic!("{name}: {write} is written"));
            assert_eq!(
                json!([refused["error_type"], refused["expected_hash"], refused["actual_hash"]]),
                json!(["STALE_FILE", hash("one"), hash("two")]),
                "{name}: {refused}"
            );
            world.holds(read, "two");
            door.reads(write);
            assert_eq!(door.writes(read, "mine"), None, "{name}: {read} after it was read as {write}");
            world.holds(write, "mine");
        }
        let names = fs::read_dir(world.root()).unwrap().count();
        assert_eq!(names, spellings.len() + 1, "{name}: the workspace has other names");
    }
}

#[test]
fn what_is_protected_is_protected_in_every_spelling() {
    let (_mount, world) = world("protected = [\"Locked\"]\n");
    world.puts("Locked/a", "one");
    world.script("git init -q").ends().is(0);
    for door in [0, 1, 2, 3, 5] {
        let (name, mut door) = doors(&world).swap_remove(door);
        for file in ["locked/new", "LOCKED/A", ".Tollgate/config.toml", ".GIT/hooks/pre-commit"] {
            let refused = door.writes(file, "mine").unwrap_or_else(|| panic!("{name}: {file} is written"));
            assert_eq!(refused["error_type"], "PROTECTED_PATH", "{name}: {refused}");
        }
    }
    world.holds("Locked/a", "one");
}

#[test]
fn two_files_whose_names_differ_in_case_are_two_files_elsewhere() {
    for (read, write) in [("config", "CONFIG"), ("CONFIG", "config")] {
        for door in 0..6 {
            let world = World::with("[guard]\ndurability = \"fast\"\ngrace = \"1ms\"\nunread = \"allow\"\n");
            world.puts("config", "one");
            world.puts("CONFIG", "one");
            let (name, mut door) = doors(&world).swap_remove(door);
            door.reads(read);
            world.puts(read, "two");
            assert_eq!(door.writes(write, "mine"), None, "{name}");
            world.holds(read, "two");
            world.holds(write, "mine");
        }
    }
}

#[test]
fn a_vault_where_claims_are_impossible_says_so() {
    let (_mount, world) = world("");
    world.tollgate(["init", "--vault"]).ends().is(0);
    let added = world.tollgate(["task", "add", "Water"]).ends();
    let said = added.stderr();
    assert!(said.contains("cannot move a file without replacing another"), "{said}");
    assert!(said.contains("keep the vault on ext4"), "{said}");
}

#[test]
fn a_workspace_is_the_same_in_every_spelling_of_its_path() {
    let (_mount, world) = world("");
    fs::create_dir_all(world.path("Sub/.tollgate")).unwrap();
    world.puts("Sub/a", "one");
    let turn = world.tollgate(["turn", "begin", "--agent", "blue"]).folder(world.path("SUB")).ends();
    let turn = turn.is(0).stdout().trim().to_owned();
    world.tollgate(["read", "a", "--turn", &turn]).folder(world.path("sub")).ends().is(0);
    world.puts("Sub/a", "two");
    let file = world.path("sUB/A");
    let write = ["write", file.to_str().unwrap(), "--turn", &turn];
    world.tollgate(write).folder(world.path("SUB")).stdin("mine").ends().is(1);
    world.holds("Sub/a", "two");
}
