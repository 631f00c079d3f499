//! Taking steps: what is asked for at the same time goes to the remote in one push.
//!
//! The threads of one process wait for each other anyway, so whoever's turn it is takes along what the others want. Each
//! step is a commit of its own; all of them, with their cards, are pushed as one. If the branch has moved, each is looked
//! at anew: who was too late gets that as an answer, the rest goes out again.
//!
//! Invariants: all of this happens under the lock of the conversation. A step is told only when the remote has it. A card
//! is the same for every try of a step, so if one of them got through unnoticed, it is known by it.

use std::mem::take;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::card::{Card, ref_of};
use super::record::{Change, Record};
use super::seen::Seen;
use super::talk::{Pushed, Update};
use super::{GitStore, Talk};
use crate::digest::Digest;
use crate::error::{Fault, Result};
use crate::settings::Offline;
use crate::vault::claim::Note;
use crate::vault::edit::edited;
use crate::vault::folder::disk::no_name_left;
use crate::vault::name::TaskName;
use crate::vault::state::{Slot, Verb};
use crate::vault::store::{Outcome, Step, Store, Stored, Version};

/// So often a step is made anew for a branch that has moved. Each time somebody else got through, so the number is only
/// reached if hundreds push all the time.
pub(super) const TRIES: u32 = 300;

/// So often an answer that was no answer is asked for again, when the look after it shows that nothing happened.
pub(super) const UNCLEAR: u32 = 3;

/// So often a race is believed in which nobody has won. Those who push at the same moment hold the server's locks for a
/// few milliseconds each.
const STUCK: u32 = 12;

/// A step on its way to the remote.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) step: Step,
    /// The version of the file in the tree.
    pub(super) version: Version,
    /// The name that it gets.
    pub(super) landing: TaskName,
    /// The card before, and after.
    pub(super) old: Option<String>,
    pub(super) card: Option<(String, Card)>,
    /// The commits that were pushed for it, each for another tip.
    pub(super) commits: Vec<String>,
    /// The bytes of the record, where they are still at hand.
    #[serde(skip)]
    pub(super) bytes: Option<Vec<u8>>,
}

/// Those who wait for their turn, in one process.
#[derive(Default)]
pub(super) struct Turns {
    turn: Mutex<()>,
    waiting: Mutex<Vec<Arc<Ticket>>>,
    come: Condvar,
    /// How long a step waits for company, in milliseconds.
    linger_ms: AtomicU64,
}

/// What somebody waits for.
struct Ticket {
    step: Step,
    outcome: Mutex<Option<Result<Outcome>>>,
}

/// Why the remote has not taken a push.
#[derive(Clone)]
enum Why {
    Unreachable(String),
    Refused(String),
}

