//! What people do to tasks beside approving: they edit one that nobody has claimed, and return one that an agent has.

use super::harness::Fresh;
use super::world::{World, at, name, slot_of};
use crate::denial::Denial;
use crate::owner::ClaimKind;
use crate::rules::Release;
use crate::state::{Slot, State};
use tollgate_base::digest::Digest;
use tollgate_base::name::ClaimId;
use tollgate_base::task::TaskName;

pub(super) fn a_person_edits_a_task_that_nobody_has_claimed(fresh: Fresh<'_>) {
    let world = World::new(fresh());
    let task = world.add("x", "# Do it\n");
    let other = world.add("y", "# Later\n");
    let edit = |task: &TaskName, seen: &str, text: &str, now| {
        world.vault.edit(task, "ada", Digest::of(seen.as_bytes()), text, at(now)).expect("no fault")
    };
    assert_eq!(edit(&name("nowhere"), "", "x", 1).map(drop), Err(Denial::Missing(name("nowhere"))));
    assert_eq!(edit(&task, "another text", "x", 1).map(drop), Err(Denial::Changed(task.clone())));
    let urgent = "---\npriority: high\naction: triage\n---\n# Do it soon\n";
    let landed = edit(&task, "# Do it\n", urgent, 2).expect("nobody has claimed it");
    assert_eq!((&landed.task, landed.slot), (&task, Slot::NEEDS_ACTION));
    assert_eq!(world.text(&task), urgent);
    // What it asks for now decides.
    let brief = world.get(&task).brief.expect("readable");
    assert_eq!(brief.action.as_deref(), Some("triage"));
    assert!(brief.rank(at(0)) < world.get(&other).brief.expect("readable").rank(at(0)), "it comes first");
    // After a failed attempt, too.
    let claimed = world.claim(&task, "cloud", ClaimKind::Leased, 3);
    assert_eq!(edit(&task, urgent, "x", 4).map(drop), Err(Denial::Elsewhere(task.clone(), slot_of("cloud"))));
    assert_eq!(world.release(&claimed, &Release::failure("no"), 5), State::NeedsAction);
    let text = world.text(&task);
    let shorter = text.replace("# Do it soon", "# Do it");
    edit(&task, &text, &shorter, 6).expect("nobody has claimed it");
    assert_eq!(world.text(&task), shorter);
    let claimed = world.claim(&task, "cloud", ClaimKind::Leased, 7);
    assert_eq!(world.release(&claimed, &Release::success(), 8), State::Done);
    let kinds = world.kinds(&task);
    assert_eq!(kinds, ["APPROVAL", "CLAIM", "RELEASE", "APPROVAL", "CLAIM", "RELEASE"], "{kinds:?}");
}

pub(super) fn a_person_returns_a_claim(fresh: Fresh<'_>) {
    let world = World::new(fresh());
    let give_back = |task: &TaskName, seen: Option<&ClaimId>, now| {
        world.vault.give_back(task, "ada", seen, at(now)).expect("no fault")
    };
    assert_eq!(give_back(&name("nowhere"), None, 0).map(drop), Err(Denial::Missing(name("nowhere"))));
    for (text, kind) in [("leased", ClaimKind::Leased), ("held", ClaimKind::Held)] {
        let task = world.add(text, "# Do it\n");
        let elsewhere = Err(Denial::Elsewhere(task.clone(), Slot::NEEDS_ACTION));
        assert_eq!(give_back(&task, None, 0).map(drop), elsewhere);
        let claimed = world.claim(&task, "blue", kind, 1);
        let id = claimed.claim.id.clone();
        assert_eq!(give_back(&task, Some(&id), 2).expect("it is claimed").slot, Slot::NEEDS_ACTION);
        world.fenced_off(&task, &claimed.claim.id, 3);
        assert!(world.text(&task).contains("returned by ada"), "{}", world.text(&task));
        assert_eq!(world.get(&task).record.attempts, 0, "the attempt does not count");
        let again = world.claim(&task, "red", kind, 4);
        assert!(again.claim.epoch > claimed.claim.epoch);
        drop(claimed);
        // The person who wants to end the first claim does not end this one.
        for seen in [Some(&id), None] {
            assert_eq!(give_back(&task, seen, 5).map(drop), Err(Denial::Changed(task.clone())));
        }
        assert!(world.vault.verify(&task, &again.claim.id, at(5)).expect("no fault"), "{text}");
        assert_eq!(world.release(&again, &Release::success(), 6), State::Done);
        assert_eq!(world.kinds(&task), ["CLAIM", "RELEASE", "CLAIM", "RELEASE"]);
    }
    // What may have been executed goes to a person.
    let task = world.add("pay", "---\naction: pay\n---\n# Rent\n");
    let claimed = world.claim(&task, "local", ClaimKind::Leased, 7);
    assert_eq!(give_back(&task, Some(&claimed.claim.id), 8).expect("it is claimed").slot, Slot::PENDING);
}
