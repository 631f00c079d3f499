//! The life of a task: added, claimed, worked on, released.

use super::harness::Fresh;
use super::world::{LEASE, World, agent, at, claim_step, name, request, slot_of, terms};
use crate::claim::Tenure;
use crate::denial::{Denial, DenialReason};
use crate::owner::ClaimKind;
use crate::rules::{self, Release};
use crate::state::{Slot, State};
use crate::step::StepOutcome;

pub(super) fn a_task_is_added_once(fresh: Fresh<'_>) {
    let world = World::new(fresh());
    let task = world.add("x", "first");
    assert!(world.vault.add(&task, b"second", at(0)).is_err(), "the name is taken");
    assert_eq!(world.text(&task), "first");
    assert!(world.vault.add(&name("empty"), b"", at(0)).is_err());
    assert_eq!(world.slot(&name("nowhere")), None);
}

pub(super) fn a_task_goes_through_its_life(fresh: Fresh<'_>) {
    let world = World::new(fresh());
    let task = world.add("x", "# Do it");
    let claimed = world.claim(&task, "blue", ClaimKind::Leased, 1);
    let id = &claimed.claim.id;
    assert_eq!(world.slot(&task), Some(slot_of("blue")));
    assert!(world.text(&task).starts_with("# Do it\n<!-- tollgate c-"), "{}", world.text(&task));
    assert!(world.text(&task).contains("**Status**: processing"));
    assert!(world.vault.verify(&task, id, at(2)).expect("no fault"));
    assert_eq!(world.denied(&task, "blue", 2), DenialReason::Lost, "not even for an agent of the same name");
    assert_eq!(world.vault.progress(&task, id, "half way", at(3)).expect("no fault"), Ok(()));
    assert_eq!(world.release(&claimed, &Release::success(), 11), State::Done);
    let text = world.text(&task);
    assert!(text.starts_with("# Do it\n<!-- tollgate c-") && text.contains("half way\n"), "{text}");
    assert!(text.contains("**Status**: Done\n") && text.contains("**Duration**: 10\n"), "{text}");
    assert!(text.ends_with("**Result**: success\n**Next State**: Done\n"), "{text}");
    world.fenced_off(&task, id, 12);
    assert_eq!(world.kinds(&task), ["CLAIM", "RELEASE"], "each once, in order");
    assert_eq!(world.denied(&task, "blue", 13), DenialReason::NotEligible);
    let (all, each) = world.vault.figures(at(13)).expect("no fault");
    assert_eq!((all.total_claims, all.active_claims, each.len()), (1, 0, 1));
}

pub(super) fn a_stale_step_does_nothing(fresh: Fresh<'_>) {
    let world = World::new(fresh());
    let task = world.add("x", "text");
    let found = world.get(&task);
    let (first, second) = (claim_step(&found, "blue"), claim_step(&found, "red"));
    let apply = |step| world.harness.store.apply(step).expect("no fault");
    let StepOutcome::Done(landed) = apply(&first) else { panic!("nobody else is there") };
    let text = world.text(&task);
    assert!(matches!(apply(&second), StepOutcome::Conflict), "the other was faster");
    let StepOutcome::Done(again) = apply(&first) else { panic!("the same step gets the same answer") };
    assert_eq!(again, landed);
    assert_eq!(world.text(&task), text);
    assert_eq!(world.kinds(&task), ["CLAIM"], "one effect, one event");
    assert_eq!(world.slot(&task), Some(slot_of("blue")));
    assert_eq!(world.harness.store.read(&found, u64::MAX).expect("no fault"), None, "that version is gone");
}

