//! A reservation: from the moment an agent's own tool may write a file until it has.
//!
//! Between the two nobody holds a lock, because no process of ours lives that long. The reservation is a small file in
//! the workspace, so that other agents, also of other programs, wait or are told. It is void after a time, so that an
//! agent that died blocks nobody for ever. Read and written only under the lock of its path.

use std::path::Path;

use jiff::Timestamp;
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::disk::{Found, Spot};
use crate::error::{Fault, Result};
use crate::name::{Agent, TurnId, random_id};
use crate::workspace::Workspace;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reservation {
    version: u32,
    /// The tool call that it was made for.
    pub(crate) call: String,
    pub(crate) agent: Agent,
    pub(crate) turn: TurnId,
    /// What the file will hold, if the tool's input tells.
    pub(crate) predicted: Option<Digest>,
    pub(crate) since: Timestamp,
}

impl Reservation {
    pub(crate) fn new(
        call: &str,
        agent: &Agent,
        turn: &TurnId,
        predicted: Option<Digest>,
        since: Timestamp,
    ) -> Self {
        Self { version: 1, call: call.to_owned(), agent: agent.clone(), turn: turn.clone(), predicted, since }
    }

    fn spot(workspace: &Workspace, path: &Path) -> Result<Spot> {
        use std::os::unix::ffi::OsStrExt;
        let folder = workspace.state().open_below(Path::new("reservations"))?;
        Ok(folder.spot(Digest::of(path.as_os_str().as_bytes()).to_string()))
    }

    /// The reservation of a path, if there is one and it is not void.
    pub(crate) fn of(workspace: &Workspace, path: &Path) -> Result<Option<Self>> {
        let spot = Self::spot(workspace, path)?;
        let Found::File(file) = spot.open()? else { return Ok(None) };
        let (bytes, _) = file.read()?;
        let Ok(reservation) = serde_json::from_slice::<Self>(&bytes) else {
            // Written whole or not at all, so this is no reservation of ours. It would block for ever: away with it.
            spot.remove()?;
            return Ok(None);
        };
        let age = workspace.now().duration_since(reservation.since).unsigned_abs();
        if age > workspace.settings().guard.reservation.0 {
            spot.remove()?;
            return Ok(None);
        }
        Ok(Some(reservation))
    }

    /// Reserves a path.
    pub(crate) fn put(&self, workspace: &Workspace, path: &Path) -> Result<()> {
        let spot = Self::spot(workspace, path)?;
        let unfinished = spot.beside(format!("tmp-{}", random_id()?));
        let bytes = serde_json::to_vec(self).map_err(|error| Fault::invalid(error.to_string()))?;
        let file = unfinished.create(Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP)?;
        // Not flushed: no tool call survives a power cut.
        file.write(&bytes).and_then(|()| unfinished.rename(&spot)).inspect_err(|_| {
            let _ = unfinished.remove();
        })
    }

    /// Ends the reservation that this call made. One of another call stays.
    pub(crate) fn end(workspace: &Workspace, path: &Path, call: &str) -> Result<()> {
        match Self::of(workspace, path)? {
            Some(reservation) if reservation.call == call => Self::spot(workspace, path)?.remove(),
            _ => Ok(()),
        }
    }
}
