//! What the agent knows: a command that writes a file without looking at it must not destroy what the agent has not seen.

use super::refused;
use crate::world::World;

#[test]
fn a_blind_write_is_compared_with_what_the_agent_knew() {
    for script in ["echo mine > f", "cp g f", "echo mine | tee f", "rm f", "mv g f"] {
        let world = World::new();
        world.puts("f", "one\n");
        world.puts("g", "mine\n");
        let turn = world.turn("blue");
        world.guarded_with(&["--turn", &turn], "cat f").ends().is(0);
        world.puts("f", "theirs\n");
        let ran = world.guarded_with(&["--turn", &turn], script).ends();
        assert_eq!(refused(ran), [("f".to_owned(), "STALE_FILE".to_owned())], "{script}");
        world.holds("f", "theirs\n");
        // After another look, it is a change that the agent knows.
        world.guarded_with(&["--turn", &turn], "cat f").ends().is(0);
        world.guarded_with(&["--turn", &turn], script).ends().is(0);
    }
}

#[test]
fn a_program_that_looks_for_itself_may_change_what_the_agent_has_not_seen() {
    let world = World::new();
    world.puts("f", "one\n");
    let turn = world.turn("blue");
    world.guarded_with(&["--turn", &turn], "cat f").ends().is(0);
    world.puts("f", "one\ntheirs\n");
    world.guarded_with(&["--turn", &turn], "sed -i s/one/1/ f; echo end >> f").ends().is(0);
    world.holds("f", "1\ntheirs\nend\n");
}

#[test]
fn reads_and_writes_of_other_commands_count() {
    let world = World::new();
    world.puts("f", "one\n");
    let turn = world.turn("blue");
    world.run(&format!("read f --turn {turn}")).is(0);
    world.puts("f", "theirs\n");
    refused(world.guarded_with(&["--turn", &turn], "echo mine > f").ends());
    // And the other way round: what a command wrote, the agent knows.
    world.guarded_with(&["--turn", &turn], "cat f; echo mine > f").ends().is(0);
    world.tollgate(["write", "f", "--turn", &turn]).stdin("more\n").ends().is(0);
    world.holds("f", "more\n");
}

#[test]
fn an_agent_that_must_read_first_must_read_first() {
    let world = World::with("[guard]\nunread = \"refuse\"\n");
    world.puts("f", "one\n");
    let turn = world.turn("blue");
    let ran = world.guarded_with(&["--turn", &turn], "echo mine > f").ends();
    assert_eq!(refused(ran), [("f".to_owned(), "UNREAD_FILE".to_owned())]);
    world.guarded_with(&["--turn", &turn], "echo mine > new; sed -i s/one/1/ f").ends().is(0);
    world.guarded_with(&["--turn", &turn], "echo mine > f").ends().is(0);
}

#[test]
fn a_guard_that_only_observes_refuses_nothing() {
    let world = World::with("[guard]\nmode = \"observe\"\n");
    world.puts("f", "one\n");
    let turn = world.turn("blue");
    world.guarded_with(&["--turn", &turn], "cat f").ends().is(0);
    world.puts("f", "theirs\n");
    world.guarded_with(&["--turn", &turn], "echo mine > f").ends().is(0);
    world.holds("f", "mine\n");
    assert!(world.lines().iter().any(|line| line["result"]["status"] == "OBSERVED"), "{:?}", world.lines());
}

#[test]
fn the_record_has_reads_and_writes() {
    let world = World::new();
    world.puts("f", "one\n");
    world.puts("g", "two\n");
    let record = world.tmp().join("record");
    let record = record.to_str().unwrap();
    world.guarded_with(&["--record", record], "cat f; echo 2 > g; echo n > new; exit 3").ends().is(3);
    let record: serde_json::Value = serde_json::from_slice(&std::fs::read(record).unwrap()).unwrap();
    let hash = crate::world::hash;
    assert_eq!(
        record,
        serde_json::json!({
            "level": "transaction",
            "exit": 3,
            "refused": [],
            "reads": [{"path": "f", "sha256": hash("one\n")}],
            "writes": [
                {"path": "g", "before": hash("two\n"), "after": hash("2\n")},
                {"path": "new", "before": null, "after": hash("n\n")},
            ],
            "notes": [],
        })
    );
}

/// The hook that asks for the record decides by itself what the agent has seen.
#[test]
fn with_a_record_a_read_of_the_command_is_not_yet_one_of_the_agent() {
    let world = World::new();
    world.puts("f", "one\n");
    let turn = world.turn("blue");
    world.run(&format!("read f --turn {turn}")).is(0);
    world.puts("f", "theirs\n");
    let record = world.tmp().join("record");
    world.guarded_with(&["--turn", &turn, "--record", record.to_str().unwrap()], "cat f").ends().is(0);
    refused(world.guarded_with(&["--turn", &turn], "echo mine > f").ends());
}
