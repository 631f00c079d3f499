//! Premises: an agent hears that a file which it has read in its turn was changed by somebody else, once, and through every door.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::hook::{Program, Tool};
use crate::mcp::Client;
use crate::world::{World, hash, until};

/// A workspace with two files.
fn world(settings: &str) -> World {
    let world = World::with(&format!("[guard]\ndurability = \"fast\"\ngrace = \"1ms\"\n{settings}\n"));
    world.puts("api.ts", "one\ntwo\nthree\n");
    world.puts("b.ts", "b\n");
    world
}

/// `red` changes `api.ts` with a guarded write.
fn red_writes(world: &World, text: &str) {
    world.tollgate(["write", "api.ts", "--agent", "red"]).stdin(text).ends().is(0);
}

/// What a call of an agent on the command line tells it.
fn told(world: &World, turn: &str, line: &str) -> String {
    let ran = world.tollgate(line.split_whitespace()).env("TOLLGATE_TURN", turn).stdin("mine\n").ends().is(0);
    world.filtered(&ran.stderr())
}

/// A program that does not use tollgate saves a file. The clock of files ticks slowly, and what is saved while a command of the agent
/// runs counts as its own: so it is saved until its time is later than now.
fn saves(world: &World, file: &str, text: &str) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    until("the clock of files", || {
        world.puts(file, text);
        let found = fs::metadata(world.path(file)).unwrap();
        let changed = (found.ctime(), found.ctime_nsec());
        (changed > (now.as_secs() as i64, i64::from(now.subsec_nanos()))).then_some(())
    });
}

const BY_RED: &str = "note: `api.ts`, which you read [N] s ago, was changed by `red` (1 line)
@@ -1,3 +1,3 @@
 one
-two
+TWO
 three
";

#[test]
fn the_command_line_tells_of_a_change_once() {
    let world = world("");
    let turn = world.turn("blue");
    assert_eq!(told(&world, &turn, "read api.ts"), "");
    assert_eq!(told(&world, &turn, "read b.ts"), "");
    red_writes(&world, "one\nTWO\nthree\n");
    // Programs get one document, and nothing beside it.
    world.json(&format!("read b.ts --turn {turn}"));
    assert_eq!(told(&world, &turn, "read b.ts"), BY_RED);
    assert_eq!(told(&world, &turn, "read b.ts"), "");
    // Other bytes are other news.
    world.puts("api.ts", "one\nTWO\n");
    let by_nobody = "note: `api.ts`, which you read [N] s ago, was changed by a program that does not use tollgate (2 lines)\n";
    assert!(told(&world, &turn, "write b.ts").starts_with(by_nobody));
    // The same bytes again are not.
    world.puts("api.ts", "one\nTWO\nthree\n");
    assert_eq!(told(&world, &turn, "read b.ts"), "");
    // A refusal says it all.
    world.puts("api.ts", "other\n");
    let refused = world.tollgate(["write", "api.ts", "--turn", &turn]).stdin("x").ends().is(1);
    assert!(refused.stderr().contains("is stale") && !refused.stderr().contains("note:"), "{refused}");
    assert_eq!(told(&world, &turn, "read b.ts"), "");
    fs::remove_file(world.path("api.ts")).unwrap();
    let deleted =
        "note: `api.ts`, which you read [N] s ago, was deleted by a program that does not use tollgate\n";
    assert_eq!(told(&world, &turn, "read b.ts"), deleted);
    // It is not read again, so the next turn does not rest on it.
    world.run(&format!("turn end --turn {turn}")).is(0);
    let next = world.turn("blue");
    world.puts("api.ts", "again\n");
    assert_eq!(told(&world, &next, "read b.ts"), "");
}

/// Each row: what happens after `blue` has begun a turn, and whether it is told of a change of `api.ts` then.
#[test]
fn only_what_an_agent_was_shown_as_a_whole_and_has_not_changed_itself_is_a_premise() {
    for (what, calls, is_told) in [
        ("read", &["read api.ts"][..], true),
        ("read by a command that names it", &["run -- cat api.ts"], true),
        ("read in part", &["read api.ts --lines 1"], false),
        ("read in part, then as a whole", &["read api.ts --lines 1", "read api.ts"], true),
        ("searched", &["run -- grep -r two ."], false),
        ("opened by a command that does not name it", &["run -- cat link"], false),
        ("never read", &["read b.ts"], false),
        ("written, not read", &["write api.ts"], false),
    ] {
        let world = world("");
        std::os::unix::fs::symlink("api.ts", world.path("link")).unwrap();
        let turn = world.turn("blue");
        for call in calls {
            assert_eq!(told(&world, &turn, call), "", "{what}");
        }
        world.puts("api.ts", "one\nTWO\nthree\n");
        assert_eq!(told(&world, &turn, "read b.ts").contains("`api.ts`, which you read"), is_told, "{what}");
    }
}

