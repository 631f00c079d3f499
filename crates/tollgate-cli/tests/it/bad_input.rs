//! Whatever it is given: a clear answer, no hang, no panic, and nothing changed.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;

use crate::world::{World, hash};

/// Every command that takes one file.
fn commands(path: &OsStr) -> Vec<Vec<OsString>> {
    let line = |words: &[&str]| words.iter().map(OsString::from).chain([path.to_owned()]).collect();
    vec![
        line(&["read"]),
        line(&["write"]),
        line(&["create"]),
        line(&["edit", "--old", "a", "--new", "b"]),
        line(&["delete"]),
        line(&["move", "plain"]),
    ]
}

/// Each in words and in JSON, with one of these exit codes.
#[track_caller]
fn answers(world: &World, path: impl AsRef<OsStr>, codes: &[i32]) {
    for command in commands(path.as_ref()) {
        world.puts("plain", "plain\n");
        for json in [false, true] {
            let words = command.iter().cloned().chain(json.then(|| OsString::from("--json")));
            let ran = world.tollgate(words).stdin("x\n").ends();
            let code = codes.iter().find(|code| ran.to_string().starts_with(&format!("exit {code}\n")));
            assert!(code.is_some(), "{command:?}: {ran}");
            if json {
                let answer = ran.json();
                assert!(answer["error_type"].is_string() || answer["error"].is_string(), "{answer}");
            } else {
                let first = ran.stderr();
                assert!(first.starts_with("refused: ") || first.starts_with("error: "), "{ran}");
                assert!(first.contains("\nhint: "), "{ran}");
            }
        }
        world.holds("plain", "plain\n");
    }
}

#[test]
fn paths_that_lead_out() {
    let world = World::new();
    fs::write(world.tmp().join("secret"), "s").unwrap();
    symlink("..", world.path("up")).unwrap();
    symlink(world.tmp().join("secret"), world.path("link")).unwrap();
    symlink("/dev/null", world.path("null")).unwrap();
    for path in ["../secret", "up/secret", "link", "null", "/", "..", "x/../../secret"] {
        answers(&world, path, &[1]);
    }
    assert_eq!(fs::read(world.tmp().join("secret")).unwrap(), b"s");
}

