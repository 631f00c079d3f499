//! The exact answers, in the format of each program's documentation.

use serde_json::{Value, json};

use super::{HOSTS, Program, Tool};
use crate::world::World;

/// An object with exactly these fields.
fn exactly(fields: Value) -> Value {
    let names: Vec<&String> = fields.as_object().unwrap().keys().collect();
    json!({"type": "object", "required": names, "properties": fields, "additionalProperties": false})
}

/// The schema of the answer that blocks a tool, from each program's documentation: Claude Code (hooks reference), Codex CLI
/// (its generated schema for the output before a tool, where any other field makes the whole answer void), Gemini CLI (hooks
/// reference), Cursor (hooks), Copilot CLI (hooks configuration), Cline (hooks), Qwen Code (hooks). opencode and Kilo Code have no format: tollgate's plugin
/// reads the answer and throws an error.
fn blocks(host: &str) -> Value {
    // Some programs truncate longer texts.
    let reason = json!({"type": "string", "minLength": 1, "maxLength": 10_000});
    match host {
        "claude-code" | "codex" | "qwen" => exactly(json!({"hookSpecificOutput": exactly(json!({
            "hookEventName": {"const": "PreToolUse"},
            "permissionDecision": {"const": "deny"},
            "permissionDecisionReason": reason,
        }))})),
        "gemini" => exactly(json!({"decision": {"const": "deny"}, "reason": reason})),
        "opencode" | "kilo" => exactly(json!({"deny": reason})),
        "cursor" => {
            exactly(json!({"permission": {"const": "deny"}, "agent_message": reason, "user_message": reason}))
        }
        "copilot" => {
            exactly(json!({"permissionDecision": {"const": "deny"}, "permissionDecisionReason": reason}))
        }
        // The first form ends the run, so it is only for calls that cannot be read.
        _ => json!({"anyOf": [
            exactly(json!({"cancel": {"const": true}, "errorMessage": reason})),
            exactly(json!({"overrideInput": {"type": "object"}, "context": reason})),
        ]}),
    }
}

#[test]
fn every_answer_has_the_programs_format() {
    for host in HOSTS {
        let validator = jsonschema::validator_for(&blocks(host)).unwrap();
        for wrong in [json!({}), json!({"decision": "allow"}), json!({"continue": false, "stopReason": "x"})]
        {
            assert!(!validator.is_valid(&wrong), "{host}");
        }
        let world = World::with("[guard]\nquiet_wait = \"20ms\"");
        world.puts("a.txt", "one\n");
        let agent = Program::new(&world, host, "s1");
        agent.reads("a.txt");
        // The text of a file may be long, and may look like JSON or control characters.
        world.puts("a.txt", "}\"\u{1b}[31m\n".repeat(20_000));
        let stale = agent.before(&Tool::Write("a.txt", "mine\n"), "c").to_string();
        let shell = agent.before(&Tool::Shell("echo x > a.txt"), "c").to_string();
        let protected = agent.before(&Tool::Write(".tollgate/config.toml", ""), "c").to_string();
        let mut answers = Vec::new();
        for payload in [&stale, &stale, &shell, &protected, "{", "\u{1b}[31m"] {
            answers.push(world.tollgate(["hook", host]).stdin(payload).ends().is(0));
        }
        world.puts(".tollgate/version", "99");
        answers.push(world.tollgate(["hook", host]).stdin(&stale).ends().is(0));
        for ran in answers {
            let answer: Value = serde_json::from_str(&ran.stdout()).unwrap();
            assert!(ran.stdout().ends_with("}\n"), "{host}: {ran}");
            let wrong: Vec<String> = validator.iter_errors(&answer).map(|error| error.to_string()).collect();
            assert!(wrong.is_empty(), "{host}: {wrong:?}");
        }
    }
}

fn stale(host: &'static str) -> String {
    let world = World::new();
    world.puts("a.txt", "one\n");
    let agent = Program::new(&world, host, "session-1");
    agent.reads("a.txt");
    world.puts("a.txt", "foreign\n");
    world
        .tollgate(["hook", host])
        .stdin(agent.before(&Tool::Write("a.txt", "mine\n"), "c").to_string())
        .ends()
        .filtered
}

