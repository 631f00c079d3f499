//! The surroundings of the process. No other file reads the environment.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// What the process finds around it, not yet judged.
#[derive(Debug)]
pub(crate) struct Surroundings {
    /// The current folder; an error if it has been removed.
    pub(crate) folder: io::Result<PathBuf>,
    /// `TOLLGATE_TURN`
    pub(crate) turn: Option<OsString>,
    /// `TOLLGATE_AGENT`
    pub(crate) agent: Option<OsString>,
    /// `TOLLGATE_CLAIM_ID`
    pub(crate) claim_id: Option<OsString>,
    /// `TOLLGATE_TOKEN`
    pub(crate) token: Option<OsString>,
    /// `PATH`, where programs are.
    pub(crate) path: Option<OsString>,
    /// This program, to be started once more.
    pub(crate) program: PathBuf,
    /// The user says how ssh is to be run: `GIT_SSH_COMMAND` or `GIT_SSH`.
    pub(crate) ssh: bool,
    /// The user's name, as far as the environment tells.
    pub(crate) user: Option<String>,
    /// The user's number.
    pub(crate) uid: u32,
    /// The user's folder for what does not survive a log-out: `XDG_RUNTIME_DIR`.
    pub(crate) runtime: Option<PathBuf>,
    /// The user's folder for state: `XDG_STATE_HOME`, else `~/.local/state`.
    pub(crate) state: Option<PathBuf>,
}

impl Surroundings {
    /// The user's home.
    pub(crate) fn home() -> Option<PathBuf> {
        env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// Where temporary folders are made.
    pub(crate) fn temporary() -> PathBuf {
        env::temp_dir()
    }

    /// Where programs are looked for.
    pub(crate) fn path() -> Vec<PathBuf> {
        env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default()
    }

    pub(crate) fn look() -> Self {
        let text = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        // The XDG rules: what is not absolute is to be ignored.
        let folder = |name: &str| text(name).map(PathBuf::from).filter(|path| path.is_absolute());
        Self {
            folder: env::current_dir(),
            turn: text("TOLLGATE_TURN"),
            agent: text("TOLLGATE_AGENT"),
            claim_id: text("TOLLGATE_CLAIM_ID"),
            token: text("TOLLGATE_TOKEN"),
            path: text("PATH"),
            program: program(),
            ssh: text("GIT_SSH_COMMAND").or_else(|| text("GIT_SSH")).is_some(),
            user: text("USER").or_else(|| text("LOGNAME")).map(|name| name.to_string_lossy().into_owned()),
            uid: rustix::process::geteuid().as_raw(),
            runtime: folder("XDG_RUNTIME_DIR"),
            state: folder("XDG_STATE_HOME")
                .or_else(|| folder("HOME").map(|home| home.join(".local").join("state"))),
        }
    }
}

/// On Linux by a name that is right also if the file was replaced since it was started.
fn program() -> PathBuf {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() { own } else { env::current_exe().unwrap_or_else(|_| "tollgate".into()) }
}
