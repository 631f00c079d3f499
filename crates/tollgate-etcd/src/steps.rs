//! Steps: each is one transaction of the engine.
//!
//! Invariant: a transaction compares the task and its record with the revisions that were judged, and that its step has no
//! line in the ledger yet. So it is carried out at most once, and only on what its author has seen.

use jiff::Timestamp;
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::StepId;
use tollgate_base::task::TaskName;
use tollgate_vault::claim::Tenure;
use tollgate_vault::state::{Slot, Verb};
use tollgate_vault::step::TextEdit;
use tollgate_vault::store::Landed;
use tollgate_vault::{Claim, Step, StepOutcome};

use crate::client::CallError;
use crate::inside::Inside;
use crate::layout::{self, LineValue, RecordValue, write_task};
use crate::message::{Act, Condition, KeyValue, Txn, TxnAnswer};
use crate::named::split_version;
use crate::process_lease::lease_of;

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
        let Some(revisions) = split_version(&step.version) else { return Ok(StepOutcome::Conflict) };
        let Some(text) = self.text_at(&step.task, &step.from, revisions.0)? else {
            return self.earlier_answer(&step.id);
        };
        if step.check.is_some_and(|sha256| sha256 != Digest::of(&text)) {
            return Ok(StepOutcome::Changed);
        }
        let text = step.edited(&text);
        check_size(&text)?;
        let mut name = step.task.clone();
        for _ in 0..2 {
            match self.try_step(step, &name, revisions, &text)? {
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
        (task_revision, record_revision): (i64, i64),
        text: &[u8],
    ) -> Result<Option<StepOutcome>> {
        let (from, to) = (self.layout.task(&step.task, &step.from), self.layout.task(name, &step.to));
        let (old_record, line) = (self.layout.record(&step.task), self.layout.line(&step.id));
        let compare = vec![
            Condition::at(&from, task_revision),
            Condition::at(&old_record, record_revision),
            Condition::absent(&line),
        ];
        let mut change = KeyChanges { compare, ..KeyChanges::default() };
        if to != from {
            change.compare.push(Condition::absent(&to));
            change.delete(from.clone());
        }
        change.put(to.clone(), write_task(step.at, text));
        let new_record = step.record_after(text);
        match &new_record {
            Some(record) => {
                let value = RecordValue { machine: self.machine.clone(), record: record.clone() };
                change.put(self.layout.record(name), layout::write(&value)?);
                if *name != step.task && record_revision != 0 {
                    change.delete(old_record.clone());
                }
            }
            None if record_revision != 0 => change.delete(old_record.clone()),
            None => {}
        }
        let landed = Landed { task: name.clone(), slot: step.to.clone(), path: None };
        let value = LineValue {
            machine: self.machine.clone(),
            landed: Some((name.clone(), step.to.clone())),
            events: step.events.clone(),
        };
        change.success.push(Act::put(&line, layout::write(&value)?));
        let claim = new_record.as_ref().and_then(|record| record.claim.as_ref());
        let ended = match &step.edit {
            TextEdit::Close(claim, _) => Some(&claim.id),
            _ => None,
        };
        if let Some(ended) = ended {
            change.delete(self.layout.owner(ended));
        }
        let lease = match claim {
            Some(claim) => self.keep_owner(&mut change, step, claim)?,
            None => None,
        };
        #[cfg(test)]
        if !self.compares.load(std::sync::atomic::Ordering::SeqCst) {
            change.compare.clear();
        }
        let failure = [&line, &from, &old_record].map(Act::get).to_vec();
        let txn = Txn { compare: change.compare, success: change.success, failure };
        let answer = match self.client.txn(&txn) {
            Ok(answer) => answer,
            Err(CallError::Unanswered(fault)) => return Ok(Some(StepOutcome::Unknown(fault))),
            Err(error) => {
                if let Some(lease) = lease.filter(|_| error.is_lease_gone()) {
                    self.process_lease.lost(lease);
                }
                return Err(error.fault(&self.client.shown));
            }
        };
        if !answer.succeeded {
            return self.not_taken(step, answer, (task_revision, record_revision), claim);
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
            self.process_lease.mark(ended, None);
        }
        self.copy_to_journal(&step.events);
        Ok(Some(StepOutcome::Done(landed)))
    }

    /// Adds the key that shows that the owner is alive, if this step needs a new one. The lease that it is bound to.
    fn keep_owner(&self, change: &mut KeyChanges, step: &Step, claim: &Claim) -> Result<Option<i64>> {
        let is_new = step.verb == Some(Verb::Claim);
        let key = self.layout.owner(&claim.id);
        let lease = match claim.tenure {
            Tenure::Held if is_new => {
                let lease = self.called(self.process_lease.lease(&self.client))?;
                self.process_lease.mark(&claim.id, Some(lease));
                lease
            }
            Tenure::Held => return Ok(None),
            Tenure::Leased(_) => {
                let lease = lease_of(&claim.id);
                if !is_new && self.called(self.client.keep_alive(lease, self.client.deadline))? {
                    return Ok(None);
                }
                self.called(self.client.grant(lease, self.lease))?;
                lease
            }
        };
        change.success.push(Act::put_leased(&key, &self.machine, lease));
        change.put.push((key, self.machine.clone().into_bytes()));
        Ok(Some(lease))
    }

    /// Why a step was not taken. `None`: there is a task of this name where it goes.
    fn not_taken(
        &self,
        step: &Step,
        answer: TxnAnswer,
        revisions: (i64, i64),
        claim: Option<&Claim>,
    ) -> Result<Option<StepOutcome>> {
        let now = answer.header.revision;
        let mut found = answer.found().map(|kvs| kvs.into_iter().next());
        let mut next = || found.next().flatten();
        let (line, from, record) = (next(), next(), next());
        if let Some(landed) = answer_in(line)? {
            return Ok(Some(StepOutcome::Done(landed)));
        }
        let revision = |kv: &Option<KeyValue>| kv.as_ref().map_or(0, |kv| kv.mod_revision);
        if (revision(&from), revision(&record)) == revisions {
            return Ok(None);
        }
        if let Some(claim) = claim.filter(|_| step.verb == Some(Verb::Claim)) {
            self.process_lease.mark(&claim.id, None);
        }
        let keys =
            [(self.layout.task(&step.task, &step.from), &from), (self.layout.record(&step.task), &record)];
        let gone: Vec<_> = keys.into_iter().filter(|(_, kv)| kv.is_none()).map(|(key, _)| key).collect();
        let put: Vec<_> = [from, record].into_iter().flatten().collect();
        self.learn(&put, &gone, now);
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
        let (value, landed) = (write_task(now, text), Some((task.clone(), slot.clone())));
        let told = layout::write(&LineValue { machine: self.machine.clone(), landed, events: Vec::new() })?;
        let answer = self.client.txn(&Txn {
            compare: vec![Condition::absent(&key), Condition::absent(&line)],
            success: vec![Act::put(&key, &value), Act::put(&line, told)],
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
