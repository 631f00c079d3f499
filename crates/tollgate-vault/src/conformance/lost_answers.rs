//! Lost answers: the step was taken, and its answer did not arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;

use super::harness::{Fresh, Harness};
use super::world::{World, at, request, slot_of, terms};
use crate::forward_store;
use crate::owner::ClaimKind;
use crate::rules::Release;
use crate::state::{Slot, State};
use crate::step::{Step, StepOutcome};
use crate::store::Store;
use crate::vault::Vault;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::{ClaimId, StepId};
use tollgate_base::task::TaskName;

/// A store whose answers to the next steps get lost.
pub(super) struct Forgetful {
    store: Arc<dyn Store>,
    /// The number of answers that will be lost.
    losing: AtomicUsize,
    /// The number of answers that were lost.
    lost: AtomicUsize,
    /// Whether it also forgets to heal.
    pub(super) heals: bool,
}

impl Forgetful {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, losing: 0.into(), lost: 0.into(), heals: true }
    }

    fn deliver(&self, outcome: StepOutcome) -> StepOutcome {
        if self.losing.load(Ordering::SeqCst) == 0 {
            return outcome;
        }
        self.losing.fetch_sub(1, Ordering::SeqCst);
        self.lost.fetch_add(1, Ordering::SeqCst);
        StepOutcome::Unknown(Fault::invalid("the answer was lost"))
    }
}

impl Store for Forgetful {
    fn apply(&self, step: &Step) -> Result<StepOutcome> {
        self.store.apply(step).map(|outcome| self.deliver(outcome))
    }

    fn add(&self, id: &StepId, task: &TaskName, text: &[u8], now: Timestamp) -> Result<StepOutcome> {
        self.store.add(id, task, text, now).map(|outcome| self.deliver(outcome))
    }

    fn heal(&self) -> Result<usize> {
        if self.heals { self.store.heal() } else { Ok(0) }
    }

    forward_store!(store: scan, queue_page, get, read, claim_of, record, events, oldest_cursor, cursor_before, keep_after);
    forward_store!(store: tallies, watch, hold, suspects, liveness, heartbeat_interval, heartbeat, heartbeat_all);
    forward_store!(store: proven_at, sync, checkup, problems, sweep);
}

/// A verb, what it does, and where the task is afterwards.
struct VerbCase {
    name: &'static str,
    /// Which kinds of events it adds.
    tells: &'static [&'static str],
    prepare: fn(&World, &TaskName),
    act: fn(&Vault, &TaskName) -> bool,
    to: Slot,
}

fn owned(vault: &Vault, task: &TaskName) -> ClaimId {
    let record = vault.get(task, at(2)).expect("it exists").record;
    record.claim.expect("it is claimed").id
}

