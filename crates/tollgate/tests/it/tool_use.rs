//! Checks before and after the tools of an agent's own program.

use std::fs;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tollgate::content::Content;
use tollgate::digest::Digest;
use tollgate::gate::{Ticket, ToolResult, ToolUse};
use tollgate::guard::{Action, Change, Outcome, Refused};
use tollgate::refusal::ErrorType;
use tollgate::shared_turn::{Leaves, SharedTurns};
use tollgate::turn::{Extent, FileState, TurnState};
use tollgate_base::lock::Pauses;

use crate::world::{Agent, World};

fn reads(path: &str) -> ToolUse {
    ToolUse {
        call: "r".into(),
        tool: "read_file".into(),
        reads: vec![(path.into(), Extent::Whole)],
        ..ToolUse::default()
    }
}

fn writes(call: &str, paths: &[&str]) -> ToolUse {
    let change = |path: &&str| Change::new(*path, Action::ByProgram { extent: Extent::Whole, result: None });
    ToolUse {
        call: call.into(),
        tool: "Write".into(),
        changes: paths.iter().map(change).collect(),
        ..ToolUse::default()
    }
}

fn pre(agent: &Agent<'_>, tool_use: &ToolUse) -> Result<Ticket, Refused> {
    match agent.world.gate.pre_tool_use(&agent.turn, tool_use).unwrap() {
        Outcome::Done(ticket) => Ok(ticket),
        Outcome::Refused(refused) => Err(refused),
    }
}

fn post(agent: &Agent<'_>, ticket: Ticket, result: ToolResult) {
    agent.world.gate.post_tool_use(&agent.turn, ticket, result).unwrap();
}

fn tool_reads(agent: &Agent<'_>, path: &str) {
    let ticket = pre(agent, &reads(path)).unwrap();
    post(agent, ticket, ToolResult::Succeeded);
}

fn looks_again(agent: &Agent<'_>, paths: &[&str], since: Timestamp) {
    let files = paths.iter().map(|path| agent.world.gate.workspace().canonical(path).unwrap());
    agent.world.gate.look_again(&agent.turn, &files.collect::<Vec<_>>(), since).unwrap();
}

/// The number of reserved files.
fn reserved(world: &World) -> usize {
    tollgate_guard::doctor::leftovers(&world.root().join(".tollgate")).unwrap().reservations.len()
}

#[test]
fn a_folder_is_not_called_unread() {
    let world = World::with("[guard]\nunread = \"refuse\"");
    world.outsider_writes("folder/a", "one");
    let agent = world.agent("blue");
    for (path, expected) in [("folder/a", ErrorType::UnreadFile), ("folder", ErrorType::NotAFile)] {
        assert_eq!(pre(&agent, &writes("w", &[path])).unwrap_err().payload().error_type, expected);
    }
    assert!(pre(&agent, &writes("w", &["folder/new"])).is_ok());
}

#[test]
fn the_baseline_is_captured_after_a_read_and_checked_before_a_write() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let agent = world.agent("blue");
    tool_reads(&agent, "a");
    assert_eq!(world.gate.get_initial_hash(&agent.turn, "a").unwrap(), Some(Digest::of(b"one")));
    let ticket = pre(&agent, &writes("w1", &["a"])).unwrap();
    world.outsider_writes("a", "the agent's own tool wrote this");
    post(&agent, ticket, ToolResult::Succeeded);
    let ticket = pre(&agent, &writes("w2", &["a"])).unwrap();
    post(&agent, ticket, ToolResult::Failed);
    world.outsider_writes("a", "foreign");
    let refused = pre(&agent, &writes("w3", &["a"])).unwrap_err();
    assert_eq!(refused.payload().error_type, ErrorType::StaleFile);
    assert_eq!(refused.payload().actual_hash, Some(Digest::of(b"foreign")));
    assert_eq!(world.lines_of("MUTATION").len(), 1);
    assert_eq!(world.lines_of("MUTATION_CONFLICT").len(), 1);
    tool_reads(&agent, "a");
    let _ = pre(&agent, &writes("w4", &["a"])).unwrap();
}

