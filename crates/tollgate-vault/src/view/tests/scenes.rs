//! What people, agents and the view do in the tests, scene by scene.

use std::fs;

use jiff::Timestamp;

use super::{Machine, NOW};
use crate::owner::{ClaimKind, ClaimRequest};
use crate::rules::Release;
use crate::state::State;
use crate::vault::Vault;
use tollgate_base::task::TaskName;

pub(super) fn task(name: &str) -> TaskName {
    name.parse().unwrap()
}

fn claim(vault: &Vault) {
    let request = ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: true };
    vault.claim(&task("x"), &request, Timestamp::now()).unwrap().unwrap();
}

/// An agent does this task.
pub(super) fn finish(vault: &Vault, task: &TaskName) {
    let request = ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: true };
    let claimed = vault.claim(task, &request, Timestamp::now()).unwrap().unwrap();
    vault.release(task, &claimed.claim.id, &Release::success(), Timestamp::now()).unwrap().unwrap();
}

/// Brings the task to a state, in the store.
pub(super) fn bring(vault: &Vault, state: State) {
    let now = Timestamp::now();
    vault.add(&task("x"), b"as it was\n", now).unwrap();
    if state == State::NeedsAction {
        return;
    }
    claim(vault);
    let found = vault.get(&task("x"), now).unwrap();
    let id = found.record.claim.unwrap().id;
    let to = match state {
        State::InProgress => return,
        State::Approved => State::PendingApproval,
        other => other,
    };
    let how = Release { to: Some(to), ..Release::success() };
    vault.release(&task("x"), &id, &how, now).unwrap().unwrap();
    if state == State::Approved {
        vault.approve(&task("x"), "ada", None, now).unwrap().unwrap();
    }
}

/// What a person does in the folders, and what happens in the store before the view notices it.
pub(super) struct Scene {
    pub(super) name: &'static str,
    pub(super) state: State,
    pub(super) person: fn(&Machine),
    pub(super) elsewhere: fn(&Vault),
    /// Texts of the person that must be in the store or kept.
    pub(super) texts: &'static [&'static [u8]],
    pub(super) tasks: usize,
}

const NOTHING: fn(&Vault) = |_| ();
const NOBODY: fn(&Machine) = |_| ();

fn edit(machine: &Machine, path: &str) {
    let path = machine.at(path);
    let _ = fs::remove_file(&path);
    fs::write(path, EDITED).unwrap();
}

fn shift(machine: &Machine, from: &str, to: &str) {
    fs::create_dir_all(machine.at(to).parent().unwrap()).unwrap();
    fs::rename(machine.at(from), machine.at(to)).unwrap();
}

const EDITED: &[u8] = b"as the person wants it\n";

fn change(vault: &Vault) {
    let found = vault.get(&task("x"), NOW).unwrap();
    let seen = vault.digest(&found).unwrap().unwrap();
    let step =
        crate::decisions::rewrite(&found, seen, "as somebody else wants it\n", Timestamp::now()).unwrap();
    vault.decide(&found, step).unwrap().unwrap();
}

pub(super) fn scenes() -> Vec<Scene> {
    use State::{Approved, Done, InProgress, NeedsAction, PendingApproval, Rejected};
    let scene =
        |name, state, person, elsewhere, texts, tasks| Scene { name, state, person, elsewhere, texts, tasks };
    vec![
        scene("nothing", NeedsAction, NOBODY, NOTHING, &[], 1),
        scene("a claim", NeedsAction, NOBODY, claim, &[], 1),
        scene("a change elsewhere", NeedsAction, NOBODY, change, &[], 1),
        scene(
            "a new file",
            NeedsAction,
            |machine| fs::write(machine.at("Needs_Action/new.md"), EDITED).unwrap(),
            NOTHING,
            &[EDITED],
            2,
        ),
        scene(
            "a new file whose name is taken elsewhere",
            NeedsAction,
            |machine| fs::write(machine.at("Needs_Action/new.md"), EDITED).unwrap(),
            |vault| _ = vault.add(&task("new"), b"another\n", NOW).unwrap(),
            &[EDITED],
            2,
        ),
        scene(
            "a new file in the wrong folder",
            NeedsAction,
            |machine| fs::write(machine.at("Done/new.md"), EDITED).unwrap(),
            NOTHING,
            &[EDITED],
            1,
        ),
        scene("an edit", NeedsAction, |machine| edit(machine, "Needs_Action/x.md"), NOTHING, &[EDITED], 1),
        scene("two edits", NeedsAction, |machine| edit(machine, "Needs_Action/x.md"), change, &[EDITED], 1),
        scene(
            "an edit and a claim",
            NeedsAction,
            |machine| edit(machine, "Needs_Action/x.md"),
            claim,
            &[EDITED],
            1,
        ),
        scene(
            "an edit of a claimed task",
            InProgress,
            |machine| edit(machine, "In_Progress/blue/x.md"),
            NOTHING,
            &[EDITED],
            1,
        ),
        scene("an edit of a done task", Done, |machine| edit(machine, "Done/x.md"), NOTHING, &[EDITED], 1),
        scene(
            "an approval",
            PendingApproval,
            |machine| shift(machine, "Pending_Approval/x.md", "Approved/x.md"),
            NOTHING,
            &[],
            1,
        ),
        scene(
            "an approval of a text that has changed",
            PendingApproval,
            |machine| shift(machine, "Pending_Approval/x.md", "Approved/x.md"),
            change,
            &[],
            1,
        ),
        scene(
            "an approval of another text",
            PendingApproval,
            |machine| {
                shift(machine, "Pending_Approval/x.md", "Approved/x.md");
                edit(machine, "Approved/x.md");
            },
            NOTHING,
            &[EDITED],
            1,
        ),
        scene(
            "a rejection of another text",
            Approved,
            |machine| {
                shift(machine, "Approved/x.md", "Rejected/x.md");
                edit(machine, "Rejected/x.md");
            },
            NOTHING,
            &[EDITED],
            1,
        ),
        scene(
            "a rejection",
            NeedsAction,
            |machine| shift(machine, "Needs_Action/x.md", "Rejected/x.md"),
            NOTHING,
            &[],
            1,
        ),
        scene(
            "a retry",
            Rejected,
            |machine| shift(machine, "Rejected/x.md", "Needs_Action/x.md"),
            NOTHING,
            &[],
            1,
        ),
        scene(
            "two retries",
            Rejected,
            |machine| shift(machine, "Rejected/x.md", "Needs_Action/x.md"),
            |vault| _ = vault.retry(&task("x"), "ada", None, NOW).unwrap().unwrap(),
            &[],
            1,
        ),
        scene(
            "a move that is no step",
            NeedsAction,
            |machine| shift(machine, "Needs_Action/x.md", "Done/x.md"),
            NOTHING,
            &[],
            1,
        ),
        scene(
            "a move to an agent",
            NeedsAction,
            |machine| shift(machine, "Needs_Action/x.md", "In_Progress/red/x.md"),
            claim,
            &[],
            1,
        ),
        scene(
            "a deletion",
            NeedsAction,
            |machine| fs::remove_file(machine.at("Needs_Action/x.md")).unwrap(),
            NOTHING,
            &[],
            1,
        ),
        scene(
            "a file that was emptied",
            NeedsAction,
            |machine| fs::write(machine.at("Needs_Action/x.md"), "").unwrap(),
            NOTHING,
            &[],
            1,
        ),
    ]
}