fn verbs() -> Vec<VerbCase> {
    let claim = |world: &World, task: &TaskName| drop(world.claim(task, "cloud", ClaimKind::Leased, 1));
    let draft = |world: &World, task: &TaskName| {
        let claimed = world.claim(task, "cloud", ClaimKind::Leased, 1);
        world.release(&claimed, &Release::success(), 2);
    };
    vec![
        VerbCase {
            name: "claim",
            tells: &["CLAIM"],
            prepare: |_, _| (),
            act: |vault, task| {
                let answer = vault.claim(task, &request("cloud", ClaimKind::Held), at(1));
                matches!(answer, Ok(Ok(_)))
            },
            to: slot_of("cloud"),
        },
        VerbCase {
            name: "renew",
            tells: &["RENEW"],
            prepare: claim,
            act: |vault, task| matches!(vault.renew(task, &owned(vault, task), at(2)), Ok(Ok(_))),
            to: slot_of("cloud"),
        },
        VerbCase {
            name: "progress",
            tells: &[],
            prepare: claim,
            act: |vault, task| matches!(vault.progress(task, &owned(vault, task), "half", at(2)), Ok(Ok(()))),
            to: slot_of("cloud"),
        },
        VerbCase {
            name: "draft",
            tells: &[],
            prepare: claim,
            act: |vault, task| matches!(vault.draft(task, &owned(vault, task), "half", at(2)), Ok(Ok(()))),
            to: slot_of("cloud"),
        },
        VerbCase {
            name: "release",
            tells: &["RELEASE"],
            prepare: claim,
            act: |vault, task| {
                let done = vault.release(task, &owned(vault, task), &Release::success(), at(2));
                matches!(done, Ok(Ok(landed)) if landed.slot == Slot::PENDING)
            },
            to: Slot::PENDING,
        },
        VerbCase {
            name: "release to a final state",
            tells: &["RELEASE"],
            prepare: claim,
            act: |vault, task| {
                let how = Release { to: Some(State::Rejected), ..Release::failure("no") };
                matches!(vault.release(task, &owned(vault, task), &how, at(2)), Ok(Ok(_)))
            },
            to: Slot::Free(State::Rejected),
        },
        VerbCase {
            name: "give back",
            tells: &["RELEASE"],
            prepare: claim,
            act: |vault, task| {
                matches!(
                    vault.release(task, &owned(vault, task), &Release::give_back("stop"), at(2)),
                    Ok(Ok(_))
                )
            },
            to: Slot::NEEDS_ACTION,
        },
        VerbCase {
            name: "approve",
            tells: &["APPROVAL"],
            prepare: draft,
            act: |vault, task| matches!(vault.approve(task, "me", None, at(3)), Ok(Ok(_))),
            to: Slot::APPROVED,
        },
        VerbCase {
            name: "amend",
            tells: &["APPROVAL"],
            prepare: draft,
            act: |vault, task| {
                let found = vault.get(task, at(3)).expect("it exists");
                let seen = vault.digest(&found).expect("no fault").expect("unchanged");
                matches!(vault.amend(task, "me", seen, "other", at(3)), Ok(Ok(_)))
            },
            to: Slot::APPROVED,
        },
        VerbCase {
            name: "reject",
            tells: &["APPROVAL"],
            prepare: draft,
            act: |vault, task| matches!(vault.reject(task, "me", "no", at(3)), Ok(Ok(_))),
            to: Slot::Free(State::Rejected),
        },
        VerbCase {
            name: "take back",
            tells: &["APPROVAL"],
            prepare: |world, task| {
                let claimed = world.claim(task, "cloud", ClaimKind::Leased, 1);
                world.release(&claimed, &Release::success(), 2);
                world.vault.approve(task, "me", None, at(2)).expect("no fault").expect("it waits");
            },
            act: |vault, task| matches!(vault.take_back(task, "me", at(3)), Ok(Ok(_))),
            to: Slot::PENDING,
        },
        VerbCase {
            name: "retry",
            tells: &["APPROVAL"],
            prepare: |world, task| {
                world.vault.reject(task, "me", "no", at(1)).expect("no fault").expect("it is there");
            },
            act: |vault, task| matches!(vault.retry(task, "me", None, at(3)), Ok(Ok(_))),
            to: Slot::NEEDS_ACTION,
        },
        VerbCase {
            name: "edit",
            tells: &["APPROVAL"],
            prepare: |_, _| {},
            act: |vault, task| {
                let found = vault.get(task, at(2)).expect("it is there");
                let seen = vault.digest(&found).expect("no fault").expect("unchanged");
                matches!(vault.edit(task, "me", seen, "other", at(3)), Ok(Ok(_)))
            },
            to: Slot::NEEDS_ACTION,
        },
        VerbCase {
            name: "return",
            tells: &["RELEASE"],
            prepare: claim,
            act: |vault, task| {
                let claim = vault.get(task, at(2)).expect("it is there").record.claim.expect("claimed");
                matches!(vault.give_back(task, "me", Some(&claim.id), at(3)), Ok(Ok(_)))
            },
            to: Slot::NEEDS_ACTION,
        },
        VerbCase {
            name: "ask",
            tells: &["RECLAIM", "APPROVAL"],
            prepare: |world, task| {
                world.claim(task, "cloud", ClaimKind::Leased, 1);
                (world.harness.by_hand)(task, &slot_of("cloud"), &Slot::NEEDS_ACTION, None);
            },
            act: |vault, task| {
                matches!(vault.claim(task, &request("cloud", ClaimKind::Held), at(2)), Ok(Err(_)))
            },
            to: Slot::PENDING,
        },
        VerbCase {
            name: "reclaim",
            tells: &["RECLAIM"],
            prepare: claim,
            act: |vault, _| matches!(vault.reclaim(at(1_000_000)), Ok((done, _)) if done.len() == 1),
            to: Slot::NEEDS_ACTION,
        },
    ]
}

