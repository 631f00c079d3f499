//! Whose unfinished files are in the tree: `tollgate status`, for people and for programs.

use std::fs;

use serde_json::{Value, json};

use super::{Door, checkout};
use crate::world::World;

fn listed(world: &World) -> Value {
    world.run("status --unfinished --json").is(0).json()
}

/// Of each file: the path, the agent, the lines added and removed, the size of a file without lines, and whether HEAD has a version.
fn rows(world: &World) -> Vec<[Value; 6]> {
    let keys = ["path", "agent", "added", "removed", "bytes", "committed"];
    listed(world).as_array().unwrap().iter().map(|row| keys.map(|key| row[key].clone())).collect()
}

fn row(
    path: &str,
    agent: Option<&str>,
    lines: Option<[u64; 2]>,
    bytes: Option<u64>,
    committed: bool,
) -> [Value; 6] {
    let [added, removed] = lines.map_or([None; 2], |lines| lines.map(Some));
    [json!(path), json!(agent), json!(added), json!(removed), json!(bytes), json!(committed)]
}

#[test]
fn status_says_whose_unfinished_files_are_in_the_tree() {
    let world = checkout(Door::Transaction);
    assert_eq!(world.json("status")["unfinished"], json!({"files": 0, "agents": []}));
    assert!(world.run("status").filtered.contains("unfinished   no files"));
    assert_eq!(world.run("status --unfinished").is(0).stdout(), "no unfinished files\n");
    for (agent, file) in [("blue", "f"), ("blue", "new"), ("red", "g")] {
        world.tollgate(["write", file, "--agent", agent]).stdin("one\nother\nlines\n").ends().is(0);
    }
    world.run("delete mine --agent red").is(0);
    world.puts("d/f", "a person's\n");
    world.puts("out/ignored", "of nobody");
    // What blue wrote is not what the file holds.
    world.puts("new", "changed by a person\n");
    let json = world.json("status");
    let counts = json!([
        {"agent": "blue", "files": 1}, {"agent": "red", "files": 2}, {"agent": null, "files": 2}
    ]);
    assert_eq!(json["unfinished"], json!({"files": 5, "agents": counts}));
    let line = "unfinished   5 files: 1 by `blue`; 2 by `red`; 2 by people or other programs\n";
    let said = world.run("status").filtered;
    assert!(said.contains(line), "{said}");
    insta::assert_snapshot!(world.run("status --unfinished").is(0).filtered, @r"
    exit 0
    --- stdout
    unfinished: 5 files: 1 by `blue`; 2 by `red`; 2 by people or other programs
      `blue`    [N] s ago  +2 -1  f
      `red`     [N] s ago  +2 -0  g
      `red`     [N] s ago  +0 -1  mine
      no agent  [N] s ago  +1 -1  d/f
      no agent  [N] s ago  +1 -0  new
    ");
    let since = listed(&world)[0]["since"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!(jiff::Timestamp::now().duration_since(since).as_secs() < 600);
    // A part of the tree is a workspace of its own.
    let below = world.path("d");
    let of_part =
        world.tollgate(["status", "--unfinished", "--json", "--workspace", "."]).folder(&below).ends();
    assert_eq!(of_part.json().as_array().unwrap().len(), 1, "{of_part}");
    assert_eq!(of_part.json()[0]["path"], "f");
}

#[test]
fn the_size_of_a_change_is_what_git_counts() {
    let world = checkout(Door::Transaction);
    let script = "printf 'a\\0b' > committed.bin; seq 300 > 'with
newline'; ln -s f link; git add -A; git commit -qm more
        printf 'a\\0bcd' > committed.bin; seq 2 300 > 'with
newline'; printf 'no end' >> f; chmod +x g; rm mine
        printf 'x\\0y' > new.bin; printf 'no end' > new; : > empty; ln -s nowhere newlink; ln -sfn d link
        echo staged > staged; git add staged; rm staged
        git init -q inner; echo x > inner/x";
    world.script(script).ends().is(0);
    let expected = [
        row("committed.bin", None, None, Some(5), true),
        row("empty", None, Some([0, 0]), None, false),
        row("f", None, Some([1, 0]), None, true),
        row("g", None, Some([0, 0]), None, true),
        row("link", None, Some([1, 1]), None, true),
        row("mine", None, Some([0, 1]), None, true),
        row("new", None, Some([1, 0]), None, false),
        row("new.bin", None, None, Some(3), false),
        row("newlink", None, Some([1, 0]), None, false),
        row("staged", None, Some([0, 0]), None, false),
        row("with\nnewline", None, Some([0, 1]), None, true),
    ];
    assert_eq!(rows(&world), expected);
    let git = world.program("git", ["diff", "--numstat", "HEAD", "--", "f", "link", "mine"]).ends().stdout();
    assert_eq!(git, "1\t0\tf\n1\t1\tlink\n0\t1\tmine\n");
    // A conflict is unfinished, and counts against HEAD.
    world
        .script("git reset -q --hard; git clean -fdxq -e .tollgate; echo other >> g; git commit -qam g")
        .ends()
        .is(0);
    world
        .script("git switch -q -c side HEAD~1; echo side >> g; git commit -qam side; ! git merge -q main")
        .ends()
        .is(0);
    assert_eq!(rows(&world), [row("g", None, Some([4, 0]), None, true)]);
    // Before the first commit, everything is new.
    world.script("git merge --abort; git checkout -q --orphan empty; git rm -rqf --cached .").ends().is(0);
    assert!(rows(&world).contains(&row("f", None, Some([2, 0]), None, false)));
}

#[test]
fn a_name_has_no_effect_on_the_terminal_and_a_pipe_does_not_stop_status() {
    let world = checkout(Door::Transaction);
    world.puts("\u{1b}[2J\u{202e}gpj", "x\n");
    world.tollgate(["create", "pipe", "--agent", "blue"]).stdin("x\n").ends().is(0);
    fs::remove_file(world.path("pipe")).unwrap();
    world.script("git add -f d; mkfifo pipe fifo; rm f; mkfifo f").ends().is(0);
    let said = world.run("status --unfinished").is(0).stdout();
    assert!(!said.contains(['\u{1b}', '\u{202e}']) && said.contains("gpj"), "{said}");
    assert!(rows(&world).contains(&row("f", None, None, Some(0), true)));
}

#[test]
fn of_many_files_the_first_are_listed_and_the_rest_are_counted() {
    let world = checkout(Door::Transaction);
    world.tollgate(["write", "g", "--agent", "blue"]).stdin("x\n").ends().is(0);
    world.script("mkdir many; for n in $(seq 1000 1578); do : > many/$n; done").ends().is(0);
    let said = world.run("status --unfinished").is(0).stdout();
    assert!(
        said.starts_with("unfinished: 580 files: 1 by `blue`; 579 by people or other programs\n  `blue`")
    );
    assert!(said.ends_with("many/1098\n  and 480 more: `tollgate status --unfinished --json`\n"), "{said}");
    assert_eq!(listed(&world).as_array().unwrap().len(), 580);
    assert_eq!(world.json("status")["unfinished"]["files"], 580);
}

/// Without git there is no version to compare with: an agent's work is unfinished until its turn ends.
#[test]
fn outside_of_a_repository_unfinished_is_what_open_turns_have_written() {
    let world = World::new();
    world.puts("theirs", "x\n");
    assert_eq!(world.json("status")["unfinished"]["files"], 0);
    let turn = world.turn("blue");
    for file in ["a", "b", "c"] {
        world.tollgate(["create", file, "--turn", &turn]).stdin("one\n").ends().is(0);
    }
    world.tollgate(["create", "d", "--agent", "red"]).stdin("one\n").ends().is(0);
    world.puts("b", "changed by a person\n");
    fs::remove_file(world.path("c")).unwrap();
    assert_eq!(rows(&world), [row("a", Some("blue"), None, Some(4), false)]);
    assert_eq!(
        world.json("status")["unfinished"],
        json!({"files": 1, "agents": [{"agent": "blue", "files": 1}]})
    );
    world.run(&format!("turn end --turn {turn}")).is(0);
    assert_eq!(listed(&world), json!([]));
}
