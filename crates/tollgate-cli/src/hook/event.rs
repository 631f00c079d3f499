//! What an agent program tells its hooks, in words of our own.
//!
//! Each program has its own JSON. The files under `host/` translate it into these types, and nothing else in the
//! command knows how a program spells things.

use std::path::PathBuf;

use serde_json::Value;
use tollgate::edit::Edit;
use tollgate::turn::Extent;

use super::patch::Hunk;

/// One call of the hook.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Heard {
    /// The session, as the program names it.
    pub(crate) session: String,
    /// Which helper of the session acts; none: the session's own agent.
    pub(crate) helper: Option<String>,
    /// The turn, where the program numbers them.
    pub(crate) turn: Option<String>,
    /// The current folder of the agent.
    pub(crate) folder: PathBuf,
    /// What happens.
    pub(crate) event: Event,
}

/// What happens.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// A person asked for something: a new turn begins.
    Prompt,
    /// A tool is about to run.
    Before(Call),
    /// A tool has run.
    After(Call, Aftermath),
    /// The agent has answered and waits.
    Stopped,
    /// The agent is gone.
    Gone,
    /// Something that does not matter to files.
    Other,
}

/// One call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    /// Its id, where the program gives one.
    pub(crate) id: Option<String>,
    /// The tool, as the program names it.
    pub(crate) tool: String,
    /// Its arguments, as they came: with session and tool they stand for a missing id.
    pub(crate) input: Value,
    /// What it does to files.
    pub(crate) deeds: Deeds,
}

/// What a tool does to files.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Deeds {
    /// Exactly this. Empty: nothing that we know of.
    Files(Vec<Deed>),
    /// Whatever these commands do, one after the other, in this folder if not in the agent's.
    Shell {
        /// The text, as a shell would read it.
        commands: Vec<String>,
        /// Where they run.
        folder: Option<PathBuf>,
    },
}

impl Deeds {
    /// Nothing that matters.
    pub(crate) fn none() -> Self {
        Self::Files(Vec::new())
    }
}

/// What is done to one file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Deed {
    /// It is shown to the agent.
    Read(PathBuf, Extent),
    /// It is given this text; none: some other bytes.
    Write(PathBuf, Option<String>),
    /// Old text becomes new text. Empty: some part of it changes in a way that is not told.
    Edit(PathBuf, Vec<Edit>),
    /// Lines become other lines.
    Patch(PathBuf, Vec<Hunk>),
    /// It goes away.
    Delete(PathBuf),
}

/// What is known once a tool has run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Aftermath {
    /// The program says that it failed.
    pub(crate) failed: bool,
    /// What the agent was shown.
    pub(crate) shown: Shown,
    /// The text that the tool found in the file and replaced, where the program tells.
    pub(crate) replaced: Option<(PathBuf, String)>,
}

/// How much of what was read the agent was shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum Shown {
    /// What was asked for.
    #[default]
    AsAsked,
    /// The program cut it short.
    InPart,
    /// The program showed nothing new.
    Nothing,
    /// This text, in which the files must be looked for.
    Text(String),
}
