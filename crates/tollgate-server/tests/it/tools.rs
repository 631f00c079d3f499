//! Every tool, with valid and with wrong arguments.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};

use crate::world::{Client, TOOLS, World, sha256};

#[test]
fn reading_gives_text_and_the_hash_of_the_whole_file() {
    let world = World::new();
    world.outsider_writes("a.txt", "one\ntwo\nthree\n");
    let mut client = world.client();
    let whole = sha256("one\ntwo\nthree\n");
    for tool in ["read_file", "read_text_file"] {
        for (arguments, text) in [
            (json!({"path": "a.txt"}), "one\ntwo\nthree\n"),
            (json!({"path": world.path("a.txt")}), "one\ntwo\nthree\n"),
            (json!({"path": "a.txt", "head": 2}), "one\ntwo"),
            (json!({"path": "a.txt", "head": 2.0}), "one\ntwo"),
            (json!({"path": "a.txt", "tail": 1}), "three\n"),
            (json!({"path": "a.txt", "head": 0}), "one\ntwo\nthree\n"),
            (json!({"path": "a.txt", "head": null, "tail": null}), "one\ntwo\nthree\n"),
        ] {
            let result = client.call(tool, arguments.clone());
            assert_eq!(result["content"], json!([{"type": "text", "text": text}]), "{arguments}");
            assert_eq!(result["structuredContent"], json!({"content": text}));
            assert_eq!(result["_meta"], json!({"sha256": whole}));
            assert!(result.get("isError").is_none());
        }
    }
    for arguments in [
        json!({}),
        json!({"path": 5}),
        json!({"path": "a.txt", "head": 1, "tail": 1}),
        json!({"path": "a.txt", "head": -1}),
        json!({"path": "a.txt", "tail": 1.5}),
        json!({"path": "a.txt", "turn_id": 7}),
        json!({"path": "missing"}),
        json!({"path": "nul\0"}),
        json!({"path": "x".repeat(5000)}),
        json!({"path": "C:\\Users\\a.txt"}),
    ] {
        client.fails("read_text_file", arguments);
    }
}

#[test]
fn a_tilde_stands_for_the_home_directory_that_the_server_was_given() {
    let world = World::new();
    world.outsider_writes("home/a", "at home");
    world.outsider_writes("~/a", "in a folder with this name");
    for (home, text) in [(Some(world.root().join("home")), "at home"), (None, "in a folder with this name")] {
        let mut client = Client::of(world.at_home_in(home.as_deref()));
        let result = client.call("read_text_file", json!({"path": "~/a"}));
        assert_eq!(result["structuredContent"], json!({"content": text}));
    }
}

#[test]
fn several_files_are_read_in_one_call() {
    let world = World::new();
    world.outsider_writes("a", "one");
    world.outsider_writes("b", "two");
    let mut client = world.client();
    let result = client.call("read_multiple_files", json!({"paths": ["a", "gone", "b", "../x"]}));
    let text = result["structuredContent"]["content"].as_str().unwrap();
    let parts: Vec<&str> = text.split("\n---\n").collect();
    assert_eq!((parts[0], parts[2]), ("a:\none\n", "b:\ntwo\n"));
    assert!(parts[1].starts_with("gone: Error - "), "{text}");
    assert_eq!(parts[3], "../x: Error - The path leads out of the workspace.");
    let hashes = &result["_meta"]["sha256"];
    assert_eq!(*hashes, json!({"a": sha256("one"), "gone": null, "b": sha256("two"), "../x": null}));
    client.fails("read_multiple_files", json!({"paths": []}));
    // Each file counts as read.
    world.outsider_writes("b", "foreign");
    client.refused("write_file", json!({"path": "b", "content": "x"}), "STALE_FILE");
}

