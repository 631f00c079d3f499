//! Taking a batch of steps: each step is one commit, and all of them go to the remote with their cards in one push.
//!
//! If the branch has moved, each step is checked again on the new tip. A step that came too late gets its answer; the others
//! are pushed again.
//!
//! Invariants: all of this happens under the lock of the conversation. A step is done only when the remote has it. After
//! [`LocalClone::write_down`] a fault means that the fate of the steps is unknown.

use std::mem::take;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::add::TRIES;
use super::answers::Fate;
use super::batch::Ticket;
use super::card::Card;
use super::clone::{Conversation, LocalClone};
use super::heartbeat::UNCLEAR;
use super::pending::Events;
use super::plan::PushPlan;
use super::remote::{Pushed, Update};
use super::seen::Seen;
use super::version;
use crate::state::Slot;
use crate::step::{Step, StepOutcome};
use crate::store::Landed;
use tollgate_base::error::{Fault, Result};
use tollgate_base::task::TaskName;

/// How often the remote may say that somebody else was faster when nobody was. Clones that push at the same moment hold
/// the locks of the server for a few milliseconds each.
const STUCK: u32 = 12;

/// A step on its way, and who waits for it.
type Flight = (PushPlan, Arc<Ticket>);

/// Why the remote did not take a push.
enum NotTaken {
    Unreachable(String),
    Refused(String),
}

/// What a step needs first.
enum Start {
    Push(Box<PushPlan>),
    Nothing(StepOutcome),
}

impl LocalClone {
    /// Takes these steps. A step without an answer was not taken, or its fate is unknown.
    pub(super) fn take_batch(&self, batch: &[Arc<Ticket>]) -> Result<()> {
        let talk = self.converse()?;
        self.settle(&talk)?;
        self.probe_once(&talk)?;
        let mut flights = Vec::new();
        for ticket in batch {
            match self.start(&talk, &ticket.step) {
                Ok(Start::Push(plan)) => flights.push((*plan, Arc::clone(ticket))),
                Ok(Start::Nothing(outcome)) => ticket.answer(Ok(outcome)),
                Err(fault) => ticket.answer(Err(fault)),
            }
        }
        match self.push_until_taken(&talk, &mut flights)? {
            Ok(()) => {}
            // The rule may be against one of the steps only.
            Err(NotTaken::Refused(_)) if flights.len() > 1 => {
                for flight in flights {
                    let mut alone = vec![flight];
                    if let Err(why) = self.push_until_taken(&talk, &mut alone)? {
                        self.not_taken(&alone, &why)?;
                    }
                }
            }
            Err(why) => self.not_taken(&flights, &why)?,
        }
        Ok(())
    }

    fn start(&self, talk: &Conversation, step: &Step) -> Result<Start> {
        if let Some(landed) = self.taken_before(step)? {
            return Ok(Start::Nothing(StepOutcome::Done(landed)));
        }
        let Some((card, file)) = version::split(&step.version) else {
            return Ok(Start::Nothing(StepOutcome::Conflict));
        };
        let is_renewed = self.answers.get(&step.id) == Some(Fate::Renewed);
        if !is_renewed && self.seen()?.card(&step.task).map(|found| &found.oid) != card.as_ref() {
            return Ok(Start::Nothing(StepOutcome::Conflict));
        }
        if step.verb.is_none() {
            return self.renew(talk, step, file).map(Start::Nothing);
        }
        Ok(Start::Push(Box::new(PushPlan::new(step, file, card))))
    }

    /// Where the step brought the task, if it was taken before and its answer was lost.
    fn taken_before(&self, step: &Step) -> Result<Option<Landed>> {
        match self.answers.get(&step.id) {
            Some(Fate::Taken(landed)) => Ok(Some(landed)),
            // Another process has settled it: the journal tells how.
            Some(Fate::Pushed) if self.options.folder.journal.has(&step.id, step.at)? => {
                let is_there = |name: &TaskName| self.folder().path(name, &step.to).exists();
                let task = Some(step.fallback_name()).filter(is_there).unwrap_or_else(|| step.task.clone());
                let path = Some(self.folder().path(&task, &step.to));
                Ok(Some(Landed { task, slot: step.to.clone(), path }))
            }
            Some(Fate::Pushed) => {
                self.answers.not_taken(&step.id);
                Ok(None)
            }
            Some(Fate::Renewed) | None => Ok(None),
        }
    }

    /// Answers steps that the remote did not take, or perhaps did.
    fn not_taken(&self, flights: &[Flight], why: &NotTaken) -> Result<()> {
        if let NotTaken::Refused(_) = why {
            self.forget(flights.iter().map(|(plan, _)| plan))?;
        }
        for (_, ticket) in flights {
            ticket.answer(match why {
                NotTaken::Refused(what) => Err(self.refused(what)),
                // The next process that reaches the remote finds out.
                NotTaken::Unreachable(what) => Ok(StepOutcome::Unknown(self.remote.unreachable(what))),
            });
        }
        Ok(())
    }

