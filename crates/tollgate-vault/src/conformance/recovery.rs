//! Dead owners, zombies, and steps that were interrupted.

use std::time::Duration;

use super::harness::{Fresh, Interrupted};
use super::world::{World, agent, at, claim_step, terms};
use crate::claim::{Claim, ClaimId};
use crate::decisions;
use crate::event::Entry;
use crate::owner::ClaimKind;
use crate::rules::{self, Release};
use crate::state::{Slot, State, Verb};
use crate::step::{Step, StepOutcome, TextEdit};
use crate::store::Task;
use tollgate_base::digest::Digest;
use tollgate_base::task::TaskName;

pub(super) fn a_dead_owner_is_replaced_and_fenced_off(fresh: Fresh<'_>) {
    let world = World::new(fresh());
    let task = world.add("x", "text");
    let first = world.claim(&task, "blue", ClaimKind::Held, 1);
    let reclaim = |now: i64| world.vault.reclaim(at(now)).expect("no fault").0;
    if first.lock.is_some() {
        assert_eq!(reclaim(1_000_000), [], "however long it takes, a live owner keeps its task");
    }
    let (old_id, old_epoch) = (first.claim.id.clone(), first.claim.epoch);
    // A store without locks gives a lease, and then only time tells that the owner is dead.
    let soon = if first.lock.is_some() { 2 } else { 1_000_000 };
    (world.harness.kill)(first);
    let why = world.vault.why(&task, &agent("red"), at(soon)).expect("no fault");
    assert!(why.is_ok(), "a claim reclaims it first: {why:?}");
    let would = world.vault.reclaimable(at(soon)).expect("no fault");
    assert_eq!((would.len(), would[0].to), (1, State::NeedsAction));
    assert_eq!(reclaim(soon), would, "at once");
    assert_eq!(reclaim(soon), [], "and once");
    let ended = |id: &ClaimId, now: i64| {
        world.vault.ended(&task, id, at(now)).expect("no fault").map(|landed| landed.slot)
    };
    assert_eq!(ended(&old_id, soon), None, "it was taken away, not released");
    let second = world.claim(&task, "blue", ClaimKind::Held, soon + 1);
    assert!(second.claim.epoch > old_epoch, "the fencing number grows");
    world.fenced_off(&task, &old_id, soon + 2);
    assert_eq!(world.release(&second, &Release::success(), soon + 3), State::Done);
    let slots = [&old_id, &second.claim.id].map(|id| ended(id, soon + 4));
    assert_eq!(slots, [None, Some(Slot::Free(State::Done))], "only the second was released");
    assert_eq!(world.kinds(&task), ["CLAIM", "RECLAIM", "CLAIM", "RELEASE"]);
    assert_eq!(world.text(&task).matches("## Completion").count(), 2, "each attempt has its end");
}

fn claimed_task(world: &World, task: &TaskName) -> (Task, Claim) {
    let task = world.get(task);
    let claim = task.record.claim.clone().expect("it is claimed");
    (task, claim)
}

/// An owner that was thought dead wakes up in the middle of its next step.
pub(super) fn a_zombie_changes_nothing(fresh: Fresh<'_>) {
    for taken_again in [false, true] {
        let world = World::new(fresh());
        let task = world.add("x", "text");
        world.claim(&task, "blue", ClaimKind::Leased, 1);
        let (before, claim) = claimed_task(&world, &task);
        let progress = TextEdit::Progress(claim.id.clone(), "- alive\n".to_owned());
        let steps = [
            rules::release(&before, &claim, &Release::success(), &terms(), at(2)),
            rules::extend(&before, progress, Duration::from_secs(60), at(2)),
            rules::release(&before, &claim, &Release::give_back("stopped"), &terms(), at(2)),
        ];
        assert_eq!(world.vault.reclaim(at(1_000_000)).expect("no fault").0.len(), 1);
        if taken_again {
            world.claim(&task, "blue", ClaimKind::Leased, 1_000_001);
        }
        let (text, slot) = (world.text(&task), world.slot(&task));
        for step in steps {
            let outcome = world.harness.store.apply(&step.expect("a step")).expect("no fault");
            assert!(matches!(outcome, StepOutcome::Conflict), "{outcome:?}");
        }
        assert_eq!((world.text(&task), world.slot(&task)), (text, slot));
        assert!(!world.kinds(&task).iter().any(|kind| kind == "RELEASE"));
    }
}

