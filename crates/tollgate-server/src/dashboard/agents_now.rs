//! What each agent is doing now: its turns with the files that it has read and changed in them, its tasks, its last refusal.
//!
//! A turn that several processes share is in a folder, with all its files. Of a turn in the memory of an MCP server, the ledger has the
//! changes only.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use jiff::{SignedDuration, Timestamp};
use tollgate::error::{Fault, Result};
use tollgate::event::{Event, FileChanged, Mutation, MutationStatus};
use tollgate::ledger::Line;
use tollgate::name::TurnId;
use tollgate::overlap::Overlap;
use tollgate::shared_turn::SharedTurn;
use tollgate::turn::{Extent, FileState, TurnState as _};
use tollgate::vault::state::State;
use tollgate::vault::store::TaskSummary;
use tollgate::workspace::Workspace;

use super::task_row::{TaskRow, rows};
use super::visit::Visit;
use crate::workspace_provider::OpenWorkspace;

/// An agent whose turn is known by the ledger only is at work if it has changed something within this time.
const RECENT: SignedDuration = SignedDuration::from_mins(10);

/// A refusal is shown for this long.
const SHOWN: SignedDuration = SignedDuration::from_hours(1);

/// The number of turns in folders whose files are read, the newest first: more than anybody runs at once.
const TURNS: usize = 50;

/// The number of tasks in progress that are read: more than there are agents.
const TASKS: usize = 200;

/// One agent.
#[derive(Default)]
pub(super) struct AgentNow {
    pub(super) tasks: Vec<TaskRow>,
    /// The newest first.
    pub(super) turns: Vec<TurnNow>,
    /// Its last refusal.
    pub(super) refused: Option<Line>,
}

/// A turn that goes on.
pub(super) struct TurnNow {
    pub(super) id: TurnId,
    /// When it began, or, if that is not known, when it changed something for the last time.
    pub(super) since: Timestamp,
    pub(super) files: Vec<FileUse>,
}

/// A file in a turn.
#[derive(Debug, Clone)]
pub(super) struct FileUse {
    /// As the ledger names it.
    pub(super) name: String,
    pub(super) is_changed: bool,
    /// What the turn did with it, in a word or two.
    pub(super) word: &'static str,
}

/// Agents by their names.
pub(super) type AgentsNow = BTreeMap<String, AgentNow>;

impl AgentNow {
    /// Whether it is at work.
    pub(super) fn is_busy(&self) -> bool {
        !self.tasks.is_empty() || !self.turns.is_empty()
    }
}

/// All agents that are at work, and those that were refused lately. `tail` are the newest lines of the ledger.
pub(super) fn agents_now(visit: &Visit, open: &OpenWorkspace, tail: &[Line]) -> Result<AgentsNow> {
    let workspace = open.gate.workspace();
    let now = workspace.now();
    let mut agents = AgentsNow::new();
    if let Some(vault) = &open.vault {
        let mut listed: Vec<TaskSummary> = Vec::new();
        if let Some(board) = visit.site.board()? {
            listed.extend(board.column(State::InProgress).tasks().take(TASKS).cloned());
        }
        for row in rows(vault, &listed, now) {
            agents.entry(row.agent().to_owned()).or_default().tasks.push(row);
        }
    }
    let mut shared = HashSet::new();
    for turn in running(open)?.iter().take(TURNS) {
        shared.insert(turn.id().clone());
        let files = used_files(workspace, turn)?;
        let now = TurnNow { id: turn.id().clone(), since: turn.started(), files };
        agents.entry(turn.agent().to_string()).or_default().turns.push(now);
    }
    let mut ended = HashSet::new();
    for line in tail {
        let Some(agent) = &line.agent else { continue };
        let is_recent = now.duration_since(line.time) < RECENT;
        match (&line.event, &line.turn) {
            (Event::TurnEnded(_), Some(turn)) => drop(ended.insert(turn.clone())),
            (Event::Mutation(Mutation::File(file), MutationStatus::Applied), Some(turn))
                if is_recent && !ended.contains(turn) && !shared.contains(turn) =>
            {
                agents.entry(agent.to_string()).or_default().wrote(turn, line.time, file);
            }
            (Event::MutationConflict(..), _) if now.duration_since(line.time) < SHOWN => {
                agents.entry(agent.to_string()).or_default().refused.get_or_insert_with(|| line.clone());
            }
            _ => {}
        }
    }
    Ok(agents)
}

