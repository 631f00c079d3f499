//! Stories about unfinished work that no table tells: what counts as a look, file tools, stashes, and a branch that somebody has
//! switched.

use serde_json::{Value, json};

use super::{Agent, Answer, Door, checkout, shown};
use crate::hook::{HOSTS, Program};
use crate::mcp::Client;
use crate::world::{World, hash};

const COMMITTED: &str = "one\ntwo\n";
const TEXT: &str = "one\ntwo\nunfinished\n";
/// Where a command is judged by what it does to `.git`, too.
const DOORS: [Door; 3] = [Door::Transaction, Door::Hooks, Door::Reader];

/// A checkout in which `blue` has changed `f`.
fn unfinished(door: Door) -> World {
    let world = checkout(door);
    let blue = Agent::new(&world, "blue", door);
    assert_eq!(blue.writes("f", TEXT).code, Some(0));
    world
}

#[track_caller]
fn refused(answer: &Answer, what: &str) -> Value {
    let payload = answer.payloads().first().cloned();
    payload.unwrap_or_else(|| panic!("{what}: it is not refused: {answer:?}"))
}

#[track_caller]
fn runs(agent: &Agent<'_>, command: &str) -> String {
    let answer = agent.runs(command);
    let (name, door) = (agent.name, agent.door);
    assert!(!answer.is_refused() && answer.code == Some(0), "{door:?}, {name}: `{command}`: {answer:?}");
    answer.said
}

/// `blue`'s change of `f`, as the payload of a refusal has it.
fn payload(world: &World) -> Value {
    json!({"error_type": "STALE_FILE", "file_path": world.path("f"), "expected_hash": hash(COMMITTED),
        "actual_hash": hash(TEXT), "resolution": "RE_READ_REQUIRED"})
}

#[test]
fn an_agent_whose_diff_showed_the_change_has_seen_it() {
    let looks = ["git diff", "git diff HEAD", "git diff f", "git --no-pager diff -- f", "cat f"];
    for (door, look) in
        [Door::Hooks, Door::Reader].into_iter().flat_map(|door| looks.map(|look| (door, look)))
    {
        for command in ["git commit -q -a -m x", "git checkout -q f", "git stash -q", "rm f", "echo mine > f"]
        {
            let world = unfinished(door);
            let red = Agent::new(&world, "red", door);
            assert!(runs(&red, look).contains("unfinished"), "{look}");
            runs(&red, command);
        }
    }
}

#[test]
fn what_a_diff_of_the_index_showed_may_be_committed() {
    for door in [Door::Hooks, Door::Reader] {
        let world = unfinished(door);
        world.script("git add f").ends().is(0);
        let red = Agent::new(&world, "red", door);
        runs(&red, "git diff --cached");
        runs(&red, "git commit -q -m x");
    }
}

#[test]
fn a_command_that_does_not_show_the_change_is_no_look() {
    let looks = [
        "git diff --stat",
        "git diff > /dev/null",
        "git status",
        "git show",
        "git diff | head -n 4",
        "ls -l f",
    ];
    for (door, look) in
        [Door::Hooks, Door::Reader].into_iter().flat_map(|door| looks.map(|look| (door, look)))
    {
        let world = unfinished(door);
        let red = Agent::new(&world, "red", door);
        assert!(!runs(&red, look).contains("+unfinished"), "{look}");
        for command in ["git checkout -q f", "rm f", "git commit -q -a -m x"] {
            let what = format!("{door:?}, {look}, {command}");
            assert_eq!(refused(&red.runs(command), &what), payload(&world), "{what}");
        }
    }
}

#[test]
fn a_look_does_not_count_for_what_is_written_after_it() {
    for door in DOORS {
        let world = unfinished(door);
        let red = Agent::new(&world, "red", door);
        red.reads("f");
        if door != Door::Transaction {
            runs(&red, "git diff");
        }
        world.puts("f", "one\ntwo\nmore\n");
        for command in ["git checkout -q f", "git stash -q", "rm f", "git commit -q -a -m x"] {
            let what = format!("{door:?}, {command}");
            let refusal = refused(&red.runs(command), &what);
            assert_eq!(refusal["actual_hash"], hash("one\ntwo\nmore\n"), "{door:?}, {command}");
            world.holds("f", "one\ntwo\nmore\n");
        }
    }
}

