//! An agent stays in its tree: in a repository with several working trees, it changes files only in the one in which it began.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Agent, Answer, Door, checkout, configure};
use crate::hook::{Came, Program, Tool};
use crate::mcp::Client;
use crate::world::World;

/// The other working trees of the checkout, relative to it: beside it, in it, and in a folder in it that git ignores.
const OTHERS: [&str; 3] = ["../one", "in/two", "out/three"];
const TEXT: &str = "one\ntwo\n";

/// A checkout with other working trees.
fn trees(door: Door) -> World {
    trees_with(door, ["stay = true", "stay = true"])
}

/// The same with another setting in all of them.
fn trees_with(door: Door, [old, new]: [&str; 2]) -> World {
    let world = checkout(door);
    configure(&world, old, new);
    world.script("git commit -q -a --allow-empty -m settings").ends().is(0);
    let add: String = OTHERS.iter().map(|tree| format!("git worktree add -q {tree}\n")).collect();
    world.script(&add).ends().is(0);
    world
}

#[track_caller]
fn refused(answer: &Answer, path: &Path, what: &str) {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let expected = json!({"error_type": "OTHER_TREE", "file_path": path, "expected_hash": null, "actual_hash": null,
        "resolution": "STAY_IN_TREE"});
    assert_eq!(answer.payloads().first(), Some(&expected), "{what}: {answer:?}");
}

#[track_caller]
fn runs(agent: &Agent<'_>, command: &str) -> String {
    let answer = agent.runs(command);
    assert!(!answer.is_refused() && answer.code == Some(0), "{:?}: `{command}`: {answer:?}", agent.door);
    answer.said
}

/// The root of another tree, canonical.
fn top(world: &World, tree: &str) -> PathBuf {
    world.path(tree).canonicalize().unwrap()
}

#[test]
fn a_file_tool_of_a_program_stays_in_its_tree() {
    for door in [Door::Hooks, Door::Reader] {
        let world = trees(door);
        let agent = Agent::new(&world, "red", door);
        for tree in OTHERS {
            let (file, new) = (format!("{tree}/f"), format!("{tree}/deep/new"));
            // Reads are free.
            agent.reads(&file);
            for (path, text) in [(&file, "mine\n"), (&new, "mine\n")] {
                refused(
                    &agent.writes(path, text),
                    &top(&world, tree).join(path.strip_prefix(tree).unwrap().trim_start_matches('/')),
                    path,
                );
            }
            world.holds(&file, TEXT);
            assert!(!world.path(&new).exists(), "{new}");
        }
        // Its own tree is free, and so is what git ignores, and every other repository.
        world.script("git init -q ../else && mkdir -p ../one/out").ends().is(0);
        for file in ["f", "deep/new", "../one/out/made", "../one/debug.log", "../else/f", "../plain"] {
            let wrote = agent.writes(file, "mine\n");
            assert_eq!(wrote.code, Some(0), "{door:?}, {file}: {}", wrote.said);
        }
    }
}

#[test]
fn every_program_stays_in_its_tree() {
    for host in crate::hook::HOSTS {
        let world = trees(Door::Reader);
        let program = Program::new(&world, host, "s");
        for tool in [
            Tool::Write("in/two/f", "mine\n"),
            Tool::Shell("echo mine > in/two/f"),
            Tool::Shell("rm in/two/f"),
        ] {
            program.uses(&tool).refused("OTHER_TREE");
            world.holds("in/two/f", TEXT);
        }
    }
}

#[test]
fn commands_and_the_mcp_server_stay_in_their_tree() {
    let world = trees(Door::Transaction);
    world.puts("in/two/d/g", "g\n");
    let refused = |words: &[&str]| {
        let turn = world.turn("red");
        let run = world.tollgate(words.iter().copied().chain(["--json", "--turn", &turn]));
        run.stdin("mine\n").ends().payload("OTHER_TREE", "STAY_IN_TREE");
    };
    refused(&["write", "in/two/f"]);
    refused(&["create", "in/two/new"]);
    refused(&["edit", "in/two/f", "--old", "one", "--new", "1"]);
    refused(&["delete", "in/two/f"]);
    refused(&["move", "in/two/f", "in/two/h"]);
    refused(&["move", "in/two/f", "moved"]);
    refused(&["move", "f", "in/two/h"]);
    // Without a turn, too.
    let run = world.tollgate(["write", "in/two/f", "--json"]).stdin("mine\n").ends();
    run.payload("OTHER_TREE", "STAY_IN_TREE");
    let mut client = Client::of(&world, "red");
    client.done("read_file", json!({"path": "in/two/f"}));
    for (tool, arguments) in [
        ("write_file", json!({"path": "in/two/f", "content": "mine\n"})),
        ("edit_file", json!({"path": "in/two/f", "edits": [{"oldText": "one", "newText": "1"}]})),
        ("delete_file", json!({"path": "in/two/f"})),
        ("move_file", json!({"source": "f", "destination": "in/two/new"})),
        ("move_file", json!({"source": "in/two/d", "destination": "moved"})),
        ("create_directory", json!({"path": "in/two/new"})),
        (
            "write_files",
            json!({"changes": [{"path": "f", "content": "x"}, {"path": "in/two/f", "delete": true}]}),
        ),
    ] {
        assert_eq!(client.refused(tool, arguments.clone())["error_type"], "OTHER_TREE", "{tool} {arguments}");
    }
    world.holds("in/two/f", TEXT);
    world.holds("f", TEXT);
    // The ledger has a line for each.
    let lines = world.lines();
    assert!(lines.iter().any(|line| line["action_type"] == "MUTATION_REFUSED"
        && line["payload"]["target_file"] == "in/two/f"
        && line["result"] == json!({"status": "DENIED", "error_type": "OTHER_TREE"})));
}

