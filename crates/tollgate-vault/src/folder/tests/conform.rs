//! The folder store under the conformance suite.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{Fate, options};
use crate::claim_lock::Liveness;
use crate::conformance::{self, Harness, Interrupted};
use crate::event::MemoryJournal;
use crate::folder::FolderStore;
use crate::owner::Claimed;
use crate::state::Slot;
use crate::step::Step;
use crate::store::Store;
use tollgate_base::task::TaskName;

fn harness() -> Harness {
    let folder = tempfile::tempdir().unwrap();
    let journal = Arc::new(MemoryJournal::default());
    let store = FolderStore::open(folder.path(), options(&journal)).unwrap();
    let (person, killer, dying) = (store.clone(), store.clone(), folder.path().to_owned());
    let kill = move |claimed: Claimed| {
        let claim = claimed.claim.clone();
        drop(claimed);
        // A process that another test is just starting has a copy of every lock for an instant.
        let mut pauses = tollgate_base::lock::Pauses::lasting(Duration::from_secs(10));
        while matches!(killer.liveness(&claim).unwrap(), Liveness::Alive) && pauses.pause() {}
    };
    let by_hand = move |task: &TaskName, from: &Slot, to: &Slot, text: Option<&[u8]>| {
        let _keep = &folder;
        let (from, to) = (person.path(task, from), person.path(task, to));
        if from != to {
            fs::rename(&from, &to).unwrap();
        }
        if let Some(text) = text {
            fs::write(&to, text).unwrap();
        }
    };
    let interrupt = move |step: &Step, act: usize| {
        // Another process: it shares nothing but the folder.
        let mut dying = FolderStore::open(&dying, options(&journal)).unwrap();
        let acts = AtomicUsize::new(0);
        dying.set_fates(Arc::new(move |_| {
            let number = acts.fetch_add(1, Ordering::SeqCst);
            if number == act { Fate::Die } else { Fate::Go }
        }));
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| dying.apply(step).map(drop))) {
            Ok(_) => Interrupted::No,
            Err(_) => Interrupted::Died,
        }
    };
    Harness {
        interrupt: Some(Box::new(interrupt)),
        ..Harness::new(Arc::new(store), Box::new(kill), Box::new(by_hand))
    }
}

#[test]
fn folders_conform() {
    conformance::run(&harness);
}

/// A store that heals nothing, to see that the suite notices.
#[test]
#[should_panic(expected = "verb 0, act")]
fn a_store_that_heals_nothing_does_not_conform() {
    conformance::check_interrupted_steps(&|| {
        let harness = harness();
        Harness { store: conformance::without_healing(harness.store), ..harness }
    });
}
