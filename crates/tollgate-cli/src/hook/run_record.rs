//! What the turn learns from the record of a run: what the command wrote, and which of the files that it read the agent saw.
//!
//! A program that reads a file does not show it to the agent: a search reads every file of a workspace. So a file counts as
//! read only if its content is in the output. Files that the command names are settled by the ticket of the call, as without a
//! run.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tollgate::digest::Digest;
use tollgate::error::Fault;
use tollgate::turn::{Extent, FileState, TEXT_PER_FILE, TurnState};
use tollgate::workspace::Workspace;
use tollgate_base::private;
use tollgate_run::{ChangedFile, ReadFile};

use super::shown::{shown_in, shows_diff};
use crate::session_turns::{WorkspaceTurn, learners};

/// The largest number of files of a run that are compared with the output. A command that reads more than this is a search,
/// and shows the names of the files that it found.
const COMPARED: usize = 100;

/// The shortest line that shows that the output has a part of a file: `return` and `} else {` are in many files.
const TELLING: usize = 12;

/// The record that a run leaves.
#[derive(Debug, Deserialize)]
pub(super) struct RunReport {
    refused: Vec<RefusedFile>,
    reads: Vec<ReadFile>,
    writes: Vec<ChangedFile>,
}

#[derive(Debug, Deserialize)]
struct RefusedFile {
    file_path: PathBuf,
}

impl RunReport {
    /// The record in this file; `None` if the run did not happen or has not ended.
    pub(super) fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&private::read(path).ok()?).ok()
    }

    /// Tells these turns of the agent, inner workspaces first, what the command did. `output` is what the agent was shown. Files that are settled already are not
    /// compared with it.
    pub(super) fn teach(
        &self,
        workspace: &Workspace,
        turns: &[WorkspaceTurn],
        output: Option<&str>,
        settled: impl Fn(&Path) -> bool,
    ) -> Result<(), Fault> {
        let root = workspace.path();
        for file in &self.refused {
            let path = workspace.canonical(&file.file_path)?;
            learners(turns, &path).into_iter().try_for_each(|turn| turn.refused(&path))?;
        }
        if let Some(output) = output.filter(|output| !output.is_empty()) {
            let is_compared = |path: &Path| {
                let is_named = || {
                    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| output.contains(name))
                };
                !settled(path) && (self.reads.len() <= COMPARED || is_named())
            };
            for file in &self.reads {
                let path = root.join(&file.path);
                if is_compared(&path)
                    && let Some(sha256) = file.sha256
                    && let Some((bytes, shown)) = seen(&path, sha256, output)
                {
                    let path = workspace.canonical(&path)?;
                    for turn in learners(turns, &path) {
                        turn.was_shown(&path, FileState::Present(sha256), shown, workspace.now())?;
                        turn.keep_text(sha256, &bytes)?;
                    }
                }
            }
        }
        // `git stash show -p`
        if let Some(output) = output.filter(|output| is_diff(output)) {
            for (path, state) in
                workspace.shown_stashes(|lines| shown_in(output, lines) == Some(Extent::Whole))?
            {
                learners(turns, &path)
                    .into_iter()
                    .try_for_each(|turn| turn.observe(&path, state, Extent::Whole))?;
            }
        }
        // git checks its own files. Another git command may change them at any time, and no agent reads them.
        let is_of_git = |file: &&ChangedFile| file.path.components().any(|part| part.as_os_str() == ".git");
        for file in self.writes.iter().filter(|file| !is_of_git(file)) {
            let path = root.join(&file.path);
            let state = file.after.map_or(FileState::Absent, FileState::Present);
            let written = workspace.canonical_link(&path)?;
            let target = workspace.canonical(&path).ok().filter(|_| file.link);
            let text = file.after.zip(small(&path)).filter(|(digest, bytes)| Digest::of(bytes) == *digest);
            for turn in learners(turns, &written) {
                match &target {
                    Some(target) => turn.made_link(&written, state, target)?,
                    None => turn.wrote(&written, state)?,
                }
                if let Some((digest, bytes)) = &text {
                    turn.keep_text(*digest, bytes)?;
                }
            }
        }
        Ok(())
    }
}

/// The content of a file that still is what the command read, and how much of it is in the output.
fn seen(path: &Path, sha256: Digest, output: &str) -> Option<(Vec<u8>, Extent)> {
    let bytes = small(path).filter(|bytes| Digest::of(bytes) == sha256)?;
    let content = std::str::from_utf8(&bytes).ok()?;
    // A line that many files have says nothing about this one.
    let mut telling = content.lines().map(str::trim).filter(|line| line.len() >= TELLING);
    let shown = match shown_in(output, content)? {
        Extent::Whole if !content.trim().is_empty() => Extent::Whole,
        _ if shows_diff(path, output) => Extent::Whole,
        _ if telling.any(|line| output.contains(line)) => Extent::Part,
        _ => return None,
    };
    Some((bytes, shown))
}

fn is_diff(output: &str) -> bool {
    output.lines().any(|line| line.starts_with("@@"))
}

fn small(path: &Path) -> Option<Vec<u8>> {
    let size = fs::metadata(path).ok()?.len();
    (size <= TEXT_PER_FILE as u64).then(|| fs::read(path).ok())?
}
