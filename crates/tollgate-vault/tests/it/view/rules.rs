//! What a person may do in the folders of one machine.

use std::fs::{self, File};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate_base::lock::Pauses;
use tollgate_base::settings::Durability;
use tollgate_vault::State;
use tollgate_vault::store::{Hint, NoticedChange};
use tollgate_vault::view::{Maintainer, ViewNews, ViewOptions, findings};

use super::machine::{Elsewhere, Machine, now, task};

#[test]
fn the_folders_show_what_the_store_has() {
    let elsewhere = Elsewhere::new();
    let mut machine = Machine::new(&elsewhere);
    for state in State::ALL {
        elsewhere.bring(&state.as_str().to_lowercase(), state);
        machine.follow();
        assert_eq!(machine.all(), elsewhere.engine.all());
    }
    let claimed = elsewhere.claim("needs_action");
    machine.follow();
    assert_eq!(machine.all(), elsewhere.engine.all());
    elsewhere.release(&claimed, State::Done);
    machine.follow();
    assert_eq!(machine.all(), elsewhere.engine.all());
    assert_eq!(machine.all().len(), 6);
    assert_eq!(machine.told(), [""; 0]);
}

/// Every move by hand: where the task is afterwards, and what the person is told.
#[test]
fn a_move_is_a_step_or_is_undone() {
    use State::{Approved, Done, InProgress, NeedsAction, PendingApproval, Rejected};
    let steps = [
        (PendingApproval, Approved),
        (NeedsAction, Rejected),
        (PendingApproval, Rejected),
        (Approved, Rejected),
        (Rejected, NeedsAction),
        (NeedsAction, PendingApproval),
        (Approved, PendingApproval),
    ];
    for from in State::ALL {
        for to in State::ALL {
            let elsewhere = Elsewhere::new();
            elsewhere.bring("x", from);
            let mut machine = Machine::new(&elsewhere);
            let at = |state: State, agent: &str| match state {
                InProgress => format!("In_Progress/{agent}/x.md"),
                state => format!("{state}/x.md"),
            };
            machine.moves(&at(from, "blue"), &at(to, "red"));
            machine.follow();
            let is_step = steps.contains(&(from, to));
            let expected = if is_step { at(to, "red") } else { at(from, "blue") };
            let there: Vec<String> = elsewhere.engine.all().into_keys().collect();
            assert_eq!(there, [expected], "from {from} to {to}");
            assert_eq!(machine.all(), elsewhere.engine.all(), "from {from} to {to}");
            let told = machine.told();
            let is_nothing = is_step || (from == to && from != InProgress);
            assert_eq!(told.len(), usize::from(!is_nothing), "from {from} to {to}: {told:?}");
            assert!(told.iter().all(|told| told.contains("was undone: ")), "{told:?}");
            assert!(machine.kept().is_empty(), "nothing new was written");
            if to == Done || from == Done {
                assert!(!is_step);
            }
        }
    }
}

