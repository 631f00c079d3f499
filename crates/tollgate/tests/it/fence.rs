//! An agent that has lost the claim under which it works changes nothing more, whatever call it makes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tollgate::digest::Digest;
use tollgate::edit::Edit;
use tollgate::error::{Fault, Result};
use tollgate::fence::{LostClaim, WriteFence};
use tollgate::gate::{Gate, ToolUse};
use tollgate::guard::{Action, Change, Expected, Outcome, Refused};
use tollgate::part::Part;
use tollgate::refusal::{ErrorType, Resolution};
use tollgate::turn::{Extent, FileState, Turn};
use tollgate_guard::change::{CommandLook, StartState};
use tollgate_guard::supervised::SupervisedProgram;
use tollgate_guard::view::ViewChanges;

use crate::world::World;

fn lost() -> LostClaim {
    LostClaim { task: "water".parse().unwrap(), claim: "c-0123456789abcdef".parse().unwrap() }
}

/// The gate of the world, for an agent whose fence gives these answers, and the last one for ever.
fn fenced(world: &World, answers: impl IntoIterator<Item = Option<LostClaim>>) -> Gate {
    let answers = Mutex::new(answers.into_iter().collect::<VecDeque<_>>());
    let fence: WriteFence = Arc::new(move || {
        let mut answers = answers.lock().unwrap();
        Ok(if answers.len() > 1 { answers.pop_front().unwrap() } else { answers[0].clone() })
    });
    world.gate.clone().fenced(fence)
}

/// What the files held when the command of a run started.
fn start() -> StartState {
    StartState { start: 0, was: Some(FileState::Present(Digest::of(b"one"))) }
}

fn removal(path: &str) -> Change {
    Change::new(path, Action::Delete).expecting(Expected::AtStart(start(), CommandLook::ForAgent))
}

/// A call that changes something.
type Call = fn(&Gate, &Turn) -> Result<Option<Refused>>;

fn answer<T>(outcome: Result<Outcome<T>>) -> Result<Option<Refused>> {
    outcome.map(|outcome| outcome.into_result().err())
}

/// All calls of the gate that change something, each of which can be made in a workspace with the files `a`, `b`, `d/f`.
const CALLS: [(&str, Call); 12] = [
    ("write", |gate, turn| answer(gate.write(turn, "a", "mine", Expected::Baseline))),
    ("create", |gate, turn| answer(gate.create(turn, "new", "mine"))),
    ("edit", |gate, turn| answer(gate.edit(turn, "a", vec![Edit::once("one", "mine")], Expected::Baseline))),
    ("delete", |gate, turn| answer(gate.delete(turn, "a", Expected::Baseline))),
    ("move", |gate, turn| answer(gate.move_file(turn, "a", "c", Expected::Baseline))),
    ("apply", |gate, turn| {
        let write = |path: &str| Change::new(path, Action::Write(b"mine".to_vec()));
        answer(gate.apply(turn, vec![write("b"), write("a")]))
    }),
    ("apply to many", |gate, turn| {
        let write = |n: usize| Change::new(format!("many-{n:03}"), Action::Create(b"mine".to_vec()));
        answer(gate.apply(turn, (0..200).map(write).collect()))
    }),
    ("create a folder", |gate, turn| answer(gate.create_folder(turn, "x"))),
    ("move a folder", |gate, turn| answer(gate.move_folder(turn, "d", "e"))),
    ("before a tool", |gate, turn| {
        let changes = vec![Change::of_some_part("b"), Change::of_some_part("a")];
        let call = ToolUse { call: "1".into(), tool: "Write".into(), reads: vec![], changes };
        answer(gate.pre_tool_use(turn, &call))
    }),
    ("commit of a run", |gate, turn| {
        let changes = ViewChanges {
            level: "transaction",
            files: vec![removal("b"), removal("a")],
            ..Default::default()
        };
        answer(gate.commit_view(turn, changes))
    }),
    ("folders of a run", |gate, turn| {
        let folders = vec![("x".into(), Some(0o755))];
        answer(gate.commit_view(turn, ViewChanges { level: "transaction", folders, ..Default::default() }))
    }),
];

fn world(settings: &str) -> World {
    let world = World::with(settings);
    for file in ["a", "b", "d/f"] {
        world.outsider_writes(file, "one");
    }
    world
}

