//! A refused command loses no work: what it wanted to change is kept, and can be merged with what is on disk.

use std::fs;

use serde_json::Value;

use super::HOLD;
use crate::world::{World, until};

/// A command that changes `f`, creates `new`, deletes `old`, and is refused because somebody saves `f` meanwhile.
fn refused(world: &World, script: &str, saved: &str) -> String {
    until("a refusal by a run that has read `f` before it was saved", || {
        world.puts("f", "one\ntwo\nthree\nfour\n");
        world.puts("old", "old\n");
        let ran = world.held(&["--agent", "blue"], &format!("{script}; {HOLD}"), || {
            fs::write(world.path("f"), saved).unwrap();
        });
        assert!(format!("{ran}").starts_with("exit 75"), "{ran}");
        world.holds("f", saved);
        let stderr = ran.stderr();
        let knows = !stderr
            .lines()
            .any(|line| line.contains("STALE_FILE") && line.contains("\"expected_hash\":null"));
        knows.then_some(stderr)
    })
}

const WORK: &str = "sed -i s/one/1/ f; echo made > new; rm old";

#[test]
fn what_a_refused_command_wanted_is_merged_and_written_as_a_whole() {
    let world = World::new();
    let stderr = refused(&world, WORK, "one\ntwo\nthree\n4\n");
    assert!(stderr.contains("hint: run `tollgate merge --run "), "{stderr}");
    let shown = world.run("merge --run").is(0);
    assert!(
        shown.stdout().contains("`new` is created") && shown.stdout().contains("`old` is deleted"),
        "{shown}"
    );
    world.holds("f", "one\ntwo\nthree\n4\n");
    assert!(!world.path("new").exists() && world.path("old").exists(), "nothing was written");
    let json: Value = serde_json::from_str(&world.run("merge --run --write --json").is(0).stdout()).unwrap();
    assert_eq!(json["merged"], serde_json::json!(["f", "new", "old"]), "{json}");
    assert_eq!((&json["files"][0]["merge"], &json["written"]), (&"clean".into(), &true.into()));
    world.holds("f", "1\ntwo\nthree\n4\n");
    world.holds("new", "made\n");
    assert!(!world.path("old").exists());
    assert!(format!("{}", world.run("merge --run")).starts_with("exit 1"), "it is written once");
}

#[test]
fn a_conflict_writes_nothing_and_says_to_run_the_command_again() {
    let world = World::new();
    let stderr = refused(&world, WORK, "ONE\ntwo\nthree\nfour\n");
    assert!(
        !stderr.contains("tollgate merge --run") && stderr.contains("hint: run `tollgate run --retry "),
        "{stderr}"
    );
    let shown = world.run("merge --run --write").is(1);
    assert!(shown.stdout().contains("`f` cannot be merged"), "{shown}");
    assert!(shown.stderr().contains("hint: run the command again"), "{shown}");
    world.holds("f", "ONE\ntwo\nthree\nfour\n");
    assert!(!world.path("new").exists() && world.path("old").exists(), "nothing was written");
}

/// A file without a conflict when the command was refused may have one later.
#[test]
fn a_file_that_was_changed_after_the_refusal_is_not_overwritten() {
    let world = World::new();
    refused(&world, WORK, "one\ntwo\nthree\n4\n");
    world.puts("new", "theirs\n");
    world.run("merge --run --write").is(1);
    world.holds("new", "theirs\n");
    world.holds("f", "one\ntwo\nthree\n4\n");
    fs::remove_file(world.path("new")).unwrap();
    world.run("merge --run --write").is(0);
    world.holds("new", "made\n");
}

/// Without the rest, a link or a program that may be executed would be something else.
#[test]
fn what_is_not_kept_is_counted() {
    let world = World::new();
    let work = "sed -i s/one/1/ f; ln -s f link; echo made > new; chmod +x new";
    refused(&world, work, "one\ntwo\nthree\n4\n");
    let shown = world.run("merge --run").is(0);
    assert!(shown.stderr().contains("2 changes were not kept"), "{shown}");
    world.run("merge --run --write").is(0);
    world.holds("f", "1\ntwo\nthree\n4\n");
    assert!(!world.path("link").exists() && !world.path("new").exists());
}

/// git has to make its own changes, and a command that was refused for something else may be wrong as a whole.
#[test]
fn the_work_of_git_and_of_commands_that_were_refused_otherwise_is_not_offered() {
    let world = World::new();
    world.native("git init -q -b main .").ends().is(0);
    refused(&world, "sed -i s/one/1/ f; git add f", "one\ntwo\nthree\n4\n");
    world.run("merge --run").is(1);
    world.puts(".git/hooks/x", "");
    let stderr = refused(&world, "sed -i s/one/1/ f; rm .git/hooks/x", "one\ntwo\nthree\n4\n");
    assert!(!stderr.contains("tollgate merge --run") && !stderr.contains("--retry"), "{stderr}");
    assert!(format!("{}", world.run("merge --run 99")).starts_with("exit 1"));
}

#[test]
fn the_same_command_runs_again_in_its_folder_and_its_refusal_is_done_with() {
    let world = World::new();
    world.puts("sub/x", "");
    let script = "cd sub; touch ran; cd ..; sed -i s/one/1/ f; printf '%s' \"$0\" > 'a b'";
    let stderr = refused(&world, script, "one and more\ntwo\nthree\nfour\n");
    let line = stderr.split("tollgate run --retry ").nth(1).unwrap().split('`').next().unwrap();
    fs::write(world.tmp().join("go"), "").unwrap();
    let retry = |agent: &str, of: &[&str]| {
        let words = ["run", "--agent", agent, "--retry"];
        world.tollgate(words.iter().chain(of)).folder(world.path("sub")).everywhere().ends()
    };
    let other = retry("red", &[]).is(125);
    assert!(other.stderr().contains("no refused command of yours is kept"), "{other}");
    retry("blue", &[]).is(0);
    world.holds("f", "1 and more\ntwo\nthree\nfour\n");
    world.holds("a b", "sh");
    assert!(world.path("sub/ran").exists());
    let again = retry("blue", &[line]).is(125);
    assert!(again.stderr().contains("hint: give the command itself"), "{again}");
    world.run(&format!("merge --run {line}")).is(1);
}

/// Only what an agent has done itself, and a person everything.
#[test]
fn an_agent_merges_its_own_runs_only() {
    let world = World::new();
    refused(&world, WORK, "one\ntwo\nthree\n4\n");
    world.run("merge --run --agent red --write").is(1);
    world.run("merge --run --agent blue --write").is(0);
    world.holds("new", "made\n");
}