/// A tool that destroys what is in a file.
type FileTool = (&'static str, fn(&World) -> Value);

/// The payload of a refused call of the MCP server. Its report says whose work it is.
fn of_mcp(world: &World, tool: &str, arguments: Value) -> Value {
    let answer = Client::of(world, "red").call(tool, arguments);
    let report: Value =
        serde_json::from_str(answer["content"][0]["text"].as_str().unwrap()).unwrap_or_default();
    let unfinished = &report["unfinished"];
    assert_eq!(unfinished["agent"], "blue", "{answer}");
    assert!(unfinished["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{answer}");
    answer["structuredContent"].clone()
}

fn of_command(world: &World, words: &[&str], stdin: &str) -> Value {
    let command = [words, &["--agent", "red", "--json"]].concat();
    let mut payload = world.tollgate(command).stdin(stdin).ends().is(1).json();
    // `apply` has the payloads of all files, too.
    payload.as_object_mut().unwrap().remove("all");
    payload
}

const FILE_TOOLS: &[FileTool] = &[
    ("write_file", |world| of_mcp(world, "write_file", json!({"path": "f", "content": "mine"}))),
    ("write_files", |world| {
        let changes = json!([{"path": "mine", "content": "x"}, {"path": "f", "content": "mine"}]);
        of_mcp(world, "write_files", json!({"changes": changes}))
    }),
    ("delete_file", |world| of_mcp(world, "delete_file", json!({"path": "f"}))),
    ("move_file", |world| of_mcp(world, "move_file", json!({"source": "f", "destination": "moved"}))),
    ("write", |world| of_command(world, &["write", "f"], "mine")),
    ("delete", |world| of_command(world, &["delete", "f"], "")),
    ("move", |world| of_command(world, &["move", "f", "moved"], "")),
    ("apply", |world| of_command(world, &["apply"], r#"[{"path": "f", "content": "mine"}]"#)),
];

#[test]
fn a_file_tool_overwrites_no_work_that_its_agent_has_not_read() {
    let mut wrong = Vec::new();
    for (name, tool) in FILE_TOOLS {
        let world = unfinished(Door::Transaction);
        let before = shown(&world);
        // Each call is an answer of its own, so a failed one must not hide the others.
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tool(&world)));
        if found.as_ref().ok() != Some(&payload(&world)) || shown(&world) != before {
            wrong.push(*name);
        }
    }
    assert_eq!(wrong, Vec::<&str>::new());
}

#[test]
fn a_file_tool_of_an_agent_program_overwrites_no_work_that_its_agent_has_not_read() {
    for host in HOSTS {
        let world = unfinished(Door::Reader);
        let red = Program::new(&world, host, "red");
        assert_eq!(red.writes("f", "mine\n").refused("STALE_FILE"), payload(&world), "{host}");
        world.holds("f", TEXT);
        red.reads("f").writes("f", "mine\n").ran();
        world.holds("f", "mine\n");
    }
}

#[test]
fn a_file_tool_writes_what_is_committed_or_ignored() {
    let world = checkout(Door::Hooks);
    world.puts("debug.log", "x\n");
    let red = Agent::new(&world, "red", Door::Hooks);
    for file in ["f", "debug.log", "out/x", "new"] {
        assert_eq!(red.writes(file, "mine\n").code, Some(0));
    }
    let mut client = Client::of(&world, "green");
    client.done("write_file", json!({"path": "g", "content": "mine"}));
}

#[test]
fn a_stash_of_another_agent_stays() {
    let mut wrong = Vec::new();
    for door in DOORS {
        for command in [
            "git stash drop -q",
            "git stash drop -q stash@{0}",
            "git stash pop -q",
            "git stash clear",
            "git stash branch topic",
            "git update-ref -d refs/stash",
        ] {
            let world = unfinished(door);
            runs(&Agent::new(&world, "blue", door), "git stash -q");
            let before = shown(&world);
            let red = Agent::new(&world, "red", door);
            let answer = red.runs(command);
            // Of a command whose text is read, the ledger does not say that it stashed something.
            let is_named = answer.said.contains("blue") || door == Door::Reader;
            if !answer.is_refused() || !is_named || shown(&world) != before {
                wrong.push(format!("{door:?}, `{command}`: {}", answer.said));
                continue;
            }
            // It may know that the stash is there.
            runs(&red, "git stash list; git stash show -p > /dev/null");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Nobody sees what a command does whose text is read. What appeared while it ran is work of its agent.
#[test]
fn what_a_command_made_its_agent_may_destroy_and_no_other() {
    let make = "python3 -c \"open('new', 'w').write('x'); open('f', 'a').write('x')\"";
    for command in ["git clean -q -fd", "git checkout -q .", "git add -A && git commit -q -m x", "rm new f"] {
        let world = checkout(Door::Reader);
        let (blue, red) = (Agent::new(&world, "blue", Door::Reader), Agent::new(&world, "red", Door::Reader));
        runs(&red, "true");
        runs(&blue, make);
        runs(&red, "true");
        assert!(red.runs(command).is_refused(), "{command}");
        runs(&blue, command);
    }
}

/// At the level of the gate, the calls by which git moves HEAD, makes a commit or deletes a stash are refused.
#[test]
fn at_the_gate_commits_head_and_stashes_are_judged() {
    let door = Door::Gate;
    let git = |world: &World| {
        let show = "git symbolic-ref -q HEAD || git rev-parse HEAD; git for-each-ref; git stash list; git rev-parse HEAD";
        world.script(show).ends().stdout()
    };
    for (work, command) in [
        ("", "git switch -q other"),
        ("", "git switch -q -c new"),
        ("", "git checkout -q -b topic/new HEAD~1"),
        ("", "git switch -q -C other"),
        ("", "git checkout -q --detach"),
        ("", "git reset -q --soft HEAD~1"),
        ("", "git rebase -q other"),
        ("git stash -q -u", "git stash drop -q"),
        ("git stash -q -u", "git stash clear"),
    ] {
        let world = checkout(door);
        let blue = Agent::new(&world, "blue", door);
        assert_eq!(blue.writes("new", TEXT).code, Some(0));
        runs(&blue, work);
        let red = Agent::new(&world, "red", door);
        let before = git(&world);
        let answer = red.runs(command);
        // Nobody has recorded whose stash it is.
        let names_blue = answer.said.contains("blue") || !work.is_empty();
        assert!(answer.is_refused() && names_blue, "`{command}`: {answer:?}");
        assert_eq!(git(&world), before, "`{command}`");
    }
    // A branch of its own stays.
    let world = checkout(door);
    let blue = Agent::new(&world, "blue", door);
    assert_eq!(blue.writes("new", TEXT).code, Some(0));
    let red = Agent::new(&world, "red", door);
    assert!(red.runs("git branch kept && git switch -q kept").is_refused());
    world.script("git rev-parse -q --verify kept && ! test -e .git/refs/heads/kept.lock").ends().is(0);
    // A commit on a branch that somebody else has switched to.
    let world = checkout(door);
    let red = Agent::new(&world, "red", door);
    red.reads("mine");
    assert_eq!(red.writes("mine", "more\n").code, Some(0));
    world.script("git switch -q other").ends().is(0);
    let before = git(&world);
    let payload = refused(&red.runs("git commit -q -a -m x"), "commit");
    assert_eq!(payload["file_path"], json!(world.path(".git/HEAD")));
    assert_eq!(git(&world), before);
    red.begins();
    runs(&red, "git commit -q -a -m x");
    // What it does itself goes on.
    for command in [
        "git switch -q -c topic && echo x >> f && git commit -q -a -m x && git commit -q --amend -m y",
        "git switch -q main",
        "mkdir made && echo x > made/x && mv made moved && git add moved && git commit -q -m moved",
        "echo y >> g && git stash -q && git stash pop -q && git stash -q",
        "git stash drop -q; git rebase -q topic; git reset -q --hard HEAD~1; git merge -q topic",
    ] {
        runs(&red, command);
    }
}

#[test]
fn a_stash_of_new_files_stays() {
    for door in DOORS {
        let world = checkout(door);
        let blue = Agent::new(&world, "blue", door);
        assert_eq!(blue.writes("new", TEXT).code, Some(0));
        runs(&blue, "git stash -q -u");
        let red = Agent::new(&world, "red", door);
        let before = shown(&world);
        refused(&red.runs("git stash drop -q"), "git stash drop");
        assert_eq!(shown(&world), before);
    }
}

#[test]
fn a_stash_whose_whole_change_was_shown_may_be_dropped() {
    let door = Door::Hooks;
    for (look, is_seen) in [
        ("git stash show -p -u", true),
        ("git stash show -p", false),
        ("git stash show -u", false),
        ("git show -p stash", false),
    ] {
        let world = unfinished(door);
        let blue = Agent::new(&world, "blue", door);
        assert_eq!(blue.writes("new", "brand new\n").code, Some(0));
        runs(&blue, "git stash -q -u");
        let red = Agent::new(&world, "red", door);
        runs(&red, look);
        let answer = red.runs("git stash drop -q");
        assert_eq!(answer.is_refused(), !is_seen, "{look}: {answer:?}");
    }
    // Without new files, `-p` is enough; and the other stash stays.
    let world = unfinished(door);
    let blue = Agent::new(&world, "blue", door);
    runs(&blue, "git stash -q");
    assert_eq!(blue.writes("g", "second\n").code, Some(0));
    runs(&blue, "git stash -q");
    let red = Agent::new(&world, "red", door);
    assert!(runs(&red, "git stash show -p stash@{1}").contains("+unfinished"));
    refused(&red.runs("git stash drop -q stash@{0}"), "the other stash");
    runs(&red, "git stash drop -q stash@{1}");
}

#[test]
fn a_commit_on_a_branch_that_somebody_else_has_switched_to_is_refused() {
    for door in DOORS {
        for (switch, commit) in [
            ("git switch -q other", "git commit -q -a -m x"),
            ("git switch -q -c topic", "git add mine && git commit -q -m x"),
            ("git checkout -q HEAD~1", "git commit -q -m x mine"),
        ] {
            let world = checkout(door);
            let red = Agent::new(&world, "red", door);
            red.reads("mine");
            assert_eq!(red.writes("mine", "more\n").code, Some(0));
            world.script(switch).ends().is(0);
            let before = shown(&world);
            let what = format!("{door:?}, {switch}, {commit}");
            let payload = refused(&red.runs(commit), &what);
            assert_eq!(
                (&payload["error_type"], &payload["file_path"]),
                (&json!("STALE_FILE"), &json!(world.path(".git/HEAD"))),
                "{door:?}, {switch}"
            );
            assert_eq!(shown(&world), before, "{door:?}, {switch}");
            // In its next turn, the agent sees the branch.
            red.begins();
            runs(&red, commit);
        }
    }
}

/// Whoever stages everything has not seen everything.
#[test]
fn what_an_agent_has_staged_blindly_in_another_command_is_not_committed() {
    let door = Door::Hooks;
    let world = unfinished(door);
    world.puts("new", "unfinished\n");
    let red = Agent::new(&world, "red", door);
    assert_eq!(red.writes("mine", "more\n").code, Some(0));
    runs(&red, "git add -A");
    let before = shown(&world);
    let answer = red.runs("git commit -q -m x");
    let files: Vec<_> = answer.payloads().iter().map(|payload| payload["file_path"].clone()).collect();
    assert_eq!(files, [json!(world.path("f")), json!(world.path("new"))], "{answer:?}");
    assert_eq!(shown(&world), before);
}

/// What the agent has staged it may commit, whatever is saved afterwards.
#[test]
fn what_an_agent_has_staged_knowingly_is_committed_beside_a_later_save() {
    for door in DOORS {
        let world = checkout(door);
        let red = Agent::new(&world, "red", door);
        assert_eq!(red.writes("mine", "more\n").code, Some(0));
        runs(&red, "git add mine; echo x > new; git add new");
        world.puts("mine", "more\nby a person\n");
        runs(&red, "git commit -q -m x");
        assert_eq!(world.script("git show HEAD:mine").ends().stdout(), "more\n", "{door:?}");
    }
}

/// In a command under hooks, `tollgate commit` runs outside of the command, and belongs to the turn all the same.
#[test]
fn tollgate_commit_makes_no_commit_on_a_branch_that_somebody_else_has_switched_to() {
    let door = Door::Hooks;
    let world = checkout(door);
    let red = Agent::new(&world, "red", door);
    assert_eq!(red.writes("mine", "more\n").code, Some(0));
    world.script("git switch -q -c topic").ends().is(0);
    let said = red.runs("tollgate commit -m x").said;
    assert!(said.contains("STALE_FILE") && said.contains("refused: `.git/HEAD` is stale"), "{said}");
    assert_eq!(world.script("git log --format=%s topic").ends().stdout(), "one\nzero\n");
    world.script("git switch -q main").ends().is(0);
    runs(&red, "tollgate commit -m x");
}

/// A commit by somebody else on the same branch is no switch.
#[test]
fn a_commit_after_a_commit_of_somebody_else_is_made() {
    for door in DOORS {
        let world = checkout(door);
        let red = Agent::new(&world, "red", door);
        red.reads("mine");
        assert_eq!(red.writes("mine", "more\n").code, Some(0));
        world.script("echo more >> g && git commit -q -m theirs g && git branch topic").ends().is(0);
        runs(&red, "git commit -q -a -m x");
    }
}

#[test]
fn an_agent_switches_when_the_others_are_done() {
    for door in DOORS {
        for command in [
            "git switch -q other",
            "git checkout -q -b topic",
            "git rebase -q other",
            "git reset -q --hard HEAD~1",
        ] {
            let world = checkout(door);
            let (blue, red) = (Agent::new(&world, "blue", door), Agent::new(&world, "red", door));
            assert_eq!(blue.writes("f", TEXT).code, Some(0));
            runs(&blue, "git commit -q -a -m done");
            // `blue` has an open turn with changes.
            let answer = red.runs(command);
            assert!(answer.is_refused() && answer.said.contains("blue"), "{door:?}, {command}: {answer:?}");
            blue.leaves();
            runs(&red, command);
        }
    }
}

/// An agent that has only looked does not hold the others up.
#[test]
fn an_agent_switches_beside_one_that_has_changed_nothing() {
    for door in DOORS {
        let world = checkout(door);
        let (blue, red) = (Agent::new(&world, "blue", door), Agent::new(&world, "red", door));
        blue.reads("f");
        runs(&blue, "cat g; git status");
        runs(&red, "git switch -q other && git switch -q main");
    }
}

#[test]
fn a_judgement_does_not_wait_for_a_lock_of_git() {
    let world = unfinished(Door::Transaction);
    world.puts(".git/index.lock", "");
    let red = Agent::new(&world, "red", Door::Transaction);
    assert_eq!(refused(&red.runs("rm f"), "rm f"), payload(&world));
}

/// A command without a turn belongs to what the agent knows from all its commands.
#[test]
fn an_agent_without_a_turn_is_refused_until_it_has_read_the_file() {
    for command in ["rm f", "git stash -q", "git checkout -q f", "git commit -q -a -m x", "cp g f"] {
        for look in [["read", "f"].as_slice(), &["run", "--", "cat", "f"]] {
            let world = unfinished(Door::Transaction);
            let red = |words: &[&str]| world.tollgate(words).env("TOLLGATE_AGENT", "red").ends();
            let rm = ["run", "--agent", "red", "--", "sh", "-c", command];
            assert_eq!(refused(&red(&rm).is(75).into(), command), payload(&world), "{command}");
            world.holds("f", TEXT);
            red(look).is(0);
            red(&rm).is(0);
        }
    }
}
