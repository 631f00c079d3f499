//! A reservation: from the moment an agent's own tool may write a file until it has.
//!
//! Between the two nobody holds a lock, because no process of ours lives that long. The reservations of all paths of a
//! stripe are one line of JSON in the stripe's lock file, behind the mark, so that other agents, also of other programs,
//! wait or are told. That file is open and locked anyway, and to change it costs a tenth of making another. A reservation
//! is void after a time, so that an agent that died blocks nobody for ever; the ledger then says so.
//!
//! Read and written only under the lock of its path: every function here wants to see it.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::{Fault, Result};
use crate::ledger::{ActionType, Entry, Flush};
use crate::lock::StripeLocks;
use crate::name::{Agent, TurnId};
use crate::path::{escape, unescape};
use crate::workspace::Workspace;

/// The version of the line. A later one is refused, not misread.
const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reservation {
    /// The file, relative to the workspace if it lies there, as one word.
    path: String,
    /// The tool call that it was made for.
    pub(crate) call: String,
    tool: String,
    pub(crate) agent: Agent,
    pub(crate) turn: TurnId,
    /// What the file will hold, if the tool's input tells.
    pub(crate) predicted: Option<Digest>,
    pub(crate) since: Timestamp,
}

/// All of one stripe.
#[derive(Serialize, Deserialize)]
struct Line {
    version: u32,
    reservations: Vec<Reservation>,
}

/// Why a path is reserved: by which call of which tool, whose, for what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct For<'a> {
    pub(crate) call: &'a str,
    pub(crate) tool: &'a str,
    pub(crate) agent: &'a Agent,
    pub(crate) turn: &'a TurnId,
    pub(crate) predicted: Option<Digest>,
}

impl Reservation {
    /// The reservation of a path, if there is one. One that has run out is taken away, and the ledger says so.
    pub(crate) fn of(workspace: &Workspace, locks: &StripeLocks, path: &Path) -> Result<Option<Self>> {
        let mut all = read(locks, path)?;
        let word = escape(path);
        let Some(at) = all.iter().position(|there| there.path == word) else { return Ok(None) };
        let age = workspace.now().duration_since(all[at].since).unsigned_abs();
        if age <= workspace.settings().guard.reservation.0 {
            return Ok(Some(all.swap_remove(at)));
        }
        let void = all.swap_remove(at);
        // The line first: who dies in between has it written twice, and not never.
        workspace.ledger().append(&[void.expired(workspace.now())], Flush::No)?;
        write(locks, path, all)?;
        Ok(None)
    }

    /// Reserves a path. Another reservation of it, which can only be the agent's own, makes room.
    pub(crate) fn put(workspace: &Workspace, locks: &StripeLocks, path: &Path, by: For<'_>) -> Result<()> {
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
            since: workspace.now(),
        });
        write(locks, path, all)
    }

    /// Ends the reservation that this call made. One of another call stays.
    pub(crate) fn end(locks: &StripeLocks, path: &Path, call: &str) -> Result<()> {
        let mut all = read(locks, path)?;
        let (word, before) = (escape(path), all.len());
        all.retain(|there| there.path != word || there.call != call);
        if all.len() < before { write(locks, path, all) } else { Ok(()) }
    }

    /// The reservations in the text of a lock file, for those who only look.
    pub(crate) fn all_in(text: &[u8]) -> Vec<Self> {
        serde_json::from_slice::<Line>(text).map(|line| line.reservations).unwrap_or_default()
    }

    fn expired(&self, now: Timestamp) -> Entry {
        let path = unescape(&self.path).unwrap_or_else(|| PathBuf::from(&self.path));
        Entry {
            time: now,
            agent: Some(self.agent.clone()),
            turn: Some(self.turn.clone()),
            action_type: ActionType::ReservationExpired,
            payload: serde_json::json!({
                "tool_name": self.tool,
                "target_file": path.display().to_string(),
                "since": self.since,
            }),
            result: serde_json::json!({"status": "EXPIRED"}),
        }
    }
}

fn read(locks: &StripeLocks, path: &Path) -> Result<Vec<Reservation>> {
    let text = locks.line(path)?;
    if text.is_empty() {
        return Ok(Vec::new());
    }
    match serde_json::from_slice::<Line>(&text) {
        Ok(line) if line.version > VERSION => {
            Err(Fault::NewerFormat { path: "locks".into(), found: line.version, known: VERSION })
        }
        Ok(line) => Ok(line.reservations),
        // A power cut has torn it, and no tool call survives one. It would block for ever: the next line replaces it.
        Err(_) => Ok(Vec::new()),
    }
}

/// Not flushed: no tool call survives a power cut.
fn write(locks: &StripeLocks, path: &Path, reservations: Vec<Reservation>) -> Result<()> {
    if reservations.is_empty() {
        return locks.put_line(path, Vec::new());
    }
    let line = Line { version: VERSION, reservations };
    locks.put_line(path, serde_json::to_vec(&line).map_err(|error| Fault::invalid(error.to_string()))?)
}
