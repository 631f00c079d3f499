//! `tollgate recovery`: replaced bytes are kept and can be restored.

use std::fs;

use serde_json::json;

use crate::world::{World, hash};

#[test]
fn replaced_bytes_are_listed_shown_and_restored() {
    let world = World::new();
    world.puts("a", "old\n");
    world.puts("b", "b\n");
    world.tollgate(["write", "a", "--agent", "blue"]).stdin("new\n").ends().is(0);
    world.run("delete b").is(0);
    insta::assert_snapshot!(world.run("recovery list").filtered, @r#"
    exit 0
    --- stdout
    [ID]  [TIME]        2 B  b  replaced by `ada`
    [ID]  [TIME]        4 B  a  replaced by `blue`
    "#);
    insta::assert_snapshot!(world.run("recovery list a").filtered, @r#"
    exit 0
    --- stdout
    [ID]  [TIME]        4 B  a  replaced by `blue`
    "#);
    let list = world.json("recovery list ./a");
    let id = list[0]["id"].as_str().unwrap();
    assert_eq!(list[0]["path"], world.path("a").to_str().unwrap());
    assert_eq!(list[0]["sha256"], hash("old\n"));
    assert_eq!(list[0]["kind"], "replaced");
    assert_eq!(world.run(&format!("recovery show {id}")).is(0).stdout(), "old\n");
    assert_eq!(world.json(&format!("recovery show {id}"))["content"], "old\n");
    insta::assert_snapshot!(world.run(&format!("recovery restore {id}")).filtered, @r#"
    exit 0
    --- stdout
    restored `a`, 7aa7a535 -> 01d09d19
    "#);
    world.holds("a", "old\n");
    // The bytes that the restore replaced are kept, too.
    let list = world.json("recovery list a");
    assert_eq!(list[0]["sha256"], hash("new\n"));
}

#[test]
fn a_deleted_file_can_be_restored_as_the_hint_says() {
    let world = World::new();
    world.puts("a", "old\n");
    let deleted = world.run("delete a").is(0).stdout();
    let hint = deleted.split('`').find(|text| text.starts_with("tollgate recovery")).unwrap().to_owned();
    world.script(&hint).ends().is(0);
    world.holds("a", "old\n");
}

#[test]
fn missing_entries_are_reported() {
    let world = World::new();
    insta::assert_snapshot!(world.run("recovery list").filtered, @r#"
    exit 0
    --- stdout
    recovery is empty
    "#);
    assert_eq!(world.json("recovery list"), json!([]));
    world.run("recovery show 123 --json").is(3).fault("NOT_FOUND");
    world.puts("a", "x");
    world.tollgate(["write", "a"]).stdin("y").ends().is(0);
    for line in ["recovery show ../../a", "recovery restore 123"] {
        world.run(&format!("{line} --json")).is(3).fault("NOT_FOUND");
    }
    insta::assert_snapshot!(world.run("recovery restore 123").filtered, @r#"
    exit 3
    --- stderr
    error: the recovery entry `123` does not exist
    hint: run `tollgate recovery list` to see all entries
    "#);
}

#[test]
fn a_write_sweeps_and_succeeds_even_if_that_fails() {
    let world = World::with("[guard]\ngrace = \"0ms\"\n");
    world.puts("a", "old\n");
    world.tollgate(["write", "a"]).stdin("new\n").ends().is(0);
    let count = |folder: &str| fs::read_dir(world.path(".tollgate").join(folder)).unwrap().count();
    assert_eq!((count("stage"), count("history/replaced")), (0, 1));
    // A folder cannot be opened as a lock file.
    fs::remove_file(world.path(".tollgate/locks/sweep")).unwrap();
    fs::create_dir(world.path(".tollgate/locks/sweep")).unwrap();
    let ran = world.tollgate(["write", "a"]).stdin("newer\n").ends().is(0);
    assert_eq!(ran.stderr(), "");
    world.holds("a", "newer\n");
}
