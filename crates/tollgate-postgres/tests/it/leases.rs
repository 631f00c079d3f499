//! Leases are measured with the clock of the database, whatever the clocks of the machines say.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tollgate_base::lock::Pauses;
use tollgate_base::task::TaskName;
use tollgate_postgres::{PostgresOptions, PostgresStore};
use tollgate_testing::postgres::{Server, is_installed};
use tollgate_vault::{ClaimKind, ClaimRequest, Claimed, Terms, Vault};

use crate::stores::Stores;

const LEASE: Duration = Duration::from_millis(1500);

/// A machine whose clock is ahead by this many seconds.
struct Machine(Vault, SignedDuration);

impl Machine {
    fn new(server: &Server, ahead: i64) -> Self {
        let options = PostgresOptions { lease: LEASE, ..server.options("leases") };
        let store = Arc::new(PostgresStore::open(options).unwrap());
        let terms = Terms { lease: LEASE, retry: Vec::new(), ..Terms::default() };
        Self(Vault::new(store, terms), SignedDuration::from_secs(ahead))
    }

    fn now(&self) -> Timestamp {
        Timestamp::now() + self.1
    }

    fn claim(&self, task: &TaskName, kind: ClaimKind) -> Claimed {
        let request = ClaimRequest { agent: "blue".parse().unwrap(), kind, renamed_in: false };
        self.0.claim(task, &request, self.now()).unwrap().unwrap()
    }
}

#[test]
fn an_owner_keeps_its_task_until_its_lease_is_over_by_the_clock_of_the_database() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    thread::scope(|scope| {
        for (owner, other) in [(0, 86_400), (-86_400, 0), (0, -86_400), (86_400, 0)] {
            for kind in [ClaimKind::Held, ClaimKind::Leased] {
                let server = &server;
                scope.spawn(move || keeps_it(server, owner, other, kind));
            }
        }
    });
}

/// An owner lives for three leases and dies. Both clocks are ahead by this number of seconds.
fn keeps_it(server: &Server, owner: i64, other: i64, kind: ClaimKind) {
    let task: TaskName = format!("t{owner}{other}{kind:?}").parse().unwrap();
    let (owner, other) = (Machine::new(server, owner), Machine::new(server, other));
    owner.0.add(&task, b"text", owner.now()).unwrap();
    let claimed = owner.claim(&task, kind);
    let is_reclaimed = || other.0.reclaim(other.now()).unwrap().0.iter().any(|found| found.task == task);
    let mut pauses = Pauses::lasting(3 * LEASE);
    while pauses.pause() {
        let id = &claimed.claim.id;
        let is_mine = match kind {
            ClaimKind::Held => owner.0.store().heartbeat(&task, id).unwrap(),
            ClaimKind::Leased => owner.0.verify(&task, id, owner.now()).unwrap(),
        };
        assert!(is_mine && !is_reclaimed(), "the owner is alive");
    }
    // It dies without a word: its lock is not dropped, which would be one.
    std::mem::forget(claimed);
    let died = Instant::now();
    let is_in_progress = || other.0.get(&task, other.now()).unwrap().slot.agent().is_some();
    let mut pauses = Pauses::lasting(Duration::from_secs(30));
    while is_in_progress() {
        // Another pair may be faster to take it away.
        is_reclaimed();
        assert!(pauses.pause(), "the task comes back");
    }
    assert!(died.elapsed() > LEASE / 3, "not at once: {:?}", died.elapsed());
    assert!(died.elapsed() < 3 * LEASE, "{:?}", died.elapsed());
}

#[test]
fn a_late_heartbeat_and_a_reclaim_exclude_each_other() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    let (owner, other) = (Machine::new(&server, 0), Machine::new(&server, 0));
    let task = "x".parse().unwrap();
    owner.0.add(&task, b"text", owner.now()).unwrap();
    let claimed = owner.claim(&task, ClaimKind::Held);
    let mut pauses = Pauses::lasting(Duration::from_secs(30));
    while other.0.reclaimable(other.now()).unwrap().is_empty() {
        assert!(pauses.pause(), "its lease ends");
    }
    // Somebody has seen that the lease is over, and is about to take the task away.
    let seen = other.0.get(&task, other.now()).unwrap();
    assert!(owner.0.store().heartbeat(&task, &claimed.claim.id).unwrap(), "nobody took it");
    let now = other.0.get(&task, other.now()).unwrap();
    assert_ne!(seen.version, now.version, "so that step would be a conflict");
    assert!(other.0.reclaim(other.now()).unwrap().0.is_empty());
}
