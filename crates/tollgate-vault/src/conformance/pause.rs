//! Pauses after failed attempts, and a person who ends them.

use std::sync::Arc;
use std::time::Duration;

use super::harness::{Fresh, Harness};
use super::world::{LEASE, World, at, name, request, slot_of, terms};
use crate::denial::Denial;
use crate::owner::ClaimKind;
use crate::rules::{Release, Terms};
use crate::state::{Slot, State};
use crate::vault::Vault;
use tollgate_base::task::TaskName;

/// A pause of 10 seconds after the first attempt, and of 60 after the others.
fn pausing(harness: Harness) -> World {
    let retry = [10, 60].map(Duration::from_secs).to_vec();
    let vault = Vault::new(Arc::clone(&harness.store), Terms { retry, ..terms() });
    World { harness, vault }
}

impl World {
    /// Claims the task at this second and fails at once.
    fn fails(&self, task: &TaskName, now: i64) -> State {
        let claimed = self.claim(task, "blue", ClaimKind::Leased, now);
        self.release(&claimed, &Release::failure("exit status 1"), now)
    }

    /// Asserts that the task cannot be claimed before the second `until`, by name or as the next one.
    fn pauses(&self, task: &TaskName, from: i64, until: i64) {
        for now in [from, until - 1] {
            let asked = request("red", ClaimKind::Leased);
            let denied =
                self.vault.claim(task, &asked, at(now)).expect("no fault").map(|claimed| claimed.task);
            assert_eq!(denied, Err(Denial::Pausing(task.clone(), at(until))), "at {now}");
            assert_eq!(
                self.vault.why(task, &asked.agent, at(now)).expect("no fault").map(drop),
                denied.map(drop)
            );
            let (next, queue) = self.vault.claim_next(&asked, at(now)).expect("no fault");
            assert!(next.is_none(), "at {now}");
            assert_eq!((queue.pausing, queue.pause_ends, queue.soonest), (1, Some(at(until)), None));
        }
    }
}

pub(super) fn a_failed_attempt_is_followed_by_a_growing_pause(fresh: Fresh<'_>) {
    let world = pausing(fresh());
    let task = world.add("x", "text");
    assert_eq!(world.fails(&task, 0), State::NeedsAction);
    world.pauses(&task, 0, 10);
    assert_eq!(world.fails(&task, 10), State::NeedsAction, "the pause is over");
    world.pauses(&task, 10, 70);
    // Nobody has worked on a task that is given back.
    let returned = world.claim(&task, "blue", ClaimKind::Leased, 70);
    assert_eq!(world.release(&returned, &Release::give_back("stopped"), 71), State::NeedsAction);
    assert_eq!(world.fails(&task, 71), State::Rejected);

    let orphan = world.add("y", "text");
    (world.harness.kill)(world.claim(&orphan, "blue", ClaimKind::Held, 100));
    let later = 101 + LEASE;
    assert_eq!(world.vault.reclaim(at(later)).expect("no fault").0.len(), 1);
    world.pauses(&orphan, later, later + 10);
    world.claim(&orphan, "red", ClaimKind::Leased, later + 10);
}

pub(super) fn a_person_ends_a_pause(fresh: Fresh<'_>) {
    let world = pausing(fresh());
    let by_hand = &world.harness.by_hand;
    let edited = world.add("edited", "text");
    world.fails(&edited, 0);
    let text = world.text(&edited).replacen("text", "better", 1);
    by_hand(&edited, &Slot::NEEDS_ACTION, &Slot::NEEDS_ACTION, Some(text.as_bytes()));
    world.claim(&edited, "red", ClaimKind::Leased, 1);

    let moved = world.add("moved", "text");
    let claimed = world.claim(&moved, "blue", ClaimKind::Leased, 1);
    by_hand(&moved, &slot_of("blue"), &Slot::NEEDS_ACTION, None);
    let again = world.claim(&moved, "red", ClaimKind::Leased, 1);
    assert!(again.claim.epoch > claimed.claim.epoch);

    let retried = world.add("retried", "text");
    world.fails(&retried, 0);
    world.fails(&retried, 10);
    world.pauses(&retried, 10, 70);
    let retry = |task: &TaskName, now| world.vault.retry(task, "ada", None, at(now)).expect("no fault");
    assert_eq!(retry(&retried, 11).expect("it pauses").slot, Slot::NEEDS_ACTION);
    assert_eq!(retry(&retried, 12).map(drop), Err(Denial::NothingToRetry(retried.clone())));
    assert_eq!(world.get(&retried).record.attempts, 0);
    world.fails(&retried, 12);
    world.pauses(&retried, 12, 22);
}

pub(super) fn a_rejected_task_is_retried_with_all_its_attempts(fresh: Fresh<'_>) {
    let world = pausing(fresh());
    let task = world.add("x", "text");
    let retry = |task: &TaskName, now| world.vault.retry(task, "ada", None, at(now)).expect("no fault");
    assert_eq!(retry(&name("nowhere"), 0).map(drop), Err(Denial::Missing(name("nowhere"))));
    for (now, state) in [(0, State::NeedsAction), (10, State::NeedsAction), (70, State::Rejected)] {
        assert_eq!(world.fails(&task, now), state);
    }
    assert_eq!(retry(&task, 71).expect("it was rejected").slot, Slot::NEEDS_ACTION);
    assert!(world.text(&task).contains("**Retried By**: ada\n"), "{}", world.text(&task));
    assert_eq!(world.fails(&task, 71), State::NeedsAction, "the attempts are counted from zero");
    world.pauses(&task, 71, 81);
    let claimed = world.claim(&task, "red", ClaimKind::Leased, 81);
    assert_eq!(retry(&task, 82).map(drop), Err(Denial::Elsewhere(task.clone(), slot_of("red"))));
    assert_eq!(world.release(&claimed, &Release::success(), 83), State::Done);
    assert_eq!(retry(&task, 84).map(drop), Err(Denial::Elsewhere(task.clone(), Slot::Free(State::Done))));
    let kinds = world.kinds(&task);
    assert_eq!(kinds.iter().filter(|kind| *kind == "APPROVAL").count(), 1, "one retry, one event: {kinds:?}");
}
