//! The checks about approval: bound to the bytes, used once, and understood when it is done by hand.

use super::harness::Fresh;
use super::world::{World, agent, at, slot_of, terms};
use crate::claim::Mode;
use crate::denial::{Denial, DenialReason};
use crate::owner::ClaimKind;
use crate::rules::{Release, Terms};
use crate::state::{Slot, State};
use tollgate_base::digest::Digest;
use tollgate_base::task::TaskName;

/// A task that `cloud` has drafted.
fn drafted(world: &World, task: &str) -> TaskName {
    let task = world.add(task, "---\naction: pay\n---\nten coins");
    let claimed = world.claim(&task, "cloud", ClaimKind::Leased, 1);
    assert_eq!(claimed.claim.mode, Mode::Draft);
    let done = Release { to: Some(State::Done), ..Release::success() };
    assert!(world.vault.release(&task, &claimed.claim.id, &done, at(1)).is_err(), "a draft is not done");
    assert_eq!(world.release(&claimed, &Release::success(), 2), State::PendingApproval);
    task
}

pub(super) fn an_approval_is_taken_back_until_somebody_executes_it(fresh: Fresh<'_>) {
    let world = &World::new(fresh());
    let take_back = |task: &TaskName, now| world.vault.take_back(task, "ada", at(now)).expect("no fault");
    let task = drafted(world, "x");
    assert_eq!(take_back(&task, 3).map(drop), Err(Denial::Elsewhere(task.clone(), Slot::PENDING)));
    let text = world.text(&task);
    let approve = || world.vault.approve(&task, "ada", None, at(4)).expect("no fault").expect("it waits");
    approve();
    assert_eq!(take_back(&task, 5).expect("it is approved").slot, Slot::PENDING);
    assert_eq!(world.text(&task), text, "the text stays");
    assert_eq!(world.denied(&task, "local", 6), DenialReason::NotEligible, "the approval is void");
    approve();
    let executing = world.claim(&task, "local", ClaimKind::Leased, 7);
    assert_eq!(take_back(&task, 8).map(drop), Err(Denial::Elsewhere(task.clone(), slot_of("local"))));
    assert_eq!(world.release(&executing, &Release::success(), 9), State::Done);
    assert_eq!(
        world.kinds(&task),
        ["CLAIM", "RELEASE", "APPROVAL", "APPROVAL", "APPROVAL", "CLAIM", "RELEASE"]
    );
}

pub(super) fn a_draft_is_sent_back_with_a_reason(fresh: Fresh<'_>) {
    let world = &World::new(fresh());
    let task = drafted(world, "x");
    let offered = world.get(&task).record.offered;
    let retry = |reason, now| world.vault.retry(&task, "ada", reason, at(now));
    assert!(
        retry(None, 3).is_err() && retry(Some(" "), 3).is_err(),
        "the agent needs to know what to change"
    );
    assert_eq!(world.slot(&task), Some(Slot::PENDING));
    let landed = retry(Some("nine coins,\nnot ten"), 4).expect("no fault").expect("it waits");
    assert_eq!(landed.slot, Slot::NEEDS_ACTION);
    let text = world.text(&task);
    assert!(text.contains("**Retried By**: ada\n"), "{text}");
    assert!(text.contains("**Reason**: nine coins,\n  not ten\n"), "{text}");
    // The agent drafts again, and a person decides about what it offers now.
    let claimed = world.claim(&task, "cloud", ClaimKind::Leased, 5);
    assert_eq!(claimed.claim.mode, Mode::Draft);
    assert_eq!(world.release(&claimed, &Release::success(), 6), State::PendingApproval);
    assert!(world.get(&task).record.offered != offered, "another text is offered");
    assert_eq!(world.kinds(&task), ["CLAIM", "RELEASE", "APPROVAL", "CLAIM", "RELEASE"]);
}

