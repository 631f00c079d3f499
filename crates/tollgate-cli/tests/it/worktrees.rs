//! Git worktrees: all trees of a repository share one vault, and each guards its own files.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::serve::Served;
use crate::world::{Ran, World};

/// A repository with a committed vault and one task, in `w`, and linked worktrees `one` and `two` beside it.
struct Trees {
    world: World,
}

impl Trees {
    fn new() -> Self {
        let world =
            World::with("[guard]\ndurability = \"fast\"\n[vault]\ndurability = \"fast\"\nsettle = \"0ms\"\n");
        git(&world, "init -q");
        world.run("init --vault").is(0);
        world.puts("vault/Needs_Action/pay.md", "# Pay\n");
        for state in ["In_Progress", "Pending_Approval", "Approved", "Done", "Rejected"] {
            world.puts(format!("vault/{state}/.keep"), "");
        }
        git(&world, "add -A");
        git(&world, "commit -q -m first");
        git(&world, "worktree add -q ../one");
        git(&world, "worktree add -q ../two");
        Self { world }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.world.tmp().join(name)
    }

    /// Runs `tollgate` in this tree.
    fn run(&self, tree: &str, line: &str) -> Ran {
        self.world.tollgate(line.split_whitespace()).folder(self.path(tree)).ends()
    }

    fn json(&self, tree: &str, line: &str) -> Value {
        self.run(tree, &format!("{line} --json")).is(0).json()
    }

    fn finding(&self, tree: &str, check: &str) -> Value {
        let answer = self.run(tree, "doctor --json").json();
        let found =
            answer["findings"].as_array().unwrap().iter().find(|found| found["check"] == check).cloned();
        found.unwrap_or_else(|| panic!("no {check}: {answer}"))
    }
}

fn git(world: &World, line: &str) {
    let words = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"];
    world.program("git", words.into_iter().chain(line.split_whitespace())).ends().is(0);
}

#[test]
fn a_task_has_one_owner_in_all_worktrees() {
    let trees = Trees::new();
    let claim = trees.json("one", "task claim pay --agent blue");
    assert_eq!(claim["path"], trees.path("w/vault/In_Progress/blue/pay.md").to_str().unwrap());
    for tree in ["two", "w", "one"] {
        let denied = trees.run(tree, "task claim pay --agent red --json").is(1).json();
        assert_eq!(denied["claimed"], false, "{tree}");
        assert_eq!(trees.json(tree, "task list")[0]["agent"], "blue", "{tree}");
    }
    // The claim can be verified and released from any tree.
    let id = claim["claim_id"].as_str().unwrap();
    trees.run("two", &format!("task verify pay --claim-id {id}")).is(0);
    trees.run("two", &format!("task release pay --claim-id {id}")).is(0);
    assert!(trees.path("w/vault/Done/pay.md").exists());
    // The copies that git checked out are as they were.
    assert!(trees.path("one/vault/Needs_Action/pay.md").exists());
}

#[test]
fn the_events_of_all_worktrees_are_in_one_ledger() {
    let trees = Trees::new();
    trees.json("one", "task claim pay --agent blue");
    trees.json("two", "task add Second");
    trees.json("two", "task claim second --agent red");
    let claims = |tree: &str| {
        trees
            .run(tree, "ledger tail --type CLAIM --json")
            .stdout()
            .matches("\"action_type\":\"CLAIM\"")
            .count()
    };
    assert_eq!([claims("w"), claims("one"), claims("two")], [2, 0, 0]);
    trees.run("w", "ledger verify").is(0);
    // The guard of each worktree has its own ledger.
    trees.world.tollgate(["create", "new.txt"]).folder(trees.path("one")).stdin("x").ends().is(0);
    assert!(fs::read_to_string(trees.path("one/.tollgate/ledger.jsonl")).unwrap().contains("new.txt"));
    assert!(!fs::read_to_string(trees.path("w/.tollgate/ledger.jsonl")).unwrap().contains("new.txt"));
}

