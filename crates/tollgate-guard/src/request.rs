//! Who asks for changes of files: which agent, in which turn and with which tool.

use std::path::{Path, PathBuf};

use crate::fence::WriteFence;
use crate::path::FilePath;
use crate::protected::OfGit;
use crate::root::Root;
use crate::turn::TurnState;
use tollgate_base::event::Event;
use tollgate_base::ledger::Entry;

/// Which agent asks, in which turn and with which tool.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) root: &'a Root,
    pub(crate) turn: &'a dyn TurnState,
    pub(crate) tool: &'a str,
    /// How well the command was guarded, if tollgate ran a command.
    pub(crate) level: Option<&'a str>,
    /// What the agent must not have lost.
    pub(crate) fences: &'a [WriteFence],
    /// The git checkouts, absolute, that a command has removed as a whole. Their git directories go with them.
    pub(crate) removed: &'a [PathBuf],
}

impl Request<'_> {
    pub(crate) fn entry(&self, event: Event) -> Entry {
        self.root.entry(Some(self.turn.agent()), Some(self.turn.id()), event)
    }

    /// Whether a command must not change this absolute path, or not delete it.
    pub(crate) fn protects_from_command(&self, path: &Path, is_deleted: bool) -> bool {
        let goes_along = is_deleted && self.removed.iter().any(|checkout| path.starts_with(checkout));
        let of_git = if goes_along { OfGit::Open } else { OfGit::HooksClosed };
        self.root.protects_from_commands(path, of_git)
    }

    /// See [`Root::key`].
    pub(crate) fn key(&self, path: &FilePath) -> PathBuf {
        self.root.key(path)
    }
}
