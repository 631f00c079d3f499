//! What a power cut can leave in a clone, and what is flushed before one.

use std::fs::{File, FileTimes};
use std::time::SystemTime;

use super::*;

/// What git flushes in this clone, as its own repository folder says.
fn flushed(machine: &Machine) -> String {
    let own = machine.store.private.join("repository");
    try_git(&own, &["--git-dir", ".", "config", "--local", "--get-all", "core.fsync"]).1
}

#[test]
fn git_flushes_everything_in_a_durable_vault_unless_the_person_has_decided() {
    let world = World::new();
    let durable = |options: &mut GitOptions| options.folder.durability = Durability::Durable;
    assert_eq!(flushed(&world.machine_with("a", durable)), "all");
    assert_eq!(flushed(&world.machine("b")), "");
    let path = world.person("c");
    git(&path, &["config", "core.fsync", "pack"]);
    let machine = Machine::open(path, durable);
    assert_eq!(flushed(&machine), "pack");
    // From the next command on, as with every setting.
    git(&machine.path, &["config", "--unset", "core.fsync"]);
    machine.sync();
    assert_eq!(flushed(&machine), "all");
}

#[test]
fn a_file_of_what_was_seen_that_was_cut_short_does_not_block_the_vault() {
    let world = World::new();
    let machine = world.machine("a");
    machine.add("x", "text\n");
    let claimed = machine.claim("x", "blue");
    let path = machine.store.private.join("seen.json");
    let whole = fs::read(&path).unwrap();
    let zeros = [&whole[..20], &vec![0; whole.len() - 20]].concat();
    for left in [vec![], vec![0; whole.len()], whole[..whole.len() / 2].to_vec(), zeros] {
        fs::write(&path, &left).unwrap();
        machine.sync();
        assert_eq!(machine.slot("x"), Some(Slot::InProgress("blue".parse().unwrap())));
        assert!(machine.vault.verify(&claimed.task, &claimed.claim.id, now()).unwrap());
    }
    assert_eq!(machine.release(&claimed), State::Done);
    // What is whole and makes no sense was not written by this version.
    fs::write(&path, "[]").unwrap();
    assert!(matches!(machine.store.sync(), Err(Fault::Damaged { .. })));
}

#[test]
fn an_ignore_file_that_was_cut_short_is_written_again() {
    let world = World::new();
    let machine = world.machine("a");
    let path = machine.store.private.join(".gitignore");
    for left in ["", "\0\0"] {
        fs::write(&path, left).unwrap();
        Machine::open(machine.path.clone(), |_| ());
        assert_eq!(fs::read_to_string(&path).unwrap(), "*\n");
    }
}

#[test]
fn a_lock_on_a_ref_that_a_dead_git_has_left_does_not_block_the_vault() {
    let world = World::new();
    let machine = world.machine("a");
    machine.add("x", "text\n");
    let refs = machine.path.join(".git/refs/tollgate");
    let locks = ["made/card.lock", "made/commit.lock", "seen/branch.lock"].map(|name| refs.join(name));
    for lock in &locks {
        let minute = SystemTime::now() - Duration::from_secs(60);
        let file = File::create(lock).unwrap();
        file.set_times(FileTimes::new().set_modified(minute)).unwrap();
    }
    let claimed = machine.claim("x", "blue");
    assert_eq!(machine.release(&claimed), State::Done);
    assert!(locks.iter().all(|lock| !lock.exists()));
}

#[test]
fn a_lock_on_a_ref_that_another_git_holds_is_waited_for() {
    let world = World::new();
    let machine = world.machine("a");
    machine.add("x", "text\n");
    let lock = machine.path.join(".git/refs/tollgate/made/card.lock");
    File::create(&lock).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| machine.store.repository.remove_left_locks());
        let mut pauses = Pauses::lasting(Duration::from_millis(300));
        while pauses.pause() {
            assert!(lock.exists() && !waiting.is_finished());
        }
        fs::remove_file(&lock).unwrap();
        waiting.join().unwrap().unwrap();
    });
    machine.claim("x", "blue");
}
