//! Several clones want the same task: one gets it, whoever sleeps gets nothing twice, whoever is silent loses it.

use std::sync::Barrier;
use std::time::Instant;

use super::*;
use crate::vault::Reason;

#[test]
fn of_eight_clones_one_gets_the_task() {
    let ground = Ground::new();
    let clones: Vec<Clone> = (0..8).map(|n| ground.clone(&format!("c{n}"))).collect();
    for round in 0..3 {
        let task = format!("t{round}");
        clones[0].vault.add(&name(&task), b"text\n").unwrap();
        for clone in &clones {
            clone.store.sync().unwrap();
        }
        let start = Barrier::new(clones.len());
        let won: Vec<Option<Claimed>> = std::thread::scope(|scope| {
            let claim = |(n, clone): (usize, &Clone)| {
                start.wait();
                match clone.vault.claim(&name(&task), &asked(&format!("a{n}")), now()).unwrap() {
                    Claiming::Claimed(claimed) => Some(*claimed),
                    Claiming::Not(not) => {
                        assert_eq!(not.reason, Reason::Lost);
                        None
                    }
                }
            };
            let threads: Vec<_> =
                clones.iter().enumerate().map(|one| scope.spawn(move || claim(one))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let winners: Vec<usize> = (0..8).filter(|n| won[*n].is_some()).collect();
        assert_eq!(winners.len(), 1, "{winners:?}");
        let path = format!("In_Progress/a{}/{task}.md", winners[0]);
        assert_eq!(
            ground.on_branch().into_iter().filter(|at| at.contains(&task)).collect::<Vec<_>>(),
            [path]
        );
        for (clone, claimed) in clones.iter().zip(won) {
            match claimed {
                Some(claimed) => assert_eq!(clone.release(&claimed), State::Done),
                None => {
                    assert_eq!(clone.journal.events().iter().filter(|event| lost(event, &task)).count(), 1);
                }
            }
        }
    }
    assert_eq!((ground.cards(), ground.is_linear()), (0, true), "no card outlives its task");
}

fn lost(event: &Event, task: &str) -> bool {
    event.kind == crate::vault::event::Kind::ClaimLost && event.payload.task.stem() == task
}

#[test]
fn a_clone_that_slept_does_not_claim_what_is_finished() {
    let ground = Ground::new();
    let (awake, asleep) = (ground.clone("a"), ground.clone("b"));
    awake.vault.add(&name("x"), b"text\n").unwrap();
    asleep.store.sync().unwrap();
    let claimed = awake.claim("x", "blue");
    assert_eq!(awake.release(&claimed), State::Done);
    // For this clone it still waits, and no card speaks against it.
    assert_eq!(asleep.slot("x"), Some(Slot::NEEDS_ACTION));
    assert_eq!(ground.cards(), 0);
    assert_eq!(asleep.refused("x", "red").reason, Reason::Lost);
    assert_eq!(asleep.slot("x"), Some(Slot::Free(State::Done)), "it has woken up");
    assert_eq!(ground.on_branch(), ["Done/x.md"]);
}

#[test]
fn a_silent_owner_is_replaced_after_a_whole_lease_and_fenced_off() {
    let ground = Ground::new();
    let lease = Duration::from_millis(400);
    let [slow, other] = ["a", "b"].map(|name| ground.clone_with(name, |options| options.lease = lease));
    slow.vault.add(&name("x"), b"text\n").unwrap();
    let claimed = slow.claim("x", "blue");
    let path = claimed.path.clone().unwrap();
    fs::write(&path, [fs::read(&path).unwrap().as_slice(), b"hours of work\n"].concat()).unwrap();
    let seen = Instant::now();
    other.store.sync().unwrap();
    assert_eq!(other.refused("x", "red").reason, Reason::Lost);
    let mut pauses = Pauses::lasting(Duration::from_secs(30));
    while other.vault.reclaim(now()).unwrap().0.is_empty() {
        assert!(pauses.pause(), "it is never taken back");
    }
    assert!(seen.elapsed() >= lease, "not a moment sooner: {:?}", seen.elapsed());
    let second = other.claim("x", "red");
    assert!(second.claim.epoch > claimed.claim.epoch, "the fencing number grows");
    let late = slow.vault.release(&claimed.task, &claimed.claim.id, &Release::success(), now()).unwrap();
    assert!(matches!(late, Owned::No(_)), "{late:?}");
    assert_eq!(slow.store.beat(&claimed.task, &claimed.claim.id).unwrap(), Beat::Lost);
    let aside = slow.store.kept_aside();
    assert_eq!(aside.len(), 1);
    assert!(fs::read_to_string(&aside[0]).unwrap().ends_with("hours of work\n"), "kept for a person");
    assert_eq!(other.release(&second), State::Done);
    assert_eq!(ground.on_branch(), ["Done/x.md"]);
    assert!(
        !ground.show("vault/Done/x.md").contains("hours of work"),
        "what is fenced off publishes nothing"
    );
}

#[test]
fn an_owner_that_is_heard_of_keeps_its_task_and_the_branch_does_not_grow() {
    let ground = Ground::new();
    let lease = Duration::from_millis(1500);
    let [owner, other] = ["a", "b"].map(|name| ground.clone_with(name, |options| options.lease = lease));
    owner.vault.add(&name("x"), b"text\n").unwrap();
    let claimed = owner.claim("x", "blue");
    let commits = || git(&ground.remote(), &["rev-list", "--count", "main"]);
    let before = commits();
    let began = Instant::now();
    while began.elapsed() < 2 * lease {
        assert_eq!(owner.store.beat(&claimed.task, &claimed.claim.id).unwrap(), Beat::Alive);
        other.store.sync().unwrap();
        assert_eq!(other.vault.reclaim(now()).unwrap().0, [], "after {:?}", began.elapsed());
    }
    // As a server does for all that its agents hold.
    while began.elapsed() < 4 * lease {
        owner.store.tend().unwrap();
        other.store.sync().unwrap();
        assert_eq!(other.vault.reclaim(now()).unwrap().0, [], "after {:?}", began.elapsed());
    }
    assert_eq!(commits(), before);
    assert_eq!(owner.release(&claimed), State::Done);
}

#[test]
fn the_clock_of_another_machine_is_not_believed() {
    let ground = Ground::new();
    let (owner, other) = (ground.clone("a"), ground.clone("b"));
    owner.vault.add(&name("x"), b"text\n").unwrap();
    let leased = Asked { wish: Wish::Leased, ..asked("blue") };
    // Claimed by a machine that lives in the year 2000: by the other's clock the lease is long over.
    let then = "2000-01-01T00:00:00Z".parse().unwrap();
    assert!(matches!(owner.vault.claim(&name("x"), &leased, then).unwrap(), Claiming::Claimed(_)));
    other.store.sync().unwrap();
    assert_eq!(other.vault.reclaim(now()).unwrap().0, []);
}
