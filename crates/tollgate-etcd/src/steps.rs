//! Steps: each is one transaction of the engine.
//!
//! Invariants: a transaction compares the task with the revision that was judged, and changes that revision. So it is carried
//! out at most once, and only on what its author has seen. The line of its step, which it writes, shows that it was. A
//! transaction that brings a task to a slot compares that no other task of that name is there.

use jiff::Timestamp;
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::StepId;
use tollgate_base::task::TaskName;
use tollgate_vault::block::author_len;
use tollgate_vault::claim::Tenure;
use tollgate_vault::state::{Slot, Verb};
use tollgate_vault::step::TextEdit;
use tollgate_vault::store::TaskAfterStep;
use tollgate_vault::{Claim, Step, StepOutcome};

use crate::call_error::CallError;
use crate::layout::{self, Layout, LineValue, TaskHead, write_task};
use crate::message::{Condition, KeyValue, Txn, TxnOperation};
use crate::process_lease::{HeldMark, new_lease_id};
use crate::shared_store::SharedStore;
use crate::tasks_of_name::{SeenTask, TasksOfName};

/// The largest text that people and agents bring.
const MAX_TEXT: usize = 1 << 20;

/// The largest text with what tollgate itself adds to it. A task of the largest size must still be claimed and
/// released. etcd takes requests of 1.5 MiB, and the claim record and the ledger line need some room.
const MAX_EDITED: usize = 5 << 18;

impl SharedStore {
    /// The answer to a step that was taken before; else somebody else was faster.
    fn earlier_answer(&self, step: &StepId) -> Result<StepOutcome> {
        let found = self.act(vec![TxnOperation::get(self.layout.line(step))])?;
        Ok(answer_in(found.found().flatten().next())?.map_or(StepOutcome::Conflict, StepOutcome::Done))
    }

    pub(crate) fn take(&self, step: &Step) -> Result<StepOutcome> {
        let Some(seen) = SeenTask::of(&step.version) else { return Ok(StepOutcome::Conflict) };
        let Some(text) = self.text_at(&step.task, &step.from, &seen)? else {
            return self.earlier_answer(&step.id);
        };
        if step.check.is_some_and(|sha256| sha256 != Digest::of(&text)) {
            return Ok(StepOutcome::Changed);
        }
        let text = step.edited(&text);
        check_size(&text, most_after(&step.edit))?;
        let (mut name, mut namesakes) = (step.task.clone(), Namesakes::Nowhere);
        for _ in 0..TRIES {
            match self.try_step(step, &seen, (&name, namesakes), &text)? {
                StepTry::Ended(outcome) => return Ok(outcome),
                StepTry::Found(found @ Namesakes::Elsewhere(_)) => namesakes = found,
                StepTry::Found(_) if name == step.task => {
                    (name, namesakes) = (step.fallback_name(), Namesakes::Nowhere);
                }
                StepTry::Found(_) => {
                    let taken = format!("`{}` and `{name}` are both taken in `{}`", step.task, step.to);
                    return Err(Fault::invalid(taken));
                }
            }
        }
        Ok(tried_in_vain(&name))
    }

    /// The conditions under which a step may bring a task to its new slot, with this name.
    fn may_move(
        &self,
        step: &Step,
        seen: &SeenTask,
        (name, namesakes): (&TaskName, Namesakes),
    ) -> Vec<Condition> {
        let own = Condition::at(self.layout.task(&step.task, &step.from, &seen.id), seen.revision);
        let (from, to) = (self.layout.beside(&step.task, &step.from), self.layout.beside(name, &step.to));
        match namesakes {
            _ if *name == step.task && step.from == step.to => vec![own],
            Namesakes::Elsewhere(looked) => vec![own, Condition::unchanged_since(&to, looked)],
            _ if from == to => vec![own, Condition::all_at(&to, seen.revision)],
            _ => vec![own, Condition::all_at(&to, 0)],
        }
    }

