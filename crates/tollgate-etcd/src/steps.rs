//! Steps: each is one transaction of the engine.
//!
//! Invariant: a transaction compares the task with the revision that was judged, and changes that revision. So it is carried
//! out at most once, and only on what its author has seen. The line of its step, which it writes, shows that it was.

use jiff::Timestamp;
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::StepId;
use tollgate_base::task::TaskName;
use tollgate_vault::brief::urgency_of;
use tollgate_vault::claim::Tenure;
use tollgate_vault::state::{Slot, Verb};
use tollgate_vault::step::TextEdit;
use tollgate_vault::store::Landed;
use tollgate_vault::{Claim, Step, StepOutcome};

use crate::client::CallError;
use crate::inside::Inside;
use crate::layout::{self, LineValue, TaskHead, write_task};
use crate::message::{Act, Condition, KeyValue, Txn};
use crate::named::revision_of;
use crate::process_lease::{HeldMark, lease_of};
use crate::queue;

/// The largest text. etcd takes requests of 1.5 MiB, and the claim record and the ledger line need some room.
const MAX_TEXT: usize = 1 << 20;

impl Inside {
    /// The answer to a step that was taken before; else somebody else was faster.
    fn earlier_answer(&self, step: &StepId) -> Result<StepOutcome> {
        let success = vec![Act::get(self.layout.line(step))];
        let found = self.called(self.client.txn(&Txn { success, ..Txn::default() }))?;
        Ok(answer_in(found.found().flatten().next())?.map_or(StepOutcome::Conflict, StepOutcome::Done))
    }

    pub(crate) fn take(&self, step: &Step) -> Result<StepOutcome> {
        let Some(revision) = revision_of(&step.version) else { return Ok(StepOutcome::Conflict) };
        let Some((text, since)) = self.text_at(&step.task, &step.from, revision)? else {
            return self.earlier_answer(&step.id);
        };
        if step.check.is_some_and(|sha256| sha256 != Digest::of(&text)) {
            return Ok(StepOutcome::Changed);
        }
        let waited = self.layout.in_queue(&step.task, &step.from, &urgency_of(&text), since);
        let text = step.edited(&text);
        check_size(&text)?;
        let mut name = step.task.clone();
        for _ in 0..2 {
            match self.try_step(step, &name, revision, &text, waited.as_deref())? {
                Some(outcome) => return Ok(outcome),
                // Its name is taken where it goes.
                None => name = step.fallback_name(),
            }
        }
        Err(Fault::invalid(format!("`{}` and `{name}` are both taken in `{}`", step.task, step.to)))
    }

