//! What came of a run.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};

use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_guard::gate::Gate;
use tollgate_guard::guard::Refused;
use tollgate_guard::turn::TurnState;

use crate::level::RunLevel;

/// The exit codes of a shell for a command that did not start.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// With this exit code.
    Exited(u8),
    /// By this signal.
    Killed(i32),
    /// It did not start: there is no such program.
    NotFound,
    /// It did not start: the program cannot be executed.
    NotExecutable,
}

impl RunEnd {
    /// The exit code, as in a shell.
    pub fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            // The number of a signal fits.
            Self::Killed(signal) => 128u8.wrapping_add(u8::try_from(signal).unwrap_or(0)),
            Self::NotExecutable => NOT_EXECUTABLE,
            Self::NotFound => NOT_FOUND,
        }
    }
}

/// What came of a run.
pub struct RunOutcome {
    /// The level that was reached.
    pub level: RunLevel,
    /// How the command ended.
    pub end: RunEnd,
    /// Why the changes of the command were refused. Then none of them was made.
    pub refused: Option<Refused>,
    /// The files that the command read and did not write. Unless the request asks for all, a search that changed nothing has only
    /// those whose hashes are known.
    pub reads: Vec<ReadFile>,
    /// The files that the command changed.
    pub writes: Vec<ChangedFile>,
    /// What the agent should know.
    pub notes: Vec<RunNote>,
    /// What is left to do when the result is known.
    pub after: AfterRun,
}

impl RunOutcome {
    /// The command could not be executed.
    pub(crate) fn not_started(level: RunLevel, program: &OsStr, error: &io::Error) -> Self {
        let end =
            if error.kind() == io::ErrorKind::NotFound { RunEnd::NotFound } else { RunEnd::NotExecutable };
        let program = program.to_string_lossy().into_owned();
        let notes = vec![match end {
            RunEnd::NotFound => RunNote::NotFound(program),
            _ => RunNote::NotExecutable(program),
        }];
        let (reads, writes) = Default::default();
        Self { level, end, refused: None, reads, writes, notes, after: AfterRun::nothing() }
    }
}

/// A protected file outside of the workspace that did not exist when a run started, and what was done about it when the run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// The file.
    pub file: PathBuf,
    /// Where its bytes are now.
    pub kept: PathBuf,
}

/// Something that the agent should know about a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunNote {
    /// The command did not start: there is no program of this name.
    NotFound(String),
    /// The command did not start: this program cannot be executed.
    NotExecutable(String),
    /// The run has ended, and its record could not be written. Why.
    NotRecorded(String),
    /// Another program changed this file while the command ran, which only read it. Relative to the workspace.
    ReadChanged(PathBuf),
    /// The workspace has too many names, or the command read too fast, so nobody knows all that it read. This mattered: the run was refused,
    /// or somebody asked for the reads.
    ReadsUnknown,
    /// This is a socket or a pipe, which exists only as long as the command. Relative to the workspace.
    NotKept(PathBuf),
    /// The command left processes behind. What they change is committed when the last one ends.
    LeftBehind,
    /// The command left processes behind. They are guarded until the last one ends.
    StillGuarded,
    /// The command ran at the level `observe`.
    NotGuarded,
    /// A stronger level is not possible here, and why.
    Weaker(String),
    /// tollgate could not judge a system call of the command, so it failed.
    NotJudged(String),
    /// This protected file outside of the workspace came while the command ran.
    SetAside(SetAside),
}

/// What is left to do after a run, when its result is known.
#[must_use = "a run must be finished"]
pub struct AfterRun(Box<Finish>);

type Finish = dyn FnOnce(&Gate, &dyn TurnState) -> Result<()>;

impl AfterRun {
    pub(crate) fn nothing() -> Self {
        Self::of(|_, _| Ok(()))
    }

    pub(crate) fn of(finish: impl FnOnce(&Gate, &dyn TurnState) -> Result<()> + 'static) -> Self {
        Self(Box::new(finish))
    }

    /// Cleans up. If the command has left processes behind, waits for the last of them, then commits what they have changed,
    /// with the same checks; or guards them call by call until then. The ledger says what came of it.
    pub fn finish(self, gate: &Gate, turn: &dyn TurnState) -> Result<()> {
        (self.0)(gate, turn)
    }
}

/// A file that a command read. Its path is relative to the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadFile {
    /// The file.
    #[serde(serialize_with = "as_text")]
    pub path: PathBuf,
    /// Its hash, if it is known which bytes the command read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
}

/// A file that a command changed. Its path is relative to the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedFile {
    /// The file.
    #[serde(serialize_with = "as_text")]
    pub path: PathBuf,
    /// Its hash before the run; `None` if it did not exist.
    pub before: Option<Digest>,
    /// Its hash after the run; `None` if it was deleted.
    pub after: Option<Digest>,
    /// The file is a symbolic link now, and the hash is that of the path in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub link: bool,
}

fn as_text<S: Serializer>(path: &Path, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

impl fmt::Display for RunNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(program) => write!(f, "`{program}` was not found, so the command did not start"),
            Self::NotExecutable(program) => {
                write!(f, "`{program}` cannot be executed, so the command did not start")
            }
            Self::NotRecorded(fault) => write!(f, "the record of this run could not be written: {fault}"),
            Self::ReadChanged(path) => {
                write!(
                    f,
                    "`{}` was read by the command and changed by someone else while it ran",
                    path.display()
                )
            }
            Self::ReadsUnknown => f.write_str(
                "there are too many files here to know all that the command read: only those in folders that its text names",
            ),
            Self::NotKept(path) => {
                write!(f, "`{}` is a socket or a pipe, and ended with the command", path.display())
            }
            Self::StillGuarded => {
                f.write_str("the command left processes behind, which stay guarded until they end")
            }
            Self::NotGuarded => f.write_str(
                "tollgate did not guard this command: it could overwrite changes that you have not seen",
            ),
            Self::NotJudged(fault) => {
                write!(f, "a system call of the command failed, because tollgate could not judge it: {fault}")
            }
            Self::SetAside(SetAside { file, kept }) => write!(
                f,
                "`{}` came while this command ran, and disables hooks or names commands for git: it is `{}` now",
                file.display(),
                kept.display()
            ),
            Self::Weaker(reason) => write!(f, "a stronger level is not possible here: {reason}"),
            Self::LeftBehind => {
                f.write_str("the command left processes behind: what they change is committed when they end")
            }
        }
    }
}

/// What came of trying one level.
pub(crate) enum LevelAttempt {
    Ran(RunOutcome),
    /// The command did not start.
    NotPossible(String),
}
