//! Several clones want the same task: one gets it, a clone that is behind does not, and a silent owner loses it.

use std::sync::Barrier;
use std::time::Instant;

use super::*;
use crate::DenialReason;

#[test]
fn of_eight_clones_one_gets_the_task() {
    let world = World::new();
    let machines: Vec<Machine> = (0..8).map(|n| world.machine(&format!("c{n}"))).collect();
    for round in 0..3 {
        let task = format!("t{round}");
        machines[0].add(&task, "text\n");
        for machine in &machines {
            machine.sync();
        }
        let start = Barrier::new(machines.len());
        let won: Vec<Option<Claimed>> = std::thread::scope(|scope| {
            let claim = |(n, machine): (usize, &Machine)| {
                start.wait();
                match machine.vault.claim(&name(&task), &request(&format!("a{n}")), now()).unwrap() {
                    Ok(claimed) => Some(claimed),
                    Err(denied) => {
                        assert_eq!(denied.reason(), DenialReason::Lost);
                        None
                    }
                }
            };
            let threads: Vec<_> =
                machines.iter().enumerate().map(|one| scope.spawn(move || claim(one))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let winners: Vec<usize> = (0..8).filter(|n| won[*n].is_some()).collect();
        assert_eq!(winners.len(), 1, "{winners:?}");
        let path = format!("In_Progress/a{}/{task}.md", winners[0]);
        assert_eq!(world.on_branch().into_iter().filter(|at| at.contains(&task)).collect::<Vec<_>>(), [path]);
        for (machine, claimed) in machines.iter().zip(won) {
            match claimed {
                Some(claimed) => assert_eq!(machine.release(&claimed), State::Done),
                None => {
                    assert_eq!(machine.events("CLAIM_LOST", &task), 1);
                }
            }
        }
    }
    assert_eq!((world.cards(), world.is_linear()), (0, true), "no card outlives its task");
}

#[test]
fn a_clone_that_is_behind_does_not_claim_a_finished_task() {
    let world = World::new();
    let (ahead, behind) = (world.machine("a"), world.machine("b"));
    ahead.add("x", "text\n");
    behind.sync();
    let claimed = ahead.claim("x", "blue");
    assert_eq!(ahead.release(&claimed), State::Done);
    // This clone still sees the task waiting, and no card says otherwise.
    assert_eq!(behind.slot("x"), Some(Slot::NEEDS_ACTION));
    assert_eq!(world.cards(), 0);
    assert_eq!(behind.denied("x", "red").reason(), DenialReason::Lost);
    assert_eq!(behind.slot("x"), Some(Slot::Free(State::Done)), "now it is up to date");
    assert_eq!(world.on_branch(), ["Done/x.md"]);
}

#[test]
fn a_silent_owner_is_replaced_after_a_whole_lease_and_fenced_off() {
    let world = World::new();
    let lease = Duration::from_millis(400);
    let [slow, other] = ["a", "b"].map(|name| world.machine_with(name, |options| options.lease = lease));
    slow.add("x", "text\n");
    let claimed = slow.claim("x", "blue");
    slow.work(&claimed, "hours of work\n");
    let seen = Instant::now();
    other.sync();
    assert_eq!(other.denied("x", "red").reason(), DenialReason::Lost);
    let mut pauses = Pauses::lasting(Duration::from_secs(30));
    while other.vault.reclaim(now()).unwrap().0.is_empty() {
        assert!(pauses.pause(), "it is never reclaimed");
    }
    assert!(seen.elapsed() >= lease, "not a moment sooner: {:?}", seen.elapsed());
    let second = other.claim("x", "red");
    assert!(second.claim.epoch > claimed.claim.epoch, "the fencing number grows");
    let late = slow.vault.release(&claimed.task, &claimed.claim.id, &Release::success(), now()).unwrap();
    assert!(late.is_err(), "{late:?}");
    assert!(!slow.store.heartbeat(&claimed.task, &claimed.claim.id).unwrap());
    let aside = slow.kept_aside();
    assert_eq!(aside.len(), 1);
    assert!(fs::read_to_string(&aside[0]).unwrap().ends_with("hours of work\n"), "kept for a person");
    assert_eq!(other.release(&second), State::Done);
    assert_eq!(world.on_branch(), ["Done/x.md"]);
    assert!(
        !world.show("vault/Done/x.md").contains("hours of work"),
        "an owner that is fenced off publishes nothing"
    );
}

#[test]
fn an_owner_that_sends_heartbeats_keeps_its_task_and_the_branch_does_not_grow() {
    let world = World::new();
    let lease = Duration::from_millis(1500);
    let [owner, other] = ["a", "b"].map(|name| world.machine_with(name, |options| options.lease = lease));
    owner.add("x", "text\n");
    let claimed = owner.claim("x", "blue");
    let commits = || git(&world.remote(), &["rev-list", "--count", "main"]);
    let before = commits();
    let began = Instant::now();
    while began.elapsed() < 2 * lease {
        assert!(owner.store.heartbeat(&claimed.task, &claimed.claim.id).unwrap());
        other.sync();
        assert_eq!(other.vault.reclaim(now()).unwrap().0, [], "after {:?}", began.elapsed());
    }
    // As a server does for the claims of its agents.
    while began.elapsed() < 4 * lease {
        owner.store.heartbeat_all().unwrap();
        other.sync();
        assert_eq!(other.vault.reclaim(now()).unwrap().0, [], "after {:?}", began.elapsed());
    }
    assert_eq!(commits(), before);
    assert_eq!(owner.release(&claimed), State::Done);
}

/// A server looks after its claims every few seconds, however long their lease is.
#[test]
fn a_claim_whose_owner_was_just_heard_is_not_pushed_again_and_not_called_renewed() {
    let world = World::new();
    let machine = world.machine("a");
    machine.add("x", "text\n");
    let claimed = machine.claim("x", "blue");
    let card = || git(&world.remote(), &["for-each-ref", "refs/tollgate/claims"]);
    let before = card();
    assert_eq!(machine.store.heartbeat_all().unwrap(), []);
    assert_eq!(card(), before);
    // As if it had last been heard a sixth of the lease ago.
    let mut seen = machine.store.seen_to_change().unwrap();
    for found in seen.cards.values_mut() {
        found.since_ms = found.since_ms.saturating_sub(100_000);
    }
    machine.store.keep(&seen).unwrap();
    assert_eq!(machine.store.heartbeat_all().unwrap(), std::slice::from_ref(&claimed.claim.id));
    assert_ne!(card(), before);
    assert_eq!(machine.store.heartbeat_all().unwrap(), []);
    assert_eq!(machine.release(&claimed), State::Done);
}

#[test]
fn the_clock_of_another_machine_is_not_trusted() {
    let world = World::new();
    let (owner, other) = (world.machine("a"), world.machine("b"));
    owner.add("x", "text\n");
    let leased = ClaimRequest { kind: ClaimKind::Leased, ..request("blue") };
    // The clock of the owner's machine says 2000. By the other machine's clock the lease expired long ago.
    let then = "2000-01-01T00:00:00Z".parse().unwrap();
    assert!(owner.vault.claim(&name("x"), &leased, then).unwrap().is_ok());
    other.sync();
    assert_eq!(other.vault.reclaim(now()).unwrap().0, []);
}

#[test]
fn a_heartbeat_of_an_old_claim_is_lost() {
    let world = World::new();
    let machine = world.machine("a");
    machine.add("x", "text\n");
    let first = machine.claim("x", "blue");
    let beat = |id| machine.store.heartbeat(&name("x"), id).unwrap();
    assert!(beat(&first.claim.id));
    let back =
        machine.vault.release(&first.task, &first.claim.id, &Release::give_back("stop"), now()).unwrap();
    back.unwrap();
    assert!(!beat(&first.claim.id), "nobody owns it");
    // The same agent on the same machine, so only the claim's id is different.
    let second = machine.claim("x", "blue");
    let card = || git(&world.remote(), &["for-each-ref", "refs/tollgate/claims"]);
    let before = card();
    assert!(!beat(&first.claim.id));
    assert_eq!(card(), before, "it kept nobody alive");
    assert!(beat(&second.claim.id));
    assert_ne!(card(), before);
    assert_eq!(machine.release(&second), State::Done);
}

#[test]
fn a_heartbeat_whose_answer_was_lost_is_not_a_lost_claim() {
    let world = World::new();
    let machine = world.machine("a");
    machine.add("x", "text\n");
    let claimed = machine.claim("x", "blue");
    let card = || git(&world.remote(), &["for-each-ref", "refs/tollgate/claims"]);
    let before = card();
    let away = lost_answers::goes_away_after_a_push(&world);
    let beat = || machine.store.heartbeat(&claimed.task, &claimed.claim.id);
    assert_eq!(beat().unwrap_err().code(), "REMOTE_UNREACHABLE");
    fs::rename(away, world.remote()).unwrap();
    assert_ne!(card(), before, "the remote took it");
    assert!(beat().unwrap());
    assert_eq!(machine.release(&claimed), State::Done);
}
