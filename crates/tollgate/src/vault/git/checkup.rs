//! What a doctor looks at, and heals: what the remote allows, tasks in two folders, cards that nothing refers to.
//!
//! Invariants: a copy that loses is put aside, never only removed; a card is removed only as it was seen, and only if its
//! owner cannot be alive.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::card::{Card, ref_of};
use super::follow::Followed;
use super::record::{Change, Record};
use super::seen::Seen;
use super::talk::{Pushed, Update};
use super::tree::read;
use super::{GitStore, Talk};
use crate::error::{At, Result};
use crate::name::random_id;
use crate::vault::block::author_len;
use crate::vault::claim::Note;
use crate::vault::hold::Owner;
use crate::vault::name::TaskName;
use crate::vault::state::{Slot, State};
use crate::vault::store::Store;

/// What the remote allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// All that is needed.
    Fine,
    /// It takes no refs of this kind. In its own words.
    NoClaimRefs(String),
}

/// What was found, and healed where that is possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// One task was in several folders; it stays in the first, the other copies are put aside.
    Twice {
        /// The task.
        task: TaskName,
        /// Where it stays.
        kept: Slot,
        /// Where it was taken away.
        removed: Vec<Slot>,
    },
    /// The remote had a card of a task that is not where the card says, and whose owner is gone. Removed.
    OrphanedCard {
        /// The task.
        task: TaskName,
    },
    /// The remote has a card that cannot be understood. Left alone.
    UnknownCard {
        /// Its ref.
        name: String,
    },
    /// The person's working tree cannot follow.
    NotFollowing(Followed),
    /// Files that were put aside and that a person should look at.
    Aside(Vec<PathBuf>),
}

impl GitStore {
    /// Tries on the remote, with refs that are removed at once, what a claim needs: refs of their own, and several
    /// changes as one.
    pub fn probe(&self) -> Result<Probe> {
        let talk = self.converse()?;
        self.probe_now(&talk)
    }

    /// Finds out, once, whether the remote takes what a claim needs. A fault says what it does not.
    pub fn set_up(&self) -> Result<()> {
        let talk = self.converse()?;
        self.probe_once(&talk)
    }

    /// Before the first push: on some hosts a push whose claim is refused is not refused as a whole, `--atomic` or not.
    pub(super) fn probe_once(&self, talk: &Talk) -> Result<()> {
        let path = self.private.join("probed");
        let what = format!("{} {}\n", self.remote.name, self.remote.refs);
        if read(&path)?.is_some_and(|bytes| bytes == what.as_bytes()) {
            return Ok(());
        }
        match self.probe_now(talk)? {
            Probe::Fine => fs::write(&path, what).at("write", &path),
            Probe::NoClaimRefs(said) => {
                let refs = &self.remote.refs;
                Err(self.refused(&format!(
                    "refs under `{refs}` ({said}); try `claim_refs = \"refs/heads/tollgate/claims\"`"
                )))
            }
        }
    }

    fn probe_now(&self, talk: &Talk) -> Result<Probe> {
        let cards = [self.probe_card()?, self.probe_card()?];
        let (made, _) = self.maker.make(&[&cards[0], &cards[1]], &[], "")?;
        let name = |card: &Card| self.remote.card_ref(&ref_of(&card.task));
        let updates: Vec<Update> = cards
            .iter()
            .zip(made)
            .map(|(card, oid)| Update { name: name(card), old: None, new: Some(oid) })
            .collect();
        match self.remote.push(&updates, &talk.0)? {
            Pushed::Taken => {}
            Pushed::Refused(what) => return Ok(Probe::NoClaimRefs(what)),
            Pushed::Moved(what) => return Err(self.remote.unreachable(&what)),
            Pushed::Unclear(what) => return Err(self.remote.unreachable(&what)),
        }
        let removed: Vec<Update> = updates
            .into_iter()
            .map(|update| Update { old: update.new.clone(), new: None, ..update })
            .collect();
        match self.remote.push(&removed, &talk.0)? {
            Pushed::Refused(what) => Ok(Probe::NoClaimRefs(format!("refs cannot be removed: {what}"))),
            _ => Ok(Probe::Fine),
        }
    }

    fn probe_card(&self) -> Result<Card> {
        let task: TaskName = format!("probe-{}", random_id()?).parse()?;
        Card::new(&task, &self.clone, 0, Note::new(Slot::NEEDS_ACTION))
    }

    /// Looks at the remote, the tree and the person's working tree, and heals what can be healed.
    pub fn checkup(&self) -> Result<Vec<Finding>> {
        let round = self.sync()?;
        let talk = self.converse()?;
        let mut findings = Vec::new();
        self.heal_twice(&talk, &mut findings)?;
        self.heal_orphans(&talk, &mut findings)?;
        match round.followed {
            Some(Followed::UpToDate | Followed::Forward | Followed::Ahead) | None => {}
            Some(followed) => findings.push(Finding::NotFollowing(followed)),
        }
        let aside = self.kept_aside();
        if !aside.is_empty() {
            findings.push(Finding::Aside(aside));
        }
        Ok(findings)
    }

