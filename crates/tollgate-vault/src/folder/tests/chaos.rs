//! Several workers that die at random, before any act and in the middle of their work, and come back: at the end every
//! task is done exactly once, none is lost, and none was ever worked on by two live owners at one time.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use jiff::Timestamp;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{Died, Fate, NOW, options};
use crate::claim::StepId;
use crate::event::MemoryJournal;
use crate::folder::FolderStore;
use crate::owner::{ClaimKind, ClaimRequest};
use crate::rules::{Release, Terms};
use crate::store::Store;
use crate::vault::Vault;

const TASKS: usize = 80;
const WORKERS: u64 = 6;

/// Somebody is working on it, as the worker itself sees it.
struct Working<'a>(&'a AtomicUsize);

impl<'a> Working<'a> {
    fn begin(owners: &'a AtomicUsize) -> Self {
        assert_eq!(owners.fetch_add(1, Ordering::SeqCst), 0, "two live owners at one time");
        Self(owners)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn now() -> Timestamp {
    Timestamp::now()
}

/// Works until nothing is left, or until it dies.
fn work(store: FolderStore, who: &str, owners: &BTreeMap<String, AtomicUsize>, dice: &dyn Fn() -> bool) {
    let vault =
        Vault::new(Arc::new(store), Terms { max_attempts: u32::MAX, retry: Vec::new(), ..Terms::default() });
    let asked = ClaimRequest { agent: who.parse().unwrap(), kind: ClaimKind::Held, renamed_in: false };
    vault.reclaim(now()).unwrap();
    let mut line = vault.queue(&asked, now()).unwrap();
    while let Some(claimed) = vault.next(&mut line, &asked, now()) {
        // Goes before the claim's lock does, whichever way this ends.
        let working = Working::begin(&owners[claimed.task.as_str()]);
        assert!(vault.verify(&claimed.task, &claimed.claim.id, now()).unwrap());
        if dice() {
            resume_unwind(Box::new(Died));
        }
        drop(working);
        let done = vault.release(&claimed.task, &claimed.claim.id, &Release::success(), now()).unwrap();
        assert!(done.is_ok(), "{done:?}");
    }
    assert!(line.faults.is_empty(), "{:?}", line.faults);
}

#[test]
fn workers_that_die_at_random_do_every_task_once() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Arc::new(MemoryJournal::default());
    let store = FolderStore::open(folder.path(), options(&journal)).unwrap();
    let owners: BTreeMap<String, AtomicUsize> =
        (0..TASKS).map(|n| (format!("t{n}.md"), AtomicUsize::new(0))).collect();
    for task in owners.keys() {
        store.add(&StepId::new().unwrap(), &task.parse().unwrap(), b"text", NOW).unwrap();
    }
    let done = || fs::read_dir(folder.path().join("Done")).unwrap().count();
    let deaths = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (store, owners, deaths, done) = (&store, &owners, &deaths, &done);
            scope.spawn(move || {
                // Any sequence will do, as long as each worker has another.
                let state = Arc::new(AtomicU64::new(0x9e37_79b9_7f4a_7c15 ^ (worker << 32)));
                let dice = move |one_in: u64| {
                    let next =
                        state.load(Ordering::SeqCst).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    state.store(next, Ordering::SeqCst);
                    (next >> 33).is_multiple_of(one_in)
                };
                // Two of them have the same name.
                let who = format!("w{}", worker / 2);
                while done() < TASKS {
                    let mut dying = store.clone();
                    let die = dice.clone();
                    dying.disk.fates = Some(Arc::new(move |_| match die(20) {
                        true if die(2) => Fate::DieHalf,
                        true => Fate::Die,
                        false => Fate::Go,
                    }));
                    let result = catch_unwind(AssertUnwindSafe(|| work(dying, &who, owners, &|| dice(10))));
                    match result {
                        Ok(()) => {}
                        Err(death) if death.is::<Died>() => {
                            deaths.fetch_add(1, Ordering::SeqCst);
                        }
                        Err(failed) => resume_unwind(failed),
                    }
                }
            });
        }
    });
    store.heal().unwrap();
    assert!(deaths.into_inner() > 20, "they did die");
    for task in owners.keys() {
        let text = fs::read_to_string(folder.path().join("Done").join(task)).unwrap();
        assert!(text.starts_with("text\n<!-- tollgate c-"), "{text}");
        assert_eq!(text.matches("**Result**: success").count(), 1, "{text}");
        assert_eq!(text.matches("**Status**: processing").count(), 0, "{text}");
    }
    let events = journal.all();
    let count = |kind| events.iter().filter(|event| event.event.action_type() == kind).count();
    assert_eq!(count("RELEASE"), TASKS);
    assert_eq!(count("CLAIM"), TASKS + count("RECLAIM"));
    let (all, _) = Vault::new(Arc::new(store), Terms::default()).figures(NOW).unwrap();
    assert_eq!((all.total_claims, all.active_claims), (count("CLAIM") as u64, 0));
}
