//! Random verbs, hand moves, edits and deaths on the folder store and on the store in memory: both must give the same
//! answers and end in the same state. The store in memory is one map under one mutex; so it is the model.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use tollgate_base::settings::{Durability, Role};
use tollgate_vault::event::{Journal, MemoryJournal};
use tollgate_vault::roles::Roles;
use tollgate_vault::state::Slot;
use tollgate_vault::{
    ClaimId, ClaimKind, ClaimRequest, FolderOptions, FolderStore, Release, State, TaskName, Terms, Vault,
};

use crate::memory::MemoryStore;

const AGENTS: [&str; 3] = ["cloud", "local", "stranger"];

#[derive(Debug, Clone)]
enum Op {
    Add(u8),
    Claim(u8, u8),
    /// Of the claim made last for this task, however old.
    Release(u8, u8),
    GiveBack(u8),
    Progress(u8),
    Verify(u8),
    Approve(u8),
    Reject(u8),
    LetTimePass,
    Reclaim,
    /// Never into somebody's hands: how long a file without a claim may stay there depends on its dates, which only
    /// one of the two has.
    Move(u8, u8, u8),
    Write(u8, u8),
}

fn op() -> impl Strategy<Value = Op> {
    let (task, agent, slot) = (0..3u8, 0..3u8, 0..7u8);
    prop_oneof![
        3 => task.clone().prop_map(Op::Add),
        4 => (task.clone(), agent).prop_map(|(t, a)| Op::Claim(t, a)),
        4 => (task.clone(), 0..4u8).prop_map(|(t, h)| Op::Release(t, h)),
        1 => task.clone().prop_map(Op::GiveBack),
        1 => task.clone().prop_map(Op::Progress),
        1 => task.clone().prop_map(Op::Verify),
        3 => task.clone().prop_map(Op::Approve),
        1 => task.clone().prop_map(Op::Reject),
        1 => Just(Op::LetTimePass),
        2 => Just(Op::Reclaim),
        1 => (task.clone(), slot.clone(), 2..7u8).prop_map(|(t, a, b)| Op::Move(t, a, b)),
        1 => (task, slot).prop_map(|(t, s)| Op::Write(t, s)),
    ]
}

fn name(task: u8) -> TaskName {
    format!("t{task}").parse().unwrap()
}

/// Task 0 asks for nothing, 1 for something harmless, 2 for something sensitive.
fn text(task: u8) -> &'static str {
    ["text", "---\naction: triage\n---\n", "---\naction: pay\n---\nno newline"][usize::from(task)]
}

fn slot(at: u8) -> Slot {
    match at {
        0 => Slot::InProgress("cloud".parse().unwrap()),
        1 => Slot::InProgress("local".parse().unwrap()),
        2 => Slot::NEEDS_ACTION,
        3 => Slot::PENDING,
        4 => Slot::APPROVED,
        5 => Slot::Free(State::Done),
        _ => Slot::Free(State::Rejected),
    }
}

type ByHand = Box<dyn Fn(&TaskName, &Slot, &Slot, Option<&[u8]>)>;

struct Side {
    vault: Vault,
    claims: BTreeMap<u8, (TaskName, ClaimId)>,
    now: i64,
    by_hand: ByHand,
}

fn terms() -> Terms {
    let role = |allowed: &[&str], sensitive: &[&str]| Role {
        role: None,
        allowed: allowed.iter().map(|a| (*a).to_owned()).collect(),
        sensitive: sensitive.iter().map(|a| (*a).to_owned()).collect(),
    };
    let roles = [("cloud", role(&["triage"], &["pay"])), ("local", role(&["pay"], &[]))];
    let roles = Roles::of(roles.into_iter().map(|(name, role)| (name.parse().unwrap(), role)).collect());
    Terms { roles, lease: Duration::from_secs(60), max_attempts: 2, retry: Vec::new(), approve_by_move: true }
}

fn memory() -> Side {
    let store = Arc::new(MemoryStore::default());
    let person = Arc::clone(&store);
    Side {
        vault: Vault::new(store, terms()),
        claims: BTreeMap::new(),
        now: 0,
        by_hand: Box::new(move |task, from, to, text| person.by_hand(task, from, to, text)),
    }
}

fn folder() -> Side {
    let folder = tempfile::tempdir().unwrap();
    let journal = Arc::new(MemoryJournal::default());
    let options = FolderOptions {
        durability: Durability::Fast,
        settle: Duration::from_secs(2),
        journal: Arc::clone(&journal) as Arc<dyn Journal>,
        quiet: None,
    };
    let store = FolderStore::open(folder.path(), options).unwrap();
    let path = move |task: &TaskName, slot: &Slot| -> PathBuf {
        folder.path().join(slot.to_string()).join(task.as_str())
    };
    Side {
        vault: Vault::new(Arc::new(store), terms()),
        claims: BTreeMap::new(),
        now: 0,
        by_hand: Box::new(move |task, from, to, bytes| {
            let (from, to) = (path(task, from), path(task, to));
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            if fs::rename(&from, &to).is_ok()
                && let Some(bytes) = bytes
            {
                fs::write(&to, bytes).unwrap();
            }
        }),
    }
}

