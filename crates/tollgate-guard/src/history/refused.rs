//! What a refused command wanted to change, merged with what is on disk: as an undo plans, in the other direction.

use jiff::Timestamp;

use super::content::Contents;
use super::undo::{Plan, Span};
use crate::conflict::{self, RefusedRun, WantedChange};
use crate::workspace::Workspace;
use tollgate_base::error::Result;
use tollgate_base::name::Agent;

/// The changes of a refused command, merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunMerge {
    /// The number of the ledger line of its first refusal.
    pub line: u64,
    /// Whose command it was.
    pub agent: Agent,
    /// When it was refused.
    pub refused: Timestamp,
    /// The number of its changes that are not kept: links, modes, large files.
    pub left_out: usize,
    /// What must be written, all of it or nothing.
    pub plan: Plan,
}

impl RunMerge {
    /// Merges the refused command with this line, or the newest one: of this agent, or of any. `None` if none is kept.
    pub fn find(workspace: &Workspace, line: Option<u64>, agent: Option<&Agent>) -> Result<Option<Self>> {
        let Some(run) = conflict::refused_run(workspace, line, agent)? else { return Ok(None) };
        let RefusedRun { line, agent, time, wanted } = run;
        let span = |change: WantedChange| {
            let WantedChange { path, from, to } = change;
            Span { path, before: to, after: from, executable: false, lines: [line; 2] }
        };
        let spans: Vec<Span> = wanted.files.into_iter().map(span).collect();
        let plan = Plan::of_spans(&Contents::of(workspace), &spans)?;
        Ok(Some(Self { line, agent, refused: time, left_out: wanted.left_out, plan }))
    }

    /// Forgets the changes of the command with this line, because they were made.
    pub fn forget(workspace: &Workspace, line: u64) {
        conflict::forget_texts(workspace, line);
    }
}
