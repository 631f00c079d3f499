//! Faults: errors outside tollgate's rules, such as a full disk, a missing permission or a damaged state file.
//!
//! A refusal is not a fault but an answer, and is defined in the guard. Every fault names the path it is about and, where
//! possible, what to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::private;

/// The result of anything that can fail.
pub type Result<T, E = Fault> = std::result::Result<T, E>;

/// Something outside tollgate's rules went wrong. The call had no effect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The operating system returned an error.
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Io {
        /// The operation, as a verb: `open`, `exchange`.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A state file does not hold what tollgate wrote.
    #[error("`{}` is damaged: {what}", path.display())]
    Damaged {
        /// The state file.
        path: PathBuf,
        /// What is wrong in it.
        what: String,
    },
    /// git tracks a file of the state, so it may have come with a clone or a pull.
    #[error("git tracks `{}`, and state is only what tollgate made here", path.display())]
    Tracked {
        /// The file.
        path: PathBuf,
    },
    /// A later tollgate wrote the state. This one leaves it alone.
    #[error("`{}` has format {found}, this tollgate knows {known}", path.display())]
    NewerFormat {
        /// The file that carries the version.
        path: PathBuf,
        /// The version in it.
        found: u32,
        /// The latest version that this program can read.
        known: u32,
    },
    /// The configuration is not valid.
    #[error("`{}` is not valid: {what}", path.display())]
    Config {
        /// The configuration file.
        path: PathBuf,
        /// What is wrong in it.
        what: String,
    },
    /// A line of the configuration is not TOML, or not a setting that tollgate knows. The sentence does not quote the line:
    /// it may hold a password, and not only the user reads the sentence. `/health` shows it to everybody on the machine.
    #[error("line {line} of `{}` is not TOML, or not a setting that tollgate knows", path.display())]
    ConfigLine {
        /// The configuration file.
        path: PathBuf,
        /// The line, counted from one.
        line: usize,
        /// The message of the parser, which quotes the line. Only for the user.
        quoted: String,
    },
    /// The configuration was written for a later tollgate.
    #[error("`{}` has version {found}, this tollgate knows {known}", path.display())]
    NewerConfig {
        /// The configuration file.
        path: PathBuf,
        /// The version in it.
        found: u32,
        /// The latest version that this program can read.
        known: u32,
    },
    /// The caller's input is not valid: a bad name, an empty list of edits.
    #[error("{what}")]
    Invalid {
        /// What is wrong with the input.
        what: String,
        /// What to give instead, if the sentence does not say it.
        hint: Option<&'static str>,
    },
    /// The configuration names something that is used only if the user has agreed to it.
    #[error("{what}")]
    Untrusted {
        /// What it names, and what was not done.
        what: String,
    },
    /// The named thing does not exist: a file, a turn, a recovery entry.
    #[error("{what} does not exist")]
    Missing {
        /// The kind of thing.
        kind: MissingKind,
        /// The thing and its name.
        what: String,
    },
    /// Another process has held a lock for too long.
    #[error("`{}` has been locked by another process for {waited_s} s", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// How long this process waited, in seconds.
        waited_s: u64,
    },
    /// The git remote, or the engine, does not answer, so it is unknown who owns a task.
    #[error("the remote `{remote}` cannot be reached: {what}")]
    Unreachable {
        /// The name of the remote, or the address of the engine.
        remote: String,
        /// The message of git or of the engine.
        what: String,
    },
    /// The git remote rejected the push, or the engine refused the call.
    #[error("the remote `{remote}` refused: {what}")]
    RemoteRefused {
        /// The name of the remote, or the address of the engine.
        remote: String,
        /// The message of the remote.
        what: String,
    },
    /// The receiver of an export does not accept the events.
    #[error("`{endpoint}` does not accept the events: {what}")]
    Undelivered {
        /// Its address.
        endpoint: String,
        /// What it said, or why it cannot be reached.
        what: String,
    },
}

/// The kind of a thing that does not exist. What to do about it depends on the door, which knows its own commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKind {
    /// A file or a folder.
    Path,
    /// The current folder of the process.
    CurrentFolder,
    /// A turn.
    Turn,
    /// An entry of recovery.
    RecoveryEntry,
    /// The vault.
    Vault,
    /// A task.
    Task,
    /// A branch of a git remote.
    Branch,
    /// A token of a server.
    Token,
}

