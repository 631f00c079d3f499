//! The exhaustive model of the write protocol, tied to the real program: what `strace` sees of a real commit, with a save by
//! another program at each of its system calls, must be a run of the model, and must end as that run ends.
//!
//! The trace has the steps that others can notice: the lease, each exchange of two names, the ledger line, the answer, the kill,
//! and the steps of the other program. The model may take its other steps in between. If the real program leaves out a step, makes
//! one more, or ends with other bytes at the path or in recovery, then no run of the model has that trace.

#[path = "../../../tollgate/tests/it/model/properties.rs"]
#[allow(dead_code, reason = "the model's own tests use the rest")]
mod properties;
#[path = "../../../tollgate/tests/it/model/state.rs"]
#[allow(dead_code, reason = "the model's own tests use the rest")]
mod state;
#[path = "../../../tollgate/tests/it/model/steps.rs"]
#[allow(dead_code, reason = "the model's own tests use the rest")]
mod steps;

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::PoisonError;

use rustix::process::Signal;
use stateright::Model;
use tollgate_base::sys;

use self::state::Outsider::{RenamesOver, WritesInPlace};
use self::state::{
    Answer, Away, Bytes, Clause, FILES, File, Moment, Move, Protocol, Race, Set, Step, UPDATE,
};
use crate::foreign::{FOREIGN, holds, rename_over, start_writing};
use crate::scene::{Scene, open};
use crate::strace::{Call, End, IN_PROCESS, StoppedRun, calls};

/// A step that others can notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notice {
    /// The kernel grants the lease on the file.
    Lease,
    /// Two names are exchanged.
    Swap,
    /// The line of the change is in the ledger.
    Line,
    Answer(Answer),
    Kill,
    /// The other program opens the file, or renames its own over it.
    Begins,
    /// It waits for the end of the lease.
    Waits,
    /// Its save is complete.
    Saved,
}

/// The bytes on disk when nobody works any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rest {
    path: Option<Bytes>,
    /// Whether recovery has the save of the other program.
    kept: bool,
}

/// What others notice of a step of the model.
fn notice(race: &Race, before: &Moment, step: Move, after: &Moment) -> Option<Notice> {
    match step {
        Move::Commit(_) => match (before.committers[0].step, after.committers[0].step) {
            (_, Step::Answered(answer)) => Some(Notice::Answer(answer)),
            (Step::Opened(_), Step::Hashed(..)) => race.has(Clause::Lease).then_some(Notice::Lease),
            (Step::Checked(_), Step::Swapped { .. }) => Some(Notice::Swap),
            (Step::Undoing { .. }, _) if before.path.is_some() => Some(Notice::Swap),
            (Step::Verified { .. }, _) => Some(Notice::Line),
            _ => None,
        },
        Move::GiveUp(_) => Some(Notice::Answer(Answer::Busy)),
        Move::Kill(_) => Some(Notice::Kill),
        Move::Outsider(_) => match (before.outsiders[0], after.outsiders[0]) {
            (Away::Idle, Away::Done) => Some(Notice::Saved),
            (Away::Idle, _) => Some(Notice::Begins),
            (_, Away::Waiting(_)) => Some(Notice::Waits),
            (_, Away::Done) => Some(Notice::Saved),
            _ => None,
        },
        Move::Judge(_) | Move::Heal | Move::KillHealer | Move::Check(_) | Move::Revoke => None,
    }
}

/// Whether a run of the model has this trace and ends like this.
fn allows(race: &Race, trace: &[Notice], rest: Rest) -> bool {
    let mut reached: HashSet<(Moment, usize)> = HashSet::new();
    let mut next: Vec<(Moment, usize)> = race.init_states().into_iter().map(|moment| (moment, 0)).collect();
    while let Some((now, at)) = next.pop() {
        if at == trace.len() && race.is_quiet(&now) && rest_of(&now) == rest {
            return true;
        }
        let mut moves = Vec::new();
        race.actions(&now, &mut moves);
        for step in moves {
            let Some(after) = race.next_state(&now, step) else { continue };
            let at = match notice(race, &now, step, &after) {
                None => at,
                Some(noticed) if trace.get(at) == Some(&noticed) => at + 1,
                // A program that had to wait saves when it can.
                Some(Notice::Saved) if trace[..at].contains(&Notice::Waits) => at,
                Some(_) => continue,
            };
            if reached.insert((after.clone(), at)) {
                next.push((after, at));
            }
        }
    }
    false
}

