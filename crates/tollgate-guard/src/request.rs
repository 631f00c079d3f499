//! Who asks for changes of files: which agent, in which turn and with which tool.

use std::path::PathBuf;

use crate::fence::WriteFence;
use crate::path::FilePath;
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
}

impl Request<'_> {
    pub(crate) fn entry(&self, event: Event) -> Entry {
        self.root.entry(Some(self.turn.agent()), Some(self.turn.id()), event)
    }

    /// The path for locks, reservations and the ledger: relative to the workspace if possible, so that it does not depend on
    /// where the workspace is mounted.
    pub(crate) fn key(&self, path: &FilePath) -> PathBuf {
        let path = path.as_path();
        path.strip_prefix(self.root.path()).unwrap_or(path).to_owned()
    }
}