#[test]
fn things_that_are_no_files() {
    let world = World::new();
    fs::create_dir(world.path("folder")).unwrap();
    mknodat(CWD, world.path("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(world.path("socket")).unwrap();
    // A call that moves a file over a folder makes no sense, hence 2.
    for path in ["folder", "fifo", "socket"] {
        answers(&world, path, &[1, 2]);
    }
    // Only root can make a device.
    let device = rustix::fs::makedev(1, 3);
    if mknodat(CWD, world.path("device"), FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, device).is_ok()
    {
        answers(&world, "device", &[1, 2]);
    }
}

#[test]
fn paths_that_cannot_be() {
    let world = World::new();
    symlink("loop", world.path("loop")).unwrap();
    world.puts("file", "x");
    let long_name = "n".repeat(256);
    let long_path = "p/".repeat(2048);
    for path in ["loop", "loop/x", "file/below", &long_name, &long_path] {
        answers(&world, path, &[3]);
    }
    for command in commands(OsStr::new("")) {
        world.tollgate(command).stdin("x").ends().is(2);
    }
    let said = world.tollgate(["read", &long_path]).ends().stderr();
    assert!(said.len() < 1000, "{said}");
}

#[test]
fn names_that_are_strange_and_right() {
    let world = World::new();
    for name in
        [b"two\nlines".as_slice(), b"\xff\xfe not utf-8", b" ", b"-dash", b"back`tick", "größe".as_bytes()]
    {
        let name = OsStr::from_bytes(name);
        let after = |words: &[&str]| -> Vec<OsString> {
            words.iter().map(OsString::from).chain(["--".into(), name.to_owned()]).collect()
        };
        let turn = world.turn("blue");
        world.tollgate(after(&["create", "--turn", &turn])).stdin("one\n").ends().is(0);
        assert_eq!(world.tollgate(after(&["read", "--turn", &turn])).ends().is(0).stdout(), "one\n");
        fs::write(world.path(name), "two\n").unwrap();
        let write = after(&["write", "--json", "--turn", &turn]);
        let payload = world.tollgate(&write).stdin("x").ends().payload("STALE_FILE", "RE_READ_REQUIRED");
        assert_eq!(payload["actual_hash"], hash("two\n"));
        world.tollgate(after(&["read", "--turn", &turn])).ends().is(0);
        world.tollgate(&write).stdin("three\n").ends().is(0);
        world.holds(name, "three\n");
        world.tollgate(["turn", "show", "--turn", &turn, "--json"]).ends().is(0).json();
        world.tollgate(after(&["recovery", "list", "--json"])).ends().is(0).json();
        world.run("ledger tail --json").is(0).json();
    }
    world.run("doctor").is(0);
    world.run("ledger verify").is(0);
}

#[test]
fn what_is_not_there() {
    let world = World::new();
    insta::assert_snapshot!(world.run("read gone").filtered, @r#"
    exit 3
    --- stderr
    error: `gone` does not exist
    hint: check the path; `tollgate create` makes a new file
    "#);
    insta::assert_snapshot!(world.run("edit gone --old a --new b").filtered, @r#"
    exit 3
    --- stderr
    error: `gone` does not exist
    hint: check the path; `tollgate create` makes a new file
    "#);
    for line in ["read gone", "edit gone --old a --new b", "delete gone", "move gone there"] {
        world.run(&format!("{line} --json")).is(3).fault("NOT_FOUND");
    }
}

#[test]
fn calls_that_make_no_sense() {
    let world = World::new();
    world.puts("a", "x");
    let mut said = String::new();
    for words in [
        vec![],
        vec!["--json"],
        vec!["fly"],
        vec!["read"],
        vec!["read", "a", "--lines", "3:2", "--json"],
        vec!["read", "a", "--turn", "../../x"],
        vec!["read", "a", "--agent", "no\x1b[31m"],
        vec!["edit", "a", "--old", "x"],
        vec!["completions", "sh"],
    ] {
        let ran = world.tollgate(&words).ends().is(2);
        assert_eq!(ran.stdout(), "", "{words:?}");
        assert!(!ran.stderr().contains('\x1b'), "{words:?}: {ran}");
        said += &format!("{words:?}\n{}\n", ran.stderr().lines().next().unwrap_or_default());
    }
    insta::assert_snapshot!(said, @r#"
    []
    Many agents, one workspace, nothing lost
    ["--json"]
    error: 'tollgate' requires a subcommand but one was not provided
    ["fly"]
    error: unrecognized subcommand 'fly'
    ["read"]
    error: the following required arguments were not provided:
    ["read", "a", "--lines", "3:2", "--json"]
    error: invalid value '3:2' for '--lines <A:B>': line 2 comes before line 3; write the smaller number first
    ["read", "a", "--turn", "../../x"]
    error: invalid value '../../x' for '--turn <ID>': ../../x cannot be the name of a turn: use 1 to 64 letters, digits and `-_.@+`, not starting with a dot or a dash
    ["read", "a", "--agent", "no\u{1b}[31m"]
    error: invalid value 'no' for '--agent <NAME>': no\u{1b}[31m cannot be the name of an agent: use 1 to 64 letters, digits and `-_.@+`, not starting with a dot or a dash
    ["edit", "a", "--old", "x"]
    error: the following required arguments were not provided:
    ["completions", "sh"]
    error: invalid value 'sh' for '<SHELL>'
    "#);
    world.tollgate(["edit", "a", "--old", "", "--new", "y", "--json"]).ends().is(2).fault("INVALID");
}

#[test]
fn a_log_that_is_always_open() {
    let world = World::with("[guard]\nquiet_wait = \"20ms\"\n");
    world.puts("log", "x\n");
    let _log = fs::OpenOptions::new().append(true).open(world.path("log")).unwrap();
    for words in [
        vec!["write", "log", "--json"],
        vec!["edit", "log", "--old", "x", "--new", "y", "--json"],
        vec!["delete", "log", "--json"],
        vec!["move", "log", "log.1", "--json"],
    ] {
        world.tollgate(&words).stdin("y").ends().payload("FILE_BUSY", "RETRY_LATER");
    }
    // To try again would not help here: the file is there.
    world.tollgate(["create", "log", "--json"]).stdin("y").ends().payload("STALE_FILE", "RE_READ_REQUIRED");
    world.holds("log", "x\n");
}

#[test]
fn a_folder_that_is_gone() {
    let world = World::new();
    let script = "mkdir gone; cd gone; rmdir ../gone; tollgate read a; tollgate read a --json";
    insta::assert_snapshot!(world.script(script).ends().filtered, @r#"
    exit 3
    --- stdout
    {"error":"NOT_FOUND","message":"the current folder does not exist","hint":"go to a folder that exists, or name the workspace with `-C DIR`"}
    --- stderr
    error: the current folder does not exist
    hint: go to a folder that exists, or name the workspace with `-C DIR`
    "#);
}

#[test]
fn a_workspace_that_is_no_folder() {
    let world = World::new();
    world.puts("a", "x");
    for line in ["-C a read x", "-C a doctor", "-C a init", "-C /dev/null turn begin"] {
        let fault = world.run(&format!("{line} --json"));
        let code = fault.json();
        assert!(code["error"].is_string() || code["healthy"] == Value::Bool(false), "{line}: {code}");
    }
}

#[test]
fn bytes_that_are_no_text_on_stdin() {
    let world = World::new();
    let bytes: Vec<u8> = (0..=255).rev().collect();
    world.tollgate(["write", "raw"]).stdin(&bytes).ends().is(0);
    world.holds("raw", &bytes);
    world.tollgate(["apply", "--json"]).stdin(&bytes).ends().is(2).fault("USAGE");
    let old = OsString::from_vec(vec![0xff]);
    let words = [OsStr::new("edit"), "raw".as_ref(), "--old".as_ref(), &old, "--new".as_ref(), "x".as_ref()];
    world.tollgate(words).ends().is(2);
}
