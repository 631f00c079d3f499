//! What a client gets when a write is refused, and how it recovers.

use std::fs;

use serde_json::{Value, json};

use crate::world::{Client, World, refusal, sha256};

#[test]
fn a_stale_write_is_refused_and_succeeds_after_a_read() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let mut client = world.client();
    client.done("read_text_file", json!({"path": "a"}));
    world.outsider_writes("a", "foreign");
    let result = client.call("write_file", json!({"path": "a", "content": "mine"}));
    assert_eq!(
        refusal(&result, "STALE_FILE"),
        json!({
            "error_type": "STALE_FILE",
            "file_path": world.path("a"),
            "expected_hash": sha256("one"),
            "actual_hash": sha256("foreign"),
            "resolution": "RE_READ_REQUIRED",
        })
    );
    let report: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(
        report,
        json!({
            "error_type": "STALE_FILE",
            "message": "File modified by another actor. Re-read required.",
            "details": {
                "path": world.path("a"),
                "baseline_hash": sha256("one"),
                "current_disk_hash": sha256("foreign"),
            },
            "recovery_hint": "Perform a new 'read_file' to see the latest changes before attempting to write again.",
        })
    );
    world.holds("a", "foreign");
    assert_eq!(world.ledger("MUTATION_CONFLICT").len(), 1);
    for (tool, arguments) in [
        ("edit_file", json!({"path": "a", "edits": [{"oldText": "foreign", "newText": "mine"}]})),
        ("delete_file", json!({"path": "a"})),
        ("move_file", json!({"source": "a", "destination": "b"})),
    ] {
        client.refused(tool, arguments, "STALE_FILE");
    }
    world.holds("a", "foreign");
    assert_eq!(client.done("read_file", json!({"path": "a"})), "foreign");
    client.done("write_file", json!({"path": "a", "content": "foreign and mine"}));
    world.holds("a", "foreign and mine");
    // The agent's own write does not make the next one stale.
    client.done("write_file", json!({"path": "a", "content": "again"}));
}

#[test]
fn a_write_through_a_retargeted_link_is_refused_and_a_link_is_moved_and_deleted_itself() {
    let world = World::new();
    world.outsider_writes("v1/c", "old");
    world.outsider_writes("v2/c", "foreign");
    let cur = world.path("cur");
    std::os::unix::fs::symlink("v1", &cur).unwrap();
    let mut client = world.client();
    client.done("read_text_file", json!({"path": "cur/c"}));
    fs::remove_file(&cur).unwrap();
    std::os::unix::fs::symlink("v2", &cur).unwrap();
    client.refused("write_file", json!({"path": "cur/c", "content": "mine"}), "STALE_FILE");
    world.holds("v2/c", "foreign");
    client.done("move_file", json!({"source": "cur", "destination": "moved"}));
    client.done("delete_file", json!({"path": "moved"}));
    world.holds("v2/c", "foreign");
}

#[test]
fn a_deleted_file_is_stale_until_the_agent_has_read_it_again() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let mut client = world.client();
    client.done("read_text_file", json!({"path": "a"}));
    fs::remove_file(world.root().join("a")).unwrap();
    let result = client.call("write_file", json!({"path": "a", "content": "mine"}));
    assert_eq!(refusal(&result, "STALE_FILE")["actual_hash"], Value::Null);
    assert!(result["content"][0]["text"].as_str().unwrap().contains("Target missing. Re-read required."));
    client.fails("read_text_file", json!({"path": "a"}));
    client.done("write_file", json!({"path": "a", "content": "mine"}));
}

#[test]
fn an_expected_hash_overrides_what_was_read() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let mut client = world.client();
    let never = json!({"path": "a", "content": "x", "expected_hash": sha256("never")});
    let payload = client.refused("write_file", never, "STALE_FILE");
    assert_eq!(
        (&payload["expected_hash"], &payload["actual_hash"]),
        (&json!(sha256("never")), &json!(sha256("one")))
    );
    for (tool, arguments) in [
        (
            "edit_file",
            json!({"path": "a", "edits": [{"oldText": "one", "newText": "x"}], "expected_hash": sha256("never")}),
        ),
        ("delete_file", json!({"path": "a", "expected_hash": sha256("never")})),
        ("move_file", json!({"source": "a", "destination": "b", "expected_hash": sha256("never")})),
        (
            "write_files",
            json!({"changes": [{"path": "a", "content": "x", "expected_hash": sha256("never")}]}),
        ),
    ] {
        client.refused(tool, arguments, "STALE_FILE");
    }
    client.done("read_text_file", json!({"path": "a"}));
    world.outsider_writes("a", "two");
    let hash = format!("sha256:{}", sha256("two").to_uppercase());
    client.done("write_file", json!({"path": "a", "content": "three", "expected_hash": hash}));
    client.done("write_file", json!({"path": "a", "content": "four", "expected_hash": null}));
    world.holds("a", "four");
}