pub(super) fn a_lease_lasts_as_long_as_it_is_renewed(fresh: Fresh<'_>) {
    let world = World::new(fresh());
    let task = world.add("x", "text");
    let id = world.claim(&task, "blue", ClaimKind::Leased, 0).claim.id;
    let reclaim = |now: i64| world.vault.reclaim(at(now)).expect("no fault").0.len();
    assert_eq!(reclaim(LEASE), 0);
    let renewed =
        world.vault.renew(&task, &id, at(LEASE - 1)).expect("no fault").expect("the owner can renew");
    assert_eq!(renewed.tenure, Tenure::Leased(at(2 * LEASE - 1)));
    assert_eq!(reclaim(2 * LEASE - 2), 0);
    assert!(world.vault.verify(&task, &id, at(2 * LEASE - 2)).expect("no fault"), "which extends it too");
    assert_eq!(reclaim(3 * LEASE - 3), 0);
    world.vault.progress(&task, &id, "x", at(3 * LEASE - 3)).expect("no fault").expect("the owner");
    assert_eq!(reclaim(4 * LEASE - 4), 0);
    // Somebody sees that the lease has expired; before they reclaim the task, the owner renews.
    let late = rules::reclaim(&world.get(&task), &terms(), at(5 * LEASE)).expect("a step").0;
    world.vault.renew(&task, &id, at(4 * LEASE)).expect("no fault").expect("the owner");
    let outcome = world.harness.store.apply(&late).expect("no fault");
    assert!(matches!(outcome, StepOutcome::Conflict), "a renewed claim is not reclaimed: {outcome:?}");
    assert_eq!(reclaim(5 * LEASE + 1), 1, "nothing was heard of the owner");
    world.fenced_off(&task, &id, 5 * LEASE);
    let late = world.claim(&task, "blue", ClaimKind::Leased, 0);
    let to = world.release(&late, &Release::success(), 2 * LEASE);
    assert_eq!(to, State::Done, "an expired lease can be released if nobody took the task");
    assert!(world.kinds(&task).iter().any(|kind| kind == "RENEW"));
}

pub(super) fn failed_work_is_retried_and_then_rejected(fresh: Fresh<'_>) {
    let world = World::new(fresh());
    let task = world.add("x", "text");
    let first = world.claim(&task, "blue", ClaimKind::Leased, 1);
    let done = Release { to: Some(State::Done), ..Release::failure("no") };
    assert!(world.vault.release(&task, &first.claim.id, &done, at(1)).is_err(), "failed work is never done");
    assert_eq!(world.release(&first, &Release::failure("exit status 1"), 2), State::NeedsAction);
    let given = world.claim(&task, "blue", ClaimKind::Leased, 3);
    let back =
        world.vault.release(&task, &given.claim.id, &Release::give_back("stopped"), at(4)).expect("no fault");
    assert_eq!(back.expect("the owner").slot, Slot::NEEDS_ACTION);
    let second = world.claim(&task, "red", ClaimKind::Leased, 5);
    let to = world.release(&second, &Release::failure("exit status 1"), 6);
    assert_eq!(to, State::NeedsAction, "two attempts");
    let third = world.claim(&task, "blue", ClaimKind::Leased, 7);
    assert_eq!(world.release(&third, &Release::failure("exit status 2"), 8), State::Rejected);
    assert!(world.text(&task).contains("gave up after 3 attempts: exit status 2"), "{}", world.text(&task));
}

pub(super) fn nothing_is_overwritten(fresh: Fresh<'_>) {
    let world = World::new(fresh());
    let task = world.add("x", "old");
    let old = world.claim(&task, "blue", ClaimKind::Leased, 1);
    world.release(&old, &Release::success(), 2);
    let before = world.text(&task);
    world.add("x", "new");
    let new = world.claim(&task, "blue", ClaimKind::Leased, 3);
    let done = world.vault.release(&task, &new.claim.id, &Release::success(), at(4)).expect("no fault");
    let landed = done.expect("a release never fails because of a name");
    assert_eq!(landed.task, task.beside(new.claim.id.as_str()), "and the answer has the new name");
    assert_eq!(world.text(&task), before);
    assert!(world.text(&landed.task).starts_with("new"));
    // Two tasks of one name at the same time: the second waits until the first is final.
    let first = world.claim(&world.add("y", "first"), "blue", ClaimKind::Leased, 5);
    let second = world.add("y", "second");
    let found = world.harness.store.get(&second, Some(State::NeedsAction), at(6)).expect("no fault");
    assert_eq!(found.and_then(|task| task.twin), Some(slot_of("blue")));
    let next = world.vault.claim_next(&request("red", ClaimKind::Leased), at(6)).expect("no fault");
    assert!(matches!(next, (None, queue) if queue.lost == 1 && queue.soonest.is_none()));
    // A person decides about the second. The first keeps its owner.
    (world.harness.by_hand)(&second, &Slot::NEEDS_ACTION, &Slot::PENDING, None);
    let decided = [
        world.vault.approve(&second, "me", None, at(6)).expect("no fault"),
        world.vault.reject(&second, "me", "no", at(6)).expect("no fault"),
    ];
    for denied in decided {
        assert!(matches!(denied, Err(Denial::Twin(..) | Denial::Elsewhere(..))), "{denied:?}");
    }
    assert!(world.vault.verify(&first.task, &first.claim.id, at(6)).expect("no fault"), "it has its owner");
    (world.harness.by_hand)(&second, &Slot::PENDING, &Slot::NEEDS_ACTION, None);
    world.release(&first, &Release::success(), 7);
    world.claim(&second, "red", ClaimKind::Leased, 8);
}

