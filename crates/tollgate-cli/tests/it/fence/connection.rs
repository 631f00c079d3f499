//! An MCP connection with claims of its own.

use std::fs;

use serde_json::json;

use super::fenced_lines;
use crate::mcp::Client;
use crate::world::World;

fn world() -> World {
    let world = World::with("[vault]\ndurability = \"fast\"\nlease = \"10h\"\nretry = []\n");
    world.run("init --vault").is(0);
    world.puts("a", "one");
    world
}

/// A person takes the task from its owner.
fn taken_away(world: &World, task: &str) {
    let from = world.path(format!("vault/In_Progress/blue/{task}.md"));
    fs::rename(from, world.path(format!("vault/Needs_Action/{task}.md"))).unwrap();
}

#[test]
fn a_connection_that_lost_a_claim_writes_nothing_until_its_agent_has_heard_of_it() {
    let world = world();
    for task in ["x", "y"] {
        world.run(&format!("task add {task} --agent ada")).is(0);
    }
    let (mut blue, mut red) = (Client::of(&world, "blue"), Client::of(&world, "red"));
    let write = || json!({"path": "a", "content": "mine"});
    blue.done("write_file", write());
    let claims = ["x", "y"].map(|task| blue.done("claim_task", json!({"task": task})));
    blue.done("write_file", write());
    taken_away(&world, "x");
    red.done("claim_task", json!({"task": "x"}));
    world.puts("a", "theirs");
    red.done("read_text_file", json!({"path": "a"}));
    for (tool, arguments) in [
        ("write_file", write()),
        ("edit_file", json!({"path": "a", "edits": [{"oldText": "theirs", "newText": "mine"}]})),
        (
            "write_files",
            json!({"changes": [{"path": "a", "content": "mine"}, {"path": "b", "content": "mine"}]}),
        ),
        ("delete_file", json!({"path": "a"})),
        ("move_file", json!({"source": "a", "destination": "c"})),
        ("create_directory", json!({"path": "d"})),
    ] {
        blue.done("read_text_file", json!({"path": "a"}));
        let before = fenced_lines(&world).len();
        let payload = blue.refused(tool, arguments);
        assert_eq!((&payload["error_type"], &payload["resolution"]), (&json!("FENCED"), &json!("STOP_WORK")));
        world.holds("a", "theirs");
        assert!(!world.path("d").exists(), "{tool}");
        assert_eq!(fenced_lines(&world).len(), before + 1, "{tool}");
    }
    red.done("write_file", json!({"path": "a", "content": "red"}));
    // The tool tells the agent that it is not the owner. From then on only its other claim counts.
    let release =
        |n: usize| json!({"task": (["x", "y"][n]), "claim_id": claims[n]["claim_id"], "result": "failure"});
    blue.refused("release_task", release(0));
    blue.done("read_text_file", json!({"path": "a"}));
    blue.done("write_file", write());
    taken_away(&world, "y");
    blue.refused("write_file", write());
    blue.refused("report_progress", json!({"task": "y", "claim_id": claims[1]["claim_id"], "text": "half"}));
    blue.done("write_file", write());
}

#[test]
fn after_its_release_a_claim_fences_its_connection_no_more() {
    let world = world();
    world.run("task add x --agent ada").is(0);
    let mut blue = Client::of(&world, "blue");
    let claimed = blue.done("claim_task", json!({}));
    blue.done("release_task", json!({"task": "x", "claim_id": claimed["claim_id"], "result": "success"}));
    blue.done("write_file", json!({"path": "a", "content": "mine"}));
    world.holds("a", "mine");
}