#[test]
fn several_changes_are_atomic_and_each_stale_file_has_a_report() {
    let world = World::new();
    for path in ["a", "b", "c"] {
        world.outsider_writes(path, path);
    }
    let mut client = world.client();
    client.done("read_multiple_files", json!({"paths": ["a", "b", "c"]}));
    world.outsider_writes("c", "foreign");
    world.outsider_writes("b", "foreign");
    let changes = json!([
        {"path": "c", "content": "x"}, {"path": "a", "content": "x"}, {"path": "b", "delete": true},
    ]);
    let result = client.call("write_files", json!({ "changes": changes }));
    assert_eq!(
        refusal(&result, "STALE_FILE")["file_path"],
        world.path("b"),
        "the first in the order of paths"
    );
    let paths: Vec<String> = result["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| serde_json::from_str::<Value>(item["text"].as_str().unwrap()).unwrap())
        .map(|report| report["details"]["path"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(paths, [world.path("b"), world.path("c")]);
    world.holds("a", "a");
    assert_eq!(world.ledger("MUTATION_CONFLICT").len(), 2);
    assert_eq!(world.ledger("MUTATION").len(), 0);
}

#[test]
fn a_preview_is_not_a_read() {
    let world = World::new();
    world.outsider_writes("a", "one\nrest\n");
    let mut client = world.client();
    client.done("read_text_file", json!({"path": "a"}));
    world.outsider_writes("a", "one\nforeign\n");
    let edits = json!([{"oldText": "one", "newText": "1"}]);
    client.done("edit_file", json!({"path": "a", "edits": edits, "dryRun": true}));
    client.refused("write_file", json!({"path": "a", "content": "1\nrest\n"}), "STALE_FILE");
    world.holds("a", "one\nforeign\n");
}

#[test]
fn after_a_refusal_a_partial_read_allows_edits_but_no_overwrite() {
    let world = World::new();
    world.outsider_writes("a", "one\ntwo\n");
    let mut client = world.client();
    client.done("read_text_file", json!({"path": "a"}));
    world.outsider_writes("a", "one\nforeign\n");
    client.refused("write_file", json!({"path": "a", "content": "x"}), "STALE_FILE");
    client.done("read_text_file", json!({"path": "a", "head": 1}));
    client.refused("write_file", json!({"path": "a", "content": "x"}), "STALE_FILE");
    client.done("read_text_file", json!({"path": "a", "head": 1}));
    client.done("edit_file", json!({"path": "a", "edits": [{"oldText": "one", "newText": "1"}]}));
    world.holds("a", "1\nforeign\n");
}

#[test]
fn other_refusals_have_the_same_shape() {
    let world =
        World::with("[guard]\nunread = \"refuse\"\nquiet_wait = \"20ms\"\nprotected = [\"secret\"]\n");
    world.outsider_writes("a", "x x");
    world.outsider_writes("linked", "x");
    fs::hard_link(world.root().join("linked"), world.root().join("linked2")).unwrap();
    fs::create_dir(world.root().join("d")).unwrap();
    let mut client = world.client();
    client.refused("write_file", json!({"path": "a", "content": "y"}), "UNREAD_FILE");
    client.done("read_multiple_files", json!({"paths": ["a", "linked"]}));
    let twice = json!([{"oldText": "x", "newText": "y"}]);
    client.refused("edit_file", json!({"path": "a", "edits": twice, "dryRun": true}), "TEXT_NOT_FOUND");
    client.refused("edit_file", json!({"path": "a", "edits": twice}), "TEXT_NOT_FOUND");
    client.refused("write_file", json!({"path": "linked", "content": "y"}), "HARD_LINKED");
    client.refused("read_text_file", json!({"path": "d"}), "NOT_A_FILE");
    World::new().client().refused("write_file", json!({"path": ".", "content": "y"}), "NOT_A_FILE");
    client.refused("write_file", json!({"path": "secret/x", "content": "y"}), "PROTECTED_PATH");
    client.refused("create_directory", json!({"path": "secret"}), "PROTECTED_PATH");
    let open = fs::OpenOptions::new().append(true).open(world.root().join("a")).unwrap();
    client.refused("write_file", json!({"path": "a", "content": "y"}), "FILE_BUSY");
    drop(open);
    client.done("write_file", json!({"path": "a", "content": "y"}));
}

/// A program recovers with the payload alone: it reads the file that the payload names, redoes its change and writes.
#[test]
fn a_controller_recovers_with_the_payload_alone() {
    let world = World::new();
    world.outsider_writes("count", "0");
    let add_one = |client: &mut Client| {
        loop {
            let text = client.done("read_text_file", json!({"path": "count"}));
            // Another actor changes the file before each of the first five writes.
            let now: u64 = text.parse().unwrap();
            if now < 5 {
                world.outsider_writes("count", (now + 1).to_string());
            }
            let result =
                client.call("write_file", json!({"path": "count", "content": (now + 100).to_string()}));
            match result["structuredContent"]["resolution"].as_str() {
                None => return,
                Some("RE_READ_REQUIRED") => {}
                Some(other) => panic!("{other}"),
            }
        }
    };
    add_one(&mut world.client());
    world.holds("count", "105");
    assert_eq!(world.ledger("MUTATION_CONFLICT").len(), 5);
}

#[test]
fn a_refused_write_is_merged_and_written_with_one_call() {
    let world = World::new();
    for (tool, change) in [
        ("write_file", json!({"path": "a", "content": "ONE\ntwo\nthree\n"})),
        ("edit_file", json!({"path": "a", "edits": [{"oldText": "one", "newText": "ONE"}]})),
    ] {
        world.outsider_writes("a", "one\ntwo\nthree\n");
        let mut client = world.client();
        client.done("read_text_file", json!({"path": "a"}));
        client.fails("merge_file", json!({"path": "a"}));
        world.outsider_writes("a", "one\ntwo\nTHREE\n");
        client.refused(tool, change, "STALE_FILE");
        let shown = client.call("merge_file", json!({"path": "a"}));
        let merge = &shown["structuredContent"];
        assert_eq!((&merge["clean"], &merge["written"]), (&json!(true), &json!(false)));
        assert_eq!(merge["content"], "ONE\ntwo\nTHREE\n");
        assert!(merge["diff"].as_str().unwrap().contains("-one\n+ONE\n"), "{merge}");
        assert_eq!(shown["_meta"]["sha256"], sha256("one\ntwo\nTHREE\n"), "of what was merged with");
        world.holds("a", "one\ntwo\nTHREE\n");
        let written = client.call("merge_file", json!({"path": "a", "write": true}));
        assert_eq!(written["structuredContent"]["written"], true);
        world.holds("a", "ONE\ntwo\nTHREE\n");
        client.done("write_file", json!({"path": "a", "content": "next"}));
    }
}

#[test]
fn a_merge_with_conflicts_is_not_written_and_counts_as_a_read() {
    let world = World::new();
    world.outsider_writes("a", "one\n");
    let mut client = world.client();
    client.done("read_text_file", json!({"path": "a"}));
    world.outsider_writes("a", "foreign\n");
    client.refused("write_file", json!({"path": "a", "content": "mine\n"}), "STALE_FILE");
    let merge = client.call("merge_file", json!({"path": "a", "write": true}));
    let merge = &merge["structuredContent"];
    assert_eq!((&merge["clean"], &merge["written"]), (&json!(false), &json!(false)));
    let content = merge["content"].as_str().unwrap();
    assert!(["<<<<<<<", "mine\n", "foreign\n"].iter().all(|part| content.contains(part)), "{content}");
    world.holds("a", "foreign\n");
    client.done("write_file", json!({"path": "a", "content": "foreign and mine\n"}));
    client.fails("merge_file", json!({"path": "../outside"}));
    client.refused("merge_file", json!({"path": ".tollgate/version"}), "PROTECTED_PATH");
}
