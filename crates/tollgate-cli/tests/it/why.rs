//! What an agent had read before a change: `show`, `blame --why` and `bisect`.

use serde_json::{Value, json};

use crate::world::{World, hash, until};

/// The files and whether all of them was read.
fn reads(answer: &Value) -> Vec<(&str, bool)> {
    let reads = answer["reads"].as_array().unwrap().iter();
    reads.map(|read| (read["path"].as_str().unwrap(), read["whole"].as_bool().unwrap())).collect()
}

/// `blue` reads two files, one of them in part, writes, and reads another one.
fn worked(world: &World) -> String {
    for (path, text) in [("a", "one\ntwo\n"), ("src/b", "b\nb\n"), ("c", "c\n")] {
        world.puts(path, text);
    }
    let turn = world.turn("blue");
    for read in ["a", "src/b --lines 1:1"] {
        world.run(&format!("read {read} --turn {turn}")).is(0);
    }
    world.tollgate(["write", "a", "--turn", &turn]).stdin("one\nblue\n").ends().is(0);
    world.run(&format!("read c --turn {turn}")).is(0);
    turn
}

#[test]
fn show_says_what_the_agent_had_read_before_a_change_and_in_the_turn() {
    let world = World::new();
    let turn = worked(&world);
    let seq = world.json("history")[0]["seq"].as_u64().unwrap();
    // While the turn is open, and after its end.
    for end in [false, true] {
        if end {
            world.run(&format!("turn end --turn {turn}")).is(0);
        }
        let change = world.json(&format!("show {seq}"));
        assert_eq!(reads(&change), [("a", true), ("src/b", false)]);
        assert_eq!(change["reads"][1]["hash"], hash("b\nb\n"));
        let whole = world.json(&format!("show {turn}"));
        assert_eq!(reads(&whole), [("a", true), ("src/b", false), ("c", true)]);
        assert_eq!(whole["record"].is_object(), end, "{whole}");
    }
    insta::assert_snapshot!(world.run(&format!("show {seq}")).filtered, @r"
    exit 0
    --- stdout
    change 2 by `blue`, [TIME] ([N] s ago)
      turn  [TURN]
      by    write_file
      read  2 files: a, src/b (in part)
    `a`  +1 -1
        --- before
        +++ after
        @@ -1,2 +1,2 @@
         one
        -two
        +blue
    ");
    let record = &world.json(&format!("show {turn}"))["record"];
    assert_eq!((&record["agent"], &record["reads"]), (&json!("blue"), &json!(3)));
}

#[test]
fn a_turn_that_has_only_read_can_be_shown() {
    let world = World::new();
    world.puts("a", "a\n");
    let turn = world.turn("blue");
    world.run(&format!("read a --turn {turn}")).is(0);
    world.run(&format!("turn end --turn {turn}")).is(0);
    insta::assert_snapshot!(world.run(&format!("show {turn}")).filtered, @r"
    exit 0
    --- stdout
    turn `[TURN]` by `blue`, [TIME] ([N] s ago), has changed nothing
      read  1 file: a
    ");
    let shown = world.json(&format!("show {turn}"));
    assert_eq!(
        (reads(&shown), &shown["changes"], &shown["seq"]),
        (vec![("a", true)], &json!([]), &Value::Null)
    );
    let idle = world.turn("blue");
    world.run(&format!("turn end --turn {idle}")).is(0);
    world.run(&format!("show {idle}")).is(1);
}

#[test]
fn what_is_not_known_is_said() {
    let world = World::new();
    let turn = worked(&world);
    world.run(&format!("turn end --turn {turn}")).is(0);
    world.tollgate(["write", "c", "--agent", "green"]).stdin("green\n").ends().is(0);
    let seq = world.json("history c")[0]["seq"].as_u64().unwrap();
    let shown = world.json(&format!("show {seq}"));
    assert_eq!((reads(&shown), &shown["reads_unknown"]), (vec![], &json!("no_record")));
    world.puts(".tollgate/config.toml", "[history]\nmax_age = \"0ms\"\n");
    world.tollgate(["write", "c", "--agent", "green"]).stdin("again\n").ends().is(0);
    let shown = world.json(&format!("show {turn}"));
    assert_eq!((reads(&shown), &shown["reads_unknown"]), (vec![], &json!("no_longer_kept")));
    let words = world.run(&format!("show {turn}")).is(0).stdout();
    assert!(words.contains("\n  read  not known: the record of the turn is no longer kept\n"), "{words}");
}

#[test]
fn blame_says_why() {
    let world = World::new();
    let turn = worked(&world);
    world.run(&format!("turn end --turn {turn}")).is(0);
    insta::assert_snapshot!(world.tollgate(["blame", "a", "--why"]).ends().is(0).stdout().split_once("\n\n").unwrap().1, @"change 2 by `blue` had read 2 files: a, src/b (in part)");
    let lines = world.json("blame a --why");
    assert_eq!(reads(&lines[1]), [("a", true), ("src/b", false)]);
    assert_eq!(lines[0].get("reads"), None, "nobody's turn");
    assert_eq!(world.json("blame a")[1].get("reads"), None);
}

#[test]
fn bisect_names_what_the_agent_had_read() {
    let world = World::new();
    world.puts("a", "good\n");
    world.puts("notes", "make it bad\n");
    world.tollgate(["write", "a", "--agent", "green"]).stdin("good\n2\n").ends().is(0);
    let turn = world.turn("blue");
    world.run(&format!("read notes --turn {turn}")).is(0);
    world.tollgate(["write", "a", "--turn", &turn]).stdin("bad\n2\n").ends().is(0);
    world.tollgate(["write", "a", "--agent", "green"]).stdin("bad\n3\n").ends().is(0);
    let found = world.tollgate(["bisect", "--json", "--", "grep", "-q", "good", "a"]).ends().is(0).json();
    assert_eq!((&found["agent"], reads(&found)), (&json!("blue"), vec![("notes", true)]));
}

#[test]
fn a_run_outside_of_a_turn_leaves_a_record() {
    let world = World::new();
    world.puts("a", "a\n");
    world.tollgate(["run", "--agent", "blue", "--", "sh", "-c", "cat a > b"]).ends().is(0);
    let seq = world.json("history b")[0]["seq"].as_u64().unwrap();
    // The process in front ends before the record is written.
    let shown = until("the record of the run", || {
        let shown = world.json(&format!("show {seq}"));
        (!reads(&shown).is_empty()).then_some(shown)
    });
    assert_eq!(reads(&shown), [("a", true)]);
}

#[test]
fn the_record_of_a_turn_names_the_one_task_that_its_agent_had_claimed() {
    let world = World::new();
    world.run("init --vault").is(0);
    world.puts("a", "a\n");
    for task in ["first", "second"] {
        world.run(&format!("task add {task} --name {task}.md")).is(0);
    }
    let claim = |task: &str| {
        let claimed = world.json(&format!("task claim {task} --agent blue"));
        claimed["claim_id"].as_str().unwrap().to_owned()
    };
    let task_of_a_turn = || {
        let turn = world.turn("blue");
        world.run(&format!("read a --turn {turn}")).is(0);
        world.run(&format!("turn end --turn {turn}")).is(0);
        world.json(&format!("show {turn}"))["record"]["task"].clone()
    };
    assert_eq!(task_of_a_turn(), Value::Null);
    let first = claim("first.md");
    assert_eq!(task_of_a_turn(), "first.md");
    claim("second.md");
    assert_eq!(task_of_a_turn(), Value::Null, "one of two");
    world.run(&format!("task release first --claim-id {first} --result success")).is(0);
    assert_eq!(task_of_a_turn(), "second.md");
}