#[test]
fn mcp_and_the_server_use_the_shared_vault() {
    let trees = Trees::new();
    let claims = |tree: &str, agent: &str| {
        let ask = [
            json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
                "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}}),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "claim_task", "arguments": {"task": "pay"}}}),
        ];
        let ask: String = ask.iter().map(|message| format!("{message}\n")).collect();
        let run = trees.world.tollgate(["mcp", "--agent", agent]).folder(trees.path(tree));
        run.stdin(ask).ends().is(0).stdout().lines().last().unwrap().to_owned()
    };
    trees.json("one", "task claim pay --agent blue");
    let answer = claims("two", "red");
    assert!(answer.contains("blue"), "{answer}");
    let serve = ["serve", "--listen", "127.0.0.1:0", "--json"];
    let served = Served::of(trees.world.tollgate(serve).folder(trees.path("two")));
    let health = served.gets("/health").json();
    assert_eq!(health["coordination"]["active_claims"], 1, "{health}");
    assert!(served.gets("/tasks/pay.md").body.contains("blue"));
}

#[test]
fn the_settings_of_the_main_tree_are_those_of_the_vault() {
    let trees = Trees::new();
    // The main tree has another folder for its tasks now. The worktrees still have the committed configuration.
    fs::rename(trees.path("w/vault"), trees.path("w/tasks")).unwrap();
    let config = trees.path("w/.tollgate/config.toml");
    let text = fs::read_to_string(&config).unwrap().replacen("[vault]\n", "[vault]\ndir = \"tasks\"\n", 1);
    fs::write(&config, text).unwrap();
    assert_eq!(
        trees.json("one", "task claim pay --agent blue")["path"],
        trees.path("w/tasks/In_Progress/blue/pay.md").to_str().unwrap()
    );
    // An absolute path is the same for all trees.
    fs::rename(trees.path("w/tasks"), trees.path("tasks")).unwrap();
    let text = fs::read_to_string(&config).unwrap();
    let absolute = format!("dir = {}", json!(trees.path("tasks")));
    fs::write(&config, text.replacen("dir = \"tasks\"", &absolute, 1)).unwrap();
    let refused = trees.run("two", "task list").is(2);
    assert!(
        refused.stderr().contains("run `tollgate trust` in your own terminal, in that workspace"),
        "{refused}"
    );
    trees.world.tollgate(["trust"]).typed("yes").is(0);
    assert_eq!(trees.json("two", "task list")[0]["agent"], "blue");
}

#[test]
fn agents_in_a_worktree_write_neither_the_vault_nor_its_copy() {
    let trees = Trees::new();
    let is_protected = |path: PathBuf| {
        let payload = json!({"session_id": "s", "cwd": trees.path("one"), "hook_event_name": "PreToolUse",
            "tool_name": "Write", "tool_use_id": "1", "tool_input": {"file_path": path, "content": "x"}});
        let hook = trees.world.tollgate(["hook", "claude-code"]).folder(trees.path("one"));
        hook.stdin(payload.to_string()).ends().is(0).stdout().contains("PROTECTED_PATH")
    };
    for path in ["w/vault/Approved/x.md", "one/vault/Approved/x.md"] {
        let path = trees.path(path);
        let run = trees.world.tollgate(["write", path.to_str().unwrap(), "--json"]).folder(trees.path("one"));
        let refused = run.stdin("x").ends().is(1).json();
        assert!(["PROTECTED_PATH", "OUTSIDE_WORKSPACE"].contains(&refused["error_type"].as_str().unwrap()));
        assert!(is_protected(path));
    }
    // A vault outside of all workspaces, which only the settings of the main tree name.
    fs::rename(trees.path("w/vault"), trees.path("tasks")).unwrap();
    let config = trees.path("w/.tollgate/config.toml");
    let dir = format!("[vault]\ndir = {}\n", json!(trees.path("tasks")));
    fs::write(&config, fs::read_to_string(&config).unwrap().replacen("[vault]\n", &dir, 1)).unwrap();
    assert!(is_protected(trees.path("tasks/Approved/x.md")));
    assert!(!is_protected(trees.path("tasks/Needs_Action/new.md")));
}