#[test]
fn claude_code() {
    insta::assert_snapshot!(stale("claude-code"), @r#"
    exit 0
    --- stdout
    {"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"{\"error_type\":\"STALE_FILE\",\"file_path\":\"[W]/a.txt\",\"expected_hash\":\"[HASH]\",\"actual_hash\":\"[HASH]\",\"resolution\":\"RE_READ_REQUIRED\"}\n`a.txt` was changed by someone else since you last saw it. Read the whole of `a.txt` again, redo your change on what you find, then write.\nNothing was changed."}}
    "#);
}

#[test]
fn codex() {
    insta::assert_snapshot!(stale("codex"), @r#"
    exit 0
    --- stdout
    {"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"{\"error_type\":\"STALE_FILE\",\"file_path\":\"[W]/a.txt\",\"expected_hash\":\"[HASH]\",\"actual_hash\":\"[HASH]\",\"resolution\":\"RE_READ_REQUIRED\"}\n`a.txt` was changed by someone else since you last saw it. Read the whole of `a.txt` again, redo your change on what you find, then write.\nNothing was changed."}}
    "#);
}

#[test]
fn gemini() {
    insta::assert_snapshot!(stale("gemini"), @r#"
    exit 0
    --- stdout
    {"decision":"deny","reason":"{\"error_type\":\"STALE_FILE\",\"file_path\":\"[W]/a.txt\",\"expected_hash\":\"[HASH]\",\"actual_hash\":\"[HASH]\",\"resolution\":\"RE_READ_REQUIRED\"}\n`a.txt` was changed by someone else since you last saw it. Read the whole of `a.txt` again, redo your change on what you find, then write.\nNothing was changed."}
    "#);
}

#[test]
fn opencode() {
    insta::assert_snapshot!(stale("opencode"), @r#"
    exit 0
    --- stdout
    {"deny":"{\"error_type\":\"STALE_FILE\",\"file_path\":\"[W]/a.txt\",\"expected_hash\":\"[HASH]\",\"actual_hash\":\"[HASH]\",\"resolution\":\"RE_READ_REQUIRED\"}\n`a.txt` was changed by someone else since you last saw it. Read the whole of `a.txt` again, redo your change on what you find, then write.\nNothing was changed."}
    "#);
}

#[test]
fn kilo() {
    insta::assert_snapshot!(stale("kilo"), @r#"
    exit 0
    --- stdout
    {"deny":"{\"error_type\":\"STALE_FILE\",\"file_path\":\"[W]/a.txt\",\"expected_hash\":\"[HASH]\",\"actual_hash\":\"[HASH]\",\"resolution\":\"RE_READ_REQUIRED\"}\n`a.txt` was changed by someone else since you last saw it. Read the whole of `a.txt` again, redo your change on what you find, then write.\nNothing was changed."}
    "#);
}

#[test]
fn cursor() {
    insta::assert_snapshot!(stale("cursor"), @r#"
    exit 0
    --- stdout
    {"permission":"deny","agent_message":"{\"error_type\":\"STALE_FILE\",\"file_path\":\"[W]/a.txt\",\"expected_hash\":\"[HASH]\",\"actual_hash\":\"[HASH]\",\"resolution\":\"RE_READ_REQUIRED\"}\n`a.txt` was changed by someone else since you last saw it. Read the whole of `a.txt` again, redo your change on what you find, then write.\nNothing was changed.","user_message":"{\"error_type\":\"STALE_FILE\",\"file_path\":\"[W]/a.txt\",\"expected_hash\":\"[HASH]\",\"actual_hash\":\"[HASH]\",\"resolution\":\"RE_READ_REQUIRED\"}\n`a.txt` was changed by someone else since you last saw it. Read the whole of `a.txt` again, redo your change on what you find, then write.\nNothing was changed."}
    "#);
}

#[test]
fn copilot() {
    insta::assert_snapshot!(stale("copilot"), @r#"
    exit 0
    --- stdout
    {"permissionDecision":"deny","permissionDecisionReason":"{\"error_type\":\"STALE_FILE\",\"file_path\":\"[W]/a.txt\",\"expected_hash\":\"[HASH]\",\"actual_hash\":\"[HASH]\",\"resolution\":\"RE_READ_REQUIRED\"}\n`a.txt` was changed by someone else since you last saw it. Read the whole of `a.txt` again, redo your change on what you find, then write.\nNothing was changed."}
    "#);
}

#[test]
fn cline() {
    insta::assert_snapshot!(stale("cline"), @r#"
    exit 0
    --- stdout
    {"overrideInput":{"path":"/dev/null/refused","old_text":"refused","new_text":"refused"},"context":"{\"error_type\":\"STALE_FILE\",\"file_path\":\"[W]/a.txt\",\"expected_hash\":\"[HASH]\",\"actual_hash\":\"[HASH]\",\"resolution\":\"RE_READ_REQUIRED\"}\n`a.txt` was changed by someone else since you last saw it. Read the whole of `a.txt` again, redo your change on what you find, then write.\nNothing was changed."}
    "#);
}

#[test]
fn qwen() {
    insta::assert_snapshot!(stale("qwen"), @r#"
    exit 0
    --- stdout
    {"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"{\"error_type\":\"STALE_FILE\",\"file_path\":\"[W]/a.txt\",\"expected_hash\":\"[HASH]\",\"actual_hash\":\"[HASH]\",\"resolution\":\"RE_READ_REQUIRED\"}\n`a.txt` was changed by someone else since you last saw it. Read the whole of `a.txt` again, redo your change on what you find, then write.\nNothing was changed."}}
    "#);
}

/// The text for the model, without the payload.
fn words(world: &World, agent: &Program<'_>, tool: &Tool<'_>) -> String {
    let reason = agent.uses(tool).blocked();
    let (first, rest) = reason.split_once('\n').unwrap();
    assert!(first.starts_with("{\"error_type\":"), "{reason}");
    let shown = rest.replace(world.root().to_str().unwrap(), "[W]");
    let words = |line: &str| {
        let shown = |word| if str::parse::<u32>(word).is_ok() { "[N]" } else { word };
        line.split(' ').map(shown).collect::<Vec<_>>().join(" ")
    };
    shown.lines().map(words).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_text_for_models() {
    let world = World::with("[guard]\nquiet_wait = \"20ms\"");
    let agent = Program::new(&world, "opencode", "s1");
    let other = Program::new(&world, "gemini", "s2");
    world.puts("a.txt", "one\ntwo\n");
    agent.reads("a.txt");
    other.reads("a.txt").writes("a.txt", "one\nTWO\n").ran();
    let write = Tool::Write("a.txt", "mine\n");
    insta::assert_snapshot!(words(&world, &agent, &write), @r#"
    `a.txt` was changed by `gemini-1` [N] s ago since you last saw it. Read the whole of `a.txt` again, redo your change on what you find, then write.
    Nothing was changed.
    "#);
    insta::assert_snapshot!(words(&world, &agent, &write), @r#"
    This is the same call that was just refused. It was refused again, for the same reason.
    `a.txt` was changed by `gemini-1` [N] s ago since you last saw it. Read the whole of `a.txt` again, redo your change on what you find, then write.
    Changes since you last saw it:
    --- what you read
    +++ on disk
    @@ -1,2 +1,2 @@
     one
    -two
    +TWO
    Nothing was changed.
    "#);
    std::fs::remove_file(world.path("a.txt")).unwrap();
    insta::assert_snapshot!(words(&world, &agent, &write), @r#"
    `a.txt` was deleted by someone else since you last saw it. Read it again. If it was deleted on purpose, leave it; otherwise write it again.
    Nothing was changed.
    "#);
    insta::assert_snapshot!(words(&world, &agent, &Tool::Write(".tollgate/config.toml", "")), @r#"
    `.tollgate/config.toml`: The path is reserved and cannot be changed by an agent. Choose another path, or ask a person to make the change.
    Nothing was changed.
    "#);
    world.puts("b.txt", "one\n");
    assert_eq!(other.asks(&other.before(&Tool::Write("b.txt", "x"), "c")), None);
    insta::assert_snapshot!(words(&world, &agent, &Tool::Write("b.txt", "mine\n")), @r#"
    `b.txt` is busy: `gemini-1` is about to write it. Wait a moment, read `b.txt` again, then retry.
    Nothing was changed.
    "#);
}
