//! The git store under the conformance suite.

use super::*;
use crate::vault::conformance::{self, Bench};

/// A person does it in a clone of their own, and it comes by way of the remote.
fn bench() -> Bench {
    let ground = Ground::new();
    let clone = ground.clone("a");
    let person = ground.person("person");
    let (store, other, killer) = (clone.store.clone(), clone.store.clone(), clone.store.clone());
    let journal = Arc::clone(&clone.journal);
    Bench {
        store: Arc::new(store),
        events: Box::new(move || journal.events()),
        kill: Box::new(move |claimed| {
            let claim = claimed.claim.clone();
            drop(claimed);
            let mut pauses = Pauses::lasting(Duration::from_secs(10));
            while matches!(killer.owner(&claim, Timestamp::UNIX_EPOCH).unwrap(), Owner::Alive)
                && pauses.pause()
            {}
        }),
        meddle: Box::new(move |task, from, to, bytes| {
            let _keep = &ground;
            git(&person, &["pull", "--quiet", "--rebase", "origin", "main"]);
            let path = |slot: &Slot| format!("vault/{slot}/{task}");
            if from != to {
                fs::create_dir_all(person.join(format!("vault/{to}"))).unwrap();
                fs::rename(person.join(path(from)), person.join(path(to))).unwrap();
            }
            if let Some(bytes) = bytes {
                fs::write(person.join(path(to)), bytes).unwrap();
            }
            git(&person, &["add", "-A"]);
            git(&person, &["commit", "--quiet", "-m", "by hand"]);
            git(&person, &["push", "--quiet", "origin", "HEAD:main"]);
            other.sync().unwrap();
        }),
        // Each of them is a push when it is added, and then two more.
        race: 40,
    }
}

#[test]
fn git_conforms() {
    conformance::run(&bench);
}