    /// Pushes, looks and tries again, until the remote has the steps or others were faster. Steps that got their answer
    /// leave the list.
    fn push_until_taken(
        &self,
        talk: &Conversation,
        flights: &mut Vec<Flight>,
    ) -> Result<Result<(), NotTaken>> {
        let (mut unclear, mut stuck) = (0, 0);
        for tried in 0..TRIES {
            let seen = self.seen()?;
            if tried == 0 && !self.shows_the_branch(flights, &seen)? {
                // The tree has changed under the steps.
                self.conflict(take(flights));
            }
            let updates = self.make(flights, &seen)?;
            if flights.is_empty() {
                self.forget([])?;
                return Ok(Ok(()));
            }
            self.write_down(&flights.iter().map(|(plan, _)| plan).collect::<Vec<_>>())?;
            let began = Instant::now();
            let (is_clear, said) = match self.remote.push(&updates, &talk.0)? {
                Pushed::Taken => {
                    self.learn_own(flights)?;
                    return self.finish_all(flights).map(Ok);
                }
                Pushed::Refused(what) => return Ok(Err(NotTaken::Refused(what))),
                Pushed::Moved(what) => (true, what),
                Pushed::Unclear(what) => (false, what),
            };
            if is_clear {
                // Before the look, so that the look is recent when the next push starts.
                sleep(backoff(began.elapsed(), tried));
            }
            match self.glance(talk) {
                Ok(()) => {}
                Err(Fault::Unreachable { .. }) => return Ok(Err(NotTaken::Unreachable(said))),
                Err(fault) => return Err(fault),
            }
            unclear += u32::from(!is_clear);
            // The remote says that somebody else was faster, and nobody was: a server process holds a lock at this moment,
            // or left one when it crashed.
            stuck += u32::from(is_clear && self.seen()?.same_as(&seen));
            // An unclear push may also get through later than a following one.
            if unclear > 0 && self.any_landed(flights.iter().flat_map(|(plan, _)| &plan.commits))? {
                return self.finish_all(flights).map(Ok);
            }
            if unclear > UNCLEAR || stuck > STUCK {
                // The remote answers, but takes nothing.
                return Ok(Err(NotTaken::Refused(said)));
            }
            self.catch_up()?;
        }
        Ok(Err(NotTaken::Refused(format!("the branch `{}` changes all the time", self.remote.branch))))
    }

    fn finish_all(&self, flights: &mut Vec<Flight>) -> Result<()> {
        let mut done = Vec::new();
        for (plan, ticket) in take(flights) {
            let landed = self.finish(&plan, Events::New)?;
            ticket.answer(Ok(StepOutcome::Done(landed)));
            done.push(plan);
        }
        self.forget(&done)?;
        self.catch_up().map(drop)
    }

    /// These steps came too late.
    fn conflict(&self, flights: impl IntoIterator<Item = Flight>) {
        for (plan, ticket) in flights {
            self.answers.not_taken(&plan.step.id);
            ticket.answer(Ok(StepOutcome::Conflict));
        }
    }

    /// Whether the tasks are on the branch where the tree shows them. All other code keeps it so; if it is not so, this
    /// brings the tree in order.
    fn shows_the_branch(&self, flights: &[Flight], seen: &Seen) -> Result<bool> {
        let places = flights.iter().map(|(plan, _)| (&plan.step.task, &plan.step.from));
        let is_shown = |(task, slot): &(&TaskName, &Slot)| self.folder().path(task, slot).exists();
        let shown: Vec<_> = places.filter(is_shown).collect();
        if shown.is_empty() || !self.tree.branch.lacks(&seen.tip, shown)? {
            return Ok(true);
        }
        let mut seen = seen.clone();
        seen.imported = None;
        self.keep(&seen)?;
        self.catch_up()?;
        Ok(false)
    }

    /// Makes the objects of the steps that can still be taken, and says how the refs change. The others get their answer.
    fn make(&self, flights: &mut Vec<Flight>, seen: &Seen) -> Result<Vec<Update>> {
        let mut commits = Vec::new();
        for (mut plan, ticket) in take(flights) {
            match self.stage(&plan, seen)? {
                Ok(staged) => {
                    commits.push(self.dress(&mut plan, staged)?);
                    flights.push((plan, ticket));
                }
                Err(outcome) => {
                    self.answers.not_taken(&plan.step.id);
                    ticket.answer(Ok(outcome));
                }
            }
        }
        if flights.is_empty() {
            return Ok(Vec::new());
        }
        let cards: Vec<&Card> =
            flights.iter().filter_map(|(plan, _)| plan.card.as_ref().map(|(_, card)| card)).collect();
        let made = self.maker.make(&cards, &commits, &seen.tip)?;
        let mut cards = made.cards.into_iter();
        let (name, new) = (self.remote.branch_ref(), made.commits.last().cloned());
        let mut updates = vec![Update { name, old: Some(seen.tip.clone()), new }];
        for ((plan, _), commit) in flights.iter_mut().zip(made.commits) {
            plan.commits.push(commit);
            if let Some((oid, _)) = &mut plan.card {
                *oid = cards.next().unwrap_or_default();
            }
            updates.extend(self.card_updates(plan));
        }
        Ok(updates)
    }

    /// Remembers what the remote took from this clone, so that nobody has to look.
    fn learn_own(&self, flights: &[Flight]) -> Result<()> {
        let mut seen = self.seen()?;
        for (plan, _) in flights {
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

/// A random pause, so that clones that were refused together do not come back together: a part of the time that a push
/// takes here, and longer after each try. A push that is refused costs nearly as much as one that is taken.
fn backoff(push: Duration, tried: u32) -> Duration {
    let push_ms = u64::try_from(push.as_millis()).unwrap_or(u64::MAX);
    let most = push_ms.min(2_000) << (tried.min(3) + 1);
    Duration::from_millis(getrandom::u64().unwrap_or(0) % (most + 1))
}
