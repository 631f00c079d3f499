//! People in the same repository: nothing of theirs is lost, touched or reverted, and neither is any work of agents.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::claim::Mode;
use crate::roles::{Role, Roles};

/// What a person has in their clone: staged, edited and untracked files.
fn desk(path: &Path) -> Vec<String> {
    let diff = |arguments: &[&str]| git(path, arguments);
    let mut desk = vec![
        diff(&["diff", "--cached"]),
        diff(&["diff"]),
        diff(&["ls-files", "--others", "--exclude-standard"]),
    ];
    desk.extend(["notes.md", "half.md", "new.md"].map(|name| fs::read_to_string(path.join(name)).unwrap()));
    desk
}

/// A person who is in the middle of something.
fn busy_person(path: &Path) {
    fs::write(path.join("half.md"), "staged\n").unwrap();
    git(path, &["add", "half.md"]);
    fs::write(path.join("half.md"), "staged\nand then edi").unwrap();
    fs::write(path.join("notes.md"), "# Notes\nhalf a sente").unwrap();
    fs::write(path.join("new.md"), "untracked\n").unwrap();
}

#[test]
fn a_persons_index_and_edits_stay_as_they_are_and_the_working_tree_follows() {
    let world = World::new();
    let machine = world.machine("a");
    for task in ["x", "y"] {
        machine.add(task, "text\n");
    }
    busy_person(&machine.path);
    let before = desk(&machine.path);
    assert_eq!(machine.followed(), "forward");
    assert!(machine.path.join("vault/Needs_Action/x.md").exists(), "new tasks are shown");
    let claimed = machine.claim("x", "blue");
    assert_eq!(desk(&machine.path), before);
    machine.sync();
    assert_eq!(desk(&machine.path), before);
    assert!(machine.path.join("vault/In_Progress/blue/x.md").exists());
    assert!(!machine.path.join("vault/Needs_Action/x.md").exists());
    // If they commit right after the claim, the commit has what they staged and nothing else, and reverts nothing.
    git(&machine.path, &["commit", "--quiet", "-m", "mine"]);
    let changed = git(&machine.path, &["show", "--name-only", "--format=", "HEAD"]);
    assert_eq!(changed, "half.md");
    git(&machine.path, &["push", "--quiet", "origin", "main"]);
    assert_eq!(machine.release(&claimed), State::Done);
    machine.sync();
    assert_eq!(fs::read_to_string(machine.path.join("notes.md")).unwrap(), "# Notes\nhalf a sente");
    assert_eq!(world.on_branch(), ["Done/x.md", "Needs_Action/y.md"]);
    assert_eq!(world.show("half.md"), "staged");
    assert!(world.is_linear());
    assert_eq!(git(&machine.path, &["stash", "list"]), "", "nothing was stashed");
}

#[test]
fn a_file_in_the_way_stays_and_claims_continue() {
    let world = World::new();
    let (machine, other) = (world.machine("a"), world.machine("b"));
    machine.add("x", "text\n");
    machine.sync();
    // The person edits the task itself and has not committed the edit.
    fs::write(machine.path.join("vault/Needs_Action/x.md"), "text\nand a thought of mi").unwrap();
    other.sync();
    let claimed = other.claim("x", "red");
    let round = machine.sync();
    let followed = round.followed.unwrap();
    assert_eq!(followed.word, "in_the_way");
    let why_not = followed.why_not.unwrap();
    assert!(why_not.contains("overwritten by merge: vault/Needs_Action/x.md; commit it"), "{why_not}");
    let kept = fs::read_to_string(machine.path.join("vault/Needs_Action/x.md")).unwrap();
    assert_eq!(kept, "text\nand a thought of mi");
    other.release(&claimed);
    machine.add("y", "text\n");
    let claimed = machine.claim("y", "blue");
    machine.release(&claimed);
    // Now they have a commit that is not on the remote.
    git(&machine.path, &["commit", "--quiet", "-am", "my thought"]);
    assert_eq!(machine.followed(), "diverged");
    let (_, told) = try_git(&machine.path, &["pull", "--quiet", "--rebase", "origin", "main"]);
    assert!(told.contains("CONFLICT") || told.is_empty(), "git asks the person: {told}");
    try_git(&machine.path, &["rebase", "--abort"]);
    git(&machine.path, &["checkout", "--quiet", "-b", "elsewhere"]);
    assert_eq!(machine.followed(), "other_branch");
}

