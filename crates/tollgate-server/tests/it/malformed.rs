//! Invalid messages, arguments and paths cause errors, never a crash, and change nothing on disk.

use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate_testing::until;

use crate::world::{Client, Process, TOOLS, World};

/// Lines that are not messages, or not valid ones.
const LINES: &[&str] = &[
    "",
    " ",
    "\r",
    "{",
    "}",
    "null",
    "true",
    "0",
    "\"text\"",
    "[]",
    "[1,2,3]",
    "{}",
    "[{}]",
    "{\"jsonrpc\":\"2.0\"}",
    "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}",
    "{\"id\":1,\"method\":\"ping\"}",
    "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}",
    "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}",
    "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}",
    "{\"jsonrpc\":\"2.0\",\"id\":901,\"method\":5}",
    "{\"jsonrpc\":\"2.0\",\"id\":902,\"method\":\"\"}",
    "{\"jsonrpc\":\"2.0\",\"id\":903,\"method\":\"no/such\"}",
    "{\"jsonrpc\":\"2.0\",\"id\":904,\"method\":\"tools/call\"}",
    "{\"jsonrpc\":\"2.0\",\"id\":905,\"method\":\"tools/call\",\"params\":[]}",
    "{\"jsonrpc\":\"2.0\",\"id\":906,\"method\":\"tools/call\",\"params\":{\"name\":7}}",
    "{\"jsonrpc\":\"2.0\",\"id\":907,\"method\":\"tools/call\",\"params\":{\"name\":\"read_file\",\"arguments\":[]}}",
    "{\"jsonrpc\":\"2.0\",\"id\":908,\"method\":\"tools/call\",\"params\":{\"name\":\"read_file\",\"arguments\":\"x\"}}",
    "{\"jsonrpc\":\"2.0\",\"id\":909,\"method\":\"tools/call\",\"params\":{\"name\":\"read_file\"}}",
    "{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"params\":{\"name\":\"write_file\",\"arguments\":{\"path\":\"n\",\"content\":\"\"}}}",
    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":12345}}",
    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{}}",
    "{\"jsonrpc\":\"2.0\",\"id\":77,\"result\":{}}",
    "{\"jsonrpc\":\"2.0\",\"id\":77,\"error\":{\"code\":1,\"message\":\"x\"}}",
    "{\"jsonrpc\":\"2.0\",\"id\":\"\u{0}\",\"method\":\"\u{202e}\"}",
    "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}",
    "Content-Length: 5",
];

#[test]
fn invalid_lines_before_and_after_the_handshake_do_not_stop_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Process::serving(folder.path());
    for line in LINES {
        server.client.line(line);
    }
    server.client.shake_hands();
    for line in LINES {
        server.client.line(line);
    }
    server.client.line(&format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000)));
    server.client.line(&"x".repeat(1 << 20));
    assert_eq!(server.client.done("list_directory", json!({"path": "."})), "");
    assert!(server.ends().success());
}

#[test]
fn known_methods_with_wrong_parameters_get_an_answer_with_their_id() {
    let world = World::new();
    let mut client = world.client();
    for params in
        [json!([]), json!({}), json!({"name": 7}), json!({"name": "read_file", "arguments": []}), Value::Null]
    {
        let answer = client.request("tools/call", params.clone());
        assert_eq!(answer["error"]["code"], -32602, "{params}: {answer}");
    }
    for absent in
        ["no/such", "prompts/list", "resources/list", "resources/templates/list", "logging/setLevel"]
    {
        assert_eq!(client.request(absent, json!({"level": "info"}))["error"]["code"], -32601, "{absent}");
    }
}

#[test]
fn bytes_that_are_not_utf8_are_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Process::serving(folder.path());
    server.client.shake_hands();
    let raw = server.client.raw();
    raw.write_all(b"\xff\xfe\x00\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}\n\0\0\n").unwrap();
    server.client.done("list_directory", json!({"path": "."}));
    assert!(server.ends().success());
}

#[test]
fn the_server_ends_when_its_client_disappears() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Process::serving(folder.path());
    server.client.shake_hands();
    for number in 0..50 {
        server.client.send_call("write_file", json!({"path": format!("f{number}"), "content": "x"}));
    }
    let child = server.child;
    drop(server.client);
    let mut child = child;
    until("its end", || child.try_wait().unwrap());
    // Every file that was written is complete.
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            assert_eq!(std::fs::read(path).unwrap(), b"x");
        }
    }
}