    /// One task in several folders: as people's merges leave it.
    fn heal_twice(&self, talk: &Talk, findings: &mut Vec<Finding>) -> Result<()> {
        for _ in 0..10 {
            let seen = self.seen()?;
            let found = self.twice(&seen)?;
            if found.is_empty() {
                return Ok(());
            }
            let mut changes = Vec::new();
            for (task, _, removed) in &found {
                changes.extend(removed.iter().map(|slot| Change::Remove(self.tree.path_of(task, slot))));
            }
            let names: Vec<&str> = found.iter().map(|(task, ..)| task.stem()).collect();
            let message = format!("tollgate: {} was in several folders", names.join(", "));
            let (_, made) = self.maker.make(&[], &[Record { message, changes }], &seen.tip)?;
            let name = self.remote.branch_ref();
            let update = Update { name, old: Some(seen.tip.clone()), new: made.first().cloned() };
            match self.remote.push(&[update], &talk.0)? {
                Pushed::Taken => {
                    for (task, kept, removed) in found {
                        for slot in &removed {
                            self.tree.put_aside(&self.folder.path(&task, slot), &task)?;
                        }
                        findings.push(Finding::Twice { task, kept, removed });
                    }
                    self.look(talk)?;
                    return Ok(());
                }
                Pushed::Refused(what) => {
                    return Err(self.refused(&what));
                }
                Pushed::Moved(_) => drop(self.look(talk)?),
                Pushed::Unclear(what) => drop(self.look(talk).map_err(|_| self.remote.unreachable(&what))?),
            }
        }
        Ok(())
    }

    /// The tasks that are in several folders, where each belongs, and where it does not. Two tasks of one name are not one
    /// task: what their authors wrote tells them apart.
    fn twice(&self, seen: &Seen) -> Result<Vec<(TaskName, Slot, Vec<Slot>)>> {
        let mut places: BTreeMap<TaskName, Vec<(Slot, String)>> = BTreeMap::new();
        for (task, slot, oid) in self.tree.listed(&seen.tip)? {
            places.entry(task).or_default().push((slot, oid));
        }
        places.retain(|_, slots| slots.len() > 1);
        let oids = places.values().flatten().map(|(_, oid)| oid.as_str());
        let contents = self.tree.blobs(oids.collect::<std::collections::BTreeSet<_>>())?;
        let author = |oid: &String| contents.get(oid).map(|bytes| &bytes[..author_len(bytes)]);
        let mut found = Vec::new();
        for (task, mut slots) in places {
            let card =
                seen.card(&task).and_then(|found| found.card.as_ref()).map(|card| card.note.slot.clone());
            // The card knows; else whatever has come furthest.
            slots.sort_by_key(|(slot, _)| (card.as_ref() != Some(slot), rank(slot)));
            let (kept, first) = slots.remove(0);
            let removed: Vec<Slot> = slots
                .into_iter()
                .filter(|(slot, oid)| !slot.state().is_final() && author(oid) == author(&first))
                // A task that a person puts back to be done again is new, also if its text is the same.
                .filter(|(slot, _)| !(kept.state().is_final() && *slot == Slot::NEEDS_ACTION))
                .map(|(slot, _)| slot)
                .collect();
            if !removed.is_empty() {
                found.push((task, kept, removed));
            }
        }
        Ok(found)
    }

    /// Cards of tasks that are not where the card says, and whose owners are gone.
    fn heal_orphans(&self, talk: &Talk, findings: &mut Vec<Finding>) -> Result<()> {
        let seen = self.seen()?;
        let on_branch: Vec<(TaskName, Slot)> =
            self.tree.listed(&seen.tip)?.into_iter().map(|(task, slot, _)| (task, slot)).collect();
        let mut updates = Vec::new();
        let mut gone = Vec::new();
        for (name, found) in seen.cards() {
            let Some(card) = &found.card else {
                findings.push(Finding::UnknownCard { name: self.remote.card_ref(name) });
                continue;
            };
            let in_place = on_branch.contains(&(card.task.clone(), card.note.slot.clone()));
            let elsewhere =
                on_branch.iter().any(|(task, slot)| *task == card.task && !slot.state().is_final());
            let alive = match &card.note.claim {
                Some(claim) if card.clone == self.clone => {
                    matches!(self.folder.owner(claim, jiff::Timestamp::UNIX_EPOCH)?, Owner::Alive)
                }
                _ => found.unchanged_for() < Duration::from_millis(card.lease_ms),
            };
            // A hand move keeps its card: it knows the fencing number.
            if in_place || elsewhere || alive {
                continue;
            }
            updates.push(Update {
                name: self.remote.card_ref(name),
                old: Some(found.oid.clone()),
                new: None,
            });
            gone.push(card.task.clone());
        }
        for (update, task) in updates.into_iter().zip(gone) {
            if self.remote.push(&[update], &talk.0)? == Pushed::Taken {
                findings.push(Finding::OrphanedCard { task });
            }
        }
        self.look(talk).map(drop)
    }
}

/// Whatever has come furthest comes first.
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