#[test]
fn media_and_bytes_are_returned_as_base64() {
    let world = World::new();
    let bytes: Vec<u8> = (0..=255).collect();
    for name in ["p.PNG", "s.mp3", "x y#.bin"] {
        world.outsider_writes(name, &bytes);
    }
    let mut client = world.client();
    let mut item = |name: &str| -> Value {
        let result = client.call("read_media_file", json!({"path": name}));
        assert_eq!(result["content"], result["structuredContent"]["content"]);
        assert_eq!(result["_meta"]["sha256"], sha256(&bytes));
        result["content"][0].clone()
    };
    let png = item("p.PNG");
    assert_eq!((png["type"].as_str(), png["mimeType"].as_str()), (Some("image"), Some("image/png")));
    assert!(png["data"].as_str().unwrap().starts_with("AAECAwQF"));
    let mp3 = item("s.mp3");
    assert_eq!((mp3["type"].as_str(), mp3["mimeType"].as_str()), (Some("audio"), Some("audio/mpeg")));
    let bin = item("x y#.bin");
    assert_eq!(bin["type"], "resource");
    assert_eq!(bin["resource"]["mimeType"], "application/octet-stream");
    assert_eq!(bin["resource"]["blob"], png["data"]);
    assert_eq!(bin["resource"]["uri"], format!("file://{}/x%20y%23.bin", world.root().display()));
}

#[test]
fn writing_creates_and_replaces_files() {
    let world = World::new();
    let mut client = world.client();
    assert_eq!(
        client.done("write_file", json!({"path": "new/a.txt", "content": "one"})),
        "Successfully wrote to new/a.txt"
    );
    world.holds("new/a.txt", "one");
    let result = client.call("write_file", json!({"path": "new/a.txt", "content": "zwölf\r\n"}));
    assert_eq!(result["_meta"]["sha256"], sha256("zwölf\r\n"));
    world.holds("new/a.txt", "zwölf\r\n");
    let lines = world.ledger("MUTATION");
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|line| line["agent"] == "blue"));
    for arguments in [json!({"path": "a"}), json!({"content": "a"}), json!({"path": "a", "content": 1})] {
        client.fails("write_file", arguments);
    }
    let wrong = client.fails("write_file", json!({"path": "a", "content": "a", "expected_hash": "abc"}));
    assert!(wrong.contains("64 hex digits"), "{wrong}");
}

#[test]
fn editing_returns_a_diff() {
    let world = World::new();
    world.outsider_writes("a.rs", "fn a() {\n    one();\n}\n");
    let mut client = world.client();
    let edit = json!({"path": "a.rs", "edits": [{"oldText": "one();", "newText": "two();"}]});
    let mut dry = edit.clone();
    dry["dryRun"] = json!(true);
    let shown = client.done("edit_file", dry);
    world.holds("a.rs", "fn a() {\n    one();\n}\n");
    assert!(shown.starts_with("```diff\nIndex: "), "{shown}");
    assert!(shown.contains("@@ -1,3 +1,3 @@\n fn a() {\n-    one();\n+    two();\n }\n```\n"), "{shown}");
    assert_eq!(client.done("edit_file", edit), shown);
    world.holds("a.rs", "fn a() {\n    two();\n}\n");
    // Old text with different white space.
    let edits = json!([{"oldText": "fn a() {\n  two();", "newText": "fn b() {\n  three();"}]);
    client.done("edit_file", json!({"path": "a.rs", "edits": edits}));
    assert_eq!(world.bytes("a.rs"), b"fn b() {\n    three();\n}\n");
    client.fails("edit_file", json!({"path": "a.rs", "edits": []}));
    client.fails("edit_file", json!({"path": "a.rs", "edits": [{"oldText": "", "newText": "x"}]}));
    client.fails("edit_file", json!({"path": "gone", "edits": [{"oldText": "a", "newText": "x"}]}));
}

