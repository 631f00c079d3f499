//! The answers, word for word.

use super::{Program, Tool};
use crate::world::World;

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
    {"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"{\"error_type\":\"STALE_FILE\",\"file_path\":\"[W]/a.txt\",\"expected_hash\":\"[HASH]\",\"actual_hash\":\"[HASH]\",\"resolution\":\"RE_READ_REQUIRED\"}\n`a.txt` was changed by someone else since you read it. Read the whole of `a.txt` again, redo your change on what you find, then write.\nNothing was changed."}}
    "#);
}

#[test]
fn codex() {
    insta::assert_snapshot!(stale("codex"), @r#"
    exit 0
    --- stdout
    {"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"{\"error_type\":\"STALE_FILE\",\"file_path\":\"[W]/a.txt\",\"expected_hash\":\"[HASH]\",\"actual_hash\":\"[HASH]\",\"resolution\":\"RE_READ_REQUIRED\"}\n`a.txt` was changed by someone else since you read it. Read the whole of `a.txt` again, redo your change on what you find, then write.\nNothing was changed."}}
    "#);
}

#[test]
fn gemini() {
    insta::assert_snapshot!(stale("gemini"), @r#"
    exit 0
    --- stdout
    {"decision":"deny","reason":"{\"error_type\":\"STALE_FILE\",\"file_path\":\"[W]/a.txt\",\"expected_hash\":\"[HASH]\",\"actual_hash\":\"[HASH]\",\"resolution\":\"RE_READ_REQUIRED\"}\n`a.txt` was changed by someone else since you read it. Read the whole of `a.txt` again, redo your change on what you find, then write.\nNothing was changed."}
    "#);
}

#[test]
fn opencode() {
    insta::assert_snapshot!(stale("opencode"), @r#"
    exit 0
    --- stdout
    {"deny":"{\"error_type\":\"STALE_FILE\",\"file_path\":\"[W]/a.txt\",\"expected_hash\":\"[HASH]\",\"actual_hash\":\"[HASH]\",\"resolution\":\"RE_READ_REQUIRED\"}\n`a.txt` was changed by someone else since you read it. Read the whole of `a.txt` again, redo your change on what you find, then write.\nNothing was changed."}
    "#);
}

#[test]
fn cursor() {
    insta::assert_snapshot!(stale("cursor"), @r#"
    exit 0
    --- stdout
    {"permission":"deny","agent_message":"{\"error_type\":\"STALE_FILE\",\"file_path\":\"[W]/a.txt\",\"expected_hash\":\"[HASH]\",\"actual_hash\":\"[HASH]\",\"resolution\":\"RE_READ_REQUIRED\"}\n`a.txt` was changed by someone else since you read it. Read the whole of `a.txt` again, redo your change on what you find, then write.\nNothing was changed.","user_message":"{\"error_type\":\"STALE_FILE\",\"file_path\":\"[W]/a.txt\",\"expected_hash\":\"[HASH]\",\"actual_hash\":\"[HASH]\",\"resolution\":\"RE_READ_REQUIRED\"}\n`a.txt` was changed by someone else since you read it. Read the whole of `a.txt` again, redo your change on what you find, then write.\nNothing was changed."}
    "#);
}

#[test]
fn copilot() {
    insta::assert_snapshot!(stale("copilot"), @r#"
    exit 0
    --- stdout
    {"permissionDecision":"deny","permissionDecisionReason":"{\"error_type\":\"STALE_FILE\",\"file_path\":\"[W]/a.txt\",\"expected_hash\":\"[HASH]\",\"actual_hash\":\"[HASH]\",\"resolution\":\"RE_READ_REQUIRED\"}\n`a.txt` was changed by someone else since you read it. Read the whole of `a.txt` again, redo your change on what you find, then write.\nNothing was changed."}
    "#);
}

#[test]
fn cline() {
    insta::assert_snapshot!(stale("cline"), @r#"
    exit 0
    --- stdout
    {"cancel":true,"errorMessage":"{\"error_type\":\"STALE_FILE\",\"file_path\":\"[W]/a.txt\",\"expected_hash\":\"[HASH]\",\"actual_hash\":\"[HASH]\",\"resolution\":\"RE_READ_REQUIRED\"}\n`a.txt` was changed by someone else since you read it. Read the whole of `a.txt` again, redo your change on what you find, then write.\nNothing was changed."}
    "#);
}

/// The words alone, as a model reads them.
fn words(world: &World, agent: &Program<'_>, tool: &Tool<'_>) -> String {
    let reason = agent.uses(tool).blocked();
    let (first, rest) = reason.split_once('\n').unwrap();
    assert!(first.starts_with("{\"error_type\":"), "{reason}");
    let shown = rest.replace(world.root().to_str().unwrap(), "[W]");
    // Who it was is a hash of the session.
    let hidden = |word: &str| match word.strip_prefix("`gemini-") {
        Some(rest) => Some(format!("`gemini-[SESSION]`{}", if rest.ends_with(':') { ":" } else { "" })),
        None => word.parse::<u32>().is_ok().then(|| "[N]".to_owned()),
    };
    let words = |line: &str| {
        line.split(' ').map(|word| hidden(word).unwrap_or(word.into())).collect::<Vec<_>>().join(" ")
    };
    shown.lines().map(words).collect::<Vec<_>>().join("\n")
}

#[test]
fn words_for_models() {
    let world = World::with("[guard]\nquiet_wait = \"20ms\"");
    let agent = Program::new(&world, "opencode", "s1");
    let other = Program::new(&world, "gemini", "s2");
    world.puts("a.txt", "one\ntwo\n");
    agent.reads("a.txt");
    other.reads("a.txt").writes("a.txt", "one\nTWO\n").ran();
    let write = Tool::Write("a.txt", "mine\n");
    insta::assert_snapshot!(words(&world, &agent, &write), @r#"
    `a.txt` was changed by `gemini-[SESSION]` [N] s ago since you read it. Read the whole of `a.txt` again, redo your change on what you find, then write.
    Nothing was changed.
    "#);
    insta::assert_snapshot!(words(&world, &agent, &write), @r#"
    You have made this very call before, and it was refused for the same reason. Repeating it will be refused again.
    `a.txt` was changed by `gemini-[SESSION]` [N] s ago since you read it. Read the whole of `a.txt` again, redo your change on what you find, then write.
    What has changed since you read it:
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
    `a.txt` was deleted by someone else since you read it. Look at it again; if it is gone on purpose leave it, else write it anew.
    Nothing was changed.
    "#);
    insta::assert_snapshot!(words(&world, &agent, &Tool::Write(".tollgate/config.toml", "")), @r#"
    `.tollgate/config.toml`: The path is reserved and cannot be changed by an agent. Choose another path, or ask a person to make the change.
    Nothing was changed.
    "#);
    world.puts("b.txt", "one\n");
    assert_eq!(other.asks(&other.before(&Tool::Write("b.txt", "x"), "c")), None);
    insta::assert_snapshot!(words(&world, &agent, &Tool::Write("b.txt", "mine\n")), @r#"
    `b.txt` is busy: `gemini-[SESSION]` is about to write it. Wait a moment, read `b.txt` again, then retry.
    Nothing was changed.
    "#);
}
