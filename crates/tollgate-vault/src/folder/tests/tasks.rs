//! Tasks as people and programs leave them in the folders: what is claimed, what is not, and what stays as it is.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{Fate, NOW, World, asked, claimed, later, refused};
use crate::denial::{Denial, DenialReason};
use crate::event::Entry;
use crate::folder::log::stripe_of;
use crate::owner::{ClaimKind, ClaimRequest};
use crate::reclaim::ReclaimedTask;
use crate::rules::Release;
use crate::state::State;
use crate::vault::Vault;
use tollgate_base::settings::Durability;
use tollgate_base::task::TaskName;

#[test]
fn a_task_that_is_being_written_is_not_claimed() {
    let world = World::new();
    let task: TaskName = "x".parse().unwrap();
    let path = world.at("Needs_Action/x.md");
    let written = Timestamp::now();
    fs::write(&path, "half of").unwrap();
    let not = refused(world.vault.claim(&task, &asked("a"), written).unwrap());
    assert!(
        not.reason() == DenialReason::Incomplete
            && matches!(not, Denial::Young(_, wait) if wait <= Duration::from_secs(3)),
        "{not:?}"
    );
    let (next, queue) = world.vault.claim_next(&asked("a"), written).unwrap();
    assert!(next.is_none() && queue.soonest.is_some() && queue.unfit.is_empty(), "it is worth waiting for");
    // Somebody has it open, however old it is.
    let open = world.with(|store| store.options.quiet = Some(|_| Ok(false)));
    let not = refused(open.claim(&task, &asked("a"), later()).unwrap());
    assert!(
        not.reason() == DenialReason::Incomplete && not.to_string().contains("open for writing"),
        "{not:?}"
    );
    // Who saw the rename knows better than the dates.
    let hint = ClaimRequest { renamed_in: true, ..asked("a") };
    claimed(world.vault.claim(&task, &hint, written).unwrap());

    fs::write(world.at("y"), "whole").unwrap();
    filetime_back(&world.at("y"));
    fs::rename(world.at("y"), world.at("Needs_Action/y.md")).unwrap();
    claimed(world.vault.claim(&"y".parse().unwrap(), &asked("a"), Timestamp::now()).unwrap());

    fs::write(world.at("Needs_Action/z.md"), "").unwrap();
    let not = refused(world.vault.claim(&"z".parse().unwrap(), &asked("a"), later()).unwrap());
    assert!(not.to_string().contains("empty"));

    world.vault.add(&"added".parse().unwrap(), b"text", NOW).unwrap();
    claimed(world.vault.claim(&"added".parse().unwrap(), &asked("a"), Timestamp::now()).unwrap());

    fs::write(world.at("Needs_Action/old.md"), "text").unwrap();
    claimed(world.vault.claim(&"old".parse().unwrap(), &asked("a"), later()).unwrap());
}

/// As if it had been written a while ago.
fn filetime_back(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(1)).unwrap();
}

