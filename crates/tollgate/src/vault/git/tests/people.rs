//! People in the same repository: nothing of theirs is lost, touched or reverted, and nothing of ours either.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::vault::claim::Mode;
use crate::vault::roles::{Role, Roles};
use crate::vault::{Decided, Next};

/// What a person has in their clone: staged, edited, and lying around.
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
    let ground = Ground::new();
    let clone = ground.clone("a");
    for task in ["x", "y"] {
        clone.vault.add(&name(task), b"text\n").unwrap();
    }
    busy_person(&clone.path);
    let before = desk(&clone.path);
    assert_eq!(clone.store.sync().unwrap().followed, Some(Followed::Forward));
    assert!(clone.path.join("vault/Needs_Action/x.md").exists(), "what is new is shown");
    let claimed = clone.claim("x", "blue");
    assert_eq!(desk(&clone.path), before);
    clone.store.sync().unwrap();
    assert_eq!(desk(&clone.path), before);
    assert!(clone.path.join("vault/In_Progress/blue/x.md").exists());
    assert!(!clone.path.join("vault/Needs_Action/x.md").exists());
    // A commit of theirs, right after the claim, holds what they staged and nothing else, and reverts nothing.
    git(&clone.path, &["commit", "--quiet", "-m", "mine"]);
    let changed = git(&clone.path, &["show", "--name-only", "--format=", "HEAD"]);
    assert_eq!(changed, "half.md");
    git(&clone.path, &["push", "--quiet", "origin", "main"]);
    assert_eq!(clone.release(&claimed), State::Done);
    clone.store.sync().unwrap();
    assert_eq!(fs::read_to_string(clone.path.join("notes.md")).unwrap(), "# Notes\nhalf a sente");
    assert_eq!(ground.on_branch(), ["Done/x.md", "Needs_Action/y.md"]);
    assert_eq!(ground.show("half.md"), "staged");
    assert!(ground.is_linear());
    assert_eq!(git(&clone.path, &["stash", "list"]), "", "nothing was stashed");
}

#[test]
fn what_is_in_the_way_stays_and_claims_go_on() {
    let ground = Ground::new();
    let (clone, other) = (ground.clone("a"), ground.clone("b"));
    clone.vault.add(&name("x"), b"text\n").unwrap();
    clone.store.sync().unwrap();
    // The person edits the task itself, and has not saved it to git.
    fs::write(clone.path.join("vault/Needs_Action/x.md"), "text\nand a thought of mi").unwrap();
    other.store.sync().unwrap();
    let claimed = other.claim("x", "red");
    let round = clone.store.sync().unwrap();
    assert!(matches!(round.followed, Some(Followed::InTheWay(_))), "{:?}", round.followed);
    let kept = fs::read_to_string(clone.path.join("vault/Needs_Action/x.md")).unwrap();
    assert_eq!(kept, "text\nand a thought of mi");
    other.release(&claimed);
    clone.vault.add(&name("y"), b"text\n").unwrap();
    let claimed = clone.claim("y", "blue");
    clone.release(&claimed);
    // A commit that is not on the remote yet: they bring it there as ever.
    git(&clone.path, &["commit", "--quiet", "-am", "my thought"]);
    assert_eq!(clone.store.sync().unwrap().followed, Some(Followed::Diverged));
    let (_, told) = try_git(&clone.path, &["pull", "--quiet", "--rebase", "origin", "main"]);
    assert!(told.contains("CONFLICT") || told.is_empty(), "git asks the person: {told}");
    try_git(&clone.path, &["rebase", "--abort"]);
    git(&clone.path, &["checkout", "--quiet", "-b", "elsewhere"]);
    assert_eq!(clone.store.sync().unwrap().followed, Some(Followed::OtherBranch));
}

