//! A call of a tool, and what all tools share: the turn, the expected state, paths, refusals.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tollgate::digest::Digest;
use tollgate::error::Fault;
use tollgate::gate::Gate;
use tollgate::guard::{Expected, Outcome};
use tollgate::path::FilePath;

use crate::mcp::answer::ToolAnswer;
use crate::mcp::connection::McpConnection;
use crate::mcp::tasks::ServedVault;
use crate::mcp::turns::RunningTurn;

/// A call: over which connection, in which turn.
pub(super) struct ToolCall<'a> {
    pub(super) tool: &'static str,
    pub(super) connection: &'a McpConnection,
    pub(super) gate: &'a Gate,
    /// The tasks, if the workspace has a vault.
    pub(super) tasks: Option<Arc<ServedVault>>,
    /// The turn that the call names with `turn_id`.
    pub(super) named: Option<Arc<RunningTurn>>,
}

impl ToolCall<'_> {
    /// The turn that this call belongs to.
    pub(super) fn turn(&self) -> Result<Arc<RunningTurn>, ToolAnswer> {
        Ok(match &self.named {
            Some(turn) => turn.clone(),
            None if self.connection.remembers() => self.connection.running()?,
            None => RunningTurn::for_one_call(self.gate, self.connection.server().agent())?,
        })
    }

    /// What the agent should hear beside the answer. If that cannot be found out, the answer is given without it.
    pub(super) fn notes(&self) -> String {
        let turn = match &self.named {
            Some(turn) => Some(turn.clone()),
            None if self.connection.remembers() => self.connection.has_running(),
            None => None,
        };
        let workspace = self.gate.workspace();
        turn.and_then(|turn| workspace.notes(turn.turn(), workspace.path()).ok()).unwrap_or_default()
    }

    /// What must be on disk for a write to go through.
    pub(super) fn expected(&self, hash: Option<Digest>) -> Result<Expected, ToolAnswer> {
        match hash {
            Some(hash) => Ok(Expected::Hash(hash)),
            None if self.named.is_some() || self.connection.remembers() => Ok(Expected::Baseline),
            // The server does not know what the agent has read, so the write may not replace anything.
            None => Err(ToolAnswer::failure(
                "this connection has no session, so the server does not know what you have read\n\
                 hint: call begin_turn and pass its turn_id to every read and write, or pass expected_hash with \
                 the sha256 of what you read",
            )),
        }
    }

    /// Like [`ToolCall::expected`], for tools that can also create the file.
    pub(super) fn expected_or_new(
        &self,
        hash: Option<Digest>,
        path: &FilePath,
    ) -> Result<Expected, ToolAnswer> {
        match self.expected(hash) {
            Err(_) if !path.as_path().exists() => Ok(Expected::Absent),
            expected => expected,
        }
    }

    /// The canonical form of a path.
    pub(super) fn canonical(&self, path: &Path) -> Result<FilePath, ToolAnswer> {
        Ok(self.gate.workspace().canonical(path)?)
    }

    /// Parses the arguments.
    pub(super) fn arguments<T: DeserializeOwned>(&self, value: Value) -> Result<T, ToolAnswer> {
        serde_json::from_value(value)
            .map_err(|error| ToolAnswer::failure(format!("invalid arguments for `{}`: {error}", self.tool)))
    }

    /// Refuses a call with more items in this argument than one call takes.
    pub(super) fn few(&self, argument: &str, count: usize, most: usize) -> Result<(), ToolAnswer> {
        if count <= most {
            return Ok(());
        }
        Err(ToolAnswer::failure(format!(
            "invalid arguments for `{}`: `{argument}` has {count} items, the most is {most}\nhint: make several calls",
            self.tool
        )))
    }

    /// A file was replaced, so a late-write check will be due.
    pub(super) fn changed(&self) {
        self.connection.server().file_changed();
    }

    /// A path that the client may read: not tollgate's own state, at any depth and by any name.
    pub(super) fn readable(&self, text: &str) -> Result<PathBuf, ToolAnswer> {
        let path = self.path(text)?;
        self.shows(&path)?;
        Ok(path)
    }

    /// Refuses a path into tollgate's own state. Called again for the path that was really read, because a link may have
    /// changed in between.
    pub(super) fn shows(&self, path: &Path) -> Result<(), ToolAnswer> {
        done(self.gate.workspace().shows(path))
    }

    /// A path as the client gives it: `~` stands for the home directory of the server's user.
    pub(super) fn path(&self, text: &str) -> Result<PathBuf, ToolAnswer> {
        let drive = |text: &str| {
            let bytes = text.as_bytes();
            bytes.len() >= 2
                && bytes[0].is_ascii_alphabetic()
                && bytes[1] == b':'
                && matches!(bytes.get(2), None | Some(b'\\' | b'/'))
        };
        if drive(text) {
            return Err(ToolAnswer::failure(format!(
                "`{text}` is a Windows path; this server does not run on Windows"
            )));
        }
        Ok(match (text.strip_prefix('~'), self.connection.server().home()) {
            (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
                home.join(rest.trim_start_matches('/'))
            }
            _ => PathBuf::from(text),
        })
    }
}

/// The result of a gate call, or the refusal as an answer.
pub(super) fn done<T>(outcome: Result<Outcome<T>, Fault>) -> Result<T, ToolAnswer> {
    match outcome? {
        Outcome::Done(done) => Ok(done),
        Outcome::Refused(refused) => Err(ToolAnswer::refused(&refused)),
    }
}