#[test]
fn a_moved_file_is_an_approval_of_exactly_its_bytes() {
    let elsewhere = Elsewhere::new();
    elsewhere.bring("x", State::PendingApproval);
    let offered = elsewhere.engine.all()["Pending_Approval/x.md"].clone();
    let mut machine = Machine::new(&elsewhere);
    machine.moves("Pending_Approval/x.md", "Approved/x.md");
    machine.puts("Approved/x.md", "pay twice as much\n");
    machine.follow();
    let there = elsewhere.engine.all();
    assert_eq!(there.get("Pending_Approval/x.md").map(String::as_str), Some("pay twice as much\n"));
    assert_eq!(machine.all(), there);
    let is_undone = |machine: &Machine| {
        let told = machine.told();
        assert!(told.len() == 1 && told[0].contains("another text than was offered"), "{told:?}");
        assert_eq!(machine.all(), elsewhere.engine.all());
        assert_eq!(machine.all().into_keys().collect::<Vec<_>>(), ["Pending_Approval/x.md"]);
    };
    is_undone(&machine);
    // Moving it again does not help, nor does editing it before.
    machine.moves("Pending_Approval/x.md", "Approved/x.md");
    machine.follow();
    is_undone(&machine);
    machine.puts("Pending_Approval/x.md", "pay half as much\n");
    machine.follow();
    machine.moves("Pending_Approval/x.md", "Approved/x.md");
    machine.follow();
    is_undone(&machine);

    // The text that was offered.
    machine.puts("Pending_Approval/x.md", &offered);
    machine.follow();
    machine.moves("Pending_Approval/x.md", "Approved/x.md");
    machine.follow();
    let approved = elsewhere.vault.get(&task("x"), now()).unwrap();
    let by = approved.record.approval.map(|approval| (approval.by, approval.sha256));
    assert_eq!(by, Some(("hand".to_owned(), tollgate_base::digest::Digest::of(offered.as_bytes()))));
    assert_eq!(machine.told(), [""; 0]);
    elsewhere.claim("x");
}

#[test]
fn a_task_that_no_owner_offered_is_not_approved_by_moving_it_twice() {
    let elsewhere = Elsewhere::new();
    elsewhere.bring("x", State::NeedsAction);
    let mut machine = Machine::new(&elsewhere);
    machine.moves("Needs_Action/x.md", "Pending_Approval/x.md");
    machine.follow();
    machine.told();
    machine.moves("Pending_Approval/x.md", "Approved/x.md");
    machine.follow();
    let told = machine.told();
    assert!(told.len() == 1 && told[0].contains("never offered"), "{told:?}");
    assert_eq!(machine.all().into_keys().collect::<Vec<_>>(), ["Pending_Approval/x.md"]);
}

#[test]
fn a_move_approves_nothing_by_default() {
    let elsewhere = Elsewhere::under(tollgate_vault::Terms::default());
    elsewhere.bring("x", State::PendingApproval);
    let mut machine = Machine::new(&elsewhere);
    for _ in 0..2 {
        machine.moves("Pending_Approval/x.md", "Approved/x.md");
        machine.follow();
        let told = machine.told();
        assert!(told.len() == 1 && told[0].contains("`tollgate task approve`"), "{told:?}");
        assert_eq!(machine.all().into_keys().collect::<Vec<_>>(), ["Pending_Approval/x.md"]);
        assert_eq!(machine.all(), elsewhere.engine.all());
    }
}

#[test]
fn nothing_is_shown_through_a_linked_folder() {
    let folders = [
        "Needs_Action",
        "In_Progress",
        "In_Progress/blue",
        "Pending_Approval",
        "Approved",
        "Done",
        "Rejected",
    ];
    for folder in folders {
        let elsewhere = Elsewhere::new();
        elsewhere.bring("claimed", State::InProgress);
        let mut machine = Machine::new(&elsewhere);
        let away = tempfile::tempdir().unwrap();
        let (inside, outside) = (machine.path(folder), away.path().join("away"));
        fs::rename(&inside, &outside).unwrap();
        std::os::unix::fs::symlink(&outside, &inside).unwrap();
        let names = || {
            let mut names: Vec<_> =
                fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().path()).collect();
            names.extend(
                fs::read_dir(outside.join("blue")).into_iter().flatten().map(|entry| entry.unwrap().path()),
            );
            names
        };
        let before = names();
        // While a process maintains the folders.
        for state in State::ALL {
            elsewhere.bring(&state.as_str().to_lowercase(), state);
        }
        machine.hears_of("claimed");
        machine.follow_once();
        assert_eq!(names(), before, "{folder}");
        let said = machine.told().join("\n");
        assert!(said.contains("it is a symbolic link"), "{folder}: {said}");
        // And when the next one starts.
        let Machine { folder: keep, view, .. } = machine;
        drop(view);
        let options = ViewOptions {
            folder: keep.path().to_owned(),
            settle: Duration::ZERO,
            durability: Durability::Fast,
            now,
            tell: Arc::new(|_| {}),
        };
        let refused =
            tollgate_vault::view::FolderView::open(elsewhere.vault.clone(), options).map(drop).unwrap_err();
        assert!(refused.to_string().contains("it is a symbolic link"), "{folder}: {refused}");
        assert_eq!(names(), before, "{folder}");
    }
}

