//! The history of each task: who owned it when, and which way it took.
//!
//! If other machines share the tasks, their lines are in their own ledgers, and lines of two processes of this machine may be
//! in another order than their steps. Then each claim is checked alone: it begins once, and its end fits its beginning.

use std::collections::HashMap;
use std::collections::VecDeque;

use jiff::Timestamp;

use crate::event::{
    ClaimRenewed, Decision, EndedAttempt, TaskClaimed, TaskDecided, TaskReclaimed, TaskReleased,
};
use crate::ledger::Line;
use crate::name::{Agent, ClaimId, StepId};
use crate::task::{Mode, State, Verdict};

use super::finding::{Findings, Rule};
use super::record::Records;

/// How many steps of a task are remembered. A step is recorded twice only by a retry, so the second line comes soon.
const REMEMBERED: usize = 8;

/// The claim that owns a task: it has not ended.
struct CurrentOwner {
    seq: u64,
    id: ClaimId,
    agent: Option<Agent>,
    epoch: u64,
    mode: Mode,
    from: State,
}

#[derive(Default)]
struct TaskHistory {
    open: Vec<CurrentOwner>,
    epoch: u64,
    approved: bool,
    /// Their ids, what was done, and to whose claim.
    steps: VecDeque<(StepId, &'static str, Option<Agent>)>,
}

pub(super) struct TaskHistories {
    tasks: HashMap<String, TaskHistory>,
    shared: bool,
    /// The time of the first line. Claims that are older have their beginning elsewhere.
    began: Option<Timestamp>,
    pub(super) claims: u64,
}

impl TaskHistories {
    pub(super) fn new(shared: bool) -> Self {
        Self { tasks: HashMap::new(), shared, began: None, claims: 0 }
    }

    pub(super) fn count(&self) -> u64 {
        self.tasks.len() as u64
    }

    /// A line has this time.
    pub(super) fn began(&mut self, time: Timestamp) {
        self.began.get_or_insert(time);
    }

    /// The history of a task, unless this step of it has a line already.
    fn task(
        &mut self,
        line: &Line,
        task: &str,
        step: &StepId,
        word: &'static str,
        findings: &mut Findings,
    ) -> Option<&mut TaskHistory> {
        if !self.tasks.contains_key(task) {
            self.tasks.insert(task.to_owned(), TaskHistory::default());
        }
        let history = self.tasks.get_mut(task)?;
        if history.steps.iter().any(|(id, kind, of)| id == step && *kind == word && *of == line.agent) {
            findings.task(line.seq, Rule::RepeatedStep, task, format!("the step {step} has a line already"));
            return None;
        }
        if history.steps.len() == REMEMBERED {
            history.steps.pop_front();
        }
        history.steps.push_back((step.clone(), word, line.agent.clone()));
        Some(history)
    }

    pub(super) fn claimed(
        &mut self,
        line: &Line,
        claimed: &TaskClaimed,
        records: &mut Records,
        findings: &mut Findings,
    ) {
        self.claims += 1;
        records.claimed(&claimed.claim_id);
        let (shared, name, seq) = (self.shared, claimed.task.as_str(), line.seq);
        let is_known = self.tasks.contains_key(name);
        let Some(history) = self.task(line, name, &claimed.step, "claim", findings) else { return };
        let mut flaw = |rule, reason| findings.task(seq, rule, name, reason);
        let owner = agent(line.agent.as_ref());
        if !shared && let Some(open) = history.open.last() {
            let other = agent(open.agent.as_ref());
            flaw(
                Rule::TwoOwners,
                format!("{owner} claimed it, but {other} has owned it since line {}", open.seq),
            );
            history.open.clear();
        }
        if claimed.epoch <= history.epoch {
            let reason = format!("the fencing number {} is not above {}", claimed.epoch, history.epoch);
            flaw(Rule::OldEpoch, reason);
        }
        match claimed.from {
            State::NeedsAction => {}
            // What happened before the first line, or on another machine, is not known.
            State::Approved if history.approved || !is_known || shared => {}
            State::Approved => {
                flaw(Rule::NeverApproved, format!("{owner} claimed it as approved, but nobody approved it"));
            }
            from => flaw(Rule::IllegalStep, format!("{owner} claimed it in {from}")),
        }
        history.epoch = history.epoch.max(claimed.epoch);
        history.approved = false;
        history.open.push(CurrentOwner {
            seq,
            id: claimed.claim_id.clone(),
            agent: line.agent.clone(),
            epoch: claimed.epoch,
            mode: claimed.mode,
            from: claimed.from,
        });
    }

