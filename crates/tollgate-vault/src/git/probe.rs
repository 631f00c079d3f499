//! Whether the remote allows what a claim needs: refs of their own, and several changes in one act.
//!
//! It is tried once for each remote, before the first push, with refs that are deleted at once: some hosts refuse the claim
//! of a push and take the rest, even with `--atomic`.

use std::fs;

use super::card::{Card, ref_of};
use super::clone::{Conversation, LocalClone};
use super::file::read;
use super::remote::{Pushed, Update};
use crate::claim::ClaimRecord;
use crate::state::Slot;
use tollgate_base::error::Result;
use tollgate_base::name::random_id;
use tollgate_base::settings::Durability;
use tollgate_base::task::TaskName;

/// What the remote allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Probe {
    /// Everything that a claim needs.
    Fine,
    /// No refs of this kind. In its own words.
    Refused(String),
}

impl LocalClone {
    /// Tries it, unless it was tried before. A refusal is a fault.
    pub(super) fn probe_once(&self, talk: &Conversation) -> Result<()> {
        if read(&self.private.join("probed"))?.is_some_and(|bytes| bytes == self.probed().as_bytes()) {
            return Ok(());
        }
        match self.probe(talk)? {
            Probe::Fine => Ok(()),
            Probe::Refused(said) => Err(self.refused(&format!(
                "{} ({said}); try `claim_refs = \"refs/heads/tollgate/claims\"`",
                self.probed_refs()
            ))),
        }
    }

    /// What a claim needs, for messages.
    pub(super) fn probed_refs(&self) -> String {
        format!("refs under `{}`", self.remote.claim_refs)
    }

    /// The remote and the refs that were tried.
    fn probed(&self) -> String {
        format!("{} {}\n", self.remote.name, self.remote.claim_refs)
    }

    /// Tries it now, and remembers the result.
    pub(super) fn probe(&self, talk: &Conversation) -> Result<Probe> {
        let path = self.private.join("probed");
        let probe = self.try_claim_refs(talk)?;
        if probe == Probe::Fine {
            self.folder().disk().replace_file(&path, self.probed().as_bytes(), Durability::Fast)?;
        } else {
            let _ = fs::remove_file(&path);
        }
        Ok(probe)
    }

    fn try_claim_refs(&self, talk: &Conversation) -> Result<Probe> {
        let cards = [self.probe_card()?, self.probe_card()?];
        let made = self.maker.make(&[&cards[0], &cards[1]], &[], "")?.cards;
        let name = |card: &Card| self.remote.card_ref(&ref_of(&card.task));
        let updates: Vec<Update> = cards
            .iter()
            .zip(made)
            .map(|(card, oid)| Update { name: name(card), old: None, new: Some(oid) })
            .collect();
        match self.remote.push(&updates, &talk.0)? {
            Pushed::Taken => {}
            Pushed::Refused(what) => return Ok(Probe::Refused(what)),
            Pushed::Moved(what) | Pushed::Unclear(what) => return Err(self.remote.unreachable(&what)),
        }
        let deleted: Vec<Update> = updates
            .into_iter()
            .map(|update| Update { old: update.new.clone(), new: None, ..update })
            .collect();
        match self.remote.push(&deleted, &talk.0)? {
            Pushed::Refused(what) => Ok(Probe::Refused(format!("refs cannot be deleted: {what}"))),
            _ => Ok(Probe::Fine),
        }
    }

    fn probe_card(&self) -> Result<Card> {
        let task: TaskName = format!("probe-{}", random_id()?).parse()?;
        Card::new(&task, &self.id, 0, ClaimRecord::new(Slot::NEEDS_ACTION))
    }
}
