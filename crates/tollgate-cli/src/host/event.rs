//! The events that agent programs send to their hooks, in one form for all programs.
//!
//! Each program has its own JSON. The other files in this folder translate it into these types, and the rest of the command
//! knows only these types.

use std::path::PathBuf;

use serde_json::Value;
use tollgate::edit::Edit;
use tollgate::turn::Extent;

/// One call of the hook.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HookCall {
    /// The program's id of the session.
    pub(crate) session: String,
    /// The subagent that acts; `None` for the session's main agent.
    pub(crate) subagent: Option<String>,
    /// The program's id of the turn, if it has one.
    pub(crate) turn: Option<String>,
    /// The model, if the program says it.
    pub(crate) model: Option<String>,
    /// What a person asked for, if the program says it.
    pub(crate) prompt: Option<String>,
    /// The current folder of the agent.
    pub(crate) folder: PathBuf,
    /// The event.
    pub(crate) event: HookEvent,
}

/// An event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum HookEvent {
    /// A session begins, or continues after a break.
    Started,
    /// A person sent a prompt: a new turn begins.
    Prompt,
    /// A tool is about to run.
    Before(Call),
    /// A tool has run.
    After(Call, ToolReport),
    /// The agent has answered and waits for a prompt.
    Stopped,
    /// The agent has ended.
    Gone,
    /// An event that tollgate does not know, about a tool call without a result.
    Unknown(Call),
    /// An event that does not concern files.
    Other,
}

/// One call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    /// The program's id of the call, if it has one.
    pub(crate) id: Option<String>,
    /// The program's name of the tool.
    pub(crate) tool: String,
    /// The arguments.
    pub(crate) input: Value,
    /// The effects on files.
    pub(crate) effects: ToolEffects,
}

impl Call {
    /// The program's id of the call, otherwise the tool and its input.
    pub(crate) fn id_or_input(&self) -> String {
        match &self.id {
            Some(id) => id.clone(),
            None => format!("{}\0{}", self.tool, self.input),
        }
    }
}

/// The effects of a tool on files.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ToolEffects {
    /// Exactly these. If empty, none.
    Files(Vec<FileEffect>),
    /// tollgate does not know this tool.
    Unknown,
    /// The effects of shell commands.
    Shell {
        /// The commands, which run one after the other.
        commands: Vec<String>,
        /// The folder in which they run; `None` for the agent's folder.
        folder: Option<PathBuf>,
        /// Whether the program says that they keep running while the agent goes on.
        keep_running: bool,
    },
}

impl ToolEffects {
    /// No effects on files.
    pub(crate) fn none() -> Self {
        Self::Files(Vec::new())
    }
}

/// The effect of a tool on one file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FileEffect {
    /// The agent reads it.
    Read(PathBuf, Extent),
    /// The tool writes this text; `None` if the text is not known.
    Write(PathBuf, Option<String>),
    /// The tool replaces old text with new text. If empty, it changes some part that is not known.
    Edit(PathBuf, Vec<Edit>),
    /// The tool applies a patch.
    Patch(PathBuf, Vec<Hunk>),
    /// The tool deletes it.
    Delete(PathBuf),
    /// The tool changes files, but its input does not name them in a way that tollgate can read.
    Unreadable,
}

/// Some lines of a patch that are replaced with other lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hunk {
    /// A line somewhere above the old lines.
    pub(crate) below: Option<String>,
    pub(crate) old: Vec<String>,
    pub(crate) new: Vec<String>,
}

/// What the program reports after a tool has run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ToolReport {
    /// The tool failed.
    pub(crate) failed: bool,
    /// The program has an event of its own for that, and has sent it.
    pub(crate) by_event: bool,
    /// What the agent was shown.
    pub(crate) shown: Shown,
    /// The text that the tool replaced, if the program reports it.
    pub(crate) replaced: Option<(PathBuf, String)>,
}

/// How much of the read files the agent was shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum Shown {
    /// Everything that it asked for.
    #[default]
    AsAsked,
    /// Only a part, because the program truncated it.
    InPart,
    /// Nothing.
    Nothing,
    /// This output, which may contain the files.
    Text(String),
}