#[test]
fn bytes_that_are_not_text_survive() {
    let world = World::new();
    let mut client = world.client();
    // Windows line ends and a byte order mark.
    world.outsider_writes("crlf.txt", "\u{feff}one\r\ntwo\r\n");
    client.done("read_text_file", json!({"path": "crlf.txt"}));
    let edits = json!([{"oldText": "one\ntwo", "newText": "1\n2"}]);
    client.done("edit_file", json!({"path": "crlf.txt", "edits": edits}));
    world.holds("crlf.txt", "\u{feff}1\r\n2\r\n");
    // Bytes that are not UTF-8 are shown as U+FFFD, and an edit keeps them.
    world.outsider_writes("latin1.txt", b"caf\xe9 one\n");
    let result = client.call("read_text_file", json!({"path": "latin1.txt"}));
    assert_eq!(result["structuredContent"]["content"], "caf\u{fffd} one\n");
    assert_eq!(result["_meta"], json!({"sha256": sha256(b"caf\xe9 one\n"), "lossy": true}));
    let words = client.fails("write_file", json!({"path": "latin1.txt", "content": "caf\u{fffd} two\n"}));
    assert!(words.contains("hint: use edit_file"), "{words}");
    let changes = json!([{"path": "latin1.txt", "content": "\u{fffd}"}]);
    client.fails("write_files", json!({ "changes": changes }));
    client.done("edit_file", json!({"path": "latin1.txt", "edits": [{"oldText": "one", "newText": "two"}]}));
    assert_eq!(world.bytes("latin1.txt"), b"caf\xe9 two\n");
    // Replacing the whole file on purpose is allowed.
    client.done("write_file", json!({"path": "latin1.txt", "content": "café"}));
    world.holds("latin1.txt", "café");
    client.done("write_file", json!({"path": "u.txt", "content": "\u{fffd}\0"}));
    world.holds("u.txt", "\u{fffd}\0");
}

#[test]
fn a_part_of_a_large_file_is_read_and_all_of_it_is_hashed() {
    let world = World::new();
    let large: String = (0..2_000_000).map(|line| format!("line {line}\n")).collect();
    assert!(large.len() > 20 << 20);
    world.outsider_writes("large", &large);
    let mut client = world.client();
    for (part, text) in [("head", "line 0\nline 1"), ("tail", "line 1999998\nline 1999999\n")] {
        let result = client.call("read_text_file", json!({"path": "large", part: 2}));
        assert_eq!(result["structuredContent"]["content"], text);
        assert_eq!(result["_meta"]["sha256"], sha256(&large));
    }
    client.done("write_file", json!({"path": "copy", "content": large}));
    assert_eq!(world.bytes("copy").len(), large.len());
}

#[test]
fn a_file_that_is_too_large_for_one_answer_is_not_read() {
    let world = World::new();
    let file = fs::File::create(world.root().join("huge")).unwrap();
    file.set_len(300 << 20).unwrap();
    let mut client = world.client();
    for (tool, arguments) in
        [("read_text_file", json!({"path": "huge"})), ("read_media_file", json!({"path": "huge"}))]
    {
        let words = client.fails(tool, arguments);
        assert!(words.contains("16 MiB") && words.contains("`head` or `tail`"), "{words}");
    }
    let words = client.done("read_multiple_files", json!({"paths": ["huge"]}));
    assert!(words.contains("huge: Error - ") && words.contains("16 MiB"), "{words}");
}

#[test]
fn folders_are_created_and_listed() {
    let world = World::new();
    let mut client = world.client();
    assert_eq!(client.done("create_directory", json!({"path": "d/e"})), "Successfully created directory d/e");
    client.done("create_directory", json!({"path": "d/e"}));
    client.done("create_directory", json!({"path": "."}));
    world.outsider_writes("d/B.txt", "x".repeat(1536));
    world.outsider_writes("d/a.txt", "");
    symlink("a.txt", world.root().join("d/link")).unwrap();
    client.fails("create_directory", json!({"path": "d/a.txt"}));
    assert_eq!(
        client.done("list_directory", json!({"path": "d"})),
        "[FILE] B.txt\n[FILE] a.txt\n[DIR] e\n[FILE] link"
    );
    assert_eq!(client.done("list_directory", json!({"path": "."})), "[DIR] d", "the state is not shown");
    assert_eq!(client.done("list_directory", json!({"path": "d/e"})), "");
    let sizes = client.done("list_directory_with_sizes", json!({"path": "d"}));
    let lines: Vec<&str> = sizes.lines().collect();
    assert_eq!(lines[0], format!("[FILE] {:<30} {:>10}", "a.txt", "0 B"));
    assert_eq!(lines[1], format!("[FILE] {:<30} {:>10}", "B.txt", "1.50 KB"));
    assert_eq!(lines[2], format!("[DIR] {:<30} ", "e"));
    assert_eq!(&lines[4..], ["", "Total: 3 files, 1 directories", "Combined size: 1.50 KB"]);
    let sizes = client.done("list_directory_with_sizes", json!({"path": "d", "sortBy": "size"}));
    assert!(sizes.starts_with("[DIR] e") || sizes.starts_with("[FILE] B.txt"), "{sizes}");
    client.fails("list_directory_with_sizes", json!({"path": "d", "sortBy": "colour"}));
    client.fails("list_directory", json!({"path": "d/a.txt"}));
    client.fails("list_directory", json!({"path": "gone"}));
}