impl AgentNow {
    /// Takes the next older change of a turn.
    fn wrote(&mut self, turn: &TurnId, time: Timestamp, file: &FileChanged) {
        let at = match self.turns.iter().position(|known| known.id == *turn) {
            Some(at) => at,
            None => {
                self.turns.push(TurnNow { id: turn.clone(), since: time, files: Vec::new() });
                self.turns.len() - 1
            }
        };
        let name = file.moved_to.as_ref().unwrap_or(&file.target_file);
        let files = &mut self.turns[at].files;
        if !files.iter().any(|known| known.name == *name) {
            files.push(FileUse { name: name.clone(), is_changed: true, word: "written" });
        }
    }
}

/// The turns that several processes share and that have not ended, the newest first.
pub(super) fn running(open: &OpenWorkspace) -> Result<Vec<SharedTurn>> {
    let mut turns = Vec::new();
    for place in &open.turns {
        turns.extend(place.list()?);
    }
    turns.sort_by_key(|turn| std::cmp::Reverse(turn.started()));
    Ok(turns)
}

/// The files that a turn has read or written: those that it has changed come first.
pub(super) fn used_files(workspace: &Workspace, turn: &SharedTurn) -> Result<Vec<FileUse>> {
    let files = match turn.files() {
        // The turn has just ended.
        Err(Fault::Io { .. }) => Vec::new(),
        files => files?,
    };
    let used = files.iter().map(|(path, sighting)| {
        let relative = path.as_path().strip_prefix(workspace.path()).unwrap_or(path.as_path());
        let (first, last) = (sighting.initial(), sighting.baseline(Extent::Whole));
        let (is_changed, word) = match (first, last) {
            (_, FileState::Unreadable) => (false, "unreadable"),
            (None, FileState::Absent) => (false, "did not exist"),
            (None, FileState::Present(_)) => (true, "written"),
            (first, last) if first == last.digest() => (false, "read"),
            _ => (true, "changed since the first read"),
        };
        FileUse { name: relative.display().to_string(), is_changed, word }
    });
    let mut used: Vec<FileUse> = used.collect();
    used.sort_by_key(|file| !file.is_changed);
    Ok(used)
}

/// A file that somebody has changed in a turn that goes on.
#[derive(Default)]
pub(super) struct FileInWork {
    pub(super) name: String,
    pub(super) changed_by: BTreeSet<String>,
    pub(super) read_by: BTreeSet<String>,
    /// The other working trees of the repository in which somebody works on it.
    pub(super) trees: BTreeSet<String>,
}

/// The files that these agents have changed in their turns: those of several agents first.
pub(super) fn files_in_work(agents: &AgentsNow, overlaps: &[Overlap]) -> Vec<FileInWork> {
    let mut files: BTreeMap<String, FileInWork> = BTreeMap::new();
    let entry = |name: String| FileInWork { name, ..FileInWork::default() };
    let uses = || {
        agents.iter().flat_map(|(agent, now)| {
            now.turns.iter().flat_map(move |turn| turn.files.iter().map(move |file| (agent, file)))
        })
    };
    for (agent, file) in uses().filter(|(_, file)| file.is_changed) {
        let entry = files.entry(file.name.clone()).or_insert_with(|| entry(file.name.clone()));
        entry.changed_by.insert(agent.clone());
    }
    for (agent, file) in uses() {
        if let Some(entry) = files.get_mut(&file.name) {
            entry.read_by.insert(agent.clone());
        }
    }
    for overlap in overlaps {
        let name = overlap.path.display().to_string();
        let entry = files.entry(name.clone()).or_insert_with(|| entry(name));
        for worker in &overlap.workers {
            let agents = if worker.changed { &mut entry.changed_by } else { &mut entry.read_by };
            agents.insert(worker.agent.to_string());
            entry.trees.extend(worker.tree.as_ref().map(|tree| tree.display().to_string()));
        }
    }
    for file in files.values_mut() {
        file.read_by.retain(|agent| !file.changed_by.contains(agent));
    }
    let mut files: Vec<FileInWork> = files.into_values().collect();
    files.sort_by_key(|file| std::cmp::Reverse((file.changed_by.len(), file.read_by.len())));
    files
}
