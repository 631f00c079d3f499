//! What a caller asks for.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tollgate_guard::turn::TurnState;

use crate::level::RunMode;
use crate::outcome::SetAside;
use crate::supervisor::Supervisor;

/// What to do if a file that the command only read was changed while it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChangedRead {
    /// A note in the outcome.
    #[default]
    Note,
    /// The run is refused: the result is as if nothing else had happened in the meantime.
    Refuse,
}

/// Sets aside what a run must not have brought. Asked when its command has ended, and again when the last of its processes has.
pub type NewSettings = Rc<dyn Fn() -> Vec<SetAside>>;

/// A command to run.
pub struct RunRequest<'a> {
    /// The program and its arguments. There is at least the program.
    pub command: Vec<OsString>,
    /// The folder in which the command runs, absolute.
    pub folder: PathBuf,
    /// The level that the caller asks for.
    pub mode: RunMode,
    /// What to do if a file that the command only read was changed.
    pub changed_read: ChangedRead,
    /// Folders that the command changes directly, without a guard. Relative to the workspace, or absolute.
    pub pass: Vec<PathBuf>,
    /// Folders and files that the command sees and cannot change, absolute. In a transaction.
    pub closed: Vec<PathBuf>,
    /// Folders in these that the command may change directly, absolute. Those around them stay where they are, too.
    pub open: Vec<PathBuf>,
    /// Looks for protected files outside of the workspace that did not exist before: nothing can be mounted over those. In a
    /// transaction.
    pub new_settings: NewSettings,
    /// Whether the command is known to keep running, or to leave processes behind that do.
    pub keeps_running: bool,
    /// The turn to which the reads and writes of the command belong.
    pub turn: &'a dyn TurnState,
    /// What a read of the command means for the turn.
    pub reads_count: ReadsCount,
    /// Whether the outcome has all files that a search has read. It may have read thousands.
    pub list_reads: bool,
    /// This process, if it is not the one that the caller knows.
    pub supervisor: Option<&'a Supervisor>,
}

impl RunRequest<'_> {
    /// The program and its arguments.
    pub(crate) fn program(&self) -> (&OsString, &[OsString]) {
        self.command.split_first().expect("a command has at least a program")
    }

    /// Whether the command keeps running: its caller says so, or it is a shell command that ends with `&`.
    pub(crate) fn keeps_running(&self) -> bool {
        let (program, arguments) = self.program();
        let name = Path::new(program).file_name().unwrap_or_default();
        let is_shell = ["sh", "bash", "dash", "zsh", "ksh"].iter().any(|shell| name == *shell);
        let mut words = arguments.iter().map(|word| word.as_bytes());
        let is_flag = |word: &&[u8]| word.starts_with(b"-") && word.ends_with(b"c");
        let script = words.by_ref().find(is_flag).and_then(|_| words.next());
        let ends = |script: &[u8]| {
            let script = script.trim_ascii_end();
            script.ends_with(b"&") && !script.ends_with(b"&&")
        };
        self.keeps_running || is_shell && script.is_some_and(ends)
    }
}

/// What a read of the command means for the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadsCount {
    /// The agent has seen the file.
    #[default]
    Seen,
    /// Nothing yet: the caller knows what the command printed, and decides.
    Later,
}
