//! The environment of the process. No other file of the command reads it.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use tollgate_base::private;
use tollgate_run::RunLevel;
use tollgate_run::door::FOLDER_VARIABLE;

/// The environment of the process, unchecked.
#[derive(Debug)]
pub(crate) struct Surroundings {
    /// The current folder; an error if it was deleted.
    pub(crate) folder: io::Result<PathBuf>,
    /// `TOLLGATE_TURN`
    pub(crate) turn: Option<OsString>,
    /// `TOLLGATE_AGENT`
    pub(crate) agent: Option<OsString>,
    /// `TOLLGATE_CLAIM_ID`
    pub(crate) claim_id: Option<OsString>,
    /// `TOLLGATE_TASK_ID`
    pub(crate) task_id: Option<OsString>,
    /// `TOLLGATE_VAULT`: the workspace whose vault has that task.
    pub(crate) vault: Option<PathBuf>,
    /// `TOLLGATE_TOKEN`
    pub(crate) token: Option<OsString>,
    /// `TOLLGATE_NOTIFY_SECRET`: the secret of the webhook for notices.
    pub(crate) notify_secret: Option<String>,
    /// `TOLLGATE_STORE_USER` and `TOLLGATE_STORE_PASSWORD`: the login of the engine that the workspace uses.
    pub(crate) store_login: (Option<String>, Option<String>),
    /// `TOLLGATE_COPY_USER` and `TOLLGATE_COPY_PASSWORD`: the login of the engine that a vault is copied to or from.
    pub(crate) copy_login: (Option<String>, Option<String>),
    /// `PGPASSFILE`, or `.pgpass` in the user's home: passwords for PostgreSQL.
    pub(crate) passfile: Option<PathBuf>,
    pub(crate) export: ExportVariables,
    /// `PATH`
    pub(crate) path: Option<OsString>,
    /// The path of this program, for starting it again.
    pub(crate) program: PathBuf,
    /// The user configured how git runs ssh, by `GIT_SSH_COMMAND` or `GIT_SSH`.
    pub(crate) ssh: bool,
    /// The user's name, from `USER` or `LOGNAME`.
    pub(crate) user: Option<String>,
    /// The user's id.
    pub(crate) uid: u32,
    /// `SUDO_UID`: the user who became root.
    pub(crate) sudo: Option<u32>,
    /// `XDG_RUNTIME_DIR`, whose files do not survive a logout.
    pub(crate) runtime: Option<PathBuf>,
    /// The user's folder for state: `XDG_STATE_HOME`, else `~/.local/state`.
    pub(crate) state: Option<PathBuf>,
    /// The user's folder for configuration: `XDG_CONFIG_HOME`, else `~/.config`.
    pub(crate) config: Option<PathBuf>,
    /// The level of the run in which this process is.
    pub(crate) run: Option<RunLevel>,
    /// The folder of that run.
    pub(crate) run_folder: Option<PathBuf>,
    /// The agent of the run for which this process carries out a call; empty if a person started the run.
    pub(crate) carried: Option<OsString>,
    /// The turn of that run, below its folder.
    pub(crate) carried_turn: Option<PathBuf>,
}

/// The variable that tells a process that it carries out a call of a command of a run, and the agent of that run. Empty: a person
/// started the run.
pub(crate) const CARRIED: &str = "TOLLGATE_CARRIED";

/// The variable that tells such a process the turn of the run.
pub(crate) const CARRIED_TURN: &str = "TOLLGATE_CARRIED_TURN";

/// How an endpoint of an export is reached.
#[derive(Debug)]
pub(crate) struct ExportVariables {
    /// `TOLLGATE_EXPORT_HEADERS`
    pub(crate) headers: Option<String>,
    /// `OTEL_EXPORTER_OTLP_HEADERS`: for OpenTelemetry.
    pub(crate) otlp_headers: Option<String>,
    /// `SSL_CERT_FILE`: the authorities to trust.
    pub(crate) authorities: Option<PathBuf>,
}

