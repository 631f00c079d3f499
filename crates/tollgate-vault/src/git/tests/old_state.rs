//! State that an earlier version left: work that it did without the remote, and a push that was interrupted.

use serde_json::{Value, json};

use super::lost_answers::{goes_away_after_a_push, told};
use super::*;
use crate::decisions;

#[test]
fn work_that_an_earlier_version_did_offline_is_published_or_set_aside() {
    let world = World::new();
    let (machine, other) = (world.machine("a"), world.machine("b"));
    for task in ["x", "y"] {
        machine.add(task, "text\n");
    }
    let base = git(&world.remote(), &["rev-parse", "main"]);
    // As the earlier version left it: two tasks done and two new, without the remote.
    let at = |place: &str| machine.tree().join(place);
    for task in ["x", "y"] {
        fs::remove_file(at(&format!("Needs_Action/{task}.md"))).unwrap();
        fs::write(at(&format!("Done/{task}.md")), "text\ndone offline\n").unwrap();
    }
    for task in ["new", "twice"] {
        fs::write(at(&format!("Needs_Action/{task}.md")), "new\n").unwrap();
    }
    let moved = |task: &str| json!({"from": [task, {"Free": "Needs_Action"}], "base": base, "card": null});
    let new = json!({"from": null, "base": base, "card": null});
    let owed = json!({"new.md": new, "twice.md": new, "x.md": moved("x.md"), "y.md": moved("y.md")});
    let list = machine.store.private.join("owed.json");
    fs::write(&list, owed.to_string()).unwrap();
    // In the meantime somebody else did one of them, and added another task of the same name.
    other.sync();
    let claimed = other.claim("y", "red");
    other.release(&claimed);
    other.add("twice", "by another\n");

    let synced = machine.sync();
    assert_eq!(world.on_branch(), ["Done/x.md", "Done/y.md", "Needs_Action/new.md", "Needs_Action/twice.md"]);
    assert_eq!(world.show("vault/Done/x.md"), "text\ndone offline");
    assert!(world.show("vault/Done/y.md").contains("red"), "the remote is right");
    assert_eq!(world.show("vault/Needs_Action/twice.md"), "by another");
    assert_eq!((&synced.aside, synced.aside.len()), (&machine.kept_aside(), 2), "nothing is lost");
    for place in world.on_branch() {
        let here = fs::read_to_string(at(&place)).unwrap();
        assert_eq!(here.trim_end(), world.show(&format!("vault/{place}")), "the tree shows the branch");
    }
    assert!(!list.exists());
    let tip = synced.tip;
    let again = machine.sync();
    assert_eq!((again.tip, again.aside.len()), (tip, 0), "once");
}

/// A push of an earlier version that was interrupted: it wrote edits by a person and events in another form.
#[test]
fn an_interrupted_push_of_an_earlier_version_is_settled() {
    let world = World::new();
    let machine = world.machine("a");
    machine.add("x", "text\n");
    let claimed = machine.claim("x", "blue");
    let to = Some(State::PendingApproval);
    let how = Release { to, ..Release::success() };
    machine.vault.release(&claimed.task, &claimed.claim.id, &how, now()).unwrap().unwrap();
    let task = machine.store.get(&name("x"), None, now()).unwrap().unwrap();
    let seen = machine.vault.digest(&task).unwrap().unwrap();
    let step = decisions::amend(&task, "me", seen, "new text\n", now()).unwrap();
    let away = goes_away_after_a_push(&world);
    assert!(matches!(machine.store.apply(&step).unwrap(), StepOutcome::Unknown(_)));
    fs::rename(away, world.remote()).unwrap();
    let pending = machine.store.private.join("pending.json");
    let mut plans: Value = serde_json::from_slice(&fs::read(&pending).unwrap()).unwrap();
    let step_of_old = &mut plans[0]["step"];
    step_of_old["edit"] = json!({"Amend": [0, "new text\n"]});
    let event = step_of_old["events"][0].as_object_mut().unwrap();
    event.remove("turn");
    let kind = event.remove("action_type").unwrap();
    event.insert("kind".to_owned(), kind);
    event.insert("time".to_owned(), json!(i64::try_from(step.at.as_nanosecond()).unwrap()));
    fs::write(&pending, plans.to_string()).unwrap();
    let after = Machine::open(machine.path.clone(), |options| {
        options.folder.journal = Arc::clone(&machine.journal) as _;
    });
    assert_eq!(after.settle(), 1);
    let task = after.store.get(&name("x"), None, now()).unwrap().unwrap();
    assert_eq!((&task.slot, task.record.approval.is_some()), (&Slot::APPROVED, true));
    assert_eq!(after.store.read(&task, 99).unwrap().unwrap(), b"new text\n");
    assert_eq!(told(&machine, &step.id), 1);
    assert_eq!(machine.kinds().last().unwrap(), "APPROVAL");
}
