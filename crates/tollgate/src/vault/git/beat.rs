//! What changes only a card, or only the branch: heartbeats and leases, and new tasks.
//!
//! Invariant: a heartbeat never touches the branch, so its history does not grow by them.

use std::time::Duration;

use super::card::{Card, ref_of};
use super::record::{Change, Record};
use super::step::{TRIES, UNCLEAR};
use super::talk::{Pushed, Update};
use super::{GitStore, Talk};
use crate::error::{Fault, Result};
use crate::settings::Offline;
use crate::vault::claim::{ClaimId, Tenure};
use crate::vault::hold::Owner;
use crate::vault::name::TaskName;
use crate::vault::state::{Slot, State};
use crate::vault::store::{Edit, Landed, Outcome, Step, Store, Version};

/// What came of a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beat {
    /// The claim lives on.
    Alive,
    /// Another has the task: whoever works on it must stop.
    Lost,
}

impl GitStore {
    /// Tells the remote that the owner of a claim is alive.
    pub fn beat(&self, task: &TaskName, claim: &ClaimId) -> Result<Beat> {
        let talk = self.converse()?;
        self.settle(&talk)?;
        let seen = self.seen()?;
        let ours = seen.card(task).and_then(|found| found.card.as_ref().map(|card| (&found.oid, card)));
        let ours = ours.filter(|(_, card)| {
            card.clone == self.clone && card.note.claim.as_ref().is_some_and(|found| found.id == *claim)
        });
        match ours {
            Some((oid, card)) => self.replace_card(&talk, card.again(card.note.clone())?, Some(oid)),
            None if self.is_owed(task)? => Ok(Beat::Alive),
            None => Ok(Beat::Lost),
        }
    }

    /// The same for every claim of this clone whose lock is held, by whichever process: for servers, whose agents work on
    /// tasks that no command of ours runs.
    pub fn tend(&self) -> Result<()> {
        let seen = self.seen()?;
        let ours =
            seen.cards().filter_map(|(_, found)| found.card.as_ref()).filter(|card| card.clone == self.clone);
        for card in ours {
            if let Some(claim) = &card.note.claim
                && claim.tenure == Tenure::Held
                && matches!(self.folder.owner(claim, claim.at)?, Owner::Alive)
            {
                self.beat(&card.task, &claim.id)?;
            }
        }
        Ok(())
    }

    /// A lease that is extended: a new card and no record. Seldom enough that the remote is not asked all the time.
    pub(super) fn renew(
        &self,
        talk: &Talk,
        step: &Step,
        version: Version,
        old: Option<&String>,
    ) -> Result<Outcome> {
        let seen = self.seen()?;
        let fresh = |unchanged: Duration| unchanged < self.options.lease / 6;
        if let (Some(found), Some(note)) = (seen.card(&step.task), &step.note)
            && !fresh(found.unchanged_for())
            && let Some(card) = &found.card
        {
            match self.replace_card(talk, card.again(note.clone())?, old) {
                Ok(Beat::Alive) => {}
                Ok(Beat::Lost) => return Ok(Outcome::Conflict),
                // A note of the worker's is written down all the same; that it could not be told extends nothing.
                Err(Fault::Unreachable { .. }) if matches!(step.edit, Edit::Progress(..)) => {}
                Err(Fault::Unreachable { .. }) if self.options.offline == Offline::Allow => {}
                Err(fault) => return Err(fault),
            }
        }
        self.folder.apply(&Step { version, ..step.clone() })
    }

    fn replace_card(&self, talk: &Talk, card: Card, old: Option<&String>) -> Result<Beat> {
        let (cards, _) = self.maker.make(&[&card], &[], "")?;
        let task = card.task.clone();
        let new = cards.into_iter().next();
        let update =
            Update { name: self.remote.card_ref(&ref_of(&task)), old: old.cloned(), new: new.clone() };
        for _ in 0..=UNCLEAR {
            match self.remote.push(std::slice::from_ref(&update), &talk.0)? {
                Pushed::Taken => {
                    let mut seen = self.seen()?;
                    seen.put(card, new.unwrap_or_default());
                    self.keep(&seen)?;
                    return Ok(Beat::Alive);
                }
                Pushed::Refused(what) => return Err(self.refused(&what)),
                Pushed::Moved(_) => drop(self.look(talk)?),
                Pushed::Unclear(what) => drop(self.look(talk).map_err(|_| self.remote.unreachable(&what))?),
            }
            let found = self.seen()?.card(&task).map(|found| found.oid.clone());
            if found == new {
                return Ok(Beat::Alive);
            }
            if found.as_ref() != old {
                return Ok(Beat::Lost);
            }
        }
        Err(self.remote.unreachable("it takes nothing and does not say why"))
    }

    /// Puts a new task on the branch, and here.
    pub(super) fn add_task(&self, task: &TaskName, bytes: &[u8]) -> Result<Option<Landed>> {
        let talk = self.converse()?;
        match self
            .settle(&talk)
            .and_then(|()| self.probe_once(&talk))
            .and_then(|()| self.add_on_branch(&talk, task, bytes))
        {
            Err(Fault::Unreachable { .. }) if self.options.offline == Offline::Allow => {
                let landed = self.folder.add(task, bytes)?;
                if landed.is_some() {
                    self.add_offline(task)?;
                }
                Ok(landed)
            }
            added => added,
        }
    }

    fn add_on_branch(&self, talk: &Talk, task: &TaskName, bytes: &[u8]) -> Result<Option<Landed>> {
        let mut commits = Vec::new();
        for _ in 0..TRIES {
            if self.seen()?.tip.is_empty() {
                self.look(talk)?;
            }
            if self.folder.is_in(task, State::NeedsAction)? {
                return Ok(None);
            }
            let tip = self.seen()?.tip;
            let change = Change::Put(self.tree.path_of(task, &Slot::NEEDS_ACTION), bytes.to_vec());
            let record =
                Record { message: format!("tollgate: new task {}", task.stem()), changes: vec![change] };
            let (_, made) = self.maker.make(&[], &[record], &tip)?;
            let update =
                Update { name: self.remote.branch_ref(), old: Some(tip), new: made.first().cloned() };
            commits.extend(made);
            match self.remote.push(&[update], &talk.0)? {
                Pushed::Taken => {
                    let mut seen = self.seen()?;
                    seen.tip = commits.pop().unwrap_or_default();
                    seen.imported = Some(seen.tip.clone());
                    let landed = self.folder.add(task, bytes)?;
                    self.keep(&seen)?;
                    return Ok(landed);
                }
                Pushed::Refused(what) => return Err(self.refused(&what)),
                Pushed::Moved(_) => drop(self.look(talk)?),
                Pushed::Unclear(what) => drop(self.look(talk).map_err(|_| self.remote.unreachable(&what))?),
            }
            if self.any_landed(&commits)? {
                let path = Some(self.folder.path(task, &Slot::NEEDS_ACTION));
                return Ok(Some(Landed { task: task.clone(), slot: Slot::NEEDS_ACTION, path }));
            }
        }
        Err(self.remote.unreachable("it takes nothing and does not say why"))
    }
}
