//! No request takes much memory or much time, however it is made.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::world::{Process, World};

/// The most memory that a process has had, in MiB.
pub(crate) fn peak(server: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

/// A file of this size without line ends, which takes no space on the disk.
fn endless(path: &Path, size: u64) -> File {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    file
}

const GIB: u64 = 1 << 30;

#[test]
fn the_last_lines_of_a_large_file_take_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let size = GIB / 4;
    endless(&folder.path().join("endless"), size);
    endless(&folder.path().join("log"), size).write_all_at(b"\nlast but one\nlast\n", size - 19).unwrap();
    let mut server = Process::serving(folder.path());
    server.client.shake_hands();
    let why = server.client.fails("read_text_file", json!({"path": "endless", "tail": 3}));
    assert!(why.contains("too large") && why.contains("fewer lines"), "{why}");
    let lines = server.client.done("read_text_file", json!({"path": "log", "tail": 2}));
    assert_eq!(lines, "last but one\nlast\n");
    assert!(peak(&server) < 150, "{} MiB", peak(&server));
    assert!(server.ends().success());
}

#[test]
fn an_edit_of_a_large_file_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    endless(&folder.path().join("large"), GIB);
    let mut server = Process::serving(folder.path());
    server.client.shake_hands();
    let edits = json!([{"oldText": "one", "newText": "two"}]);
    for arguments in
        [json!({"path": "large", "edits": edits}), json!({"path": "large", "edits": edits, "dryRun": true})]
    {
        let why = server.client.fails("edit_file", arguments);
        assert!(why.contains("larger than 16 MiB") && why.contains("write_file"), "{why}");
    }
    let several = json!({"changes": [{"path": "large", "edits": edits}]});
    assert!(server.client.fails("write_files", several).contains("larger than 16 MiB"));
    // The same limit for the check that a write does not destroy bytes.
    let why = server.client.fails("write_file", json!({"path": "large", "content": "\u{fffd}"}));
    assert!(why.contains("U+FFFD"), "{why}");
    assert!(peak(&server) < 150, "{} MiB", peak(&server));
    // A file at the limit can be edited, and one beyond it cannot.
    endless(&folder.path().join("larger"), (16 << 20) + 1);
    let why = server.client.fails("edit_file", json!({"path": "larger", "edits": edits}));
    assert!(why.contains("larger than 16 MiB"), "{why}");
    let text = format!("one{}", "\n".repeat((16 << 20) - 3));
    std::fs::write(folder.path().join("small"), text).unwrap();
    server.client.done("edit_file", json!({"path": "small", "edits": edits}));
    assert!(server.ends().success());
}