fn rest_of(now: &Moment) -> Rest {
    let is_foreign = |file: &File| matches!(now.content(*file), Bytes::Foreign(_));
    Rest {
        path: now.path.map(|file| now.content(file)),
        kept: now.copied != Set::default()
            || (0..FILES as File).any(|file| now.recovery.contains(file) && is_foreign(&file)),
    }
}

/// The lines of the log, without process ids, that come after the commit has read its files.
fn noticed(line: &str, is_done: bool) -> Option<Notice> {
    let succeeds = line.ends_with("= 0");
    // The layer without leases only asks for one, to find out who has the file open.
    if sys::HAS_LEASES && line.starts_with("fcntl(") && line.contains("F_SETLEASE, F_RDLCK") && succeeds {
        Some(Notice::Lease)
    } else if line.starts_with("renameat2(") && line.contains("RENAME_EXCHANGE") && succeeds {
        Some(Notice::Swap)
    } else if line.starts_with("write(") && line.contains("/ledger.jsonl>") && is_done {
        Some(Notice::Line)
    } else {
        None
    }
}

#[derive(Debug, Clone, Copy)]
enum Save {
    Rename,
    InPlace,
}

/// A real commit with a save at one of its calls: its trace, and the bytes on disk afterwards.
fn real(scene: &Scene, root: &Path, call: &Call, save: Save, signal: Signal) -> (Vec<Notice>, Rest) {
    let target = root.join("a");
    let stopped = StoppedRun::start(root, &[call.inject("signal=STOP")], &scene.commit(root));
    let (saver, steps): (_, &[Notice]) = match save {
        Save::Rename => {
            rename_over(&target, FOREIGN);
            (None, &[Notice::Saved])
        }
        Save::InPlace => {
            let saver = start_writing(target.clone());
            // The commit is stopped, so a writer that has not finished by now waits for its lease.
            let waits = fs::read_to_string(&target).unwrap() != FOREIGN;
            (
                Some(saver),
                if waits { &[Notice::Begins, Notice::Waits] } else { &[Notice::Begins, Notice::Saved] },
            )
        }
    };
    let (end, log) = stopped.ends_with_log(signal);
    if let Some(saver) = saver {
        saver.join().unwrap();
    }
    let is_done = !matches!(end, End::Refused(_));
    let mut trace = Vec::new();
    let lines = log.lines().map(|line| line.split_once(' ').map_or(line, |(_, line)| line.trim_start()));
    for line in lines.skip_while(|line| !line.starts_with("pwrite64(")) {
        trace.extend(noticed(line, is_done));
        if line.contains("--- stopped by SIGSTOP ---") {
            trace.extend(steps);
        }
    }
    if !is_done && trace.ends_with(&[Notice::Lease, Notice::Lease]) {
        // A refusal looks at all files of the change once more, to name every stale one.
        trace.pop();
    }
    trace.push(match end {
        End::Done => Notice::Answer(Answer::Done),
        End::Refused(said) if said.contains("STALE_FILE") => Notice::Answer(Answer::Stale),
        End::Refused(_) => Notice::Answer(Answer::Busy),
        End::Killed => Notice::Kill,
        End::Fault(words) => panic!("{words}"),
    });
    let _no_children = IN_PROCESS.read().unwrap_or_else(PoisonError::into_inner);
    // Heals.
    drop(open(root));
    scene.nothing_is_left(root, "a trace");
    let path = match fs::read_to_string(&target).unwrap().as_str() {
        "one" => Bytes::Base,
        "two" => Bytes::New(0),
        FOREIGN => Bytes::Foreign(0),
        other => panic!("`{other}` is at the path"),
    };
    (trace, Rest { path: Some(path), kept: holds(root, FOREIGN) })
}

