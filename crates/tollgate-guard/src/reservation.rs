//! A reservation: from the moment when an agent's own tool may write a file until it has done so.
//!
//! In the meantime no process holds a lock, because no process of tollgate lives that long. The reservations of all paths of
//! a stripe are one line of JSON in the stripe's lock file, after the mark, so that agents of all programs see them. That
//! file is open and locked anyway, and a change of it costs a tenth of creating another file. A reservation expires after
//! some time, so that a dead agent does not block others forever; the ledger records that.
//!
//! Reservations are read and written only under the lock of their path, which every function here takes as an argument.

use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::path::EscapedPath;
use crate::root::Root;
use crate::stripe_lock::StripeLocks;
use crate::turn::TurnState;
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::event::{Event, ReservationVoid};
use tollgate_base::name::{Agent, TurnId};
use tollgate_base::settings::Durability;

/// The version of the line. A later version is refused.
const VERSION: u32 = 1;

/// One reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The file. Relative to the workspace if it is inside.
    pub(crate) path: EscapedPath,
    /// The id of the tool call.
    pub(crate) call: String,
    pub(crate) tool: String,
    /// The agent that reserved the file.
    pub agent: Agent,
    pub(crate) turn: TurnId,
    /// The hash that the file will have, if the tool's input determines it.
    pub(crate) predicted: Option<Digest>,
    /// When the reservation began.
    pub since: Timestamp,
}

/// All reservations of one stripe.
#[derive(Serialize, Deserialize)]
struct StripeLine {
    version: u32,
    reservations: Vec<Reservation>,
}

impl Reservation {
    /// The reservation of a path, if there is one. Deletes an expired one and records that in the ledger.
    pub(crate) fn of(root: &Root, locks: &StripeLocks, path: &Path) -> Result<Option<Self>> {
        let mut all = read(locks, path)?;
        let Some(at) = all.iter().position(|there| *there.path == *path) else { return Ok(None) };
        let age = root.now().duration_since(all[at].since).unsigned_abs();
        if age <= root.settings().guard.reservation.0 {
            return Ok(Some(all.swap_remove(at)));
        }
        let void = all.swap_remove(at);
        let event = Event::ReservationExpired(ReservationVoid {
            tool_name: void.tool,
            target_file: path.display().to_string(),
            since: void.since,
        });
        // The ledger line first: if this process dies in between, the line is written twice, but never lost.
        root.ledger().append(&[root.entry(Some(&void.agent), Some(&void.turn), event)], Durability::Fast)?;
        write(locks, path, all)?;
        Ok(None)
    }

    /// Reserves a path. Replaces an earlier reservation, which can only be the agent's own.
    pub(crate) fn put(self, locks: &StripeLocks) -> Result<()> {
        let path = self.path.clone();
        let mut all = read(locks, &path)?;
        all.retain(|there| there.path != path);
        all.push(self);
        write(locks, &path, all)
    }

    /// Ends the reservation of this call. That of another call stays.
    pub(crate) fn end(locks: &StripeLocks, path: &Path, call: &str) -> Result<()> {
        let mut all = read(locks, path)?;
        let before = all.len();
        all.retain(|there| *there.path != *path || there.call != call);
        if all.len() < before { write(locks, path, all) } else { Ok(()) }
    }

    /// The reservations in the line of a lock file, for readers without the lock.
    pub(crate) fn all_in(text: &[u8]) -> Vec<Self> {
        serde_json::from_slice::<StripeLine>(text).map(|line| line.reservations).unwrap_or_default()
    }

    pub(crate) fn is_of(&self, turn: &dyn TurnState) -> bool {
        self.turn == *turn.id() && self.agent == *turn.agent()
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
