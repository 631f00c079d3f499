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
    insta::assert_snapshot!(stale("claude-code"), @"");
}

#[test]
fn codex() {
    insta::assert_snapshot!(stale("codex"), @"");
}

#[test]
fn gemini() {
    insta::assert_snapshot!(stale("gemini"), @"");
}

#[test]
fn opencode() {
    insta::assert_snapshot!(stale("opencode"), @"");
}

#[test]
fn cursor() {
    insta::assert_snapshot!(stale("cursor"), @"");
}

#[test]
fn copilot() {
    insta::assert_snapshot!(stale("copilot"), @"");
}

#[test]
fn cline() {
    insta::assert_snapshot!(stale("cline"), @"");
}

/// The words alone, as a model reads them.
fn words(world: &World, agent: &Program<'_>, tool: &Tool<'_>) -> String {
    let reason = agent.uses(tool).blocked();
    let (first, rest) = reason.split_once('\n').unwrap();
    assert!(first.starts_with("{\"error_type\":"), "{reason}");
    let shown = rest.replace(world.root().to_str().unwrap(), "[W]");
    // Who it was is a hash of the session.
    let hidden = |word: &str| word.strip_prefix("`gemini-").map(|_| "`gemini-[SESSION]`".to_owned());
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
    insta::assert_snapshot!(words(&world, &agent, &write), @"");
    insta::assert_snapshot!(words(&world, &agent, &write), @"");
    std::fs::remove_file(world.path("a.txt")).unwrap();
    insta::assert_snapshot!(words(&world, &agent, &write), @"");
    insta::assert_snapshot!(words(&world, &agent, &Tool::Write(".tollgate/config.toml", "")), @"");
    world.puts("b.txt", "one\n");
    assert_eq!(other.asks(&other.before(&Tool::Write("b.txt", "x"), "c")), None);
    insta::assert_snapshot!(words(&world, &agent, &Tool::Write("b.txt", "mine\n")), @"");
}