#[test]
fn what_a_real_commit_does_is_a_run_of_the_model() {
    let scene = Scene::update();
    let root = scene.fresh();
    let (end, calls) = calls(&root, &[], &scene.commit(&root));
    assert!(matches!(end, End::Done), "{end:?}");
    let after_reading = calls.iter().skip_while(|call| call.name != "pwrite64");
    let mut seen = Vec::new();
    // Without leases, nobody waits: what asks who has the file open in its place is over at once.
    let stops = |call: &&Call| call.changes() || sys::HAS_LEASES && call.asks_for_quiet();
    for call in after_reading.filter(stops) {
        for (save, outsider) in [(Save::Rename, RenamesOver), (Save::InPlace, WritesInPlace)] {
            for signal in [Signal::CONT, Signal::KILL] {
                let root = scene.fresh();
                let (trace, rest) = real(&scene, &root, call, save, signal);
                let kills = u8::from(trace.contains(&Notice::Kill));
                let mut race = Race { kills, ..Race::of(&[UPDATE], &[outsider]) };
                if !sys::HAS_LEASES {
                    race.protocol = Protocol::Leaseless { without: &[] };
                }
                let story = format!("{save:?} after {} {}: {}", call.name, call.nth, call.line);
                assert!(
                    allows(&race, &trace, rest),
                    "{story}: the model has no run {trace:?} that leaves {rest:?}"
                );
                scene.discard(&root);
                seen.push(trace);
            }
        }
    }
    // The traces have all that the model is about.
    let count = |wanted: &dyn Fn(&[Notice]) -> bool| seen.iter().filter(|trace| wanted(trace)).count();
    let swaps = |trace: &[Notice]| trace.iter().filter(|step| **step == Notice::Swap).count();
    let undone = count(&|trace| swaps(trace) > 1);
    let waiting = count(&|trace| trace.contains(&Notice::Waits));
    let stale = count(&|trace| trace.ends_with(&[Notice::Answer(Answer::Stale)]));
    println!(
        "{} traces: {undone} with an undo, {waiting} with a writer that waits, {stale} stale",
        seen.len()
    );
    assert!(undone > 0 && stale > 0, "{seen:?}");
    assert_eq!(waiting > 0, sys::HAS_LEASES, "{seen:?}");
}

/// The comparison can fail: these are no runs of the protocol.
#[test]
fn the_model_has_no_run_with_a_missing_or_a_further_step() {
    use Notice::{Begins, Lease, Line, Saved, Swap, Waits};
    let done = Notice::Answer(Answer::Done);
    let new = Rest { path: Some(Bytes::New(0)), kept: false };
    let in_place = Race::of(&[UPDATE], &[WritesInPlace]);
    assert!(allows(&in_place, &[Lease, Swap, Line, done], new), "the plain run");
    for trace in [
        &[Swap, Line, done][..],
        &[Lease, Line, done],
        &[Lease, Swap, done],
        &[Lease, Swap, Swap, Line, done],
    ] {
        assert!(!allows(&in_place, trace, new), "{trace:?}");
    }
    // Without a check of the lease after the swap, this would end well for the committer.
    let kept = Rest { path: Some(Bytes::New(0)), kept: true };
    assert!(!allows(&in_place, &[Lease, Begins, Waits, Swap, Line, done], kept));
    // Without a comparison of the displaced file, so would this.
    let renames = Race::of(&[UPDATE], &[RenamesOver]);
    assert!(!allows(&renames, &[Lease, Saved, Swap, Line, done], kept));
    // A save that is gone.
    assert!(!allows(&renames, &[Saved, Lease, Notice::Answer(Answer::Stale)], new));
}