#[test]
fn a_file_that_changed_while_it_was_read_counts_as_the_older_one() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let agent = world.agent("blue");
    let ticket = pre(&agent, &reads("a")).unwrap();
    world.outsider_writes("a", "two");
    post(&agent, ticket, ToolResult::Succeeded);
    let path = world.gate.workspace().canonical("a").unwrap();
    assert_eq!(agent.turn.get(&path).unwrap().unwrap().initial(), Some(Digest::of(b"one")));
    let _ = pre(&agent, &writes("w", &["a"])).unwrap_err();
}

#[test]
fn a_failed_read_only_shows_that_a_file_is_missing() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let agent = world.agent("blue");
    for path in ["a", "missing"] {
        let ticket = pre(&agent, &reads(path)).unwrap();
        post(&agent, ticket, ToolResult::Failed);
    }
    let files = agent.turn.files();
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].1.baseline(Extent::Whole), FileState::Absent);
    world.outsider_writes("missing", "appeared");
    let _ = pre(&agent, &writes("w", &["missing"])).unwrap_err();
}

#[test]
fn a_reservation_blocks_other_agents_until_the_tool_call_ends() {
    let world = World::with("[guard]\nquiet_wait = \"20ms\"");
    world.outsider_writes("a", "one");
    let (blue, red) = (world.agent("blue"), world.agent("red"));
    tool_reads(&blue, "a");
    tool_reads(&red, "a");
    let ticket = pre(&blue, &writes("w1", &["a"])).unwrap();
    let refused = pre(&red, &writes("w2", &["a"])).unwrap_err();
    assert_eq!(refused.payload().error_type, ErrorType::FileBusy);
    red.writes("a", "x").refused(ErrorType::FileBusy);
    let _ = pre(&blue, &writes("w1b", &["a"])).expect("an agent never blocks itself");
    world.outsider_writes("a", "blue's");
    post(&blue, ticket, ToolResult::Succeeded);
    let _ = pre(&blue, &writes("w1b", &["a"])).map(|ticket| post(&blue, ticket, ToolResult::Failed));
    let refused = pre(&red, &writes("w3", &["a"])).unwrap_err();
    assert_eq!(refused.payload().error_type, ErrorType::StaleFile);
    tool_reads(&red, "a");
    let _ = pre(&red, &writes("w4", &["a"])).unwrap();
}

/// The agent knows only what its own turn has read and written.
#[test]
fn a_reservation_of_another_turn_of_the_same_agent_is_respected() {
    let world = World::with("[guard]\nquiet_wait = \"0ms\"");
    world.outsider_writes("a", "one");
    let (first, second) = (world.agent("blue"), world.agent("blue"));
    tool_reads(&first, "a");
    tool_reads(&second, "a");
    let ticket = pre(&first, &writes("w1", &["a"])).unwrap();
    let refused = pre(&second, &writes("w2", &["a"])).unwrap_err();
    assert_eq!(refused.payload().error_type, ErrorType::FileBusy);
    let since = world.gate.workspace().now();
    world.outsider_writes("a", "two");
    looks_again(&second, &["a"], since);
    post(&first, ticket, ToolResult::Succeeded);
    let refused = pre(&second, &writes("w3", &["a"])).unwrap_err();
    assert_eq!(refused.payload().error_type, ErrorType::StaleFile);
}

#[test]
fn a_change_during_a_tool_call_that_failed_is_foreign_unless_it_is_what_the_tool_would_have_written() {
    let world = World::new();
    for (text, is_own) in [("foreign", false), ("two", true)] {
        world.outsider_writes("a", "one");
        let agent = world.agent("blue");
        tool_reads(&agent, "a");
        let mut tool_use = writes("w1", &["a"]);
        let result = Some(Digest::of(b"two"));
        tool_use.changes[0].action = Action::ByProgram { extent: Extent::Whole, result };
        let ticket = pre(&agent, &tool_use).unwrap();
        world.outsider_writes("a", text);
        post(&agent, ticket, ToolResult::Failed);
        let again = pre(&agent, &writes("w2", &["a"]));
        assert_eq!(again.is_ok(), is_own, "{text}");
        if let Ok(ticket) = again {
            post(&agent, ticket, ToolResult::Failed);
        }
    }
}

