//! The past of a workspace: what agents have changed, and who wrote each line of a file.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tollgate::TaskName;
use tollgate::error::{At, Fault};
use tollgate::history::blame::{Writer, blame};
use tollgate::history::ledger_name;
use tollgate::history::listing::{PastChange, PastChanges, Selection};
use tollgate::history::turn::ReadsOfTurns;
use tollgate::name::Agent;

use crate::failure::{Answered, CallFailure, done};
use crate::workspace_handle::WorkspaceHandle;

/// The number of reads in an answer. Each line may be the work of a turn with thousands of them.
const READS: usize = 10_000;

/// Which changes to list.
#[derive(Debug, Default)]
pub struct PastSelection {
    /// Only those of this file, also under its earlier names.
    pub path: Option<PathBuf>,
    /// Only those of this agent.
    pub agent: Option<String>,
    /// Only those that were made for this task.
    pub task: Option<String>,
    /// Only those since this time, as in `2026-11-18T10:00:00Z`.
    pub since: Option<String>,
    /// The number of changes at most.
    pub limit: Option<u32>,
}

impl WorkspaceHandle {
    /// What agents have changed, the newest first.
    pub fn history(&self, selection: &PastSelection) -> Answered<Value> {
        let workspace = self.workspace(None)?;
        let name = |path: &PathBuf| {
            done(workspace.shows(path))?;
            Ok::<_, CallFailure>(ledger_name(&workspace, &workspace.canonical_link(path)?))
        };
        let file = selection.path.as_ref().map(name).transpose()?;
        let agent = selection.agent.as_ref().map(|agent| agent.parse::<Agent>()).transpose()?;
        let task = selection.task.as_ref().map(|task| task.parse::<TaskName>()).transpose()?;
        let time = |text: &String| text.parse().map_err(|error| Fault::invalid(format!("`{text}`: {error}")));
        let selection = Selection {
            file: file.as_deref(),
            agent: agent.as_ref(),
            task: task.as_ref(),
            since: selection.since.as_ref().map(time).transpose()?,
            most: selection.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
        };
        let listed = PastChanges::list(&workspace, &selection)?;
        Ok(listed.changes.iter().map(PastChange::json).collect())
    }

    /// Who wrote each line of a file; with `why`, also what the agent of the line had read before.
    pub fn blame(&self, path: &Path, why: bool) -> Answered<Value> {
        let workspace = self.workspace(None)?;
        let path = done(workspace.inside(path))?;
        let bytes = std::fs::read(path.as_path()).at("read", path.as_path())?;
        let text = str::from_utf8(&bytes)
            .map_err(|_| CallFailure::invalid(format!("`{path}` is not text in UTF-8")))?;
        let lines = blame(&workspace, &ledger_name(&workspace, &path), path.as_path(), &bytes)?;
        let (mut reads, mut room) = (ReadsOfTurns::new(&workspace, &|_| None), READS);
        let mut listed = Vec::with_capacity(lines.len());
        for (line, text) in lines.iter().zip(text.split_inclusive('\n')) {
            let mut json = line.json_with(text.strip_suffix('\n').unwrap_or(text));
            if let (true, Writer::Step(step)) = (why, &line.writer) {
                reads.of([(step.turn.as_ref(), Some(step.time))])?.put(&mut json, &mut room);
            }
            listed.push(json);
        }
        Ok(listed.into())
    }
}