#[test]
fn unfit_files_do_not_stop_the_others() {
    use std::os::unix::ffi::OsStrExt;
    let world = World::new();
    let folder = world.at("Needs_Action");
    fs::write(folder.join(std::ffi::OsStr::from_bytes(b"\xff.md")), "x").unwrap();
    fs::write(folder.join("a\x1b[31m\n.md"), "x").unwrap();
    fs::create_dir(folder.join("folder.md")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.join("link.md")).unwrap();
    let fifo = folder.join("pipe.md");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    fs::write(folder.join("broken.md"), "---\naction: pay\n").unwrap();
    fs::write(folder.join("notes.txt"), "x").unwrap();
    fs::write(folder.join(".hidden.md"), "x").unwrap();
    fs::write(folder.join("good.md"), "x").unwrap();
    let (next, queue) = world.vault.claim_next(&asked("a"), later()).unwrap();
    let Some(claimed) = next else { panic!("{queue:?}") };
    assert_eq!(claimed.task.as_str(), "good.md");
    let mut names: Vec<_> = queue.unfit.iter().map(|unfit| unfit.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a\\u{1b}[31m\\n.md", "broken.md", "folder.md", "link.md", "pipe.md", "\u{fffd}.md"]);
    for name in ["folder", "link", "pipe"] {
        let fault = world.vault.claim(&name.parse().unwrap(), &asked("a"), later()).unwrap_err();
        assert!(fault.to_string().contains("not a plain file"), "{fault}");
    }
    assert!(fs::symlink_metadata(&fifo).is_ok(), "and nothing was moved");
}

#[test]
fn names_and_sizes_at_the_limit() {
    let world = World::new();
    let long = TaskName::of_file(&format!("{}.md", "ö".repeat(126))).unwrap();
    for round in 0..2 {
        fs::write(world.at("Needs_Action").join(long.as_str()), format!("round {round}")).unwrap();
        let owner = claimed(world.vault.claim(&long, &asked("a"), later()).unwrap());
        let done = world.vault.release(&owner.task, &owner.claim.id, &Release::success(), later()).unwrap();
        let Ok(landed) = done else { panic!("{done:?}") };
        assert!(fs::read(landed.path.unwrap()).unwrap().starts_with(format!("round {round}").as_bytes()));
        assert_eq!(landed.task == long, round == 0, "the second gets a name beside the first");
    }
    assert_eq!(fs::read_dir(world.at("Done")).unwrap().count(), 2);

    let task = "big".parse().unwrap();
    let text = vec![b'x'; 1 << 20];
    fs::write(world.at("Needs_Action/big.md"), &text).unwrap();
    let owner = claimed(world.vault.claim(&task, &asked("a"), later()).unwrap());
    world.vault.release(&task, &owner.claim.id, &Release::success(), later()).unwrap().unwrap();
    assert!(fs::read(world.at("Done/big.md")).unwrap().starts_with(&text));
    File::create(world.at("Needs_Action/huge.md")).unwrap().set_len(100 << 20).unwrap();
    let denied = world.vault.claim(&"huge".parse().unwrap(), &asked("a"), later()).unwrap().unwrap_err();
    assert!(denied.to_string().contains("1 MiB"), "{denied}");
}

#[test]
fn the_owner_may_rewrite_the_file() {
    let world = World::new();
    let task: TaskName = "x".parse().unwrap();
    world.vault.add(&task, b"text", NOW).unwrap();
    let owner = claimed(world.vault.claim(&task, &asked("a"), later()).unwrap());
    let path = owner.path.unwrap();
    // As editors save: another inode, and here without the block.
    fs::write(world.at("new"), "my own words, no block").unwrap();
    fs::rename(world.at("new"), &path).unwrap();
    let done = world.vault.release(&task, &owner.claim.id, &Release::success(), later()).unwrap();
    assert!(done.is_ok());
    let text = fs::read_to_string(world.at("Done/x.md")).unwrap();
    assert!(text.starts_with("my own words, no block\n<!-- tollgate c-"), "{text}");
    assert!(text.ends_with("**Next State**: Done\n"));
}

#[test]
fn a_claim_does_not_bring_back_a_file_that_a_person_moved_away() {
    let world = World::new();
    let task: TaskName = "x".parse().unwrap();
    for act in ["move", "write", "note"] {
        world.vault.add(&task, b"text", NOW).unwrap();
        let (here, there, away) =
            (world.at("Needs_Action/x.md"), world.at("In_Progress/a/x.md"), world.at("away.md"));
        let gone = away.clone();
        let vault = world.with(|store| {
            store.disk.fates = Some(Arc::new(move |at| {
                let source = if there.exists() { &there } else { &here };
                if at == act && source.exists() && (act == "move" || there.exists()) {
                    fs::rename(source, &gone).unwrap();
                }
                Fate::Go
            }));
        });
        let answer = vault.claim(&task, &asked("a"), later()).unwrap();
        assert!(away.exists() && !world.at("In_Progress/a/x.md").exists(), "{act}");
        assert!(!world.at("Needs_Action/x.md").exists(), "{act}");
        if let Ok(owner) = answer {
            assert_eq!(act, "note", "taken away after the claim was made");
            assert!(!world.vault.verify(&task, &owner.claim.id, later()).unwrap());
            let done = world.vault.release(&task, &owner.claim.id, &Release::success(), later()).unwrap();
            assert!(done.is_err());
        }
        assert!(world.vault.reclaim(later()).unwrap().1.is_empty());
        assert!(world.store.read_log(stripe_of(&task)).unwrap().notes.is_empty(), "{act}: swept");
        fs::remove_file(&away).unwrap();
    }
}

/// A program that does not know of the lock may still write to a task while it is claimed.
#[test]
fn what_is_appended_to_a_task_between_plan_and_move_stays() {
    let world = World::new();
    let task: TaskName = "x".parse().unwrap();
    world.vault.add(&task, b"text", NOW).unwrap();
    let path = world.at("Needs_Action/x.md");
    let vault = world.with(|store| {
        store.disk.fates = Some(Arc::new(move |act| {
            if act == "move" && path.exists() {
                let mut file = File::options().append(true).open(&path).unwrap();
                std::io::Write::write_all(&mut file, b", and more of it").unwrap();
            }
            Fate::Go
        }));
    });
    let not = refused(vault.claim(&task, &asked("a"), later()).unwrap());
    assert!(matches!(not, Denial::Changed(_)), "{not:?}");
    assert_eq!(fs::read_to_string(world.at("Needs_Action/x.md")).unwrap(), "text, and more of it");
    claimed(world.vault.claim(&task, &asked("a"), later()).unwrap());
    let text = fs::read_to_string(world.at("In_Progress/a/x.md")).unwrap();
    assert!(text.starts_with("text, and more of it\n"), "{text}");
}

#[test]
fn an_owner_whose_lock_file_was_deleted_is_replaced_only_after_a_whole_lease() {
    let world = World::new();
    let (task, lease): (TaskName, _) = ("x".parse().unwrap(), world.vault.terms().lease);
    world.vault.add(&task, b"text", NOW).unwrap();
    let held = ClaimRequest { kind: ClaimKind::Held, ..asked("a") };
    let owner = claimed(world.vault.claim(&task, &held, later()).unwrap());
    fs::remove_file(world.at(".tollgate/vault/held")).unwrap();
    let until = owner.claim.at + lease;
    let reclaimed = |now| world.vault.reclaim(now).unwrap().0.len();
    assert_eq!(reclaimed(owner.claim.at), 0, "nobody can tell whether it lives");
    assert_eq!(reclaimed(until - lease / 4), 0);
    assert_eq!(reclaimed(until + lease / 4), 1);
}

#[test]
fn of_two_files_of_one_name_only_the_one_with_the_claim_is_reclaimed_with_it() {
    let world = World::new();
    let task: TaskName = "x".parse().unwrap();
    world.vault.add(&task, b"text", NOW).unwrap();
    let _owner = claimed(world.vault.claim(&task, &asked("b"), later()).unwrap());
    fs::create_dir(world.at("In_Progress/a")).unwrap();
    fs::write(world.at("In_Progress/a/x.md"), "put here by a person").unwrap();
    let now = later() + 2 * world.vault.terms().lease;
    let agents =
        |found: Vec<ReclaimedTask>| found.into_iter().map(|one| one.agent.to_string()).collect::<Vec<_>>();
    assert_eq!(agents(world.vault.reclaimable(now).unwrap()), ["b"]);
    assert_eq!(agents(world.vault.reclaim(now).unwrap().0), ["b"]);
    assert!(world.at("In_Progress/a/x.md").exists() && world.at("Needs_Action/x.md").exists());
    assert_eq!(agents(world.vault.reclaim(now).unwrap().0), ["a"], "it comes up when the other one is gone");
}

#[test]
fn a_fault_is_not_a_lost_race() {
    let world = World::new();
    for name in ["a", "b"] {
        world.vault.add(&name.parse().unwrap(), b"text", NOW).unwrap();
    }
    fs::write(world.at("In_Progress/blue"), "not a folder").unwrap();
    let (next, queue) = world.vault.claim_next(&asked("blue"), later()).unwrap();
    assert!(next.is_none() && queue.faults.len() == 2, "{queue:?}");
    assert!(world.vault.claim(&"a".parse().unwrap(), &asked("blue"), later()).is_err());
    let failed = |event: &Entry| event.event.action_type() == "CLAIM_FAILED";
    assert!(world.journal.all().iter().all(failed), "nothing happened but failures");
    let (next, _) = world.vault.claim_next(&asked("red"), later()).unwrap();
    assert!(next.is_some(), "what one cannot do, another can");
    let (all, each) = world.vault.figures(NOW).unwrap();
    assert!((all.claim_success_rate - 0.25).abs() < 1e-9, "{all:?}");
    assert_eq!((all.claim_conflicts_avoided, each.len()), (0, 2));
}

#[test]
fn the_cache_notices_every_change() {
    let world = World::new();
    for n in 0..100 {
        world.vault.add(&format!("t{n}").parse().unwrap(), b"---\npriority: normal\n---\n", NOW).unwrap();
    }
    let first = |vault: &Vault| {
        let line = vault.store().scan(State::NeedsAction, later()).unwrap();
        let mut ranked: Vec<_> =
            line.tasks.iter().map(|l| (l.brief.clone().unwrap().priority, l.name.clone())).collect();
        ranked.sort();
        ranked[0].1.to_string()
    };
    first(&world.vault);
    let cache = world.at(".tollgate/vault/cache/Needs_Action");
    assert!(fs::metadata(&cache).unwrap().len() > 100 * 36);
    // The same size, in place.
    fs::write(world.at("Needs_Action/t7.md"), "---\npriority: urgent\n---\n").unwrap();
    assert_eq!(first(&world.vault), "t7.md");
    // A file that was written a moment ago may change again unseen, so it is read again.
    let recent = World::new();
    let moment = Timestamp::now();
    for n in 0..100 {
        recent.vault.add(&format!("t{n}").parse().unwrap(), b"x", NOW).unwrap();
    }
    assert_eq!(recent.vault.store().scan(State::NeedsAction, moment).unwrap().tasks.len(), 100);
    assert!(!recent.at(".tollgate/vault/cache/Needs_Action").exists());
    fs::remove_file(&cache).unwrap();
    assert_eq!(first(&world.vault), "t7.md");
}

#[test]
fn durable_steps_do_the_same() {
    let world = World::new();
    let vault = world.with(|store| store.disk.durability = Durability::Durable);
    let task: TaskName = "x".parse().unwrap();
    vault.add(&task, b"text", NOW).unwrap();
    let owner = claimed(vault.claim(&task, &asked("a"), later()).unwrap());
    vault.progress(&task, &owner.claim.id, "on it", later()).unwrap().unwrap();
    let done = vault.release(&task, &owner.claim.id, &Release::success(), later()).unwrap();
    assert!(done.is_ok());
    assert!(fs::read_to_string(world.at("Done/x.md")).unwrap().ends_with("**Next State**: Done\n"));
}

#[test]
fn a_task_stays_if_both_of_its_names_are_taken() {
    let world = World::new();
    let task: TaskName = "x".parse().unwrap();
    world.vault.add(&task, b"x\n", NOW).unwrap();
    let id = claimed(world.vault.claim(&task, &asked("blue"), later()).unwrap()).claim.id;
    let others = [world.at("Done/x.md"), world.at(&format!("Done/x.{id}.md"))];
    others.iter().for_each(|other| fs::write(other, "another").unwrap());
    let release = || world.vault.release(&task, &id, &Release::success(), later());
    assert!(release().unwrap_err().to_string().contains("move one of the files away"));
    assert!(world.at("In_Progress/blue/x.md").exists() && world.vault.verify(&task, &id, later()).unwrap());
    fs::remove_file(&others[1]).unwrap();
    assert!(release().unwrap().is_ok());
    assert_eq!(fs::read_to_string(&others[0]).unwrap(), "another");
    assert!(fs::read_to_string(&others[1]).unwrap().contains("## Completion"));
}
