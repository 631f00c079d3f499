//! Events: read in pages from a cursor, nothing is missing and nothing comes twice.

use std::sync::atomic::{AtomicBool, Ordering};

use super::harness::Fresh;
use super::world::{World, at, request};
use crate::event::Entry;
use crate::owner::ClaimKind;
use crate::rules::Release;
use crate::vault::Vault;

/// Everything after a cursor, in pages of this size.
fn read(vault: &Vault, cursor: &mut String, size: usize) -> Vec<Entry> {
    let mut events = Vec::new();
    loop {
        let (page, next) = vault.store().events(cursor, size).expect("no fault");
        assert!(page.len() <= size, "no more than asked for");
        let is_last = page.len() < size;
        events.extend(page);
        *cursor = next;
        if is_last {
            return events;
        }
    }
}

pub(super) fn events_have_no_gaps(fresh: Fresh<'_>) {
    let world = World::new(fresh());
    assert!(world.events().is_empty(), "nothing has happened");
    for number in 0..24 {
        world.add(&format!("t{number}"), "text");
    }
    let over = AtomicBool::new(false);
    let vault = &world.vault;
    let followed = std::thread::scope(|scope| {
        let workers: Vec<_> = ["blue", "red", "green"]
            .map(|who| {
                scope.spawn(move || {
                    let who = request(who, ClaimKind::Leased);
                    while let (Some(claimed), _) = vault.claim_next(&who, at(1)).expect("no fault") {
                        let id = &claimed.claim.id;
                        let done = vault.release(&claimed.task, id, &Release::success(), at(2));
                        done.expect("no fault").expect("the owner");
                    }
                })
            })
            .into_iter()
            .collect();
        let follower = scope.spawn(|| {
            let (mut cursor, mut events) = (String::new(), Vec::new());
            loop {
                let is_last = over.load(Ordering::SeqCst);
                events.extend(read(vault, &mut cursor, 3));
                if is_last {
                    return events;
                }
                std::thread::yield_now();
            }
        });
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        over.store(true, Ordering::SeqCst);
        follower.join().expect("no panic")
    });
    let all = world.events();
    assert!(all.len() >= 48);
    assert_eq!(followed, all, "what was followed is what happened");
    for size in [1, 2, 7, 1000] {
        let mut cursor = String::new();
        assert_eq!(read(vault, &mut cursor, size), all, "in pages of {size}");
        assert!(read(vault, &mut cursor, size).is_empty(), "a cursor at the end stays there");
        let (_, mut kept) = vault.store().events("", 5).expect("no fault");
        assert_eq!(read(vault, &mut kept, size), all[5..], "from the middle, in pages of {size}");
    }
}
