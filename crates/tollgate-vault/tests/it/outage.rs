//! An outage, on a simulated clock: every command fails for a minute, and no task is rejected for that.

use std::sync::Arc;

use jiff::Timestamp;
use tollgate_vault::{ClaimKind, ClaimRequest, Claimed, Release, State, Terms, Vault};

use crate::memory::MemoryStore;

/// How long the outage lasts, in seconds.
const OUTAGE: i64 = 60;

const TASKS: usize = 3;

/// How a command ends during the outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fails {
    /// It fails.
    Alone,
    /// It kills its worker.
    WithItsWorker,
}

/// Workers try to claim a task in every second and fail after `takes` seconds, as long as the outage lasts. Returns how many
/// tasks were done, and how many rejected.
fn work(terms: Terms, workers: usize, takes: i64, first: i64, fails: Fails) -> (usize, usize) {
    let at = |second| Timestamp::from_second(10_000_000_000 + second).unwrap();
    let store = Arc::new(MemoryStore::default());
    let vault = Vault::new(Arc::clone(&store) as _, terms);
    let request = |number: usize| ClaimRequest {
        agent: format!("worker-{number}").parse().unwrap(),
        kind: ClaimKind::Held,
        renamed_in: false,
    };
    let count = |state| vault.store().scan(state, at(0)).unwrap().tasks.len();
    for task in 0..TASKS {
        vault.add(&format!("task-{task}").parse().unwrap(), b"do it", at(0)).unwrap();
    }
    let mut running: Vec<Option<(i64, Claimed)>> = (0..workers).map(|_| None).collect();
    for now in first..first + 10 * OUTAGE {
        vault.reclaim(at(now)).unwrap();
        for (number, job) in running.iter_mut().enumerate() {
            if let Some((_, claimed)) = job.take_if(|(since, _)| now - *since >= takes) {
                let how = match (now < OUTAGE, fails) {
                    (true, Fails::WithItsWorker) => {
                        store.kill(&claimed.claim.id);
                        continue;
                    }
                    (true, Fails::Alone) => Release::failure("exit status 1"),
                    (false, _) => Release::success(),
                };
                vault.release(&claimed.task, &claimed.claim.id, &how, at(now)).unwrap().unwrap();
            }
            if job.is_none() {
                *job = vault.claim_next(&request(number), at(now)).unwrap().0.map(|claimed| (now, claimed));
            }
        }
        if count(State::Done) + count(State::Rejected) == TASKS {
            break;
        }
    }
    (count(State::Done), count(State::Rejected))
}

#[test]
fn an_outage_of_a_minute_rejects_nothing() {
    for fails in [Fails::Alone, Fails::WithItsWorker] {
        for workers in [1, 3] {
            for takes in [0, 11] {
                for first in 0..OUTAGE {
                    let told = format!("{workers} workers from second {first}, {takes} s each, {fails:?}");
                    assert_eq!(work(Terms::default(), workers, takes, first, fails), (TASKS, 0), "{told}");
                }
            }
        }
    }
}

#[test]
fn without_pauses_an_outage_rejects_everything() {
    let terms = Terms { retry: Vec::new(), ..Terms::default() };
    assert_eq!(work(terms, 3, 1, 0, Fails::Alone), (0, TASKS));
}