#[test]
fn trees_and_searches() {
    let world = World::new();
    for path in ["src/main.rs", "src/lib.rs", "src/deep/x.rs", "target/out.rs", "top.rs", ".hidden"] {
        world.outsider_writes(path, "");
    }
    fs::create_dir(world.root().join("empty")).unwrap();
    let mut client = world.client();
    let tree: Value = serde_json::from_str(&client.done("directory_tree", json!({"path": "."}))).unwrap();
    assert_eq!(
        tree,
        json!([
            {"name": ".hidden", "type": "file"},
            {"name": "empty", "type": "directory", "children": []},
            {"name": "src", "type": "directory", "children": [
                {"name": "deep", "type": "directory", "children": [{"name": "x.rs", "type": "file"}]},
                {"name": "lib.rs", "type": "file"},
                {"name": "main.rs", "type": "file"},
            ]},
            {"name": "target", "type": "directory", "children": [{"name": "out.rs", "type": "file"}]},
            {"name": "top.rs", "type": "file"},
        ])
    );
    let text = client.done("directory_tree", json!({"path": "src", "excludePatterns": ["deep", "m*.rs"]}));
    assert_eq!(text, "[\n  {\n    \"name\": \"lib.rs\",\n    \"type\": \"file\"\n  }\n]");
    let mut search = |pattern: &str, exclude: &[&str]| -> Vec<String> {
        let arguments = json!({"path": ".", "pattern": pattern, "excludePatterns": exclude});
        let found = client.done("search_files", arguments);
        let root = format!("{}/", world.root().display());
        found.lines().map(|line| line.strip_prefix(&root).unwrap_or(line).to_owned()).collect()
    };
    assert_eq!(search("*.rs", &[]), ["top.rs"]);
    assert_eq!(search("**/*.rs", &["target"]), ["src/deep/x.rs", "src/lib.rs", "src/main.rs", "top.rs"]);
    assert_eq!(search("**/*.rs", &["target/**", "src/**"]), ["top.rs"]);
    assert_eq!(search("**/deep", &[]), ["src/deep"]);
    assert_eq!(search("nothing", &[]), ["No matches found"]);
    assert_eq!(search("**/config.toml", &[]), ["No matches found"], "the state is not searched");
}

#[test]
fn patterns_that_are_too_complex_are_refused_at_once() {
    let world = World::new();
    world.outsider_writes("a", "");
    let mut client = world.client();
    for pattern in ["x".repeat(100 << 10), "{a,b}".repeat(100)] {
        for (tool, arguments) in [
            ("search_files", json!({"path": ".", "pattern": pattern})),
            ("search_files", json!({"path": ".", "pattern": "*", "excludePatterns": [pattern]})),
            ("directory_tree", json!({"path": ".", "excludePatterns": [pattern]})),
        ] {
            let words = client.fails(tool, arguments);
            assert!(words.contains("the glob pattern is too long"), "{words}");
        }
    }
}

