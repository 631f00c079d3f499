//! `init` and `init --remove`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::world::World;

#[test]
fn init_writes_the_configuration_once_and_nothing_else() {
    let world = World::bare();
    fs::create_dir(world.path(".git")).unwrap();
    insta::assert_snapshot!(world.run("init").filtered, @r#"
    exit 0
    --- stdout
    workspace `[W]` (git root)
    wrote `.tollgate/config.toml`: agents stay in their working tree, and do not destroy or commit unfinished work that they have not seen
    git repository: you can commit `.tollgate/config.toml`; the first guarded write adds a `.gitignore` for the rest
    next: run `tollgate doctor` to check protection on this file system
    next: run `tollgate turn begin` to start a turn for `read` and `write`
    "#);
    let files: Vec<_> =
        fs::read_dir(world.path(".tollgate")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["config.toml"]);
    assert_eq!(fs::metadata(world.path(".tollgate")).unwrap().permissions().mode() & 0o777, 0o700);
    world.tollgate(["create", "a"]).stdin("").ends().is(0);
    let mine = "version = 1 # mine\n";
    world.puts(".tollgate/config.toml", mine);
    insta::assert_snapshot!(world.run("init").filtered, @r#"
    exit 0
    --- stdout
    workspace `[W]` (found `.tollgate`)
    found `.tollgate/config.toml`, not changed
    git repository: you can commit `.tollgate/config.toml`; the first guarded write adds a `.gitignore` for the rest
    found state from earlier guarded writes
    next: run `tollgate doctor` to check protection on this file system
    next: run `tollgate turn begin` to start a turn for `read` and `write`
    "#);
    world.holds(".tollgate/config.toml", mine);
    let sub = world.path("sub");
    fs::create_dir(&sub).unwrap();
    let answer = world.tollgate(["init", "--json"]).folder(&sub).ends().is(0).json();
    assert_eq!(answer["done"], "kept");
    assert_eq!(answer["workspace"], world.root().to_str().unwrap());
    assert_eq!(answer["found"], json!({"git": true, "state": true}));
}

#[test]
fn remove_removes_what_init_added() {
    let world = World::bare();
    insta::assert_snapshot!(world.run("init --remove").filtered, @r#"
    exit 0
    --- stdout
    workspace `[W]` (current folder)
    no `.tollgate/config.toml` found, nothing to remove
    "#);
    world.run("init").is(0);
    insta::assert_snapshot!(world.run("init --remove").filtered, @r#"
    exit 0
    --- stdout
    workspace `[W]` (found `.tollgate`)
    removed `.tollgate/config.toml`
    "#);
    assert!(!world.path(".tollgate").exists());
    world.run("init").is(0);
    world.tollgate(["create", "a"]).stdin("").ends().is(0);
    insta::assert_snapshot!(world.run("init --remove").filtered, @r#"
    exit 0
    --- stdout
    workspace `[W]` (found `.tollgate`)
    removed `.tollgate/config.toml`
    kept the state (ledger, recovery) in `.tollgate`
    hint: if you need neither, delete that folder while no agent works here. When no workspace uses tollgate any more, delete `~/.local/state/tollgate`, too
    "#);
    assert!(world.path(".tollgate/ledger.jsonl").exists());
    world.puts(".tollgate/config.toml", "# mine");
    insta::assert_snapshot!(world.run("init --remove").filtered, @r#"
    exit 0
    --- stdout
    workspace `[W]` (found `.tollgate`)
    kept `.tollgate/config.toml`, because it was edited
    hint: delete it yourself if you do not need it
    kept the state (ledger, recovery) in `.tollgate`
    hint: if you need neither, delete that folder while no agent works here. When no workspace uses tollgate any more, delete `~/.local/state/tollgate`, too
    "#);
    world.holds(".tollgate/config.toml", "# mine");
}

#[test]
fn an_invalid_configuration_is_reported_with_the_place_of_the_error() {
    let world = World::with("[guard]\nmodus = \"\x1b[31menforce\"\n");
    insta::assert_snapshot!(world.run("read a").filtered, @r#"
    exit 3
    --- stderr
    error: `.tollgate/config.toml` is not valid
      TOML parse error at line 2, column 10
        |
      2 | modus = "\u{1b}[31menforce"
        |          ^
      invalid basic string, expected non-double-quote visible characters, `\`
    hint: fix the file, then try again
    "#);
    world.run("read a --json").is(3).fault("CONFIG_INVALID");
    world.run("init").is(3);
    let world = World::with("version = 99\n");
    insta::assert_snapshot!(world.run("turn begin").filtered, @r#"
    exit 3
    --- stderr
    error: `.tollgate/config.toml` has version 99, this tollgate knows 1
    hint: install a newer tollgate
    "#);
}

/// The user's home is the workspace's folder.
fn at_home<'w>(world: &'w World, line: &str) -> crate::world::Run<'w> {
    world.tollgate(line.split_whitespace()).env("HOME", world.root())
}

#[test]
fn a_nearer_git_root_wins_over_a_state_further_up() {
    let world = World::new();
    for folder in ["proj/.git", "proj/src", "proj/set-up/.tollgate", "notes"] {
        fs::create_dir_all(world.path(folder)).unwrap();
    }
    let root = |folder: &str| {
        let answer = world.tollgate(["doctor", "--json"]).folder(world.path(folder)).ends().json();
        answer["workspace"].as_str().unwrap().strip_prefix(world.root().to_str().unwrap()).unwrap().to_owned()
    };
    assert_eq!(root("proj/src"), "/proj");
    assert_eq!(root("proj/set-up"), "/proj/set-up");
    assert_eq!(root("notes"), "");
    // So a stray state in the home does not make `init` write the user's own settings.
    at_home(&world, "init --host claude-code").folder(world.path("proj/src")).ends().is(0);
    assert!(world.path("proj/.claude/settings.json").exists() && !world.path(".claude").exists());
    insta::assert_snapshot!(at_home(&world, "init --host claude-code").folder(world.path("notes")).ends().filtered, @r#"
    exit 2
    --- stderr
    error: this folder belongs to the workspace `[W]`, which contains your home folder
    hint: run `tollgate init -C .` to set up this folder instead
    "#);
    at_home(&world, "init -C .").folder(world.path("notes")).ends().is(0);
    assert_eq!(root("notes"), "/notes");
}

#[test]
fn a_command_that_creates_state_says_so() {
    let world = World::bare();
    insta::assert_snapshot!(world.tollgate(["create", "a"]).stdin("x").ends().filtered, @r#"
    exit 0
    --- stdout
    created `a`, 2d711642
    --- stderr
    note: created `[W]/.tollgate`, because no folder is set up here
    hint: run `tollgate init` to choose the settings, or delete that folder if you meant another one
    "#);
    assert_eq!(world.tollgate(["write", "a"]).stdin("y").ends().is(0).stderr(), "");
    // With JSON and over MCP, too.
    for line in ["turn begin --json", "mcp"] {
        let world = World::bare();
        assert!(world.run(line).is(0).stderr().starts_with("note: created "), "{line}");
    }
}

#[test]
fn no_command_creates_state_in_the_home_folder() {
    let world = World::bare();
    fs::create_dir_all(world.path("notes")).unwrap();
    insta::assert_snapshot!(at_home(&world, "write a").stdin("x").ends().filtered, @r#"
    exit 2
    --- stderr
    error: `[W]` contains your home folder and is not set up, so tollgate creates no state there
    hint: run `tollgate init -C DIR` for the folder of your project and work there, or `tollgate init` here to guard this folder and everything below it
    "#);
    for line in ["read a", "turn begin", "mcp", "doctor"] {
        at_home(&world, line).ends();
        world.tollgate(line.split_whitespace()).env("HOME", world.path("notes")).ends();
        assert!(!world.path(".tollgate").exists(), "{line}");
    }
    // A dotfile repository is not a workspace for everything below the home.
    fs::create_dir(world.path(".git")).unwrap();
    at_home(&world, "write notes/a").stdin("x").ends().is(2);
    // Unless the user says so.
    at_home(&world, "write a -C .").stdin("x").ends().is(0);
    assert!(world.path(".tollgate").exists());
    at_home(&world, "write b").stdin("x").ends().is(0);
}

/// The files in the workspace, and the folders, relative to it.
fn everything(world: &World) -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![world.root()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            found.push(entry.strip_prefix(world.root()).unwrap().to_str().unwrap().to_owned());
            if entry.is_dir() {
                folders.push(entry);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn if_one_program_cannot_be_set_up_nothing_is_changed() {
    let world = World::bare();
    for folder in [".claude", ".codex", ".gemini", ".opencode"] {
        fs::create_dir(world.path(folder)).unwrap();
    }
    world.puts(".gemini/settings.json", "not json");
    let before = everything(&world);
    insta::assert_snapshot!(world.run("init --host all --vault").filtered, @r#"
    exit 3
    --- stderr
    error: `.gemini/settings.json` is not valid: not JSON (line 1: Unexpected word); nothing was changed
    hint: fix the file, then try again
    "#);
    assert_eq!(everything(&world), before);
    world.run("init --mcp gemini --host codex --json").is(3).fault("CONFIG_INVALID");
    assert_eq!(everything(&world), before);
    // The same if a file of a program's own is there already, or the file of a later program is damaged.
    world.puts(".gemini/settings.json", "{}");
    fs::create_dir_all(world.path(".cline/hooks")).unwrap();
    world.puts(".cline/hooks/PreToolUse", "#!/bin/sh\n");
    world.run("init --host claude-code --host cline").is(3);
    assert!(!world.path(".claude/settings.json").exists() && !world.path(".tollgate").exists());
    // And when hooks are removed.
    world.run("init --host claude-code --host gemini").is(0);
    let hooks = fs::read_to_string(world.path(".claude/settings.json")).unwrap();
    world.puts(".gemini/settings.json", "not json, but tollgate hook x");
    world.run("init --remove").is(3);
    world.holds(".claude/settings.json", &hooks);
    assert!(world.path(".tollgate/config.toml").exists());
}

/// What no check foresees, such as a full disk: then what was done is said before the error.
#[test]
fn if_a_file_cannot_be_written_init_says_what_it_has_done() {
    let world = World::bare();
    std::os::unix::fs::symlink("/nowhere/at/all", world.path(".codex")).unwrap();
    let ran = world.run("init --host claude-code --host codex").is(3);
    for said in ["wrote `.tollgate/config.toml`", "installed hooks for `claude-code`", "error: cannot "] {
        assert!(ran.stderr().contains(said), "{said}: {ran}");
    }
    assert!(world.path(".claude/settings.json").exists());
}

#[test]
fn a_vault_that_the_configuration_cannot_take_is_not_made() {
    let world = World::with("[vault]\ndir = \"a\"\n");
    let before = everything(&world);
    insta::assert_snapshot!(world.run("init --vault b").filtered, @r#"
    exit 2
    --- stderr
    error: could not add the vault to `.tollgate/config.toml`, so nothing was changed: the file names another vault, or has an unusual form
    hint: set `dir = "b"` under `[vault]` in that file, then run the command again
    "#);
    world.run("init --vault ../outside").is(2);
    assert!(!world.tmp().join("outside").exists());
    world.puts("file", "");
    world.run("init --vault file/tasks").is(3);
    fs::remove_file(world.path("file")).unwrap();
    world.run("init --vault b --host claude-code").is(2);
    world.run("init --store mysql://x --host claude-code").is(2);
    assert_eq!(everything(&world), before);
    world.run("init --vault a").is(0);
    assert!(world.path("a/Needs_Action").is_dir());
}

#[test]
fn init_says_which_lines_it_added_to_the_configuration() {
    let world = World::bare();
    world.run("init").is(0);
    let added = |line: &str| {
        let ran = world.run(line).is(0);
        ran.stdout().lines().nth(1).unwrap().to_owned()
    };
    assert_eq!(
        added("init --host claude-code"),
        "found `.tollgate/config.toml`, added `shell = \"transaction\"` to it"
    );
    assert_eq!(
        added("init --vault . --store git"),
        "found `.tollgate/config.toml`, added `store = \"git\"` and `dir = \".\"` to it"
    );
    assert_eq!(added("init --vault . --store git"), "found `.tollgate/config.toml`, not changed");
}

#[test]
fn remove_keeps_a_vault_with_tasks_whole_and_says_so() {
    let world = World::bare();
    world.run("init --vault").is(0);
    world.run("task add Weeds").is(0);
    let ran = world.run("init --remove").is(0);
    let said = "kept the vault `vault`, because it has tasks or other files";
    assert!(ran.stdout().lines().any(|line| line == said), "{ran}");
    assert!(world.path("vault/Done").is_dir() && world.path("vault/Needs_Action/weeds.md").exists());
    let world = World::bare();
    world.run("init --vault").is(0);
    world.run("init --remove").is(0);
    assert!(!world.path("vault").exists());
}

/// A store that cannot be used is a mistake in the configuration, not in the call.
#[test]
fn a_store_that_cannot_be_used_is_a_fault_of_the_configuration() {
    let world = World::with("[vault]\nstore = \"mysql://x\"\n");
    insta::assert_snapshot!(world.run("task list").filtered, @r#"
    exit 3
    --- stderr
    error: `.tollgate/config.toml` is not valid: `store` under `[vault]` names a store that cannot be used: tollgate knows no engine `mysql`: use `etcd://`, `etcds://` or `postgres://`
    hint: fix the file, then try again
    "#);
    world.run("task list --json").is(3).fault("CONFIG_INVALID");
    let has = |key: &str, why: &str| {
        let said = world.run("task list --json").is(3).fault("CONFIG_INVALID")["message"].to_string();
        assert!(said.contains("config.toml") && said.contains(key) && said.contains(why), "{said}");
    };
    world.puts(".tollgate/config.toml", "[vault]\nstore = \"git\"\n");
    has("`store` under `[vault]`", "not in a git working tree");
    world.program("git", ["init", "-q"]).ends().is(0);
    has("`store` under `[vault]`", "no remote `origin`");
    world.puts(".tollgate/config.toml", "[vault]\nsync = \"git\"\n");
    has("`sync` under `[vault]`", "no remote `origin`");
    world.puts(".tollgate/config.toml", "[vault]\nstore = \"postgres://127.0.0.1:1/x\"\n");
    has("`store` under `[vault]`", "names no user");
    // In a call, it is a mistake of the call.
    world.run("init --store mysql://x --json").is(2).fault("INVALID");
}
