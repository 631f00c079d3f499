//! The checkup: what the remote allows, tasks in two folders, cards of tasks that are gone.
//!
//! Invariants: a superfluous copy of a task is set aside, never only deleted. A card is deleted only if it is still the one
//! that was seen, and only if its owner cannot be alive.

use std::collections::BTreeMap;
use std::time::Duration;

use super::clone::{Conversation, LocalClone};
use super::commit::{NewCommit, PathChange};
use super::probe::Probe;
use super::remote::{Pushed, Update};
use super::seen::{Seen, SeenCard};
use crate::block::author_len;
use crate::checkup::{Finding, Followed};
use crate::claim_lock::Liveness;
use crate::state::{Slot, State};
use crate::store::Store;
use tollgate_base::error::Result;
use tollgate_base::task::TaskName;

/// How often the fix of tasks in two folders is made again because the branch has moved.
const TRIES: u32 = 10;

impl LocalClone {
    /// Looks at the remote, the tree and the person's working tree, and fixes what can be fixed.
    pub(super) fn checkup(&self) -> Result<Vec<Finding>> {
        let talk = self.converse()?;
        if let Probe::Refused(said) = self.probe(&talk)? {
            return Ok(vec![Finding::RefusesClaims { what: self.probed_refs(), said }]);
        }
        let (branch, remote) = (&self.remote.branch, &self.remote.name);
        let mut findings = vec![Finding::Fine(format!(
            "branch `{branch}` of `{remote}` allows everything that a claim needs"
        ))];
        let synced = self.sync(&talk)?;
        self.fix_twice(&talk, &mut findings)?;
        self.delete_orphans(&talk, &mut findings)?;
        match synced.followed {
            Some(Followed::UpToDate | Followed::Forward | Followed::Ahead) | None => {}
            Some(followed) => findings.push(Finding::NotFollowing(followed)),
        }
        let aside = self.tree.kept_aside();
        if !aside.is_empty() {
            findings.push(Finding::Aside(aside));
        }
        Ok(findings)
    }

    /// Fixes tasks that are in several folders, as merges by people leave them.
    fn fix_twice(&self, talk: &Conversation, findings: &mut Vec<Finding>) -> Result<()> {
        for _ in 0..TRIES {
            let seen = self.seen()?;
            let found = self.twice(&seen)?;
            if found.is_empty() {
                return Ok(());
            }
            let mut changes = Vec::new();
            for (task, _, removed) in &found {
                let path = |slot| PathChange::Remove(self.tree.branch.path_of(task, slot));
                changes.extend(removed.iter().map(path));
            }
            let names: Vec<&str> = found.iter().map(|(task, ..)| task.stem()).collect();
            let message = format!("tollgate: {} was in several folders", names.join(", "));
            let made = self.maker.make(&[], &[NewCommit { message, changes }], &seen.tip)?;
            let (name, new) = (self.remote.branch_ref(), made.commits.first().cloned());
            match self.remote.push(&[Update { name, old: Some(seen.tip.clone()), new }], &talk.0)? {
                Pushed::Taken => {
                    for (task, kept, removed) in found {
                        for slot in &removed {
                            self.tree.set_aside(&self.folder().path(&task, slot), &task)?;
                        }
                        findings.push(Finding::Twice { task, kept, removed });
                    }
                    return self.look(talk).map(drop);
                }
                Pushed::Refused(what) => return Err(self.refused(&what)),
                Pushed::Moved(_) => drop(self.look(talk)?),
                Pushed::Unclear(what) => drop(self.look(talk).map_err(|_| self.remote.unreachable(&what))?),
            }
        }
        Ok(())
    }

    /// The tasks that are in several folders: where each belongs, and where its copies are. Two tasks of one name are not
    /// one task if their authors wrote different texts.
    fn twice(&self, seen: &Seen) -> Result<Vec<(TaskName, Slot, Vec<Slot>)>> {
        let mut places: BTreeMap<TaskName, Vec<(Slot, String)>> = BTreeMap::new();
        for (task, slot, oid) in self.tree.branch.listed(&seen.tip)? {
            places.entry(task).or_default().push((slot, oid));
        }
        places.retain(|_, slots| slots.len() > 1);
        let oids = places.values().flatten().map(|(_, oid)| oid.as_str());
        let contents = self.tree.branch.blobs(oids)?;
        let author = |oid: &String| contents.get(oid).map(|bytes| &bytes[..author_len(bytes)]);
        let mut found = Vec::new();
        for (task, mut slots) in places {
            let card = seen.card(&task).and_then(|found| found.card.as_ref()).map(|card| &card.record.slot);
            // It belongs where its card says; without a card, where it has come furthest.
            slots.sort_by_key(|(slot, _)| (card != Some(slot), rank(slot)));
            let (kept, first) = slots.remove(0);
            let removed: Vec<Slot> = slots
                .into_iter()
                .filter(|(slot, oid)| !slot.state().is_final() && author(oid) == author(&first))
                // A finished task that a person puts back into `Needs_Action` is new, even with the same text.
                .filter(|(slot, _)| !(kept.state().is_final() && *slot == Slot::NEEDS_ACTION))
                .map(|(slot, _)| slot)
                .collect();
            if !removed.is_empty() {
                found.push((task, kept, removed));
            }
        }
        Ok(found)
    }

    /// Deletes the cards of tasks that are not where the card says and whose owners are gone.
    fn delete_orphans(&self, talk: &Conversation, findings: &mut Vec<Finding>) -> Result<()> {
        let seen = self.seen()?;
        let on_branch: Vec<(TaskName, Slot)> =
            self.tree.branch.listed(&seen.tip)?.into_iter().map(|(task, slot, _)| (task, slot)).collect();
        for (name, found) in seen.cards() {
            let name = self.remote.card_ref(name);
            let Some(card) = &found.card else {
                findings.push(Finding::UnreadableClaim(name));
                continue;
            };
            // A task that a person moved keeps its card, because the card has the fencing number.
            let is_used = on_branch.iter().any(|(task, slot)| {
                *task == card.task && (*slot == card.record.slot || !slot.state().is_final())
            });
            if is_used || self.may_be_alive(found)? {
                continue;
            }
            let delete = Update { name, old: Some(found.oid.clone()), new: None };
            if self.remote.push(&[delete], &talk.0)? == Pushed::Taken {
                findings.push(Finding::OrphanedClaim(card.task.clone()));
            }
        }
        self.look(talk).map(drop)
    }

    fn may_be_alive(&self, found: &SeenCard) -> Result<bool> {
        let Some(card) = &found.card else { return Ok(true) };
        match &card.record.claim {
            Some(claim) if card.clone == self.id => {
                Ok(matches!(self.folder().liveness(claim)?, Liveness::Alive))
            }
            _ => Ok(found.unchanged_for() < Duration::from_millis(card.lease_ms)),
        }
    }
}

/// The state that has come furthest comes first.
fn rank(slot: &Slot) -> u8 {
    match slot.state() {
        State::Done => 0,
        State::Rejected => 1,
        State::PendingApproval => 2,
        State::InProgress => 3,
        State::Approved => 4,
        State::NeedsAction => 5,
    }
}
