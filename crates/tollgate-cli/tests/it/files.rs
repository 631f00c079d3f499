//! Reading and changing files from the command line, without refusals.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::world::{World, hash};

#[test]
fn every_change_is_reported() {
    let world = World::new();
    world.puts("a.md", "one\ntwo\n");
    let created = world.tollgate(["create", "docs/new.md"]).stdin("new\n").ends();
    insta::assert_snapshot!(created.filtered, @r#"
    exit 0
    --- stdout
    created `docs/new.md`, 7aa7a535
    "#);
    let written = world.tollgate(["write", "a.md"]).stdin("one\n2\n").ends();
    insta::assert_snapshot!(written.filtered, @r#"
    exit 0
    --- stdout
    wrote `a.md`, c3f9c8c2 -> b8c08389
    "#);
    let same = world.tollgate(["write", "a.md"]).stdin("one\n2\n").ends();
    insta::assert_snapshot!(same.filtered, @r#"
    exit 0
    --- stdout
    wrote `a.md`, b8c08389: the same bytes as before
    "#);
    let edited = world.tollgate(["edit", "a.md", "--old", "2", "--new", "two"]).ends();
    insta::assert_snapshot!(edited.filtered, @r#"
    exit 0
    --- stdout
    edited `a.md`, b8c08389 -> c3f9c8c2
    "#);
    insta::assert_snapshot!(world.run("move a.md docs/b.md").filtered, @r#"
    exit 0
    --- stdout
    moved `a.md` to `docs/b.md`, c3f9c8c2
    "#);
    insta::assert_snapshot!(world.run("delete docs/b.md").filtered, @r#"
    exit 0
    --- stdout
    deleted `docs/b.md`, c3f9c8c2
    hint: run `tollgate recovery restore [ID]` to restore it
    "#);
    world.holds("docs/new.md", "new\n");
    assert!(!world.path("a.md").exists() && !world.path("docs/b.md").exists());
}

#[test]
fn every_change_is_reported_in_json() {
    let world = World::new();
    world.puts("a.md", "one\n");
    let file_path = world.path("a.md").to_str().unwrap().to_owned();
    let written = world.tollgate(["write", "a.md", "--json"]).stdin("two\n").ends().is(0).json();
    assert_eq!(written["file_path"], file_path);
    assert_eq!(written["hash_before"], hash("one\n"));
    assert_eq!(written["hash_after"], hash("two\n"));
    assert!(written["change_id"].is_string() && written["guarantee"].is_string());
    let moved = world.json("move a.md b.md");
    assert_eq!(moved["moved_to"], world.path("b.md").to_str().unwrap());
    let deleted = world.json("delete b.md");
    assert_eq!(deleted["hash_after"], Value::Null);
}

#[test]
fn a_read_prints_exactly_the_bytes() {
    let world = World::new();
    let bytes: Vec<u8> = (0..=255).collect();
    world.puts("raw", &bytes);
    let ran = world.run("read raw").is(0);
    assert_eq!(ran.stdout_bytes(), bytes);
    assert_eq!(ran.stderr(), "");
    let json = world.json("read raw");
    assert_eq!(json["content"], Value::Null);
    assert_eq!(json["sha256"], hash(&bytes));
    let base64 = json["content_base64"].as_str().unwrap();
    let change = json!([{"path": "copy", "content_base64": base64}]).to_string();
    world.tollgate(["apply"]).stdin(change).ends().is(0);
    world.holds("copy", &bytes);
}

#[test]
fn a_read_in_json_has_three_keys_and_a_part_has_the_hash_of_the_whole() {
    let world = World::new();
    world.puts("a", "1\n2\n3\n");
    let whole = world.json("read a");
    assert_eq!(
        whole,
        json!({"file_path": world.path("a").to_str().unwrap(), "sha256": hash("1\n2\n3\n"), "content": "1\n2\n3\n"})
    );
    let part = world.json("read a --lines 2:2");
    assert_eq!((&part["sha256"], &part["content"]), (&whole["sha256"], &"2\n".into()));
    assert_eq!(world.run("read a --lines 2:").is(0).stdout(), "2\n3\n");
    assert_eq!(world.run("read a --lines :1").is(0).stdout(), "1\n");
    assert_eq!(world.run("read a --lines 9").is(0).stdout(), "");
}

#[test]
fn several_edits_are_one_change() {
    let world = World::new();
    world.puts("a", "one two two\r\n");
    world.tollgate(["edit", "a", "--old", "one", "--new", "-1", "--old", "-1", "--new", "--"]).ends().is(0);
    world.holds("a", "-- two two\r\n");
    world.tollgate(["edit", "a", "--all", "--old", "two", "--new", ""]).ends().is(0);
    world.holds("a", "--  \r\n");
    let unpaired = world.tollgate(["edit", "a", "--old", "x", "--old", "y", "--new", "z"]).ends();
    insta::assert_snapshot!(unpaired.filtered, @r#"
    exit 2
    --- stderr
    error: 2 old texts but 1 new text
    hint: give one `--new` for each `--old`, in the same order; `--new ''` deletes the old text
    "#);
}

#[test]
fn apply_changes_all_or_none() {
    let world = World::new();
    for (name, text) in [("a", "a\n"), ("b", "one b, one b\n"), ("c", "c\n"), ("d", "d\n")] {
        world.puts(name, text);
    }
    let changes = json!([
        {"path": "a", "content": "A\n", "expected_hash": hash("a\n")},
        {"path": "b", "edits": [{"oldText": "one", "newText": "1", "all": true}, {"oldText": "1 b,", "newText": "2"}]},
        {"path": "c", "delete": true},
        {"path": "d", "move_to": "deep/d"},
        {"path": "new/e", "content": "e\n", "expected_hash": null},
    ]);
    let ran = world.tollgate(["apply"]).stdin(changes.to_string()).ends();
    insta::assert_snapshot!(ran.filtered, @r#"
    exit 0
    --- stdout
    wrote `a`, 87428fc5 -> 06f961b8
    wrote `b`, 4903b70f -> a133788f
    deleted `c`, a3a5e715
    hint: run `tollgate recovery restore [ID]` to restore it
    moved `d` to `deep/d`, 8d74beec
    created `new/e`, a2bbdb2d
    "#);
    world.holds("b", "2 1 b\n");
    world.holds("deep/d", "d\n");
    let again = json!([
        {"path": "a", "content": "x"},
        {"path": "new/e", "content": "x", "expected_hash": "absent"},
    ]);
    let refused = world.tollgate(["apply", "--json"]).stdin(again.to_string()).ends().is(1).json();
    assert_eq!((&refused["error_type"], &refused["expected_hash"]), (&json!("STALE_FILE"), &Value::Null));
    // Null, as in a refusal or a read: the file must not exist.
    let null = r#"[{"path":"a","content":"x","expected_hash":null}]"#;
    let refused = world.tollgate(["apply", "--json"]).stdin(null).ends().is(1).json();
    assert_eq!(refused["error_type"], "STALE_FILE");
    world.holds("a", "A\n");
    let applied =
        world.tollgate(["apply", "--json"]).stdin(r#"[{"path":"a","content":"x"}]"#).ends().is(0).json();
    assert_eq!(applied["changes"][0]["hash_after"], hash("x"));
}

#[test]
fn invalid_changes_are_explained() {
    let world = World::new();
    let mut said = String::new();
    for changes in [
        "",
        "{}",
        "[]",
        r#"[{"content":"x"}]"#,
        r#"[{"path":"a"}]"#,
        r#"[{"path":"a","content":"x"},{"path":"b","content":"x","delete":true}]"#,
        r#"[{"path":"a","contents":"x"}]"#,
        r#"[{"path":"a","content":"x","expected_hash":"abc"}]"#,
        r#"[{"path":"a","content_base64":"?"}]"#,
        r#"[{"path":"a","edits":[]}]"#,
        r#"[{"path":"","content":"x"}]"#,
        r#"[{"path":"a","content":"x"},{"path":"./a","content":"y"}]"#,
        "[{\"path\":\"a\\u0000b\",\"content\":\"x\"}]",
    ] {
        let ran = world.tollgate(["apply"]).stdin(changes).ends();
        let is_fault = changes.contains("[]}") || changes.contains("u0000");
        let ran = ran.is(if is_fault { 3 } else { 2 });
        said += &format!("{}\n{}\n", format!("given {changes}").trim_end(), ran.stderr());
        assert!(!world.path("a").exists());
    }
    insta::assert_snapshot!(said, @r#"
    given
    error: standard input is not a list of changes: EOF while parsing a value at line 1 column 0
    hint: give a JSON list such as `[{"path":"a.md","content":"new"}]`; see `tollgate apply --help`

    given {}
    error: standard input is not a list of changes: invalid type: map, expected a sequence at line 1 column 0
    hint: give a JSON list such as `[{"path":"a.md","content":"new"}]`; see `tollgate apply --help`

    given []
    error: the list of changes is empty
    hint: run the command with `--help` to see how to call it

    given [{"content":"x"}]
    error: change 1 of the list has no path, or two
    hint: give exactly one of `path` and `path_base64`

    given [{"path":"a"}]
    error: change 1 of the list has no action
    hint: give exactly one of `content`, `content_base64`, `edits`, `delete` and `move_to`

    given [{"path":"a","content":"x"},{"path":"b","content":"x","delete":true}]
    error: change 2 of the list has 2 actions
    hint: give exactly one of `content`, `content_base64`, `edits`, `delete` and `move_to`

    given [{"path":"a","contents":"x"}]
    error: standard input is not a list of changes: unknown field `contents`, expected one of `path`, `path_base64`, `content`, `content_base64`, `edits`, `delete`, `move_to`, `expected_hash` at line 1 column 23
    hint: give a JSON list such as `[{"path":"a.md","content":"new"}]`; see `tollgate apply --help`

    given [{"path":"a","content":"x","expected_hash":"abc"}]
    error: standard input is not a list of changes: `abc` is not a SHA-256: 64 hex digits are expected; or give `absent` if the file must not exist at line 1 column 49
    hint: give a JSON list such as `[{"path":"a.md","content":"new"}]`; see `tollgate apply --help`

    given [{"path":"a","content_base64":"?"}]
    error: `content_base64` or `path_base64` of change 1 of the list is not base64
    hint: use the standard alphabet with padding and no line breaks, or give text as `content`

    given [{"path":"a","edits":[]}]
    error: `a` does not exist
    hint: check the path: a relative path starts at the current folder, or at `-C DIR`

    given [{"path":"","content":"x"}]
    error: the path is empty
    hint: give the path of a file

    given [{"path":"a","content":"x"},{"path":"./a","content":"y"}]
    error: `a` is named twice in one change
    hint: name each file once per call: put all edits of one file into one change, and move a file only to another path

    given [{"path":"a\u0000b","content":"x"}]
    error: cannot find `a\u{0}b`: file name contained an unexpected NUL byte
    hint: a path cannot contain a NUL character; give another path
    "#);
}

#[test]
fn paths_are_relative_to_the_current_folder_or_to_the_given_workspace() {
    let world = World::new();
    world.puts("sub/a", "below\n");
    world.puts("a", "above\n");
    world.run("init").is(0);
    let sub = world.path("sub");
    assert_eq!(world.tollgate(["read", "a"]).folder(&sub).ends().is(0).stdout(), "below\n");
    assert_eq!(world.tollgate(["read", "../a"]).folder(&sub).ends().is(0).stdout(), "above\n");
    assert_eq!(world.tollgate(["-C", "..", "read", "a"]).folder(&sub).ends().is(0).stdout(), "above\n");
    let root = world.root();
    let by_name = world.tollgate(["read", "a", "--workspace", root.to_str().unwrap()]).folder("/").ends();
    assert_eq!(by_name.is(0).stdout(), "above\n");
    let written = world.tollgate(["write", "a"]).folder(&sub).stdin("new\n").ends();
    insta::assert_snapshot!(written.filtered, @r#"
    exit 0
    --- stdout
    wrote `a`, a8835f46 -> 7aa7a535
    "#);
    assert!(!sub.join(".tollgate").exists());
    insta::assert_snapshot!(world.tollgate(["-C", "gone", "read", "a"]).ends().filtered, @r#"
    exit 3
    --- stderr
    error: cannot open the workspace `[W]/gone`: No such file or directory (os error 2)
    hint: give the path of a folder that exists; a relative path starts at the current folder
    "#);
    insta::assert_snapshot!(world.tollgate(["-C", "a", "read", "a"]).ends().filtered, @r#"
    exit 3
    --- stderr
    error: cannot open the workspace `[W]/a`: not a directory
    hint: give the path of a folder that exists; a relative path starts at the current folder
    "#);
}

#[test]
fn the_workspace_has_state_or_is_the_git_root_or_the_current_folder() {
    let world = World::bare();
    fs::create_dir_all(world.path("git/.git")).unwrap();
    fs::create_dir_all(world.path("git/sub")).unwrap();
    world.tollgate(["create", "a"]).folder(world.path("git/sub")).stdin("").ends().is(0);
    assert!(world.path("git/.tollgate").exists() && !world.path("git/sub/.tollgate").exists());
    fs::create_dir(world.path("here")).unwrap();
    world.tollgate(["create", "a"]).folder(world.path("here")).stdin("").ends().is(0);
    assert!(world.path("here/.tollgate").exists());
}

#[test]
fn commands_that_only_read_create_nothing() {
    let world = World::bare();
    for line in ["recovery list", "ledger tail", "ledger verify", "turn list", "doctor"] {
        world.run(line).is(0);
    }
    assert_eq!(fs::read_dir(world.root()).unwrap().count(), 0);
}

#[test]
fn a_large_file_is_streamed() {
    let world = World::new();
    let file = fs::File::create(world.path("large")).unwrap();
    // More memory than the process may have.
    file.set_len(400 << 20).unwrap();
    let script = "ulimit -v 300000; tollgate read large | tail -c 1 | od -An -tu1; echo ${PIPESTATUS[0]}";
    insta::assert_snapshot!(world.script(script).ends().filtered, @r#"
    exit 0
    --- stdout
       0
    0
    "#);
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let world = World::new();
    world.puts("large", "line\n".repeat(1 << 20));
    world.tollgate(["write", "a"]).stdin("x").ends().is(0);
    let script = "
        tollgate read large | head -c 1 > /dev/null; echo ${PIPESTATUS[0]}
        tollgate completions bash | head -c 1 > /dev/null; echo ${PIPESTATUS[0]}
        tollgate ledger tail --json | true; echo ${PIPESTATUS[0]}
        tollgate recovery list | true; echo ${PIPESTATUS[0]}
    ";
    insta::assert_snapshot!(world.script(script).ends().filtered, @r#"
    exit 0
    --- stdout
    0
    0
    0
    0
    "#);
}

#[test]
fn a_full_stdout_is_reported() {
    let world = World::new();
    world.puts("a", "x");
    let ran = world.script("tollgate read a > /dev/full; tollgate read a --json > /dev/full").ends();
    insta::assert_snapshot!(ran.filtered, @r#"
    exit 3
    --- stderr
    error: cannot write to standard output: No space left on device (os error 28)
    hint: redirect the output to a disk with free space; the command itself has run, as `tollgate ledger tail` shows
    error: cannot write to standard output: No space left on device (os error 28)
    hint: redirect the output to a disk with free space; the command itself has run, as `tollgate ledger tail` shows
    "#);
}

#[test]
fn control_characters_in_a_name_never_reach_the_terminal() {
    let world = World::new();
    let name = "red\x1b[31m\u{202e}txt\nnew\u{9b}line";
    let created = world.tollgate(["create", name]).stdin("x").ends();
    insta::assert_snapshot!(created.filtered, @r#"
    exit 0
    --- stdout
    created `red\u{1b}[31m\u{202e}txt\nnew\u{9b}line`, 2d711642
    "#);
    let refused = world.tollgate(["create", name]).stdin("x").ends();
    insta::assert_snapshot!(refused.filtered, @r#"
    exit 1
    --- stdout
    {"error_type":"STALE_FILE","message":"Target already exists. Re-read required.","details":{"path":"[W]/red\u001b[31m\u202etxt\nnew\u009bline","baseline_hash":null,"current_disk_hash":"[HASH]"},"recovery_hint":"Perform a new 'read_file' to see the latest changes before attempting to write again."}
    --- stderr
    refused: `red\u{1b}[31m\u{202e}txt\nnew\u{9b}line` already exists
      on disk       2d711642, written by `ada` [N] s ago
    hint: read `red\u{1b}[31m\u{202e}txt\nnew\u{9b}line`, then change what you find or choose another path
    "#);
    let tail = world.run("ledger tail -n 1");
    let kept = world.tollgate(["delete", name]).ends();
    let listed = world.run("recovery list");
    let json = world.tollgate(["create", name, "--json"]).stdin("x").ends();
    for ran in [&created, &refused, &tail, &kept, &listed, &json] {
        let said = ran.stdout() + &ran.stderr();
        assert!(!said.contains(['\x1b', '\u{202e}', '\u{9b}']), "{said:?}");
    }
    assert_eq!(json.json()["file_path"], world.path(name).to_str().unwrap());
}

#[test]
fn a_write_keeps_the_permissions() {
    let world = World::new();
    world.puts("run.sh", "#!/bin/sh\n");
    fs::set_permissions(world.path("run.sh"), fs::Permissions::from_mode(0o751)).unwrap();
    world.tollgate(["write", "run.sh"]).stdin("#!/bin/sh\necho\n").ends().is(0);
    assert_eq!(fs::metadata(world.path("run.sh")).unwrap().permissions().mode() & 0o777, 0o751);
}

#[test]
fn ten_thousand_changes_are_applied_with_256_descriptors() {
    let world = World::with("[guard]\ndurability = \"fast\"\n");
    let path = |number: usize| format!("d{}/f{number}", number % 500);
    let change = |number: usize| match number % 3 {
        0 => json!({"path": path(number), "content": "new"}),
        1 => json!({"path": format!("new/{number}/f"), "content": "new"}),
        _ => json!({"path": path(number), "delete": true}),
    };
    for number in (0..10_000).filter(|number| number % 3 != 1) {
        world.puts(path(number), "old");
    }
    world.puts("changes.json", Value::Array((0..10_000).map(change).collect()).to_string());
    world.script("ulimit -n 256; tollgate apply < changes.json > /dev/null").ends().is(0);
    for number in 0..10_000 {
        match number % 3 {
            0 => world.holds(path(number), "new"),
            1 => world.holds(format!("new/{number}/f"), "new"),
            _ => assert!(!world.path(path(number)).exists()),
        }
    }
}

#[test]
fn a_huge_file_is_not_read_into_memory_for_json() {
    let world = World::new();
    let file = fs::File::create(world.path("big")).unwrap();
    file.set_len((256 << 20) + 1).unwrap();
    let fault = world.run("read big --json").is(2).fault("USAGE");
    assert!(fault["hint"].as_str().unwrap().contains("--lines"), "{fault}");
}