impl Fault {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => "DISK_FULL",
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => "NO_PERMISSION",
            Self::Io { .. } => "IO_ERROR",
            Self::Damaged { .. } => "STATE_DAMAGED",
            Self::Tracked { .. } => "STATE_TRACKED",
            Self::NewerFormat { .. } => "NEWER_FORMAT",
            Self::Config { .. } | Self::ConfigLine { .. } | Self::NewerConfig { .. } => "CONFIG_INVALID",
            Self::Invalid { .. } => "INVALID",
            Self::Untrusted { .. } => "NOT_TRUSTED",
            Self::Missing { .. } => "NOT_FOUND",
            Self::Locked { .. } => "LOCKED",
            Self::Unreachable { .. } => "REMOTE_UNREACHABLE",
            Self::RemoteRefused { .. } => "REMOTE_REFUSED",
            Self::Undelivered { .. } => "NOT_DELIVERED",
        }
    }

    /// What to do.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Io { source, path, .. } => return io_hint(source, path),
            Self::Tracked { .. } => {
                "ask a person to run `git rm -r --cached` with this path, then to delete it: it may come from somebody else"
            }
            Self::Damaged { .. } => "run `tollgate doctor` to see what can be fixed, and how",
            Self::NewerFormat { .. } | Self::NewerConfig { .. } => "install a newer tollgate",
            Self::Config { .. } | Self::ConfigLine { .. } => "fix the file, then try again",
            Self::Untrusted { .. } => {
                "read the configuration, then run `tollgate trust` in your own terminal, in that workspace"
            }
            Self::Locked { .. } => {
                "find the process that holds the lock with `fuser`, and end that process if it hangs"
            }
            Self::Unreachable { .. } => {
                "nothing was changed; check the connection with `tollgate doctor`, then try again"
            }
            Self::RemoteRefused { .. } => "run `tollgate doctor` to see what the remote must allow",
            Self::Undelivered { .. } => {
                "no event is lost: run the same command again to continue after the last event that was taken"
            }
            Self::Invalid { hint, .. } => return *hint,
            Self::Missing { .. } => return None,
        })
    }

    /// The caller's input is not valid.
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), hint: None }
    }

    /// The caller's input is not valid, and this is what to do.
    pub fn invalid_with_hint(what: impl Into<String>, hint: &'static str) -> Self {
        Self::Invalid { what: what.into(), hint: Some(hint) }
    }

    /// This thing does not exist.
    pub fn missing(kind: MissingKind, what: impl Into<String>) -> Self {
        Self::Missing { kind, what: what.into() }
    }

    /// There is no file or folder at this path.
    pub fn no_file(path: impl AsRef<Path>) -> Self {
        Self::missing(MissingKind::Path, format!("`{}`", path.as_ref().display()))
    }

    /// There is no task of this name.
    pub fn no_task(task: &impl fmt::Display) -> Self {
        Self::missing(MissingKind::Task, format!("the task `{task}`"))
    }

    /// No turn with this id is running.
    pub fn no_turn(id: &impl fmt::Display) -> Self {
        Self::missing(MissingKind::Turn, format!("the turn `{id}`"))
    }

    /// Recovery has no entry with this id.
    pub fn no_recovery_entry(id: &str) -> Self {
        Self::missing(MissingKind::RecoveryEntry, format!("the recovery entry `{}`", id.escape_debug()))
    }

    /// The bytes of an entry of recovery were deleted: too old, or no room.
    pub fn no_longer_kept(id: &str) -> Self {
        Self::missing(
            MissingKind::RecoveryEntry,
            format!("the bytes of the recovery entry `{id}` are no longer kept: the entry"),
        )
    }

    /// A state file does not hold what tollgate wrote.
    pub fn damaged(path: &Path, what: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.to_string() }
    }

    /// The state has another format than the one that this program reads and writes.
    pub fn other_format(path: impl Into<PathBuf>, found: u32, known: u32) -> Self {
        let path = path.into();
        match found > known {
            true => Self::NewerFormat { path, found, known },
            false => Self::invalid(format!(
                "`{}` has format {found}, from before the first release, and this tollgate knows {known}: start with a new vault",
                path.display()
            )),
        }
    }
}

fn io_hint(error: &io::Error, path: &Path) -> Option<&'static str> {
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Some("a path cannot contain a NUL character; give another path");
    }
    if private::is_link_error(error) {
        return Some("tollgate follows no links to its own folders: delete the link, then try again");
    }
    Some(match error.kind() {
        io::ErrorKind::StorageFull => "free some space and try again; nothing was changed",
        io::ErrorKind::PermissionDenied => "check who owns the file and its folder",
        io::ErrorKind::ReadOnlyFilesystem => {
            "the file system is mounted read-only; remount it or work elsewhere"
        }
        io::ErrorKind::NotADirectory => "part of this path is a file, not a folder; check the path",
        _ => match error.raw_os_error()? {
            libc::EMFILE | libc::ENFILE => {
                "close some files or raise the limit (`ulimit -n`), then try again"
            }
            libc::ELOOP => "symbolic links on this path form a loop; delete one of them or give another path",
            libc::ENAMETOOLONG => "give a shorter path",
            _ => return None,
        },
    })
}

/// Adds the path and the verb to an I/O error.
pub trait At<T> {
    /// `open_it().at("open", path)?`
    fn at(self, doing: &'static str, path: impl AsRef<Path>) -> Result<T>;
}

impl<T, E: Into<io::Error>> At<T> for std::result::Result<T, E> {
    fn at(self, doing: &'static str, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|error| Fault::Io { doing, path: path.as_ref().to_owned(), source: error.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_io_error_with_a_remedy_has_a_hint() {
        let hint = |code: i32| {
            let answer: std::result::Result<(), _> = Err(io::Error::from_raw_os_error(code));
            answer.at("open", "a").unwrap_err().hint()
        };
        for (code, word) in [
            (libc::ENOSPC, "space"),
            (libc::EACCES, "owns"),
            (libc::EROFS, "read-only"),
            (libc::ENOTDIR, "not a folder"),
            (libc::EMFILE, "ulimit"),
            (libc::ENFILE, "ulimit"),
            (libc::ELOOP, "loop"),
            (libc::ENAMETOOLONG, "shorter"),
        ] {
            assert!(hint(code).is_some_and(|hint| hint.contains(word)), "{code}: {:?}", hint(code));
        }
        assert_eq!(hint(libc::EIO), None);
        let nul = std::fs::read("a\0b").at("read", "a\0b").unwrap_err();
        assert!(nul.hint().is_some_and(|hint| hint.contains("NUL")), "{nul}");
    }

    #[test]
    fn a_configuration_of_a_later_version_asks_for_a_newer_tollgate() {
        let fault = Fault::NewerConfig { path: "config.toml".into(), found: 2, known: 1 };
        assert_eq!((fault.code(), fault.hint()), ("CONFIG_INVALID", Some("install a newer tollgate")));
    }
}
