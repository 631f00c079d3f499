//! Any input gets a clear answer: no hang, no panic, and nothing changes.

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

/// Runs each command as text and in JSON, and expects one of these exit codes.
#[track_caller]
fn answers(world: &World, path: impl AsRef<OsStr>, codes: &[i32]) {
    answers_to(world, commands(path.as_ref()), codes);
}

/// The same for a link, which is followed: `delete` and `move` act on the link itself.
#[track_caller]
fn answers_through(world: &World, link: &str, codes: &[i32]) {
    let mut commands = commands(OsStr::new(link));
    let on_link = commands.split_off(4);
    answers_to(world, commands, codes);
    answers_to(world, vec![on_link[1].clone()], &[1]);
    world.tollgate(&on_link[0]).ends().is(0);
    assert!(!world.path(link).is_symlink());
}

#[track_caller]
fn answers_to(world: &World, commands: Vec<Vec<OsString>>, codes: &[i32]) {
    for command in commands {
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
fn paths_that_leave_the_workspace() {
    let world = World::new();
    fs::write(world.tmp().join("secret"), "s").unwrap();
    symlink("..", world.path("up")).unwrap();
    symlink(world.tmp().join("secret"), world.path("link")).unwrap();
    symlink("/dev/null", world.path("null")).unwrap();
    for path in ["../secret", "up/secret", "/", "..", "x/../../secret"] {
        answers(&world, path, &[1]);
    }
    for link in ["link", "null"] {
        answers_through(&world, link, &[1]);
    }
    assert_eq!(fs::read(world.tmp().join("secret")).unwrap(), b"s");
}

#[test]
fn folders_pipes_sockets_and_devices() {
    let world = World::new();
    fs::create_dir(world.path("folder")).unwrap();
    mknodat(CWD, world.path("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(world.path("socket")).unwrap();
    // Moving a file onto a folder is a usage error, hence 2.
    for path in ["folder", "fifo", "socket"] {
        answers(&world, path, &[1, 2]);
    }
    // Only root can create a device.
    let device = rustix::fs::makedev(1, 3);
    if mknodat(CWD, world.path("device"), FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, device).is_ok()
    {
        answers(&world, "device", &[1, 2]);
    }
}

#[test]
fn paths_that_cannot_exist() {
    let world = World::new();
    symlink("loop", world.path("loop")).unwrap();
    world.puts("file", "x");
    let long_name = "n".repeat(256);
    let long_path = "p/".repeat(2048);
    for path in ["loop/x", "file/below", &long_name, &long_path] {
        answers(&world, path, &[3]);
    }
    for command in commands(OsStr::new("")) {
        world.tollgate(command).stdin("x").ends().is(2);
    }
    for (path, word) in
        [("loop", "form a loop"), ("file/below", "is a file, not a folder"), (&long_name, "shorter")]
    {
        let said = world.tollgate(["read", path]).ends().stderr();
        assert!(said.contains(word), "{said}");
    }
    answers_through(&world, "loop", &[3]);
    let few = world.script("ulimit -n 4; tollgate read file").ends().is(3).stderr();
    assert!(few.contains("ulimit -n"), "{few}");
    let said = world.tollgate(["read", &long_path]).ends().stderr();
    assert!(said.len() < 1000, "{said}");
}

#[test]
fn unusual_names_work() {
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
fn a_missing_file() {
    let world = World::new();
    insta::assert_snapshot!(world.run("read gone").filtered, @r#"
    exit 3
    --- stderr
    error: `gone` does not exist
    hint: check the path: a relative path starts at the current folder, or at `-C DIR`
    "#);
    insta::assert_snapshot!(world.run("edit gone --old a --new b").filtered, @r#"
    exit 3
    --- stderr
    error: `gone` does not exist
    hint: check the path: a relative path starts at the current folder, or at `-C DIR`
    "#);
    for line in ["read gone", "edit gone --old a --new b", "delete gone", "move gone there"] {
        let fault = world.run(&format!("{line} --json")).is(3).fault("NOT_FOUND");
        assert!(!fault["hint"].as_str().unwrap().contains("create"), "{fault}");
    }
}

#[test]
fn a_file_cannot_be_moved_onto_itself() {
    let world = World::new();
    world.puts("a", "x");
    insta::assert_snapshot!(world.run("move a a").filtered, @r#"
    exit 2
    --- stderr
    error: `a` cannot be moved onto itself
    hint: give another path as the target
    "#);
    insta::assert_snapshot!(world.run("move a ./x/../a").filtered, @r#"
    exit 2
    --- stderr
    error: `a` is named twice in one change
    hint: name each file once per call: put all edits of one file into one change, and move a file only to another path
    "#);
    world.run("move a a --json").is(2).fault("INVALID");
    world.holds("a", "x");
}

#[test]
fn usage_errors() {
    let world = World::new();
    world.puts("a", "x");
    let mut said = String::new();
    for words in [
        vec![],
        vec!["--json"],
        vec!["fly"],
        vec!["reed", "--json"],
        vec!["read"],
        vec!["read", "--json"],
        vec!["read", "a", "--lines", "3:2", "--json"],
        vec!["read", "a", "--turn", "../../x"],
        vec!["read", "a", "--agent", "no\x1b[31m"],
        vec!["edit", "a", "--old", "x"],
        vec!["completions", "sh"],
    ] {
        let ran = world.tollgate(&words).ends().is(2);
        let text = if words.contains(&"--json") {
            ran.json();
            ran.stdout()
        } else {
            assert_eq!(ran.stdout(), "", "{words:?}");
            ran.stderr()
        };
        assert!(!text.contains('\x1b'), "{words:?}: {ran}");
        said += &format!("{words:?}\n{}\n", text.lines().next().unwrap_or_default());
    }
    insta::assert_snapshot!(said, @r#"
    []
    Many agents, one workspace, nothing lost
    ["--json"]
    {"error":"USAGE","message":"'tollgate' requires a subcommand but one was not provided [subcommands: init, status, turn, read, write, edit, create, delete, move, apply, commit, merge, run, task, work, sync, vault, mcp, serve, token, history, show, blame, bisect, diff, undo, restore, recovery, ledger, export, hook, doctor, trust, man, completions, help]","hint":"run the command with `--help` to see how to call it"}
    ["fly"]
    error: unrecognized subcommand 'fly'
    ["reed", "--json"]
    {"error":"USAGE","message":"unrecognized subcommand 'reed'","hint":"some similar subcommands exist: 'recovery', 'read'"}
    ["read"]
    error: the following required arguments were not provided:
    ["read", "--json"]
    {"error":"USAGE","message":"the following required arguments were not provided: <PATH>","hint":"run the command with `--help` to see how to call it"}
    ["read", "a", "--lines", "3:2", "--json"]
    {"error":"USAGE","message":"invalid value '3:2' for '--lines <A:B>': line 2 comes before line 3; give the smaller number first","hint":"run the command with `--help` to see how to call it"}
    ["read", "a", "--turn", "../../x"]
    error: invalid value '../../x' for '--turn <ID>': `../../x` is not a valid turn id: use 1 to 64 letters, digits and `-_.@+`, not starting with a dot or a dash
    ["read", "a", "--agent", "no\u{1b}[31m"]
    error: invalid value 'no' for '--agent <NAME>': `no\u{1b}[31m` is not a valid agent name: use 1 to 64 letters, digits and `-_.@+`, not starting with a dot or a dash
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
    // Trying again would not help here, because the file exists.
    world.tollgate(["create", "log", "--json"]).stdin("y").ends().payload("STALE_FILE", "RE_READ_REQUIRED");
    world.holds("log", "x\n");
}

#[test]
fn a_current_folder_that_was_deleted() {
    let world = World::new();
    let script = "mkdir gone; cd gone; rmdir ../gone; tollgate read a; tollgate read a --json";
    insta::assert_snapshot!(world.script(script).ends().filtered, @r#"
    exit 3
    --- stdout
    {"error":"NOT_FOUND","message":"the current folder does not exist","hint":"go to a folder that exists, or give the workspace with `-C DIR`"}
    --- stderr
    error: the current folder does not exist
    hint: go to a folder that exists, or give the workspace with `-C DIR`
    "#);
}

#[test]
fn a_workspace_that_is_not_a_folder() {
    let world = World::new();
    world.puts("a", "x");
    for line in ["-C a read x", "-C a doctor", "-C a init", "-C /dev/null turn begin"] {
        let fault = world.run(&format!("{line} --json"));
        let code = fault.json();
        assert!(code["error"].is_string() || code["healthy"] == Value::Bool(false), "{line}: {code}");
    }
}

#[test]
fn binary_bytes_on_stdin() {
    let world = World::new();
    let bytes: Vec<u8> = (0..=255).rev().collect();
    world.tollgate(["write", "raw"]).stdin(&bytes).ends().is(0);
    world.holds("raw", &bytes);
    world.tollgate(["apply", "--json"]).stdin(&bytes).ends().is(2).fault("USAGE");
    let old = OsString::from_vec(vec![0xff]);
    let words = [OsStr::new("edit"), "raw".as_ref(), "--old".as_ref(), &old, "--new".as_ref(), "x".as_ref()];
    world.tollgate(words).ends().is(2);
}