#[test]
fn people_and_workers_push_at_the_same_time_and_nothing_is_lost() {
    const COMMITS: usize = 12;
    let ground = Ground::new();
    let workers: Vec<Clone> = ["a", "b"].iter().map(|name| ground.clone(name)).collect();
    let people: Vec<PathBuf> = ["p", "q"].iter().map(|name| ground.person(name)).collect();
    for n in 0..10 {
        workers[0].vault.add(&name(&format!("t{n}")), b"text\n").unwrap();
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
            .map(|(n, clone)| {
                let done = &done;
                scope.spawn(move || {
                    let who = asked(&format!("agent{n}"));
                    loop {
                        let last = done.load(Ordering::SeqCst);
                        clone.store.sync().unwrap();
                        while let (Next::Claimed(claimed), _) = clone.vault.claim_next(&who, now()).unwrap() {
                            assert_eq!(clone.release(&claimed), State::Done);
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
    let all = git(&ground.remote(), &["ls-tree", "-r", "--name-only", "main"]);
    for who in 0..2 {
        for n in 0..COMMITS {
            assert!(all.contains(&format!("note-{who}-{n}.md")), "a person's note {who}-{n} is lost");
        }
    }
    let expected: Vec<String> = (0..10).map(|n| format!("Done/t{n}.md")).collect();
    assert_eq!(ground.on_branch(), expected);
    assert_eq!((ground.cards(), ground.is_linear()), (0, true));
    // Each task was claimed once and released once, and no commit of a person's touches a task.
    let log = git(&ground.remote(), &["log", "--format=%s", "main"]);
    assert_eq!(log.lines().filter(|line| line.contains(" claims ")).count(), 10, "{log}");
    assert_eq!(log.lines().filter(|line| line.contains(" releases ")).count(), 10, "{log}");
    let people =
        git(&ground.remote(), &["log", "--author=ada", "--grep=^note", "--name-only", "--format=", "main"]);
    assert!(!people.contains("vault/"), "{people}");
}

#[test]
fn an_edit_of_a_task_that_is_being_worked_on_is_kept_beside_the_result() {
    let ground = Ground::new();
    let clone = ground.clone("a");
    let person = ground.person("p");
    clone.vault.add(&name("x"), b"line one\nline two\n").unwrap();
    let claimed = clone.claim("x", "blue");
    let path = claimed.path.clone().unwrap();
    fs::write(&path, [fs::read(&path).unwrap().as_slice(), b"the result\n"].concat()).unwrap();
    git(&person, &["pull", "--quiet", "--rebase", "origin", "main"]);
    let theirs = person.join("vault/In_Progress/blue/x.md");
    fs::write(&theirs, fs::read_to_string(&theirs).unwrap().replace("line one", "line one, mended")).unwrap();
    git(&person, &["commit", "--quiet", "-am", "mended"]);
    git(&person, &["push", "--quiet", "origin", "HEAD:main"]);
    clone.store.sync().unwrap();
    assert_eq!(clone.release(&claimed), State::Done);
    let text = ground.show("vault/Done/x.md");
    assert!(text.contains("line one, mended\nline two") && text.contains("the result"), "{text}");
    assert!(text.contains("**Next State**: Done"), "{text}");
    let here = fs::read_to_string(clone.store.tree().join("Done/x.md")).unwrap();
    assert_eq!(here.trim_end(), text);
}

#[test]
fn a_task_that_a_person_takes_away_is_theirs_and_the_result_is_kept() {
    let ground = Ground::new();
    let clone = ground.clone("a");
    let person = ground.person("p");
    clone.vault.add(&name("x"), b"text\n").unwrap();
    let claimed = clone.claim("x", "blue");
    let path = claimed.path.clone().unwrap();
    fs::write(&path, [fs::read(&path).unwrap().as_slice(), b"the result\n"].concat()).unwrap();
    git(&person, &["pull", "--quiet", "--rebase", "origin", "main"]);
    fs::create_dir_all(person.join("vault/Rejected")).unwrap();
    git(&person, &["mv", "vault/In_Progress/blue/x.md", "vault/Rejected/x.md"]);
    git(&person, &["commit", "--quiet", "-m", "not now"]);
    git(&person, &["push", "--quiet", "origin", "HEAD:main"]);
    let late = clone.vault.release(&claimed.task, &claimed.claim.id, &Release::success(), now()).unwrap();
    assert!(matches!(late, Owned::No(_)), "{late:?}");
    assert_eq!(ground.on_branch(), ["Rejected/x.md"]);
    let aside = clone.store.kept_aside();
    assert!(fs::read_to_string(&aside[0]).unwrap().ends_with("the result\n"));
    drop(claimed);
    let found = clone.store.checkup().unwrap();
    assert!(found.contains(&Finding::OrphanedCard { task: name("x") }), "{found:?}");
    assert_eq!(ground.cards(), 0);
}

#[test]
fn approvals_travel() {
    let ground = Ground::new();
    let role = |allowed: &[&str], sensitive: &[&str]| Role {
        role: None,
        allowed: allowed.iter().map(|action| (*action).to_owned()).collect(),
        sensitive: sensitive.iter().map(|action| (*action).to_owned()).collect(),
    };
    let roles = [("cloud", role(&[], &["pay"])), ("local", role(&["pay"], &[]))];
    let roles: BTreeMap<_, _> = roles.into_iter().map(|(name, role)| (name.parse().unwrap(), role)).collect();
    let clones = ["cloud", "desk", "local"].map(|name| {
        let clone = ground.clone(name);
        let terms = Terms { roles: Roles(roles.clone()), ..clone.vault.terms().clone() };
        Clone { vault: Vault::new(Arc::new(clone.store.clone()), terms), ..clone }
    });
    let [cloud, desk, local] = &clones;
    cloud.vault.add(&name("x"), b"---\naction: pay\n---\nten coins\n").unwrap();
    let draft = cloud.claim("x", "cloud");
    assert_eq!(draft.claim.mode, Mode::Draft);
    assert_eq!(cloud.release(&draft), State::PendingApproval);
    desk.store.sync().unwrap();
    let decided = desk.vault.approve(&name("x"), "me", None, now()).unwrap();
    assert!(matches!(decided, Decided::Yes(_)), "{decided:?}");
    local.store.sync().unwrap();
    let execution = local.claim("x", "local");
    assert_eq!(execution.claim.mode, Mode::Execute);
    assert_eq!(local.release(&execution), State::Done);

    // By a move of the file in a person's own clone: good for exactly the bytes that lay there.
    for (task, changed) in [("y", false), ("z", true)] {
        cloud.vault.add(&name(task), b"---\naction: pay\n---\nten coins\n").unwrap();
        let draft = cloud.claim(task, "cloud");
        cloud.release(&draft);
        desk.store.sync().unwrap();
        let (from, to) = (format!("vault/Pending_Approval/{task}.md"), format!("vault/Approved/{task}.md"));
        fs::create_dir_all(desk.path.join("vault/Approved")).unwrap();
        git(&desk.path, &["mv", &from, &to]);
        if changed {
            let text = fs::read_to_string(desk.path.join(&to)).unwrap();
            fs::write(desk.path.join(&to), text.replace("ten", "a million")).unwrap();
        }
        git(&desk.path, &["commit", "--quiet", "-am", "yes"]);
        git(&desk.path, &["push", "--quiet", "origin", "main"]);
        local.store.sync().unwrap();
        if changed {
            local.refused(task, "local");
            assert_eq!(local.slot(task), Some(Slot::PENDING), "a person decides again");
        } else {
            let execution = local.claim(task, "local");
            local.release(&execution);
        }
    }
    assert_eq!(ground.on_branch(), ["Done/x.md", "Done/y.md", "Pending_Approval/z.md"]);
}

#[test]
fn one_task_in_two_folders_is_found_and_healed() {
    let ground = Ground::new();
    let clone = ground.clone("a");
    let person = ground.person("p");
    for task in ["x", "y", "z"] {
        clone.vault.add(&name(task), format!("text of {task}\n").as_bytes()).unwrap();
    }
    let claimed = clone.claim("x", "blue");
    let finished = clone.claim("y", "blue");
    clone.release(&finished);
    git(&person, &["pull", "--quiet", "--rebase", "origin", "main"]);
    // As merges by hand leave it: the claimed one waits again, the finished one is worked on, one is there twice.
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
    let found = clone.store.checkup().unwrap();
    let twice: Vec<(String, String)> = found
        .iter()
        .filter_map(|finding| match finding {
            Finding::Twice { task, kept, .. } => Some((task.stem().to_owned(), kept.to_string())),
            _ => None,
        })
        .collect();
    let expected = [("x", "In_Progress/blue"), ("y", "Done"), ("z", "In_Progress/red")];
    assert_eq!(twice, expected.map(|(task, slot)| (task.to_owned(), slot.to_owned())));
    assert_eq!(
        ground.on_branch(),
        ["Done/y.md", "In_Progress/blue/x.md", "In_Progress/red/z.md", "Rejected/other.md"]
    );
    assert_eq!(clone.store.kept_aside().len(), 3, "no copy is only removed");
    assert_eq!(clone.release(&claimed), State::Done, "the owner has noticed nothing");
    let again = clone.store.checkup().unwrap();
    assert!(!again.iter().any(|finding| matches!(finding, Finding::Twice { .. })), "{again:?}");
}
