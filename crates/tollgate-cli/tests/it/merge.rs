//! `tollgate merge`: what a refused write wanted, merged with what is on disk.

use crate::world::{Ran, World};

const READ: &str = "one\ntwo\nthree\n";
const WANTED: &str = "ONE\ntwo\nthree\n";
const DISK: &str = "one\ntwo\nTHREE\n";
const BOTH: &str = "ONE\ntwo\nTHREE\n";

/// A workspace in which a write of `blue` was refused, the turn, and the refusal.
fn refused(wanted: &str) -> (World, String, Ran) {
    let world = World::new();
    world.puts("a.md", READ);
    let turn = world.turn("blue");
    world.run(&format!("read a.md --turn {turn}")).is(0);
    world.puts("a.md", DISK);
    let ran = world.tollgate(["write", "a.md", "--turn", &turn]).stdin(wanted).ends().is(1);
    (world, turn, ran)
}

#[test]
fn a_clean_merge_is_offered_shown_and_written() {
    let (world, turn, ran) = refused(WANTED);
    assert!(
        ran.stderr().contains("hint: run `tollgate merge 'a.md' --write` to write a clean merge"),
        "{ran}"
    );
    let merge = |more: &[&str]| world.tollgate(["merge", "a.md", "--turn", &turn].iter().chain(more)).ends();
    insta::assert_snapshot!(world.run("merge a.md").filtered, @r"
    exit 0
    --- stdout
    ONE
    two
    THREE
    --- stderr
    clean merge of what `blue` wanted to write to `a.md` [N] s ago; nothing was written
        --- on disk
        +++ merged
        @@ -1,3 +1,3 @@
        -one
        +ONE
         two
         THREE
    hint: run `tollgate merge '[W]/a.md' --write` to write it
    ");
    let json = world.run("merge a.md --json").is(0).json();
    assert_eq!(
        (&json["clean"], &json["content"], &json["written"]),
        (&true.into(), &BOTH.into(), &false.into())
    );
    world.holds("a.md", DISK);
    insta::assert_snapshot!(merge(&["--write"]).filtered, @r"
    exit 0
    --- stdout
    merged `a.md`, 0ad8e86f -> 1aaf5092
        --- on disk
        +++ merged
        @@ -1,3 +1,3 @@
        -one
        +ONE
         two
         THREE
    ");
    world.holds("a.md", BOTH);
    assert_eq!(merge(&["--json"]).is(1).json()["reason"], "nothing_refused");
    world.tollgate(["write", "a.md", "--turn", &turn]).stdin("the turn knows the merge\n").ends().is(0);
}

#[test]
fn a_merge_with_conflicts_has_markers_and_is_not_written() {
    let (world, turn, ran) = refused("one\ntwo\n3\n");
    assert!(!ran.stderr().contains("tollgate merge"), "{ran}");
    insta::assert_snapshot!(world.run("merge a.md --write --agent blue").filtered, @r"
    exit 1
    --- stdout
    one
    two
    <<<<<<< what you wanted
    3
    ||||||| what you read
    three
    =======
    THREE
    >>>>>>> on disk
    --- stderr
    merge of what `blue` wanted to write to `a.md` [N] s ago: 1 conflict
    hint: resolve what is between the markers, then write the whole of `a.md`
    ");
    world.holds("a.md", DISK);
    let json = world.run(&format!("merge a.md --turn {turn} --json")).is(1).json();
    assert_eq!((&json["clean"], &json["written"]), (&false.into(), &false.into()));
    // The merge has shown all that is on disk.
    world.tollgate(["write", "a.md", "--turn", &turn]).stdin("one\ntwo\n3 THREE\n").ends().is(0);
}

#[test]
fn why_there_is_no_merge_is_told() {
    let (world, ..) = refused(WANTED);
    insta::assert_snapshot!(world.run("merge other.md").filtered, @r"
    exit 1
    --- stderr
    cannot merge `other.md`: no refused write to this file is kept
    hint: a merge needs a refused write; to change the file, read `other.md`, then write
    ");
    insta::assert_snapshot!(world.run("merge a.md --agent red --json").filtered, @r#"
    exit 1
    --- stdout
    {"file_path":"[W]/a.md","clean":false,"reason":"nothing_refused","message":"no refused write to this file is kept","hint":"a merge needs a refused write; to change the file, read `a.md`, then write"}
    "#);
    world.puts("a.md", "\0");
    insta::assert_snapshot!(world.run("merge a.md").filtered, @r"
    exit 1
    --- stderr
    cannot merge `a.md`: only texts in UTF-8 can be merged
    hint: read `a.md` again, redo the change on what you find, then write
    ");
    std::fs::remove_file(world.path("a.md")).unwrap();
    insta::assert_snapshot!(world.run("merge a.md --json").filtered, @r#"
    exit 1
    --- stdout
    {"file_path":"[W]/a.md","clean":false,"reason":"no_file","message":"the file does not exist, so there is nothing to merge with","hint":"read `a.md` again, redo the change on what you find, then write"}
    "#);
}

#[test]
fn a_file_that_changed_again_is_not_overwritten_by_the_merge_of_another_process() {
    // Many processes merge at the same time while the file changes: every line that was merged is there at the end.
    let world = World::new();
    world.puts("a.md", (0..40).map(|line| format!("line {line:02}\n")).collect::<String>());
    let before = std::fs::read_to_string(world.path("a.md")).unwrap();
    let turns: Vec<(usize, String)> = (0..4)
        .map(|agent| {
            let turn = world.turn(&format!("agent-{agent}"));
            world.run(&format!("read a.md --turn {turn}")).is(0);
            (agent, turn)
        })
        .collect();
    let merged: usize = std::thread::scope(|scope| {
        let agents = turns.iter().map(|(agent, turn)| {
            let (world, before) = (&world, &before);
            scope.spawn(move || {
                let wanted = before.replace(&format!("line {agent}5\n"), &format!("agent {agent}\n"));
                let wrote = world.tollgate(["write", "a.md", "--turn", turn]).stdin(&wanted).ends();
                if wrote.code() == Some(0) {
                    return 0;
                }
                crate::world::until("a merge that is written", || {
                    let merge = world.tollgate(["merge", "a.md", "--write", "--turn", turn]).ends();
                    (merge.code() == Some(0)).then_some(1)
                })
            })
        });
        agents.collect::<Vec<_>>().into_iter().map(|agent| agent.join().unwrap()).sum()
    });
    let after = std::fs::read_to_string(world.path("a.md")).unwrap();
    for agent in 0..4 {
        assert!(after.contains(&format!("agent {agent}\n")), "{after}");
    }
    assert_eq!(after.lines().count(), 40, "{after}");
    assert_eq!(merged, 3, "all but the first were refused");
}
