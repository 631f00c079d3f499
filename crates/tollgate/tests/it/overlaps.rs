//! Which turns overlap, and what the agent of a turn hears of them.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tollgate::shared_turn::{Leaves, SharedTurns};
use tollgate::turn::TurnState;
use tollgate::{Gate, Options, Workspace, overlap};

use crate::world::{Agent, World};

/// The workspace of `world`, as a process sees it that opens it so much later.
fn later(world: &World, hours: i64) -> Gate {
    let clock = Arc::new(move || Timestamp::now() + SignedDuration::from_hours(hours));
    Gate::new(Workspace::open(world.root(), Options { clock, ..Options::default() }).unwrap())
}

fn notes(agent: &Agent<'_>) -> Vec<String> {
    let workspace = agent.world.gate.workspace();
    let notes = workspace.notes(&agent.turn, workspace.path()).unwrap();
    notes.lines().map(str::to_owned).collect()
}

#[test]
fn a_turn_that_nobody_has_used_for_an_hour_works_on_nothing() {
    let world = World::new();
    let (red, blue) = (world.agent("red"), world.agent("blue"));
    red.writes("a", "one\n").done();
    blue.reads("a");
    assert_eq!(overlap::list(world.gate.workspace()).unwrap().len(), 1);
    let gate = later(&world, 2);
    assert!(overlap::open_turns(gate.workspace()).unwrap().is_empty());
    assert!(overlap::list(gate.workspace()).unwrap().is_empty());
    let heard = gate.workspace().notes(&blue.turn, gate.workspace().path()).unwrap();
    assert_eq!(heard, "");
    assert_eq!(notes(&blue), ["note: `red` is also working on `a` (line 1)"]);
}

#[test]
fn an_answer_names_ten_overlaps_and_counts_the_others() {
    let world = World::new();
    let (red, blue) = (world.agent("red"), world.agent("blue"));
    for n in 0..12 {
        let path = format!("f{n:02}");
        red.writes(&path, "one\n").done();
        blue.reads(&path);
    }
    let heard = notes(&blue);
    assert_eq!(heard.len(), 11, "{heard:?}");
    assert_eq!(heard[9], "note: `red` is also working on `f09` (line 1)");
    assert!(heard[10].starts_with("note: and 2 more: "), "{heard:?}");
    assert!(notes(&blue).is_empty(), "all are told");
}

/// A file that an agent has changed and changed back is one that it has only read.
#[test]
fn only_a_file_that_one_of_them_has_changed_in_the_end_is_shared() {
    let world = World::new();
    for path in ["a", "b"] {
        world.outsider_writes(path, "one\n");
    }
    let (red, blue) = (world.agent("red"), world.agent("blue"));
    for path in ["a", "b"] {
        red.reads(path).writes(path, "two\n").done();
    }
    red.writes("a", "one\n").done();
    blue.reads("a").reads("b");
    let shared: Vec<_> = overlap::list(world.gate.workspace()).unwrap();
    assert_eq!(shared.iter().map(|overlap| overlap.path.to_str().unwrap()).collect::<Vec<_>>(), ["b"]);
}

/// Of a turn that several processes share, nobody knows whether it goes on. One in the memory of a process goes on as long as that.
#[test]
fn what_a_shared_turn_has_touched_is_forgotten_a_day_after_its_last_call() {
    let world = World::new();
    let red = world.agent("red");
    red.writes("a", "one\n").done();
    let turns = SharedTurns::new(world.outside().join("turns")).unwrap();
    let now = world.gate.workspace().now();
    let shared = turns.begin("t1".parse().unwrap(), "pink".parse().unwrap(), now, Leaves::Nothing).unwrap();
    world.gate.record_turn_start(&shared).unwrap();
    let names = || {
        let folder = fs::read_dir(world.root().join(".tollgate/open")).unwrap();
        folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<BTreeSet<_>>()
    };
    let [red, shared] = [red.turn.id(), shared.id()].map(ToString::to_string);
    let _ = later(&world, 23).begin_turn("blue".parse().unwrap()).unwrap();
    assert!(names().is_superset(&[red.clone(), shared.clone()].into()), "{:?}", names());
    let green = later(&world, 25).begin_turn("green".parse().unwrap()).unwrap();
    assert!(names().is_superset(&[red, green.id().to_string()].into()), "{:?}", names());
    assert!(!names().contains(&shared), "{:?}", names());
}