#[test]
fn an_edit_after_the_approval_makes_it_void() {
    let elsewhere = Elsewhere::new();
    elsewhere.bring("x", State::Approved);
    let mut machine = Machine::new(&elsewhere);
    machine.puts("Approved/x.md", "pay twice as much\n");
    machine.follow();
    let request = tollgate_vault::ClaimRequest {
        agent: "blue".parse().unwrap(),
        kind: tollgate_vault::ClaimKind::Leased,
        renamed_in: false,
    };
    let denied = elsewhere.vault.claim(&task("x"), &request, now()).unwrap().unwrap_err();
    assert!(denied.to_string().contains("changed after it was approved"), "{denied}");
    machine.follow();
    assert_eq!(machine.all().into_keys().collect::<Vec<_>>(), ["Pending_Approval/x.md"]);
}

#[test]
fn an_edit_is_a_step_unless_an_agent_works_on_the_task() {
    for state in State::ALL {
        let elsewhere = Elsewhere::new();
        elsewhere.bring("x", state);
        let mut machine = Machine::new(&elsewhere);
        let path = machine.all().into_keys().next().unwrap();
        machine.puts(&path, "as the person wants it\n");
        machine.follow();
        assert_eq!(machine.all(), elsewhere.engine.all(), "in {state}");
        let (told, kept) = (machine.told(), machine.kept());
        let is_edited = machine.all()[&path] == "as the person wants it\n";
        assert_eq!(is_edited, state != State::InProgress, "in {state}");
        if !is_edited {
            assert!(told.len() == 1 && told[0].contains("`blue` is working on the task"), "{told:?}");
            assert_eq!(kept, [b"as the person wants it\n"]);
        } else {
            assert!(told.is_empty() && kept.is_empty(), "in {state}: {told:?}");
        }
    }
}

#[test]
fn what_cannot_be_a_text_of_a_task_is_set_aside() {
    for text in [&b"\xff\xfe"[..], b" \n"] {
        let elsewhere = Elsewhere::new();
        elsewhere.bring("x", State::NeedsAction);
        let mut machine = Machine::new(&elsewhere);
        machine.puts("Needs_Action/x.md", text);
        machine.follow();
        assert_eq!(machine.all(), elsewhere.engine.all());
        assert_eq!(machine.all()["Needs_Action/x.md"], "as it was\n");
        assert_eq!(machine.kept(), [text]);
        assert_eq!(machine.told().len(), 1);
    }
}

#[test]
fn a_deleted_file_comes_back_and_people_are_told() {
    let elsewhere = Elsewhere::new();
    elsewhere.bring("x", State::NeedsAction);
    let mut machine = Machine::new(&elsewhere);
    for how in ["deleted", "emptied"] {
        if how == "deleted" {
            fs::remove_file(machine.path("Needs_Action/x.md")).unwrap();
        } else {
            fs::write(machine.path("Needs_Action/x.md"), "").unwrap();
        }
        machine.follow();
        assert_eq!(machine.all(), elsewhere.engine.all(), "{how}");
        let told = machine.told();
        assert!(told.len() == 1 && told[0].contains("the file was restored"), "{how}: {told:?}");
    }
}