impl Side {
    /// What came of it, without what is random.
    fn run(&mut self, op: &Op) -> String {
        self.now += 1;
        let now = Timestamp::from_second(10_000_000_000 + self.now).unwrap();
        let request = |agent: u8| ClaimRequest {
            agent: AGENTS[usize::from(agent)].parse().unwrap(),
            kind: ClaimKind::Leased,
            renamed_in: false,
        };
        let known = |task: u8| {
            let unknown = || (name(task), "c-0000000000000000".parse().unwrap());
            self.claims.get(&task).cloned().unwrap_or_else(unknown)
        };
        let owned = |answer: Option<&State>| answer.map_or("not the owner".to_owned(), ToString::to_string);
        match op {
            Op::Add(task) => {
                format!("{:?}", self.vault.add(&name(*task), text(*task).as_bytes(), now).is_ok())
            }
            Op::Claim(task, agent) => match self.vault.claim(&name(*task), &request(*agent), now).unwrap() {
                Ok(claimed) => {
                    let told = format!("{:?}", claimed.claim.mode);
                    self.claims.insert(*task, (claimed.task, claimed.claim.id));
                    told
                }
                Err(denied) => format!("{:?}", denied.reason()),
            },
            Op::Release(task, how) => {
                let (task, id) = known(*task);
                let how = match how {
                    0 => Release::success(),
                    1 => Release::failure("no"),
                    2 => Release { to: Some(State::Rejected), ..Release::failure("never") },
                    _ => Release { to: Some(State::PendingApproval), ..Release::success() },
                };
                match self.vault.release(&task, &id, &how, now).unwrap() {
                    Ok(landed) => owned(Some(&landed.slot.state())),
                    Err(_) => owned(None),
                }
            }
            Op::GiveBack(task) => {
                let (task, id) = known(*task);
                format!(
                    "{:?}",
                    self.vault.release(&task, &id, &Release::give_back("stop"), now).unwrap().is_ok()
                )
            }
            Op::Progress(task) => {
                let (task, id) = known(*task);
                format!("{:?}", self.vault.progress(&task, &id, "on it", now).unwrap() == Ok(()))
            }
            Op::Verify(task) => {
                let (task, id) = known(*task);
                format!("{:?}", self.vault.verify(&task, &id, now).unwrap())
            }
            Op::Approve(task) => {
                format!("{:?}", self.vault.approve(&name(*task), "me", None, now).unwrap().is_ok())
            }
            Op::Reject(task) => {
                format!("{:?}", self.vault.reject(&name(*task), "me", "no", now).unwrap().is_ok())
            }
            Op::LetTimePass => {
                self.now += 61;
                String::new()
            }
            Op::Reclaim => {
                let (done, faults) = self.vault.reclaim(now).unwrap();
                assert!(faults.is_empty(), "{faults:?}");
                let mut told: Vec<_> = done.iter().map(|r| (r.task.as_str()[..2].to_owned(), r.to)).collect();
                told.sort();
                format!("{told:?}")
            }
            Op::Move(task, from, to) => {
                let to = slot(*to);
                // Nothing is there: a person's file manager would ask before it replaces something.
                let there = self.vault.store().scan(to.state(), now).unwrap().tasks;
                if !there.iter().any(|listed| listed.name == name(*task)) {
                    (self.by_hand)(&name(*task), &slot(*from), &to, None);
                }
                String::new()
            }
            Op::Write(task, at) => {
                (self.by_hand)(&name(*task), &slot(*at), &slot(*at), Some(text(*task).as_bytes()));
                String::new()
            }
        }
    }

    /// Everything that can be seen, without what is random.
    fn state(&self) -> Vec<String> {
        let now = Timestamp::from_second(10_000_000_000 + self.now).unwrap();
        let mut seen = Vec::new();
        for state in State::ALL {
            for listed in self.vault.store().scan(state, now).unwrap().tasks {
                let short = listed.name.as_str()[..2].to_owned();
                let told = self.vault.get(&listed.name, now).unwrap();
                let bytes = self.vault.store().read(&told, u64::MAX).unwrap().unwrap();
                let blocks = String::from_utf8(bytes).unwrap().matches("<!-- tollgate").count();
                let record = &told.record;
                seen.push(format!(
                    "{} {short} {} {:?} {blocks} {:?} {:?}",
                    listed.slot,
                    record.attempts,
                    record.reason,
                    record.claim.as_ref().map(|claim| (&claim.agent, claim.mode, claim.sensitive)),
                    (record.approval.is_some(), record.offered.is_some()),
                ));
            }
        }
        seen.sort();
        let mut kinds = BTreeMap::<String, usize>::new();
        let events = self.vault.store().events("", usize::MAX).unwrap().0;
        for event in events.iter().filter(|event| event.event.action_type() != "CLAIM_LOST") {
            *kinds.entry(format!("{:?}", event.event.action_type())).or_default() += 1;
        }
        seen.push(format!("{kinds:?}"));
        seen
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn folders_do_what_the_model_does(ops in prop::collection::vec(op(), 1..40)) {
        let (mut model, mut real) = (memory(), folder());
        for (at, op) in ops.iter().enumerate() {
            let (expected, found) = (model.run(op), real.run(op));
            prop_assert_eq!(&expected, &found, "answer to {}: {:?}", at, op);
            prop_assert_eq!(model.state(), real.state(), "after {}: {:?}", at, op);
        }
    }
}