#[test]
fn what_an_agent_changed_itself_and_bytes_that_changed_back_are_no_news() {
    let world = world("");
    let turn = world.turn("blue");
    for call in ["read api.ts", "write api.ts", "edit api.ts --old mine --new more", "run -- touch api.ts"] {
        assert_eq!(told(&world, &turn, call), "", "{call}");
    }
    world
        .tollgate(["run", "--turn", &turn, "--", "sh", "-c", "echo own >> api.ts"])
        .everywhere()
        .ends()
        .is(0);
    assert_eq!(told(&world, &turn, "read b.ts"), "");
    // Another call of the same agent, without the turn.
    world.tollgate(["write", "api.ts", "--agent", "blue"]).stdin("elsewhere\n").ends().is(0);
    assert_eq!(told(&world, &turn, "read b.ts"), "");
    world.puts("api.ts", "foreign\n");
    world.puts("api.ts", "elsewhere\n");
    assert_eq!(told(&world, &turn, "read b.ts"), "");
    world.puts("api.ts", "foreign\n");
    assert!(told(&world, &turn, "read b.ts").contains("does not use tollgate"));
}

#[test]
fn a_run_tells_on_stderr_and_programs_over_mcp_find_it_behind_the_answer() {
    let world = world("");
    let turn = world.turn("blue");
    assert_eq!(told(&world, &turn, "read api.ts"), "");
    let mut client = Client::of(&world, "green");
    client.done("read_text_file", json!({"path": "api.ts"}));
    red_writes(&world, "one\nTWO\nthree\n");
    let ran = world.tollgate(["run", "--turn", &turn, "--", "true"]).everywhere().ends().is(0);
    assert_eq!(world.filtered(&ran.stderr()), BY_RED);
    for is_told in [true, false] {
        let answer = client.call("read_text_file", json!({"path": "b.ts"}));
        let content = answer["content"].as_array().unwrap();
        assert_eq!(
            (&content[0]["text"], &answer["structuredContent"]["content"]),
            (&json!("b\n"), &json!("b\n"))
        );
        let notes: Vec<String> =
            content[1..].iter().map(|item| world.filtered(item["text"].as_str().unwrap())).collect();
        let expected = if is_told { vec![BY_RED.trim_end().to_owned()] } else { vec![] };
        assert_eq!(notes, expected);
    }
    // A turn that the client names is told for itself.
    let begun = client.done("begin_turn", json!({}));
    let id = begun["turn_id"].as_str().unwrap();
    client.done("read_text_file", json!({"path": "api.ts", "turn_id": id}));
    world.puts("api.ts", "\n");
    let answer = client.call("write_file", json!({"path": "b.ts", "content": "x", "turn_id": id}));
    assert!(answer["content"][1]["text"].as_str().unwrap().contains("does not use tollgate"), "{answer}");
}

/// A program discards an answer that names another event.
#[test]
fn a_note_after_a_tool_that_failed_names_the_event_of_the_failure() {
    for host in ["claude-code", "qwen"] {
        let world = world("");
        let agent = Program::new(&world, host, "s");
        agent.reads("api.ts").reads("b.ts");
        red_writes(&world, "one\nTWO\nthree\n");
        let tool = Tool::Edit("b.ts", "no such text", "x");
        assert_eq!(agent.asks(&agent.before(&tool, "c")), None);
        let mut payload = agent.after(&tool, "c", "");
        payload["hook_event_name"] = "PostToolUseFailure".into();
        payload["error"] = "no such text".into();
        let answer = world.tollgate(["hook", host]).stdin(payload.to_string()).ends().is(0).json();
        let said = &answer["hookSpecificOutput"];
        assert_eq!(said["hookEventName"], "PostToolUseFailure", "{host}: {answer}");
        assert!(said["additionalContext"].as_str().unwrap().contains("api.ts"), "{host}: {answer}");
    }
}