pub(super) fn a_lost_answer_is_asked_for_again(fresh: Fresh<'_>) {
    for verb in verbs() {
        // What it does when no answer is lost is what it must do when one is.
        let mut expected = None;
        for losing in 0..=3 {
            let told = format!("{}, {losing} answers lost", verb.name);
            let harness = fresh();
            let forgetful = Arc::new(Forgetful::new(harness.store));
            let store = Arc::clone(&forgetful) as Arc<dyn Store>;
            let world = World::new(Harness { store, ..harness });
            let task = world.add("x", "---\naction: pay\n---\nten coins");
            (verb.prepare)(&world, &task);
            let before = world.kinds(&task).len();
            forgetful.losing.store(losing, Ordering::SeqCst);
            let vault = Vault::new(Arc::clone(&forgetful) as Arc<dyn Store>, terms());
            assert!((verb.act)(&vault, &task), "{told}: it was done");
            assert_eq!(forgetful.lost.load(Ordering::SeqCst), losing, "{told}");
            assert_eq!(world.kinds(&task)[before..], *verb.tells, "{told}: one effect, one event");
            assert_eq!(world.slot(&task), Some(verb.to.clone()), "{told}");
            let text = world.text(&task);
            let shape = (text.lines().count(), text.matches("<!-- tollgate").count());
            assert_eq!(*expected.get_or_insert(shape), shape, "{told}: {text}");
        }
    }
}

pub(super) fn a_lost_answer_has_the_name_that_the_task_got(fresh: Fresh<'_>) {
    for losing in 0..=2 {
        let harness = fresh();
        let forgetful = Arc::new(Forgetful::new(harness.store));
        let store = Arc::clone(&forgetful) as Arc<dyn Store>;
        let world = World::new(Harness { store, ..harness });
        let task = world.add("x", "old");
        world.release(&world.claim(&task, "blue", ClaimKind::Leased, 1), &Release::success(), 2);
        world.add("x", "new");
        let new = world.claim(&task, "blue", ClaimKind::Leased, 3);
        forgetful.losing.store(losing, Ordering::SeqCst);
        let released = world.vault.release(&task, &new.claim.id, &Release::success(), at(4));
        let landed = released.expect("no fault").expect("it was released");
        assert_eq!(landed.task, task.beside(new.claim.id.as_str()), "{losing} answers lost");
    }
}

/// The owner gets a fault and not a second effect: the vault cannot know whether the step was taken.
pub(super) fn an_owner_that_gets_no_answer_has_one_effect_and_a_fault(fresh: Fresh<'_>) {
    let harness = fresh();
    let forgetful = Arc::new(Forgetful::new(harness.store));
    let store = Arc::clone(&forgetful) as Arc<dyn Store>;
    let world = World::new(Harness { store, ..harness });
    let task = world.add("x", "some text\n");
    let claimed = world.claim(&task, "cloud", ClaimKind::Leased, 1);
    forgetful.losing.store(usize::MAX, Ordering::SeqCst);
    let noted = world.vault.progress(&task, &claimed.claim.id, "half of it is done", at(2));
    assert!(noted.is_err(), "the answer was lost: {noted:?}");
    let released = world.vault.release(&task, &claimed.claim.id, &Release::success(), at(3));
    assert!(released.is_err(), "the answer was lost: {released:?}");
    forgetful.losing.store(0, Ordering::SeqCst);
    let text = world.text(&task);
    assert_eq!(text.matches("half of it is done").count(), 1, "one effect: {text}");
    assert_eq!(world.kinds(&task), ["CLAIM", "RELEASE"]);
    assert_eq!(world.slot(&task), Some(Slot::Free(State::Done)));
}

