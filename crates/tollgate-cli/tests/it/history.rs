//! What every agent did: lists of changes and their diffs.

use serde_json::Value;

use crate::world::World;

/// `blue` changed two files as one, then `green` one of them, which a person had changed in between.
fn worked() -> World {
    let world = World::new();
    world.puts("a", "one\ntwo\n");
    let changes = r#"[{"path":"a","content":"one\nTWO\n"},{"path":"b","content":"new\n"}]"#;
    world.tollgate(["apply", "--agent", "blue"]).stdin(changes).ends().is(0);
    world.puts("a", "one\nTWO\nperson\n");
    world.tollgate(["write", "a", "--agent", "green"]).stdin("one\nTWO\nperson\ngreen\n").ends().is(0);
    world
}

/// The numbers of the changes in a list.
fn numbers(list: &Value) -> Vec<u64> {
    list.as_array().unwrap().iter().map(|change| change["seq"].as_u64().unwrap()).collect()
}

#[test]
fn a_change_of_several_files_is_one_line_with_its_size() {
    let world = worked();
    insta::assert_snapshot!(world.run("history").filtered, @r"
    exit 0
    --- stdout
         3  [TIME]  green  a  +1 -0  write_file  [TURN]
         1  [TIME]  blue  a, b  (no longer kept)  write_files  [TURN]
    ");
    let list = world.json("history");
    assert_eq!(numbers(&list), [3, 1]);
    assert_eq!(list[1]["paths"], serde_json::json!(["a", "b"]));
    assert_eq!((&list[0]["added"], &list[0]["removed"]), (&1.into(), &0.into()));
    // What `blue` had left was overwritten by a program that does not use tollgate.
    assert_eq!((&list[1]["added"], &list[1]["unknown"]), (&Value::Null, &"not_kept".into()));
    assert_eq!(numbers(&world.json("history b")), [1]);
    assert_eq!(numbers(&world.json("history --agent green")), [3]);
    assert_eq!(numbers(&world.json("history -n 1")), [3]);
    assert_eq!(numbers(&world.json("history --since 1h")), [3, 1]);
    assert_eq!(numbers(&world.json("history --since 2999-01-01T00:00:00Z")), [0; 0]);
}

#[test]
fn a_file_is_followed_through_moves() {
    let world = World::new();
    world.tollgate(["create", "src/a"]).stdin("one\n").ends().is(0);
    world.run("move src/a src/b").is(0);
    // Another file with the first name.
    world.tollgate(["create", "src/a"]).stdin("other\n").ends().is(0);
    world.run("move src/b lib/b").is(0);
    world.tollgate(["write", "lib/b"]).stdin("two\n").ends().is(0);
    assert_eq!(numbers(&world.json("history lib/b")), [5, 4, 2, 1]);
    assert_eq!(numbers(&world.json("history src/a")), [3, 2, 1]);
    assert_eq!(world.json("history lib/b")[2]["moved"][0]["to"], "src/b");
}

#[test]
fn a_change_belongs_to_the_one_task_that_its_agent_had_claimed() {
    let world = World::new();
    world.run("init --vault").is(0);
    for task in ["first", "second"] {
        world.run(&format!("task add {task} --name {task}.md")).is(0);
    }
    let claim = |task: &str| {
        let claimed = world.json(&format!("task claim {task} --agent blue"));
        claimed["claim_id"].as_str().unwrap().to_owned()
    };
    let write = |text: &str| {
        world.tollgate(["write", "a", "--agent", "blue"]).stdin(text).ends().is(0);
    };
    write("before\n");
    let first = claim("first.md");
    write("first\n");
    world.tollgate(["write", "b", "--agent", "green"]).stdin("not blue").ends().is(0);
    let second = claim("second.md");
    write("one of them\n");
    world.run(&format!("task release first --claim-id {first} --result success")).is(0);
    write("second\n");
    world.run(&format!("task release second --claim-id {second} --result success")).is(0);
    write("after\n");
    let tasks: Vec<Value> =
        world.json("history a").as_array().unwrap().iter().map(|change| change["task"].clone()).collect();
    let none = Value::Null;
    assert_eq!(tasks, [none.clone(), "second.md".into(), none.clone(), "first.md".into(), none]);
    assert_eq!(world.json("history --task first").as_array().unwrap().len(), 1);
    let shown = world.json("show first");
    assert_eq!(shown["changes"][0]["path"], "a");
    assert!(shown["changes"][0]["diff"].as_str().unwrap().contains("-before\n+first\n"), "{shown}");
}

#[test]
fn show_has_the_diff_of_a_whole_change_and_says_what_is_no_longer_kept() {
    let world = worked();
    insta::assert_snapshot!(world.run("show 3").filtered, @r"
    exit 0
    --- stdout
    change 3 by `green`, [TIME] ([N] s ago)
      turn  [TURN]
      by    write_file
      read  not known: the turn has not ended yet, or it left no record
    `a`  +1 -0
        --- before
        +++ after
        @@ -1,3 +1,4 @@
         one
         TWO
         person
        +green
    ");
    // Both lines of a change stand for all of it.
    insta::assert_snapshot!(world.run("show 2").filtered, @r"
    exit 0
    --- stdout
    change 1 by `blue`, [TIME] ([N] s ago)
      turn  [TURN]
      by    write_files
      read  not known: the turn has not ended yet, or it left no record
    `a`  (no longer kept)
    `b`, created  +1 -0
        --- before
        +++ after
        @@ -0,0 +1 @@
        +new
    ");
    insta::assert_snapshot!(world.run("show 9").filtered, @r"
    exit 1
    --- stderr
    the ledger has no change of line 9
    hint: run `tollgate history` to see all changes
    ");
    assert_eq!(world.run("show 9 --json").is(1).json()["reason"], "not_found");
    let shown = world.json("show 1");
    assert_eq!((&shown["changes"][0]["path"], &shown["changes"][0]["diff"]), (&"a".into(), &Value::Null));
    assert_eq!(shown["changes"][1]["diff"], "--- before\n+++ after\n@@ -0,0 +1 @@\n+new\n");
}

#[test]
fn show_of_a_turn_has_one_diff_for_changes_that_follow_each_other() {
    let world = World::new();
    world.puts("a", "one\n");
    let turn = world.turn("blue");
    for text in ["two\n", "three\n"] {
        world.run(&format!("read a --turn {turn}")).is(0);
        world.tollgate(["write", "a", "--turn", &turn]).stdin(text).ends().is(0);
    }
    world.tollgate(["write", "a", "--agent", "green"]).stdin("green\n").ends().is(0);
    world.run(&format!("read a --turn {turn}")).is(0);
    world.tollgate(["write", "a", "--turn", &turn]).stdin("four\n").ends().is(0);
    let shown = world.json(&format!("show {turn}"));
    let diffs: Vec<&str> =
        shown["changes"].as_array().unwrap().iter().map(|change| change["diff"].as_str().unwrap()).collect();
    assert_eq!(
        diffs,
        [
            "--- before\n+++ after\n@@ -1 +1 @@\n-one\n+three\n",
            "--- before\n+++ after\n@@ -1 +1 @@\n-green\n+four\n"
        ]
    );
    assert_eq!(shown["agent"], "blue");
}

#[test]
fn text_of_others_cannot_act_on_the_terminal() {
    let world = World::new();
    world.tollgate(["create", "a\x1b[2J"]).stdin("\x1b]0;title\x07\n").ends().is(0);
    for line in ["history", "show 1"] {
        let said = world.run(line).is(0).stdout();
        assert!(!said.contains(['\x1b', '\x07']), "{said:?}");
        assert!(said.contains(r"a\u{1b}[2J"), "{said:?}");
    }
}

#[test]
fn nothing_recorded_is_not_an_error_of_a_list() {
    let world = World::bare();
    insta::assert_snapshot!(world.run("history").filtered, @r"
    exit 0
    --- stderr
    note: no change matches
    hint: leave out options to see more; `tollgate ledger tail` has everything else that is recorded
    ");
    assert_eq!(world.json("history"), serde_json::json!([]));
    assert_eq!(world.run("show 1 --json").is(1).json()["reason"], "not_found");
}

#[test]
fn blame_names_the_agent_somebody_else_and_the_commit_of_each_line() {
    let world = World::new();
    world.puts("a", "one\ntwo\nthree\n");
    let git =
        "git init -q && git add a && git -c user.name=Ada -c user.email=ada@example.org commit -qm first";
    world.script(git).ends().is(0);
    world.puts("a", "one\ntwo\nthree\nnot in git\n");
    world.run("edit a --old two --new TWO --agent blue").is(0);
    world.puts("a", "one\nTWO\nthree\nnot in git\nlater\n");
    world.run("edit a --old one --new ONE --agent green").is(0);
    let lines = world.json("blame a");
    let by: Vec<(&str, &Value)> =
        lines.as_array().unwrap().iter().map(|line| (line["by"].as_str().unwrap(), &line["agent"])).collect();
    let none = &Value::Null;
    assert_eq!(
        by,
        [
            ("agent", &"green".into()),
            // What `blue` had left was overwritten before anybody else read it.
            ("not_kept", none),
            ("commit", none),
            ("before", none),
            ("not_kept", none),
        ]
    );
    assert_eq!(
        (&lines[2]["author"], &lines[0]["seq"], &lines[1]["seqs"]),
        (&"Ada".into(), &2.into(), &serde_json::json!([1]))
    );
    let said = world.run("blame a:5").is(0).stdout();
    assert!(said.starts_with("blue or somebody else  1") && said.ends_with("5) later\n"), "{said}");
    world.run("blame a:6").is(2);
    // A file of which the ledger knows nothing, and a workspace without a ledger.
    world.puts("b", "one\n");
    assert_eq!(world.json("blame b")[0]["by"], "before");
    let bare = World::bare();
    bare.puts("b", "one\n");
    assert_eq!(bare.json("blame b")[0]["by"], "before");
    assert!(!bare.path(".tollgate").exists());
    world.puts("b", b"\xff");
    world.run("blame b").is(2);
}

#[test]
fn an_undo_takes_out_one_change_and_keeps_what_came_later() {
    let world = World::new();
    world.puts("a", "one\ntwo\nthree\nfour\nfive\n");
    world.run("edit a --old one --new ONE --agent blue").is(0);
    world.run("edit a --old five --new FIVE --agent green").is(0);
    insta::assert_snapshot!(world.run("undo 1 --dry-run").filtered, @r"
    exit 0
    --- stdout
    undo change 1 by `blue`, [N] s ago
    `a` was changed since, and keeps what is newer
        --- on disk
        +++ undone
        @@ -1,4 +1,4 @@
        -ONE
        +one
         two
         three
         four
    --- stderr
    note: nothing was changed
    ");
    world.holds("a", "ONE\ntwo\nthree\nfour\nFIVE\n");
    let json = world.run("undo 1 --yes --json").is(0).json();
    assert_eq!((&json["undone"], &json["files"][0]["merge"]), (&serde_json::json!(["a"]), &"clean".into()));
    world.holds("a", "one\ntwo\nthree\nfour\nFIVE\n");
    assert_eq!(world.json("history")[0]["via"], "undo");
    world.run("undo --yes").is(0);
    world.holds("a", "ONE\ntwo\nthree\nfour\nFIVE\n");
}

#[test]
fn an_undo_of_the_same_lines_is_a_conflict_and_changes_nothing() {
    let world = World::new();
    world.puts("a", "one\n");
    let changes = r#"[{"path":"a","content":"two\n"},{"path":"b","content":"new\n"}]"#;
    world.tollgate(["apply", "--agent", "blue"]).stdin(changes).ends().is(0);
    world.tollgate(["write", "a", "--agent", "green"]).stdin("three\n").ends().is(0);
    insta::assert_snapshot!(world.run("undo 1 --yes").filtered, @r"
    exit 1
    --- stderr
    undo change 1 by `blue`, [N] s ago
    `a` cannot be undone: somebody has changed the same lines since
    `b` is deleted
        --- on disk
        +++ undone
        @@ -1 +0,0 @@
        -new
    refused: 1 file cannot be undone, so nothing was
    hint: see the change with `tollgate show` and edit the files by hand, or restore an entry of `tollgate recovery list` with `tollgate undo --to ID`
    ");
    let json = world.run("undo 1 --yes --json").is(1).json();
    assert_eq!((&json["reason"], &json["conflicts"][0]["why"]), (&"conflict".into(), &"same_lines".into()));
    assert!(json["conflicts"][0]["content"].as_str().unwrap().contains("<<<<<<<"), "{json}");
    world.holds("a", "three\n");
    world.holds("b", "new\n");
}

#[test]
fn a_turn_is_undone_as_a_whole_with_created_deleted_and_moved_files() {
    let world = World::new();
    world.puts("a", "one\n");
    world.puts("b", "bytes of b\n");
    world.puts("c", "bytes of c\n");
    let turn = world.turn("blue");
    let with_turn = |line: &str| world.run(&format!("{line} --turn {turn}")).is(0);
    world.tollgate(["write", "a", "--turn", &turn]).stdin("two\n").ends().is(0);
    world.tollgate(["create", "new", "--turn", &turn]).stdin("new\n").ends().is(0);
    with_turn("delete b");
    with_turn("move c d");
    world.run(&format!("turn end --turn {turn}")).is(0);
    let json = world.run(&format!("undo --turn {turn} --yes --json")).is(0).json();
    assert_eq!(json["undone"].as_array().unwrap().len(), 4, "{json}");
    world.holds("a", "one\n");
    world.holds("b", "bytes of b\n");
    world.holds("c", "bytes of c\n");
    assert!(!world.path("new").exists() && !world.path("d").exists());
    assert_eq!(world.json("ledger verify")["valid"], true);
    assert_eq!(world.run("undo --yes --json").is(0).json()["conflicts"], serde_json::json!([]));
    world.holds("a", "two\n");
    world.holds("new", "new\n");
    world.holds("d", "bytes of c\n");
    assert!(!world.path("b").exists());
}

#[test]
fn all_that_an_agent_did_since_a_time_is_undone_by_the_person() {
    let world = World::new();
    world.puts("a", "one\ntwo\nthree\nfour\n");
    world.run("edit a --old one --new ONE --agent blue").is(0);
    world.run("edit a --old four --new FOUR --agent green").is(0);
    world.tollgate(["create", "b", "--agent", "blue"]).stdin("b\n").ends().is(0);
    world.run("undo --since 1h").is(2);
    world.run("undo --agent blue --since 1h --yes").is(0);
    world.holds("a", "one\ntwo\nthree\nFOUR\n");
    assert!(!world.path("b").exists());
    // The person did it, not `blue`.
    assert_eq!(world.json("history -n 1")[0]["agent"], "ada");
    let refused = world.tollgate(["undo", "2", "--yes", "--json"]).env("TOLLGATE_AGENT", "blue").ends().is(1);
    assert_eq!(refused.json()["reason"], "not_yours");
}

#[test]
fn a_file_is_restored_as_it_was_after_a_change_or_at_a_time() {
    let world = World::new();
    world.tollgate(["create", "a"]).stdin("one\n").ends().is(0);
    world.tollgate(["write", "a"]).stdin("two\n").ends().is(0);
    world.tollgate(["write", "a"]).stdin("three\n").ends().is(0);
    world.run("restore a --at 1 --yes").is(0);
    world.holds("a", "one\n");
    insta::assert_snapshot!(world.run("restore a --at 2 --dry-run").filtered, @r"
    exit 0
    --- stdout
    `a`
        --- on disk
        +++ restored
        @@ -1 +1 @@
        -one
        +two
    --- stderr
    note: nothing was changed
    ");
    assert_eq!(world.run("restore a --at 1 --yes --json").is(1).json()["reason"], "already_so");
    assert_eq!(world.run("restore a --at 9 --yes --json").is(1).json()["reason"], "not_found");
    world.run("restore a --at nonsense").is(2);
    // It did not exist then.
    world.run("restore a --at 2020-01-01 --yes").is(0);
    assert!(!world.path("a").exists());
    world.run("undo --yes").is(0);
    world.holds("a", "one\n");
}

#[test]
fn diff_has_what_changed_since_in_the_files_of_agents() {
    let world = World::new();
    world.puts("a", "one\n");
    world.puts("b", "not of agents\n");
    world.tollgate(["write", "a", "--agent", "blue"]).stdin("two\n").ends().is(0);
    world.puts("a", "three\n");
    world.puts("b", "changed\n");
    let diff = world.json("diff --since 1h");
    assert_eq!(diff.as_array().unwrap().len(), 1, "{diff}");
    assert_eq!(diff[0]["diff"], "--- before\n+++ after\n@@ -1 +1 @@\n-one\n+three\n");
    assert_eq!(world.json("diff --since 1h --agent green"), serde_json::json!([]));
}

#[test]
fn long_answers_go_to_the_pager_of_a_terminal_and_of_nothing_else() {
    let world = worked();
    let show = || world.tollgate(["show", "3"]).env("PAGER", "sed s/^/page:/");
    assert!(show().typed("").is(0).shown.contains("page:"));
    assert!(!show().ends().is(0).stdout().contains("page:"));
    assert!(!show().env("TOLLGATE_PAGER", "cat").typed("").is(0).shown.contains("page:"));
    let json = world.tollgate(["show", "3", "--json"]).env("PAGER", "sed s/^/page:/");
    assert!(!json.typed("").is(0).shown.contains("page:"));
    // A pager that does not exist hides nothing.
    assert!(
        world.tollgate(["show", "3"]).env("PAGER", "no-such-pager").typed("").is(0).shown.contains("+green")
    );
}

/// A file that ten changes grow by a line each, between changes of other files.
#[test]
fn bisect_finds_the_change_in_private_views_and_leaves_no_trace() {
    let world = World::with("[guard]\ndurability = \"fast\"\n");
    world.puts("a", "-1\n");
    for n in 0..10 {
        let changes = format!(r#"[{{"path":"a","content":"{n}\n"}},{{"path":"b{n}","content":"x"}}]"#);
        world.tollgate(["apply", "--agent", "blue"]).stdin(changes).ends().is(0);
    }
    let before = world.json("ledger verify")["lines"].clone();
    let test = "echo trace > trace; rm -f b3; test $(cat a) -lt 6";
    let found = world.tollgate(["bisect", "--json", "--", "sh", "-c", test]).ends().is(0).json();
    // The seventh change of two files.
    assert_eq!((&found["found"], &found["seq"], &found["agent"]), (&true.into(), &13.into(), &"blue".into()));
    assert!(found["runs"].as_u64().unwrap() <= 6, "{found}");
    assert_eq!(found["paths"], serde_json::json!(["a", "b6"]));
    assert!(!world.path("trace").exists() && world.path("b3").exists());
    world.holds("a", "9\n");
    assert_eq!(world.json("ledger verify")["lines"], before);
    let run =
        |words: &[&str]| world.tollgate(["bisect", "--json", "--"].iter().chain(words)).ends().is(1).json();
    assert_eq!(run(&["true"])["reason"], "succeeds_now");
    assert_eq!(run(&["false"])["reason"], "fails_before");
    assert_eq!(run(&["sh", "-c", "exit 125"])["reason"], "cannot_say");
    // States that cannot be tested: the cause is one of several changes.
    let test = "n=$(cat a); [ $n = 5 ] && exit 125; [ $n = 6 ] && exit 125; test $n -lt 6";
    let found =
        world.tollgate(["bisect", "--json", "--since", "3", "--", "sh", "-c", test]).ends().is(0).json();
    assert_eq!((&found["found"], &found["seqs"]), (&false.into(), &serde_json::json!([11, 13, 15])));
}

#[test]
fn bisect_leaves_links_alone_and_writes_through_none() {
    let world = World::with("[guard]\ndurability = \"fast\"\n");
    world.puts("file", "kept\n");
    let runs =
        |script: &str| world.tollgate(["run", "--agent", "blue", "--", "sh", "-c", script]).ends().is(0);
    runs("echo 1 > a; echo x > was");
    runs("ln -s file link");
    runs("echo 2 > a");
    runs("rm was; ln -s file was");
    // Where `was` is a link now, a file is made for the states before.
    let test = "grep -q kept file && ! grep -sq 2 a";
    let found = world.tollgate(["bisect", "--json", "--", "sh", "-c", test]).ends().is(0).json();
    assert_eq!((&found["found"], &found["paths"]), (&true.into(), &serde_json::json!(["a"])), "{found}");
    world.holds("file", "kept\n");
}

#[test]
fn the_lines_of_a_link_are_those_of_its_file() {
    let world = World::new();
    world.puts("a", "one\n");
    world.tollgate(["run", "--agent", "blue", "--", "ln", "-s", "a", "link"]).ends().is(0);
    world.tollgate(["write", "a", "--agent", "green"]).stdin("one\ntwo\n").ends().is(0);
    assert_eq!(world.json("blame link"), world.json("blame a"));
    assert_eq!(world.json("blame link")[1]["agent"], "green");
}

#[test]
fn git_s_own_data_is_not_part_of_the_history() {
    let world = World::new();
    world.script("git init -q; git config user.name P; git config user.email p@x; git commit -q --allow-empty -m one").ends().is(0);
    let script = "echo new > a; git add a; git commit -q -m two; echo newer > a";
    world.tollgate(["run", "--agent", "blue", "--", "sh", "-c", script]).ends().is(0);
    let list = world.json("history");
    assert_eq!(list[0]["paths"], serde_json::json!(["a"]));
    world.tollgate(["undo", "--agent", "blue", "--since", "1h", "--yes"]).ends().is(0);
    assert!(!world.path("a").exists());
    assert_eq!(world.script("git log --format=%s").ends().stdout(), "two\none\n");
    world.tollgate(["run", "--agent", "blue", "--", "git", "tag", "x"]).ends().is(0);
    assert_eq!(world.json("history").as_array().unwrap().len(), 2, "the run and its undo");
}

#[test]
fn a_file_is_restored_as_it_was_after_a_change_of_other_files() {
    let world = World::new();
    world.tollgate(["create", "a"]).stdin("one\n").ends().is(0);
    world.tollgate(["create", "b"]).stdin("x\n").ends().is(0);
    world.tollgate(["write", "a"]).stdin("two\n").ends().is(0);
    world.run("restore a --at 2 --yes").is(0);
    world.holds("a", "one\n");
    for unknown in ["0", "9"] {
        let refused = world.tollgate(["restore", "a", "--at", unknown, "--yes", "--json"]).ends().is(1);
        assert_eq!(refused.json()["reason"], "not_found");
    }
}

#[test]
fn a_link_is_called_a_link() {
    let world = World::new();
    world.tollgate(["run", "--agent", "blue", "--", "ln", "-s", "a", "link"]).ends().is(0);
    assert_eq!(world.json("history")[0]["unknown"], "link");
    assert!(world.run("show 1").filtered.contains("`link`, created  (a symbolic link)"));
}
