//! Each limit of the MCP server: a call at the limit succeeds, and one beyond it fails and says what to do.

use std::fs::File;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bounds::peak;
use crate::world::{Client, Process, World};

#[test]
fn an_answer_is_limited_by_its_size_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let sized = |name: &str, size: u64| {
        File::create(folder.path().join(name)).unwrap().set_len(size).unwrap();
    };
    // NUL bytes, each of which takes six bytes in JSON.
    sized("endless", 250 << 20);
    sized("zeros", 10 << 20);
    sized("few", 2 << 20);
    sized("media", 11 << 20);
    sized("large media", 13 << 20);
    std::fs::write(folder.path().join("text"), "x".repeat((16 << 20) - 100)).unwrap();
    std::fs::write(folder.path().join("large text"), "x".repeat(16 << 20)).unwrap();
    let mut server = Process::serving(folder.path());
    server.client.shake_hands();
    let client = &mut server.client;
    for tool in ["read_file", "read_text_file", "read_media_file"] {
        let why = client.fails(tool, json!({"path": "endless"}));
        assert!(why.contains("more than 16 MiB of") && why.contains("`head` or `tail`"), "{why}");
    }
    for tool in ["read_file", "read_text_file"] {
        let why = client.fails(tool, json!({"path": "zeros"}));
        assert!(why.contains("larger than 32 MiB as JSON") && why.contains("`head` or `tail`"), "{why}");
        assert_eq!(client.done(tool, json!({"path": "few"})).len(), 2 << 20);
        assert_eq!(client.done(tool, json!({"path": "text"})).len(), (16 << 20) - 100);
        client.fails(tool, json!({"path": "large text"}));
    }
    for part in ["head", "tail"] {
        let why = client.fails("read_text_file", json!({"path": "endless", part: 1}));
        assert!(why.contains("lines of") && why.contains("fewer lines"), "{why}");
        let why = client.fails("read_text_file", json!({"path": "zeros", part: 1}));
        assert!(why.contains("larger than 32 MiB as JSON"), "{why}");
    }
    let why = client.fails("read_multiple_files", json!({"paths": ["few", "few"]}));
    assert!(why.contains("larger than 32 MiB as JSON") && why.contains("fewer files"), "{why}");
    let result = client.call("read_media_file", json!({"path": "media"}));
    assert!(result.get("isError").is_none());
    let why = client.fails("read_media_file", json!({"path": "large media"}));
    assert!(why.contains("larger than 32 MiB as JSON"), "{why}");
    // On a busy machine, the memory of one answer is not yet free when the next is made.
    assert!(peak(&server) < 350, "{} MiB", peak(&server));
    assert!(server.ends().success());
}

#[test]
fn a_change_whose_diff_is_too_large_is_made_and_reported() {
    let world = World::new();
    let mut client = world.client();
    // A control character takes six bytes in JSON.
    let dense = "\u{1}".repeat(3 << 20);
    world.outsider_writes("f", format!("{dense} one\n"));
    let edit = json!({"path": "f", "edits": [{"oldText": " one", "newText": " two"}]});
    let mut preview = edit.clone();
    preview["dryRun"] = true.into();
    assert!(client.fails("edit_file", preview).contains("larger than 32 MiB as JSON"));
    assert_eq!(client.done("edit_file", edit), "Successfully edited f");
    world.holds("f", &format!("{dense} two\n"));
}