#[test]
fn hostile_edits_end_soon() {
    let world = World::new();
    let mut client = world.client();
    let began = Instant::now();
    // Old text that occurs a million times; lines that are almost equal everywhere; a fence of a million backticks.
    world.outsider_writes("many", "e".repeat(1 << 20));
    let edit = |old: &str, new: &str| json!([{"oldText": old, "newText": new}]);
    client.refused("edit_file", json!({"path": "many", "edits": edit("e", "x")}), "TEXT_NOT_FOUND");
    world.outsider_writes("blank", "\n".repeat(2 << 20));
    let almost = format!("{}x", "\n".repeat(5000));
    client.refused("edit_file", json!({"path": "blank", "edits": edit(&almost, "y")}), "TEXT_NOT_FOUND");
    world.outsider_writes("fence", format!("one {}", "`".repeat(1 << 20)));
    client.done("edit_file", json!({"path": "fence", "edits": edit("one", "two")}));
    let many: Vec<Value> = (0..3000).map(|_| json!({"oldText": "e", "newText": "x"})).collect();
    let why = client.fails("edit_file", json!({"path": "many", "edits": many}));
    assert!(why.contains("3000 edits are too many"), "{why}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn hostile_patterns_are_refused_or_end_soon() {
    let world = World::new();
    let long = format!("{}b", "a".repeat(250));
    for number in 0..300 {
        world.outsider_writes(&format!("{number}/{long}"), "");
    }
    let mut client = world.client();
    let began = Instant::now();
    for pattern in ["/".repeat(80 << 10), "{".repeat(80 << 10), "x".repeat(104 << 10), "{a,b}".repeat(800)] {
        for tool in ["search_files", "directory_tree"] {
            let exclude = json!([pattern]);
            let why =
                client.fails(tool, json!({"path": ".", "pattern": pattern, "excludePatterns": exclude}));
            assert!(why.contains("too long"), "{why}");
        }
    }
    let hard = format!("**/*{}c", "a".repeat(120));
    let excludes: Vec<&String> = std::iter::repeat_n(&hard, 256).collect();
    for tool in ["search_files", "directory_tree"] {
        let why = client.fails(tool, json!({"path": ".", "pattern": "*", "excludePatterns": excludes}));
        assert!(why.contains("compares too many names"), "{why}");
        let more: Vec<&String> = std::iter::repeat_n(&hard, 257).collect();
        let why = client.fails(tool, json!({"path": ".", "pattern": "*", "excludePatterns": more}));
        assert!(why.contains("257 patterns"), "{why}");
    }
    // Seconds on a quiet machine. Without bounds it would take hours.
    assert!(began.elapsed() < Duration::from_secs(300), "{:?}", began.elapsed());
    assert!(client.done("search_files", json!({"path": "7", "pattern": "*b"})).contains(&long));
}

#[test]
fn the_state_of_tollgate_is_hidden() {
    let world = World::with_vault("");
    let mut client = world.client();
    world.outsider_writes(".tollgate/history/secret", "s3cret");
    world.outsider_writes("vault/.tollgate/secret", "s3cret");
    world.outsider_writes("deep/down/.tollgate/secret", "s3cret");
    world.outsider_writes("deep/plain", "s3cret is only in this file");
    symlink(".tollgate/history", world.root().join("innocent")).unwrap();
    symlink("vault/.tollgate/secret", world.root().join("harmless")).unwrap();
    let files = [
        ".tollgate/history/secret",
        "vault/.tollgate/secret",
        "deep/down/.tollgate/secret",
        "deep/../.tollgate/history/secret",
        "innocent/secret",
        "harmless",
        &world.path(".tollgate/history/secret"),
    ];
    let refused = "PROTECTED_PATH";
    for path in files {
        for tool in
            ["read_file", "read_text_file", "read_media_file", "get_file_info", "file_history", "blame"]
        {
            client.refused(tool, json!({"path": path}), refused);
        }
        client.refused("read_text_file", json!({"path": path, "tail": 1}), refused);
        let edits = json!([{"oldText": "s3cret", "newText": "x"}]);
        client.refused("edit_file", json!({"path": path, "edits": edits, "dryRun": true}), refused);
        let several = client.done("read_multiple_files", json!({"paths": [path, "deep/plain"]}));
        assert!(several.contains("Error") && several.contains("only in this file"), "{several}");
        assert_eq!(several.matches("s3cret").count(), 1, "{several}");
    }
    for path in [".tollgate", ".tollgate/history", "vault/.tollgate", "deep/down/.tollgate", "innocent"] {
        for tool in ["list_directory", "list_directory_with_sizes", "directory_tree", "get_file_info"] {
            client.refused(tool, json!({"path": path}), refused);
        }
        client.refused("search_files", json!({"path": path, "pattern": "**"}), refused);
    }
    for (tool, more) in [("directory_tree", json!({})), ("search_files", json!({"pattern": "**"}))] {
        let mut arguments = json!({"path": "."});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let shown = client.done(tool, arguments);
        assert!(
            shown.contains("plain") && !shown.contains(".tollgate") && !shown.contains("secret"),
            "{shown}"
        );
    }
    for path in [".", "vault", "deep/down"] {
        for tool in ["list_directory", "list_directory_with_sizes"] {
            assert!(!client.done(tool, json!({"path": path})).contains(".tollgate"), "{tool} {path}");
        }
    }
    // Only exactly this name is hidden.
    world.outsider_writes("x.tollgate/a", "visible");
    assert_eq!(client.done("read_text_file", json!({"path": "x.tollgate/a"})), "visible");
}

/// Sends this many requests without waiting for answers, then takes all answers. Returns the peak of the server's memory, in
/// MiB.
fn peak_of_many(folder: &Path, requests: i64, method: &'static str, params: &Value) -> u64 {
    let mut server = Process::serving(folder);
    server.client.shake_hands();
    let mut output = server.client.take_output();
    let params = params.clone();
    let writing = std::thread::spawn(move || {
        for id in 1..=requests {
            let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
            writeln!(output, "{request}").unwrap();
        }
        output
    });
    // The client takes no answer until the server stops reading.
    let mut last = 0;
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let now = peak(&server);
        if now == last {
            break;
        }
        last = now;
    }
    let mut answers = 0;
    let mut line = String::new();
    while answers < requests {
        line.clear();
        assert!(server.client.input().read_line(&mut line).unwrap() > 0, "{answers} answers");
        assert!(!line.contains("isError"), "{line}");
        answers += i64::from(line.contains("\"id\""));
    }
    let output = writing.join().unwrap();
    let peak = peak(&server);
    // Now the server ends, and nobody can look at it any more.
    drop(output);
    assert!(server.child.wait().unwrap().success());
    peak
}

