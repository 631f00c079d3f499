//! What only a power cut can leave, on top of a death at every act of a claim and of a release: the length of a file without
//! its new bytes, and a moved file in both folders.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Fate;
use super::crash::{World, asked, at, finish};
use crate::rules::Release;

/// Where the task was before the step, and its bytes.
type Before = (String, Vec<u8>);

fn zeros(world: &World, (from, before): &Before) {
    // A release flushes the bytes before it moves the file; a claim does not.
    let is_unflushed = |place: &String| place == from || place.starts_with("In_Progress");
    for (place, mut bytes) in world.files().into_iter().filter(|(place, _)| is_unflushed(place)) {
        bytes.iter_mut().skip(before.len()).for_each(|byte| *byte = 0);
        fs::write(world.folder.path().join(place), bytes).unwrap();
    }
}

fn second_name(world: &World, (from, _): &Before) {
    for (place, _) in world.files().iter().filter(|(place, _)| place != from) {
        fs::hard_link(world.folder.path().join(place), world.folder.path().join(from)).unwrap();
    }
}

fn every_power_cut(name: &str, is_release: bool, damage: fn(&World, &Before)) {
    for n in 0.. {
        let world = World::new();
        let owner = is_release.then(|| world.claim("local"));
        let before = world.files().remove(0);
        let acts = AtomicUsize::new(0);
        let die = move |_| if acts.fetch_add(1, Ordering::SeqCst) == n { Fate::Die } else { Fate::Go };
        let vault = world.vault(Some(Arc::new(die)));
        let step = || match &owner {
            Some(owner) => {
                vault.release(&world.task, &owner.claim.id, &Release::success(), at(2)).unwrap().is_ok()
            }
            None => vault.claim(&world.task, &asked("local"), at(1)).unwrap().is_ok(),
        };
        if catch_unwind(AssertUnwindSafe(step)).is_ok() {
            assert!(n > 4, "a step has at least a plan, a move, a block, a ledger line and a mark");
            return;
        }
        drop((vault, owner));
        damage(&world, &before);
        world.heal();
        let told = format!("{name}, death at {n}");
        world.check(&told);
        finish(&world, &told);
    }
}

#[test]
fn zeros_in_place_of_the_last_bytes_are_removed() {
    every_power_cut("zeros in a claim", false, zeros);
    every_power_cut("zeros in a release", true, zeros);
}

#[test]
fn a_task_in_two_folders_is_in_one_again() {
    every_power_cut("a claim under two names", false, second_name);
    every_power_cut("a release under two names", true, second_name);
}
