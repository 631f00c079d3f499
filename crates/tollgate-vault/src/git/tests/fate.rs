//! What can become of a push: the remote refuses it, hangs, is unreachable, or cuts the connection before or after it took
//! the push; and a crash of tollgate after it.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::checkup::Level;

/// Installs a hook on the remote.
pub(super) fn hook(world: &World, which: &str, text: &str) -> PathBuf {
    let path = world.remote().join("hooks").join(which);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn fault(machine: &Machine, task: &str) -> Fault {
    match machine.vault.claim(&name(task), &request("blue"), now()) {
        Err(fault) => fault,
        Ok(other) => panic!("it should have failed: {other:?}"),
    }
}

/// A task is claimed, worked on and published, as if nothing had happened before.
fn works(world: &World, machine: &Machine, task: &str) {
    let claimed = machine.claim(task, "blue");
    assert_eq!(machine.release(&claimed), State::Done);
    assert_eq!(world.on_branch(), [format!("Done/{task}.md")]);
    assert_eq!((world.cards(), world.is_linear()), (0, true));
    assert_eq!(machine.kept_aside(), [] as [PathBuf; 0]);
}

#[test]
fn a_rule_of_the_remote_is_reported_in_its_own_words() {
    let world = World::new();
    let machine = world.machine("a");
    machine.add("x", "text\n");
    let hook = hook(&world, "pre-receive", "echo 'main is protected: ask Grace' >&2; exit 1");
    let fault = fault(&machine, "x");
    assert_eq!(fault.code(), "REMOTE_REFUSED");
    assert!(fault.to_string().contains("main is protected: ask Grace"), "{fault}");
    assert_eq!(machine.slot("x"), Some(Slot::NEEDS_ACTION), "nothing was done");
    assert_eq!(world.on_branch(), ["Needs_Action/x.md"]);
    fs::remove_file(hook).unwrap();
    works(&world, &machine, "x");
}

#[test]
fn a_host_that_refuses_claim_refs_is_detected_and_branches_work_instead() {
    let world = World::new();
    git(&world.remote(), &["config", "receive.hideRefs", "refs/tollgate"]);
    let machine = world.machine("a");
    let found = machine.store.checkup().unwrap();
    let [Finding { level: Level::Problem, what, fix: Some(_) }] = &found[..] else { panic!("{found:?}") };
    assert!(what.contains("refs/tollgate/claims") && what.contains("hidden ref"), "{found:?}");
    for fault in
        [machine.vault.add(&name("x"), b"text\n", now()).unwrap_err(), machine.store.sync().unwrap_err()]
    {
        assert_eq!(fault.code(), "REMOTE_REFUSED");
        assert!(fault.to_string().contains("try `claim_refs"), "{fault}");
    }
    assert!(!try_git(&world.remote(), &["show", "main:vault"]).0, "nothing was pushed");
    let other = world.machine_with("b", |options| options.claim_refs = "refs/heads/tollgate/claims".into());
    let found = other.store.checkup().unwrap();
    assert!(matches!(&found[..], [Finding { level: Level::Ok, .. }]), "{found:?}");
    assert!(
        git(&world.remote(), &["for-each-ref", "refs/heads/tollgate"]).is_empty(),
        "the probe leaves nothing"
    );
    other.add("x", "text\n");
    let claimed = other.claim("x", "blue");
    assert_eq!(git(&world.remote(), &["for-each-ref", "refs/heads/tollgate"]).lines().count(), 1);
    assert_eq!(other.release(&claimed), State::Done);
}

#[test]
fn a_remote_that_hangs_is_given_up_in_time() {
    let world = World::new();
    let machine = world.machine_with("a", |options| options.patience = Duration::from_millis(1500));
    machine.add("x", "text\n");
    let hook = hook(&world, "pre-receive", "exec sleep 1000");
    let fault = fault(&machine, "x");
    assert!(fault.to_string().contains("does not answer"), "{fault}");
    assert_eq!(machine.slot("x"), Some(Slot::NEEDS_ACTION));
    fs::remove_file(hook).unwrap();
    works(&world, &machine, "x");
}

/// The remote has the result without these bytes, so the tree shows the remote's text, and the bytes are for a person.
#[test]
fn what_an_agent_writes_while_the_remote_takes_the_result_is_set_aside() {
    let world = World::new();
    let machine = world.machine("a");
    machine.add("x", "text\n");
    let claimed = machine.claim("x", "blue");
    let path = claimed.path.clone().unwrap();
    let late = hook(&world, "post-receive", &format!("echo 'late words' >> {}", path.display()));
    assert_eq!(machine.release(&claimed), State::Done);
    fs::remove_file(late).unwrap();
    let [aside] = &machine.kept_aside()[..] else { panic!("{:?}", machine.kept_aside()) };
    assert!(fs::read_to_string(aside).unwrap().contains("late words"));
    let shown = fs::read_to_string(machine.tree().join("Done/x.md")).unwrap();
    assert_eq!(shown.trim_end(), world.show("vault/Done/x.md"));
}

/// Kills the server's process when its refs change for the first time, at this point of the change.
fn cut_at(world: &World, state: &str) {
    let flag = world.remote().join("was-cut");
    let text = format!(
        "[ \"$1\" = {state} ] || exit 0\nmkdir {} 2>/dev/null || exit 0\nkill -9 $PPID",
        flag.display()
    );
    hook(world, "reference-transaction", &text);
}

#[test]
fn a_claim_is_won_if_the_connection_is_cut_after_the_remote_took_it() {
    let world = World::new();
    let (machine, other) = (world.machine("a"), world.machine("b"));
    machine.add("x", "text\n");
    other.sync();
    cut_at(&world, "committed");
    let claimed = machine.claim("x", "blue");
    assert!(world.remote().join("was-cut").exists(), "the connection was cut");
    assert_eq!(world.on_branch(), ["In_Progress/blue/x.md"]);
    other.denied("x", "red");
    assert_eq!(machine.journal.all().len(), 1, "one claim, one line");
    assert_eq!(machine.release(&claimed), State::Done);
    assert_eq!((world.on_branch(), world.cards()), (vec!["Done/x.md".to_owned()], 0));
}

#[test]
fn a_result_is_published_if_the_connection_is_cut_after_the_remote_took_it() {
    let world = World::new();
    let machine = world.machine("a");
    machine.add("x", "text\n");
    let claimed = machine.claim("x", "blue");
    machine.work(&claimed, "the result\n");
    cut_at(&world, "committed");
    assert_eq!(machine.release(&claimed), State::Done);
    assert!(world.remote().join("was-cut").exists());
    assert!(world.show("vault/Done/x.md").contains("the result"));
    assert_eq!((world.cards(), machine.kept_aside().len()), (0, 0));
}

#[test]
fn a_step_is_tried_again_if_the_connection_is_cut_before_the_remote_took_it() {
    let world = World::new();
    let machine = world.machine("a");
    machine.add("x", "text\n");
    let flag = world.remote().join("was-cut");
    hook(&world, "pre-receive", &format!("mkdir {} 2>/dev/null || exit 0\nkill -9 $PPID", flag.display()));
    works(&world, &machine, "x");
    assert!(flag.exists());
}

#[test]
fn a_lock_left_on_the_remote_by_a_crash_is_reported() {
    let world = World::new();
    let machine = world.machine("a");
    machine.add("x", "text\n");
    let lock = world.remote().join("refs/heads/main.lock");
    fs::write(&lock, "").unwrap();
    let fault = fault(&machine, "x");
    assert_eq!(fault.code(), "REMOTE_REFUSED", "{fault}");
    assert_eq!(machine.slot("x"), Some(Slot::NEEDS_ACTION));
    fs::remove_file(lock).unwrap();
    works(&world, &machine, "x");
}

#[test]
fn nothing_is_claimed_while_the_remote_is_unreachable() {
    let world = World::new();
    let machine = world.machine("a");
    machine.add("x", "text\n");
    let away = world.remote().with_extension("away");
    fs::rename(world.remote(), &away).unwrap();
    let fault = fault(&machine, "x");
    assert_eq!(fault.code(), "REMOTE_UNREACHABLE", "{fault}");
    assert_eq!(machine.slot("x"), Some(Slot::NEEDS_ACTION));
    assert_eq!(machine.kinds(), ["CLAIM_FAILED"]);
    fs::rename(&away, world.remote()).unwrap();
    works(&world, &machine, "x");
}

/// Killed before the Nth act on its own disk, for every N, during a claim and during a release: the next process settles it.
#[test]
fn killed_at_every_act_around_a_push() {
    let world = World::new();
    let machine = world.machine("a");
    for release in [false, true] {
        let mut is_complete = false;
        for act in 0..100 {
            let task = format!("{}{act}", if release { "r" } else { "c" });
            machine.add(&task, "text\n");
            let claimed = release.then(|| machine.claim(&task, "blue"));
            let died = dies_at(&machine, act, &task, claimed.as_ref());
            drop(claimed);
            let journal = Arc::clone(&machine.journal);
            let after = Machine::open(machine.path.clone(), |options| options.folder.journal = journal);
            after.vault.store().heal().unwrap();
            after.sync();
            assert!(!after.store.pending_path().exists());
            // A held claim of a dead owner is reclaimed. A result that is on the branch is not done again.
            after.reclaim(&task);
            if after.slot(&task) != Some(Slot::Free(State::Done)) {
                assert_eq!(after.slot(&task), Some(Slot::NEEDS_ACTION), "{task}");
                let claimed = after.claim(&task, "red");
                assert_eq!(after.release(&claimed), State::Done);
            }
            let places: Vec<String> =
                world.on_branch().into_iter().filter(|at| at.ends_with(&format!("/{task}.md"))).collect();
            assert_eq!(places, [format!("Done/{task}.md")]);
            let lines = |kind| machine.events(kind, &task);
            let (claims, ends) = (lines("CLAIM"), lines("RELEASE") + lines("RECLAIM"));
            assert_eq!(claims, ends, "{task}: every claim has its end, each recorded once");
            let here = fs::read(after.tree().join(&places[0])).unwrap();
            let there = world.show(&format!("vault/{}", places[0]));
            assert_eq!(String::from_utf8_lossy(&here).trim_end(), there, "the tree shows the branch");
            if !died {
                is_complete = true;
                break;
            }
        }
        assert!(is_complete, "not all acts were tried");
    }
    assert_eq!((world.cards(), world.is_linear()), (0, true));
}

/// Whether a process that does this dies.
fn dies_at(machine: &Machine, act: usize, task: &str, claimed: Option<&Claimed>) -> bool {
    let store = doomed(&machine.path.join("vault"), &machine.journal, act);
    let vault = Vault::new(Arc::new(store), machine.vault.terms().clone());
    dies(|| match claimed {
        None => drop(vault.claim(&name(task), &request("blue"), now()).unwrap()),
        Some(claimed) => {
            drop(vault.release(&claimed.task, &claimed.claim.id, &Release::success(), now()).unwrap());
        }
    })
}