    /// One transaction. `None`: there is a task of this name where it goes.
    fn try_step(
        &self,
        step: &Step,
        name: &TaskName,
        task_revision: i64,
        text: &[u8],
        waited: Option<&str>,
    ) -> Result<Option<StepOutcome>> {
        let (from, to) = (self.layout.task(&step.task, &step.from), self.layout.task(name, &step.to));
        let mut change =
            KeyChanges { compare: vec![Condition::at(&from, task_revision)], ..KeyChanges::default() };
        if to != from {
            change.compare.push(Condition::absent(&to));
            change.delete(from);
        }
        let waits = self.layout.in_queue(name, &step.to, &urgency_of(text), step.at);
        if waited != waits.as_deref() {
            change.success.extend(waited.into_iter().flat_map(|key| queue::leave(&self.layout, key)));
            change.success.extend(waits.iter().flat_map(|key| queue::enter(&self.layout, key)));
        }
        let record = step.record_after(text);
        let claim = record.as_ref().and_then(|record| record.claim.clone());
        let new_claim = claim.as_ref().filter(|_| step.verb == Some(Verb::Claim));
        let head = TaskHead { since: step.at, machine: self.machine.clone(), record };
        change.put(to.clone(), write_task(&head, text)?);
        let value = LineValue {
            machine: self.machine.clone(),
            landed: Some((name.clone(), step.to.clone())),
            events: step.events.clone(),
        };
        change.success.push(Act::put(self.layout.line(&step.id), layout::write(&value)?));
        let ended = match &step.edit {
            TextEdit::Close(claim, _) => Some(claim),
            _ => None,
        };
        if let Some(ended) = ended {
            self.forget_owner(&mut change, ended);
        }
        if let Some(claim) = &claim {
            self.keep_owner(&mut change, claim, new_claim.is_some())?;
        }
        #[cfg(test)]
        if !self.compares.load(std::sync::atomic::Ordering::SeqCst) {
            change.compare.clear();
        }
        // What to do if a condition does not hold is asked for then: it is rare, and every node would have to carry it.
        let txn = Txn { compare: change.compare, success: change.success, failure: Vec::new() };
        let answer = match self.client.txn(&txn) {
            Ok(answer) => answer,
            Err(CallError::Unanswered(fault)) => return Ok(Some(StepOutcome::Unknown(fault))),
            Err(error) => return Err(error.fault(&self.client.shown)),
        };
        if !answer.succeeded {
            return self.not_taken(step, task_revision, new_claim);
        }
        if let Some(claim) = new_claim {
            self.process_lease.mark(&claim.id, HeldMark::Made(to));
        }
        let revision = answer.header.revision;
        let at = |(key, value): (String, Vec<u8>)| KeyValue {
            key: key.into_bytes(),
            value,
            create_revision: revision,
            mod_revision: revision,
        };
        let put: Vec<_> = change.put.into_iter().map(at).collect();
        self.learn(&put, &change.gone, revision);
        if let Some(ended) = ended {
            self.process_lease.mark(&ended.id, HeldMark::Nothing);
        }
        self.copy_to_journal(&step.events);
        let landed = Landed { task: name.clone(), slot: step.to.clone(), path: None };
        Ok(Some(StepOutcome::Done(landed)))
    }

    /// Deletes the key of a claim that ends.
    fn forget_owner(&self, change: &mut KeyChanges, ended: &Claim) {
        if ended.hold.is_none() {
            change.delete(self.layout.owner(&ended.id));
        } else if self.with_view(|view| view.has_left(&ended.id)).unwrap_or(false) {
            change.delete(self.layout.left(&ended.id));
        }
    }

    /// Makes sure that the engine knows as long as the owner is alive.
    fn keep_owner(&self, change: &mut KeyChanges, claim: &Claim, is_new: bool) -> Result<()> {
        match (&claim.tenure, claim.hold) {
            (Tenure::Held, Some(lease)) if is_new => {
                change.compare.push(Condition::exists(self.layout.process(lease)));
                self.process_lease.mark(&claim.id, HeldMark::Sent);
            }
            (Tenure::Held, _) => {}
            (Tenure::Leased(_), _) => {
                let lease = lease_of(&claim.id);
                if is_new || !self.called(self.client.keep_alive(lease, self.client.deadline))? {
                    self.called(self.client.grant(lease, self.lease))?;
                    let key = self.layout.owner(&claim.id);
                    change.success.push(Act::put_leased(&key, &self.machine, lease));
                    change.put.push((key, self.machine.clone().into_bytes()));
                }
            }
        }
        Ok(())
    }