/// A step as it would be on the branch now.
struct Staged {
    landing: TaskName,
    bytes: Vec<u8>,
    note: Option<Note>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GitStore {
    /// From here on a step waits so long for another one, of another thread, to go out with it.
    pub fn linger(&self, time: Duration) {
        self.turns.linger_ms.store(millis(time), Ordering::Relaxed);
    }

    pub(super) fn take_step(&self, step: &Step) -> Result<Outcome> {
        let ticket = Arc::new(Ticket { step: step.clone(), outcome: Mutex::new(None) });
        locked(&self.turns.waiting).push(Arc::clone(&ticket));
        self.turns.come.notify_all();
        let _turn = locked(&self.turns.turn);
        if let Some(outcome) = locked(&ticket.outcome).take() {
            return outcome;
        }
        let linger = Duration::from_millis(self.turns.linger_ms.load(Ordering::Relaxed));
        if step.verb.is_some() && !linger.is_zero() {
            let alone = |waiting: &mut Vec<Arc<Ticket>>| waiting.len() < 2;
            let waiting = locked(&self.turns.waiting);
            drop(self.turns.come.wait_timeout_while(waiting, linger, alone));
        }
        // Ours, and of the others at most one for each task.
        let mut batch = vec![Arc::clone(&ticket)];
        locked(&self.turns.waiting).retain(|other| {
            if Arc::ptr_eq(other, &ticket) {
                return false;
            }
            let first = batch.iter().all(|taken| taken.step.task != other.step.task);
            if first {
                batch.push(Arc::clone(other));
            }
            !first
        });
        let taken = self.take_batch(&batch);
        // What has no answer yet has none for a fault of this machine. The others try themselves.
        let rest = batch.iter().skip(1).filter(|other| locked(&other.outcome).is_none());
        locked(&self.turns.waiting).extend(rest.cloned());
        let own = locked(&ticket.outcome).take();
        match taken {
            Err(fault) => own.unwrap_or(Err(fault)),
            Ok(()) => own.unwrap_or(Ok(Outcome::Conflict)),
        }
    }

    fn take_batch(&self, batch: &[Arc<Ticket>]) -> Result<()> {
        let talk = self.converse()?;
        self.settle(&talk)?;
        self.probe_once(&talk)?;
        let mut plans = Vec::new();
        for ticket in batch {
            match self.plan(&talk, &ticket.step)? {
                Ok(plan) => plans.push((plan, Arc::clone(ticket))),
                Err(outcome) => *locked(&ticket.outcome) = Some(outcome),
            }
        }
        match self.push_until_taken(&talk, &mut plans)? {
            Ok(()) => {}
            // A rule may be against one of them only.
            Err(Why::Refused(_)) if plans.len() > 1 => {
                for one in plans {
                    let mut alone = vec![one];
                    if let Err(why) = self.push_until_taken(&talk, &mut alone)? {
                        self.not_taken(&alone, &why)?;
                    }
                }
            }
            Err(why) => self.not_taken(&plans, &why)?,
        }
        Ok(())
    }

    /// A step that is for the remote; or what comes of it without.
    fn plan(&self, talk: &Talk, step: &Step) -> Result<Result<Plan, Result<Outcome>>> {
        let mut version = step.version.clone();
        let old = version.remote.take();
        if self.seen()?.card(&step.task).map(|found| &found.oid) != old.as_ref() {
            return Ok(Err(Ok(Outcome::Conflict)));
        }
        if step.verb.is_none() {
            return Ok(Err(self.renew(talk, step, version, old.as_ref())));
        }
        if self.is_owed(&step.task)? {
            let told = self.glance(talk).and_then(|()| self.pay(talk)).and_then(|_| self.catch_up());
            return Ok(Err(match told {
                // Told now. The step is for whoever looks at it anew.
                Ok(_) => Ok(Outcome::Conflict),
                Err(Fault::Unreachable { .. }) => self.take_offline(step, version),
                Err(fault) => Err(fault),
            }));
        }
        let landing = step.task.clone();
        Ok(Ok(Plan {
            step: step.clone(),
            version,
            landing,
            old,
            card: None,
            commits: Vec::new(),
            bytes: None,
        }))
    }

    /// What is told of steps that the remote has not taken, or not for certain.
    fn not_taken(&self, plans: &[(Plan, Arc<Ticket>)], why: &Why) -> Result<()> {
        let offline = self.options.offline == Offline::Allow;
        let certain = matches!(why, Why::Refused(_)) || offline;
        if certain {
            self.forget()?;
        }
        for (plan, ticket) in plans {
            let outcome = match why {
                Why::Refused(what) => Err(self.refused(what)),
                Why::Unreachable(_) if offline => self.take_offline(&plan.step, plan.version.clone()),
                // Perhaps it was taken. Whoever next reaches the remote finds out.
                Why::Unreachable(what) => Ok(Outcome::Unknown(self.remote.unreachable(what))),
            };
            *locked(&ticket.outcome) = Some(outcome);
        }
        Ok(())
    }

    pub(super) fn refused(&self, what: &str) -> Fault {
        Fault::RemoteRefused { remote: self.remote.name.clone(), what: what.to_owned() }
    }

    /// Pushes, looks and makes anew, until the remote has them or others were quicker. Who has an answer leaves.
    fn push_until_taken(&self, talk: &Talk, plans: &mut Vec<(Plan, Arc<Ticket>)>) -> Result<Result<(), Why>> {
        let (mut unclear, mut stuck) = (0, 0);
        for tried in 0..TRIES {
            let seen = self.seen()?;
            if tried == 0 && !self.shows_the_branch(plans, &seen)? {
                // It is laid out anew, and nobody may act on what it showed.
                for (_, ticket) in take(plans) {
                    *locked(&ticket.outcome) = Some(Ok(Outcome::Conflict));
                }
            }
            let updates = self.make(plans, &seen)?;
            if plans.is_empty() {
                self.forget()?;
                return Ok(Ok(()));
            }
            self.write_down(plans.iter().map(|(plan, _)| plan))?;
            let began = Instant::now();
            let (clear, said) = match self.remote.push(&updates, &talk.0)? {
                Pushed::Taken => {
                    self.learn_own(plans)?;
                    return self.finish_all(plans).map(Ok);
                }
                Pushed::Refused(what) => return Ok(Err(Why::Refused(what))),
                Pushed::Moved(what) => (true, what),
                Pushed::Unclear(what) => (false, what),
            };
            if clear {
                // Before the look, so that what is looked at is fresh when the next push goes out.
                sleep(backoff(began.elapsed(), tried));
            }
            match self.glance(talk) {
                Ok(()) => {}
                Err(Fault::Unreachable { .. }) => return Ok(Err(Why::Unreachable(said))),
                Err(fault) => return Err(fault),
            }
            unclear += u32::from(!clear);
            // Somebody was quicker, it says, and nobody was: a lock that a crash has left there, or one held this moment.
            stuck += u32::from(clear && self.seen()?.same_as(&seen));
            // One that was unclear may also get through later than it was asked for.
            if unclear > 0 && self.any_landed(plans.iter().flat_map(|(plan, _)| &plan.commits))? {
                return self.finish_all(plans).map(Ok);
            }
            if unclear > UNCLEAR || stuck > STUCK {
                // It answers, and yet it takes nothing.
                return Ok(Err(Why::Refused(said)));
            }
            self.catch_up()?;
        }
        Ok(Err(Why::Refused(format!("the branch `{}` changes all the time", self.remote.branch))))
    }

    fn finish_all(&self, plans: &mut Vec<(Plan, Arc<Ticket>)>) -> Result<()> {
        for (plan, ticket) in take(plans) {
            let landed = self.finish(&plan)?;
            *locked(&ticket.outcome) = Some(Ok(Outcome::Done(landed)));
        }
        self.forget()?;
        self.catch_up().map(drop)
    }

    /// Whether the tasks are on the branch where the tree shows them. Everything here is made to keep it so; this is the
    /// look that would notice if it were not.
    fn shows_the_branch(&self, plans: &[(Plan, Arc<Ticket>)], seen: &Seen) -> Result<bool> {
        let places = plans.iter().map(|(plan, _)| (&plan.step.task, &plan.step.from));
        let shown = |(task, slot): &(&TaskName, &Slot)| self.folder.path(task, slot).exists();
        let shown: Vec<_> = places.filter(shown).collect();
        if shown.is_empty() || !self.tree.missing(&seen.tip, shown)? {
            return Ok(true);
        }
        let mut anew = seen.clone();
        anew.imported = None;
        self.keep(&anew)?;
        self.catch_up()?;
        Ok(false)
    }

    /// Makes the objects of those that can still be taken, and says how the refs are to change. The others are answered.
    fn make(&self, plans: &mut Vec<(Plan, Arc<Ticket>)>, seen: &Seen) -> Result<Vec<Update>> {
        let mut records = Vec::new();
        let mut staying = Vec::new();
        for (mut plan, ticket) in take(plans) {
            match self.stage(&plan, seen)? {
                Ok(staged) => {
                    records.push(self.dress(&mut plan, staged)?);
                    staying.push((plan, ticket));
                }
                Err(outcome) => *locked(&ticket.outcome) = Some(Ok(outcome)),
            }
        }
        *plans = staying;
        if plans.is_empty() {
            return Ok(Vec::new());
        }
        let cards: Vec<&Card> =
            plans.iter().filter_map(|(plan, _)| plan.card.as_ref().map(|(_, card)| card)).collect();
        let (made, commits) = self.maker.make(&cards, &records, &seen.tip)?;
        let mut made = made.into_iter();
        let tip = commits.last().cloned();
        let mut updates =
            vec![Update { name: self.remote.branch_ref(), old: Some(seen.tip.clone()), new: tip }];
        for ((plan, _), commit) in plans.iter_mut().zip(commits) {
            plan.commits.push(commit);
            if let Some((oid, _)) = &mut plan.card {
                *oid = made.next().unwrap_or_default();
            }
            updates.extend(self.card_updates(plan));
        }
        Ok(updates)
    }

    fn card_updates(&self, plan: &Plan) -> Vec<Update> {
        let card_ref = |task: &TaskName| self.remote.card_ref(&ref_of(task));
        let (old, new) = (plan.old.clone(), plan.card.as_ref().map(|(oid, _)| oid.clone()));
        let (before, after) = (card_ref(&plan.step.task), card_ref(&plan.landing));
        let updates = if before == after {
            vec![Update { name: after, old, new }]
        } else {
            vec![Update { name: before, old, new: None }, Update { name: after, old: None, new }]
        };
        updates.into_iter().filter(|update| update.old.is_some() || update.new.is_some()).collect()
    }

    /// The step on what is here now; or why it cannot be taken.
    fn stage(&self, plan: &Plan, seen: &Seen) -> Result<Result<Staged, Outcome>> {
        let step = &plan.step;
        if seen.card(&step.task).map(|found| &found.oid) != plan.old.as_ref() {
            return Ok(Err(Outcome::Conflict));
        }
        let stored = self.folder.get(&step.task, Some(step.from.state()), step.at)?;
        let same = |stored: &Stored| stored.slot == step.from && stored.version == plan.version;
        let Some(stored) = stored.filter(same) else { return Ok(Err(Outcome::Conflict)) };
        let bytes = self.folder.read(&stored, u64::MAX)?;
        if step.check.is_some_and(|sha256| sha256 != Digest::of(&bytes)) {
            return Ok(Err(Outcome::Changed));
        }
        let bytes = edited(&bytes, step);
        let bytes =
            if step.from.agent().is_some() { self.tree.with_edits(&step.task, bytes)? } else { bytes };
        let taken = |name: &TaskName| step.from != step.to && self.folder.path(name, &step.to).exists();
        let mut landing = step.task.clone();
        if taken(&landing) {
            landing = landing.beside(&step.beside);
            if taken(&landing) {
                return Err(no_name_left(&step.task, &step.to));
            }
        }
        let mut note = step.note.clone();
        if let Some(note) = note.as_mut().filter(|_| step.offer) {
            note.offered = Some(Digest::of(&bytes));
        }
        Ok(Ok(Staged { landing, bytes, note }))
    }

    /// The card and the record of a step.
    fn dress(&self, plan: &mut Plan, staged: Staged) -> Result<Record> {
        let Staged { landing, bytes, note } = staged;
        let same = |(_, card): &(String, Card)| card.task == landing && Some(&card.note) == note.as_ref();
        if !plan.card.as_ref().is_some_and(same) {
            let card = note.map(|note| Card::new(&landing, &self.clone, millis(self.options.lease), note));
            plan.card = card.transpose()?.map(|card| (String::new(), card));
        }
        plan.landing = landing;
        let step = &plan.step;
        let record = Record {
            message: message(step, &plan.landing),
            changes: vec![
                Change::Remove(self.tree.path_of(&step.task, &step.from)),
                Change::Put(self.tree.path_of(&plan.landing, &step.to), bytes.clone()),
            ],
        };
        plan.bytes = Some(bytes);
        Ok(record)
    }

    /// What the remote has taken from us need not be looked at.
    fn learn_own(&self, plans: &[(Plan, Arc<Ticket>)]) -> Result<()> {
        let mut seen = self.seen()?;
        for (plan, _) in plans {
            if let Some(commit) = plan.commits.last() {
                seen.tip.clone_from(commit);
            }
            seen.remove(&plan.step.task);
            if let Some((oid, card)) = &plan.card {
                seen.put(card.clone(), oid.clone());
            }
        }
        seen.imported = Some(seen.tip.clone());
        self.keep(&seen)
    }
}

/// So that those who were refused together do not come back together: some part of the time that a push takes here, and
/// more the more often it happens. A push that is refused costs nearly as much as one that is taken.
fn backoff(push: Duration, tried: u32) -> Duration {
    let most = millis(push).min(2_000) << (tried.min(3) + 1);
    Duration::from_millis(getrandom::u64().unwrap_or(0) % (most + 1))
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// One line, for people.
fn message(step: &Step, landing: &TaskName) -> String {
    let task = step.task.stem();
    let who = step.from.agent().or_else(|| step.to.agent()).map_or("tollgate", |agent| agent.as_str());
    let what = match step.verb {
        Some(Verb::Claim) => format!("{who} claims {task}"),
        Some(Verb::Release) => format!("{who} releases {task} to {}", step.to),
        Some(Verb::Reclaim) => format!("{task} is taken back from {who}, to {}", step.to),
        Some(Verb::Approve) => format!("{task} is approved"),
        Some(Verb::Reject) => format!("{task} is rejected"),
        Some(Verb::Reopen) => format!("{task} was changed and waits for approval again"),
        None => task.to_owned(),
    };
    if step.task == *landing {
        format!("tollgate: {what}")
    } else {
        format!("tollgate: {what}, as {}", landing.stem())
    }
}
