//! The git store under the conformance suite.

use super::*;
use crate::conformance::{self, Harness, Interrupted};

/// A world with one machine that has talked to the remote once. Copies of it are cheap.
fn template() -> World {
    let world = World::new();
    world.machine("a").sync();
    for repository in ["r.git", "a/.git"] {
        let repository = world.folder.path().join(repository);
        fs::remove_dir_all(repository.join("hooks")).unwrap();
        // Nothing here is about power cuts, and hundreds of copies are used.
        git(&repository, &["config", "core.fsync", "none"]);
    }
    world
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy(&entry.path(), &to);
        } else if kind.is_file() {
            // A copy makes its own links to the repository when it is opened.
            fs::copy(entry.path(), &to).unwrap();
        }
    }
}

fn copy_of(template: &World) -> World {
    let world = World { folder: tempfile::tempdir().unwrap() };
    for part in ["r.git", "a"] {
        copy(&template.folder.path().join(part), &world.folder.path().join(part));
    }
    let url = format!("file://{}", world.remote().display());
    git(&world.folder.path().join("a"), &["remote", "set-url", "origin", &url]);
    world
}

fn harness(template: &World) -> Harness {
    let world = Arc::new(copy_of(template));
    let Machine { path, store, journal, .. } = Machine::open(world.folder.path().join("a"), |_| ());
    let (killer, other) = (store.clone(), store.clone());
    let kill = move |claimed: Claimed| {
        let claim = claimed.claim.clone();
        drop(claimed);
        // A process that another test is just starting has a copy of every lock for an instant.
        let mut pauses = Pauses::lasting(Duration::from_secs(10));
        while matches!(killer.liveness(&claim).unwrap(), Liveness::Alive) && pauses.pause() {}
    };
    let home = Arc::clone(&world);
    // The person does it in a clone of their own, and it comes by way of the remote.
    let by_hand = move |task: &TaskName, from: &Slot, to: &Slot, text: Option<&[u8]>| {
        let mut person = home.folder.path().join("person");
        if !person.exists() {
            person = home.person("person");
        }
        git(&person, &["pull", "--quiet", "--rebase", "origin", "main"]);
        let path = |slot: &Slot| person.join(format!("vault/{slot}/{task}"));
        if from != to {
            fs::create_dir_all(path(to).parent().unwrap()).unwrap();
            fs::rename(path(from), path(to)).unwrap();
        }
        if let Some(text) = text {
            fs::write(path(to), text).unwrap();
        }
        git(&person, &["add", "-A"]);
        git(&person, &["commit", "--quiet", "-m", "by hand"]);
        git(&person, &["push", "--quiet", "origin", "HEAD:main"]);
        other.sync().unwrap();
    };
    let interrupt = move |step: &Step, act: usize| {
        let tip = || git(&world.remote(), &["rev-parse", "main"]);
        let before = tip();
        let store = doomed(&path.join("vault"), &journal, act);
        match dies(|| drop(store.apply(step).unwrap())) {
            false => Interrupted::No,
            true if tip() != before => Interrupted::DiedAfterCommit,
            true => Interrupted::Died,
        }
    };
    Harness {
        interrupt: Some(Box::new(interrupt)),
        // Each of them costs a push when it is added, and then two more.
        race: 40,
        ..Harness::new(Arc::new(store), Box::new(kill), Box::new(by_hand))
    }
}

#[test]
fn git_conforms() {
    let template = template();
    conformance::run(&|| harness(&template));
}

#[test]
#[should_panic(expected = "verb 0, act")]
fn a_git_store_that_heals_nothing_does_not_conform() {
    let template = template();
    conformance::check_interrupted_steps(&|| {
        let harness = harness(&template);
        Harness { store: conformance::without_healing(harness.store), ..harness }
    });
}