pub(super) fn a_rejection_is_taken_back(fresh: Fresh<'_>) {
    let world = &World::new(fresh());
    let task = drafted(world, "x");
    world.vault.reject(&task, "me", "too dear", at(3)).expect("no fault").expect("it waits");
    let landed = world.vault.take_back(&task, "me", at(4)).expect("no fault").expect("it was rejected");
    assert_eq!(landed.slot, Slot::PENDING);
    assert_eq!(world.denied(&task, "local", 5), DenialReason::NotEligible, "nobody has approved it");
    assert_eq!(world.get(&task).record.offered, None, "a move does not approve it");
    world.vault.approve(&task, "me", None, at(6)).expect("no fault").expect("it waits again");
    let executing = world.claim(&task, "local", ClaimKind::Leased, 7);
    assert_eq!(world.release(&executing, &Release::success(), 8), State::Done);
}

pub(super) fn an_approval_is_for_this_text_and_once(fresh: Fresh<'_>) {
    let world = &World::new(fresh());
    let task = drafted(world, "x");
    assert_eq!(world.denied(&task, "local", 3), DenialReason::NotEligible, "nobody approved it yet");
    let approve = |task: &TaskName| world.vault.approve(task, "me", None, at(4)).expect("no fault");
    let wrong = Some(Digest::of(b"something else"));
    assert!(world.vault.approve(&task, "me", wrong, at(4)).expect("no fault").is_err());
    assert!(approve(&task).is_ok());
    assert!(approve(&task).is_err(), "a decision is made once");
    assert_eq!(world.denied(&task, "cloud", 5), DenialReason::NotEligible, "it may only draft");
    let executing = world.claim(&task, "local", ClaimKind::Leased, 5);
    assert_eq!(executing.claim.mode, Mode::Execute);
    assert_eq!(world.release(&executing, &Release::failure("no money"), 6), State::PendingApproval);
    assert_eq!(world.denied(&task, "local", 7), DenialReason::NotEligible, "the approval is used up");
    approve(&task).expect("it is there");
    let executing = world.claim(&task, "local", ClaimKind::Leased, 8);
    assert_eq!(world.release(&executing, &Release::success(), 9), State::Done);

    let swapped = drafted(world, "y");
    approve(&swapped).expect("it is there");
    (world.harness.by_hand)(
        &swapped,
        &Slot::APPROVED,
        &Slot::APPROVED,
        Some(b"---\naction: pay\n---\na million"),
    );
    assert_eq!(
        world.vault.why(&swapped, &agent("local"), at(9)).expect("no fault").map_err(|why| why.reason()),
        Err(DenialReason::NotEligible),
        "and `why` knows it"
    );
    assert_eq!(
        world.denied(&swapped, "local", 9),
        DenialReason::NotEligible,
        "this is not what was approved"
    );
    assert_eq!(world.slot(&swapped), Some(Slot::PENDING), "a person decides again");
    assert_eq!(world.text(&swapped), "---\naction: pay\n---\na million", "nothing was added to it");

    let unwanted = drafted(world, "z");
    assert!(world.vault.reject(&unwanted, "me", " ", at(9)).is_err(), "a reason is required");
    let no = world.vault.reject(&unwanted, "me", "too dear", at(9)).expect("no fault");
    assert!(no.is_ok());
    assert_eq!(world.slot(&unwanted), Some(Slot::Free(State::Rejected)));
    assert!(world.text(&unwanted).contains("**Reason**: too dear"));
    assert!(world.vault.reject(&unwanted, "me", "again", at(9)).expect("no fault").is_err());
}