#[test]
fn a_task_that_is_not_committed_is_named_and_one_that_was_claimed_elsewhere_is_not() {
    let world = World::new();
    let (machine, other) = (world.machine("a"), world.machine("b"));
    let waiting = |name: &str| machine.path.join("vault/Needs_Action").join(name);
    let unfit = || -> Vec<String> {
        let scan = machine.store.scan(State::NeedsAction, now()).unwrap();
        scan.unfit.into_iter().map(|unfit| format!("{}: {}", unfit.name, unfit.why)).collect()
    };
    machine.add("x", "text\n");
    machine.sync();
    fs::write(waiting("y.md"), "text\n").unwrap();
    assert_eq!(unfit(), ["y.md: no agent can claim it before it is committed and pushed"]);
    git(&machine.path, &["add", "vault"]);
    assert_eq!(unfit().len(), 1, "a staged file is not committed");
    git(&machine.path, &["commit", "--quiet", "-m", "y"]);
    assert_eq!(machine.followed(), "ahead", "which says what to do");
    assert_eq!(unfit(), [""; 0]);
    git(&machine.path, &["push", "--quiet", "origin", "main"]);
    machine.sync();
    // The working tree still shows a task that another machine has claimed.
    fs::write(waiting("x.md"), "text\nand a thought of mi").unwrap();
    other.sync();
    other.claim("x", "red");
    assert_eq!(machine.followed(), "in_the_way");
    assert!(waiting("x.md").exists());
    assert_eq!(unfit(), [""; 0]);
    // What another branch has says nothing about the tasks.
    git(&machine.path, &["checkout", "--quiet", "-b", "elsewhere"]);
    fs::write(waiting("z.md"), "text\n").unwrap();
    assert_eq!(unfit(), [""; 0]);
}

#[test]
fn a_person_in_the_middle_of_a_merge_is_not_disturbed() {
    let world = World::new();
    let machine = world.machine("a");
    git(&machine.path, &["checkout", "--quiet", "-b", "mine"]);
    git(&machine.path, &["commit", "--quiet", "--allow-empty", "-m", "mine"]);
    git(&machine.path, &["checkout", "--quiet", "main"]);
    git(&machine.path, &["merge", "--quiet", "--no-ff", "--no-commit", "mine"]);
    let head = || git(&machine.path, &["rev-parse", "HEAD"]);
    let before = head();
    machine.add("x", "text\n");
    let words = "You have not concluded your merge (MERGE_HEAD exists).";
    let why = machine.sync().followed.unwrap().why_not.unwrap();
    assert!(why.contains(words), "{why}");
    assert_eq!(head(), before);
    git(&machine.path, &["merge", "--abort"]);
    assert_eq!(machine.followed(), "forward");
}

/// A second working tree of one repository has its own index and its own branch.
#[test]
fn a_linked_working_tree_follows() {
    let world = World::new();
    let first = world.person("a");
    git(&first, &["checkout", "--quiet", "-b", "elsewhere"]);
    git(&first, &["worktree", "add", "--quiet", "../b", "main"]);
    let machine = Machine::open(world.folder.path().join("b"), |_| ());
    machine.add("x", "text\n");
    assert_eq!(machine.followed(), "forward");
    assert!(machine.path.join("vault/Needs_Action/x.md").exists());
    for path in [&machine.path, &first] {
        assert_eq!(git(path, &["status", "--short", "--untracked-files=no"]), "");
    }
    let claimed = machine.claim("x", "blue");
    assert_eq!(machine.release(&claimed), State::Done);
}