pub(super) fn order_and_dependencies(fresh: Fresh<'_>) {
    let world = World::new(fresh());
    world.add("low", "---\npriority: low\n---\n");
    world.add("due", "---\npriority: high\ndue: 2030-01-01\n---\n");
    world.add("high", "**Priority**: high\n");
    world.add("late", "---\npriority: urgent\nafter: low\n---\n");
    world.add("never", "---\npriority: urgent\nafter: [nowhere]\n---\n");
    world.add("self", "---\nafter: self\n---\n");
    world.add("broken", "---\naction: pay\n");
    world.add("foreign", "---\naction: other\n---\n");
    let who = request("cloud", ClaimKind::Leased);
    let mut order = Vec::new();
    loop {
        let (next, queue) = world.vault.claim_next(&who, at(1)).expect("no fault");
        let Some(claimed) = next else {
            assert_eq!((queue.blocked, queue.foreign, queue.unfit.len()), (2, 1, 1), "{queue:?}");
            break;
        };
        order.push(claimed.task.stem().to_owned());
        world.release(&claimed, &Release::success(), 2);
    }
    assert_eq!(order, ["due", "high", "low", "late"]);
    for (task, reason, word) in [
        ("never", DenialReason::Blocked, "does not exist"),
        ("self", DenialReason::Blocked, "itself"),
        ("broken", DenialReason::Incomplete, "closing"),
        ("foreign", DenialReason::NotEligible, "`other`"),
        ("low", DenialReason::NotEligible, "`Done`"),
    ] {
        let why = world.vault.why(&name(task), &agent("cloud"), at(3)).expect("no fault");
        let denied = why.expect_err("it cannot be claimed");
        assert!(denied.reason() == reason && denied.to_string().contains(word), "{denied:?}");
    }
}

pub(super) fn every_lost_claim_is_counted_once(fresh: Fresh<'_>) {
    let world = World::new(fresh());
    let (task, other) = (world.add("x", "text"), world.add("y", "text"));
    let red = request("red", ClaimKind::Leased);
    let mut old = world.vault.queue(&red, at(1)).expect("no fault");
    // As if a scan and a hint had both brought it.
    assert!(world.vault.push(&mut old, &task, &red, at(1)).expect("no fault"));
    world.claim(&task, "blue", ClaimKind::Leased, 1);
    let lost = |task| world.kinds(task).iter().filter(|kind| *kind == "CLAIM_LOST").count();
    assert_eq!(world.denied(&task, "red", 2), DenialReason::Lost);
    assert_eq!(lost(&task), 1, "by name");
    let claimed = world.vault.next(&mut old, &red, at(2)).expect("the other one is free");
    assert!(world.vault.next(&mut old, &red, at(2)).is_none());
    assert_eq!((lost(&task), old.lost), (1, 1), "a worker that got another task has lost nothing");
    world.vault.record_lost(&old, &red.agent, at(2)).expect("no fault");
    assert_eq!(lost(&task), 2, "one that got nothing has");
    assert_eq!(world.denied(&task, "blue", 3), DenialReason::Lost);
    assert_eq!(lost(&task), 2, "blue has lost nothing to another agent");
    world.release(&claimed, &Release::success(), 3);
    let mut old = world.vault.queue(&request("green", ClaimKind::Leased), at(3)).expect("no fault");
    assert!(world.vault.next(&mut old, &red, at(3)).is_none());
    world.vault.record_lost(&old, &red.agent, at(3)).expect("no fault");
    assert_eq!(lost(&other), 0, "nobody owns what is finished");
    let (all, each) = world.vault.figures(at(4)).expect("no fault");
    assert_eq!((all.claim_conflicts_avoided, all.total_claims), (2, 2));
    let red = each.iter().find(|figures| figures.agent_name == "red").expect("it has figures");
    assert_eq!(red.claim_conflicts_avoided, 2);
    assert!((red.claim_success_rate - 1.0).abs() < f64::EPSILON, "a lost claim is not a failure");
}

