//! Who is alive: leases of the engine, not the clocks of machines.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tollgate_base::boot_clock::millis_since_boot;
use tollgate_base::lock::Pauses;
use tollgate_base::task::TaskName;
use tollgate_testing::etcd::{Cluster, post};
use tollgate_vault::{ClaimKind, ClaimRequest, Claimed, Release, Store, Terms, Vault};

use super::open;
use crate::store::EtcdStore;

fn vault(url: &str, machine: &str, lease: Duration) -> Vault {
    let terms = Terms { lease, retry: Vec::new(), ..Terms::default() };
    Vault::new(Arc::new(open(url, machine, lease)), terms)
}

fn claim(vault: &Vault, kind: ClaimKind) -> Claimed {
    let name: TaskName = "x".parse().unwrap();
    // It may wait already.
    let _ = vault.add(&name, b"text", Timestamp::now());
    let request = ClaimRequest { agent: "blue".parse().unwrap(), kind, renamed_in: false };
    vault.claim(&name, &request, Timestamp::now()).unwrap().unwrap()
}

/// Each case in a thread, because all of them wait most of the time.
fn at_the_same_time<T: Send>(cases: [T; 2], case: impl Fn(T) + Sync) {
    let case = &case;
    thread::scope(|scope| cases.map(|this| scope.spawn(move || case(this))).map(|ran| ran.join().unwrap()));
}

fn days(number: i64) -> Timestamp {
    Timestamp::now() + SignedDuration::from_hours(24 * number)
}

#[test]
fn no_clock_of_a_machine_takes_a_task_away() {
    let cluster = Cluster::shared();
    let lease = Duration::from_secs(600);
    for kind in [ClaimKind::Held, ClaimKind::Leased] {
        let url = cluster.url();
        let one = vault(&url, "one", lease);
        let behind = Arc::new(open(&url, "other", lease));
        let other = Vault::new(Arc::clone(&behind) as Arc<dyn Store>, Terms::default());
        let claimed = claim(&one, kind);
        for now in [days(-1), days(1)] {
            for vault in [&one, &other] {
                assert_eq!(vault.reclaim(now).unwrap().0, [], "{kind:?}: its lease has not ended");
            }
            // As if its view were behind and did not know that the owner is alive.
            let layout = &behind.shared.layout;
            let owner = match claimed.claim.hold {
                Some(lease) => layout.process(lease),
                None => layout.owner(&claimed.claim.id),
            };
            behind.shared.with_view(|view| view.delete(layout, owner.as_bytes(), i64::MAX, &mut Vec::new()));
            assert_eq!(other.store().suspects(now).unwrap().len(), 1);
            assert_eq!(other.reclaim(now).unwrap().0, [], "{kind:?}: the engine knows better");
        }
        assert!(one.verify(&claimed.task, &claimed.claim.id, Timestamp::now()).unwrap());
    }
}

#[test]
fn a_lease_that_nobody_renews_ends_by_the_clock_of_the_engine() {
    let cluster = Cluster::shared();
    at_the_same_time([ClaimKind::Held, ClaimKind::Leased], |kind| {
        let url = cluster.url();
        let lease = Duration::from_secs(2);
        let (one, other) = (vault(&url, "one", lease), vault(&url, "other", lease));
        let claimed = claim(&one, kind);
        // The owner lives, but nobody hears of it any more. The clock of the other machine stands still.
        let stopped = Timestamp::now();
        let mut pauses = Pauses::lasting(Duration::from_secs(60));
        while other.reclaim(stopped).unwrap().0.is_empty() {
            assert!(pauses.pause(), "{kind:?}: it did not come back");
        }
        assert!(!one.verify(&claimed.task, &claimed.claim.id, Timestamp::now()).unwrap(), "{kind:?}");
        assert_eq!(other.has_expired(&claimed.claim, days(1)).unwrap(), kind == ClaimKind::Leased);
        if kind == ClaimKind::Held {
            let beat = one.store().heartbeat(&claimed.task, &claimed.claim.id).unwrap();
            assert!(!beat, "death is final");
        }
    });
}

#[test]
fn a_lease_that_is_renewed_does_not_end() {
    let cluster = Cluster::shared();
    at_the_same_time([ClaimKind::Held, ClaimKind::Leased], |kind| {
        let url = cluster.url();
        let lease = Duration::from_secs(2);
        let (one, other) = (vault(&url, "one", lease), vault(&url, "other", lease));
        let claimed = claim(&one, kind);
        let mut pauses = Pauses::lasting(Duration::from_secs(7));
        while pauses.pause() {
            match kind {
                ClaimKind::Held => assert!(one.store().heartbeat(&claimed.task, &claimed.claim.id).unwrap()),
                ClaimKind::Leased => {
                    one.renew(&claimed.task, &claimed.claim.id, Timestamp::now()).unwrap().unwrap();
                }
            }
            assert_eq!(other.reclaim(days(1)).unwrap().0, [], "{kind:?}");
            assert!(!other.has_expired(&claimed.claim, days(1)).unwrap(), "{kind:?}");
        }
    });
}

