//! Turns: one running turn per connection, more by `turn_id`, and how they end.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::world::{Client, World, sha256};

fn begin(client: &mut Client) -> String {
    let result = client.call("begin_turn", json!({}));
    let id = result["structuredContent"]["turn_id"].as_str().unwrap().to_owned();
    assert_eq!(result["content"][0]["text"], json!({ "turn_id": id }).to_string());
    id
}

#[test]
fn a_new_turn_knows_nothing() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let mut client = world.client();
    client.done("read_text_file", json!({"path": "a"}));
    let hash = |client: &mut Client| {
        let result = client.call("get_initial_hash", json!({"file_path": "./a"}));
        assert_eq!(result["structuredContent"]["file_path"], world.path("a"));
        result["structuredContent"]["initial_hash"].clone()
    };
    assert_eq!(hash(&mut client), sha256("one"));
    world.outsider_writes("a", "two");
    client.done("read_text_file", json!({"path": "a"}));
    assert_eq!(hash(&mut client), sha256("one"), "the first sighting does not change");
    begin(&mut client);
    assert_eq!(hash(&mut client), json!(null));
    client.done("read_text_file", json!({"path": "a"}));
    assert_eq!(hash(&mut client), sha256("two"));
    client.done("end_turn", json!({}));
    assert_eq!(hash(&mut client), json!(null));
}

#[test]
fn known_remembers_earlier_turns_of_the_connection_and_earlier_connections() {
    let world = World::with("[guard]\nunread = \"known\"");
    world.outsider_writes("a", "one");
    let mut client = world.client();
    client.done("read_text_file", json!({"path": "a"}));
    world.outsider_writes("a", "foreign");
    let write = json!({"path": "a", "content": "mine"});
    client.refused("write_file", write.clone(), "STALE_FILE");
    begin(&mut client);
    client.refused("write_file", write.clone(), "STALE_FILE");
    drop(client);
    let mut client = world.client();
    client.refused("write_file", write.clone(), "STALE_FILE");
    world.holds("a", "foreign");
    client.done("read_text_file", json!({"path": "a"}));
    client.done("write_file", write);
}

#[test]
fn connections_do_not_share_what_they_read() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let (mut first, mut second) = (world.client(), world.client());
    first.done("read_text_file", json!({"path": "a"}));
    second.done("read_text_file", json!({"path": "a"}));
    first.done("write_file", json!({"path": "a", "content": "first"}));
    let payload = second.refused("write_file", json!({"path": "a", "content": "second"}), "STALE_FILE");
    assert_eq!(payload["actual_hash"], sha256("first"));
}

#[test]
fn agents_that_share_a_connection_pass_their_turn_id() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let mut client = world.client();
    let (first, second) = (begin(&mut client), begin(&mut client));
    client.done("read_text_file", json!({"path": "a", "turn_id": first}));
    client.done("read_text_file", json!({"path": "a", "turn_id": second}));
    client.done("write_file", json!({"path": "a", "content": "first", "turn_id": first}));
    client.refused("write_file", json!({"path": "a", "content": "second", "turn_id": second}), "STALE_FILE");
    // The running turn is the one that was begun last.
    let result = client.call("get_initial_hash", json!({"file_path": "a"}));
    assert_eq!(result["structuredContent"]["initial_hash"], sha256("one"));
    client.done("end_turn", json!({"turn_id": first}));
    for tool in ["read_text_file", "delete_file"] {
        let words = client.fails(tool, json!({"path": "a", "turn_id": first}));
        assert!(words.contains("unknown turn") && words.contains("call begin_turn"), "{words}");
    }
    client.fails("end_turn", json!({"turn_id": "t-nobody"}));
    client.done("read_text_file", json!({"path": "a", "turn_id": second}));
    client.done("write_file", json!({"path": "a", "content": "second", "turn_id": second}));
}

#[test]
fn the_end_of_every_turn_is_in_the_ledger() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let mut client = world.client();
    client.done("list_directory", json!({"path": "."}));
    assert_eq!(world.ledger("TURN_STARTED").len(), 0, "listing a folder does not begin a turn");
    client.fails("end_turn", json!({}));
    client.done("read_text_file", json!({"path": "a"}));
    begin(&mut client);
    let named = begin(&mut client);
    client.done("end_turn", json!({"turn_id": named}));
    assert_eq!((world.ledger("TURN_STARTED").len(), world.ledger("TURN_ENDED").len()), (3, 1));
    client.closes();
    assert_eq!((world.ledger("TURN_STARTED").len(), world.ledger("TURN_ENDED").len()), (3, 3));
}

#[test]
fn an_idle_turn_ends_and_is_never_silently_replaced() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let server = world.idle_after(Duration::from_millis(50));
    let mut client = Client::of(server.clone());
    let named = begin(&mut client);
    begin(&mut client);
    client.done("read_text_file", json!({"path": "a"}));
    let until = Instant::now() + Duration::from_secs(20);
    while world.ledger("TURN_ENDED").is_empty() {
        assert!(Instant::now() < until, "the turn never ended");
        server.expire();
    }
    let words = client.fails("write_file", json!({"path": "a", "content": "x", "turn_id": named}));
    assert!(words.contains("it was idle for too long"), "{words}");
    // The running turn of an open connection is kept: without it this write would be unguarded.
    world.outsider_writes("a", "foreign");
    client.refused("write_file", json!({"path": "a", "content": "x"}), "STALE_FILE");
}

#[test]
fn reads_of_earlier_turns_count_if_the_policy_says_so() {
    let world = World::with("[guard]\nunread = \"known\"\n");
    world.outsider_writes("a", "one");
    let mut client = world.client();
    client.done("read_text_file", json!({"path": "a"}));
    client.done("end_turn", json!({}));
    world.outsider_writes("a", "foreign");
    client.refused("write_file", json!({"path": "a", "content": "x"}), "STALE_FILE");
}
