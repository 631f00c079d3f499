//! Steps that an earlier version took while the remote was unreachable: published once, or set aside.
//!
//! Earlier versions could work without the remote and listed the tasks in `owed.json`. This version cannot, because two
//! machines could then work on one task. When it reaches the remote for the first time, each listed task goes from where the
//! branch has it to where it is here. If somebody else has dealt with the task in the meantime, the remote is right, and the
//! file is set aside for a person.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use super::card::{Card, ref_of};
use super::clone::{Conversation, LocalClone};
use super::commit::{NewCommit, PathChange};
use super::file::read;
use super::remote::{Pushed, Update};
use crate::state::Slot;
use crate::store::{Store, Task};
use tollgate_base::error::{Fault, Result};
use tollgate_base::task::TaskName;

/// How often a commit is made again because the branch has moved.
const TRIES: u32 = 50;

/// A task that was changed without the remote.
#[derive(Debug, Deserialize)]
struct Owed {
    /// Where the branch has it; `None`: it is new.
    from: Option<(TaskName, Slot)>,
    /// The tip of the branch at that time.
    base: String,
    /// The object of its card at that time.
    card: Option<String>,
}

impl LocalClone {
    /// Publishes what an earlier version did offline. Cheap if there is nothing.
    pub(super) fn publish_offline_work(&self, talk: &Conversation) -> Result<()> {
        let path = self.private.join("owed.json");
        let Some(bytes) = read(&path)? else { return Ok(()) };
        let all: BTreeMap<TaskName, Owed> =
            serde_json::from_slice(&bytes).map_err(|error| Fault::damaged(&path, error))?;
        // Only a glance: what others did must not be mistaken for what was done here.
        self.glance(talk)?;
        for (task, owed) in &all {
            let Some(found) = self.folder().get(task, None, Timestamp::UNIX_EPOCH)? else { continue };
            if !self.publish(talk, &found, owed)? {
                self.withdraw(&found, owed)?;
            }
        }
        self.folder().disk().remove(&path)
    }

    /// Whether the remote has the task now as it is here.
    fn publish(&self, talk: &Conversation, task: &Task, owed: &Owed) -> Result<bool> {
        let branch = &self.tree.branch;
        let Some(text) = self.folder().read(task, u64::MAX)? else { return Ok(false) };
        for _ in 0..TRIES {
            let mut seen = self.seen()?;
            match branch.text(&seen.tip, &task.name, &task.slot)? {
                // Published before a crash.
                Some(there) if there == text => return Ok(true),
                Some(_) => return Ok(false),
                None => {}
            }
            let was = |commit: &str| match &owed.from {
                Some((name, slot)) => branch.text(commit, name, slot),
                None => Ok(Some(Vec::new())),
            };
            let now = was(&seen.tip)?;
            let card = seen.card(&task.name).map(|found| &found.oid);
            if now.is_none() || now != was(&owed.base)? || card != owed.card.as_ref() {
                return Ok(false);
            }
            let is_known = !task.slot.state().is_final() && task.record.epoch > 0;
            let card = is_known.then(|| self.new_card(&task.name, task.record.clone())).transpose()?;
            let mut changes = vec![PathChange::Put(branch.path_of(&task.name, &task.slot), text.clone())];
            changes
                .extend(owed.from.iter().map(|(name, slot)| PathChange::Remove(branch.path_of(name, slot))));
            let message = format!("tollgate: {} went to {} while offline", task.name.stem(), task.slot);
            let cards: Vec<&Card> = card.iter().collect();
            let made = self.maker.make(&cards, &[NewCommit { message, changes }], &seen.tip)?;
            let (commit, oid) = (made.commits.first().cloned(), made.cards.first().cloned());
            let name = self.remote.card_ref(&ref_of(&task.name));
            let updates = [
                Update { name: self.remote.branch_ref(), old: Some(seen.tip.clone()), new: commit.clone() },
                Update { name, old: owed.card.clone(), new: oid.clone() },
            ];
            let has_card = oid.is_some() || owed.card.is_some();
            match self.remote.push(if has_card { &updates } else { &updates[..1] }, &talk.0)? {
                Pushed::Taken => {
                    seen.tip = commit.unwrap_or_default();
                    seen.remove(&task.name);
                    if let (Some(oid), Some(card)) = (oid, card) {
                        seen.put(card, oid);
                    }
                    self.keep(&seen)?;
                    return Ok(true);
                }
                Pushed::Refused(what) => return Err(self.refused(&what)),
                Pushed::Moved(_) => self.glance(talk)?,
                Pushed::Unclear(what) => self.glance(talk).map_err(|_| self.remote.unreachable(&what))?,
            }
        }
        Err(self.remote.unreachable("it does not take a push and gives no reason"))
    }

    /// Sets the file aside, and shows the task where the branch still has it.
    fn withdraw(&self, task: &Task, owed: &Owed) -> Result<()> {
        self.tree.set_aside(&self.folder().path(&task.name, &task.slot), &task.name)?;
        let Some((name, slot)) = &owed.from else { return Ok(()) };
        let path = self.folder().path(name, slot);
        match self.tree.branch.text(&self.seen()?.tip, name, slot)? {
            Some(text) if !path.exists() => self.tree.put(&path, &text),
            _ => Ok(()),
        }
    }
}
