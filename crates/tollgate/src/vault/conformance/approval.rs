//! The checks about approval: bound to the bytes, used once, and understood when it is done by hand.

use super::{World, at, mine};
use crate::vault::claim::Mode;
use crate::vault::event::Kind;
use crate::vault::state::{Slot, State};
use crate::vault::{Decided, Reason, Release, TaskName, Wish};

/// A task that `cloud` has drafted.
fn drafted(world: &World, task: &str) -> TaskName {
    let task = world.add(task, "---\naction: pay\n---\nten coins");
    let claimed = world.claim(&task, "cloud", Wish::Leased, 1);
    assert_eq!(claimed.claim.mode, Mode::Draft);
    let done = Release { to: Some(State::Done), ..Release::success() };
    assert!(world.vault.release(&task, &claimed.claim.id, &done, at(1)).is_err(), "a draft is not done");
    assert_eq!(world.release(&claimed, &Release::success(), 2), State::PendingApproval);
    task
}

pub(super) fn an_approval_is_for_these_bytes_and_once(world: &World) {
    let task = drafted(world, "x");
    assert_eq!(world.refused(&task, "local", 3), Reason::NotEligible, "nobody approved it yet");
    let approve = |task: &TaskName| world.vault.approve(task, "me", None, at(4)).expect("no fault");
    let wrong = Some(crate::digest::Digest::of(b"something else"));
    assert!(matches!(world.vault.approve(&task, "me", wrong, at(4)).expect("no fault"), Decided::No(_)));
    assert!(matches!(approve(&task), Decided::Yes(_)));
    assert!(matches!(approve(&task), Decided::No(_)), "a decision is made once");
    assert_eq!(world.refused(&task, "cloud", 5), Reason::NotEligible, "it may only draft");
    let executing = world.claim(&task, "local", Wish::Leased, 5);
    assert_eq!(executing.claim.mode, Mode::Execute);
    assert_eq!(world.release(&executing, &Release::failure("no money"), 6), State::PendingApproval);
    assert_eq!(world.refused(&task, "local", 7), Reason::NotEligible, "the yes is used up");
    approve(&task);
    let executing = world.claim(&task, "local", Wish::Leased, 8);
    assert_eq!(world.release(&executing, &Release::success(), 9), State::Done);

    let swapped = drafted(world, "y");
    approve(&swapped);
    (world.bench.meddle)(
        &swapped,
        &Slot::APPROVED,
        &Slot::APPROVED,
        Some(b"---\naction: pay\n---\na million"),
    );
    assert_eq!(world.refused(&swapped, "local", 9), Reason::NotEligible, "this is not what was approved");
    assert_eq!(world.slot(&swapped), Some(Slot::PENDING), "a person decides again");
    assert_eq!(world.text(&swapped), "---\naction: pay\n---\na million", "nothing was added to it");

    let unwanted = drafted(world, "z");
    assert!(world.vault.reject(&unwanted, "me", " ", at(9)).is_err(), "a reason is required");
    let no = world.vault.reject(&unwanted, "me", "too dear", at(9)).expect("no fault");
    assert!(matches!(no, Decided::Yes(_)));
    assert_eq!(world.slot(&unwanted), Some(Slot::Free(State::Rejected)));
    assert!(world.text(&unwanted).contains("**Reason**: too dear"));
    assert!(matches!(world.vault.reject(&unwanted, "me", "again", at(9)).expect("no fault"), Decided::No(_)));
}

pub(super) fn an_edit_is_approved_with_the_rest(world: &World) {
    let task = drafted(world, "x");
    let text = world.text(&task);
    let seen = crate::digest::Digest::of(text.as_bytes());
    // Shorter than what was there, so that nothing of the old end may stay.
    let edited = text.replace("ten coins", "9").replace("**Result**: success\n", "");
    let amend = |seen, text: &str| world.vault.amend(&task, "me", seen, text, at(4)).expect("no fault");
    let other = crate::digest::Digest::of(b"something else");
    assert!(matches!(amend(other, &edited), Decided::No(_)), "not what they began with");
    assert!(world.vault.amend(&task, "me", seen, " \n", at(4)).is_err(), "nothing is left of it");
    assert_eq!(world.text(&task), text, "nothing was done yet");
    assert!(matches!(amend(seen, &edited), Decided::Yes(_)));
    assert!(matches!(amend(seen, &edited), Decided::No(_)), "a decision is made once");
    assert_eq!((world.slot(&task), world.text(&task)), (Some(Slot::APPROVED), edited.clone()));
    let executing = world.claim(&task, "local", Wish::Leased, 5);
    assert!(world.text(&task).starts_with(&edited), "what was approved is what is executed");
    assert_eq!(world.release(&executing, &Release::success(), 6), State::Done);
}

pub(super) fn a_hand_move_is_understood(world: &World) {
    let task = drafted(world, "x");
    (world.bench.meddle)(&task, &Slot::PENDING, &Slot::APPROVED, None);
    let executing = world.claim(&task, "local", Wish::Leased, 3);
    assert_eq!(world.release(&executing, &Release::success(), 4), State::Done);
    assert_eq!(world.kinds(&task), [Kind::Claim, Kind::Release, Kind::Approval, Kind::Claim, Kind::Release]);

    let edited = drafted(world, "y");
    (world.bench.meddle)(&edited, &Slot::PENDING, &Slot::APPROVED, Some(b"---\naction: pay\n---\nother"));
    assert_eq!(world.refused(&edited, "local", 5), Reason::NotEligible, "not the bytes that were on offer");
    assert_eq!(world.slot(&edited), Some(Slot::PENDING));
    (world.bench.meddle)(&edited, &Slot::PENDING, &Slot::APPROVED, None);
    world.claim(&edited, "local", Wish::Leased, 6);

    let unknown = world.add("z", "---\naction: pay\n---\n");
    (world.bench.meddle)(&unknown, &Slot::NEEDS_ACTION, &Slot::APPROVED, None);
    assert_eq!(world.refused(&unknown, "local", 7), Reason::NotEligible, "it was never on offer");
    assert_eq!(world.slot(&unknown), Some(Slot::PENDING));

    let taken = world.claim(&world.add("w", "text"), "blue", Wish::Leased, 8);
    (world.bench.meddle)(&taken.task, &mine("blue"), &Slot::NEEDS_ACTION, None);
    world.fenced_off(&taken, 9);
    let again = world.claim(&taken.task, "red", Wish::Leased, 9);
    assert!(again.claim.epoch > taken.claim.epoch);
}

pub(super) fn a_sensitive_execution_is_not_repeated(world: &World) {
    let approved = drafted(world, "x");
    world.vault.approve(&approved, "me", None, at(3)).expect("no fault");
    // `local` may pay without asking, but for `cloud` it is sensitive.
    let direct = world.add("y", "---\naction: pay\n---\n");
    let harmless = world.add("z", "---\naction: triage\n---\n");
    for (task, to) in [(&approved, Slot::PENDING), (&direct, Slot::PENDING), (&harmless, Slot::NEEDS_ACTION)]
    {
        let claimed = world.claim(task, "local", Wish::Held, 4);
        (world.bench.kill)(claimed);
        world.vault.reclaim(at(5)).expect("no fault");
        assert_eq!(world.slot(task), Some(to), "{task}");
    }
    let stored = world.vault.get(&approved, at(6)).expect("it exists");
    assert_eq!(stored.note.reason.as_deref(), Some("interrupted"));
    assert!(stored.note.approval.is_none(), "the yes is used up");
}