#[test]
fn a_reservation_expires_and_the_ledger_says_so() {
    let world = World::with("[guard]\nquiet_wait = \"0ms\"\nreservation = \"0ms\"");
    world.outsider_writes("a", "one");
    let (blue, red) = (world.agent("blue"), world.agent("red"));
    let _never_settled = pre(&blue, &writes("w1", &["a"])).unwrap();
    let mut pauses = Pauses::lasting(Duration::from_secs(20));
    while pre(&red, &writes("w2", &["a"])).is_err() {
        assert!(pauses.pause(), "the reservation never expires");
    }
    let lines = world.lines_of("RESERVATION_EXPIRED");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["agent"], "blue");
    assert_eq!(lines[0]["turn"], blue.turn.id().as_str());
    assert_eq!(lines[0]["payload"]["target_file"], "a");
    assert_eq!(lines[0]["payload"]["tool_name"], "Write");
    assert_eq!(lines[0]["result"]["status"], "EXPIRED");
}

#[test]
fn a_tool_call_ends_even_if_the_turn_can_learn_nothing() {
    let world = World::with("[guard]\nquiet_wait = \"0ms\"");
    let turns = SharedTurns::new(world.outside().join("turns")).unwrap();
    for (id, broken, is_fault) in [("t1", "files", true), ("t2", "text", false)] {
        let now = world.gate.workspace().now();
        let turn = turns.begin(id.parse().unwrap(), "blue".parse().unwrap(), now, Leaves::Nothing).unwrap();
        let tool_use = ToolUse { reads: vec![("a".into(), Extent::Whole)], ..writes("w", &["a", "b"]) };
        let Outcome::Done(ticket) = world.gate.pre_tool_use(&turn, &tool_use).unwrap() else { panic!() };
        for path in ["a", "b"] {
            world.outsider_writes(path, format!("the tool of {id} wrote this"));
        }
        let folder = turns.folder().join("turns").join(id).join(broken);
        fs::remove_dir_all(&folder).unwrap();
        fs::write(&folder, "no folder").unwrap();
        let ended = world.gate.post_tool_use(&turn, ticket, ToolResult::Succeeded);
        assert_eq!(ended.is_err(), is_fault, "{ended:?}");
        assert_eq!(reserved(&world), 0, "{broken}");
        let lines = world.lines_of("MUTATION").into_iter().filter(|line| line["turn"] == id);
        let written: Vec<Value> = lines.map(|line| line["payload"]["target_file"].clone()).collect();
        assert_eq!(written, ["a", "b"], "{broken}");
    }
}

#[test]
fn the_end_of_a_tool_call_waits_for_the_lock_of_the_path() {
    let world = World::with("[guard]\nlock_wait = \"1ms\"");
    let blue = world.agent("blue");
    let ticket = pre(&blue, &writes("w1", &["a"])).unwrap();
    let held: Vec<fs::File> = (fs::read_dir(world.root().join(".tollgate/locks")).unwrap().flatten())
        .map(|lock| fs::File::options().write(true).open(lock.path()).unwrap())
        .inspect(|lock| lock.lock().unwrap())
        .collect();
    let ended = |ticket| world.gate.post_tool_use(&blue.turn, ticket, ToolResult::Failed);
    assert!(matches!(ended(ticket.clone()), Err(tollgate::error::Fault::Locked { .. })));
    drop(held);
    ended(ticket).unwrap();
    assert_eq!(reserved(&world), 0);
}

#[test]
fn reservations_in_one_stripe_are_independent() {
    let world = World::with("[guard]\nquiet_wait = \"0ms\"");
    // Enough files that some share a stripe, so that the line of the stripe grows and shrinks.
    let names: Vec<String> = (0..600).map(|n| format!("file-{n}")).collect();
    let (blue, red) = (world.agent("blue"), world.agent("red"));
    let paths: Vec<&str> = names.iter().map(String::as_str).collect();
    let first = pre(&blue, &writes("w1", &paths)).unwrap();
    assert_eq!(reserved(&world), 600);
    let second = pre(&blue, &writes("w2", &paths[..300])).unwrap();
    post(&blue, first, ToolResult::Failed);
    assert_eq!(reserved(&world), 300, "the reservations of the second call stay");
    assert_eq!(
        pre(&red, &writes("w3", &paths[299..300])).unwrap_err().payload().error_type,
        ErrorType::FileBusy
    );
    let _ = pre(&red, &writes("w4", &paths[300..])).unwrap();
    post(&blue, second, ToolResult::Failed);
    assert_eq!(reserved(&world), 300);
}

