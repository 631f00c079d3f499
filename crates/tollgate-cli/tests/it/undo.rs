//! `tollgate undo`: what the last guarded write replaced comes back.

use crate::world::World;

/// `a` was "one", then `blue` wrote "two".
fn written() -> World {
    let world = World::new();
    world.puts("a", "one\n");
    world.tollgate(["write", "a", "--agent", "blue"]).stdin("two\n").ends().is(0);
    world
}

#[test]
fn a_person_sees_the_diff_and_types_yes() {
    let world = written();
    for answer in ["no", "y", ""] {
        let said = world.tollgate(["undo", "a"]).typed(answer).is(1);
        assert!(said.shown.contains("-two\n    +one\n"), "{}", said.shown);
        assert!(said.shown.contains("nothing was undone"), "{}", said.shown);
        world.holds("a", "two\n");
    }
    let said = world.tollgate(["undo"]).typed("yes").is(0);
    assert!(said.shown.contains("undo change 1 by `blue`"), "{}", said.shown);
    world.holds("a", "one\n");
    assert_eq!(world.json("ledger tail --type MUTATION")[1]["payload"]["tool_name"], "undo");
    // A second undo reverts the first.
    world.tollgate(["undo"]).typed("yes").is(0);
    world.holds("a", "two\n");
}

#[test]
fn an_agent_on_a_terminal_is_told_why_it_is_not_asked() {
    let world = written();
    let said = world.tollgate(["undo"]).env("TOLLGATE_AGENT", "blue").typed("yes").is(1);
    assert!(said.shown.contains("`blue` is an agent, and only people are asked"), "{}", said.shown);
    world.holds("a", "two\n");
}