#[test]
fn links_do_not_lead_out_of_the_workspace() {
    let world = World::new();
    let secret = world.outside().join("secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("key"), "s3cret").unwrap();
    symlink(&secret, world.root().join("out")).unwrap();
    symlink(secret.join("key"), world.root().join("key")).unwrap();
    symlink("/dev/null/x", world.root().join("dangling")).unwrap();
    world.outsider_writes("in/a", "x");
    symlink("in", world.root().join("inner")).unwrap();
    let mut client = world.client();
    for path in ["out/key", "key", "../secret/key", "/etc/hostname", "in/../../secret/key"] {
        for (tool, arguments) in [
            ("read_text_file", json!({"path": path})),
            ("read_media_file", json!({"path": path})),
            ("get_file_info", json!({"path": path})),
            ("file_history", json!({"path": path})),
            ("blame", json!({"path": path})),
            ("list_directory", json!({"path": path})),
            ("list_directory_with_sizes", json!({"path": path})),
            ("directory_tree", json!({"path": path})),
            ("search_files", json!({"path": path, "pattern": "*"})),
            ("write_file", json!({"path": path, "content": "x"})),
            ("edit_file", json!({"path": path, "edits": [{"oldText": "s", "newText": "x"}]})),
            ("edit_file", json!({"path": path, "edits": [{"oldText": "s", "newText": "x"}], "dryRun": true})),
            ("delete_file", json!({"path": path})),
            ("create_directory", json!({"path": path})),
            ("move_file", json!({"source": path, "destination": "here"})),
            ("move_file", json!({"source": "in/a", "destination": path})),
            ("move_file", json!({"source": "in", "destination": path})),
            ("write_files", json!({"changes": [{"path": path, "content": "x"}]})),
        ] {
            // These act on the link `key` itself, which is inside.
            let on_link = path == "key"
                && (tool == "delete_file" || arguments["source"] == "key" || arguments["source"] == "in/a");
            if !on_link {
                client.refused(tool, arguments, "OUTSIDE_WORKSPACE");
            }
        }
    }
    client.refused("move_file", json!({"source": "in/a", "destination": "key"}), "STALE_FILE");
    client.done("move_file", json!({"source": "key", "destination": "here"}));
    client.done("delete_file", json!({"path": "here"}));
    symlink(secret.join("key"), world.root().join("key")).unwrap();
    client.refused("list_directory", json!({"path": "out"}), "OUTSIDE_WORKSPACE");
    assert_eq!(fs::read_to_string(secret.join("key")).unwrap(), "s3cret");
    let found = client.done("search_files", json!({"path": ".", "pattern": "**/*"}));
    assert!(!found.contains("key") && !found.contains("out") && !found.contains("dangling"), "{found}");
    assert!(found.contains("/inner") && !found.contains("inner/a"), "{found}");
    let sizes = client.done("list_directory_with_sizes", json!({"path": "."}));
    assert!(sizes.contains(&format!("[FILE] {:<30} {:>10}", "key", "0 B")), "{sizes}");
    // A link inside the workspace is followed.
    assert_eq!(client.done("read_text_file", json!({"path": "inner/a"})), "x");
    assert_eq!(client.done("list_directory", json!({"path": "inner"})), "[FILE] a");
}

#[test]
fn the_state_cannot_be_changed() {
    let world = World::new();
    let mut client = world.client();
    for (tool, arguments) in [
        ("write_file", json!({"path": ".tollgate/ledger.jsonl", "content": ""})),
        ("delete_file", json!({"path": ".tollgate/version"})),
        ("move_file", json!({"source": ".tollgate", "destination": "t"})),
        ("move_file", json!({"source": ".tollgate/stage", "destination": "t"})),
        ("create_directory", json!({"path": ".tollgate/x"})),
        ("move_file", json!({"source": ".", "destination": "t"})),
    ] {
        client.refused(tool, arguments, "PROTECTED_PATH");
    }
}

#[test]
fn files_and_folders_are_moved_together_with_what_was_read() {
    let world = World::new();
    world.outsider_writes("a", "one");
    world.outsider_writes("d/b", "two");
    world.outsider_writes("d/sub/c", "three");
    let mut client = world.client();
    let text = client.done("move_file", json!({"source": "a", "destination": "new/a2"}));
    assert_eq!(text, "Successfully moved a to new/a2");
    world.holds("new/a2", "one");
    client.done("read_text_file", json!({"path": "d/sub/c"}));
    client.done("move_file", json!({"source": "d", "destination": "e/f"}));
    assert!(!world.root().join("d").exists());
    world.holds("e/f/b", "two");
    let initial = client.call("get_initial_hash", json!({"file_path": "e/f/sub/c"}));
    assert_eq!(initial["structuredContent"]["initial_hash"], sha256("three"));
    world.outsider_writes("e/f/sub/c", "foreign");
    client.refused("write_file", json!({"path": "e/f/sub/c", "content": "x"}), "STALE_FILE");
    // A move never overwrites a file.
    client.refused("move_file", json!({"source": "new/a2", "destination": "e/f/b"}), "STALE_FILE");
    client.refused("move_file", json!({"source": "new/a2", "destination": "e/f"}), "NOT_A_FILE");
    client.fails("move_file", json!({"source": "new", "destination": "e/f"}));
    client.fails("move_file", json!({"source": "e", "destination": "e/f/g"}));
    client.fails("move_file", json!({"source": "gone", "destination": "x"}));
    world.holds("e/f/b", "two");
    let moved: Vec<_> =
        world.ledger("MUTATION").into_iter().filter(|line| line["payload"]["folder"] == true).collect();
    assert_eq!(moved.len(), 1);
    assert_eq!(
        (&moved[0]["payload"]["target_file"], &moved[0]["payload"]["moved_to"]),
        (&json!("d"), &json!("e/f"))
    );
}

#[test]
fn deleting_removes_a_file() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let mut client = world.client();
    assert_eq!(client.done("delete_file", json!({"path": "a"})), "Successfully deleted a");
    assert!(!world.root().join("a").exists());
    client.refused("delete_file", json!({"path": "."}), "NOT_A_FILE");
    client.fails("delete_file", json!({"path": "gone"}));
}