#[test]
fn trees_and_searches_end_at_sixty_folders() {
    let world = World::new();
    let nested = |count: usize| vec!["d"; count].join("/");
    let mut client = world.client();
    std::fs::create_dir_all(world.root().join(nested(60))).unwrap();
    world.outsider_writes(&format!("{}/deep", nested(60)), "");
    let search = json!({"path": ".", "pattern": "**/deep"});
    assert!(client.done("directory_tree", json!({"path": "."})).contains("\"deep\""));
    assert!(client.done("search_files", search.clone()).contains("/deep"));
    let began = Instant::now();
    for (depth, tool, arguments) in [
        (61, "directory_tree", json!({"path": "."})),
        (61, "search_files", search.clone()),
        (900, "directory_tree", json!({"path": "."})),
        (900, "search_files", search),
    ] {
        std::fs::create_dir_all(world.root().join(nested(depth))).unwrap();
        let why = client.fails(tool, arguments.clone());
        assert!(why.contains("more than 60 levels down, in `d/d/d`"), "{why}");
        assert!(why.contains("excludePatterns"), "{why}");
        let mut arguments = arguments;
        arguments["excludePatterns"] = json!(["**/d/d/d"]);
        client.done(tool, arguments);
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn a_tree_that_is_too_large_is_not_made() {
    let world = World::new();
    // 250 bytes each, so that few files are needed.
    for number in 0..140 {
        let folder = world.root().join(number.to_string());
        std::fs::create_dir(&folder).unwrap();
        for file in 0..500 {
            File::create(folder.join(format!("{file:0>250}"))).unwrap();
        }
    }
    let mut client = world.client();
    for (tool, arguments) in
        [("directory_tree", json!({"path": "."})), ("search_files", json!({"path": ".", "pattern": "**"}))]
    {
        let why = client.fails(tool, arguments);
        assert!(why.contains("larger than 32 MiB as JSON") && why.contains("further down"), "{why}");
    }
    assert!(client.done("directory_tree", json!({"path": "7"})).contains("499"));
}

#[test]
fn a_call_has_a_limited_number_of_files() {
    let world = World::new();
    world.outsider_writes("f", "x");
    let mut client = world.client();
    let paths = |count: usize| json!({"paths": vec!["f"; count]});
    client.done("read_multiple_files", paths(10_000));
    let why = client.fails("read_multiple_files", paths(10_001));
    assert!(why.contains("`paths` has 10001 items, the most is 10000"), "{why}");
    let changes = |count: usize| {
        let change = |number| json!({"path": format!("n{number}"), "content": ""});
        json!({"changes": (0..count).map(change).collect::<Vec<Value>>()})
    };
    let why = client.fails("write_files", changes(1025));
    assert!(why.contains("`changes` has 1025 items, the most is 1024"), "{why}");
    assert!(!world.root().join("n0").exists());
    assert_eq!(client.done("write_files", changes(1024)), "Successfully changed 1024 files");
}

#[test]
fn a_path_has_a_limited_length() {
    let world = World::new();
    let mut client = world.client();
    // The kernel's limit counts the workspace in front of it, and a final zero.
    let path = |length: usize| "x/".repeat(2048)[..length - world.root().as_os_str().len() - 2].to_owned();
    for tool in ["read_text_file", "list_directory", "write_file", "delete_file"] {
        let fails =
            |client: &mut Client, path: String| client.fails(tool, json!({"path": path, "content": ""}));
        assert!(fails(&mut client, path(4097)).contains("too long"), "{tool}");
        let at_the_limit = client.call(tool, json!({"path": path(4096), "content": ""}));
        assert!(!at_the_limit.to_string().contains("too long"), "{at_the_limit}");
    }
}

#[test]
fn edits_that_make_a_file_grow_are_counted_as_they_grow() {
    let world = World::new();
    world.outsider_writes("f", "a");
    let mut client = world.client();
    let mut edits = vec![json!({"oldText": "a", "newText": format!("{}b", "x".repeat(2 << 20))})];
    edits.resize(1000, json!({"oldText": "b", "newText": "b"}));
    let why = client.fails("edit_file", json!({"path": "f", "edits": edits}));
    assert!(why.contains("1000 edits are too many"), "{why}");
    edits.truncate(100);
    client.done("edit_file", json!({"path": "f", "edits": edits}));
}

#[test]
fn the_history_of_a_file_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".tollgate")).unwrap();
    let settings = "[guard]\ndurability = \"fast\"\ngrace = \"1ms\"\n";
    std::fs::write(folder.path().join(".tollgate/config.toml"), settings).unwrap();
    let mut server = Process::serving(folder.path());
    server.client.shake_hands();
    let client = &mut server.client;
    let changes = |client: &mut Client, arguments| {
        client.call("file_history", arguments)["structuredContent"]["changes"].as_array().unwrap().clone()
    };
    // Of three diffs of 40 KiB, one fits.
    for letter in ["a", "b", "c"] {
        client.done("write_file", json!({"path": "long", "content": letter.repeat(40 << 10)}));
    }
    let diffs: Vec<bool> =
        changes(client, json!({"path": "long"})).iter().map(|change| change["diff"].is_string()).collect();
    assert_eq!(diffs, [false, false, true]);
    for number in 0..101 {
        client.done("write_file", json!({"path": "often", "content": format!("{number}\n")}));
    }
    assert_eq!(changes(client, json!({"path": "often"})).len(), 10);
    assert_eq!(changes(client, json!({"path": "often", "limit": 1000})).len(), 100);
    for (size, fits) in [(256 << 10, true), ((256 << 10) + 1, false)] {
        std::fs::write(folder.path().join("text"), "x".repeat(size)).unwrap();
        if fits {
            client.done("blame", json!({"path": "text"}));
        } else {
            let why = client.fails("blame", json!({"path": "text"}));
            assert!(why.contains("larger than 256 KiB") && why.contains("file_history"), "{why}");
        }
    }
    client.done("write_file", json!({"path": "grown", "content": "x"}));
    File::options().write(true).open(folder.path().join("grown")).unwrap().set_len(300 << 20).unwrap();
    client.fails("blame", json!({"path": "grown"}));
    assert_eq!(changes(client, json!({"path": "grown"})).len(), 1);
    assert!(peak(&server) < 200, "{} MiB", peak(&server));
    assert!(server.ends().success());
}

