//! Steps that were taken while the remote could not be reached, for users who chose that (`offline = "allow"`).
//!
//! They are told to the remote when it answers again: a task goes from where the branch has it to where it is here, in one
//! record. If the branch or the card says that another has dealt with it meanwhile, the remote is right, and what was done
//! here is put aside for a person. That is what one chooses: work that may have been done twice, never a lost result.
//!
//! Invariant: read and written under the lock of the conversation.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::card::{Card, ref_of};
use super::record::{Change, Record};
use super::step::millis;
use super::talk::{Pushed, Update};
use super::tree::read;
use super::{GitStore, Given, Talk};
use crate::error::{At, Fault, Result};
use crate::vault::name::TaskName;
use crate::vault::state::Slot;
use crate::vault::store::{Outcome, Placed, Step, Store, Stored, Version};

/// So often a record is made anew for a branch that has moved.
const TRIES: u32 = 50;

/// Where a task was before the remote was out of reach.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Owed {
    /// `None`: it was new.
    from: Option<(TaskName, Slot)>,
    /// The commit that was last seen then.
    base: String,
    /// The card then.
    card: Option<String>,
}

/// By its name here.
type All = BTreeMap<TaskName, Owed>;

impl GitStore {
    fn owed_path(&self) -> PathBuf {
        self.private.join("owed.json")
    }

    fn owed(&self) -> Result<All> {
        let path = self.owed_path();
        let Some(bytes) = read(&path)? else { return Ok(All::new()) };
        serde_json::from_slice(&bytes).map_err(|error| Fault::damaged(&path, error))
    }

    fn keep_owed(&self, all: &All) -> Result<()> {
        let path = self.owed_path();
        if all.is_empty() {
            return self.folder.disk().remove(&path);
        }
        let bytes = serde_json::to_vec(all).map_err(|error| Fault::invalid(error.to_string()))?;
        let stage = path.with_extension("new");
        fs::write(&stage, bytes).at("write", &stage)?;
        fs::rename(&stage, &path).at("rename", &stage)
    }

    pub(super) fn is_owed(&self, task: &TaskName) -> Result<bool> {
        Ok(self.owed()?.contains_key(task))
    }

    /// Takes a step here alone.
    pub(super) fn take_offline(&self, step: &Step, version: Version) -> Result<Outcome> {
        let mut all = self.owed()?;
        let seen = self.seen()?;
        let card = seen.card(&step.task).map(|found| found.oid.clone());
        let first =
            || Owed { from: Some((step.task.clone(), step.from.clone())), base: seen.tip.clone(), card };
        let owed = all.remove(&step.task).unwrap_or_else(first);
        let outcome = self.folder.apply(&Step { version, ..step.clone() })?;
        if let Outcome::Done(landed) = &outcome {
            all.insert(landed.task.clone(), owed);
            self.keep_owed(&all)?;
        }
        Ok(outcome)
    }

    /// A task that is new here.
    pub(super) fn add_offline(&self, task: &TaskName) -> Result<()> {
        let mut all = self.owed()?;
        all.insert(task.clone(), Owed { from: None, base: self.seen()?.tip, card: None });
        self.keep_owed(&all)
    }

    /// Tells the remote what it has missed. How many were told; what it would not have is put aside. To be done after a
    /// glance and before the tree is brought up to it: what comes in must not be taken for what was done here.
    pub(super) fn pay(&self, talk: &Talk) -> Result<usize> {
        let mut paid = 0;
        let mut all = self.owed()?;
        while let Some((task, owed)) = all.pop_first() {
            match self.folder.get(&task, None, jiff::Timestamp::UNIX_EPOCH)? {
                Some(stored) if self.pay_one(talk, &stored, &owed)? => paid += 1,
                Some(stored) => self.give_up(&stored, &owed)?,
                None => {}
            }
            self.keep_owed(&all)?;
        }
        Ok(paid)
    }

