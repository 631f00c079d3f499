//! Sends the same requests to the reference filesystem server and to this one, and compares the results field by field.
//!
//! `docs/reference/mcp.md` lists the intended differences; the last test checks that list.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::install::peers;
use crate::world::Process;

/// Both servers, each with its own folder. The folders have the same name and the same files.
struct Both {
    _keep: tempfile::TempDir,
    roots: [PathBuf; 2],
    servers: [Process; 2],
}

impl Both {
    fn start() -> Option<Self> {
        let peers = peers()?;
        let keep = tempfile::tempdir().unwrap();
        let roots = ["reference", "tollgate"].map(|name| {
            let root = keep.path().canonicalize().unwrap().join(name).join("w");
            furnish(&root);
            root
        });
        let mut reference = Process::start(Command::new("node").arg(peers.reference_server()).arg(&roots[0]));
        reference.client.shake_hands();
        let mut ours = Process::serving(&roots[1]);
        ours.client.shake_hands();
        Some(Self { _keep: keep, roots, servers: [reference, ours] })
    }

    /// The answers of both. In requests and answers `ROOT` stands for the server's folder.
    fn ask(&mut self, tool: &str, arguments: &Value) -> [Value; 2] {
        let mut answers = [Value::Null, Value::Null];
        for ((answer, server), root) in answers.iter_mut().zip(&mut self.servers).zip(&self.roots) {
            let root = root.to_str().unwrap();
            let arguments: Value =
                serde_json::from_str(&arguments.to_string().replace("ROOT", root)).unwrap();
            let result = server.client.request("tools/call", json!({"name": tool, "arguments": arguments}));
            *answer = serde_json::from_str(&result.to_string().replace(root, "ROOT")).unwrap();
        }
        answers
    }

    /// Both succeed with the same answer, except for what we add.
    #[track_caller]
    fn agree(&mut self, tool: &str, arguments: Value) {
        let [reference, mut ours] = self.ask(tool, &arguments);
        let added = ours["result"].as_object_mut().and_then(|result| result.remove("_meta"));
        if let Some(added) = added {
            assert!(added.get("sha256").is_some(), "{tool} {arguments}: {added}");
        }
        assert_eq!(reference["result"], ours["result"], "{tool} {arguments}");
        assert!(ours["result"].get("isError").is_none(), "{tool} {arguments}: {ours}");
        self.same_disk();
    }

    /// Both fail. Their messages differ.
    #[track_caller]
    fn both_fail(&mut self, tool: &str, arguments: Value) {
        for answer in self.ask(tool, &arguments) {
            assert_eq!(answer["result"]["isError"], true, "{tool} {arguments}: {answer}");
            assert_eq!(answer["result"]["content"][0]["type"], "text");
        }
        self.same_disk();
    }

    #[track_caller]
    fn same_disk(&self) {
        let [reference, ours] = self.roots.each_ref().map(|root| snapshot(root, root));
        assert_eq!(reference, ours);
    }
}