#[test]
fn a_note_on_a_task_has_a_limited_length() {
    let world = World::with_vault("");
    world.adds("x", "text");
    let mut client = world.client();
    let id = client.value("claim_task", json!({"task": "x"}))["claim_id"].clone();
    let (longest, longer) = ("x".repeat(64 << 10), "x".repeat((64 << 10) + 1));
    for (tool, key) in [("report_progress", "text"), ("release_task", "note")] {
        let mut arguments = json!({"task": "x", "claim_id": id, "result": "success", key: longer});
        let why = client.fails(tool, arguments.clone());
        assert!(why.contains("65537 bytes, the most is 65536"), "{why}");
        assert_eq!(world.slot("x"), "In_Progress/blue", "nothing was changed");
        arguments[key] = longest.clone().into();
        client.done(tool, arguments);
    }
    assert_eq!(world.slot("x"), "Done");
}

/// The next answer, as it is on the stream.
fn answer(client: &mut Client) -> String {
    let mut answer = String::new();
    client.input().read_line(&mut answer).unwrap();
    answer
}

/// A call of `write_file` as JSON of this length.
pub(crate) fn write_of(length: usize) -> String {
    let call = |content: &str| {
        let params = json!({"name": "write_file", "arguments": {"path": "f", "content": content}});
        json!({"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": params}).to_string()
    };
    let line = call(&"x".repeat(length - call("").len()));
    assert_eq!(line.len(), length);
    line
}

#[test]
fn a_line_has_a_limited_length() {
    let world = World::new();
    let mut client = world.client();
    client.line(&write_of(64 << 20));
    assert!(answer(&mut client).contains("Successfully wrote"));
    client.line(&write_of((64 << 20) + 1));
    let refused = answer(&mut client);
    assert!(refused.contains("longer than 64 MiB") && refused.contains("-32600"), "{refused}");
    client.done("list_directory", json!({"path": "."}));
}

/// A call with this number of values.
pub(crate) fn call_of(values: usize) -> String {
    let around = "{\"jsonrpc\":\"2.0\",\"id\":78,\"method\":\"tools/call\",\"params\":{\"name\":\"list_directory\",\
                  \"arguments\":{\"path\":\".\",\"more\":[LIST]}}}";
    let count = |text: &str| 1 + text.matches([',', '[', '{']).count();
    let list = vec!["1"; values - count(around) + 1].join(",");
    let call = around.replace("LIST", &list);
    assert_eq!(count(&call), values);
    call
}

#[test]
fn a_request_has_a_limited_number_of_values() {
    let world = World::new();
    let mut client = world.client();
    client.line(&call_of(1 << 17));
    let done = answer(&mut client);
    assert!(done.contains("\"id\":78") && done.contains("\"result\""), "{done}");
    client.line(&call_of((1 << 17) + 1));
    let refused = answer(&mut client);
    assert!(refused.contains("\"id\":78") && refused.contains("more than 131072 values"), "{refused}");
}
