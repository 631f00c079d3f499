//! Why a command failed, as data. `words` turns these values into sentences.
//!
//! A refused change is not an error: it is an [`Answer`](crate::answer::Answer).

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tollgate::error::Fault;
use tollgate::name::{Agent, TurnId};
use tollgate::vault::TaskName;
use tollgate_server::secret::WeakSecret;

/// Why a command has no answer.
#[derive(Debug)]
pub(crate) enum CliError {
    /// The arguments, the environment or the input are not valid.
    Usage(UsageError),
    /// The library reported a fault.
    Fault(Fault),
    /// The same, in `tollgate run`, whose exit codes are those of its command.
    RunFailed(Fault),
    /// An error whose hint goes on with this text.
    WithHint(Box<CliError>, String),
    /// The reader of stdout has closed it.
    Hangup,
    /// Stdout cannot be written, for example because its disk is full.
    Stdout(io::Error),
}

/// What is wrong with the arguments, the environment or the input.
#[derive(Debug)]
pub(crate) enum UsageError {
    NoTurn,
    TurnOfAnother {
        turn: TurnId,
        owner: Agent,
        agent: Agent,
    },
    /// An environment variable has a value that is not valid.
    BadVariable {
        name: &'static str,
        why: Fault,
    },
    /// The file does not fit into memory as JSON.
    TooLargeForJson(PathBuf),
    /// `edit` got different numbers of `--old` and `--new`.
    UnpairedEdits {
        old: usize,
        new: usize,
    },
    /// The input of `apply` is not a list of changes.
    BadChanges(serde_json::Error),
    /// A change of `apply` has no action, or several.
    NotOneAction {
        index: usize,
        actions: usize,
    },
    NotBase64 {
        index: usize,
    },
    /// A change of `apply` has no path, or two.
    NotOnePath {
        index: usize,
    },
    NoSuchHost(String),
    /// `init --mcp` for a program whose hooks are installed.
    HasHooks(&'static str),
    /// `init --host` for a program with the MCP server.
    HasServer(&'static str),
    /// `init` in a folder below the user's home, which is a workspace.
    HomeIsTheWorkspace(PathBuf),
    /// `init --vault` in a git worktree, whose vault is that of the main tree.
    VaultOfMainTree(PathBuf),
    VaultNameIsNotText,
    /// tollgate cannot safely add this vault to the configuration.
    NameTheVaultYourself(String),
    /// tollgate cannot safely add this store to the configuration.
    ChooseTheStoreYourself(String),
    /// The address of a store has a password. These variables are for the login.
    PasswordInAddress {
        user: &'static str,
        password: &'static str,
    },
    NoClaimId,
    BadTitle,
    /// tollgate could not parse the new task.
    BadTask(String),
    /// The new task would have another value than the one given with this option.
    BadTaskOption {
        option: &'static str,
        value: String,
    },
    /// `task import` of a folder, from a tracker that writes files.
    ImportNeedsAFile,
    /// `task import` of a file, from a tracker that writes folders.
    ImportNeedsAFolder,
    /// `task import` of a folder in which nothing looks like Backlog.md.
    NothingToImport(PathBuf),
    /// tollgate could not parse what a person made of a task in their editor.
    BadEdit(String),
    /// A person deleted the whole text of a task in their editor.
    EmptyEdit(TaskName),
    /// The editor of `task edit` did not end well.
    EditorFailed(String),
    DraftIsNotText,
    /// An empty progress note, or an empty draft.
    NoText(&'static str),
    FailedIsNotDone,
    NobodyDecides,
    NoGitSync,
    /// `sync --follow` without a view to keep.
    NoView,
    /// `export --since` with neither a number nor a time.
    BadSince(String),
    /// `export --out` into tollgate's own state.
    OutInState,
    /// A variable with headers for `export` cannot be parsed.
    BadHeaders(&'static str),
    NoSuchProgram(OsString),
    TokenNeeded,
    BadToken,
    WeakToken(WeakSecret),
    AgentsDoNotServe,
    AgentsGetTokens,
    AgentsDoNotCopy,
    /// `vault copy` to the store that the vault is in.
    SameStore(String),
    TokenExists(Agent),
    NoPlaceForTokens,
    /// The input of a hook cannot be understood.
    BadPayload {
        host: &'static str,
        what: String,
    },
    /// A command under another name than that of the agent for which it runs.
    OtherName {
        own: Agent,
        given: Agent,
    },
    /// A command that works outside of runs only.
    NotInRun,
    /// The process in front of this run cannot be reached.
    NoDoor(String),
    HookFailed(&'static str),
    HookTooSlow(Duration),
}

/// Why nobody can decide here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoPerson {
    /// This agent runs the command, or is named in it.
    Agent(String),
    /// A command of `tollgate run` runs the command.
    InRun,
    /// Standard input or standard error is not a terminal.
    NoTerminal,
}

impl NoPerson {
    /// The word in JSON.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Agent(_) => "agent",
            Self::InRun => "in_run",
            Self::NoTerminal => "no_terminal",
        }
    }
}

impl From<UsageError> for CliError {
    fn from(error: UsageError) -> Self {
        Self::Usage(error)
    }
}

impl From<Fault> for CliError {
    fn from(fault: Fault) -> Self {
        match fault {
            // The gate's name for copying a file to stdout.
            Fault::Io { doing: "hand out", source, .. } => source.into(),
            fault => Self::Fault(fault),
        }
    }
}

/// An error of stdout itself.
impl From<io::Error> for CliError {
    fn from(source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::BrokenPipe { Self::Hangup } else { Self::Stdout(source) }
    }
}

impl CliError {
    /// The exit code of the process.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            // `head` closes its input when it has enough lines. That is not a failure.
            Self::Hangup => 0,
            Self::Usage(_) | Self::Fault(Fault::Invalid { .. } | Fault::Untrusted { .. }) => 2,
            Self::Fault(_) | Self::Stdout(_) => 3,
            Self::RunFailed(_) => 125,
            Self::WithHint(error, _) => error.exit_code(),
        }
    }
}