#[test]
fn a_damaged_line_of_reservations_blocks_nobody() {
    let world = World::with("[guard]\nquiet_wait = \"0ms\"");
    let (blue, red) = (world.agent("blue"), world.agent("red"));
    let _ = pre(&blue, &writes("w1", &["a"])).unwrap();
    for lock in fs::read_dir(world.root().join(".tollgate/locks")).unwrap().flatten() {
        let mut bytes = fs::read(lock.path()).unwrap();
        if let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            bytes[end - 20..end].fill(0);
            fs::write(lock.path(), bytes).unwrap();
        }
    }
    let _ = pre(&red, &writes("w2", &["a"])).unwrap();
    assert_eq!(reserved(&world), 1);
}

#[test]
fn one_stale_file_of_a_patch_refuses_it_whole_and_reserves_nothing() {
    let world = World::with("[guard]\nquiet_wait = \"0ms\"");
    for path in ["a", "b", "c"] {
        world.outsider_writes(path, path);
    }
    let agent = world.agent("blue");
    for path in ["a", "b", "c"] {
        tool_reads(&agent, path);
    }
    world.outsider_writes("b", "changed");
    let refused = pre(&agent, &writes("w", &["a", "b", "c"])).unwrap_err();
    assert_eq!(refused.refusals().len(), 1);
    assert_eq!(reserved(&world), 0);
    let _ = pre(&world.agent("red"), &writes("w", &["a", "c"])).unwrap();
}

#[test]
fn a_ticket_can_be_passed_between_processes() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let agent = world.agent("blue");
    let ticket = pre(&agent, &reads("a")).unwrap();
    let text = serde_json::to_string(&ticket).unwrap();
    let back: Ticket = serde_json::from_str(&text).unwrap();
    assert_eq!(back, ticket);
}

#[test]
fn files_outside_the_workspace_are_checked_but_never_refused_for_being_outside() {
    let world = World::new();
    let outside = world.outside().join("notes");
    fs::write(&outside, "one").unwrap();
    let path = outside.to_str().unwrap();
    let agent = world.agent("blue");
    tool_reads(&agent, path);
    let ticket = pre(&agent, &writes("w", &[path])).unwrap();
    post(&agent, ticket, ToolResult::Failed);
    fs::write(&outside, "two").unwrap();
    let refused = pre(&agent, &writes("w", &[path])).unwrap_err();
    assert_eq!(refused.payload().error_type, ErrorType::StaleFile);
}

#[test]
fn protected_paths_are_refused_to_tools_too() {
    let world = World::new();
    let agent = world.agent("blue");
    let refused = pre(&agent, &writes("w", &[".tollgate/config.toml"])).unwrap_err();
    assert_eq!(refused.payload().error_type, ErrorType::ProtectedPath);
}

#[test]
fn an_observed_agent_is_never_blocked() {
    let world = World::with("[guard]\nmode = \"observe\"\nquiet_wait = \"0ms\"");
    world.outsider_writes("a", "one");
    let (blue, red) = (world.agent("blue"), world.agent("red"));
    tool_reads(&blue, "a");
    world.outsider_writes("a", "two");
    let _ = pre(&blue, &writes("w1", &["a"])).unwrap();
    let _ = pre(&red, &writes("w2", &["a"])).unwrap();
    let _ = pre(&red, &writes("w3", &[".tollgate/config.toml"])).unwrap();
    let kinds: Vec<_> = world.ledger().iter().map(|line| line["result"]["status"].clone()).collect();
    assert_eq!(kinds.iter().filter(|status| *status == "OBSERVED").count(), 3, "{kinds:?}");
}

