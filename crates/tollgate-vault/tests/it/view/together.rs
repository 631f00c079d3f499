//! Two machines and one store: people at the same time, an outage, and random stories.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tollgate_vault::State;
use tollgate_vault::store::Hint;
use tollgate_vault::view::ViewNews;

use super::chance::Chance;
use super::machine::{Elsewhere, Machine, task};

#[test]
fn of_two_people_who_edit_one_task_one_wins_and_the_copy_of_the_other_is_kept() {
    let elsewhere = Elsewhere::new();
    elsewhere.bring("x", State::NeedsAction);
    let (mut one, mut other) = (Machine::new(&elsewhere), Machine::new(&elsewhere));
    one.puts("Needs_Action/x.md", "as one wants it\n");
    other.puts("Needs_Action/x.md", "as the other wants it\n");
    for machine in [&mut one, &mut other] {
        machine.follow();
    }
    for machine in [&one, &other] {
        assert_eq!(machine.all(), elsewhere.engine.all());
    }
    assert_eq!(elsewhere.engine.all()["Needs_Action/x.md"], "as one wants it\n");
    assert!(one.kept().is_empty() && one.told().is_empty());
    assert_eq!(other.kept(), [b"as the other wants it\n"]);
    let told = other.told();
    assert!(told.len() == 1 && told[0].contains("somebody else changed the task first"), "{told:?}");
}

#[test]
fn a_save_over_a_text_that_the_person_may_not_have_seen_keeps_that_text() {
    let elsewhere = Elsewhere::new();
    let (mut one, mut other) = (Machine::new(&elsewhere), Machine::new(&elsewhere));
    for (name, leaves) in [("x", false), ("y", true)] {
        elsewhere.bring(name, State::NeedsAction);
        let (there, away) = (format!("Needs_Action/{name}.md"), format!("Rejected/{name}.md"));
        one.follow();
        other.follow();
        // A person on `one` has the file open from now on.
        if leaves {
            other.moves(&there, &away);
            other.follow();
            one.follow();
            other.moves(&away, &there);
            other.follow();
        }
        other.puts(&there, "as the other wants it\n");
        other.follow();
        one.follow();
        assert_eq!(one.told(), [""; 0]);
        for text in ["as one wants it\n", "as one wants it now\n"] {
            one.puts(&there, text);
            one.follow();
            assert_eq!(elsewhere.engine.all()[&there], text);
        }
        let told = one.told();
        assert!(told.len() == 1 && told[0].contains("that somebody else had just made"), "{told:?}");
        let kept = one.kept();
        assert!(kept.iter().all(|kept| kept == b"as the other wants it\n"), "{kept:?}");
        assert_eq!(kept.len(), 1 + usize::from(leaves));
    }
}

#[test]
fn of_two_people_who_move_one_task_one_wins_and_both_machines_agree() {
    let elsewhere = Elsewhere::new();
    elsewhere.bring("x", State::PendingApproval);
    let (mut one, mut other) = (Machine::new(&elsewhere), Machine::new(&elsewhere));
    one.moves("Pending_Approval/x.md", "Approved/x.md");
    other.moves("Pending_Approval/x.md", "Rejected/x.md");
    for machine in [&mut one, &mut other] {
        machine.follow();
    }
    for machine in [&one, &other] {
        assert_eq!(machine.all(), elsewhere.engine.all());
    }
    assert_eq!(elsewhere.engine.all().into_keys().collect::<Vec<_>>(), ["Approved/x.md"]);
    let told = other.told();
    assert!(told.len() == 1 && told[0].contains("was undone"), "{told:?}");
    assert!(other.kept().is_empty(), "the person wrote nothing");
}