const CHANGES: &[&str] = &[
    "echo mine > TREE/f",
    "echo mine >> TREE/f",
    "sed -i s/one/1/ TREE/f",
    "cp g TREE/f",
    "rm TREE/f",
    "mv g TREE/f",
    "mv TREE/f moved",
    "ln -s f TREE/link",
    "mkdir -p TREE/deep && echo mine > TREE/deep/new",
    "cd TREE && echo mine > f",
    "git -C TREE checkout -q HEAD~2",
    "git -C TREE rm -q f",
    "python3 -c \"open('TREE/f', 'w').write('mine')\"",
];

#[test]
fn a_command_stays_in_the_tree_of_its_agent() {
    for door in [Door::Transaction, Door::Gate, Door::Hooks] {
        for tree in OTHERS {
            for change in CHANGES {
                let world = trees(door);
                let before = world.script(&format!("cd {tree} && ls -lR . && cat f")).ends().stdout();
                let agent = Agent::new(&world, "red", door);
                let answer = agent.runs(&change.replace("TREE", tree));
                let what = format!("{door:?}, {tree}, `{change}`: {answer:?}");
                // Outside of its view, a transaction sees the tree read-only.
                let is_named = door == Door::Gate && tree != "out/three" || tree == "in/two";
                // At the gate, git goes on with its own files.
                let goes_on = door == Door::Gate && change.contains("checkout");
                assert!(answer.code != Some(0) || goes_on, "{what}");
                assert!(
                    !is_named
                        || answer.payloads().iter().any(|payload| payload["error_type"] == "OTHER_TREE"),
                    "{what}"
                );
                let after = world.script(&format!("cd {tree} && ls -lR . && cat f")).ends().stdout();
                assert_eq!(after, before, "{what}");
            }
        }
    }
}

#[test]
fn a_tree_that_the_agent_has_added_is_its_own() {
    for door in [Door::Transaction, Door::Gate, Door::Hooks, Door::Reader] {
        let world = trees(door);
        let agent = Agent::new(&world, "red", door);
        for tree in ["../mine", "out/mine"] {
            // The gate lets no command make what is protected in the workspace: the tree has a configuration of tollgate.
            if door == Door::Gate && tree == "out/mine" {
                continue;
            }
            let branch = tree.trim_start_matches("../").replace('/', "-");
            runs(&agent, &format!("git worktree add -q {tree} -b {branch}"));
            let file = format!("{tree}/f");
            runs(&agent, &format!("echo more >> {file}"));
            if door == Door::Reader || door == Door::Hooks {
                agent.reads(&file);
                let wrote = agent.writes(&file, "mine\n");
                assert_eq!(wrote.code, Some(0), "{door:?}, {file}: {}", wrote.said);
            }
            // In its next turn, too.
            agent.begins();
            runs(&agent, &format!("cd {tree} && echo more >> f && git commit -q -a -m more"));
            runs(&agent, &format!("git worktree remove --force {tree}"));
        }
    }
}

#[test]
fn a_session_does_not_move_with_its_folder() {
    let world = trees(Door::Hooks);
    let agent = Agent::new(&world, "red", Door::Hooks);
    agent.reads("f");
    let one = top(&world, "../one");
    let mut payload = agent.program.before(&Tool::Write("../one/f", "mine\n"), "call");
    payload["cwd"] = json!(one);
    assert!(agent.program.asks(&payload).is_some_and(|said| said.contains("OTHER_TREE")));
    // A session that begins there stays there.
    let other = Program::new(&world, "claude-code", "other");
    payload["session_id"] = "other".into();
    assert_eq!(other.asks(&payload), None);
    let mut payload = other.before(&Tool::Write("f", "mine\n"), "call-2");
    payload["cwd"] = json!(one);
    assert!(other.asks(&payload).is_some_and(|said| said.contains("OTHER_TREE")));
}