#[test]
fn a_new_file_becomes_a_task_in_needs_action_and_nowhere_else() {
    for state in State::ALL {
        let elsewhere = Elsewhere::new();
        let mut machine = Machine::new(&elsewhere);
        let folder = if state == State::InProgress { "In_Progress/blue" } else { state.as_str() };
        machine.puts(&format!("{folder}/x.md"), "new\n");
        machine.puts(&format!("{folder}/.hidden.md"), "no task\n");
        machine.puts(&format!("{folder}/x.txt"), "no task\n");
        machine.follow();
        let is_added = state == State::NeedsAction;
        assert_eq!(elsewhere.engine.all().len(), usize::from(is_added), "in {state}");
        assert_eq!(machine.kept().len(), usize::from(!is_added), "in {state}");
        assert_eq!(machine.told().len(), usize::from(!is_added), "in {state}");
        assert!(
            machine.path(folder).join("x.txt").exists() && machine.path(folder).join(".hidden.md").exists()
        );
    }
}

#[test]
fn a_new_file_with_the_name_of_a_task_is_set_aside() {
    let elsewhere = Elsewhere::new();
    elsewhere.bring("x", State::InProgress);
    let mut machine = Machine::new(&elsewhere);
    machine.puts("Needs_Action/x.md", "new\n");
    machine.follow();
    assert_eq!(machine.all(), elsewhere.engine.all());
    assert_eq!(machine.kept(), [b"new\n"]);
    let told = machine.told();
    assert!(
        told.len() == 1 && told[0].contains("another task of this name in `In_Progress/blue`"),
        "{told:?}"
    );
}

#[test]
fn a_file_that_somebody_is_still_writing_is_not_taken() {
    let elsewhere = Elsewhere::new();
    let mut machine = Machine::new(&elsewhere);
    let mut file = File::create(machine.path("Needs_Action/x.md")).unwrap();
    file.write_all(b"half ").unwrap();
    machine.hears_of("x");
    assert!(machine.view.work().unwrap().is_some(), "it looks again");
    assert!(elsewhere.engine.all().is_empty());
    file.write_all(b"and half\n").unwrap();
    drop(file);
    machine.follow();
    assert_eq!(elsewhere.engine.all()["Needs_Action/x.md"], "half and half\n");

    // With a time to settle, a file that was written in place waits, and one that was moved in does not.
    let mut slow = Machine::settling(&elsewhere, Duration::from_secs(3600));
    fs::write(slow.path("Needs_Action/slow.md"), "written in place\n").unwrap();
    fs::write(slow.path("quick"), "moved in\n").unwrap();
    let file = File::options().write(true).open(slow.path("quick")).unwrap();
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(60)).unwrap();
    drop(file);
    slow.moves("quick", "Needs_Action/quick.md");
    for name in ["slow", "quick"] {
        slow.hears_of(name);
    }
    slow.view.work().unwrap();
    let there: Vec<String> = elsewhere.engine.all().into_keys().collect();
    assert_eq!(there, ["Needs_Action/quick.md", "Needs_Action/x.md"]);
    // A deletion may be the first half of a save.
    fs::remove_file(slow.path("Needs_Action/quick.md")).unwrap();
    slow.hears_of("quick");
    slow.view.work().unwrap();
    assert!(!slow.path("Needs_Action/quick.md").exists() && slow.told().is_empty());
}

#[test]
fn a_file_that_is_too_long_for_a_task_is_reported_and_left_alone() {
    let elsewhere = Elsewhere::new();
    elsewhere.bring("x", State::NeedsAction);
    let mut machine = Machine::new(&elsewhere);
    let long = File::options().write(true).open(machine.path("Needs_Action/x.md")).unwrap();
    long.set_len((16 << 20) + 1).unwrap();
    machine.puts("Needs_Action/y.md", "another\n");
    for name in ["x", "y"] {
        machine.hears_of(name);
    }
    assert!(machine.view.work().unwrap().is_some(), "it looks again");
    assert_eq!(elsewhere.engine.all()["Needs_Action/y.md"], "another\n", "the others go on");
    let told = machine.told();
    assert!(told.len() == 1 && told[0].contains("`Needs_Action/x.md` has more than 16 MiB"), "{told:?}");
    long.set_len(3).unwrap();
    drop(long);
    machine.hears_of("x");
    machine.view.work().unwrap();
    assert_eq!(elsewhere.engine.all()["Needs_Action/x.md"], "as ");
    assert_eq!(machine.told(), [""; 0]);
}