#[test]
fn people_and_workers_push_at_the_same_time_and_nothing_is_lost() {
    const COMMITS: usize = 12;
    let world = World::new();
    let workers: Vec<Machine> = ["a", "b"].iter().map(|name| world.machine(name)).collect();
    let people: Vec<PathBuf> = ["p", "q"].iter().map(|name| world.person(name)).collect();
    for n in 0..10 {
        workers[0].add(&format!("t{n}"), "text\n");
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let people: Vec<_> = people
            .iter()
            .enumerate()
            .map(|(who, path)| {
                scope.spawn(move || {
                    for n in 0..COMMITS {
                        fs::write(path.join(format!("note-{who}-{n}.md")), format!("{n}\n")).unwrap();
                        git(path, &["add", "-A"]);
                        git(path, &["commit", "--quiet", "-m", &format!("note {n}")]);
                        while !try_git(path, &["push", "--quiet", "origin", "HEAD:main"]).0 {
                            git(path, &["pull", "--quiet", "--rebase", "origin", "main"]);
                        }
                    }
                })
            })
            .collect();
        let workers: Vec<_> = workers
            .iter()
            .enumerate()
            .map(|(n, machine)| {
                let done = &done;
                scope.spawn(move || {
                    let who = request(&format!("agent{n}"));
                    loop {
                        let last = done.load(Ordering::SeqCst);
                        machine.sync();
                        while let (Some(claimed), _) = machine.vault.claim_next(&who, now()).unwrap() {
                            assert_eq!(machine.release(&claimed), State::Done);
                        }
                        if last {
                            break;
                        }
                    }
                })
            })
            .collect();
        people.into_iter().for_each(|person| person.join().unwrap());
        done.store(true, Ordering::SeqCst);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    let all = git(&world.remote(), &["ls-tree", "-r", "--name-only", "main"]);
    for who in 0..2 {
        for n in 0..COMMITS {
            assert!(all.contains(&format!("note-{who}-{n}.md")), "a person's note {who}-{n} is lost");
        }
    }
    let expected: Vec<String> = (0..10).map(|n| format!("Done/t{n}.md")).collect();
    assert_eq!(world.on_branch(), expected);
    assert_eq!((world.cards(), world.is_linear()), (0, true));
    // Each task was claimed once and released once, and no commit of a person's touches a task.
    let log = git(&world.remote(), &["log", "--format=%s", "main"]);
    assert_eq!(log.lines().filter(|line| line.contains(" claims ")).count(), 10, "{log}");
    assert_eq!(log.lines().filter(|line| line.contains(" releases ")).count(), 10, "{log}");
    let people =
        git(&world.remote(), &["log", "--author=ada", "--grep=^note", "--name-only", "--format=", "main"]);
    assert!(!people.contains("vault/"), "{people}");
}

#[test]
fn an_edit_of_a_claimed_task_is_kept_beside_the_result() {
    let world = World::new();
    let machine = world.machine("a");
    let person = world.person("p");
    machine.add("x", "line one\nline two\n");
    let claimed = machine.claim("x", "blue");
    machine.work(&claimed, "the result\n");
    git(&person, &["pull", "--quiet", "--rebase", "origin", "main"]);
    let theirs = person.join("vault/In_Progress/blue/x.md");
    fs::write(&theirs, fs::read_to_string(&theirs).unwrap().replace("line one", "line one, fixed")).unwrap();
    git(&person, &["commit", "--quiet", "-am", "fixed"]);
    git(&person, &["push", "--quiet", "origin", "HEAD:main"]);
    machine.sync();
    assert_eq!(machine.release(&claimed), State::Done);
    let text = world.show("vault/Done/x.md");
    assert!(text.contains("line one, fixed\nline two") && text.contains("the result"), "{text}");
    assert!(text.contains("**Next State**: Done"), "{text}");
    let here = fs::read_to_string(machine.tree().join("Done/x.md")).unwrap();
    assert_eq!(here.trim_end(), text);
}

/// After a force push, the user's git deletes objects to which nothing refers any more.
#[test]
fn an_edit_whose_base_is_gone_is_set_aside_and_the_task_goes_on() {
    let world = World::new();
    let machine = world.machine("a");
    let person = world.person("p");
    for (gone, kept) in [("base", Some("line one, fixed\n")), ("theirs", None)] {
        machine.add(gone, "line one\n");
        let claimed = machine.claim(gone, "blue");
        machine.work(&claimed, "the result\n");
        git(&person, &["pull", "--quiet", "--rebase", "origin", "main"]);
        let theirs = person.join(format!("vault/In_Progress/blue/{gone}.md"));
        fs::write(&theirs, fs::read_to_string(&theirs).unwrap().replace("line one", "line one, fixed"))
            .unwrap();
        git(&person, &["commit", "--quiet", "-am", "fixed"]);
        git(&person, &["push", "--quiet", "origin", "HEAD:main"]);
        machine.sync();
        let edit = fs::read_dir(&machine.store.tree.edits).unwrap().next().unwrap().unwrap().path();
        let mut edited: serde_json::Value = serde_json::from_slice(&fs::read(&edit).unwrap()).unwrap();
        edited[gone] = "1".repeat(40).into();
        fs::write(&edit, edited.to_string()).unwrap();
        let before = machine.kept_aside();
        assert_eq!(machine.release(&claimed), State::Done, "without the {gone}");
        assert!(world.show(&format!("vault/Done/{gone}.md")).contains("the result"));
        let mut aside = machine.kept_aside();
        aside.retain(|path| !before.contains(path));
        let aside: Vec<String> = aside.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        assert_eq!(aside.len(), kept.iter().len(), "{aside:?}");
        assert!(aside.iter().zip(kept).all(|(text, kept)| text.starts_with(kept)), "{aside:?}");
        assert!(!edit.exists(), "the next task of this name has no edit");
    }
}

#[test]
fn a_person_may_move_a_claimed_task_away_and_the_result_is_set_aside() {
    let world = World::new();
    let machine = world.machine("a");
    let person = world.person("p");
    machine.add("x", "text\n");
    let claimed = machine.claim("x", "blue");
    machine.work(&claimed, "the result\n");
    git(&person, &["pull", "--quiet", "--rebase", "origin", "main"]);
    fs::create_dir_all(person.join("vault/Rejected")).unwrap();
    git(&person, &["mv", "vault/In_Progress/blue/x.md", "vault/Rejected/x.md"]);
    git(&person, &["commit", "--quiet", "-m", "not now"]);
    git(&person, &["push", "--quiet", "origin", "HEAD:main"]);
    let late = machine.vault.release(&claimed.task, &claimed.claim.id, &Release::success(), now()).unwrap();
    assert!(late.is_err(), "{late:?}");
    assert_eq!(world.on_branch(), ["Rejected/x.md"]);
    let aside = machine.kept_aside();
    assert!(fs::read_to_string(&aside[0]).unwrap().ends_with("the result\n"));
    drop(claimed);
    let found = machine.store.checkup().unwrap();
    assert!(found.iter().any(|finding| finding.what.contains("deleted a claim of `x.md`")), "{found:?}");
    assert_eq!(world.cards(), 0);
}

#[test]
fn an_approval_on_one_machine_is_valid_on_another() {
    let world = World::new();
    let role = |allowed: &[&str], sensitive: &[&str]| Role {
        role: None,
        allowed: allowed.iter().map(|action| (*action).to_owned()).collect(),
        sensitive: sensitive.iter().map(|action| (*action).to_owned()).collect(),
    };
    let roles = [("cloud", role(&[], &["pay"])), ("local", role(&["pay"], &[]))];
    let roles: BTreeMap<_, _> = roles.into_iter().map(|(name, role)| (name.parse().unwrap(), role)).collect();
    let machines = ["cloud", "desk", "local"].map(|name| {
        let machine = world.machine(name);
        let terms =
            Terms { roles: Roles::of(roles.clone()), approve_by_move: true, ..machine.vault.terms().clone() };
        Machine { vault: Vault::new(Arc::new(machine.store.clone()), terms), ..machine }
    });
    let [cloud, desk, local] = &machines;
    cloud.add("x", "---\naction: pay\n---\nten coins\n");
    let draft = cloud.claim("x", "cloud");
    assert_eq!(draft.claim.mode, Mode::Draft);
    assert_eq!(cloud.release(&draft), State::PendingApproval);
    desk.sync();
    let decided = desk.vault.approve(&name("x"), "me", None, now()).unwrap();
    assert!(decided.is_ok(), "{decided:?}");
    local.sync();
    let execution = local.claim("x", "local");
    assert_eq!(execution.claim.mode, Mode::Execute);
    assert_eq!(local.release(&execution), State::Done);

    // Where a move approves, one in a person's own clone is valid for exactly the bytes that were offered.
    let moves = |task: &str, changed: bool| {
        desk.sync();
        let (from, to) = (format!("vault/Pending_Approval/{task}.md"), format!("vault/Approved/{task}.md"));
        fs::create_dir_all(desk.path.join("vault/Approved")).unwrap();
        git(&desk.path, &["mv", &from, &to]);
        if changed {
            let text = fs::read_to_string(desk.path.join(&to)).unwrap();
            fs::write(desk.path.join(&to), text.replace("ten", "a million")).unwrap();
        }
        git(&desk.path, &["commit", "--quiet", "-am", "yes"]);
        git(&desk.path, &["push", "--quiet", "origin", "main"]);
        local.sync();
    };
    for (task, changed) in [("y", false), ("z", true)] {
        cloud.add(task, "---\naction: pay\n---\nten coins\n");
        let draft = cloud.claim(task, "cloud");
        cloud.release(&draft);
        moves(task, changed);
        if changed {
            local.denied(task, "local");
            assert_eq!(local.slot(task), Some(Slot::PENDING), "a person decides again");
            moves(task, false);
            local.denied(task, "local");
            assert_eq!(local.slot(task), Some(Slot::PENDING), "moving it again does not help");
        } else {
            let execution = local.claim(task, "local");
            local.release(&execution);
        }
    }
    assert_eq!(world.on_branch(), ["Done/x.md", "Done/y.md", "Pending_Approval/z.md"]);
}

#[test]
fn one_task_in_two_folders_is_found_and_fixed() {
    let world = World::new();
    let machine = world.machine("a");
    let person = world.person("p");
    for task in ["x", "y", "z"] {
        machine.vault.add(&name(task), format!("text of {task}\n").as_bytes(), now()).unwrap();
    }
    let claimed = machine.claim("x", "blue");
    let finished = machine.claim("y", "blue");
    machine.release(&finished);
    git(&person, &["pull", "--quiet", "--rebase", "origin", "main"]);
    // As merges by people leave it: the claimed task waits again, the finished one is in progress, one is there twice.
    let copies = [
        ("In_Progress/blue/x.md", "Needs_Action/x.md"),
        ("Done/y.md", "In_Progress/red/y.md"),
        ("Needs_Action/z.md", "In_Progress/red/z.md"),
        ("Done/y.md", "Rejected/other.md"),
    ];
    for (from, to) in copies {
        let to = person.join("vault").join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(person.join("vault").join(from), to).unwrap();
    }
    git(&person, &["add", "-A"]);
    git(&person, &["commit", "--quiet", "-m", "merged by hand"]);
    git(&person, &["push", "--quiet", "origin", "HEAD:main"]);
    let found = machine.store.checkup().unwrap();
    for (task, copy, kept) in [
        ("x", "Needs_Action", "In_Progress/blue"),
        ("y", "In_Progress/red", "Done"),
        ("z", "Needs_Action", "In_Progress/red"),
    ] {
        let what = format!("`{task}.md` was also in `{copy}`; kept it in `{kept}`");
        assert!(found.iter().any(|finding| finding.what.starts_with(&what)), "{what}: {found:?}");
    }
    assert_eq!(
        world.on_branch(),
        ["Done/y.md", "In_Progress/blue/x.md", "In_Progress/red/z.md", "Rejected/other.md"]
    );
    assert_eq!(machine.kept_aside().len(), 3, "no copy is only deleted");
    assert_eq!(machine.release(&claimed), State::Done, "the owner did not notice");
    let again = machine.store.checkup().unwrap();
    assert!(!again.iter().any(|finding| finding.what.contains("was also in")), "{again:?}");
}