#[test]
fn a_leased_claim_is_renewed_on_every_machine_that_knows_its_id() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    let lease = Duration::from_secs(6);
    let [one, two, other] = ["one", "two", "other"].map(|machine| vault(&url, machine, lease));
    let Claimed { task, claim, .. } = claim(&one, ClaimKind::Leased);
    let mut pauses = Pauses::lasting(Duration::from_secs(13));
    while pauses.pause() {
        let renewed = two.renew(&task, &claim.id, Timestamp::now()).unwrap().unwrap();
        assert!(renewed.lease_until().is_some(), "it is still a lease");
        assert!(two.verify(&task, &claim.id, Timestamp::now()).unwrap());
        assert_eq!(other.reclaim(days(1)).unwrap().0, [], "it is renewed");
    }
    two.progress(&task, &claim.id, "half", Timestamp::now()).unwrap().unwrap();
    let renewed = one.renew(&task, &claim.id, Timestamp::now()).unwrap().unwrap();
    assert!(renewed.lease_until().is_some(), "it is still a lease");
}

#[test]
fn an_owner_that_verifies_keeps_its_lease_however_its_clock_is_set() {
    let cluster = Cluster::shared();
    let lease = Duration::from_secs(6);
    at_the_same_time([days(-1), days(1)], |clock| {
        let url = cluster.url();
        let (one, other) = (vault(&url, "one", lease), vault(&url, "other", lease));
        let Claimed { task, claim, .. } = claim(&one, ClaimKind::Leased);
        let mut pauses = Pauses::lasting(Duration::from_secs(13));
        while pauses.pause() {
            assert!(one.verify(&task, &claim.id, clock).unwrap(), "{clock}");
            assert_eq!(other.reclaim(Timestamp::now()).unwrap().0, [], "{clock}: it is verified");
        }
    });
}

/// Ends a lease, as a leader does that was paused and does not know that the lease was renewed.
fn revoke(store: &EtcdStore, lease: i64) {
    let (client, body) = (&store.shared.client, json!({ "ID": lease.to_string() }));
    client.call::<Value>("/v3/lease/revoke", &body, client.deadline).unwrap();
}

#[test]
fn a_leased_claim_is_alive_although_a_lease_ends_that_it_had_before_its_renewal() {
    let cluster = Cluster::shared();
    let (url, lease) = (cluster.url(), Duration::from_secs(600));
    let store = Arc::new(open(&url, "one", lease));
    let one = Vault::new(Arc::clone(&store) as Arc<dyn Store>, Terms::default());
    let Claimed { task, claim, .. } = claim(&one, ClaimKind::Leased);
    let before = store.shared.lease_of(&claim.id).unwrap().unwrap();
    one.renew(&task, &claim.id, Timestamp::now()).unwrap().unwrap();
    revoke(&store, before);
    let other = vault(&url, "other", lease);
    assert_eq!(other.reclaim(Timestamp::now()).unwrap().0, []);
    // If its lease has ended, it can be renewed until somebody reclaims the task.
    revoke(&store, store.shared.lease_of(&claim.id).unwrap().unwrap());
    one.renew(&task, &claim.id, Timestamp::now()).unwrap().unwrap();
    assert_eq!(other.reclaim(Timestamp::now()).unwrap().0, []);
}

#[test]
fn a_task_is_not_reclaimed_before_its_owner_has_had_the_time_to_notice_that_its_lease_has_ended() {
    let cluster = Cluster::shared();
    let (url, lease) = (cluster.url(), Duration::from_secs(4));
    let store = Arc::new(open(&url, "one", lease));
    let one = Vault::new(Arc::clone(&store) as Arc<dyn Store>, Terms::default());
    let Claimed { task, claim, lock: _lock, .. } = claim(&one, ClaimKind::Held);
    assert!(one.store().heartbeat(&task, &claim.id).unwrap());
    let proven = store.proven_at(&claim.id).unwrap();
    revoke(&store, claim.hold.unwrap().cast_signed());
    // Machines that look once, at any time, and one that keeps looking. Their own leases are shorter.
    let shorter = Duration::from_secs(2);
    let other = vault(&url, "other", shorter);
    let mut pauses = Pauses::lasting(Duration::from_secs(60));
    loop {
        let once = vault(&url, "once", shorter).reclaim(Timestamp::now()).unwrap().0;
        if !once.is_empty() || !other.reclaim(Timestamp::now()).unwrap().0.is_empty() {
            break;
        }
        assert!(pauses.pause(), "it did not come back");
    }
    let passed = Duration::from_millis(millis_since_boot() - proven);
    assert!(passed >= lease, "after {passed:?} the owner may still work");
    assert!(!one.store().heartbeat(&task, &claim.id).unwrap(), "its end is final");
}

