//! What went wrong, as opposed to what was refused.
//!
//! A refusal is an answer and lives in [`crate::refusal`]. A [`Fault`] is a disk that is full, a permission that is
//! missing, a state file that cannot be read. Every fault names the path it is about and, where there is one, the way out.

use std::io;
use std::path::{Path, PathBuf};

/// The result of anything that can fail.
pub type Result<T, E = Fault> = std::result::Result<T, E>;

/// Something outside tollgate's rules went wrong. What was asked for did not happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The operating system said no.
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Io {
        /// What was tried, as a verb: `open`, `exchange`.
        doing: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// A state file holds something that tollgate did not write, or not like that.
    #[error("`{}` is damaged: {what}", path.display())]
    Damaged {
        /// The state file.
        path: PathBuf,
        /// What is wrong in it.
        what: String,
    },
    /// The state was written by a later tollgate. It is left alone, not misread.
    #[error("`{}` has format {found}, this tollgate knows {known}", path.display())]
    NewerFormat {
        /// The file that carries the version.
        path: PathBuf,
        /// The version in it.
        found: u32,
        /// The latest version this program knows.
        known: u32,
    },
    /// The configuration cannot be used.
    #[error("`{}` cannot be used: {what}", path.display())]
    Config {
        /// The configuration file.
        path: PathBuf,
        /// What is wrong in it.
        what: String,
    },
    /// What the caller gave makes no sense: a name that cannot be one, an empty list of edits.
    #[error("{what}")]
    Invalid {
        /// What is wrong with it.
        what: String,
    },
    /// The thing that was named is not there: a file, a turn, a recovery entry.
    #[error("{what} does not exist")]
    Missing {
        /// What, by name.
        what: String,
    },
    /// Another process holds a lock and does not let go.
    #[error("`{}` has been locked by another process for {waited_s} s", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// How long was waited.
        waited_s: u64,
    },
    /// The git remote does not answer, so nobody can say who owns what.
    #[error("the remote `{remote}` cannot be reached: {what}")]
    Unreachable {
        /// Its name.
        remote: String,
        /// What git says.
        what: String,
    },
    /// The git remote has a rule against it.
    #[error("the remote `{remote}` refuses: {what}")]
    RemoteRefused {
        /// Its name.
        remote: String,
        /// What it says.
        what: String,
    },
}

impl Fault {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => "DISK_FULL",
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => "NO_PERMISSION",
            Self::Io { .. } => "IO_ERROR",
            Self::Damaged { .. } => "STATE_DAMAGED",
            Self::NewerFormat { .. } => "NEWER_FORMAT",
            Self::Config { .. } => "CONFIG_INVALID",
            Self::Invalid { .. } => "INVALID",
            Self::Missing { .. } => "NOT_FOUND",
            Self::Locked { .. } => "LOCKED",
            Self::Unreachable { .. } => "REMOTE_UNREACHABLE",
            Self::RemoteRefused { .. } => "REMOTE_REFUSED",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull => "free some space and try again; nothing was changed",
                io::ErrorKind::PermissionDenied => "check who owns the file and its folder",
                io::ErrorKind::ReadOnlyFilesystem => {
                    "the file system is mounted read-only; remount it or work elsewhere"
                }
                _ => return None,
            },
            Self::Damaged { .. } => "run `tollgate doctor`, which says what can be mended and how",
            Self::NewerFormat { .. } => "install a newer tollgate",
            Self::Config { .. } => "mend the file; the settings are listed in docs/settings.md",
            Self::Locked { .. } => {
                "see which process holds it with `fuser`, and end that process if it hangs"
            }
            Self::Unreachable { .. } => {
                "nothing was claimed; try `git fetch` by hand, then try again, or see `[vault] offline`"
            }
            Self::RemoteRefused { .. } => {
                "run `tollgate doctor`, which tries what the remote allows; docs/git.md says what it must"
            }
            Self::Invalid { .. } | Self::Missing { .. } => return None,
        })
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into() }
    }

    pub(crate) fn damaged(path: &Path, what: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.to_string() }
    }
}

/// Gives an I/O error its path and its verb.
pub(crate) trait At<T> {
    /// `open_it().at("open", path)?`
    fn at(self, doing: &'static str, path: impl AsRef<Path>) -> Result<T>;
}

impl<T, E: Into<io::Error>> At<T> for std::result::Result<T, E> {
    fn at(self, doing: &'static str, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|error| Fault::Io { doing, path: path.as_ref().to_owned(), source: error.into() })
    }
}