#[test]
fn the_doctor_says_whose_tasks_a_worktree_has() {
    let trees = Trees::new();
    let found = trees.finding("one", "worktree");
    assert_eq!(found["level"], "ok");
    let message = found["message"].as_str().unwrap();
    assert!(message.contains(trees.path("w").to_str().unwrap()) && message.contains("copy"), "{message}");
    assert_eq!(
        trees.finding("w", "worktree")["message"],
        "2 git worktrees of this repository with the same tasks"
    );
    // A vault of its own is a choice, and a warning.
    let config = trees.path("one/.tollgate/config.toml");
    let text = fs::read_to_string(&config).unwrap().replacen("[vault]\n", "[vault]\ntree = \"own\"\n", 1);
    fs::write(&config, text).unwrap();
    assert_eq!(trees.finding("one", "worktree")["level"], "warning");
    // The main tree knows about it, too.
    let found = trees.finding("w", "worktree");
    let message = found["message"].as_str().unwrap();
    assert!(found["level"] == "warning" && message.contains(trees.path("one").to_str().unwrap()), "{found}");
    assert!(
        message.starts_with(
            "1 git worktree of this repository with the same tasks; 1 git worktree with tasks of its own"
        ),
        "{found}"
    );
    trees.json("one", "task claim pay --agent blue");
    trees.json("w", "task claim pay --agent red");
}

#[test]
fn a_worktree_without_its_main_tree_owns_no_tasks() {
    let trees = Trees::new();
    fs::rename(trees.path("w"), trees.path("moved")).unwrap();
    for line in ["task list --json", "task claim pay --agent blue --json"] {
        let fault = trees.world.tollgate(line.split_whitespace()).folder(trees.path("one")).ends().is(2);
        let fault = fault.json();
        assert!(fault["message"].as_str().unwrap().contains("shares the vault"), "{fault}");
        assert!(fault["hint"].as_str().unwrap().contains("`tree`"), "{fault}");
    }
    assert_eq!(trees.finding("one", "worktree")["level"], "problem");
    // The files are guarded all the same.
    trees.world.tollgate(["create", "new.txt"]).folder(trees.path("one")).stdin("x").ends().is(0);
    fs::rename(trees.path("moved"), trees.path("w")).unwrap();
    trees.json("one", "task claim pay --agent blue");
}

#[test]
fn the_worktrees_of_a_bare_repository_name_the_tree_with_the_vault() {
    let trees = Trees::new();
    git(&trees.world, "clone -q --bare . ../bare.git");
    git(&trees.world, "-C ../bare.git worktree add -q ../three main");
    git(&trees.world, "-C ../bare.git worktree add -q -b other ../four main");
    let fault = trees.run("three", "task list --json").is(2).json();
    assert!(fault["message"].as_str().unwrap().contains("no main tree"), "{fault}");
    for tree in ["three", "four"] {
        let config = trees.path(tree).join(".tollgate/config.toml");
        let text =
            fs::read_to_string(&config).unwrap().replacen("[vault]\n", "[vault]\ntree = \"../three\"\n", 1);
        fs::write(&config, text).unwrap();
    }
    assert!(trees.run("four", "task list").is(2).stderr().contains("tollgate trust"));
    trees.world.tollgate(["trust"]).folder(trees.path("four")).typed("yes").is(0);
    trees.json("four", "task claim pay --agent blue");
    trees.run("three", "task claim pay --agent red").is(1);
    assert_eq!(trees.json("three", "task list")[0]["agent"], "blue");
}

#[test]
fn init_makes_no_second_vault_in_a_worktree() {
    let world = World::with("");
    git(&world, "init -q");
    git(&world, "add -A");
    git(&world, "commit -q -m first");
    git(&world, "worktree add -q ../one");
    let one = world.tmp().join("one");
    let init = || world.tollgate(["init", "--vault"]).folder(&one).ends();
    insta::assert_snapshot!(init().filtered, @r#"
    exit 2
    --- stderr
    error: this git worktree shares the vault of `[W]`
    hint: run `tollgate init --vault -C '[W]'` to create or change it; for a vault of this tree alone, set `tree = "own"` under `[vault]` in `.tollgate/config.toml` first
    "#);
    assert!(!one.join("vault").exists());
    world.run("init --vault").is(0);
    assert!(init().is(0).stdout().contains("found the vault `"));
    world.tollgate(["init", "--vault", "tasks"]).folder(&one).ends().is(2);
    assert!(!one.join("tasks").exists());
    assert!(!one.join("vault").exists());
}