    pub(super) fn renewed(&mut self, line: &Line, renewed: &ClaimRenewed, findings: &mut Findings) {
        let name = renewed.task.as_str();
        let is_known = self.tasks.contains_key(name) && !self.shared;
        let Some(history) = self.task(line, name, &renewed.step, "renew", findings) else { return };
        let owns = history.open.iter().any(|open| open.id == renewed.claim_id && open.agent == line.agent);
        if is_known && !owns {
            let reason = format!(
                "{} renewed {}, which is not its claim",
                agent(line.agent.as_ref()),
                renewed.claim_id
            );
            findings.task(line.seq, Rule::NotTheOwner, name, reason);
        }
    }

    pub(super) fn released(
        &mut self,
        line: &Line,
        released: &TaskReleased,
        to: State,
        findings: &mut Findings,
    ) {
        let name = released.task.as_str();
        let mode = self.ended(line, name, &released.step, "release", &released.attempt, findings);
        let result = released.attempt.result;
        let reason = match to {
            State::InProgress | State::Approved => format!("it was released to {to}"),
            State::Done if result == Verdict::Failure => "failed work went to Done".to_owned(),
            State::Done if mode == Some(Mode::Draft) => "a draft went to Done without a person".to_owned(),
            _ => return,
        };
        findings.task(line.seq, Rule::IllegalStep, name, reason);
    }

    pub(super) fn reclaimed(
        &mut self,
        line: &Line,
        reclaimed: &TaskReclaimed,
        to: State,
        findings: &mut Findings,
    ) {
        let name = reclaimed.task.as_str();
        if let Some(attempt) = &reclaimed.attempt {
            self.ended(line, name, &reclaimed.step, "reclaim", attempt, findings);
            // Nobody saw it finished, and it may have been executed.
            if matches!(to, State::Done | State::Approved | State::InProgress) {
                let reason = format!("it was reclaimed to {to}");
                findings.task(line.seq, Rule::IllegalStep, name, reason);
            }
            return;
        }
        let Some(history) = self.task(line, name, &reclaimed.step, "reclaim", findings) else { return };
        // A claim that was rolled back, or whose task was moved by hand.
        if let Some(at) = history.open.iter().rposition(|open| open.agent == line.agent) {
            let open = history.open.remove(at);
            history.approved = to == State::Approved && open.from == State::Approved;
        }
    }

    /// The claim of this attempt has ended. Returns what its owner was to do, if that is known.
    fn ended(
        &mut self,
        line: &Line,
        name: &str,
        step: &StepId,
        word: &'static str,
        attempt: &EndedAttempt,
        findings: &mut Findings,
    ) -> Option<Mode> {
        let shared = self.shared;
        let began = self.began.map_or(0, |began| u64::try_from(began.as_millisecond()).unwrap_or(0));
        let history = self.task(line, name, step, word, findings)?;
        history.approved = false;
        let Some(at) = history.open.iter().position(|open| open.id == attempt.claim_id) else {
            // A fencing number follows the clock: a claim that is older than the ledger has its line elsewhere. So has a claim
            // of another machine, or of a process that died after the engine had its line.
            if !shared && attempt.epoch > began {
                let claim = &attempt.claim_id;
                let reason = format!("the claim {claim} ended, but nobody had it");
                findings.task(line.seq, Rule::NotTheOwner, name, reason);
            }
            return None;
        };
        let open = history.open.remove(at);
        if open.agent != line.agent || open.epoch != attempt.epoch {
            let (by, owner) = (agent(line.agent.as_ref()), agent(open.agent.as_ref()));
            let reason = format!(
                "{by} ended the claim of {owner} with the fencing number {}, but line {} has {}",
                attempt.epoch, open.seq, open.epoch
            );
            findings.task(line.seq, Rule::NotTheOwner, name, reason);
        }
        Some(open.mode)
    }

    pub(super) fn decided(&mut self, line: &Line, decided: &TaskDecided, findings: &mut Findings) {
        let (shared, name) = (self.shared, decided.task.as_str());
        let word = decided.decision.as_str();
        let Some(history) = self.task(line, name, &decided.step, word, findings) else { return };
        history.approved = matches!(decided.decision, Decision::Approve { .. });
        if !shared && let Some(open) = history.open.last() {
            let owner = agent(open.agent.as_ref());
            let reason = format!("the decision `{word}`, while {owner} has owned it since line {}", open.seq);
            findings.task(line.seq, Rule::IllegalStep, name, reason);
        }
    }
}

fn agent(agent: Option<&Agent>) -> String {
    agent.map_or_else(|| "nobody".to_owned(), |agent| format!("`{agent}`"))
}