#[test]
fn without_a_terminal_only_yes_restores() {
    let world = written();
    insta::assert_snapshot!(world.tollgate(["undo"]).stdin("yes\n").ends().filtered, @r"
    exit 1
    --- stderr
    refused: there is no terminal on which to ask
    hint: give `--yes` to go ahead without a question, or `--dry-run` to see what it would do
    ");
    assert_eq!(world.run("undo --json").is(1).json()["reason"], "no_terminal");
    world.holds("a", "two\n");
    insta::assert_snapshot!(world.run("undo --yes").filtered, @r"
    exit 0
    --- stdout
    undo change 1 by `blue`, [N] s ago
    `a`
        --- on disk
        +++ undone
        @@ -1 +1 @@
        -two
        +one
    restored `a`, 27dd8ed4 -> 2c8b08da
    ");
    world.holds("a", "one\n");
    let json = world.run("undo a --yes --json").is(0).json();
    assert!(json["files"][0]["diff"].as_str().unwrap().contains("-one\n+two\n"), "{json}");
    world.holds("a", "two\n");
}

#[test]
fn a_deleted_file_comes_back() {
    let world = written();
    world.run("delete a").is(0);
    world.run("undo a --yes").is(0);
    world.holds("a", "two\n");
}

#[test]
fn without_a_name_the_last_change_is_undone_whatever_it_was() {
    let world = written();
    let undo = || world.run("undo --yes").is(0);
    world.tollgate(["create", "new file"]).stdin("x").ends().is(0);
    undo();
    assert!(!world.path("new file").exists());
    world.run("move a c").is(0);
    undo();
    world.holds("a", "two\n");
    assert!(!world.path("c").exists());
    let changes = r#"[{"path":"a","content":"three\n"},{"path":"d","content":"four\n"}]"#;
    world.tollgate(["apply"]).stdin(changes).ends().is(0);
    undo();
    world.holds("a", "two\n");
    assert!(!world.path("d").exists());
    // The undo is the last change now.
    undo();
    world.holds("a", "three\n");
    world.holds("d", "four\n");
    world.run("undo d --yes").is(0);
    world.holds("a", "three\n");
    assert!(!world.path("d").exists());
}

#[test]
fn a_later_change_by_another_program_is_undone_only_if_the_entry_is_named() {
    let world = written();
    world.puts("a", "foreign\n");
    insta::assert_snapshot!(world.run("undo a --yes").filtered, @r"
    exit 1
    --- stderr
    undo change 1 by `blue`, [N] s ago
    `a` cannot be undone: the bytes that it takes are no longer kept
    refused: 1 file cannot be undone, so nothing was
    hint: see the change with `tollgate show` and edit the files by hand, or restore an entry of `tollgate recovery list` with `tollgate undo --to ID`
    ");
    world.holds("a", "foreign\n");
    let id = world.json("recovery list")[0]["id"].as_str().unwrap().to_owned();
    world.run(&format!("undo --to {id} --yes")).is(0);
    world.holds("a", "one\n");
    world.run("undo --yes").is(0);
    world.holds("a", "foreign\n");
}

#[test]
fn a_change_while_the_person_thinks_is_not_overwritten() {
    let world = written();
    let said = world.tollgate(["undo", "a"]).typed_after("yes", || world.puts("a", "foreign\n"));
    assert!(said.is(1).shown.contains("refused: `a` is stale"));
    world.holds("a", "foreign\n");
}

#[test]
fn nothing_to_undo_is_told() {
    let world = World::bare();
    insta::assert_snapshot!(world.run("undo --yes").filtered, @r"
    exit 1
    --- stderr
    nothing to undo: the ledger has no change
    hint: run `tollgate recovery list` to see all that is kept
    ");
    let world = World::new();
    world.tollgate(["write", "new"]).stdin("created\n").ends().is(0);
    insta::assert_snapshot!(world.run("undo --yes --json").filtered, @r#"
    exit 0
    --- stdout
    {"undone":["new"],"conflicts":[],"files":[{"path":"new","merge":"none","diff":"--- on disk\n+++ undone\n@@ -1 +0,0 @@\n-created\n"}]}
    "#);
    insta::assert_snapshot!(world.run("undo --to 0643c1d2e8a1f07b3a9c5d --yes").filtered, @r"
    exit 3
    --- stderr
    error: the recovery entry `[ID]` does not exist
    hint: run `tollgate recovery list` to see all entries
    ");
}

/// `a` was written by `blue` and then by `green`, which deleted `b`.
fn written_by_two() -> World {
    let world = written();
    world.puts("b", "bytes of b\n");
    world.tollgate(["write", "a", "--agent", "green"]).stdin("two\nthree\n").ends().is(0);
    world.run("delete b --agent green").is(0);
    world
}

/// As the approval of a task: the mark of an agent program in the environment says that an agent runs the command.
#[test]
fn an_agent_program_without_a_name_is_no_person() {
    let world = written_by_two();
    let recovered = world.json("recovery list b")[0]["id"].as_str().unwrap().to_owned();
    let replaced = world.json("recovery list a")[0]["id"].as_str().unwrap().to_owned();
    let turn = world.json("history --agent green")[0]["turn"].as_str().unwrap().to_owned();
    for mark in ["CLAUDECODE", "CODEX_THREAD_ID", "GEMINI_CLI", "OPENCODE", "CURSOR_AGENT", "COPILOT_CLI"] {
        for command in [
            "undo --yes",
            "undo 1 --yes",
            "undo a --yes",
            "restore a --at 1 --yes",
            &format!("undo --turn {turn} --yes"),
            &format!("undo --to {replaced} --yes"),
        ] {
            let words = command.split(' ').chain(["--json"]);
            let json = world.tollgate(words).env(mark, "1").ends().is(1).json();
            assert_eq!(json["reason"], "agent", "{mark}: {command}: {json}");
        }
    }
    let refused = world.tollgate(["undo", "--yes"]).env("CURSOR_AGENT", "1").ends();
    insta::assert_snapshot!(refused.filtered, @r"
    exit 1
    --- stderr
    refused: `cursor` is an agent, and only people undo without a name
    hint: give your name, `--agent NAME`, to undo your own changes, or ask a person to run this
    ");
    world.holds("a", "two\nthree\n");
    // Nothing is lost if a file comes back that nobody has now.
    world.tollgate(["undo", "--to", &recovered, "--yes", "--agent", "blue"]).ends().is(0);
    world.holds("b", "bytes of b\n");
}

#[test]
fn an_agent_takes_back_its_own_changes_only_however_it_is_named() {
    let world = written_by_two();
    let entry = world.json("recovery list a")[0]["id"].as_str().unwrap().to_owned();
    let turn = world.json("turn begin --agent blue")["turn_id"].as_str().unwrap().to_owned();
    let to_entry = format!("undo --to {entry} --yes");
    let refused = |command: &str, name: &str, value: &str| {
        let words = command.split(' ').chain(["--json"]);
        let json = world.tollgate(words).env(name, value).ends().is(1).json();
        assert_eq!(json["reason"], "not_yours", "{name}: {command}: {json}");
    };
    for command in ["undo --yes", "undo 2 --yes", "restore a --at 1 --yes", &to_entry] {
        refused(command, "TOLLGATE_AGENT", "blue");
        refused(command, "TOLLGATE_TURN", &turn);
        refused(&format!("{command} --agent blue"), "CURSOR_AGENT", "1");
    }
    refused("undo --agent blue --since 1h --yes", "TOLLGATE_AGENT", "green");
    // Somebody without tollgate is somebody else, too.
    world.puts("a", "a person\n");
    refused("restore a --at 2 --yes", "TOLLGATE_AGENT", "green");
    refused(&to_entry, "TOLLGATE_AGENT", "green");
    world.holds("a", "a person\n");
    // What is its own goes.
    for text in ["one", "two"] {
        world.tollgate(["write", "c", "--agent", "red"]).stdin(text).ends().is(0);
    }
    let as_red = |command: &str| world.tollgate(command.split(' ')).env("TOLLGATE_AGENT", "red").ends().is(0);
    let first = world.json("history c")[1]["seq"].as_u64().unwrap();
    as_red(&format!("restore c --at {first} --yes"));
    world.holds("c", "one");
    world.run("undo --agent red --since 1h --yes --dry-run").is(0);
    let own = world.tollgate("undo --agent red --since 1h --yes".split(' ')).env("CURSOR_AGENT", "1");
    own.ends().is(0);
    assert!(!world.path("c").exists());
}
