//! The race: eight claimants, many tasks. Each task is worked once, by one owner, and the figures agree.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::harness::Fresh;
use super::world::{World, at, name, request};
use crate::owner::ClaimKind;
use crate::rules::Release;
use crate::state::{Slot, State};

const CLAIMANTS: usize = 8;

pub(super) fn claimants_race_for_tasks(fresh: Fresh<'_>) {
    let world = World::new(fresh());
    let tasks = world.harness.race;
    let worked: BTreeMap<String, AtomicUsize> =
        (0..tasks).map(|n| (format!("t{n}"), AtomicUsize::new(0))).collect();
    for task in worked.keys() {
        world.add(task, "text");
    }
    let vault = &world.vault;
    std::thread::scope(|scope| {
        for n in 0..CLAIMANTS {
            let worked = &worked;
            scope.spawn(move || {
                // Half of them have the same name.
                let kind = [ClaimKind::Held, ClaimKind::Leased][n / 4];
                let who = request(if n % 2 == 0 { "blue" } else { "red" }, kind);
                loop {
                    let mut queue = vault.queue(&who, at(1)).expect("no fault");
                    if queue.is_empty() {
                        return;
                    }
                    while let Some(claimed) = vault.next(&mut queue, &who, at(1)) {
                        worked[claimed.task.stem()].fetch_add(1, Ordering::SeqCst);
                        let id = &claimed.claim.id;
                        assert!(vault.verify(&claimed.task, id, at(1)).expect("no fault"));
                        let done = vault.release(&claimed.task, id, &Release::success(), at(1));
                        done.expect("no fault").expect("the owner");
                    }
                    assert!(queue.faults.is_empty(), "{:?}", queue.faults);
                }
            });
        }
    });
    for (task, times) in &worked {
        assert_eq!(times.load(Ordering::SeqCst), 1, "{task}");
        assert_eq!(world.slot(&name(task)), Some(Slot::Free(State::Done)), "{task}");
    }
    let events = world.events();
    let count = |kind| events.iter().filter(|event| event.event.action_type() == kind).count();
    assert_eq!((count("CLAIM"), count("RELEASE")), (tasks, tasks));
    let (all, _) = vault.figures(at(1)).expect("no fault");
    assert_eq!((all.total_claims, all.active_claims), (tasks as u64, 0));
    assert_eq!(all.claim_conflicts_avoided, count("CLAIM_LOST") as u64);
}
