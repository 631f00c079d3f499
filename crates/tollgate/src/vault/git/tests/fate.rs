//! What can become of a push: refused, hanging, cut before or after the remote has taken it, out of reach; and a crash of
//! ours after it.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::vault::event::Kind;
use crate::vault::folder::disk::{Died, Fate};

/// A hook on the remote.
fn hook(ground: &Ground, which: &str, text: &str) -> PathBuf {
    let path = ground.remote().join("hooks").join(which);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn fault(clone: &Clone, task: &str) -> Fault {
    match clone.vault.claim(&name(task), &asked("blue"), now()) {
        Err(fault) => fault,
        Ok(other) => panic!("it should have failed: {other:?}"),
    }
}

/// Claimed, worked and published, as if nothing had happened before.
fn works(ground: &Ground, clone: &Clone, task: &str) {
    let claimed = clone.claim(task, "blue");
    assert_eq!(clone.release(&claimed), State::Done);
    assert_eq!(ground.on_branch(), [format!("Done/{task}.md")]);
    assert_eq!((ground.cards(), ground.is_linear()), (0, true));
    assert_eq!(clone.store.kept_aside(), [] as [PathBuf; 0]);
}

#[test]
fn a_rule_of_the_remote_is_told_in_its_own_words() {
    let ground = Ground::new();
    let clone = ground.clone("a");
    clone.vault.add(&name("x"), b"text\n").unwrap();
    let hook = hook(&ground, "pre-receive", "echo 'main is protected: ask Grace' >&2; exit 1");
    let fault = fault(&clone, "x");
    assert_eq!(fault.code(), "REMOTE_REFUSED");
    assert!(fault.to_string().contains("main is protected: ask Grace"), "{fault}");
    assert_eq!(clone.slot("x"), Some(Slot::NEEDS_ACTION), "nothing was done");
    assert_eq!(ground.on_branch(), ["Needs_Action/x.md"]);
    fs::remove_file(hook).unwrap();
    works(&ground, &clone, "x");
}

#[test]
fn a_host_that_takes_no_refs_of_this_kind_is_found_out_and_branches_do() {
    let ground = Ground::new();
    git(&ground.remote(), &["config", "receive.hideRefs", "refs/tollgate"]);
    let clone = ground.clone("a");
    let Probe::NoClaimRefs(what) = clone.store.probe().unwrap() else {
        panic!("it should have been found out")
    };
    assert!(what.contains("hidden ref"), "{what}");
    let said = clone.vault.add(&name("x"), b"text\n").unwrap_err();
    assert!(said.to_string().contains("claim_refs"), "{said}");
    assert!(!try_git(&ground.remote(), &["show", "main:vault"]).0, "nothing was pushed");
    let other = ground.clone_with("b", |options| options.claim_refs = "refs/heads/tollgate/claims".into());
    assert_eq!(other.store.probe().unwrap(), Probe::Fine);
    assert!(
        git(&ground.remote(), &["for-each-ref", "refs/heads/tollgate"]).is_empty(),
        "the probe leaves nothing"
    );
    other.vault.add(&name("x"), b"text\n").unwrap();
    let claimed = other.claim("x", "blue");
    assert_eq!(git(&ground.remote(), &["for-each-ref", "refs/heads/tollgate"]).lines().count(), 1);
    assert_eq!(other.release(&claimed), State::Done);
}

#[test]
fn a_remote_that_hangs_is_left_in_time() {
    let ground = Ground::new();
    let clone = ground.clone_with("a", |options| options.patience = Duration::from_millis(1500));
    clone.vault.add(&name("x"), b"text\n").unwrap();
    let hook = hook(&ground, "pre-receive", "exec sleep 1000");
    let fault = fault(&clone, "x");
    assert!(fault.to_string().contains("does not answer"), "{fault}");
    assert_eq!(clone.slot("x"), Some(Slot::NEEDS_ACTION));
    fs::remove_file(hook).unwrap();
    works(&ground, &clone, "x");
}

/// Kills the server's process at this state of the change of its refs, the first time.
fn cut_at(ground: &Ground, state: &str) {
    let flag = ground.remote().join("was-cut");
    let text = format!(
        "[ \"$1\" = {state} ] || exit 0\nmkdir {} 2>/dev/null || exit 0\nkill -9 $PPID",
        flag.display()
    );
    hook(ground, "reference-transaction", &text);
}

#[test]
fn cut_after_the_remote_has_taken_it_the_claim_is_won() {
    let ground = Ground::new();
    let (clone, other) = (ground.clone("a"), ground.clone("b"));
    clone.vault.add(&name("x"), b"text\n").unwrap();
    other.store.sync().unwrap();
    cut_at(&ground, "committed");
    let claimed = clone.claim("x", "blue");
    assert!(ground.remote().join("was-cut").exists(), "the connection was cut");
    assert_eq!(ground.on_branch(), ["In_Progress/blue/x.md"]);
    other.refused("x", "red");
    assert_eq!(clone.journal.events().len(), 1, "one claim, one line");
    assert_eq!(clone.release(&claimed), State::Done);
    assert_eq!((ground.on_branch(), ground.cards()), (vec!["Done/x.md".to_owned()], 0));
}

#[test]
fn cut_after_the_remote_has_taken_it_the_result_is_published() {
    let ground = Ground::new();
    let clone = ground.clone("a");
    clone.vault.add(&name("x"), b"text\n").unwrap();
    let claimed = clone.claim("x", "blue");
    let path = claimed.path.clone().unwrap();
    fs::write(&path, [fs::read(&path).unwrap().as_slice(), b"the result\n"].concat()).unwrap();
    cut_at(&ground, "committed");
    assert_eq!(clone.release(&claimed), State::Done);
    assert!(ground.remote().join("was-cut").exists());
    assert!(ground.show("vault/Done/x.md").contains("the result"));
    assert_eq!((ground.cards(), clone.store.kept_aside().len()), (0, 0));
}

#[test]
fn cut_before_the_remote_has_taken_it_it_is_asked_again() {
    let ground = Ground::new();
    let clone = ground.clone("a");
    clone.vault.add(&name("x"), b"text\n").unwrap();
    let flag = ground.remote().join("was-cut");
    hook(&ground, "pre-receive", &format!("mkdir {} 2>/dev/null || exit 0\nkill -9 $PPID", flag.display()));
    works(&ground, &clone, "x");
    assert!(flag.exists());
}

#[test]
fn a_lock_that_a_crash_has_left_on_the_remote_is_told() {
    let ground = Ground::new();
    let clone = ground.clone("a");
    clone.vault.add(&name("x"), b"text\n").unwrap();
    let lock = ground.remote().join("refs/heads/main.lock");
    fs::write(&lock, "").unwrap();
    let fault = fault(&clone, "x");
    assert_eq!(fault.code(), "REMOTE_REFUSED", "{fault}");
    assert_eq!(clone.slot("x"), Some(Slot::NEEDS_ACTION));
    fs::remove_file(lock).unwrap();
    works(&ground, &clone, "x");
}

#[test]
fn out_of_reach_nothing_is_claimed() {
    let ground = Ground::new();
    let clone = ground.clone("a");
    clone.vault.add(&name("x"), b"text\n").unwrap();
    let away = ground.remote().with_extension("away");
    fs::rename(ground.remote(), &away).unwrap();
    let fault = fault(&clone, "x");
    assert_eq!(fault.code(), "REMOTE_UNREACHABLE", "{fault}");
    assert_eq!(clone.slot("x"), Some(Slot::NEEDS_ACTION));
    assert!(clone.journal.events().is_empty());
    fs::rename(&away, ground.remote()).unwrap();
    works(&ground, &clone, "x");
}

#[test]
fn who_chose_to_works_offline_and_tells_it_later() {
    let ground = Ground::new();
    let clone = ground.clone_with("a", |options| options.offline = Offline::Allow);
    let other = ground.clone("b");
    for task in ["x", "y"] {
        clone.vault.add(&name(task), b"text\n").unwrap();
    }
    other.store.sync().unwrap();
    let away = ground.remote().with_extension("away");
    fs::rename(ground.remote(), &away).unwrap();
    clone.vault.add(&name("new"), b"new\n").unwrap();
    for task in ["x", "y"] {
        let claimed = clone.claim(task, "blue");
        assert_eq!(clone.release(&claimed), State::Done);
    }
    fs::rename(&away, ground.remote()).unwrap();
    // Meanwhile another has done one of them.
    let claimed = other.claim("y", "red");
    other.release(&claimed);
    assert_eq!(clone.store.sync().unwrap().paid, 2);
    assert_eq!(ground.on_branch(), ["Done/x.md", "Done/y.md", "Needs_Action/new.md"]);
    assert!(ground.show("vault/Done/y.md").contains("red"), "the remote is right");
    assert_eq!(clone.store.kept_aside().len(), 1, "and nothing is lost");
    assert_eq!(clone.store.sync().unwrap().paid, 0);
    other.store.sync().unwrap();
    let claimed = other.claim("new", "red");
    assert_eq!(other.release(&claimed), State::Done);
}

/// Killed at the Nth act on our own disk, for every N, during a claim and during a release: whoever comes next settles it.
#[test]
fn killed_at_every_act_around_a_push() {
    let ground = Ground::new();
    let clone = ground.clone("a");
    for (release, most) in [(false, 60), (true, 60)] {
        let mut ended = false;
        for n in 0..most {
            let task = format!("{}{n}", if release { "r" } else { "c" });
            clone.vault.add(&name(&task), b"text\n").unwrap();
            let claimed = release.then(|| clone.claim(&task, "blue"));
            let died = dies_at(&clone, n, &task, claimed.as_ref());
            drop(claimed);
            let journal = Arc::clone(&clone.journal);
            let after = ground.open(clone.path.clone(), |options| options.folder.journal = journal);
            after.vault.heal().unwrap();
            after.store.sync().unwrap();
            assert!(!after.store.is_pending());
            // A held claim of the dead is taken back; a result that is on the branch is not done again.
            after.vault.reclaim(now()).unwrap();
            if after.slot(&task) != Some(Slot::Free(State::Done)) {
                assert_eq!(after.slot(&task), Some(Slot::NEEDS_ACTION), "{task}");
                let claimed = after.claim(&task, "red");
                assert_eq!(after.release(&claimed), State::Done);
            }
            let places: Vec<String> =
                ground.on_branch().into_iter().filter(|at| at.ends_with(&format!("/{task}.md"))).collect();
            assert_eq!(places, [format!("Done/{task}.md")]);
            let about = |event: &&Event| event.payload.task.stem() == task;
            let events = clone.journal.events();
            let lines = |kind| events.iter().filter(about).filter(|event| event.kind == kind).count();
            let (claims, ends) = (lines(Kind::Claim), lines(Kind::Release) + lines(Kind::Reclaim));
            assert_eq!(claims, ends, "{task}: what began has ended, each told once");
            let (here, there) = (
                fs::read(after.store.tree().join(&places[0])).unwrap(),
                ground.show(&format!("vault/{}", places[0])),
            );
            assert_eq!(String::from_utf8_lossy(&here).trim_end(), there, "the tree shows the branch");
            if !died {
                ended = true;
                break;
            }
        }
        assert!(ended, "the acts were not all tried");
    }
    assert_eq!((ground.cards(), ground.is_linear()), (0, true));
}

/// Whether it came to that.
fn dies_at(clone: &Clone, n: usize, task: &str, claimed: Option<&Claimed>) -> bool {
    let acts = std::sync::atomic::AtomicUsize::new(0);
    let fates = move |_: &'static str| match acts.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        at if at == n => Fate::Die,
        _ => Fate::Go,
    };
    let mut store = clone.store.clone();
    store.turns = Arc::default();
    store.folder.set_fates(Arc::new(fates));
    store.tree.folder = store.folder.clone();
    let vault = Vault::new(Arc::new(store), clone.vault.terms().clone());
    let run = std::panic::AssertUnwindSafe(|| match claimed {
        None => drop(vault.claim(&name(task), &asked("blue"), now()).unwrap()),
        Some(claimed) => {
            drop(vault.release(&claimed.task, &claimed.claim.id, &Release::success(), now()).unwrap());
        }
    });
    match std::panic::catch_unwind(run) {
        Ok(()) => false,
        Err(thrown) => {
            assert!(thrown.is::<Died>());
            true
        }
    }
}