fn eventually<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let mut pauses = Pauses::lasting(Duration::from_secs(30));
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(pauses.pause(), "it does not happen");
    }
}

#[test]
fn one_process_maintains_the_folders_and_when_it_ends_the_next_goes_on() {
    let elsewhere = Elsewhere::new();
    elsewhere.bring("x", State::NeedsAction);
    let first = Machine::new(&elsewhere);
    let folder = Arc::clone(&first.folder);
    let next = || Machine::at(&elsewhere, Arc::clone(&folder), Duration::ZERO);
    assert!(next().is_none(), "the first one has the lock");
    let said = |folder: &std::path::Path| findings(folder).unwrap()[0].what.clone();
    assert_eq!(said(folder.path()), "a process keeps the folders up to date");
    drop(first);
    // A process that another test is just starting may have inherited the lock for a moment.
    eventually(|| (said(folder.path()) == "no process keeps the folders up to date").then_some(()));
    fs::write(folder.path().join("Needs_Action/x.md"), "changed while nobody looked\n").unwrap();
    let second = eventually(next);
    assert_eq!(second.all(), elsewhere.engine.all());
    assert_eq!(second.all()["Needs_Action/x.md"], "changed while nobody looked\n");
}

#[test]
fn a_folder_that_is_removed_and_made_again_is_still_looked_at() {
    let elsewhere = Elsewhere::new();
    elsewhere.bring("x", State::NeedsAction);
    let folder = tempfile::tempdir().unwrap();
    let options = ViewOptions {
        folder: folder.path().to_owned(),
        settle: Duration::ZERO,
        durability: Durability::Fast,
        now,
        tell: Arc::new(|_| ()),
    };
    let _maintains = Maintainer::start(elsewhere.vault.clone(), options).unwrap();
    let there = folder.path().join("Needs_Action");
    eventually(|| there.join("x.md").exists().then_some(()));
    // In one act, or the file would be back before its folder is removed.
    let old = folder.path().join("old");
    fs::rename(&there, &old).unwrap();
    fs::remove_dir_all(old).unwrap();
    eventually(|| there.join("x.md").exists().then_some(()));
    for name in ["y", "z"] {
        fs::write(there.join(name).with_extension("md"), "new\n").unwrap();
        eventually(|| elsewhere.engine.all().contains_key(&format!("Needs_Action/{name}.md")).then_some(()));
    }
}

/// The number of calls that one change by an agent, by a person, and a look at everything cost among this number of tasks.
fn calls_among(tasks: usize) -> [usize; 3] {
    let elsewhere = Elsewhere::new();
    for n in 0..tasks {
        elsewhere.bring(&format!("t{n}"), State::NeedsAction);
    }
    let mut machine = Machine::new(&elsewhere);
    let calls = || elsewhere.engine.calls.swap(0, Ordering::Relaxed);
    elsewhere.claim("t7");
    calls();
    for state in [State::NeedsAction, State::InProgress] {
        machine.view.hear(ViewNews::Store(Hint::Task(task("t7"), state, NoticedChange::MovedIn)));
    }
    machine.finish();
    let of_agent = calls();
    machine.puts("Needs_Action/t8.md", "changed\n");
    machine.view.hear(ViewNews::Folder(Hint::Task(task("t8"), State::NeedsAction, NoticedChange::Written)));
    machine.finish();
    let of_person = calls();
    assert_eq!(machine.all(), elsewhere.engine.all());
    calls();
    machine.follow();
    [of_agent, of_person, calls()]
}

#[test]
fn one_change_costs_the_same_among_10000_tasks_as_among_100() {
    let few = calls_among(100);
    assert_eq!(few, calls_among(10_000));
    assert!(few.iter().all(|calls| *calls < 12), "{few:?}");
}