    /// One transaction.
    fn try_step(
        &self,
        step: &Step,
        seen: &SeenTask,
        (name, namesakes): (&TaskName, Namesakes),
        text: &[u8],
    ) -> Result<StepTry> {
        let from = self.layout.task(&step.task, &step.from, &seen.id);
        let to = self.layout.task(name, &step.to, &seen.id);
        let compare = self.may_move(step, seen, (name, namesakes));
        let mut change = KeyChanges { compare, ..KeyChanges::default() };
        if to != from {
            change.delete(from);
        }
        let record = step.record_after(text);
        let claim = record.as_ref().and_then(|record| record.claim.clone());
        let new_claim = claim.as_ref().filter(|_| step.verb == Some(Verb::Claim));
        let head = TaskHead { since: step.at, record };
        change.put(to.clone(), write_task(&step.to, &head, text)?);
        let value = LineValue {
            machine: self.machine.clone(),
            landed: Some((name.clone(), step.to.clone())),
            events: step.events.clone(),
        };
        change.success.push(TxnOperation::put(self.layout.line(&step.id), layout::write(&value)?));
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
            Err(CallError::Unanswered(fault)) => return Ok(StepTry::Ended(StepOutcome::Unknown(fault))),
            Err(error) => return Err(error.fault(&self.client.shown)),
        };
        if !answer.succeeded {
            return self.not_taken(step, seen, name, new_claim);
        }
        if let Some(claim) = new_claim {
            self.process_lease.mark(&claim.id, HeldMark::Made(to, step.to.clone()));
        }
        let revision = answer.header.revision;
        let put: Vec<_> =
            change.put.into_iter().map(|(key, value)| KeyValue::new(key, value, revision)).collect();
        self.learn(&put, &change.gone, revision);
        if let Some(ended) = ended {
            self.process_lease.mark(&ended.id, HeldMark::Nothing);
        }
        self.journal.append(&step.events);
        let landed = TaskAfterStep { task: name.clone(), slot: step.to.clone(), path: None };
        Ok(StepTry::Ended(StepOutcome::Done(landed)))
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
                // A new lease each time: a leader that was paused may end one whose renewals it has not seen.
                let lease = new_lease_id()?;
                self.called(self.client.grant(lease, self.lease))?;
                let key = self.layout.owner(&claim.id);
                change.success.push(TxnOperation::put_leased(&key, &self.machine, lease));
                change.put.push((key, self.machine.clone().into_bytes()));
            }
        }
        Ok(())
    }

    /// Why a step was not taken.
    fn not_taken(
        &self,
        step: &Step,
        seen: &SeenTask,
        name: &TaskName,
        new_claim: Option<&Claim>,
    ) -> Result<StepTry> {
        let from = self.layout.task(&step.task, &step.from, &seen.id);
        let lease = new_claim.and_then(|claim| claim.hold);
        let namesakes = TxnOperation::get_all(&self.layout.beside(name, &step.to));
        let mut success =
            vec![TxnOperation::get(self.layout.line(&step.id)), TxnOperation::get(&from), namesakes];
        success.extend(lease.map(|lease| TxnOperation::get(self.layout.process(lease))));
        let answer = match self.client.txn(&Txn { success, ..Txn::default() }) {
            Ok(answer) => answer,
            // An earlier try of the transaction may have been carried out.
            Err(error) => return Ok(StepTry::Ended(StepOutcome::Unknown(error.fault(&self.client.shown)))),
        };
        let now = answer.header.revision;
        let mut found = answer.found();
        let mut next = || found.next().unwrap_or_default();
        let (line, task, namesakes, process) = (next().pop(), next().pop(), next(), next());
        if let Some(landed) = answer_in(line)? {
            if let Some(claim) = new_claim {
                let key = self.layout.task(&landed.task, &landed.slot, &seen.id);
                self.process_lease.mark(&claim.id, HeldMark::Made(key, landed.slot.clone()));
            }
            return Ok(StepTry::Ended(StepOutcome::Done(landed)));
        }
        if let Some(claim) = new_claim {
            self.process_lease.mark(&claim.id, HeldMark::Nothing);
        }
        if let Some(lease) = lease.filter(|_| process.is_empty()) {
            self.process_lease.lost(lease.cast_signed());
            let what = "the lease of this process has ended: claim again".to_owned();
            return Err(Fault::Unreachable { remote: self.client.shown.clone(), what });
        }
        if task.as_ref().is_some_and(|task| task.mod_revision == seen.revision) {
            return Ok(StepTry::Found(Namesakes::read(&self.layout, namesakes, &step.to, now)));
        }
        match task {
            Some(task) => self.learn(&[task], &[], now),
            None => self.learn(&[], &[from], now),
        }
        Ok(StepTry::Ended(StepOutcome::Conflict))
    }

    pub(crate) fn put_new(
        &self,
        id: &StepId,
        task: &TaskName,
        text: &[u8],
        now: Timestamp,
    ) -> Result<StepOutcome> {
        // A task that is copied from another store has blocks of tollgate's own, which begin on a new line.
        let author = &text[..author_len(text)];
        check_size(author.strip_suffix(b"\n").unwrap_or(author), MAX_TEXT)?;
        check_size(text, MAX_EDITED)?;
        let slot = Slot::NEEDS_ACTION;
        let (key, line) = (self.layout.task(task, &slot, id), self.layout.line(id));
        // The line may have been removed by now, but the key of a task keeps the id.
        let done = format!("{}{id}", self.layout.finals(task));
        let landed = Some((task.clone(), slot.clone()));
        let value = write_task(&slot, &TaskHead::new(now), text)?;
        let told = layout::write(&LineValue { machine: self.machine.clone(), landed, events: Vec::new() })?;
        let success = vec![TxnOperation::put(&key, &value), TxnOperation::put(&line, &told)];
        let beside = self.layout.beside(task, &slot);
        let mut is_free = Condition::all_at(&beside, 0);
        for _ in 0..TRIES {
            let answer = self.client.txn(&Txn {
                compare: vec![
                    is_free,
                    Condition::absent(&key),
                    Condition::absent(&done),
                    Condition::absent(&line),
                ],
                success: success.clone(),
                failure: vec![
                    TxnOperation::get(&line),
                    TxnOperation::get_all(&beside),
                    TxnOperation::get(&done),
                ],
            });
            let answer = match answer {
                Ok(answer) => answer,
                Err(CallError::Unanswered(fault)) => return Ok(StepOutcome::Unknown(fault)),
                Err(error) => return Err(error.fault(&self.client.shown)),
            };
            let revision = answer.header.revision;
            if answer.succeeded {
                self.learn(&[KeyValue::new(key, value, revision)], &[], revision);
                return Ok(StepOutcome::Done(TaskAfterStep { task: task.clone(), slot, path: None }));
            }
            let mut found = answer.found();
            let mut next = || found.next().unwrap_or_default();
            let (was_taken, namesakes, was_done) = (!next().is_empty(), next(), !next().is_empty());
            if was_taken || was_done || namesakes.iter().any(|kv| kv.key == key.as_bytes()) {
                return Ok(StepOutcome::Done(TaskAfterStep { task: task.clone(), slot, path: None }));
            }
            match Namesakes::read(&self.layout, namesakes, &slot, revision) {
                Namesakes::Elsewhere(looked) => is_free = Condition::unchanged_since(&beside, looked),
                Namesakes::Nowhere | Namesakes::InTheWay => return Ok(StepOutcome::Conflict),
            }
        }
        Ok(tried_in_vain(task))
    }
}