#[test]
fn hooks_tell_after_a_tool_and_beside_a_prompt_where_the_program_can_show_it() {
    for host in ["claude-code", "codex", "gemini", "opencode", "qwen", "kilo"] {
        let world = world("");
        let agent = Program::new(&world, host, "s");
        agent.reads("api.ts").reads("b.ts");
        red_writes(&world, "one\nTWO\nthree\n");
        let told = agent.hears(&Tool::Read("b.ts"));
        assert_eq!(world.filtered(&told) + "\n", BY_RED, "{host}");
        agent.reads("b.ts").writes("b.ts", "mine\n").ran();
        saves(&world, "api.ts", "foreign\n");
        let told = agent.hears_at_prompt();
        assert_eq!(
            told.contains("does not use tollgate"),
            !["opencode", "kilo"].contains(&host),
            "{host}: {told}"
        );
        // Its new turn rests on nothing yet.
        saves(&world, "api.ts", "more\n");
        agent.reads("b.ts");
    }
}

#[test]
fn a_refused_call_tells_of_other_changes_too_whatever_the_program() {
    for host in crate::hook::HOSTS {
        let world = world("");
        let agent = Program::new(&world, host, "s");
        agent.reads("api.ts").reads("b.ts");
        saves(&world, "b.ts", "foreign\n");
        red_writes(&world, "one\nTWO\nthree\n");
        let reason = agent.writes("b.ts", "mine\n").blocked();
        assert!(
            reason.contains("`api.ts`, which you read ") && reason.contains("\n-two\n+TWO\n"),
            "{host}: {reason}"
        );
        assert!(!reason.contains("note: `b.ts`"), "{host}: {reason}");
        agent.reads("b.ts");
    }
}

#[test]
fn a_refusal_names_every_changed_premise() {
    let world = world("premises = \"refuse\"");
    let turn = world.turn("blue");
    for file in ["b.ts", "api.ts"] {
        assert_eq!(told(&world, &turn, &format!("read {file}")), "");
    }
    red_writes(&world, "one\nTWO\nthree\n");
    world.puts("b.ts", "foreign\n");
    let refused = world.tollgate(["write", "new.ts", "--turn", &turn]).stdin("x").ends().is(1);
    let reports: Vec<Value> =
        refused.stdout().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(reports.len(), 1, "{refused}");
    let changed: Vec<(&str, &Value)> = reports[0]["changed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| (file["path"].as_str().unwrap().rsplit('/').next().unwrap(), &file["changed_by"]))
        .collect();
    assert_eq!(changed, [("api.ts", &json!("red")), ("b.ts", &Value::Null)]);
    let first = world.filtered(refused.stderr().lines().next().unwrap());
    assert_eq!(first, "refused: `new.ts` was not changed, because your work rests on files that were");
    let again = world.tollgate(["write", "new.ts", "--json", "--turn", &turn]).stdin("x").ends();
    let payload = again.payload("PREMISE_CHANGED", "RE_READ_REQUIRED");
    assert_eq!(payload["file_path"], world.path("api.ts").to_str().unwrap());
    assert_eq!(payload["expected_hash"], hash("one\ntwo\nthree\n"));
    assert!(!world.path("new.ts").exists());
    // After a refusal, the part of interest is enough.
    assert_eq!(told(&world, &turn, "read api.ts --lines 2"), "");
    assert_eq!(told(&world, &turn, "read b.ts"), "");
    assert_eq!(told(&world, &turn, "write new.ts"), "");
    world.holds("new.ts", "mine\n");
    let lines = world.run("ledger tail --json");
    assert_eq!(lines.stdout().matches("PREMISE_CHANGED").count(), 2, "{lines}");
}

#[test]
fn nothing_is_said_if_the_settings_say_so_or_only_observe() {
    for settings in ["premises = \"off\"", "mode = \"observe\"", "mode = \"off\""] {
        let world = world(settings);
        let turn = world.turn("blue");
        assert_eq!(told(&world, &turn, "read api.ts"), "");
        world.puts("api.ts", "foreign\n");
        assert_eq!(told(&world, &turn, "read b.ts"), "", "{settings}");
    }
}

#[test]
fn a_branch_switch_names_ten_files_and_counts_the_others() {
    let world = world("");
    let turn = world.turn("blue");
    for n in 0..25 {
        world.puts(format!("f{n:02}"), "one\n".repeat(50));
        assert_eq!(told(&world, &turn, &format!("read f{n:02}")), "");
    }
    for n in 0..25 {
        world.puts(format!("f{n:02}"), "two\n".repeat(50));
    }
    let notes = told(&world, &turn, "read b.ts");
    assert_eq!(notes.matches("which you read").count(), 10, "{notes}");
    assert!(
        notes.ends_with("note: 15 more files that you have read in this turn were changed by others\n"),
        "{notes}"
    );
    assert!(notes.len() < 10_000, "{}", notes.len());
    assert_eq!(told(&world, &turn, "read b.ts"), "");
}