pub(super) fn an_edit_is_approved_with_the_rest(fresh: Fresh<'_>) {
    let world = &World::new(fresh());
    let task = drafted(world, "x");
    let text = world.text(&task);
    let seen = Digest::of(text.as_bytes());
    // Shorter than what was there, so that nothing of the old end may stay.
    let edited = text.replace("ten coins", "9").replace("**Result**: success\n", "");
    let amend = |seen, text: &str| world.vault.amend(&task, "me", seen, text, at(4)).expect("no fault");
    let other = Digest::of(b"something else");
    assert!(amend(other, &edited).is_err(), "not what they began with");
    assert!(world.vault.amend(&task, "me", seen, " \n", at(4)).is_err(), "nothing is left of it");
    assert_eq!(world.text(&task), text, "nothing was done yet");
    assert!(amend(seen, &edited).is_ok());
    assert!(amend(seen, &edited).is_err(), "a decision is made once");
    assert_eq!((world.slot(&task), world.text(&task)), (Some(Slot::APPROVED), edited.clone()));
    let executing = world.claim(&task, "local", ClaimKind::Leased, 5);
    assert!(world.text(&task).starts_with(&edited), "what was approved is what is executed");
    assert_eq!(world.release(&executing, &Release::success(), 6), State::Done);
}

/// Nobody can claim it in `Approved`, and the next claim brings it back to `Pending_Approval`, where people learn why.
fn is_sent_back(world: &World, task: &TaskName, why: &str) {
    let text = world.text(task);
    let told = world.vault.why(task, &agent("local"), at(5)).expect("no fault");
    assert!(told.is_err(), "{task}: `why` knows it");
    assert_eq!(world.denied(task, "local", 5), DenialReason::NotEligible, "{task}");
    assert_eq!(world.slot(task), Some(Slot::PENDING), "{task}");
    assert_eq!(world.text(task), text, "{task}: nothing was added to it");
    let reason = world.get(task).record.reason.unwrap_or_default();
    assert!(reason.contains(why) && reason.contains("`tollgate task approve`"), "{task}: {reason}");
}

pub(super) fn a_move_approves_nothing_by_default(fresh: Fresh<'_>) {
    let world = &World::new(fresh());
    let by_hand = &world.harness.by_hand;
    let task = drafted(world, "x");
    for _ in 0..3 {
        by_hand(&task, &Slot::PENDING, &Slot::APPROVED, None);
        is_sent_back(world, &task, "by hand, which approves nothing");
    }
    let seen = Digest::of(world.text(&task).as_bytes());
    by_hand(&task, &Slot::PENDING, &Slot::APPROVED, None);
    // The person's command finds it where somebody has put it.
    world.vault.reopen_unapproved(&task, at(6)).expect("no fault");
    assert!(world.vault.approve(&task, "me", Some(seen), at(6)).expect("no fault").is_ok());
    world.vault.reopen_unapproved(&task, at(6)).expect("no fault");
    assert_eq!(world.slot(&task), Some(Slot::APPROVED), "this approval holds");
    world.claim(&task, "local", ClaimKind::Leased, 7);
}