pub(super) fn what_waits_for_ever_is_explained(fresh: Fresh<'_>) {
    let world = World::new(fresh());
    world.add("a", "---\nafter: b\n---\n");
    world.add("b", "---\nafter: c\n---\n");
    world.add("behind", "---\nafter: [done, a]\n---\n");
    world.add("loner", "---\nafter: loner\n---\n");
    let circle = |task: &str, after: &[&str]| {
        let after: Vec<_> = after.iter().map(|task| name(task)).collect();
        world.vault.circle(&name(task), &after, at(1)).expect("no fault")
    };
    assert_eq!(circle("c", &["done", "behind"]), Some(["c", "behind", "a", "b", "c"].map(name).to_vec()));
    assert_eq!(circle("c", &["c"]), Some(["c", "c"].map(name).to_vec()));
    assert_eq!(circle("c", &["done"]), None);
    assert_eq!(circle("new", &["a", "loner"]), None, "it closes none itself");
    world.add("c", "---\nafter: [a]\n---\n");
    let no = world.add("no", "text");
    world.vault.reject(&no, "me", "no", at(1)).expect("no fault").expect("it is there");
    world.add("never", "---\nafter: no\n---\n");
    world.add("nobody", "---\naction: other\n---\n");
    world.add("fine", "---\naction: pay\n---\n");
    let why = |task: &str| {
        let why = world.vault.why(&name(task), &agent("cloud"), at(2)).expect("no fault");
        why.expect_err("it cannot be claimed").to_string()
    };
    assert_eq!(why("a"), "`a.md` waits for itself: `a.md` -> `b.md` -> `c.md` -> `a.md`");
    let behind = "`behind.md` waits for tasks that wait for each other: `a.md` -> `b.md` -> `c.md` -> `a.md`";
    assert_eq!(why("behind"), behind);
    assert_eq!(why("never"), "`never.md` waits for `no.md`, which was rejected");
    assert!(why("nobody").contains("no agent in the configuration may"), "{}", why("nobody"));
    let mut stuck: Vec<_> =
        world.vault.stuck(at(2)).expect("no fault").0.iter().map(ToString::to_string).collect();
    stuck.sort();
    assert_eq!(stuck.len(), 4, "{stuck:?}");
    assert!(stuck[0].contains("waits for itself") && stuck[0].contains("`c.md`"), "{stuck:?}");
    assert!(stuck[1].contains("`loner.md` waits for itself"), "{stuck:?}");
    assert!(stuck[2].contains("which was rejected"), "{stuck:?}");
    assert!(stuck[3].contains("no agent in the configuration may do `nobody.md`"), "{stuck:?}");
}

pub(super) fn a_draft_needs_no_file(fresh: Fresh<'_>) {
    let world = World::new(fresh());
    let task = world.add("x", "---\naction: pay\n---\nten coins");
    let claimed = world.claim(&task, "cloud", ClaimKind::Leased, 1);
    let id = &claimed.claim.id;
    assert!(world.vault.draft(&task, id, " \n", at(2)).is_err(), "a draft needs some text");
    let draft = "Dear bank,\n\n<!-- tollgate c-0123456789abcdef -->\nten coins, please";
    assert_eq!(world.vault.draft(&task, id, draft, at(2)).expect("no fault"), Ok(()));
    let text = world.text(&task);
    assert!(text.contains("\n## Draft\n\nDear bank,\n\n <!-- tollgate c-0123"), "it opens no block: {text}");
    assert_eq!(world.release(&claimed, &Release::success(), 3), State::PendingApproval);
    let text = world.text(&task);
    assert!(text.contains("ten coins, please\n\n## Completion\n"), "{text}");
    world.vault.approve(&task, "me", None, at(4)).expect("no fault").expect("it is there");
    world.claim(&task, "local", ClaimKind::Leased, 5);
    assert!(world.text(&task).starts_with(&text), "what was approved is what is executed");
}
