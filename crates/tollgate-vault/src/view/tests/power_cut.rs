//! A power cut that keeps every rename and takes every note that was not flushed.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::Machine;
use super::scenes::{bring, finish, task};
use crate::folder::disk::Disk;
use crate::folder::tests::{Died, Fate, Fates};
use crate::state::State;
use tollgate_base::settings::Durability;

const NOTES: &str = ".tollgate/view/notes";

/// Maintains the folders until the power is cut at the Nth act, or at the end. Whether it was cut before the end.
fn maintain_until_cut(machine: &Machine, cut_at: usize) -> bool {
    let notes = machine.at(NOTES);
    let flushed = Arc::new(Mutex::new(fs::read(&notes).unwrap()));
    let (flushes, path, acts) = (Arc::clone(&flushed), notes.clone(), AtomicUsize::new(0));
    let fates: Fates = Arc::new(move |act| {
        if acts.fetch_add(1, Ordering::Relaxed) == cut_at {
            return Fate::Die;
        }
        if act == "flush" {
            *flushes.lock().unwrap_or_else(PoisonError::into_inner) = fs::read(&path).unwrap();
        }
        Fate::Go
    });
    let disk = Disk { fates: Some(fates), ..Disk::new(Durability::Durable) };
    let lived = catch_unwind(AssertUnwindSafe(|| Machine::follow(&mut machine.open_on(&disk))));
    fs::write(notes, &*flushed.lock().unwrap_or_else(PoisonError::into_inner)).unwrap();
    lived.is_err_and(|why| {
        assert!(why.is::<Died>(), "a panic");
        true
    })
}

/// The power is cut, the task is done elsewhere, and the machine starts again. Whether the maintainer was cut short.
fn is_done_once(prepare: fn(&Machine), cut_at: usize) -> bool {
    let machine = Machine::new();
    machine.maintain(None);
    prepare(&machine);
    let was_cut = maintain_until_cut(&machine, cut_at);
    finish(&machine.vault, &task("x"));
    machine.maintain(None);
    let there: Vec<String> = machine.stored().into_keys().collect();
    assert_eq!(there, ["Done/x.md"], "power cut at act {cut_at}");
    assert_eq!(machine.shown(), machine.stored(), "power cut at act {cut_at}");
    was_cut
}

#[test]
fn a_task_that_was_shown_before_a_power_cut_and_done_elsewhere_after_it_is_not_added_again() {
    let cuts = (0..).take_while(|at| is_done_once(|machine| bring(&machine.vault, State::NeedsAction), *at));
    assert!(cuts.count() > 6, "it writes a file and its notes");
}

#[test]
fn a_file_whose_lost_note_was_written_again_before_a_power_cut_is_not_added_again() {
    let loses_its_note = |machine: &Machine| {
        let without = fs::read(machine.at(NOTES)).unwrap();
        bring(&machine.vault, State::NeedsAction);
        machine.maintain(None);
        fs::write(machine.at(NOTES), without).unwrap();
    };
    is_done_once(loses_its_note, usize::MAX);
}