#[test]
fn several_files_change_atomically() {
    let world = World::new();
    world.outsider_writes("a", "one");
    world.outsider_writes("b", "two three");
    world.outsider_writes("c", "gone soon");
    let mut client = world.client();
    let changes = json!([
        {"path": "a", "content": "ONE", "expected_hash": sha256("one")},
        {"path": "b", "edits": [{"oldText": "two", "newText": "2"}, {"oldText": "three", "newText": "3"}]},
        {"path": "c", "delete": true},
        {"path": "d/e", "content": "new", "delete": false},
    ]);
    let result = client.call("write_files", json!({ "changes": changes }));
    assert_eq!(result["structuredContent"]["content"], "Successfully changed 4 files");
    assert_eq!(
        result["_meta"]["sha256"],
        json!({"a": sha256("ONE"), "b": sha256("2 3"), "c": null, "d/e": sha256("new")})
    );
    world.holds("a", "ONE");
    world.holds("b", "2 3");
    world.holds("d/e", "new");
    assert!(!world.root().join("c").exists());
    for changes in [
        json!([]),
        json!([{"path": "a"}]),
        json!([{"path": "a", "content": "x", "delete": true}]),
        json!([{"path": "a", "content": "x"}, {"path": "./a", "content": "y"}]),
        json!({"path": "a"}),
        json!([{"content": "x"}]),
    ] {
        client.fails("write_files", json!({ "changes": changes }));
    }
}

#[test]
fn info_shows_size_times_and_mode() {
    let world = World::new();
    world.outsider_writes("a", "12345");
    fs::set_permissions(world.root().join("a"), fs::Permissions::from_mode(0o640)).unwrap();
    let mut client = world.client();
    let info = client.done("get_file_info", json!({"path": "a"}));
    let fields: Vec<(&str, &str)> = info.lines().map(|line| line.split_once(": ").unwrap()).collect();
    assert_eq!(fields[0], ("size", "5"));
    for (at, name) in [(1, "created"), (2, "modified"), (3, "accessed")] {
        assert_eq!(fields[at].0, name);
        assert!(fields[at].1.starts_with("20") && fields[at].1.ends_with('Z'), "{info}");
    }
    assert_eq!(&fields[4..], [("isDirectory", "false"), ("isFile", "true"), ("permissions", "640")]);
    assert!(client.done("get_file_info", json!({"path": "."})).contains("isDirectory: true"));
    client.fails("get_file_info", json!({"path": "gone"}));
    client.fails("get_file_info", json!({"path": "gone/deeper"}));
}

#[test]
fn the_allowed_directory_is_the_workspace() {
    let world = World::new();
    let text = world.client().done("list_allowed_directories", json!({}));
    assert_eq!(text, format!("Allowed directories:\n{}", world.root().display()));
}