#[test]
fn a_subagent_stays_in_the_tree_that_its_program_has_made_for_it() {
    let world = trees(Door::Hooks);
    let main = Program::new(&world, "claude-code", "s");
    main.writes("f", "mine\n");
    // The program makes a tree for a subagent, which works there.
    world.script("git worktree add -q .claude/worktrees/sub -b sub").ends().is(0);
    let sub = main.subagent("worker");
    let asks = |program: &Program<'_>, file: &str, folder: &str, call: &str| {
        let mut payload = program.before(&Tool::Write(file, "sub's\n"), call);
        payload["cwd"] = json!(world.path(folder));
        program.asks(&payload)
    };
    assert_eq!(asks(&sub, ".claude/worktrees/sub/f", ".claude/worktrees/sub", "1"), None);
    assert!(asks(&sub, "g", ".claude/worktrees/sub", "2").is_some_and(|said| said.contains("OTHER_TREE")));
    // One that works in the tree of its caller may go where its caller may.
    let here = main.subagent("helper");
    assert_eq!(asks(&here, "g", ".", "3"), None);
    assert_eq!(asks(&here, ".claude/worktrees/sub/g", ".", "4"), None);
    assert!(asks(&here, "in/two/f", ".", "5").is_some_and(|said| said.contains("OTHER_TREE")));
}

/// An agent in a linked tree, also one inside the main tree, does not change the main tree.
#[test]
fn an_agent_in_a_linked_tree_leaves_the_main_tree_alone() {
    let world = trees(Door::Transaction);
    for tree in OTHERS {
        let run = |words: &[&str]| {
            world.tollgate(words).folder(world.path(tree)).env("TOLLGATE_AGENT", "red").ends()
        };
        let main = world.path("g").display().to_string();
        for mode in ["transaction", "gate"] {
            let change = format!("echo mine > {main}");
            let ran = run(&["run", "--mode", mode, "--", "sh", "-c", &change]);
            assert_ne!(ran.code(), Some(0), "{tree}, {mode}");
            world.holds("g", "other\n");
            // git shares its own files between all trees, and `out` is ignored.
            let work = format!(
                "echo {mode} >> f && git commit -q -a -m x && git branch {}-{mode} && echo x > {}",
                tree.rsplit('/').next().unwrap(),
                world.path("out/made").display()
            );
            run(&["run", "--mode", mode, "--", "sh", "-c", &work]).is(0);
        }
    }
}

/// The folder of a bare repository is no working tree: who begins there works in all.
#[test]
fn an_agent_beside_a_bare_repository_works_in_its_trees() {
    let world = checkout(Door::Reader);
    let make = "mkdir ../bare && git clone -q --bare . ../bare/.bare && cd ../bare && echo 'gitdir: ./.bare' > .git
        git worktree add -q one main 2> /dev/null || git worktree add -q one other && git worktree add -q two -b two";
    world.script(make).ends().is(0);
    let asks = |session: &str, folder: &str, file: &str| {
        let program = Program::new(&world, "claude-code", session);
        let mut payload = program.before(&Tool::Write(file, "mine\n"), file);
        payload["cwd"] = json!(world.path(folder));
        program.asks(&payload)
    };
    assert_eq!(asks("top", "../bare", "../bare/one/f"), None);
    assert_eq!(asks("top", "../bare", "../bare/two/f"), None);
    assert_eq!(asks("two", "../bare/two", "../bare/two/g"), None);
    assert!(asks("two", "../bare/two", "../bare/one/g").is_some_and(|said| said.contains("OTHER_TREE")));
}

#[test]
fn the_setting_and_the_mode_decide() {
    for (old, new, lines) in [
        ("stay = true", "stay = false", 0),
        ("# mode = \"enforce\"", "mode = \"observe\"", 1),
        ("# mode = \"enforce\"", "mode = \"off\"", 0),
    ] {
        for door in [Door::Transaction, Door::Gate, Door::Hooks] {
            // Hooks change a command only if the guard refuses.
            if door == Door::Hooks && new.contains("mode") {
                continue;
            }
            let world = trees_with(door, [old, new]);
            let agent = Agent::new(&world, "red", door);
            runs(&agent, "echo mine > in/two/f");
            world.holds("in/two/f", "mine\n");
            let observed =
                |line: &&Value| line["result"] == json!({"status": "OBSERVED", "error_type": "OTHER_TREE"});
            assert_eq!(world.lines().iter().filter(observed).count(), lines, "{door:?}, {new}");
        }
    }
}

#[test]
fn the_refusal_says_what_to_do() {
    let world = trees(Door::Transaction);
    let refused = world.tollgate(["write", "in/two/f"]).stdin("mine\n").ends();
    insta::assert_snapshot!(refused.filtered, @r#"
    exit 1
    --- stderr
    refused: `in/two/f` is in another working tree of this repository
    hint: make the change in your own working tree; if it must be made there, ask a person: they can start you there, or set `stay = false` under `[git]` in `.tollgate/config.toml`
    "#);
    // The hook says it, too.
    let said = match Program::new(&world, "claude-code", "s").writes("in/two/f", "mine\n") {
        Came::Blocked(said) => said,
        Came::Ran(_) => panic!("it is not blocked"),
    };
    assert!(
        said.contains("your own working tree") && fs::read_to_string(world.path("in/two/f")).unwrap() == TEXT,
        "{said}"
    );
}