/// A process dies before every act of a step. After `heal`, the step was taken or it was not.
pub(super) fn interrupted_steps_are_healed(fresh: Fresh<'_>) {
    type Prepare = fn(&World, &TaskName) -> Step;
    let verbs: [Prepare; 8] = [
        |world, task| claim_step(&world.get(task), "blue"),
        |world, task| {
            world.claim(task, "blue", ClaimKind::Leased, 1);
            let (task, claim) = claimed_task(world, task);
            rules::release(&task, &claim, &Release::success(), &terms(), at(2)).expect("a step")
        },
        |world, task| {
            world.claim(task, "blue", ClaimKind::Leased, 1);
            let (task, claim) = claimed_task(world, task);
            let draft = TextEdit::Draft(claim.id, "\n## Draft\n\na draft\n".to_owned());
            rules::extend(&task, draft, Duration::from_secs(60), at(2)).expect("a step")
        },
        |world, task| {
            world.claim(task, "blue", ClaimKind::Leased, 1);
            rules::reclaim(&world.get(task), &terms(), at(2)).expect("a step").0
        },
        |world, task| {
            let claimed = world.claim(task, "blue", ClaimKind::Leased, 1);
            let to = Some(State::PendingApproval);
            world.release(&claimed, &Release { to, ..Release::success() }, 2);
            let sha256 = Digest::of(world.text(task).as_bytes());
            decisions::approve(&world.get(task), "me", sha256, None, at(3)).expect("a step")
        },
        |world, task| decisions::reject(&world.get(task), "me", "no", at(2)).expect("a step"),
        |world, task| {
            world.vault.reject(task, "me", "no", at(2)).expect("no fault").expect("it is there");
            decisions::retry(&world.get(task), "me", None, at(3)).expect("a step")
        },
        |world, task| rules::ask(&world.get(task), "it is in doubt", at(2)).expect("a step"),
    ];
    for (number, prepare) in verbs.iter().enumerate() {
        for act in 0.. {
            let world = World::new(fresh());
            let task = world.add("x", "text");
            let step = prepare(&world, &task);
            let Some(interrupt) = &world.harness.interrupt else { return };
            let interrupted = interrupt(&step, act);
            let told = format!("verb {number}, act {act}");
            // A process that another test is just starting has a copy of every lock for an instant.
            let mut pauses = tollgate_base::lock::Pauses::lasting(Duration::from_secs(10));
            let mut slots;
            while {
                world.harness.store.heal().expect("no fault");
                slots = scanned(&world, &task);
                let is_healed = slots.len() == 1
                    && is_told(&world, &step) == took_place(&slots[0], &step, &world)
                    && (interrupted != Interrupted::DiedAfterCommit || slots[0] == step.to);
                !is_healed && pauses.pause()
            } {}
            assert_eq!(slots.len(), 1, "{told}: in exactly one place: {slots:?}");
            assert!(slots[0] == step.from || slots[0] == step.to, "{told}: it is in {}", slots[0]);
            assert_eq!(
                is_told(&world, &step),
                took_place(&slots[0], &step, &world),
                "{told}: told if it happened"
            );
            assert!(world.text(&task).starts_with("text"), "{told}: the author's text stays");
            match interrupted {
                Interrupted::Died if step.verb == Some(Verb::Claim) => {
                    assert_eq!(slots[0], step.from, "{told}: nobody was told of the claim");
                }
                Interrupted::DiedAfterCommit => assert_eq!(slots[0], step.to, "{told}: others have seen it"),
                Interrupted::Died | Interrupted::No => {}
            }
            let outcome = world.harness.store.apply(&step).expect("no fault");
            assert!(matches!(outcome, StepOutcome::Done(_) | StepOutcome::Conflict), "{told}: {outcome:?}");
            let times = world.events().iter().filter(|event| of_step(event, &step)).count();
            assert!(times <= step.events.len(), "{told}: no event twice");
            if interrupted == Interrupted::No {
                assert!(act > 0, "a step has at least one act");
                break;
            }
        }
    }
}

/// Where a scan finds the task. A look at the task itself could heal it.
fn scanned(world: &World, task: &TaskName) -> Vec<Slot> {
    let scan = |state| world.harness.store.scan(state, at(5)).expect("no fault").tasks;
    let found = State::ALL.into_iter().flat_map(scan).filter(|found| found.name == *task);
    found.map(|found| found.slot).collect()
}

fn of_step(event: &Entry, step: &Step) -> bool {
    event.event.keys().step == Some(step.id.as_str())
}

fn is_told(world: &World, step: &Step) -> bool {
    // A claim that was told and then rolled back is told to be rolled back.
    let events = world.events();
    let rolled_back = events.iter().filter(|event| event.event.action_type() == "RECLAIM").count();
    let told = events.iter().filter(|event| of_step(event, step)).count();
    if step.verb == Some(Verb::Claim) { told > rolled_back } else { told > 0 }
}

fn took_place(slot: &Slot, step: &Step, world: &World) -> bool {
    if step.events.is_empty() {
        // A draft: nothing is told of it, whether or not it took place.
        return is_told(world, step);
    }
    *slot == step.to
}