#[test]
fn large_arguments_are_accepted() {
    let world = World::new();
    let mut client = world.client();
    let large = "é\n".repeat(3 << 20);
    client.done("write_file", json!({"path": "large", "content": large}));
    assert_eq!(world.bytes("large").len(), large.len());
    let words = client.call("read_text_file", json!({"path": large}));
    assert_eq!(words["isError"], true);
    let many: Vec<String> = (0..5000).map(|number| format!("gone{number}")).collect();
    client.done("read_multiple_files", json!({ "paths": many }));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        "\\PC{0,12}".prop_map(Value::from),
        any_path().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(any_key(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_key() -> impl Strategy<Value = String> {
    let keys = [
        "path",
        "paths",
        "content",
        "edits",
        "oldText",
        "newText",
        "dryRun",
        "head",
        "tail",
        "source",
        "destination",
        "pattern",
        "excludePatterns",
        "sortBy",
        "changes",
        "delete",
        "expected_hash",
        "file_path",
        "turn_id",
        "task",
        "claim_id",
        "text",
        "result",
        "to",
        "note",
        "state",
        "limit",
    ];
    prop::sample::select(keys.to_vec()).prop_map(str::to_owned)
}

fn any_path() -> impl Strategy<Value = String> {
    let parts = [
        "a",
        "b",
        "d",
        "..",
        ".",
        "",
        "~",
        "/",
        "link",
        "out",
        "loop",
        "fifo",
        ".tollgate",
        "version",
        "\0",
        "\n",
        "é",
        "*",
        "/etc/passwd",
        "/proc/self/mem",
        "/dev/zero",
        "C:\\x",
        "[",
        "{a,b}",
        "**",
        "%00",
        "'",
        "\"",
        "-rf",
        "a.",
        "\u{202e}",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
         xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
         xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    ];
    prop::collection::vec(prop::sample::select(parts.to_vec()), 0..5).prop_map(|parts| parts.join("/"))
}

/// Arguments that are almost valid.
fn any_arguments() -> impl Strategy<Value = Value> {
    let words = ["a", "b.md", "success", "failure", "Done", "Rejected", "c-0123456789abcdef"];
    let word = prop::sample::select(words.to_vec()).prop_map(Value::from);
    let value = prop_oneof![any_json(), any_path().prop_map(Value::from), word];
    prop::collection::hash_map(any_key(), value, 0..6)
        .prop_map(|map| Value::Object(map.into_iter().collect()))
}

/// A workspace with traps in it, and a file outside it that must not be touched.
fn trapped() -> World {
    let world = World::with_vault("[guard]\nquiet_wait = \"5ms\"\n");
    for task in ["a", "b", "é"] {
        world.adds(task, "x");
    }
    world.outsider_writes("a", "one\ntwo\n");
    world.outsider_writes("d/b", "x");
    let root = world.root();
    std::fs::write(world.outside().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("d", root.join("link")).unwrap();
    std::os::unix::fs::symlink(world.outside(), root.join("out")).unwrap();
    std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(root.join("fifo")).status().unwrap();
    assert!(fifo.success());
    world
}

fn answers(client: &mut Client, tool: &str, arguments: &Value) {
    let id = client.send_call(tool, arguments.clone());
    let answer = client.wait(id);
    let result = &answer["result"];
    assert!(result["content"].is_array(), "{tool} {arguments}: {answer}");
    let text = answer.to_string();
    assert!(!text.contains("s3cret") && !text.contains("root:x:"), "{tool} {arguments}: {answer}");
}

#[test]
fn every_tool_answers_any_arguments() {
    let world = trapped();
    std::fs::write(world.outside().join("secret"), "s3cret").unwrap();
    let mut client = world.client();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 1500,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let client = std::cell::RefCell::new(&mut client);
    runner
        .run(&(prop::sample::select(&TOOLS[..]), any_arguments()), |(tool, arguments)| {
            answers(&mut client.borrow_mut(), tool, &arguments);
            Ok(())
        })
        .unwrap();
    assert_eq!(std::fs::read_to_string(world.outside().join("secret")).unwrap(), "s3cret");
    assert_eq!(std::fs::read_dir(world.outside()).unwrap().count(), 2, "nothing was created outside");
    world.client().done("list_directory", json!({"path": "."}));
}

#[test]
fn a_message_with_a_wrong_byte_does_not_stop_the_next() {
    let world = trapped();
    let mut client = world.client();
    // No wrong byte makes a number of this id, which could be the number of another request.
    let whole = json!({"jsonrpc": "2.0", "id": "changed", "method": "tools/call",
        "params": {"name": "read_text_file", "arguments": {"path": "a", "head": 1}}})
    .to_string();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4);
    let client = std::cell::RefCell::new(&mut client);
    runner
        .run(&changes, |changes| {
            let mut bytes = whole.clone().into_bytes();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = if byte == b'\n' { b' ' } else { byte };
            }
            bytes.push(b'\n');
            let mut client = client.borrow_mut();
            client.raw().write_all(&bytes).unwrap();
            client.done("list_allowed_directories", json!({}));
            Ok(())
        })
        .unwrap();
}
