//! The agent programs that can be guarded: one file each, and this list.
//!
//! A file here knows one program's JSON: how its events read, how it wants to be answered, and where its configuration
//! is. The name of a program occurs nowhere else. A new program is one new file and one line in [`ALL`].

mod claude_code;
mod cline;
mod codex;
mod copilot;
mod cursor;
mod fields;
mod gemini;
mod mcp;
mod opencode;
mod setup;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::hook::event::Heard;

use mcp::Registry;
use setup::Place;
pub(crate) use setup::{Became, Setup, Trust};

/// An agent program.
pub(crate) trait Host: Sync {
    /// As it is named on the command line, in agents' names and in messages.
    fn name(&self) -> &'static str;

    /// Whether these fields can only be this program's. Programs read each other's configuration, so whoever is called
    /// in the name of one may have to answer another.
    fn is_surely(&self, payload: &Value) -> bool;

    /// What it tells, or what is wrong with it.
    fn hear(&self, payload: &Value) -> Result<Heard, String>;

    /// Whether an unreadable text could be the one event that can be blocked, judging by the words in it.
    fn may_be_before_a_tool(&self, text: &str) -> bool;

    /// What to print so that the tool does not run and the agent is told why.
    fn block(&self, reason: &str) -> Value;

    /// What to print after a tool so that the agent is told; none if the program has no way.
    fn tell(&self, words: &str) -> Option<Value>;

    /// How it is set up in a workspace.
    fn setup(&self) -> Setup;

    /// Where it finds MCP servers.
    fn mcp(&self) -> Registry;

    /// What in a user's home or path says that the program is in use: names of its programs, of its folders in the
    /// home, and of its files in a project.
    fn traces(&self) -> Traces;

    /// Whether the program would call the hook that is set up, as far as its own settings tell.
    fn trust(&self, home: Option<&Path>, root: &Path) -> Trust {
        let _ = (home, root);
        Trust::NotNeeded
    }

    /// A payload that must be blocked, for trying out the real configuration: a write of this file by this session.
    fn canary(&self, session: &str, folder: &Path, event: Canary, file: &Path) -> Value;
}

/// What a canary says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Canary {
    /// The file is about to be read.
    BeforeRead,
    /// It was read.
    AfterRead,
    /// It is about to be overwritten.
    BeforeWrite,
}

/// Where a program leaves traces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traces {
    /// Its executable.
    pub(crate) program: &'static str,
    /// A folder below the user's home.
    pub(crate) home: &'static str,
    /// Files or folders in a project.
    pub(crate) project: &'static [&'static str],
}

/// Every program, in the order of the list in the help.
pub(crate) const ALL: [&dyn Host; 7] = [
    &claude_code::ClaudeCode,
    &codex::Codex,
    &gemini::Gemini,
    &opencode::Opencode,
    &cursor::Cursor,
    &copilot::Copilot,
    &cline::Cline,
];

/// The program of this name.
pub(crate) fn named(name: &str) -> Option<&'static dyn Host> {
    ALL.into_iter().find(|host| host.name() == name)
}

/// The names of all.
pub(crate) fn names() -> Vec<&'static str> {
    ALL.iter().map(|host| host.name()).collect()
}

/// Whose payload this is: by its fields, else by the name that we were called with.
pub(crate) fn recognise(payload: &Value, called: &'static dyn Host) -> &'static dyn Host {
    let can_hear = |host: &&dyn Host| host.hear(payload).is_ok();
    let sure = ALL.into_iter().find(|host| host.is_surely(payload));
    sure.or_else(|| if can_hear(&called) { None } else { ALL.into_iter().find(can_hear) }).unwrap_or(called)
}

/// Whether a program is in use here, as far as its traces tell.
pub(crate) fn is_found(host: &dyn Host, home: Option<&Path>, path: &[PathBuf], root: &Path) -> bool {
    let traces = host.traces();
    path.iter().any(|folder| folder.join(traces.program).is_file())
        || home.is_some_and(|home| home.join(traces.home).is_dir())
        || traces.project.iter().any(|name| root.join(name).exists())
}

/// The files by which the hooks are switched on: an agent that may change them may switch the guard off.
pub(crate) fn protected() -> Vec<PathBuf> {
    ALL.iter().flat_map(|host| host.setup().files()).collect()
}
