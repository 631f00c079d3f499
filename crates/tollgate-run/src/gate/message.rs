//! What the supervisor tells the process that waits for the command: one line of JSON for each message.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files::Settled;
use crate::record::{ReadFile, WrittenFile};
use crate::{RunEnd, RunLevel, RunNote, RunOutcome};
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_guard::refusal::{Refusal, Refused};

/// A message of the supervisor.
#[derive(Serialize, Deserialize)]
pub(super) enum SupervisorMessage {
    /// The command has started, as this process.
    Started(i32),
    /// The command has ended, and what it changed is recorded.
    Ended(Box<Ended>),
    /// tollgate failed. The command has not started, or its calls fail.
    Failed(String),
}

/// The end of a command.
#[derive(Serialize, Deserialize)]
pub(super) struct Ended {
    end: RunEnd,
    refusals: Vec<Refusal>,
    /// Paths as bytes, relative to the workspace.
    reads: Vec<(Vec<u8>, Option<Digest>)>,
    writes: Vec<(Vec<u8>, Option<Digest>, Option<Digest>)>,
    /// Processes that it started still run.
    left_behind: bool,
}

impl SupervisorMessage {
    pub(super) fn send(&self, mut to: &UnixStream) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        to.write_all(&line)
    }

    pub(super) fn read(line: &[u8]) -> Result<Self> {
        serde_json::from_slice(line).map_err(|error| Fault::invalid(error.to_string()))
    }
}

impl Ended {
    pub(super) fn new(
        root: &Path,
        end: RunEnd,
        refusals: Vec<Refusal>,
        settled: Settled,
        left_behind: bool,
    ) -> Self {
        let relative = |path: &Path| path.strip_prefix(root).unwrap_or(path).as_os_str().as_bytes().to_vec();
        let read =
            |(path, state): &(PathBuf, tollgate_guard::turn::FileState)| (relative(path), state.digest());
        let changes = settled.changes.iter();
        let writes =
            changes.map(|made| (relative(made.path.as_path()), made.before.digest(), made.after.digest()));
        Self {
            end,
            refusals,
            reads: settled.reads.iter().map(read).collect(),
            writes: writes.collect(),
            left_behind,
        }
    }

    pub(super) fn outcome(self) -> RunOutcome {
        let path = |bytes: Vec<u8>| PathBuf::from(OsString::from_vec(bytes));
        let read = |(bytes, sha256)| ReadFile { path: path(bytes), sha256 };
        let write = |(bytes, before, after)| WrittenFile { path: path(bytes), before, after };
        RunOutcome {
            level: RunLevel::Gate,
            end: self.end,
            refused: Refused::all(self.refusals),
            reads: self.reads.into_iter().map(read).collect(),
            writes: self.writes.into_iter().map(write).collect(),
            notes: self.left_behind.then_some(RunNote::StillGuarded).into_iter().collect(),
            background: None,
        }
    }
}
