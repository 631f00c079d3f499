//! A sensitive task stays sensitive, whatever its owner does with its text or its file.

use super::harness::Fresh;
use super::world::{World, at, slot_of};
use crate::claim::Mode;
use crate::denial::DenialReason;
use crate::event::Event;
use crate::owner::{ClaimKind, Claimed};
use crate::rules::Release;
use crate::state::{Slot, State};
use tollgate_base::event::{Decision, TaskDecided};
use tollgate_base::task::TaskName;

const PAY: &str = "---\naction: pay\n---\nten coins\n";

/// The owner changes the text of its task.
fn rewrites(world: &World, claimed: &Claimed, old: &str, new: &str) {
    let (text, slot) = (world.text(&claimed.task), slot_of(claimed.claim.agent.as_str()));
    assert!(text.contains(old), "{text}");
    (world.harness.by_hand)(&claimed.task, &slot, &slot, Some(text.replace(old, new).as_bytes()));
}

/// The task is with a person, who learns why; and no agent gets it.
fn is_with_a_person(world: &World, task: &TaskName, why: &str) {
    assert_eq!(world.slot(task), Some(Slot::PENDING), "{task}");
    let record = world.get(task).record;
    assert!(record.reason.as_ref().is_some_and(|reason| reason.contains(why)), "{task}: {record:?}");
    assert!(record.offered.is_some(), "{task}: a person can approve exactly this text");
    assert!(world.text(task).contains(why), "{}", world.text(task));
    let reason = world.events().into_iter().rev().find_map(|entry| match entry.event {
        Event::Release(told, State::PendingApproval) if told.task == *task => told.reason,
        Event::Reclaim(told, State::PendingApproval) if told.task == *task => told.reason,
        Event::Approval(TaskDecided { task: told, decision: Decision::Ask { reason }, .. })
            if told == *task =>
        {
            Some(reason)
        }
        _ => None,
    });
    assert!(reason.is_some_and(|reason| reason.contains(why)), "{task}: the reason is recorded");
    for who in ["cloud", "local", "stranger"] {
        assert_eq!(world.denied(task, who, 1_000_002), DenialReason::NotEligible, "{who}");
    }
}

pub(super) fn an_owner_cannot_make_a_task_harmless(fresh: Fresh<'_>) {
    let world = &World::new(fresh());
    let to = |to| Release { to: Some(to), ..Release::success() };
    let exits = [
        ("fails", Some(Release::failure("no"))),
        ("succeeds", Some(Release::success())),
        ("returns", Some(Release::give_back("stop"))),
        ("rejects", Some(to(State::Rejected))),
        ("dies", None),
    ];
    for (how, exit) in exits {
        for (number, (who, old, new, why)) in [
            (
                "cloud",
                "action: pay\n",
                "",
                "its action was changed from `pay` to none while `cloud` owned it",
            ),
            ("cloud", "action: pay", "action: triage", "from `pay` to `triage`"),
            ("cloud", "---\naction", "---\n- [\naction", "from `pay` to none"),
            ("cloud", "ten coins", "a million", "its author's text was changed while `cloud` owned it"),
            ("local", "action: pay\n", "", "while `local` owned it"),
        ]
        .into_iter()
        .enumerate()
        {
            let task = world.add(&format!("{how}{number}"), PAY);
            let claimed = world.claim(&task, who, ClaimKind::Leased, 1);
            rewrites(world, &claimed, old, new);
            match &exit {
                Some(exit) => {
                    assert_eq!(world.release(&claimed, exit, 2), State::PendingApproval, "{task}");
                }
                None => drop(world.vault.reclaim(at(1_000_000)).expect("no fault")),
            }
            is_with_a_person(world, &task, why);
        }
    }
    // What is not sensitive may be ticked off, but its action stays.
    let ticked = world.add("ticked", "---\naction: triage\n---\n- [ ] one\n");
    let claimed = world.claim(&ticked, "cloud", ClaimKind::Leased, 1);
    rewrites(world, &claimed, "[ ]", "[x]");
    assert_eq!(world.release(&claimed, &Release::success(), 2), State::Done);
    let renamed = world.add("renamed", "---\naction: triage\n---\n");
    let claimed = world.claim(&renamed, "cloud", ClaimKind::Leased, 1);
    rewrites(world, &claimed, "triage", "other");
    assert_eq!(world.release(&claimed, &Release::failure("no"), 2), State::PendingApproval);
}

pub(super) fn a_sensitive_task_that_was_moved_is_for_a_person(fresh: Fresh<'_>) {
    let world = &World::new(fresh());
    let harmless = PAY.replace("action: pay\n", "");
    let (moved, by_hand) = (Slot::NEEDS_ACTION, &world.harness.by_hand);
    for (name, text) in [("as-it-was", None), ("stripped", Some(harmless.as_bytes()))] {
        let task = world.add(name, PAY);
        let claimed = world.claim(&task, "cloud", ClaimKind::Leased, 1);
        by_hand(&task, &slot_of("cloud"), &moved, text);
        let why = world.vault.why(&task, &claimed.claim.agent, at(2)).expect("no fault");
        assert!(why.expect_err("it is in doubt").to_string().contains("by hand"));
        assert_eq!(world.denied(&task, "cloud", 2), DenialReason::NotEligible);
        is_with_a_person(world, &task, "it was moved out of `In_Progress/cloud` by hand");
        // The person wants a fresh start.
        by_hand(&task, &Slot::PENDING, &moved, Some(PAY.as_bytes()));
        assert_eq!(world.claim(&task, "cloud", ClaimKind::Leased, 3).claim.mode, Mode::Draft);
    }
    // It failed, so it is free again, and the agent has made it look harmless there.
    let failed = world.add("failed", PAY);
    let claimed = world.claim(&failed, "cloud", ClaimKind::Leased, 1);
    assert_eq!(world.release(&claimed, &Release::failure("no"), 2), State::NeedsAction);
    by_hand(&failed, &moved, &moved, Some(harmless.as_bytes()));
    assert_eq!(world.denied(&failed, "cloud", 3), DenialReason::NotEligible);
    is_with_a_person(world, &failed, "its action was changed from `pay` to none");
    // The same file under another name.
    let block = "\n<!-- tollgate c-0123456789abcdef -->\n**Status**: processing\n";
    let copied = world.add("copied", &format!("{harmless}{block}"));
    assert_eq!(world.denied(&copied, "cloud", 3), DenialReason::NotEligible);
    is_with_a_person(world, &copied, "the open block of an attempt");
    by_hand(&copied, &Slot::PENDING, &moved, None);
    world.claim(&copied, "cloud", ClaimKind::Leased, 4);
    // What a person changes in a task that nobody owns is what the author asks for.
    let edited = world.add("edited", PAY);
    by_hand(&edited, &moved, &moved, Some(harmless.as_bytes()));
    assert_eq!(world.claim(&edited, "cloud", ClaimKind::Leased, 4).claim.mode, Mode::Execute);
}