#[test]
fn a_person_approves_only_what_they_have_seen() {
    let elsewhere = Elsewhere::new();
    elsewhere.bring("x", State::PendingApproval);
    let (mut one, mut other) = (Machine::new(&elsewhere), Machine::new(&elsewhere));
    other.puts("Pending_Approval/x.md", "pay twice as much\n");
    other.follow();
    // The other text is not on this machine yet.
    one.moves("Pending_Approval/x.md", "Approved/x.md");
    one.follow();
    assert_eq!(elsewhere.engine.all()["Pending_Approval/x.md"], "pay twice as much\n");
    assert_eq!(one.all(), elsewhere.engine.all());
    let told = one.told();
    assert!(told.len() == 1 && told[0].contains("somebody else changed the task first"), "{told:?}");
}

#[test]
fn changes_that_the_store_refuses_wait_and_hold_nothing_up() {
    let elsewhere = Elsewhere::new();
    for name in ["a", "x"] {
        elsewhere.bring(name, State::NeedsAction);
    }
    let mut one = Machine::new(&elsewhere);
    elsewhere.engine.refuses.store(true, Ordering::Relaxed);
    one.moves("Needs_Action/a.md", "Rejected/a.md");
    one.puts("Needs_Action/b.md", "new\n");
    fs::remove_file(one.path("Needs_Action/x.md")).unwrap();
    one.hears_of("a");
    one.hears_of("b");
    one.hears_of("x");
    one.view.work().unwrap();
    assert!(one.path("Rejected/a.md").exists() && one.path("Needs_Action/b.md").exists());
    assert!(one.path("Needs_Action/x.md").exists(), "what comes after them is shown");
    assert_eq!(one.told().iter().filter(|told| told.contains("no right")).count(), 2);
    elsewhere.engine.refuses.store(false, Ordering::Relaxed);
    one.follow();
    assert!(one.kept().is_empty(), "nothing was set aside");
}

#[test]
fn in_an_outage_the_files_stay_and_what_people_did_is_compared_afterwards() {
    let elsewhere = Elsewhere::new();
    for name in ["x", "y", "z"] {
        elsewhere.bring(name, State::NeedsAction);
    }
    let (mut one, mut other) = (Machine::new(&elsewhere), Machine::new(&elsewhere));
    let before = one.all();
    elsewhere.engine.is_down.store(true, Ordering::Relaxed);
    one.view.hear(ViewNews::Store(Hint::Everything));
    one.view.hear(ViewNews::Folder(Hint::Everything));
    assert!(one.view.work().is_err());
    assert_eq!(one.all(), before);
    one.puts("Needs_Action/x.md", "in the outage\n");
    one.puts("Needs_Action/new.md", "new in the outage\n");
    one.hears_of("x");
    one.hears_of("new");
    assert!(one.view.work().is_err());
    assert_eq!(one.all()["Needs_Action/x.md"], "in the outage\n", "it waits");
    other.puts("Needs_Action/x.md", "somebody else was faster\n");
    elsewhere.engine.is_down.store(false, Ordering::Relaxed);
    other.follow();
    one.follow();
    other.follow();
    assert_eq!(one.all(), elsewhere.engine.all());
    assert_eq!(other.all(), elsewhere.engine.all());
    assert_eq!(one.kept(), [b"in the outage\n"]);
    assert_eq!(elsewhere.engine.all()["Needs_Action/new.md"], "new in the outage\n");
}

#[test]
fn one_round_marks_an_outage_and_its_end_and_names_the_tasks_that_are_left() {
    let elsewhere = Elsewhere::new();
    elsewhere.bring("x", State::NeedsAction);
    let mut machine = Machine::new(&elsewhere);
    let is_marked = |machine: &Machine| machine.path("STALE.md").exists();
    let one_round = |machine: &mut Machine| {
        machine.view.hear(ViewNews::Store(Hint::Everything));
        machine.view.hear(ViewNews::Folder(Hint::Everything));
        machine.view.work_until(Instant::now())
    };
    elsewhere.engine.is_down.store(true, Ordering::Relaxed);
    assert!(one_round(&mut machine).is_err() && is_marked(&machine));
    elsewhere.engine.is_down.store(false, Ordering::Relaxed);
    assert_eq!(one_round(&mut machine).unwrap(), []);
    assert!(!is_marked(&machine));
    let told = machine.told();
    assert!(told.len() == 2 && told[1].contains("up to date again"), "{told:?}");
    let written = File::create(machine.path("Needs_Action/new.md")).unwrap();
    (&written).write_all(b"half").unwrap();
    assert_eq!(one_round(&mut machine).unwrap(), [task("new")]);
    drop(written);
    machine.finish();
    assert_eq!(one_round(&mut machine).unwrap(), []);
}

