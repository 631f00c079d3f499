//! A tool call in progress: the hook before the tool records it, the hook after the tool takes it.
//!
//! Each call is one file in the `calls` folder of its session. A process takes a call by renaming its file, so only one
//! process gets it.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tollgate::digest::{Digest, Hasher};
use tollgate::error::Fault;
use tollgate::gate::Ticket;
use tollgate::name::{Agent, TurnId};
use tollgate::shared_turn::SharedTurn;
use tollgate::turn::TurnState;
use tollgate_base::file::TEMPORARY;
use tollgate_base::private;

use super::process::Process;
use super::prologue::Prologue;
use crate::replace::{FileAccess, replace_file};

/// The version of the format. A file of a later version is left to the tollgate that wrote it.
const VERSION: u32 = 1;

/// A tool call in progress.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PendingCall {
    version: u32,
    pub(super) turn: TurnId,
    pub(super) agent: Agent,
    /// `None` for a shell command that names no file.
    pub(super) ticket: Option<Ticket>,
    /// The hashes that the files will have, where that is known.
    predicted: Vec<(PathBuf, Digest)>,
    /// The prologues of its commands, if they run through `tollgate run`.
    #[serde(default)]
    pub(super) prologues: Vec<Prologue>,
    /// Its commands run through `tollgate run` in the view of a workspace around this one, which learns from the record what they wrote.
    #[serde(default, rename = "runs_elsewhere")]
    pub(super) runs_in_outer_workspace: bool,
    /// The program that runs the tool.
    host: Option<Process>,
}

/// What the hook before a tool knows about the call.
#[derive(Debug, Default)]
pub(super) struct Expectation {
    pub(super) ticket: Option<Ticket>,
    pub(super) predicted: Vec<(PathBuf, Digest)>,
    pub(super) prologues: Vec<Prologue>,
    pub(super) runs_in_outer_workspace: bool,
}

impl PendingCall {
    /// Records a call in this folder under this name.
    pub(super) fn record(
        folder: &Path,
        name: &str,
        turn: &SharedTurn,
        expectation: Expectation,
    ) -> Result<(), Fault> {
        let Expectation { ticket, predicted, prologues, runs_in_outer_workspace } = expectation;
        let (turn, agent) = (turn.id().clone(), turn.agent().clone());
        let host = Process::of_host();
        let call = Self {
            version: VERSION,
            turn,
            agent,
            ticket,
            predicted,
            prologues,
            runs_in_outer_workspace,
            host,
        };
        let bytes = serde_json::to_vec(&call).map_err(|error| Fault::invalid(error.to_string()))?;
        replace_file(&path(folder, name), &bytes, FileAccess::Private)
    }

    /// Takes the call of this name, if it was recorded and no other process has taken it.
    pub(super) fn take(folder: &Path, name: &str) -> Result<Option<(Self, CallTime)>, Fault> {
        take(&path(folder, name))
    }

    /// Whether all files hold what the call was expected to write.
    pub(super) fn is_done(&self) -> bool {
        let holds = |(path, digest): &(PathBuf, Digest)| hash_of(path).is_ok_and(|found| found == *digest);
        let all = self.ticket.as_ref().map_or(0, |ticket| ticket.changes().count());
        all > 0 && self.predicted.len() == all && self.predicted.iter().all(holds)
    }

    /// Whether the program that runs the tool is dead.
    pub(super) fn host_is_dead(&self) -> bool {
        self.host.as_ref().is_some_and(|host| !host.is_alive())
    }
}

fn path(folder: &Path, name: &str) -> PathBuf {
    folder.join("calls").join(name)
}

/// Whether a call of this name is recorded.
pub(super) fn is_recorded(folder: &Path, name: &str) -> bool {
    path(folder, name).exists()
}

/// The files of all recorded calls in this folder. Calls that are being recorded or taken have other names.
pub(super) fn all(folder: &Path) -> Vec<PathBuf> {
    let names = private::names(&folder.join("calls")).unwrap_or_default();
    let is_temporary =
        |path: &Path| path.file_name().is_some_and(|name| name.as_bytes().starts_with(TEMPORARY.as_bytes()));
    let paths = names.into_iter().map(|name| folder.join("calls").join(name));
    paths.filter(|path| path.extension().is_none() && !is_temporary(path)).collect()
}

/// Reads a call without taking it.
pub(super) fn peek(path: &Path) -> Option<PendingCall> {
    let call: PendingCall = serde_json::from_slice(&private::read(path).ok()?).ok()?;
    (call.version == VERSION).then_some(call)
}

/// Whether a later tollgate has recorded this call.
fn is_later(path: &Path) -> bool {
    #[derive(Deserialize)]
    struct RecordVersion {
        version: u32,
    }
    let found = private::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    found.is_some_and(|RecordVersion { version }| version > VERSION)
}

/// Takes a call by renaming its file. A call of a later version is not taken.
pub(super) fn take(path: &Path) -> Result<Option<(PendingCall, CallTime)>, Fault> {
    let fault = |doing| move |source| Fault::Io { doing, path: path.to_owned(), source };
    let since = match fs::symlink_metadata(path) {
        Ok(found) => CallTime(changed(&found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fault("look at")(error)),
    };
    if is_later(path) {
        return Ok(None);
    }
    let taken = path.with_extension(format!("taken-{}", std::process::id()));
    match private::rename(path, &taken) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fault("take")(error)),
    }
    let bytes = private::read(&taken).map_err(fault("read"));
    let _ = private::remove_file(&taken);
    match serde_json::from_slice::<PendingCall>(&bytes?) {
        Ok(call) if call.version == VERSION => Ok(Some((call, since))),
        _ => Err(Fault::Damaged { path: path.to_owned(), what: "it should describe a tool call".into() }),
    }
}

/// The hash of a file of any size.
pub(super) fn hash_of(path: &Path) -> io::Result<Digest> {
    let (mut file, mut hasher) = (fs::File::open(path)?, Hasher::default());
    let mut chunk = vec![0; 64 << 10];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(count) => hasher.update(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// When a call was recorded, by the kernel's clock for files.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallTime(i128);

/// When a file was last changed, by its ctime. Unlike the mtime, programs cannot set it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastChange {
    /// Before the call was recorded.
    Before,
    /// After the call was recorded, or at about the same time, within the precision of the clock, or nobody can tell.
    Since,
}

impl CallTime {
    /// This time on the clock of the ledger. No line is later than a time that this clock does not have.
    pub(super) fn time(self) -> Timestamp {
        Timestamp::from_nanosecond(self.0).unwrap_or(Timestamp::MAX)
    }

    pub(super) fn last_changed(self, path: &Path) -> LastChange {
        // The kernel's clock ticks at least a hundred times a second. This is a little more than two ticks.
        const TICKS: i128 = 30_000_000;
        // lstat is the cheapest call that tells, and it runs for every file of the turn.
        let Ok(found) = rustix::fs::lstat(path) else { return LastChange::Since };
        // The times of a symbolic link do not tell about its target.
        if rustix::fs::FileType::from_raw_mode(found.st_mode).is_symlink() {
            return LastChange::Since;
        }
        #[allow(clippy::useless_conversion, reason = "their types depend on the system")]
        let changed = i128::from(found.st_ctime) * 1_000_000_000 + i128::from(found.st_ctime_nsec);
        if changed - self.0 >= -TICKS { LastChange::Since } else { LastChange::Before }
    }
}

fn changed(metadata: &fs::Metadata) -> i128 {
    i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec())
}