    /// Why a step was not taken. `None`: there is a task of this name where it goes.
    fn not_taken(
        &self,
        step: &Step,
        task_revision: i64,
        new_claim: Option<&Claim>,
    ) -> Result<Option<StepOutcome>> {
        let from = self.layout.task(&step.task, &step.from);
        let lease = new_claim.and_then(|claim| claim.hold);
        let mut success = vec![Act::get(self.layout.line(&step.id)), Act::get(&from)];
        success.extend(lease.map(|lease| Act::get(self.layout.process(lease))));
        let answer = match self.client.txn(&Txn { success, ..Txn::default() }) {
            Ok(answer) => answer,
            // An earlier try of the transaction may have been carried out.
            Err(error) => return Ok(Some(StepOutcome::Unknown(error.fault(&self.client.shown)))),
        };
        let now = answer.header.revision;
        let mut found = answer.found().map(|kvs| kvs.into_iter().next());
        let mut next = || found.next().flatten();
        let (line, task, process) = (next(), next(), next());
        if let Some(landed) = answer_in(line)? {
            if let Some(claim) = new_claim {
                let key = self.layout.task(&landed.task, &landed.slot);
                self.process_lease.mark(&claim.id, HeldMark::Made(key));
            }
            return Ok(Some(StepOutcome::Done(landed)));
        }
        if let Some(claim) = new_claim {
            self.process_lease.mark(&claim.id, HeldMark::Nothing);
        }
        if let Some(lease) = lease.filter(|_| process.is_none()) {
            self.process_lease.lost(lease.cast_signed());
            let what = "the lease of this process has ended: claim again".to_owned();
            return Err(Fault::Unreachable { remote: self.client.shown.clone(), what });
        }
        if task.as_ref().is_some_and(|task| task.mod_revision == task_revision) {
            return Ok(None);
        }
        match task {
            Some(task) => self.learn(&[task], &[], now),
            None => self.learn(&[], &[from], now),
        }
        Ok(Some(StepOutcome::Conflict))
    }

    pub(crate) fn put_new(
        &self,
        id: &StepId,
        task: &TaskName,
        text: &[u8],
        now: Timestamp,
    ) -> Result<StepOutcome> {
        check_size(text)?;
        let slot = Slot::NEEDS_ACTION;
        let (key, line) = (self.layout.task(task, &slot), self.layout.line(id));
        let (value, landed) = (write_task(&TaskHead::new(now), text)?, Some((task.clone(), slot.clone())));
        let told = layout::write(&LineValue { machine: self.machine.clone(), landed, events: Vec::new() })?;
        let put = |(key, value): (&String, &Vec<u8>)| Act::put(key, value);
        let waits = self.layout.in_queue(task, &slot, &urgency_of(text), now);
        let waits = waits.iter().flat_map(|key| queue::enter(&self.layout, key));
        let answer = self.client.txn(&Txn {
            compare: vec![Condition::absent(&key), Condition::absent(&line)],
            success: [(&key, &value), (&line, &told)].into_iter().map(put).chain(waits).collect(),
            failure: vec![Act::get(&line)],
        });
        match answer {
            Ok(answer) if answer.succeeded => {
                let revision = answer.header.revision;
                let key = key.into_bytes();
                let kv = KeyValue { key, value, create_revision: revision, mod_revision: revision };
                self.learn(&[kv], &[], revision);
                Ok(StepOutcome::Done(Landed { task: task.clone(), slot, path: None }))
            }
            Ok(answer) => {
                Ok(answer_in(answer.found().flatten().next())?
                    .map_or(StepOutcome::Conflict, StepOutcome::Done))
            }
            Err(CallError::Unanswered(fault)) => Ok(StepOutcome::Unknown(fault)),
            Err(error) => Err(error.fault(&self.client.shown)),
        }
    }
}

/// What a transaction changes, for the engine and for the view.
#[derive(Default)]
struct KeyChanges {
    compare: Vec<Condition>,
    success: Vec<Act>,
    put: Vec<(String, Vec<u8>)>,
    gone: Vec<String>,
}

impl KeyChanges {
    fn put(&mut self, key: String, value: Vec<u8>) {
        self.success.push(Act::put(&key, &value));
        self.put.push((key, value));
    }

    fn delete(&mut self, key: String) {
        self.success.push(Act::delete(&key));
        self.gone.push(key);
    }
}

/// The answer that a line of the ledger has for its step.
fn answer_in(line: Option<KeyValue>) -> Result<Option<Landed>> {
    line.map_or(Ok(None), |kv| layout::read::<LineValue>(&kv.value).map(|line| line.landed()))
}

fn check_size(text: &[u8]) -> Result<()> {
    if text.len() > MAX_TEXT {
        return Err(Fault::invalid(format!(
            "a task on etcd has at most {MAX_TEXT} bytes, this has {}",
            text.len()
        )));
    }
    Ok(())
}