#[test]
fn many_requests_without_waiting_take_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let small = json!({"name": "list_allowed_directories", "arguments": {}});
    let peak = peak_of_many(folder.path(), 100_000, "tools/call", &small);
    assert!(peak < 150, "{peak} MiB");
}

#[test]
fn many_requests_with_large_answers_take_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let peak = peak_of_many(folder.path(), 3000, "tools/list", &json!({}));
    assert!(peak < 150, "tools/list: {peak} MiB");
    std::fs::write(folder.path().join("large"), "x".repeat(8 << 20)).unwrap();
    let large = json!({"name": "read_text_file", "arguments": {"path": "large"}});
    let peak = peak_of_many(folder.path(), 40, "tools/call", &large);
    assert!(peak < 400, "read_text_file: {peak} MiB");
}

#[test]
fn a_cancelled_request_makes_room_for_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Process::serving(folder.path());
    server.client.shake_hands();
    for id in 10_000..15_000 {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": "list_directory", "arguments": {"path": "."}}});
        server.client.line(&call.to_string());
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
        server.client.line(&cancel.to_string());
    }
    server.client.done("list_directory", json!({"path": "."}));
    assert!(server.ends().success());
}

#[test]
fn requests_that_are_nested_too_deep_or_have_odd_ids_get_an_answer() {
    let world = World::new();
    let mut client = world.client();
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let very_deep = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    let call = |id: &str, params: &str| {
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{params}}}")
    };
    let plain = "{\"name\":\"list_directory\",\"arguments\":{\"path\":\".\"}}";
    for (line, id, words) in [
        (call("7001", &deep), "7001", "deeper than 128"),
        (call("7002", &format!("{{\"name\":\"x\",\"arguments\":{very_deep}}}")), "7002", "deeper than 128"),
        (call("\"text\"", &deep), "\"text\"", "deeper than 128"),
        (call("9223372036854775808", plain), "9223372036854775808", "2^63"),
        (call("-9223372036854775809", plain), "-9223372036854775809", "2^63"),
        (call("123456789012345678901234567890", plain), "123456789012345678901234567890", "2^63"),
        (call("1.5", plain), "1.5", "2^63"),
    ] {
        client.line(&line);
        let mut answer = String::new();
        client.input().read_line(&mut answer).unwrap();
        // Exactly as it was sent: numbers of this size do not survive most parsers.
        assert!(answer.contains(&format!("\"id\":{id},")), "{answer}");
        assert!(
            answer.contains("\"error\"") && answer.contains("-32600") && answer.contains(words),
            "{answer}"
        );
    }
    client.line(&call("9223372036854775807", plain));
    let mut answer = String::new();
    client.input().read_line(&mut answer).unwrap();
    assert!(answer.contains("9223372036854775807") && answer.contains("\"result\""), "{answer}");
    client.done("list_directory", json!({"path": "."}));
}