/// As after a shell command that has called `tollgate write` itself.
#[test]
fn an_unannounced_change_is_the_agents_own_only_if_the_ledger_says_so() {
    let world = World::new();
    let names = ["own", "touched", "over_foreign", "outside", "reds", "outside_after_red"];
    let (blue, shell, red) = (world.agent("blue"), world.agent("blue"), world.agent("red"));
    for path in names {
        world.outsider_writes(path, "one");
        tool_reads(&blue, path);
    }
    let since = world.gate.workspace().now();
    for text in ["two", "three"] {
        shell.reads("own").writes("own", text).done();
    }
    world.outsider_writes("over_foreign", "foreign");
    shell.reads("over_foreign").writes("over_foreign", "two").done();
    world.outsider_writes("outside", "two");
    red.reads("reds").writes("reds", "two").done();
    shell.reads("outside_after_red").writes("outside_after_red", "two").done();
    red.reads("outside_after_red").writes("outside_after_red", "three").done();
    world.outsider_writes("outside_after_red", "two");
    looks_again(&blue, &names, since);
    let _ = pre(&blue, &writes("w1", &names[..2])).unwrap();
    for path in &names[2..] {
        let refused = pre(&blue, &writes("w2", &[path])).expect_err(path);
        assert_eq!(refused.payload().error_type, ErrorType::StaleFile, "{path}");
    }
}

/// After the agent's own write, it has read what someone else made of the file.
#[test]
fn a_save_that_brings_back_what_the_agent_once_wrote_is_foreign() {
    let world = World::new();
    let (blue, shell, red) = (world.agent("blue"), world.agent("blue"), world.agent("red"));
    for path in ["changed_by_red", "changed_outside"] {
        world.outsider_writes(path, "one");
        shell.reads(path).writes(path, "two").done();
    }
    red.reads("changed_by_red").writes("changed_by_red", "one").done();
    world.outsider_writes("changed_outside", "one");
    for path in ["changed_by_red", "changed_outside"] {
        tool_reads(&blue, path);
        // During an unrelated shell command of the agent.
        let since = world.gate.workspace().now();
        world.outsider_writes(path, "two");
        looks_again(&blue, &[path], since);
        let refused = pre(&blue, &writes("w", &[path])).expect_err(path);
        assert_eq!(refused.payload().error_type, ErrorType::StaleFile, "{path}");
    }
}

#[test]
fn only_what_the_tool_showed_counts_as_read() {
    let world = World::new();
    world.outsider_writes("a", "one");
    world.outsider_writes("b", "one");
    let agent = world.agent("blue");
    tool_reads(&agent, "a");
    world.outsider_writes("a", "two");
    let _ = pre(&agent, &writes("w1", &["a"])).unwrap_err();
    let mut ticket = pre(&agent, &reads("a")).unwrap();
    ticket.judge_reads(|_, planned| (planned == Extent::Whole).then_some(Extent::Part));
    post(&agent, ticket, ToolResult::Succeeded);
    let _ = pre(&agent, &writes("w2", &["a"])).expect_err("the agent saw a part only");
    let mut ticket = pre(&agent, &reads("b")).unwrap();
    ticket.judge_reads(|_, _| None);
    post(&agent, ticket, ToolResult::Succeeded);
    assert_eq!(agent.turn.files().len(), 1);
}

/// Only tollgate moves a file away before it replaces it. What an agent's own tool overwrites would be gone.
#[test]
fn what_a_tool_overwrites_and_writes_is_kept() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    world.outsider_writes("a", "one");
    fs::set_permissions(world.root().join("a"), fs::Permissions::from_mode(0o600)).unwrap();
    let agent = world.agent("blue");
    tool_reads(&agent, "a");
    let ticket = pre(&agent, &writes("1", &["a"])).unwrap();
    world.outsider_writes("a", "two");
    post(&agent, ticket, ToolResult::Succeeded);
    world.outsider_writes("a", "three");
    let content = |text: &str| world.gate.workspace().content(Digest::of(text.as_bytes())).unwrap();
    for text in ["one", "two"] {
        assert_eq!(content(text), Content::Kept(text.as_bytes().to_vec()));
    }
    assert_eq!(content("three"), Content::NeverKept, "no agent has written it");
    for file in fs::read_dir(world.root().join(".tollgate/history/contents")).unwrap() {
        let mode = file.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "as private as the file");
    }
    // What is outside of the workspace stays outside.
    let outside = world.root().with_file_name("outside");
    fs::write(&outside, "private").unwrap();
    let ticket = pre(&agent, &writes("2", &[outside.to_str().unwrap()])).unwrap();
    post(&agent, ticket, ToolResult::Succeeded);
    assert_eq!(content("private"), Content::NeverKept);
}