/// How often a step is tried while other tasks of its name change.
const TRIES: usize = 10;

/// Where other tasks have the name that a task is to have, as far as they are final like it, or not.
#[derive(Clone, Copy)]
enum Namesakes {
    /// There are none: almost always, so this is tried first.
    Nowhere,
    /// None of them was where it goes, at this revision.
    Elsewhere(i64),
    /// One of them is where it goes.
    InTheWay,
}

impl Namesakes {
    /// From what the engine had at this revision.
    fn read(layout: &Layout, found: Vec<KeyValue>, slot: &Slot, looked: i64) -> Self {
        match TasksOfName::read(layout, found).in_slot(slot) {
            Some(_) => Self::InTheWay,
            None => Self::Elsewhere(looked),
        }
    }
}

/// What came of a transaction.
enum StepTry {
    Ended(StepOutcome),
    /// The task is as it was, but there are others of that name.
    Found(Namesakes),
}

/// What a transaction changes, for the engine and for the view.
#[derive(Default)]
struct KeyChanges {
    compare: Vec<Condition>,
    success: Vec<TxnOperation>,
    put: Vec<(String, Vec<u8>)>,
    gone: Vec<String>,
}

impl KeyChanges {
    fn put(&mut self, key: String, value: Vec<u8>) {
        self.success.push(TxnOperation::put(&key, &value));
        self.put.push((key, value));
    }

    fn delete(&mut self, key: String) {
        self.success.push(TxnOperation::delete(&key));
        self.gone.push(key);
    }
}

/// Other tasks of this name changed between every look and its transaction. One of the transactions may still be on its way.
fn tried_in_vain(name: &TaskName) -> StepOutcome {
    let why = format!("other tasks named `{name}` change all the time: try again");
    StepOutcome::Unknown(Fault::invalid(why))
}

/// The answer that a line of the ledger has for its step.
fn answer_in(line: Option<KeyValue>) -> Result<Option<TaskAfterStep>> {
    line.map_or(Ok(None), |kv| layout::read::<LineValue>(&kv.value).map(|line| line.landed()))
}

/// How long a text may be after this edit.
fn most_after(edit: &TextEdit) -> usize {
    match edit {
        TextEdit::Progress(..) | TextEdit::Draft(..) | TextEdit::Replace(_) => MAX_TEXT,
        TextEdit::Keep | TextEdit::Open | TextEdit::Close(..) => MAX_EDITED,
        TextEdit::Reject(..) | TextEdit::Retry(..) | TextEdit::Ask(_) => MAX_EDITED,
    }
}

fn check_size(text: &[u8], most: usize) -> Result<()> {
    match text.len() {
        len if len > most => Err(Fault::invalid(format!(
            "a task on etcd has at most {most} bytes here, this has {len}: shorten it"
        ))),
        _ => Ok(()),
    }
}
