//! A reservation: from the moment when an agent's own tool may write a file until it has done so.
//!
//! In the meantime no process holds a lock, because no process of tollgate lives that long. The reservations of all paths of
//! a stripe are one line of JSON in the stripe's lock file, after the mark, so that agents of all programs see them. That
//! file is open and locked anyway, and a change of it costs a tenth of creating another file. A reservation expires after
//! some time, so that a dead agent does not block others forever; the ledger records that.
//!
//! Reservations are read and written only under the lock of their path, which every function here takes as an argument.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::path::{escape, unescape};
use crate::root::Root;
use crate::stripe_lock::StripeLocks;
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::event::{Event, ReservationVoid};
use tollgate_base::ledger::Entry;
use tollgate_base::name::{Agent, TurnId};
use tollgate_base::settings::Durability;

/// The version of the line. A later version is refused.
const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reservation {
    /// The file, escaped. Relative to the workspace if it is inside.
    path: String,
    /// The id of the tool call.
    pub(crate) call: String,
    tool: String,
    pub(crate) agent: Agent,
    pub(crate) turn: TurnId,
    /// The hash that the file will have, if the tool's input determines it.
    pub(crate) predicted: Option<Digest>,
    pub(crate) since: Timestamp,
}

/// All reservations of one stripe.
#[derive(Serialize, Deserialize)]
struct StripeLine {
    version: u32,
    reservations: Vec<Reservation>,
}

/// The tool call that reserves a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReservedBy<'a> {
    pub(crate) call: &'a str,
    pub(crate) tool: &'a str,
    pub(crate) agent: &'a Agent,
    pub(crate) turn: &'a TurnId,
    pub(crate) predicted: Option<Digest>,
}

impl Reservation {
    /// The reservation of a path, if there is one. Deletes an expired one and records that in the ledger.
    pub(crate) fn of(root: &Root, locks: &StripeLocks, path: &Path) -> Result<Option<Self>> {
        let mut all = read(locks, path)?;
        let word = escape(path);
        let Some(at) = all.iter().position(|there| there.path == word) else { return Ok(None) };
        let age = root.now().duration_since(all[at].since).unsigned_abs();
        if age <= root.settings().guard.reservation.0 {
            return Ok(Some(all.swap_remove(at)));
        }
        let void = all.swap_remove(at);
        // The ledger line first: if this process dies in between, the line is written twice, but never lost.
        root.ledger().append(&[void.expired(root.now())], Durability::Fast)?;
        write(locks, path, all)?;
        Ok(None)
    }

    /// Reserves a path. Replaces an earlier reservation, which can only be the agent's own.
    pub(crate) fn put(root: &Root, locks: &StripeLocks, path: &Path, by: ReservedBy<'_>) -> Result<()> {
        let mut all = read(locks, path)?;
        let word = escape(path);
        all.retain(|there| there.path != word);
        all.push(Self {
            path: word,
            call: by.call.to_owned(),
            tool: by.tool.to_owned(),
            agent: by.agent.clone(),
            turn: by.turn.clone(),
            predicted: by.predicted,
            since: root.now(),
        });
        write(locks, path, all)
    }

    /// Ends the reservation of this call. That of another call stays.
    pub(crate) fn end(locks: &StripeLocks, path: &Path, call: &str) -> Result<()> {
        let mut all = read(locks, path)?;
        let (word, before) = (escape(path), all.len());
        all.retain(|there| there.path != word || there.call != call);
        if all.len() < before { write(locks, path, all) } else { Ok(()) }
    }

    /// The reservations in the line of a lock file, for readers without the lock.
    pub(crate) fn all_in(text: &[u8]) -> Vec<Self> {
        serde_json::from_slice::<StripeLine>(text).map(|line| line.reservations).unwrap_or_default()
    }

    fn expired(&self, now: Timestamp) -> Entry {
        let path = unescape(&self.path).unwrap_or_else(|| PathBuf::from(&self.path));
        Entry {
            time: now,
            agent: Some(self.agent.clone()),
            turn: Some(self.turn.clone()),
            event: Event::ReservationExpired(ReservationVoid {
                tool_name: self.tool.clone(),
                target_file: path.display().to_string(),
                since: self.since,
            }),
        }
    }
}

fn read(locks: &StripeLocks, path: &Path) -> Result<Vec<Reservation>> {
    let text = locks.line(path)?;
    if text.is_empty() {
        return Ok(Vec::new());
    }
    match serde_json::from_slice::<StripeLine>(&text) {
        Ok(line) if line.version > VERSION => {
            Err(Fault::NewerFormat { path: "locks".into(), found: line.version, known: VERSION })
        }
        Ok(line) => Ok(line.reservations),
        // A power failure damaged the line, and no tool call survives that. A fault would block the stripe forever.
        Err(_) => Ok(Vec::new()),
    }
}

/// Not flushed: no tool call survives a power failure.
fn write(locks: &StripeLocks, path: &Path, reservations: Vec<Reservation>) -> Result<()> {
    if reservations.is_empty() {
        return locks.put_line(path, Vec::new());
    }
    let line = StripeLine { version: VERSION, reservations };
    locks.put_line(path, serde_json::to_vec(&line).map_err(|error| Fault::invalid(error.to_string()))?)
}
