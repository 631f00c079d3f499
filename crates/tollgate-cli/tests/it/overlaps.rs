//! Overlaps: agents hear of each other when they work on the same file, in one tree or in several.

use std::path::Path;

use serde_json::json;

use crate::mcp::Client;
use crate::world::World;

fn world() -> World {
    let world = World::with("[guard]\ndurability = \"fast\"\ngrace = \"1ms\"\n");
    world.puts("a.rs", (1..=30).map(|n| format!("line {n}\n")).collect::<String>());
    world
}

/// What a call in this turn and folder says on stderr.
fn told(world: &World, folder: &Path, turn: &str, words: &[&str]) -> String {
    let words = words.iter().copied().chain(["--turn", turn]);
    world.filtered(&world.tollgate(words).folder(folder).ends().is(0).stderr())
}

const EDIT: [&str; 6] = ["edit", "a.rs", "--old", "line 12\nline 13\n", "--new", "LINE\n"];

#[test]
fn agents_in_one_tree_hear_once_of_each_other() {
    let world = world();
    let root = world.root();
    let (blue, red) = (world.turn("blue"), world.turn("red"));
    let tell = |turn: &str, words: &[&str]| told(&world, &root, turn, words);
    assert_eq!(tell(&red, &["read", "a.rs"]), "");
    assert_eq!(tell(&red, &EDIT), "");
    // The reader hears of the one that changes the file,
    assert_eq!(tell(&blue, &["read", "a.rs"]), "note: `red` is also working on `a.rs` (line 12)\n");
    assert_eq!(tell(&blue, &["read", "a.rs"]), "");
    // and that one of the reader.
    assert_eq!(tell(&red, &["read", "a.rs"]), "note: `blue` has read `a.rs`, which you have changed\n");
    // A note on the change itself is enough.
    assert_eq!(tell(&blue, &["edit", "a.rs", "--old", "line 20\n", "--new", "one\ntwo\n"]), "");
    let note = tell(&red, &["read", "a.rs"]);
    assert_eq!(note, "");
    let green = world.turn("green");
    assert_eq!(tell(&green, &["read", "a.rs"]).matches("is also working on").count(), 2);
    let status = world.run("status --json");
    let overlaps = &serde_json::from_str::<serde_json::Value>(&status.stdout()).unwrap()["overlaps"];
    let workers: Vec<_> = overlaps[0]["workers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|worker| json!([worker["agent"], worker["changed"], worker["lines"]]))
        .collect();
    assert_eq!(overlaps[0]["path"], "a.rs");
    assert_eq!(
        workers,
        [json!(["blue", true, [19, 20]]), json!(["red", true, [12, 12]]), json!(["green", false, null])]
    );
    let line =
        "overlaps     1: `a.rs` by `blue` (lines 19 to 20) and `red` (line 12) and `green` (has read it)\n";
    assert!(world.run("status").stdout().contains(line), "{}", world.run("status"));
    // A turn that has ended works on nothing.
    for turn in [blue, green] {
        world.run(&format!("turn end --turn {turn}")).is(0);
    }
    assert!(!world.run("status").stdout().contains("overlaps"));
}

#[test]
fn readers_alone_and_one_agent_alone_do_not_overlap() {
    let world = world();
    let root = world.root();
    let (blue, red, again) = (world.turn("blue"), world.turn("red"), world.turn("blue"));
    for turn in [&blue, &red, &again] {
        assert_eq!(told(&world, &root, turn, &["read", "a.rs"]), "");
    }
    assert_eq!(told(&world, &root, &red, &["create", "new.rs"]), "");
    assert_eq!(told(&world, &root, &blue, &["read", "a.rs"]), "");
    world.run(&format!("turn end --turn {red}")).is(0);
    assert_eq!(told(&world, &root, &blue, &EDIT), "");
    assert!(told(&world, &root, &again, &["read", "a.rs"]).is_empty());
}

#[test]
fn agents_in_two_trees_of_a_repository_hear_of_each_other() {
    let world = world();
    for line in ["init -q", "add a.rs", "commit -qm first", "worktree add -q ../b"] {
        let author = ["-c", "user.name=t", "-c", "user.email=t@t"];
        world.program("git", author.into_iter().chain(line.split_whitespace())).ends().is(0);
    }
    let (root, beside) = (world.root(), world.tmp().join("b"));
    let blue = world.turn("blue");
    let begin = world.tollgate(["turn", "begin", "--agent", "red"]).folder(&beside).ends().is(0).stdout();
    let red = begin.trim();
    assert_eq!(told(&world, &beside, red, &["read", "a.rs"]), "");
    assert_eq!(told(&world, &beside, red, &EDIT), "");
    assert_eq!(
        told(&world, &root, &blue, &["read", "a.rs"]),
        "note: `red` is also working on `a.rs` (line 12), in its working tree ../b\n"
    );
    assert_eq!(told(&world, &root, &blue, &["read", "a.rs"]), "");
    assert_eq!(
        told(&world, &beside, red, &["read", "a.rs"]),
        "note: `blue` has read `a.rs`, which you have changed, in its working tree ../w\n"
    );
    let line = format!(
        "overlaps     1: `a.rs` by `red` (line 12) in `{}` and `blue` (has read it)\n",
        beside.display()
    );
    assert!(world.run("status").stdout().contains(&line), "{}", world.run("status"));
}

#[test]
fn an_agent_over_mcp_and_one_on_the_command_line_hear_of_each_other() {
    let world = world();
    let mut green = Client::of(&world, "green");
    green.done("write_file", json!({"path": "new.rs", "content": "one\ntwo\n"}));
    let blue = world.turn("blue");
    assert_eq!(
        told(&world, &world.root(), &blue, &["read", "new.rs"]),
        "note: `green` is also working on `new.rs` (lines 1 to 2)\n"
    );
    let answer = green.call("read_text_file", json!({"path": "a.rs"}));
    assert_eq!(answer["content"][1]["text"], "note: `blue` has read `new.rs`, which you have changed");
}