impl Surroundings {
    /// The user's home folder.
    pub(crate) fn home() -> Option<PathBuf> {
        env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// The folder in this variable of an agent program.
    pub(crate) fn folder_in(variable: &str) -> Option<PathBuf> {
        env::var_os(variable).filter(|folder| !folder.is_empty()).map(PathBuf::from)
    }

    /// Whether this variable of an agent program is set.
    pub(crate) fn has(variable: &str) -> bool {
        env::var_os(variable).is_some_and(|value| !value.is_empty())
    }

    /// Whether there is this variable, empty or not.
    pub(crate) fn is_set(variable: &str) -> bool {
        env::var_os(variable).is_some()
    }

    /// The path of this program, for a command that runs later and perhaps elsewhere.
    pub(crate) fn executable() -> PathBuf {
        env::current_exe().ok().filter(|path| path.exists()).unwrap_or_else(|| "tollgate".into())
    }

    /// The user's shell.
    pub(crate) fn shell() -> OsString {
        env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/bash".into())
    }

    /// Whether this variable of an agent program has this text in it.
    pub(crate) fn mentions(variable: &str, text: &str) -> bool {
        env::var(variable).is_ok_and(|value| value.contains(text))
    }

    /// The folder for temporary files.
    pub(crate) fn temporary() -> PathBuf {
        env::temp_dir()
    }

    /// Whether a stream gets colours: see <https://no-color.org> and <https://bixense.com/clicolors>.
    pub(crate) fn wants_colours(is_terminal: bool) -> bool {
        let value = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let is = |name: &str, word: &str| value(name).is_some_and(|value| value == word);
        if value("NO_COLOR").is_some() || is("CLICOLOR", "0") {
            return false;
        }
        // A terminal without a name, or with this one, cannot show them.
        let can = value("TERM").is_some() && !is("TERM", "dumb");
        value("CLICOLOR_FORCE").is_some_and(|value| value != "0") || is_terminal && can
    }

    /// The command that shows a long text, as git chooses it. `None`: none is wanted, or a command of a run made this call, which must
    /// not start a program outside.
    pub(crate) fn pager() -> Option<String> {
        if Self::is_set(CARRIED) {
            return None;
        }
        let named = ["TOLLGATE_PAGER", "PAGER"].iter().find_map(|name| env::var(name).ok());
        let pager = named.unwrap_or_else(|| "less".to_owned());
        (!pager.trim().is_empty() && pager.trim() != "cat").then_some(pager)
    }

    /// The command that opens the user's editor.
    pub(crate) fn editor() -> String {
        let named = |name: &str| env::var(name).ok().filter(|value| !value.trim().is_empty());
        named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| "vi".to_owned())
    }

    /// The folders in `PATH`.
    pub(crate) fn path() -> Vec<PathBuf> {
        env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default()
    }

    pub(crate) fn look() -> Self {
        let text = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        // The XDG specification says to ignore relative paths.
        let folder = |name: &str| text(name).map(PathBuf::from).filter(|path| path.is_absolute());
        // The user's home may be behind a link. Below these folders, nothing of tollgate is.
        let own = |folder: PathBuf| private::without_links(&folder);
        let word = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            folder: env::current_dir(),
            turn: text("TOLLGATE_TURN"),
            agent: text("TOLLGATE_AGENT"),
            claim_id: text("TOLLGATE_CLAIM_ID"),
            task_id: text("TOLLGATE_TASK_ID"),
            vault: folder("TOLLGATE_VAULT"),
            token: text("TOLLGATE_TOKEN"),
            notify_secret: env::var("TOLLGATE_NOTIFY_SECRET").ok(),
            store_login: (word("TOLLGATE_STORE_USER"), word("TOLLGATE_STORE_PASSWORD")),
            copy_login: (word("TOLLGATE_COPY_USER"), word("TOLLGATE_COPY_PASSWORD")),
            passfile: text("PGPASSFILE")
                .map(PathBuf::from)
                .or_else(|| Some(env::home_dir()?.join(".pgpass"))),
            export: ExportVariables {
                headers: word("TOLLGATE_EXPORT_HEADERS"),
                otlp_headers: word("OTEL_EXPORTER_OTLP_HEADERS"),
                authorities: text("SSL_CERT_FILE").map(PathBuf::from),
            },
            path: text("PATH"),
            program: program(),
            ssh: text("GIT_SSH_COMMAND").or_else(|| text("GIT_SSH")).is_some(),
            user: text("USER").or_else(|| text("LOGNAME")).map(|name| name.to_string_lossy().into_owned()),
            uid: rustix::process::geteuid().as_raw(),
            sudo: text("SUDO_UID").and_then(|uid| uid.to_str()?.parse().ok()),
            runtime: folder("XDG_RUNTIME_DIR").map(own),
            state: folder("XDG_STATE_HOME")
                .or_else(|| folder("HOME").map(|home| home.join(".local").join("state")))
                .map(own),
            run: tollgate_run::level_here(),
            run_folder: folder(FOLDER_VARIABLE),
            carried: env::var_os(CARRIED),
            carried_turn: env::var_os(CARRIED_TURN).map(PathBuf::from),
            config: folder("XDG_CONFIG_HOME")
                .or_else(|| folder("HOME").map(|home| home.join(".config")))
                .map(own),
        }
    }
}

/// On Linux, a path that stays right if the file is replaced while it runs.
fn program() -> PathBuf {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() { own } else { env::current_exe().unwrap_or_else(|_| "tollgate".into()) }
}