pub(super) fn a_move_approves_only_what_was_offered(fresh: Fresh<'_>) {
    let world = &World::under(Terms { approve_by_move: true, ..terms() }, fresh());
    let by_hand = &world.harness.by_hand;
    let (from, to) = (&Slot::PENDING, &Slot::APPROVED);
    let task = drafted(world, "x");
    by_hand(&task, from, to, None);
    let executing = world.claim(&task, "local", ClaimKind::Leased, 3);
    assert_eq!(world.release(&executing, &Release::success(), 4), State::Done);
    assert_eq!(world.kinds(&task), ["CLAIM", "RELEASE", "APPROVAL", "CLAIM", "RELEASE"]);

    let other: &[u8] = b"---\naction: pay\n---\na million";
    for (name, between) in
        [("edited", None), ("sent-back", Some(State::NeedsAction)), ("no", Some(State::Rejected))]
    {
        let edited = drafted(world, name);
        let offered = world.text(&edited);
        by_hand(&edited, from, to, Some(other));
        // However often it is moved, and wherever it is in between.
        for _ in 0..3 {
            is_sent_back(world, &edited, "another text than was offered");
            if let Some(between) = between {
                by_hand(&edited, from, &Slot::Free(between), None);
                by_hand(&edited, &Slot::Free(between), to, None);
            } else {
                by_hand(&edited, from, to, None);
            }
        }
        is_sent_back(world, &edited, "another text than was offered");
        // The first text still counts.
        by_hand(&edited, from, to, Some(offered.as_bytes()));
        world.claim(&edited, "local", ClaimKind::Leased, 6);
    }

    // A person's own door decides about the text that it shows.
    let amended = drafted(world, "amended");
    by_hand(&amended, from, from, Some(other));
    let decided = world.vault.amend(&amended, "me", Digest::of(other), "---\naction: pay\n---\n9", at(4));
    assert!(decided.expect("no fault").is_ok());
    assert!(world.vault.take_back(&amended, "me", at(5)).expect("no fault").is_ok());
    by_hand(&amended, from, to, Some(other));
    is_sent_back(world, &amended, "another text than was offered");
    by_hand(&amended, from, to, Some(b"---\naction: pay\n---\n9"));
    world.claim(&amended, "local", ClaimKind::Leased, 6);

    // The text of one task does not become the text of another one.
    let (one, two) = (drafted(world, "one"), drafted(world, "two"));
    let text = world.text(&one);
    by_hand(&two, from, to, Some(text.as_bytes()));
    is_sent_back(world, &two, "another text than was offered");

    let unknown = world.add("unknown", "---\naction: pay\n---\n");
    by_hand(&unknown, &Slot::NEEDS_ACTION, to, None);
    let why = world.vault.why(&unknown, &agent("local"), at(7)).expect("no fault");
    assert!(why.expect_err("nobody approved it").to_string().contains("by hand"));
    for _ in 0..3 {
        is_sent_back(world, &unknown, "never offered");
        by_hand(&unknown, from, to, None);
    }
}

pub(super) fn a_move_out_of_the_hands_of_an_agent_ends_its_claim(fresh: Fresh<'_>) {
    let world = &World::new(fresh());
    let taken = world.claim(&world.add("w", "text"), "blue", ClaimKind::Leased, 8);
    (world.harness.by_hand)(&taken.task, &slot_of("blue"), &Slot::NEEDS_ACTION, None);
    world.fenced_off(&taken.task, &taken.claim.id, 9);
    let again = world.claim(&taken.task, "red", ClaimKind::Leased, 9);
    assert!(again.claim.epoch > taken.claim.epoch);
}

pub(super) fn a_sensitive_execution_is_not_repeated(fresh: Fresh<'_>) {
    let world = &World::new(fresh());
    let approved = drafted(world, "x");
    world.vault.approve(&approved, "me", None, at(3)).expect("no fault").expect("it is there");
    // `local` may pay without asking, but for `cloud` it is sensitive.
    let direct = world.add("y", "---\naction: pay\n---\n");
    let harmless = world.add("z", "---\naction: triage\n---\n");
    for (task, to) in [(&approved, Slot::PENDING), (&direct, Slot::PENDING), (&harmless, Slot::NEEDS_ACTION)]
    {
        let claimed = world.claim(task, "local", ClaimKind::Held, 4);
        // A store without locks gives a lease, and then only time tells that the owner is dead.
        let soon = if claimed.lock.is_some() { 5 } else { 1_000_000 };
        (world.harness.kill)(claimed);
        let why = world.vault.why(task, &agent("cloud"), at(soon)).expect("no fault");
        assert_eq!(why.is_ok(), to == Slot::NEEDS_ACTION, "{task}: {why:?}");
        world.vault.reclaim(at(soon)).expect("no fault");
        assert_eq!(world.slot(task), Some(to), "{task}");
    }
    let found = world.vault.get(&approved, at(6)).expect("it exists");
    assert_eq!(found.record.reason.as_deref(), Some("interrupted"));
    assert!(found.record.approval.is_none(), "the approval is used up");
}