/// People on two machines and agents elsewhere do random things. In the end both machines show what the store has, and every
/// text that a person wrote and did not overwrite is in the store's history or was set aside.
#[test]
fn random_stories_lose_nothing_and_end_with_equal_folders() {
    let mut steps = 0;
    for seed in 1..=150 {
        let mut chance = Chance::new(seed);
        let elsewhere = Elsewhere::new();
        let mut machines = [Machine::new(&elsewhere), Machine::new(&elsewhere)];
        // Texts of people that must not be lost.
        let mut written: BTreeSet<String> = BTreeSet::new();
        let (mut number, mut added) = (0, 0);
        for _ in 0..60 {
            let machine = chance.roll(2);
            let files: Vec<(String, String)> = machines[machine].all().into_iter().collect();
            let file = (!files.is_empty()).then(|| files[chance.roll(files.len())].clone());
            number += 1;
            let text = format!("text {number}\n");
            match (chance.roll(9), file) {
                (0 | 1, _) => {
                    added += 1;
                    machines[machine].puts(&format!("Needs_Action/t{added}.md"), &text);
                    written.insert(text);
                }
                (2 | 3, Some((path, old))) => {
                    // The person overwrites their own text, or one that the view has seen.
                    written.remove(&old);
                    machines[machine].puts(&path, &text);
                    written.insert(text);
                }
                (4 | 5, Some((path, old))) => {
                    let states = [
                        "Needs_Action",
                        "In_Progress/red",
                        "Pending_Approval",
                        "Approved",
                        "Done",
                        "Rejected",
                    ];
                    let to = format!("{}/{}", states[chance.roll(6)], path.rsplit('/').next().unwrap());
                    if !machines[machine].path(&to).exists() {
                        machines[machine].moves(&path, &to);
                    } else if to != path {
                        written.remove(&old);
                        fs::remove_file(machines[machine].path(&path)).unwrap();
                    }
                }
                (6, Some((path, _))) => {
                    let name = path.rsplit('/').next().unwrap();
                    if let Ok(Some(found)) = tollgate_vault::Store::get(
                        &*elsewhere.engine,
                        &task(name),
                        Some(State::NeedsAction),
                        super::machine::now(),
                    ) && found.twin.is_none()
                        && !found.has_open_block
                    {
                        let claimed = elsewhere.claim(name);
                        let to = [State::Done, State::PendingApproval, State::Rejected][chance.roll(3)];
                        if chance.roll(2) == 0 {
                            elsewhere.release(&claimed, to);
                        }
                    }
                }
                (7, _) => machines[machine].follow(),
                (8, Some((path, _))) => {
                    let name = path.rsplit('/').next().unwrap().to_owned();
                    machines[machine].hears_of(&name);
                    machines[machine].finish();
                }
                _ => {}
            }
        }
        for _ in 0..2 {
            machines.iter_mut().for_each(Machine::follow);
        }
        let there = elsewhere.engine.all();
        for machine in &machines {
            assert_eq!(machine.all(), there, "seed {seed}");
        }
        let texts = elsewhere.engine.texts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let kept: BTreeSet<Vec<u8>> = machines.iter().flat_map(Machine::kept).collect();
        for text in &written {
            let is_there = texts.contains(text.as_bytes()) || kept.contains(text.as_bytes());
            assert!(is_there, "seed {seed}: {text} is lost");
        }
        let names: Vec<&str> = there.keys().filter_map(|path| path.rsplit('/').next()).collect();
        assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len(), "seed {seed}: {there:#?}");
        steps += texts.len();
    }
    assert!(steps > 2000, "{steps} texts reached the store");
}
