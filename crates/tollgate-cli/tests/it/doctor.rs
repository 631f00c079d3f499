//! `tollgate doctor`, with and without problems.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::world::{Ran, World};

/// The finding of one check.
fn finding<'a>(answer: &'a Value, check: &str) -> &'a Value {
    answer["findings"].as_array().unwrap().iter().find(|found| found["check"] == check).unwrap()
}

/// The output, without lines that depend on the machine.
fn words(ran: &Ran) -> String {
    ran.filtered
        .lines()
        .filter(|line| !line.contains("file system") && line.split_whitespace().nth(1) != Some("run"))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Runs the command in the doctor's hint, problem by problem, until there are no problems.
#[track_caller]
fn fixed_by_its_own_advice(world: &World, check: &str) {
    let answer = world.run("doctor --json").is(1).json();
    assert_eq!(finding(&answer, check)["level"], "problem");
    for _ in 0..3 {
        let answer = world.run("doctor --json").json();
        let findings = answer["findings"].as_array().unwrap();
        let Some(problem) = findings.iter().find(|found| found["level"] == "problem") else { return };
        let fix = problem["hint"].as_str().unwrap().to_owned();
        let command = fix.split('`').nth(1).unwrap_or_else(|| panic!("no command in {fix}")).to_owned();
        // In any folder.
        world.script(&command).folder("/").ends().is(0);
    }
    panic!("{}", world.run("doctor"));
}

#[test]
fn a_healthy_workspace() {
    let world = World::bare();
    insta::assert_snapshot!(words(&world.run("doctor").is(0)), @r#"
    exit 0
    --- stdout
    ok       workspace    `[W]` (current folder)
    ok       settings     mode enforce, unread allow, durability durable (defaults; no `.tollgate/config.toml`)
    ok       state        no guarded writes here yet, so the levels of `tollgate run` were tried in a temporary folder
    ok       ledger       0 lines, valid
    ok       turns        0 running
    no problems
    "#);
    world.run("init").is(0);
    world.tollgate(["create", "a"]).stdin("x").ends().is(0);
    world.tollgate(["write", "a"]).stdin("y").ends().is(0);
    world.turn("blue");
    insta::assert_snapshot!(words(&world.run("doctor").is(0)), @r#"
    exit 0
    --- stdout
    ok       workspace    `[W]` (found `.tollgate`)
    ok       settings     mode enforce, unread known, durability durable (`.tollgate/config.toml`)
    ok       state        format 1, readable
    ok       privacy      private (mode 700)
    ok       leftovers    no interrupted writes; 1 replaced file awaiting the late-write check
    ok       ledger       3 lines, valid
    ok       recovery     1 entry, 1 B of 256 MiB
    ok       reservations none
    ok       turns        1 running
    no problems
    "#);
    let answer = world.json("doctor");
    assert_eq!(answer["healthy"], true);
    let file_system = finding(&answer, "file system")["message"].as_str().unwrap();
    for word in ["lease", "exchange", "no-replace", "links"] {
        assert!(file_system.contains(word), "{file_system}");
    }
}

#[test]
fn warnings_are_not_problems() {
    let world = World::with("[guard]\nmode = \"observe\"\ndurability = \"fast\"\n");
    world.tollgate(["create", "a"]).stdin("x").ends().is(0);
    fs::set_permissions(world.path(".tollgate"), fs::Permissions::from_mode(0o755)).unwrap();
    world.puts(".tollgate/stage/notes.txt", "x");
    let ran = world.tollgate(["doctor"]).without("HOME").without("XDG_STATE_HOME").ends();
    insta::assert_snapshot!(words(&ran), @r#"
    exit 0
    --- stdout
    ok       workspace    `[W]` (found `.tollgate`)
    warning  settings     mode observe, unread allow, durability fast (`.tollgate/config.toml`); stale writes are recorded but not refused
      hint: set `mode = "enforce"` to refuse them
    ok       state        format 1, readable
    warning  privacy      other users can open `.tollgate` (mode 755), which contains names and earlier contents of your files
      hint: make it private: `chmod o-rwx '[W]/.tollgate'`
    warning  leftovers    no interrupted writes; 1 file in `.tollgate/stage` not created by tollgate
      hint: move it elsewhere, because tollgate never touches it: `.tollgate/stage/notes.txt`
    warning  ledger       1 line, valid; a truncated end cannot be detected, because you have no folder for state
      hint: set `HOME` or `XDG_STATE_HOME`
    ok       recovery     0 entries, 0 B of 256 MiB
    ok       reservations none
    ok       turns        0 running
    no problems, 4 warnings
    "#);
}

#[test]
fn a_bad_configuration() {
    let world = World::new();
    world.tollgate(["create", "a"]).stdin("x").ends().is(0);
    world.puts(".tollgate/config.toml", "[guard]\nmode = \"maybe\"\n");
    insta::assert_snapshot!(words(&world.run("doctor").is(1)), @r#"
    exit 1
    --- stdout
    ok       workspace    `[W]` (found `.tollgate`)
    problem  settings     `.tollgate/config.toml` is not valid
        TOML parse error at line 2, column 8
          |
        2 | mode = "maybe"
          |        ^^^^^^^
        unknown variant `maybe`, expected one of `enforce`, `observe`, `off`
      hint: fix the file, then try again
    ok       privacy      private (mode 700)
    ok       leftovers    no interrupted writes
    ok       ledger       1 line, valid
    ok       turns        0 running
    1 problem to fix
    "#);
}

#[test]
fn a_newer_state() {
    let world = World::new();
    world.tollgate(["create", "a"]).stdin("x").ends().is(0);
    world.puts(".tollgate/version", "99\n");
    let answer = world.run("doctor --json").is(1).json();
    assert_eq!(finding(&answer, "state")["level"], "problem");
    world.run("read a --json").is(3).fault("NEWER_FORMAT");
    world.holds(".tollgate/version", "99\n");
}

#[test]
fn a_damaged_version() {
    let world = World::new();
    world.tollgate(["create", "a"]).stdin("x").ends().is(0);
    world.puts(".tollgate/version", "?");
    world.run("read a --json").is(3).fault("STATE_DAMAGED");
    fixed_by_its_own_advice(&world, "state");
}

#[test]
fn a_damaged_journal() {
    let world = World::new();
    world.tollgate(["create", "a"]).stdin("x").ends().is(0);
    world.puts(".tollgate/journal/0123456789abcdef.json", "{");
    fixed_by_its_own_advice(&world, "state");
    world.holds("a", "x");
}

#[test]
fn a_missing_part_of_the_state() {
    let world = World::new();
    world.tollgate(["create", "a"]).stdin("x").ends().is(0);
    fs::remove_dir_all(world.path(".tollgate/history")).unwrap();
    fixed_by_its_own_advice(&world, "state");
    world.tollgate(["write", "a"]).stdin("y").ends().is(0);
    world.run("doctor").is(0);
}

#[test]
fn an_edited_ledger() {
    let world = World::new();
    world.tollgate(["create", "a"]).stdin("x").ends().is(0);
    world.tollgate(["create", "b"]).stdin("x").ends().is(0);
    let path = world.path(".tollgate/ledger.jsonl");
    let text = fs::read_to_string(&path).unwrap().replacen("\"a\"", "\"z\"", 1);
    fs::write(&path, text).unwrap();
    let answer = world.run("doctor --json").is(1).json();
    assert_eq!(finding(&answer, "ledger")["level"], "problem");
    assert!(finding(&answer, "ledger")["message"].as_str().unwrap().starts_with("line 1 was edited"));
    fixed_by_its_own_advice(&world, "ledger");
    world.run("ledger verify").is(0);
    assert!(world.path(".tollgate/ledger.old/ledger.jsonl").exists());
}

#[test]
fn a_cut_ledger() {
    let world = World::new();
    world.tollgate(["create", "a"]).stdin("x").ends().is(0);
    world.puts(".tollgate/ledger.jsonl", "");
    fixed_by_its_own_advice(&world, "ledger");
}

#[test]
fn a_ledger_that_cannot_be_read() {
    let world = World::new();
    world.puts("a", "1");
    for text in ["2", "3"] {
        world.tollgate(["write", "a"]).stdin(text).ends().is(0);
    }
    let path = world.path(".tollgate/ledger.jsonl");
    let text = fs::read_to_string(&path).unwrap().replacen("{\"seq\":2", "hello", 1);
    fs::write(&path, text).unwrap();
    fixed_by_its_own_advice(&world, "ledger");
    world.tollgate(["write", "a"]).stdin("4").ends().is(0);
    world.run("ledger verify").is(0);
    assert_eq!(world.json("recovery list").as_array().unwrap().len(), 3);
}

#[test]
fn interrupted_writes_are_recovered_and_reported() {
    let world = World::new();
    world.tollgate(["create", "a"]).stdin("x").ends().is(0);
    world.puts(".tollgate/stage/tmp,00,0643c1d2e8a1f07b3a9c5d", "half");
    let answer = world.json("doctor");
    let message = finding(&answer, "leftovers")["message"].as_str().unwrap();
    assert!(message.starts_with("recovered 1 interrupted write"), "{message}");
    assert!(!world.path(".tollgate/stage/tmp,00,0643c1d2e8a1f07b3a9c5d").exists());
}

#[test]
fn a_late_write_is_reported() {
    let world = World::with("[guard]\ngrace = \"1h\"\n");
    world.puts("a", "old");
    // Like a program that found the file before it was replaced, and opens it for writing afterwards.
    let found = fs::File::open(world.path("a")).unwrap();
    world.tollgate(["write", "a"]).stdin("new").ends().is(0);
    let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&found));
    fs::write(again, "late").unwrap();
    drop(found);
    world.puts(".tollgate/config.toml", "[guard]\ngrace = \"0ms\"\n");
    let answer = world.json("doctor");
    let finding = finding(&answer, "recovery");
    assert_eq!(finding["level"], "warning", "{finding}");
    assert!(finding["message"].as_str().unwrap().contains("1 late write by other programs"), "{finding}");
    let id = world.json("recovery list")[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(world.run(&format!("recovery show {id}")).stdout(), "late");
    insta::assert_snapshot!(world.run("recovery list").filtered, @r#"
    exit 0
    --- stdout
    [ID]  [TIME]        4 B  a  saved by another program during a write by `ada`
    "#);
}

/// The names of all files and folders below a folder.
fn names(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry.clone());
            }
            found.push(entry);
        }
    }
    found.sort();
    found
}

#[test]
fn without_state_everything_else_is_checked_and_nothing_is_created() {
    let world = World::bare();
    world.run("init --vault").is(0);
    fs::remove_dir(world.path("vault/Needs_Action")).unwrap();
    let before = names(&world.root());
    insta::assert_snapshot!(words(&world.run("doctor").is(0)), @r#"
    exit 0
    --- stdout
    ok       workspace    `[W]` (found `.tollgate`)
    ok       settings     mode enforce, unread known, durability durable (`.tollgate/config.toml`)
    ok       state        no guarded writes here yet, so the levels of `tollgate run` were tried in a temporary folder
    ok       privacy      private (mode 700)
    ok       ledger       0 lines, valid
    ok       turns        0 running
    ok       vault        `vault`, 0 open tasks; it has no folder `Needs_Action`, which tollgate creates when it is needed
    no problems
    "#);
    let answer = world.json("doctor");
    let levels =
        answer["findings"].as_array().unwrap().iter().filter(|found| found["check"] == "run").count();
    assert_eq!(levels, 3, "{answer}");
    assert_eq!(names(&world.root()), before);
    // A broken task is found, too, and a vault that is gone.
    fs::create_dir_all(world.path("vault/In_Progress/blue")).unwrap();
    world.puts("vault/In_Progress/blue/x.md", "---\npriority: [\n---\n");
    let vault = || finding(&world.run("doctor --json").json(), "vault").clone();
    assert_eq!(vault()["level"], "warning");
    assert!(vault()["message"].as_str().unwrap().contains("`x.md` in `In_Progress`"), "{}", vault());
    fs::remove_dir_all(world.path("vault")).unwrap();
    assert_eq!(vault()["level"], "problem");
    assert!(vault()["message"].as_str().unwrap().contains("which is not a vault"), "{}", vault());
    assert!(!world.path(".tollgate/version").exists());
    // With a state, the same is said.
    world.tollgate(["create", "a"]).stdin("x").ends().is(0);
    assert_eq!(vault()["level"], "problem");
    // A ledger that was deleted with the whole state is missed.
    fs::remove_dir_all(world.path(".tollgate")).unwrap();
    assert_eq!(finding(&world.run("doctor --json").is(1).json(), "ledger")["level"], "problem");
}

#[test]
fn the_git_store_is_checked_before_the_first_guarded_write() {
    let world = World::bare();
    world.program("git", ["init", "-q"]).ends().is(0);
    world.run("init --store git").is(0);
    let answer = world.run("doctor --json").is(1).json();
    let message = finding(&answer, "vault")["message"].as_str().unwrap();
    assert!(message.contains("no remote `origin`"), "{message}");
}

#[test]
fn tasks_that_cannot_be_read_are_reported() {
    let world = World::bare();
    world.run("init --vault").is(0);
    world.run("task add Weeds").is(0);
    world.puts("vault/Needs_Action/x.md", "---\npriority: [\n---\n# x\n");
    let answer = world.json("doctor");
    let vault = finding(&answer, "vault");
    assert_eq!(vault["level"], "warning", "{vault}");
    let message = vault["message"].as_str().unwrap();
    assert!(message.contains("2 open tasks; 1 file not valid as a task, first `x.md`"), "{message}");
}

#[test]
fn a_program_that_does_not_exist_is_reported() {
    let world = World::with("[run]\nparse = [\"gemini\", \"gemni\"]\n");
    let answer = world.json("doctor");
    let settings = finding(&answer, "settings");
    assert_eq!(settings["level"], "warning", "{settings}");
    assert!(settings["message"].as_str().unwrap().contains("names `gemni`"), "{settings}");
    assert!(settings["hint"].as_str().unwrap().contains("claude-code, codex, gemini"), "{settings}");
}

#[test]
fn an_untrusted_notify_command_is_reported() {
    for settings in ["[notify]\ncommand = [\"true\"]\n", "[notify]\nwebhook = \"https://example.org\"\n"] {
        let world = World::with(settings);
        let answer = world.json("doctor");
        let notify = finding(&answer, "notify");
        assert_eq!(notify["level"], "warning", "{notify}");
        assert!(notify["hint"].as_str().unwrap().contains("tollgate trust"), "{notify}");
    }
}

#[test]
fn agents_that_execute_what_others_only_draft_are_reported() {
    let tables = "[agent.blue]\nsensitive = [\"pay\"]\n";
    for (settings, level) in
        [(tables.to_owned(), "warning"), (format!("[vault]\nagents = \"listed\"\n{tables}"), "ok")]
    {
        let world = World::with(&settings);
        world.run("init --vault").is(0);
        let answer = world.json("doctor");
        let found = answer["findings"].as_array().unwrap().iter().find(|found| found["check"] == "roles");
        assert_eq!(found.map_or("ok", |found| found["level"].as_str().unwrap()), level, "{settings}");
    }
}

#[test]
fn a_configuration_that_is_a_link_to_nothing_is_invalid() {
    let world = World::new();
    fs::create_dir_all(world.path(".tollgate")).unwrap();
    let config = world.path(".tollgate/config.toml");
    let _ = fs::remove_file(&config);
    std::os::unix::fs::symlink(world.tmp().join("gone"), &config).unwrap();
    world.tollgate(["write", "a", "--json"]).stdin("x").ends().fault("CONFIG_INVALID");
    assert!(!world.path("a").exists());
    let answer = world.run("doctor --json").is(1).json();
    assert_eq!(finding(&answer, "settings")["level"], "problem");
}
