//! The rules of premises: which files an agent's work rests on, what it is told of them, and when it must read them again.

use std::sync::Arc;
use std::thread;

use jiff::{SignedDuration, Timestamp};
use tollgate::part::Part;
use tollgate::refusal::ErrorType;
use tollgate::turn::{Extent, FileState, TurnState};
use tollgate::{Digest, Gate, Options, Workspace, overlap};

use crate::world::{Agent, World};

/// What happens to the file `a`, and what `blue` hears at its next call.
#[derive(Clone, Copy)]
enum Step {
    Reads,
    ReadsInPart,
    /// A search has seen all of it.
    Searches,
    Writes(&'static str),
    Deletes,
    /// Another agent makes a guarded write.
    RedWrites(&'static str),
    /// A program that does not use tollgate saves it, or deletes it.
    Saved(&'static str),
    Deleted,
    Hears(&'static str),
    HearsNothing,
}
use Step::{Deleted, Deletes, Hears, HearsNothing, Reads, ReadsInPart, RedWrites, Saved, Searches, Writes};

const BY_RED: &str = "was changed by `red` (1 line)";
const FOREIGN: &str = "was changed by a program that does not use tollgate (1 line)";

/// The file has the line `one` at the beginning.
const RULES: &[(&str, &[Step])] = &[
    ("a read", &[Reads, Saved("two"), Hears(FOREIGN), HearsNothing]),
    ("a guarded write", &[Reads, RedWrites("two"), Hears(BY_RED), HearsNothing]),
    ("each state is news", &[Reads, RedWrites("two"), Hears(BY_RED), Saved("three"), Hears(FOREIGN)]),
    ("the same state is not", &[Reads, Saved("two"), Hears(FOREIGN), Saved("x"), Saved("two"), HearsNothing]),
    ("a state that was never told", &[Reads, Saved("x"), Saved("two"), Hears(FOREIGN)]),
    ("bytes that changed back", &[Reads, Saved("two"), Saved("one"), HearsNothing]),
    ("a save of the same bytes", &[Reads, Saved("one"), HearsNothing]),
    ("a new read", &[Reads, Saved("two"), Reads, HearsNothing]),
    ("news after a new read", &[Reads, Saved("two"), Hears(FOREIGN), Reads, Saved("three"), Hears(FOREIGN)]),
    ("the first state again, after a new read", &[Reads, Saved("two"), Reads, Saved("one"), Hears(FOREIGN)]),
    (
        "a deletion",
        &[Reads, Deleted, Hears("was deleted by a program that does not use tollgate"), HearsNothing],
    ),
    ("a file that came back", &[Reads, Deleted, Saved("one"), HearsNothing]),
    ("a part", &[ReadsInPart, Saved("two"), HearsNothing]),
    ("a search", &[Searches, Saved("two"), HearsNothing]),
    ("nothing", &[Saved("two"), HearsNothing]),
    ("its own write", &[Reads, Writes("two"), HearsNothing]),
    ("its own deletion", &[Reads, Deletes, HearsNothing]),
    ("a change after its own write", &[Reads, Writes("two"), Saved("three"), Hears(FOREIGN)]),
    ("a change back to before its own write", &[Reads, Writes("two"), Saved("one"), Hears(FOREIGN)]),
    ("a file that it has only written", &[Writes("two"), Saved("three"), HearsNothing]),
    ("a state that a search has shown", &[Reads, Saved("two"), Searches, HearsNothing]),
];

/// The text of a file that begins with this line. Each has another length, so that the stamp tells them apart.
fn text(line: &str) -> String {
    let length = ["one", "two", "three", "x"].iter().position(|known| *known == line).unwrap() * 10;
    format!("{line}{}\nsecond\n", ".".repeat(length))
}

fn notes(agent: &Agent<'_>) -> String {
    let workspace = agent.world.gate.workspace();
    workspace.notes(&agent.turn, workspace.path()).unwrap()
}

fn does(agent: &Agent<'_>, step: Step, what: &str) {
    let world = agent.world;
    match step {
        Reads => {
            agent.reads("a");
        }
        ReadsInPart => {
            agent.reads_line("a", 1);
        }
        Searches => {
            let path = world.gate.workspace().canonical("a").unwrap();
            let state = FileState::Present(Digest::of(&std::fs::read(&path).unwrap()));
            agent.turn.observe(&path, state, Extent::Whole).unwrap();
        }
        Writes(line) => {
            agent.writes("a", text(line)).done();
        }
        Deletes => {
            agent.deletes("a").done();
        }
        RedWrites(line) => {
            world.agent("red").reads("a").writes("a", text(line)).done();
        }
        Saved(line) => world.outsider_writes("a", text(line)),
        Deleted => world.outsider_removes("a"),
        Hears(words) => {
            let notes = notes(agent);
            let line = notes.lines().next().unwrap_or_default();
            assert!(
                line.starts_with("note: `a`, which you read ") && line.ends_with(words),
                "{what}: {notes}"
            );
        }
        HearsNothing => assert_eq!(notes(agent), "", "{what}"),
    }
}

#[test]
fn an_agent_hears_of_changes_of_what_it_was_shown_by_these_rules() {
    for (what, steps) in RULES {
        // With the clock of the machine, by which each file may have been written a moment ago, and with one that is ahead: then a
        // file with the same time stamps is not read again.
        for is_ahead in [false, true] {
            let mut world = World::new();
            if is_ahead {
                let clock = Arc::new(|| Timestamp::now() + SignedDuration::from_secs(10));
                let options = Options { clock, ..Options::default() };
                world.gate = Gate::new(Workspace::open(world.root(), options).unwrap());
            }
            world.outsider_writes("a", text("one"));
            let agent = world.agent("blue");
            for step in *steps {
                does(&agent, *step, what);
            }
        }
    }
}

#[test]
fn the_diff_is_from_what_the_agent_knows_to_what_is_there() {
    let world = World::new();
    world.outsider_writes("a", text("one"));
    let agent = world.agent("blue");
    agent.reads("a").writes("a", text("two")).done();
    world.outsider_writes("a", text("three"));
    let notes = notes(&agent);
    let diff: Vec<&str> = notes.lines().skip(1).collect();
    assert_eq!(diff.len(), 4, "{notes}");
    let starts = ["@@ -1,2 +1,2 @@", "-two.", "+three.", " second"];
    assert!(diff.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{notes}");
}

#[test]
fn a_change_waits_for_the_re_read_whatever_it_is() {
    let world = World::with("[guard]\npremises = \"refuse\"");
    for file in ["a", "b", "c", "d"] {
        world.outsider_writes(file, text("one"));
    }
    let agent = world.agent("blue");
    agent.reads("a").reads("d");
    world.outsider_writes("d", text("two"));
    world.outsider_writes("a", text("two"));
    let attempts: &[&dyn Fn()] = &[
        &|| {
            agent.writes("b", "x");
        },
        &|| {
            agent.edits("b", "one", "x");
        },
        &|| {
            agent.creates("new", "x");
        },
        &|| {
            agent.deletes("b");
        },
        &|| {
            agent.moves("b", "c/b");
        },
    ];
    for attempt in attempts {
        attempt();
        let refused = agent.refused(ErrorType::PremiseChanged);
        assert_eq!(refused.refusals().len(), 1);
        let payload = refused.payload();
        let [known, now] = ["one", "two"].map(|line| Some(Digest::of(text(line).as_bytes())));
        assert_eq!((payload.expected_hash, payload.actual_hash), (known, now));
        assert!(payload.file_path.ends_with("/a"), "{}", payload.file_path);
        assert_eq!(refused.reports()[0].changed.len(), 2);
    }
    // The file itself is compared as ever, and a read is never refused.
    agent.writes("a", "x").refused_stale();
    agent.reads("a").writes("b", "x").refused(ErrorType::PremiseChanged);
    // After a refusal, the part in question is enough.
    agent.reads_line("d", 1).writes("b", "x").done();
    // Nothing of it is left for the next turn.
    world.outsider_writes("a", text("three"));
    agent.writes("b", "y").refused(ErrorType::PremiseChanged);
    world.agent("blue").writes("b", "y").done();
}

#[test]
fn the_last_reads_are_watched_and_older_ones_are_not() {
    let world = World::new();
    let agent = world.agent("blue");
    for n in 0..1_050 {
        world.outsider_writes(&format!("f{n:04}"), text("one"));
        agent.reads(&format!("f{n:04}"));
    }
    for n in [0, 1_049] {
        world.outsider_writes(&format!("f{n:04}"), text("two"));
    }
    let notes = notes(&agent);
    assert!(notes.contains("`f1049`") && !notes.contains("`f0000`"), "{notes}");
}

#[test]
fn turns_that_end_and_threads_of_one_turn_leave_a_record_that_can_be_read() {
    let world = World::new();
    let agent = world.agent("blue");
    for n in 0..40 {
        world.outsider_writes(&format!("f{n}"), text("one"));
    }
    thread::scope(|scope| {
        for part in 0..4 {
            let (gate, turn) = (&world.gate, &agent.turn);
            scope.spawn(move || {
                for n in part * 10..part * 10 + 10 {
                    let _ = gate.read(turn, format!("f{n}"), Part::Whole).unwrap();
                }
            });
        }
    });
    let turns = overlap::open_turns(world.gate.workspace()).unwrap();
    assert_eq!((turns.len(), turns[0].files_read().len()), (1, 40));
    assert_eq!((&turns[0].id, turns[0].agent.as_str()), (agent.turn.id(), "blue"));
    world.gate.end_turn(agent.turn).unwrap();
    assert!(overlap::open_turns(world.gate.workspace()).unwrap().is_empty());
}