/// Every file and folder outside the state, with its bytes.
fn disk(world: &World) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![world.root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(world.root()).unwrap().to_str().unwrap().to_owned();
            if name == ".tollgate" {
                continue;
            }
            found.push((name, std::fs::read(&path).unwrap_or_default()));
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn every_call_is_refused_with_one_line_and_changes_nothing() {
    for (name, call) in CALLS {
        let world = world("");
        let gate = fenced(&world, [Some(lost())]);
        let turn = gate.begin_turn("blue".parse().unwrap()).unwrap();
        for file in ["a", "b"] {
            gate.read(&turn, file, Part::Whole).unwrap().into_result().unwrap();
        }
        let before = disk(&world);
        let refused = call(&gate, &turn).unwrap().unwrap_or_else(|| panic!("{name} went through"));
        assert_eq!(disk(&world), before, "{name}");
        let payload = refused.payload();
        assert_eq!((payload.error_type, payload.resolution), (ErrorType::Fenced, Resolution::StopWork));
        assert_eq!(refused.refusals().len(), 1, "{name}: the claim is the reason, not each file");
        let lines = world.lines_of("MUTATION_REFUSED");
        let [line] = &lines[..] else { panic!("{name}: {lines:?}") };
        assert_eq!(line["result"], json!({"status": "DENIED", "error_type": "FENCED"}), "{name}");
        assert_eq!(
            line["payload"]["target_file"].as_str(),
            payload.file_path.rsplit_once("/w/").map(|p| p.1)
        );
        assert!(world.lines_of("MUTATION").is_empty(), "{name}");
        assert!(refused.reports()[0].message.contains("'water.md'"), "{name}");
    }
}

#[test]
fn every_call_goes_through_while_the_claim_is_the_agents_own() {
    for (name, call) in CALLS {
        let world = world("");
        let gate = fenced(&world, [None]);
        let turn = gate.begin_turn("blue".parse().unwrap()).unwrap();
        let refused = call(&gate, &turn).unwrap();
        assert!(refused.is_none(), "{name}: {refused:?}");
    }
}

#[test]
fn a_claim_that_is_lost_while_the_bytes_are_staged_stops_the_change() {
    for (name, call) in CALLS {
        // These are made in one step, so there is no later moment.
        if ["create a folder", "move a folder", "before a tool", "folders of a run"].contains(&name) {
            continue;
        }
        let world = world("");
        let gate = fenced(&world, [None, Some(lost())]);
        let turn = gate.begin_turn("blue".parse().unwrap()).unwrap();
        let before = disk(&world);
        let refused = call(&gate, &turn).unwrap().unwrap_or_else(|| panic!("{name} went through"));
        assert_eq!(refused.payload().error_type, ErrorType::Fenced, "{name}");
        assert_eq!(disk(&world), before, "{name}");
        assert_eq!(world.lines_of("MUTATION_REFUSED").len(), 1, "{name}");
        assert!(world.lines_of("MUTATION").is_empty(), "{name}");
        let free = world.agent("red");
        free.writes("a", "theirs").done();
    }
}

#[test]
fn a_call_that_changes_nothing_is_never_refused() {
    let world = world("");
    let gate = fenced(&world, [Some(lost())]);
    let turn = gate.begin_turn("blue".parse().unwrap()).unwrap();
    gate.read(&turn, "a", Part::Whole).unwrap().into_result().unwrap();
    let reads = vec![("a".into(), Extent::Whole)];
    let look = ToolUse { call: "1".into(), tool: "Read".into(), reads, changes: vec![] };
    let _ = gate.pre_tool_use(&turn, &look).unwrap().into_result().unwrap();
    let only_reads = ViewChanges { reads: vec![("a".into(), start())], ..Default::default() };
    gate.commit_view(&turn, only_reads).unwrap().into_result().unwrap();
    assert!(world.lines_of("MUTATION_REFUSED").is_empty());
}

#[test]
fn a_supervised_call_is_refused() {
    let world = world("");
    let gate = fenced(&world, [Some(lost())]);
    let turn = gate.begin_turn("blue".parse().unwrap()).unwrap();
    let program = SupervisedProgram::new(&gate, &turn, "gate");
    let path = world.root().join("a");
    let refusal = program.judge(&path, Action::by_program(Extent::Whole), &[], false).unwrap().unwrap_err();
    assert_eq!(refusal.error_type(), ErrorType::Fenced);
}

#[test]
fn if_the_settings_only_observe_the_loss_is_recorded_once_and_the_write_is_made() {
    let world = world("[guard]\nmode = \"observe\"");
    let gate = fenced(&world, [Some(lost())]);
    let turn = gate.begin_turn("blue".parse().unwrap()).unwrap();
    gate.write(&turn, "a", "mine", Expected::Baseline).unwrap().into_result().unwrap();
    world.holds("a", "mine");
    let lines = world.lines_of("MUTATION_REFUSED");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["result"], json!({"status": "OBSERVED", "error_type": "FENCED"}));
    let world = self::world("[guard]\nmode = \"off\"");
    let gate = fenced(&world, [Some(lost())]);
    gate.write(&turn, "a", "mine", Expected::Baseline).unwrap().into_result().unwrap();
    assert!(world.lines_of("MUTATION_REFUSED").is_empty());
}

#[test]
fn a_fence_that_cannot_tell_stops_the_write_with_its_fault() {
    let world = world("");
    let gate = world.gate.clone().fenced(Arc::new(|| Err(Fault::invalid("unreadable"))));
    let turn = gate.begin_turn("blue".parse().unwrap()).unwrap();
    assert!(gate.write(&turn, "a", "mine", Expected::Baseline).is_err());
    world.holds("a", "one");
}

#[test]
fn of_several_fences_each_one_counts() {
    for answers in [[None, Some(lost())], [Some(lost()), None]] {
        let world = world("");
        let fence = |answer: Option<LostClaim>| -> WriteFence { Arc::new(move || Ok(answer.clone())) };
        let [first, second] = answers.map(fence);
        let gate = world.gate.clone().fenced(first).fenced(second);
        let turn = gate.begin_turn("blue".parse().unwrap()).unwrap();
        let refused = gate.write(&turn, "a", "mine", Expected::Baseline).unwrap().into_result().unwrap_err();
        assert_eq!(refused.payload().error_type, ErrorType::Fenced);
    }
}
