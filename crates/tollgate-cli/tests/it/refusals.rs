//! Every kind of refusal: the text for people, the JSON for programs, and that nothing changes on disk.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};

use crate::world::{World, hash};

#[test]
fn stale_as_text() {
    let world = World::new();
    world.puts("src/a.rs", "one\ntwo\nthree\n");
    let (blue, red) = (world.turn("blue"), world.turn("red"));
    world.run(&format!("read src/a.rs --turn {blue}")).is(0);
    world.tollgate(["write", "src/a.rs", "--turn", &red]).stdin("one\n2\x1b[2J\nthree\n").ends().is(0);
    let refused = world.tollgate(["write", "src/a.rs", "--turn", &blue]).stdin("mine\n").ends();
    insta::assert_snapshot!(refused.filtered, @r#"
    exit 1
    --- stdout
    {"error_type":"STALE_FILE","message":"File modified by another actor. Re-read required.","details":{"path":"[W]/src/a.rs","baseline_hash":"[HASH]","current_disk_hash":"[HASH]"},"recovery_hint":"Perform a new 'read_file' to see the latest changes before attempting to write again."}
    --- stderr
    refused: `src/a.rs` is stale
      you last saw  b6285c57
      on disk       e8c5e5e3, written by `red` [N] s ago
        --- what you read
        +++ on disk
        @@ -1,3 +1,3 @@
         one
        -two
        +2\u{1b}[2J
         three
    hint: read the whole of `src/a.rs` again, redo your change on what you find, then write
    "#);
    assert_eq!(refused.reports().len(), 1);
    world.holds("src/a.rs", "one\n2\x1b[2J\nthree\n");
}

#[test]
fn stale_in_json() {
    let world = World::new();
    world.puts("a", "one\n");
    let turn = world.turn("blue");
    world.run(&format!("read a --turn {turn}")).is(0);
    world.puts("a", "two\n");
    let write = ["write", "a", "--json", "--turn", &turn];
    let payload = world.tollgate(write).stdin("mine\n").ends().payload("STALE_FILE", "RE_READ_REQUIRED");
    assert_eq!(
        payload,
        json!({
            "error_type": "STALE_FILE",
            "file_path": world.path("a").to_str().unwrap(),
            "expected_hash": hash("one\n"),
            "actual_hash": hash("two\n"),
            "resolution": "RE_READ_REQUIRED",
        })
    );
    fs::remove_file(world.path("a")).unwrap();
    let gone = world.tollgate(write).stdin("mine\n").ends().payload("STALE_FILE", "RE_READ_REQUIRED");
    assert_eq!(gone["actual_hash"], Value::Null);
    let words = world.tollgate(["write", "a", "--turn", &turn]).stdin("mine\n").ends();
    insta::assert_snapshot!(words.filtered, @r#"
    exit 1
    --- stdout
    {"error_type":"STALE_FILE","message":"Target missing. Re-read required.","details":{"path":"[W]/a","baseline_hash":"[HASH]","current_disk_hash":null},"recovery_hint":"Perform a new 'read_file' to see the latest changes before attempting to write again."}
    --- stderr
    refused: `a` is stale
      you last saw  2c8b08da
      on disk       no file
    hint: read `a` again; if it was deleted on purpose, leave it, otherwise write it again
    "#);
    assert_eq!(words.reports()[0]["message"], "Target missing. Re-read required.");
    // A read that finds no file is also a read: now the turn may create the file.
    world.run(&format!("read a --turn {turn}")).is(3);
    world.tollgate(write).stdin("mine\n").ends().is(0);
}

#[test]
fn an_explicit_expectation_decides() {
    let world = World::new();
    world.puts("a", "one\n");
    let one = hash("one\n");
    world.tollgate(["write", "a", "--expect", &one]).stdin("two\n").ends().is(0);
    let prefixed = format!("sha256:{}", one.to_uppercase());
    for words in [
        vec!["write", "a", "--expect", &one, "--json"],
        vec!["write", "a", "--expect", "absent", "--json"],
        vec!["edit", "a", "--expect", &prefixed, "--json", "--old", "two", "--new", "2"],
        vec!["delete", "a", "--expect", &one, "--json"],
        vec!["move", "a", "b", "--expect", &one, "--json"],
    ] {
        let payload = world.tollgate(&words).stdin("x").ends().payload("STALE_FILE", "RE_READ_REQUIRED");
        assert_eq!(payload["actual_hash"], hash("two\n"), "{words:?}");
    }
    world.holds("a", "two\n");
    insta::assert_snapshot!(world.run("write a --expect 123").filtered, @r#"
    exit 2
    --- stderr
    error: invalid value '123' for '--expect <HASH>': `123` is not a SHA-256: 64 hex digits are expected; or give `absent` if the file must not exist

    For more information, try '--help'.
    "#);
}

#[test]
fn create_and_move_never_replace_an_existing_file() {
    let world = World::new();
    world.puts("a", "a\n");
    world.puts("b", "b\n");
    let refused = world.tollgate(["create", "a"]).stdin("x").ends();
    insta::assert_snapshot!(refused.filtered, @r#"
    exit 1
    --- stdout
    {"error_type":"STALE_FILE","message":"Target already exists. Re-read required.","details":{"path":"[W]/a","baseline_hash":null,"current_disk_hash":"[HASH]"},"recovery_hint":"Perform a new 'read_file' to see the latest changes before attempting to write again."}
    --- stderr
    refused: `a` already exists
      on disk       87428fc5
    hint: read `a`, then change what you find or choose another path
    "#);
    world.run("move a b --json").payload("STALE_FILE", "RE_READ_REQUIRED");
    world.holds("b", "b\n");
}

#[test]
fn busy() {
    let world = World::with("[guard]\nquiet_wait = \"20ms\"\n");
    world.puts("log", "line\n");
    let log = OpenOptions::new().append(true).open(world.path("log")).unwrap();
    assert_eq!(world.run("read log").is(0).stdout(), "line\n");
    let refused = world.tollgate(["write", "log"]).stdin("x").ends();
    insta::assert_snapshot!(refused.filtered, @r#"
    exit 1
    --- stderr
    refused: `log` is busy: another process has it open for writing
    hint: retry in a moment; a file that is always open, such as a log, cannot be replaced: append to it
    "#);
    world.tollgate(["write", "log", "--json"]).stdin("x").ends().payload("FILE_BUSY", "RETRY_LATER");
    drop(log);
    world.tollgate(["write", "log"]).stdin("x").ends().is(0);
}

#[test]
fn unread() {
    let world = World::with("[guard]\nunread = \"refuse\"\n");
    world.puts("a", "a\n");
    let turn = world.turn("blue");
    let write = ["write", "a", "--turn", &turn];
    insta::assert_snapshot!(world.tollgate(write).stdin("x").ends().filtered, @r#"
    exit 1
    --- stderr
    refused: `a` was not read in this turn
    hint: read `a` with the same `--turn`, then base your write on what you find
    "#);
    let json = ["write", "a", "--turn", &turn, "--json"];
    let payload = world.tollgate(json).stdin("x").ends().payload("UNREAD_FILE", "READ_REQUIRED");
    assert_eq!(payload["actual_hash"], hash("a\n"));
    world.run(&format!("read a --turn {turn}")).is(0);
    world.tollgate(write).stdin("x").ends().is(0);
}

#[test]
fn outside_and_protected_and_not_a_file() {
    let world = World::new();
    world.run("init").is(0);
    fs::write(world.tmp().join("secret"), "s").unwrap();
    symlink("../secret", world.path("link")).unwrap();
    fs::create_dir(world.path("folder")).unwrap();
    let mut said = String::new();
    for (path, error_type) in [
        ("../secret", "OUTSIDE_WORKSPACE"),
        ("link", "OUTSIDE_WORKSPACE"),
        ("/etc/hostname", "OUTSIDE_WORKSPACE"),
        (".tollgate/config.toml", "PROTECTED_PATH"),
        (".tollgate/ledger.jsonl", "PROTECTED_PATH"),
        ("folder", "NOT_A_FILE"),
        (".", "NOT_A_FILE"),
    ] {
        let write = world.tollgate(["write", path, "--json"]).stdin("x").ends();
        write.payload(error_type, "CHOOSE_ANOTHER_PATH");
        said += &format!("{}\n", world.tollgate(["write", path]).stdin("x").ends().filtered);
        if error_type != "PROTECTED_PATH" {
            world.tollgate(["read", path, "--json"]).ends().payload(error_type, "CHOOSE_ANOTHER_PATH");
        }
    }
    insta::assert_snapshot!(said, @r#"
    exit 1
    --- stderr
    refused: `[TMP]/secret` is outside the workspace
    hint: choose a path inside the workspace, or give the right workspace with `-C DIR`; a symbolic link that leads out of the workspace counts as outside
    exit 1
    --- stderr
    refused: `[TMP]/secret` is outside the workspace
    hint: choose a path inside the workspace, or give the right workspace with `-C DIR`; a symbolic link that leads out of the workspace counts as outside
    exit 1
    --- stderr
    refused: `/etc/hostname` is outside the workspace
    hint: choose a path inside the workspace, or give the right workspace with `-C DIR`; a symbolic link that leads out of the workspace counts as outside
    exit 1
    --- stderr
    refused: `.tollgate/config.toml` is protected
    hint: choose another path, or ask a person to make the change
    exit 1
    --- stderr
    refused: `.tollgate/ledger.jsonl` is protected
    hint: choose another path, or ask a person to make the change
    exit 1
    --- stderr
    refused: `folder` is not a regular file
    hint: choose the path of a file, not of a folder or a device
    exit 1
    --- stderr
    refused: `[W]` is not a regular file
    hint: choose the path of a file, not of a folder or a device
    "#);
    assert_eq!(fs::read(world.tmp().join("secret")).unwrap(), b"s");
    let read = world.run("read ../secret");
    insta::assert_snapshot!(read.filtered, @r#"
    exit 1
    --- stderr
    refused: `[TMP]/secret` is outside the workspace
    hint: choose a path inside the workspace, or give the right workspace with `-C DIR`; a symbolic link that leads out of the workspace counts as outside
    "#);
}

#[test]
fn hard_linked_and_read_only() {
    let world = World::new();
    world.puts("a", "a");
    fs::hard_link(world.path("a"), world.path("b")).unwrap();
    world.puts("c", "c");
    fs::set_permissions(world.path("c"), fs::Permissions::from_mode(0o444)).unwrap();
    for (path, error_type) in [("a", "HARD_LINKED"), ("c", "READ_ONLY")] {
        world.tollgate(["write", path, "--json"]).stdin("x").ends().payload(error_type, "ASK_A_PERSON");
        world.holds(path, path);
    }
    insta::assert_snapshot!(world.tollgate(["write", "a"]).stdin("x").ends().filtered, @r#"
    exit 1
    --- stderr
    refused: `a` has other names (hard links), and a write would separate them
    hint: ask a person: they can break the link, or set `hard_links = "detach"` in `.tollgate/config.toml`
    "#);
    insta::assert_snapshot!(world.tollgate(["write", "c"]).stdin("x").ends().filtered, @r#"
    exit 1
    --- stderr
    refused: `c` is read-only
    hint: ask a person: they can change its permissions, or set `read_only = "replace"` in `.tollgate/config.toml`
    "#);
}

#[test]
fn text_not_found() {
    let world = World::new();
    world.puts("a", "one one\n");
    insta::assert_snapshot!(world.run("edit a --old two --new x").filtered, @r#"
    exit 1
    --- stderr
    refused: the old text is not in `a`
      looked for  two
    hint: read `a` again and copy the old text exactly, with its white space
    "#);
    insta::assert_snapshot!(world.run("edit a --old one --new x").filtered, @r#"
    exit 1
    --- stderr
    refused: the old text occurs 2 times in `a`
      looked for  one
    hint: give more of the lines around it, so that it is unique, or replace all with `--all`
    "#);
    for old in ["two", "one"] {
        let edit = world.run(&format!("edit a --json --new x --old {old}"));
        edit.payload("TEXT_NOT_FOUND", "READ_REQUIRED");
    }
    world.holds("a", "one one\n");
}

#[test]
fn all_stale_files_are_in_the_answer_and_each_has_a_report() {
    let world = World::new();
    let turn = world.turn("blue");
    for name in ["b", "a", "c"] {
        world.puts(name, "old\n");
        world.run(&format!("read {name} --turn {turn}")).is(0);
    }
    world.puts("a", "new\n");
    world.puts("b", "new\n");
    let changes = r#"[{"path":"b","content":"x"},{"path":"c","content":"x"},{"path":"a","content":"x"}]"#;
    let mut json = world.tollgate(["apply", "--json", "--turn", &turn]).stdin(changes).ends().is(1).json();
    let all = json.as_object_mut().unwrap().remove("all").unwrap();
    assert_eq!(all[0], json, "the five keys are those of the first");
    let paths: Vec<_> = all.as_array().unwrap().iter().map(|payload| payload["file_path"].clone()).collect();
    assert_eq!(paths, ["a", "b"].map(|name| json!(world.path(name))));
    let words = world.tollgate(["apply", "--turn", &turn]).stdin(changes).ends().is(1);
    assert_eq!(words.reports().len(), 2);
    insta::assert_snapshot!(words.stderr(), @r#"
    refused: `a` is stale
      you last saw  01d09d19
      on disk       7aa7a535
        --- what you read
        +++ on disk
        @@ -1 +1 @@
        -old
        +new
    hint: read the whole of `a` again, redo your change on what you find, then write
    refused: `b` is stale
      you last saw  01d09d19
      on disk       7aa7a535
        --- what you read
        +++ on disk
        @@ -1 +1 @@
        -old
        +new
    hint: read the whole of `b` again, redo your change on what you find, then write
    "#);
    world.holds("c", "old\n");
}

#[test]
fn a_controller_can_use_the_payload_of_a_path_that_is_not_utf_8() {
    use std::os::unix::ffi::OsStrExt;
    let world = World::new();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9");
    world.puts(name, "one");
    let words = ["write", "--json", "--expect", "absent"].map(std::ffi::OsStr::new);
    let refused = world.tollgate(words.into_iter().chain([name])).stdin("mine").ends();
    let payload = refused.payload("STALE_FILE", "RE_READ_REQUIRED");
    let change = json!([{
        "path_base64": payload["file_path_base64"], "content": "two", "expected_hash": payload["actual_hash"],
    }]);
    world.tollgate(["apply"]).stdin(change.to_string()).ends().is(0);
    world.holds(name, "two");
}

#[test]
fn a_path_that_ends_with_a_slash_is_not_a_file() {
    let world = World::new();
    let ran = world.tollgate(["write", "new/"]).stdin("x").ends().is(2);
    assert!(ran.stderr().contains("/new/` ends like the path of a folder"), "{ran}");
    assert!(!world.path("new").exists());
    world.puts("a", "aaa");
    let payload = world.run("edit a --json --old aa --new b").payload("TEXT_NOT_FOUND", "READ_REQUIRED");
    assert_eq!(payload["file_path"], json!(world.path("a")));
    assert!(world.run("edit a --old aa --new b").is(1).stderr().contains("2 times"));
    world.holds("a", "aaa");
}