    fn pay_one(&self, talk: &Talk, stored: &Stored, owed: &Owed) -> Result<bool> {
        let Placed { task, slot, note, .. } = &stored.placed;
        let bytes = self.folder.read(stored, u64::MAX)?;
        for _ in 0..TRIES {
            let seen = self.seen()?;
            if !self.is_untouched(owed, &seen.tip, seen.card(task).map(|found| &found.oid))? {
                return Ok(false);
            }
            let card = match slot.state().is_final() || *slot == Slot::NEEDS_ACTION && note.epoch == 0 {
                true => None,
                false => Some(Card::new(task, &self.clone, millis(self.options.lease), note.clone())?),
            };
            let mut changes: Vec<Change> = Vec::new();
            changes
                .extend(owed.from.iter().map(|(task, slot)| Change::Remove(self.tree.path_of(task, slot))));
            changes.push(Change::Put(self.tree.path_of(task, slot), bytes.clone()));
            let message = format!("tollgate: {} went to {slot} while offline", task.stem());
            let cards: Vec<&Card> = card.iter().collect();
            let (cards, commits) = self.maker.make(&cards, &[Record { message, changes }], &seen.tip)?;
            let (commit, oid) = (commits.first().cloned(), cards.first().cloned());
            let mut updates = vec![Update {
                name: self.remote.branch_ref(),
                old: Some(seen.tip.clone()),
                new: commit.clone(),
            }];
            if oid.is_some() || owed.card.is_some() {
                let name = self.remote.card_ref(&ref_of(task));
                updates.push(Update { name, old: owed.card.clone(), new: oid.clone() });
            }
            match self.remote.push(&updates, &talk.0)? {
                Pushed::Taken => {
                    let mut seen = seen;
                    seen.tip = commit.unwrap_or_default();
                    seen.remove(task);
                    if let (Some(oid), Some(card)) = (oid, card) {
                        seen.put(card, oid);
                    }
                    self.keep(&seen)?;
                    return Ok(true);
                }
                Pushed::Refused(what) => {
                    return Err(Fault::RemoteRefused { remote: self.remote.name.clone(), what });
                }
                Pushed::Moved(_) => self.glance(talk)?,
                Pushed::Unclear(what) => self.glance(talk).map_err(|_| self.remote.unreachable(&what))?,
            }
        }
        Err(self.remote.unreachable("it takes nothing and does not say why"))
    }

    /// Whether the remote has it as it was when it was last seen.
    fn is_untouched(&self, owed: &Owed, tip: &str, card: Option<&String>) -> Result<bool> {
        if card != owed.card.as_ref() {
            return Ok(false);
        }
        let Some((task, slot)) = &owed.from else { return Ok(true) };
        let at = |commit: &str| {
            let path = String::from_utf8_lossy(&self.tree.path_of(task, slot)).into_owned();
            let name = format!("{commit}:{path}");
            let ran = self.remote.git.local(&["rev-parse", "--verify", "--quiet", &name], &Given::Nothing)?;
            Ok::<_, Fault>(ran.ok.then(|| ran.text()))
        };
        let now = at(tip)?;
        Ok(now.is_some() && now == at(&owed.base)?)
    }

    /// Another has dealt with it: what was done here is for a person to look at.
    fn give_up(&self, stored: &Stored, owed: &Owed) -> Result<()> {
        self.tree.put_aside(&self.folder.path(&stored.task, &stored.slot), &stored.task)?;
        // Where the branch has it still, it is shown again.
        if let Some((task, slot)) = &owed.from {
            let tip = self.seen()?.tip;
            let name = format!("{tip}:{}", String::from_utf8_lossy(&self.tree.path_of(task, slot)));
            let found = self.remote.git.local(&["cat-file", "blob", &name], &Given::Nothing)?;
            let path = self.folder.path(task, slot);
            if found.ok && !path.exists() {
                self.tree.put(&path, &found.out)?;
            }
        }
        Ok(())
    }
}