/// The keys in the engine that say who is alive, except that of the process.
fn keys_of_claims(store: &EtcdStore) -> Vec<String> {
    let range = crate::message::Range::all(&store.shared.layout.owners());
    let found = store.shared.client.range(&range).unwrap().kvs.into_iter();
    found.map(|kv| String::from_utf8(kv.key).unwrap()).filter(|key| !key.contains("/process/")).collect()
}

#[test]
fn a_claim_that_was_lost_with_an_earlier_lease_of_its_process_is_not_alive() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    let lease = Duration::from_secs(2);
    let (one, other) = (vault(&url, "one", lease), vault(&url, "other", lease));
    let lost = claim(&one, ClaimKind::Held);
    let mut pauses = Pauses::lasting(Duration::from_secs(60));
    while other.reclaim(Timestamp::now()).unwrap().0.is_empty() {
        assert!(pauses.pause(), "it did not come back");
    }
    // The same process claims the task again, with a new lease, and keeps the lock of its old claim.
    let request = ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Held, renamed_in: false };
    let again = one.claim(&lost.task, &request, Timestamp::now()).unwrap().unwrap();
    assert_eq!(one.store().heartbeat_all().unwrap(), std::slice::from_ref(&again.claim.id));
    let age = |claimed: &Claimed| {
        let proven = one.store().proven_at(&claimed.claim.id).unwrap();
        Duration::from_millis(millis_since_boot() - proven)
    };
    assert!(age(&lost) >= lease && age(&again) < lease);
}

#[test]
fn the_keys_of_finished_claims_do_not_stay() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    let store = Arc::new(open(&url, "one", Duration::from_secs(600)));
    let terms = Terms { retry: Vec::new(), ..Terms::default() };
    let one = Vault::new(Arc::clone(&store) as Arc<dyn Store>, terms);
    let release = |claimed: &Claimed| {
        one.release(&claimed.task, &claimed.claim.id, &Release::success(), Timestamp::now())
            .unwrap()
            .unwrap();
    };
    for kind in [ClaimKind::Held, ClaimKind::Leased] {
        release(&claim(&one, kind));
        assert_eq!(keys_of_claims(&store), [""; 0], "{kind:?}");
    }
    // Another process releases it, so this one does not know that the claim has ended.
    let other = vault(&url, "two", Duration::from_secs(600));
    for how in [Release::success(), Release::give_back("later")] {
        let claimed = claim(&one, ClaimKind::Held);
        other.release(&claimed.task, &claimed.claim.id, &how, Timestamp::now()).unwrap().unwrap();
        // If it waits, another agent claims it.
        let red = ClaimRequest { agent: "red".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: false };
        let again = other.claim(&claimed.task, &red, Timestamp::now()).unwrap().ok();
        let keys = usize::from(again.is_some());
        drop(claimed);
        assert_eq!(keys_of_claims(&store).len(), keys, "{how:?}");
        if let Some(again) = again {
            let done = Release::success();
            other.release(&again.task, &again.claim.id, &done, Timestamp::now()).unwrap().unwrap();
        }
    }
    // Its lock goes, and its process lives on: others must know.
    let claimed = claim(&one, ClaimKind::Held);
    let name = claimed.task.clone();
    drop(claimed);
    assert_eq!(keys_of_claims(&store).len(), 1);
    store.suspects(Timestamp::now()).unwrap();
    assert_eq!(other.reclaim(Timestamp::now()).unwrap().0.len(), 1, "the owner of {name} is gone");
    let mut pauses = Pauses::lasting(Duration::from_secs(30));
    while !keys_of_claims(&store).is_empty() {
        assert!(pauses.pause(), "the one who took the task away deletes the key");
    }
}

#[test]
fn a_claim_is_not_made_for_a_process_whose_lease_has_ended() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    let store = Arc::new(open(&url, "one", Duration::from_secs(600)));
    let one = Vault::new(Arc::clone(&store) as Arc<dyn Store>, Terms::default());
    let name: TaskName = "x".parse().unwrap();
    one.add(&name, b"text", Timestamp::now()).unwrap();
    let first = store.hold(&tollgate_vault::ClaimId::new().unwrap()).unwrap().unwrap();
    // As if this process had hung since it looked at its lease, until the engine ended it.
    let lease = first.token().unwrap();
    let body = serde_json::json!({ "ID": lease.to_string() });
    assert!(cluster.ports().iter().any(|port| post(*port, "/v3/lease/revoke", &body).is_some()));
    let request = ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Held, renamed_in: false };
    let fault = one.claim(&name, &request, Timestamp::now()).unwrap_err();
    assert!(fault.to_string().contains("lease of this process"), "{fault}");
    assert!(one.get(&name, Timestamp::now()).unwrap().slot.agent().is_none(), "nobody owns it");
    let claimed = one.claim(&name, &request, Timestamp::now()).unwrap().unwrap();
    assert_ne!(claimed.claim.hold, Some(lease), "with a new lease it can be claimed");
}
