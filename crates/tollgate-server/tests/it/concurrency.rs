//! Concurrent calls on one connection, and concurrent connections: nothing is lost, and no agent is refused because of its own write.

use std::collections::HashSet;

use serde_json::json;
use tollgate_testing::until_true;

use crate::world::{World, refusal};

#[test]
fn concurrent_edits_of_one_connection_are_all_made() {
    let world = World::new();
    let lines: Vec<String> = (0..40).map(|line| format!("<{line}>")).collect();
    world.outsider_writes("a", lines.join("\n"));
    let mut client = world.client();
    client.done("read_text_file", json!({"path": "a"}));
    let ids: Vec<i64> = lines
        .iter()
        .map(|line| {
            let edits = json!([{"oldText": line, "newText": format!("done{line}")}]);
            client.send_call("edit_file", json!({"path": "a", "edits": edits}))
        })
        .collect();
    for id in ids {
        let result = client.result("edit_file", id);
        assert!(result.get("isError").is_none(), "{result}");
    }
    let wanted: Vec<String> = lines.iter().map(|line| format!("done{line}")).collect();
    world.holds("a", &wanted.join("\n"));
}

#[test]
fn concurrent_reads_and_writes_of_one_agent_are_never_stale() {
    let world = World::new();
    world.outsider_writes("a", "0");
    let mut client = world.client();
    client.done("read_text_file", json!({"path": "a"}));
    let mut ids = Vec::new();
    for round in 0..100 {
        ids.push(("read_text_file", client.send_call("read_text_file", json!({"path": "a"}))));
        let content = json!({"path": "a", "content": "x".repeat(round + 1)});
        ids.push(("write_file", client.send_call("write_file", content)));
        ids.push(("read_text_file", client.send_call("read_text_file", json!({"path": "./a"}))));
    }
    for (tool, id) in ids {
        let result = client.result(tool, id);
        assert!(result.get("isError").is_none(), "{result}");
    }
    assert_eq!(world.ledger("MUTATION_CONFLICT").len(), 0);
}

#[test]
fn clients_that_race_for_one_file_lose_nothing() {
    const CLIENTS: usize = 4;
    const EACH: usize = 15;
    let world = World::new();
    world.outsider_writes("list", "");
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let mut client = world.client();
            scope.spawn(move || {
                for round in 0..EACH {
                    loop {
                        let text = client.done("read_text_file", json!({"path": "list"}));
                        let content = format!("{text}{number}-{round}\n");
                        let result = client.call("write_file", json!({"path": "list", "content": content}));
                        if result.get("isError").is_none() {
                            break;
                        }
                        let kind = result["structuredContent"]["error_type"].as_str().unwrap().to_owned();
                        assert!(["STALE_FILE", "FILE_BUSY"].contains(&kind.as_str()), "{result}");
                        refusal(&result, &kind);
                    }
                }
            });
        }
    });
    let bytes = String::from_utf8(world.bytes("list")).unwrap();
    let lines: HashSet<&str> = bytes.lines().collect();
    assert_eq!(lines.len(), CLIENTS * EACH, "{bytes}");
}

#[test]
fn different_files_of_one_connection_are_written_concurrently() {
    let world = World::new();
    let mut client = world.client();
    let ids: Vec<i64> = (0..60)
        .map(|number| client.send_call("write_file", json!({"path": format!("f{number}"), "content": "x"})))
        .collect();
    for id in ids {
        assert!(client.result("write_file", id).get("isError").is_none());
    }
    assert_eq!(world.ledger("MUTATION").len(), 60);
}

#[test]
fn the_late_write_check_runs_without_a_call() {
    let world = World::with("[guard]\ngrace = \"100ms\"\n");
    world.outsider_writes("a", "one");
    let mut client = world.client();
    client.done("write_file", json!({"path": "a", "content": "two"}));
    let stage = world.root().join(".tollgate/stage");
    let waiting = || std::fs::read_dir(&stage).unwrap().count();
    until_true("the late-write check", || waiting() == 0);
    let kept = world.root().join(".tollgate/history");
    let found = walk(&kept).into_iter().any(|bytes| bytes == b"one");
    assert!(found, "the replaced bytes can be recovered");
}

fn walk(folder: &std::path::Path) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(walk(&path)) } else { found.push(std::fs::read(path).unwrap()) }
    }
    found
}
