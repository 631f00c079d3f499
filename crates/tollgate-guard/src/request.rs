//! A request: which agent wants to change files, in which turn and with which tool.

use crate::commit::Author;
use crate::path::FilePath;
use crate::root::Root;
use crate::turn::TurnState;

/// A request of an agent.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) root: &'a Root,
    pub(crate) turn: &'a dyn TurnState,
    pub(crate) tool: &'a str,
}

impl<'a> Request<'a> {
    pub(crate) fn author(&self) -> Author<'a> {
        Author { agent: self.turn.agent(), turn: Some(self.turn.id()), tool: self.tool }
    }

    /// The path for the ledger: relative to the workspace if possible, so that it does not depend on where the workspace is
    /// mounted.
    pub(crate) fn ledger_path(&self, path: &FilePath) -> String {
        let path = path.as_path();
        path.strip_prefix(self.root.path()).unwrap_or(path).display().to_string()
    }
}