#[test]
fn the_server_introduces_itself() {
    let world = World::new();
    let mut client = world.client();
    let answer = client.shake_hands();
    assert_eq!(answer["result"]["serverInfo"]["name"], "tollgate");
    assert!(answer["result"]["instructions"].as_str().unwrap().contains("STALE_FILE"));
    let tools = client.request("tools/list", json!({}))["result"]["tools"].clone();
    let names: Vec<&str> =
        tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, TOOLS);
    for tool in tools.as_array().unwrap() {
        assert_eq!(tool["inputSchema"]["properties"]["turn_id"]["type"], "string", "{tool}");
        assert_eq!(
            (&tool["inputSchema"]["type"], &tool["outputSchema"]["type"]),
            (&json!("object"), &json!("object"))
        );
        let writes = tool["inputSchema"]["properties"].get("expected_hash").is_some();
        let named = ["write_file", "edit_file", "move_file", "delete_file"].map(Value::from);
        assert_eq!(writes, named.contains(&tool["name"]), "{tool}");
        jsonschema::validator_for(&tool["inputSchema"]).unwrap();
    }
    let unknown = client.request("tools/call", json!({"name": "format_disk", "arguments": {}}));
    assert_eq!(unknown["error"]["code"], -32602);
}

#[test]
fn the_history_of_a_file_names_who_changed_what() {
    let world = World::new();
    world.outsider_writes("a", "one\n");
    let mut client = world.client();
    client.call("read_text_file", json!({"path": "a"}));
    client.call("edit_file", json!({"path": "a", "edits": [{"oldText": "one", "newText": "one\ntwo"}]}));
    client.call("move_file", json!({"source": "a", "destination": "b"}));
    let changes = client.call("file_history", json!({"path": "b"}))["structuredContent"]["changes"].clone();
    assert_eq!(changes.as_array().unwrap().len(), 2, "{changes}");
    assert_eq!(changes[0]["moved"], json!([{"from": "a", "to": "b"}]));
    let first = &changes[1];
    assert_eq!(
        json!([first["agent"], first["via"], first["added"]]),
        json!(["blue", "edit_file", 1]),
        "{changes}"
    );
    assert!(first["diff"].as_str().unwrap().contains("+two"), "{changes}");
    let limited = client.call("file_history", json!({"path": "b", "limit": 1}));
    assert_eq!(limited["structuredContent"]["changes"].as_array().unwrap().len(), 1);

    let lines = client.call("blame", json!({"path": "b"}))["structuredContent"]["lines"].clone();
    let who = |at: usize| json!([lines[at]["from"], lines[at]["to"], lines[at]["by"], lines[at]["agent"]]);
    assert_eq!(who(0), json!([1, 1, "before", null]), "{lines}");
    assert_eq!(who(1), json!([2, 2, "agent", "blue"]));
    let line = client.call("blame", json!({"path": "b", "line": 2}))["structuredContent"]["lines"].clone();
    assert_eq!(line, json!([lines[1]]));
    for (tool, arguments) in [
        ("file_history", json!({})),
        ("file_history", json!({"path": "b", "limit": "x"})),
        ("blame", json!({"path": "missing"})),
        ("blame", json!({"path": "b", "line": 9})),
        ("blame", json!({"path": "b", "line": 0})),
    ] {
        client.fails(tool, arguments);
    }
    let why = |client: &mut Client| {
        let lines =
            client.call("blame", json!({"path": "b", "why": true}))["structuredContent"]["lines"].clone();
        assert_eq!(lines[0].get("reads"), None, "{lines}");
        let read = &lines[1]["reads"][0];
        json!([read["path"], read["hash"], read["whole"], lines[1]["reads_unknown"]])
    };
    let expected = json!(["a", sha256("one\n"), true, null]);
    assert_eq!(why(&mut client), expected, "while the turn is open");
    client.call("end_turn", json!({}));
    assert_eq!(why(&mut client), expected, "from its record");
    // It does not count as a read.
    world.outsider_writes("c", "x");
    client.call("blame", json!({"path": "c"}));
    assert_eq!(
        client.call("get_initial_hash", json!({"file_path": "c"}))["structuredContent"]["initial_hash"],
        Value::Null
    );
}
