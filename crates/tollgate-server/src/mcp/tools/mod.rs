//! The tools: what a call is, and what all of them share. `table` says which there are.

#![allow(
    clippy::result_large_err,
    reason = "an answer is made once per call, and moving it is nothing beside the disk"
)]

mod folder;
mod read;
mod schema;
mod table;
mod task;
mod turn;
mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tollgate::digest::Digest;
use tollgate::error::Fault;
use tollgate::gate::Gate;
use tollgate::guard::{Expected, Outcome};
use tollgate::path::FilePath;

use super::answer::Answer;
use super::connection::Connection;
use super::turns::Running;
use schema::{Input, Output};
pub(crate) use table::{INSTRUCTIONS, TABLE};

/// One tool.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    pub(crate) hints: Hints,
    input: Input,
    output: Output,
    pub(crate) run: fn(&Call<'_>, Value) -> Result<Answer, Answer>,
}

/// What a client may assume before it calls a tool.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hints {
    Reads,
    Writes { destructive: bool, idempotent: bool },
}

/// The tool of this name.
pub(crate) fn find(name: &str) -> Option<&'static Tool> {
    TABLE.iter().find(|tool| tool.name == name)
}

/// A call: who asks, in which turn.
pub(crate) struct Call<'a> {
    pub(crate) tool: &'static str,
    pub(crate) connection: &'a Connection,
    pub(crate) gate: &'a Gate,
    /// The turn that the call names by `turn_id`.
    pub(crate) named: Option<Arc<Running>>,
}

impl Call<'_> {
    /// The turn this call belongs to.
    fn turn(&self) -> Result<Arc<Running>, Answer> {
        Ok(match &self.named {
            Some(turn) => turn.clone(),
            None if self.connection.remembers() => self.connection.running()?,
            None => Running::passing(self.gate, &self.connection.server.0.agent)?,
        })
    }

    /// What must be on disk for a write.
    fn expected(&self, hash: Option<Digest>) -> Result<Expected, Answer> {
        match hash {
            Some(hash) => Ok(Expected::Hash(hash)),
            None if self.named.is_some() || self.connection.remembers() => Ok(Expected::Baseline),
            // Nothing is known of what the agent has read, so nothing that is there may be replaced.
            None => Err(Answer::failure(
                "this connection remembers nothing between calls, so the server cannot know what you have read\n\
                 hint: call begin_turn and pass its turn_id to every read and write, or pass expected_hash with \
                 the sha256 of what you read",
            )),
        }
    }

    /// Like [`Call::expected`], for tools that may also make a file that is not there.
    fn expected_or_new(&self, hash: Option<Digest>, path: &FilePath) -> Result<Expected, Answer> {
        match self.expected(hash) {
            Err(_) if !path.as_path().exists() => Ok(Expected::Absent),
            expected => expected,
        }
    }

    /// The canonical path, whatever way it is spelled.
    fn canonical(&self, path: &Path) -> Result<FilePath, Answer> {
        Ok(self.gate.workspace().canonical(path)?)
    }

    /// Reads the arguments.
    fn arguments<T: DeserializeOwned>(&self, value: Value) -> Result<T, Answer> {
        serde_json::from_value(value)
            .map_err(|error| Answer::failure(format!("invalid arguments for `{}`: {error}", self.tool)))
    }

    /// Something was replaced and waits for its second look.
    fn changed(&self) {
        self.connection.server.0.changed.notify_one();
    }
}

/// A path as a client gives it: `~` is the home of the server's user.
fn path(text: &str) -> Result<PathBuf, Answer> {
    let drive = |text: &str| {
        let bytes = text.as_bytes();
        bytes.len() >= 2
            && bytes[0].is_ascii_alphabetic()
            && bytes[1] == b':'
            && matches!(bytes.get(2), None | Some(b'\\' | b'/'))
    };
    if drive(text) {
        return Err(Answer::failure(format!("`{text}` is a path of Windows, and this is not Windows")));
    }
    Ok(match (text.strip_prefix('~'), std::env::home_dir()) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
            home.join(rest.trim_start_matches('/'))
        }
        _ => PathBuf::from(text),
    })
}

/// What was done; a refusal is the answer.
fn done<T>(outcome: Result<Outcome<T>, Fault>) -> Result<T, Answer> {
    match outcome? {
        Outcome::Done(done) => Ok(done),
        Outcome::Refused(refused) => Err(Answer::refused(&refused)),
    }
}
