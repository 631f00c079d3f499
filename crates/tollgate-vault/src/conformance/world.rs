//! A store under the rules, with short verbs for the checks.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::claim::{ClaimId, Mode};
use crate::denial::DenialReason;
use crate::event::Entry;
use crate::owner::{ClaimKind, ClaimRequest, Claimed};
use crate::roles::{Role, Roles};
use crate::rules::{self, Release, Terms};
use crate::state::{Slot, State};
use crate::step::Step;
use crate::store::Task;
use crate::vault::Vault;
use tollgate_base::name::Agent;
use tollgate_base::task::TaskName;

use super::harness::Harness;

pub(super) struct World {
    pub(super) harness: Harness,
    pub(super) vault: Vault,
}

/// Long after anything wrote the files, so that everything has settled.
pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(10_000_000_000 + second).expect("a valid time")
}

pub(super) const LEASE: i64 = 600;

pub(super) fn name(text: &str) -> TaskName {
    text.parse().expect("a valid name")
}

pub(super) fn agent(text: &str) -> Agent {
    text.parse().expect("a valid name")
}

pub(super) fn request(who: &str, kind: ClaimKind) -> ClaimRequest {
    ClaimRequest { agent: agent(who), kind, renamed_in: false }
}

pub(super) fn slot_of(who: &str) -> Slot {
    Slot::InProgress(agent(who))
}

pub(super) fn terms() -> Terms {
    let role = |allowed: &[&str], sensitive: &[&str]| Role {
        role: None,
        allowed: allowed.iter().map(|action| (*action).to_owned()).collect(),
        sensitive: sensitive.iter().map(|action| (*action).to_owned()).collect(),
    };
    let roles = [("cloud", role(&["triage"], &["pay"])), ("local", role(&["triage", "pay"], &[]))];
    Terms {
        roles: Roles::of(roles.into_iter().map(|(name, role)| (agent(name), role)).collect()),
        lease: Duration::from_secs(LEASE.unsigned_abs()),
        max_attempts: 3,
        retry: Vec::new(),
        approve_by_move: false,
    }
}

/// A step that claims the task for this agent.
pub(super) fn claim_step(task: &Task, who: &str) -> Step {
    let id = ClaimId::new().expect("random numbers");
    rules::claim(task, id, &agent(who), Mode::Execute, None, &terms(), at(1)).expect("a step").0
}

impl World {
    pub(super) fn new(harness: Harness) -> Self {
        Self::under(terms(), harness)
    }

    pub(super) fn under(terms: Terms, harness: Harness) -> Self {
        let vault = Vault::new(Arc::clone(&harness.store), terms);
        Self { harness, vault }
    }

    pub(super) fn add(&self, task: &str, text: &str) -> TaskName {
        self.vault.add(&name(task), text.as_bytes(), at(0)).expect("added").task
    }

    pub(super) fn get(&self, task: &TaskName) -> Task {
        self.vault.get(task, at(0)).expect("it exists")
    }

    pub(super) fn claim(&self, task: &TaskName, who: &str, kind: ClaimKind, now: i64) -> Claimed {
        match self.vault.claim(task, &request(who, kind), at(now)).expect("no fault") {
            Ok(claimed) => claimed,
            Err(denied) => panic!("`{who}` should have got `{task}`: {denied}"),
        }
    }

    pub(super) fn denied(&self, task: &TaskName, who: &str, now: i64) -> DenialReason {
        match self.vault.claim(task, &request(who, ClaimKind::Leased), at(now)).expect("no fault") {
            Ok(_) => panic!("`{who}` should not have got `{task}`"),
            Err(denied) => denied.reason(),
        }
    }

    pub(super) fn release(&self, claimed: &Claimed, how: &Release, now: i64) -> State {
        match self.vault.release(&claimed.task, &claimed.claim.id, how, at(now)).expect("no fault") {
            Ok(landed) => landed.slot.state(),
            Err(not_owner) => panic!("it should have been released: {not_owner}"),
        }
    }

    pub(super) fn slot(&self, task: &TaskName) -> Option<Slot> {
        self.harness.store.get(task, None, at(0)).expect("no fault").map(|task| task.slot)
    }

    pub(super) fn text(&self, task: &TaskName) -> String {
        let (_, text) = self.vault.get_with_text(task, u64::MAX, at(0)).expect("readable");
        String::from_utf8(text).expect("text")
    }

    pub(super) fn events(&self) -> Vec<Entry> {
        self.vault.store().events("", usize::MAX).expect("no fault").0
    }

    pub(super) fn kinds(&self, task: &TaskName) -> Vec<String> {
        let about = |event: &Entry| event.event.keys().task == Some(task.as_str());
        self.events()
            .iter()
            .filter(|event| about(event))
            .map(|event| event.event.action_type().to_owned())
            .collect()
    }

    pub(super) fn fenced_off(&self, task: &TaskName, id: &ClaimId, now: i64) {
        let denied = |answer: bool| assert!(answer, "an old claim can do nothing");
        assert!(!self.vault.verify(task, id, at(now)).expect("no fault"), "an old claim is not valid");
        denied(self.vault.renew(task, id, at(now)).expect("no fault").is_err());
        denied(self.vault.progress(task, id, "x", at(now)).expect("no fault").is_err());
        denied(self.vault.draft(task, id, "x", at(now)).expect("no fault").is_err());
        denied(self.vault.release(task, id, &Release::success(), at(now)).expect("no fault").is_err());
        denied(self.vault.release(task, id, &Release::give_back("x"), at(now)).expect("no fault").is_err());
    }
}