/// A process that adds a task may die, and the next one may ask again much later.
pub(super) fn a_task_that_was_added_and_claimed_is_not_added_again(fresh: Fresh<'_>) {
    let world = World::new(fresh());
    let (task, id) = ("x".parse().expect("a name"), StepId::new().expect("an id"));
    let add = || world.vault.store().add(&id, &task, b"some text\n", at(1)).expect("an answer");
    assert!(matches!(add(), StepOutcome::Done(_)));
    world.claim(&task, "cloud", ClaimKind::Leased, 1);
    assert!(matches!(add(), StepOutcome::Done(_)), "the same answer as the first time");
    let waiting = world.vault.store().get(&task, Some(State::NeedsAction), at(2)).expect("an answer");
    assert!(waiting.is_none(), "it is not there twice");
}

pub(super) fn a_task_whose_answer_was_lost_is_added_once(fresh: Fresh<'_>) {
    for losing in 0..=3 {
        let harness = fresh();
        let forgetful = Arc::new(Forgetful::new(harness.store));
        let store = Arc::clone(&forgetful) as Arc<dyn Store>;
        let world = World::new(Harness { store, ..harness });
        forgetful.losing.store(losing, Ordering::SeqCst);
        let task = world.add("x", "some text\n");
        assert_eq!(forgetful.lost.load(Ordering::SeqCst), losing);
        assert_eq!(world.text(&task), "some text\n", "{losing} answers lost");
        let again = world.vault.add(&task, b"some text\n", at(1));
        let said = again.expect_err("there is one of this name").to_string();
        assert!(said.contains("already exists"), "{said}");
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::claim::Claim;
    use crate::event::MemoryJournal;
    use crate::folder::{FolderOptions, FolderStore};
    use crate::store::{QueuePage, TaskSummary};

    fn own<T>() -> Result<T> {
        Err(Fault::invalid("the store's own"))
    }

    /// A store that answers by itself what has a default.
    struct Engine(FolderStore);

    impl Store for Engine {
        fn queue_page(&self, _: &str, _: usize, _: Timestamp) -> Result<Option<QueuePage>> {
            own()
        }

        fn claim_of(&self, _: &TaskName, _: Timestamp) -> Result<Option<Claim>> {
            own()
        }

        fn suspects(&self, _: Timestamp) -> Result<Vec<TaskSummary>> {
            own()
        }

        fn sweep(&self, _: Timestamp) -> Result<()> {
            own()
        }

        forward_store!(0: scan, get, read, apply, add, record, events);
    }

    /// Otherwise the checks would find lost answers only in what the trait does by default.
    #[test]
    fn the_store_itself_answers_what_has_a_default() {
        let keep = tempfile::tempdir().expect("a folder");
        let options = FolderOptions::new(Arc::new(MemoryJournal::default()));
        let store = FolderStore::open(keep.path(), options).expect("a vault");
        let forgetful = Forgetful::new(Arc::new(Engine(store)));
        let task = "x".parse().expect("a name");
        assert!(forgetful.queue_page("", 1, at(0)).is_err());
        assert!(forgetful.claim_of(&task, at(0)).is_err());
        assert!(forgetful.suspects(at(0)).is_err());
        assert!(forgetful.sweep(at(0)).is_err());
    }
}
