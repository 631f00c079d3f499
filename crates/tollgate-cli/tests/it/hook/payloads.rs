//! Payloads recorded from real programs (the first four, and the last two), and payloads from the documentation of the others.

use serde_json::Value;

use super::{HOSTS, reserved};
use crate::world::{World, hash};

fn recorded(host: &str) -> &'static str {
    match host {
        "claude-code" => include_str!("recorded/claude-code.jsonl"),
        "codex" => include_str!("recorded/codex.jsonl"),
        "gemini" => include_str!("recorded/gemini.jsonl"),
        "opencode" => include_str!("recorded/opencode.jsonl"),
        "cursor" => include_str!("recorded/cursor.jsonl"),
        "copilot" => include_str!("recorded/copilot.jsonl"),
        "cline" => include_str!("recorded/cline.jsonl"),
        "kilo" => include_str!("recorded/kilo.jsonl"),
        _ => include_str!("recorded/qwen.jsonl"),
    }
}

/// Replays a recorded session with the same effects of its tools. Returns the payload before the edit of `a.txt`.
fn play(world: &World, host: &str, called: &str) -> String {
    world.puts("a.txt", "hello\n");
    let mut edit = None;
    for line in recorded(host).lines() {
        let line = line.replace("/workspace", world.root().to_str().unwrap());
        let is_after =
            ["PostToolUse", "AfterTool", "execute.after", "postToolUse", "toolResult", "tool_result"]
                .iter()
                .any(|word| line.contains(word));
        if is_after && line.contains("hello world") {
            world.puts("a.txt", "hello world\n");
        } else if is_after && line.contains("b.txt") {
            world.puts("b.txt", "new\n");
        } else if line.contains("hello world") {
            edit.get_or_insert(line.clone());
        }
        let ran = world.tollgate(["hook", called]).stdin(&line).ends().is(0);
        // At the start of a session, the agent is informed.
        let starts = line.contains("\"SessionStart\"");
        let greets = ran.stdout().contains("tollgate guards the files in this folder");
        let must = starts && host == called && ["claude-code", "gemini", "qwen"].contains(&host);
        assert!(greets || !must, "{line}");
        let said = if starts && greets { String::new() } else { ran.stdout() };
        assert_eq!((said, ran.stderr()), (String::new(), String::new()), "{line}");
    }
    edit.unwrap()
}

fn files(world: &World) -> Vec<Value> {
    let turns = world.json("turn list");
    assert_eq!(turns.as_array().unwrap().len(), 1, "{turns}");
    let id = turns[0]["turn_id"].as_str().unwrap();
    world.json(&format!("turn show --turn {id}"))["files"].as_array().unwrap().clone()
}

#[test]
fn a_recorded_session_is_followed_and_its_stale_edit_is_blocked() {
    for host in HOSTS {
        let world = World::new();
        let edit = play(&world, host, host);
        let files = files(&world);
        assert_eq!(files[0]["initial_hash"], hash("hello\n"), "{host}: {files:?}");
        assert_eq!(files[0]["baseline_hash"], hash("hello world\n"), "{host}: {files:?}");
        if host != "codex" {
            assert_eq!(files[1]["baseline_hash"], hash("new\n"), "{host}: {files:?}");
        }
        assert_eq!(reserved(&world), 0, "{host}");
        world.puts("a.txt", "hello foreign\n");
        let ran = world.tollgate(["hook", host]).stdin(&edit).ends().is(0);
        assert!(ran.json().to_string().contains("STALE_FILE"), "{host}");
    }
}

#[test]
fn a_program_that_calls_the_hook_of_another_gets_an_answer_in_its_own_format() {
    for host in HOSTS {
        let own = World::new();
        let edit = play(&own, host, host);
        own.puts("a.txt", "hello foreign\n");
        let expected = own.tollgate(["hook", host]).stdin(&edit).ends().filtered;
        for other in HOSTS.into_iter().filter(|other| *other != host) {
            let world = World::new();
            let edit = play(&world, host, other);
            world.puts("a.txt", "hello foreign\n");
            let answer = world.tollgate(["hook", other]).stdin(&edit).ends().filtered;
            assert_eq!(answer, expected, "{host} called as {other}");
        }
    }
}

#[test]
fn a_byte_order_mark_before_the_payload_is_ignored() {
    let world = World::new();
    let edit = play(&world, "cursor", "cursor");
    world.puts("a.txt", "hello foreign\n");
    let ran = world.tollgate(["hook", "cursor"]).stdin(format!("\u{feff}{edit}")).ends().is(0);
    assert!(ran.stdout().contains("STALE_FILE"));
}

/// The prompt of the recorded session, as that of its next turn.
fn next_prompt(world: &World, host: &str) -> String {
    let begins = |line: &&str| {
        let words = ["\"prompt\": \"edit a.txt\"", "chat.message", "prompt_submit"];
        words.iter().any(|word| line.contains(word)) && !line.contains("prompt_response")
    };
    let line = recorded(host).lines().find(begins).unwrap();
    let line = line.replace("550e8400", "550e8401").replace("84de-7c00", "84df-7c00").replace("g-1", "g-2");
    let line = line.replace("########0", "########1");
    line.replace("/workspace", world.root().to_str().unwrap())
}

#[test]
fn a_turn_leaves_a_record_of_who_asked_for_it_and_what_its_agent_was_shown() {
    for host in HOSTS {
        let world = World::new();
        play(&world, host, host);
        let id = world.json("turn list")[0]["turn_id"].as_str().unwrap().to_owned();
        assert!(world.json(&format!("show {id}")).get("record").is_none(), "{host}: the turn goes on");
        world.tollgate(["hook", host]).stdin(next_prompt(&world, host)).ends().is(0);
        let shown = world.json(&format!("show {id}"));
        let (record, first) = (&shown["record"], &shown["reads"][0]);
        assert_eq!(
            (&first["path"], &first["hash"]),
            (&"a.txt".into(), &hash("hello\n").into()),
            "{host}: {shown}"
        );
        assert_eq!(record["host"], host);
        let says_model = ["claude-code", "codex", "cursor", "qwen"].contains(&host);
        assert_eq!(record.get("model").is_some(), says_model, "{host}: {record}");
        let says_prompt = !["opencode", "cline", "kilo"].contains(&host);
        let expected = if says_prompt { hash("edit a.txt").into() } else { Value::Null };
        assert_eq!((&record["prompt_sha256"], &record["prompt"]), (&expected, &Value::Null), "{host}");
    }
}