fn furnish(root: &Path) {
    let bytes: Vec<u8> = (0..=255).collect();
    let files: &[(&str, &[u8])] = &[
        ("a.txt", b"one\ntwo\nthree\n"),
        ("no_end.txt", b"one\ntwo"),
        ("empty.txt", b""),
        ("crlf.txt", b"one\r\ntwo\r\n"),
        ("bom.txt", b"\xef\xbb\xbfhello\n"),
        ("latin1.txt", b"caf\xe9\n"),
        ("binary.dat", &bytes),
        ("dot.PNG", &bytes),
        ("sound.mp3", &bytes),
        ("odd name #1 é.bin", &bytes),
        ("src/main.rs", b"fn main() {\n    one();\n    two();\n}\n"),
        ("src/Lib.rs", b"// lib\n"),
        ("src/deep/er/x.rs", b"x"),
        ("node_modules/pkg/index.js", b"js"),
        (".hidden/y", b"y"),
        ("ticks.md", b"```\ncode\n```\n"),
        ("large.txt", &[b'x'; 70_000]),
    ];
    for (path, bytes) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    fs::create_dir(root.join("void")).unwrap();
    std::os::unix::fs::symlink("src", root.join("link")).unwrap();
    std::os::unix::fs::symlink("a.txt", root.join("to_a")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", root.join("out")).unwrap();
}

/// Every file below the folder with its bytes, without tollgate's state.
fn snapshot(root: &Path, folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap() == ".tollgate" || path.is_symlink() {
            continue;
        }
        let name = path.strip_prefix(root).unwrap().to_owned();
        if path.is_dir() {
            found.push((name, Vec::new()));
            found.extend(snapshot(root, &path));
        } else {
            found.push((name, fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

#[test]
fn tools_have_the_same_names_arguments_and_hints() {
    let Some(mut both) = Both::start() else { return };
    let [reference, ours] = both.servers.each_mut().map(|server| {
        server.client.request("tools/list", json!({}))["result"]["tools"].as_array().unwrap().clone()
    });
    assert_eq!(reference.len(), 14);
    for (reference, ours) in reference.iter().zip(&ours) {
        let name = &reference["name"];
        for key in ["name", "title", "annotations"] {
            assert_eq!(reference[key], ours[key], "{name} {key}");
        }
        assert_eq!(reference["inputSchema"]["$schema"], ours["inputSchema"]["$schema"]);
        let required = |tool: &Value| tool["inputSchema"].get("required").cloned();
        assert_eq!(required(reference), required(ours), "{name}");
        let mut properties = ours["inputSchema"]["properties"].as_object().unwrap().clone();
        properties.remove("turn_id");
        properties.remove("expected_hash");
        assert_eq!(
            plain(&reference["inputSchema"]["properties"]),
            plain(&Value::Object(properties)),
            "{name}"
        );
        // Our schema is the same with refusals added.
        let content = &reference["outputSchema"]["properties"]["content"];
        assert_eq!(plain(content), plain(&ours["outputSchema"]["properties"]["content"]), "{name}");
    }
}

/// A schema without descriptions, which are our own, and without redundant keys.
fn plain(schema: &Value) -> Value {
    match schema {
        Value::Object(object) => {
            let mut plain = serde_json::Map::new();
            for (key, value) in object {
                if !["description", "additionalProperties"].contains(&key.as_str()) {
                    plain.insert(key.clone(), self::plain(value));
                }
            }
            plain.sort_keys();
            Value::Object(plain)
        }
        Value::Array(items) => items.iter().map(plain).collect(),
        other => other.clone(),
    }
}

#[test]
fn reads_are_the_same() {
    let Some(mut both) = Both::start() else { return };
    let files = [
        "a.txt",
        "no_end.txt",
        "empty.txt",
        "crlf.txt",
        "bom.txt",
        "latin1.txt",
        "binary.dat",
        "large.txt",
        "to_a",
        "link/main.rs",
        "ROOT/a.txt",
        "./src/../a.txt",
        "src//main.rs",
    ];
    for path in files {
        both.agree("read_file", json!({ "path": path }));
        both.agree("read_text_file", json!({ "path": path }));
        for head in [0, 1, 2, 3, 100] {
            both.agree("read_text_file", json!({"path": path, "head": head}));
        }
        both.agree("read_media_file", json!({ "path": path }));
    }
    for path in ["dot.PNG", "sound.mp3", "odd name #1 é.bin"] {
        both.agree("read_media_file", json!({ "path": path }));
    }
    for tail in [1, 2, 100] {
        both.agree("read_text_file", json!({"path": "no_end.txt", "tail": tail}));
    }
    both.agree("read_multiple_files", json!({"paths": files}));
    for path in [
        "gone",
        "void",
        "gone/deeper",
        "../x",
        "/etc/hostname",
        "out",
        "src/main.rs/x",
        "",
        "nul\0",
        "C:\\x",
        "~",
    ] {
        both.both_fail("read_text_file", json!({ "path": path }));
        both.both_fail("read_media_file", json!({ "path": path }));
    }
    for arguments in
        [json!({}), json!({"path": 1}), json!({"path": "a.txt", "head": 1, "tail": 1}), json!({"path": null})]
    {
        both.both_fail("read_text_file", arguments);
    }
    both.both_fail("read_multiple_files", json!({"paths": []}));
    both.both_fail("read_multiple_files", json!({"paths": "a.txt"}));
}

#[test]
fn folders_are_the_same() {
    let Some(mut both) = Both::start() else { return };
    for path in [".", "", "src", "void", "link", "ROOT", "ROOT/src/deep", "src/../node_modules"] {
        both.agree("list_directory", json!({ "path": path }));
        for sort in ["name", "size"] {
            // The reference server reveals the size of what a link outside leads to.
            if !["", ".", "ROOT"].contains(&path) {
                both.agree("list_directory_with_sizes", json!({"path": path, "sortBy": sort}));
            }
        }
        for exclude in
            [vec![], vec!["node_modules"], vec!["*.rs", "**/*.js"], vec!["deep", ".hidden"], vec!["src/**"]]
        {
            if !path.contains("link") {
                both.agree("directory_tree", json!({"path": path, "excludePatterns": exclude}));
            }
        }
        for pattern in [
            "*",
            "**",
            "**/*.rs",
            "*.txt",
            "src",
            "**/x.rs",
            "*.{md,PNG}",
            "[a-c]*",
            "nothing*",
            "**/deep/**",
        ] {
            both.agree("search_files", json!({"path": path, "pattern": pattern}));
            let arguments =
                json!({"path": path, "pattern": pattern, "excludePatterns": ["**/node_modules/**", "l*"]});
            both.agree("search_files", arguments);
        }
    }
    both.agree("list_allowed_directories", json!({}));
    for tool in ["list_directory", "list_directory_with_sizes", "directory_tree", "get_file_info"] {
        for path in ["gone", "/etc", "..", "out"] {
            both.both_fail(tool, json!({ "path": path }));
        }
    }
    for path in ["a.txt", "gone"] {
        both.both_fail("list_directory", json!({ "path": path }));
    }
}

#[test]
fn writes_are_the_same() {
    let Some(mut both) = Both::start() else { return };
    for (path, content) in [
        ("a.txt", "new\n"),
        ("fresh.txt", ""),
        ("fresh.txt", "x\r\ny"),
        ("src/é.txt", "é\u{10ffff}"),
        ("ROOT/b", "b"),
        ("to_a", "by link"),
    ] {
        both.agree("write_file", json!({"path": path, "content": content}));
    }
    for path in ["d", "d", "d/e/f", "void", ".", "src/new"] {
        both.agree("create_directory", json!({ "path": path }));
    }
    both.agree("move_file", json!({"source": "b", "destination": "d/b2"}));
    both.agree("move_file", json!({"source": "d", "destination": "moved"}));
    both.agree("move_file", json!({"source": "ROOT/moved/b2", "destination": "ROOT/b"}));
    for (tool, arguments) in [
        ("write_file", json!({"path": "../x", "content": ""})),
        ("write_file", json!({"path": "out", "content": ""})),
        ("write_file", json!({"path": "void", "content": ""})),
        ("write_file", json!({"path": "src/main.rs/x", "content": ""})),
        ("write_file", json!({"path": "x"})),
        ("create_directory", json!({"path": "a.txt"})),
        ("create_directory", json!({"path": "../x"})),
        ("move_file", json!({"source": "gone", "destination": "x"})),
        ("move_file", json!({"source": "a.txt", "destination": "src/main.rs"})),
        ("move_file", json!({"source": "a.txt", "destination": "void"})),
        ("move_file", json!({"source": "src", "destination": "void"})),
        ("move_file", json!({"source": "src", "destination": "src/deep/x"})),
        ("move_file", json!({"source": "a.txt", "destination": "../x"})),
    ] {
        both.both_fail(tool, arguments);
    }
}

#[test]
fn edits_are_the_same() {
    let Some(mut both) = Both::start() else { return };
    let edit = |old: &str, new: &str| json!({"oldText": old, "newText": new});
    for dry in [true, false] {
        for (path, edits) in [
            ("a.txt", json!([edit("two", "2")])),
            ("a.txt", json!([edit("one\n2\n", "1\n2\n2.5\n"), edit("three", "3")])),
            ("no_end.txt", json!([edit("two", "zwei")])),
            ("no_end.txt", json!([edit("one\n", "")])),
            ("src/main.rs", json!([edit("one();", "uno();")])),
            ("src/main.rs", json!([edit("  uno(); ", "eins();")])),
            ("ticks.md", json!([edit("code", "````")])),
            ("bom.txt", json!([edit("hello", "bye")])),
        ] {
            // A dry run applies to the unchanged file. An old text that is not in it fails in both.
            let arguments = json!({"path": path, "edits": edits, "dryRun": dry});
            let [reference, ours] = both.ask("edit_file", &arguments);
            assert_eq!(
                reference["result"]["isError"], ours["result"]["isError"],
                "{arguments}: {reference} {ours}"
            );
            if ours["result"].get("isError").is_none() {
                assert_eq!(reference["result"]["content"], ours["result"]["content"], "{arguments}");
            }
            both.same_disk();
        }
    }
    both.both_fail("edit_file", json!({"path": "a.txt", "edits": [edit("nowhere", "x")]}));
    both.both_fail("edit_file", json!({"path": "gone", "edits": [edit("a", "x")]}));
    both.both_fail("edit_file", json!({"path": "a.txt"}));
    both.both_fail("edit_file", json!({"path": "a.txt", "edits": [{"oldText": "x"}]}));
}

#[test]
fn info_has_the_same_fields() {
    let Some(mut both) = Both::start() else { return };
    for path in ["a.txt", "src", ".", "link", "to_a", "empty.txt", "dot.PNG"] {
        let [reference, ours] = both.ask("get_file_info", &json!({ "path": path }));
        let fields = |answer: &Value| -> Vec<(String, String)> {
            let text = answer["result"]["structuredContent"]["content"].as_str().unwrap().to_owned();
            let field = |line: &str| {
                line.split_once(": ").map(|(key, value)| (key.to_owned(), value.to_owned())).unwrap()
            };
            text.lines().map(field).collect()
        };
        for (reference, ours) in fields(&reference).into_iter().zip(fields(&ours)) {
            assert_eq!(reference.0, ours.0);
            // The size of a folder depends on the file system, and ours also contains the state.
            if !["created", "modified", "accessed", "size"].contains(&reference.0.as_str())
                || (reference.0 == "size" && path != ".")
            {
                assert_eq!(reference, ours, "{path}");
            }
        }
    }
}

/// Checks the table of differences in the docs.
#[test]
fn the_intended_differences_are_as_documented() {
    let Some(mut both) = Both::start() else { return };
    let text =
        |answer: &Value| answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    // The reference server loses a foreign change; ours keeps it.
    both.ask("read_text_file", &json!({"path": "a.txt"}));
    for root in &both.roots {
        fs::write(root.join("a.txt"), "foreign\n").unwrap();
    }
    let [reference, ours] = both.ask("write_file", &json!({"path": "a.txt", "content": "mine\n"}));
    assert!(reference["result"].get("isError").is_none());
    assert_eq!(ours["result"]["structuredContent"]["error_type"], "STALE_FILE");
    assert_eq!(fs::read_to_string(both.roots[0].join("a.txt")).unwrap(), "mine\n");
    assert_eq!(fs::read_to_string(both.roots[1].join("a.txt")).unwrap(), "foreign\n");
    // Missing folders are created.
    let [reference, ours] = both.ask("write_file", &json!({"path": "p/q/r.txt", "content": "x"}));
    assert_eq!((&reference["result"]["isError"], ours["result"].get("isError")), (&json!(true), None));
    // A line end at the end of the file does not count as another line.
    let [reference, ours] = both.ask("read_text_file", &json!({"path": "src/main.rs", "tail": 1}));
    assert_eq!((text(&reference).as_str(), text(&ours).as_str()), ("", "}\n"));
    // Line ends survive an edit.
    let edits = json!([{"oldText": "one\ntwo", "newText": "1\n2"}]);
    both.ask("edit_file", &json!({"path": "crlf.txt", "edits": edits}));
    assert_eq!(fs::read(both.roots[0].join("crlf.txt")).unwrap(), b"1\n2\n");
    assert_eq!(fs::read(both.roots[1].join("crlf.txt")).unwrap(), b"1\r\n2\r\n");
    // Bytes that are not text survive an edit.
    both.ask("edit_file", &json!({"path": "latin1.txt", "edits": [{"oldText": "caf", "newText": "CAF"}]}));
    assert_eq!(fs::read(both.roots[0].join("latin1.txt")).unwrap(), "CAF\u{fffd}\n".as_bytes());
    assert_eq!(fs::read(both.roots[1].join("latin1.txt")).unwrap(), b"CAF\xe9\n");
    // Old text that occurs twice is refused.
    let [reference, ours] =
        both.ask("edit_file", &json!({"path": "src/main.rs", "edits": [{"oldText": "();", "newText": ""}]}));
    assert!(reference["result"].get("isError").is_none());
    assert_eq!(ours["result"]["structuredContent"]["error_type"], "TEXT_NOT_FOUND");
    // An unknown tool is a protocol error.
    let [reference, ours] = both.ask("no_such_tool", &json!({}));
    assert_eq!((&reference["result"]["isError"], &ours["error"]["code"]), (&json!(true), &json!(-32602)));
    // Times are RFC 3339 in UTC.
    let [reference, ours] = both.ask("get_file_info", &json!({"path": "src"}));
    assert!(text(&reference).contains("GMT") && text(&ours).contains("Z\n"));
    // A link out of the workspace reveals nothing.
    let [reference, ours] = both.ask("list_directory_with_sizes", &json!({"path": "."}));
    let line = |text: String| text.lines().find(|line| line.contains(" out ")).unwrap().to_owned();
    assert!(!line(text(&reference)).ends_with(" 0 B"));
    assert!(line(text(&ours)).ends_with(" 0 B"));
    // The number of lines must be whole and not negative.
    let [reference, ours] = both.ask("read_text_file", &json!({"path": "a.txt", "head": -1}));
    assert_eq!((reference["result"].get("isError"), &ours["result"]["isError"]), (None, &json!(true)));
}
