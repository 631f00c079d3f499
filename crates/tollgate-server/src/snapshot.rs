//! A snapshot of the workspace's figures: `/health` shows it as JSON, `/metrics` as text.
//!
//! Each figure is computed here and nowhere else, so that the two never disagree.

use std::path::PathBuf;

use jiff::Timestamp;
use rustix::fs::Access;
use tollgate::error::Result;
use tollgate::name::Agent;
use tollgate::overlap;
use tollgate::tasks::VaultHome;
use tollgate::vault::figures::{Figures, Tally};
use tollgate::vault::state::State;

use crate::board::Column;
use crate::ledger_monitor::{LedgerCondition, LedgerStatus};
use crate::site::Site;
use crate::workspace_provider::OpenWorkspace;

/// The figures of one moment.
pub(crate) struct Snapshot {
    pub(crate) now: Timestamp,
    /// Whether tollgate is set up in the folder.
    pub(crate) set_up: bool,
    /// The problems, each in one sentence. Empty if all is well.
    pub(crate) problems: Vec<String>,
    pub(crate) ledger: LedgerStatus,
    /// All agents together. `None` if the workspace or its tasks cannot be read.
    pub(crate) coordination: Option<Figures>,
    /// Each agent.
    pub(crate) agents: Vec<Figures>,
    /// `None` without a vault.
    pub(crate) tasks: Option<TaskFigures>,
    /// Turns that commands and hooks share and that have not ended. `None` without an open workspace.
    pub(crate) open_turns: Option<usize>,
    /// Files on which several agents work. `None` without an open workspace.
    pub(crate) overlaps: Option<usize>,
}

/// The tasks.
pub(crate) struct TaskFigures {
    /// The number of tasks in each state.
    pub(crate) counts: [(State, usize); State::ALL.len()],
    /// Claims whose owner is gone. The next worker reclaims these tasks.
    pub(crate) stale_claims: usize,
    pub(crate) oldest_waiting: Option<OldestTask>,
    pub(crate) oldest_pending_approval: Option<OldestTask>,
}

impl TaskFigures {
    pub(crate) fn count(&self, state: State) -> usize {
        self.counts.iter().find(|(known, _)| *known == state).map_or(0, |(_, count)| *count)
    }
}

/// The task that has waited longest in its state.
pub(crate) struct OldestTask {
    pub(crate) task: String,
    pub(crate) since: Timestamp,
}

impl OldestTask {
    fn of(column: &Column) -> Option<Self> {
        let (task, since) = column.oldest()?;
        Some(Self { task: task.as_str().to_owned(), since })
    }
}

impl Snapshot {
    /// Reads the figures. Blocks.
    pub(crate) fn take(site: &Site) -> Self {
        let mut snapshot = Self {
            now: Timestamp::now(),
            set_up: true,
            problems: Vec::new(),
            ledger: site.ledger(),
            coordination: Some(Figures::new("all", 0, &Tally::default())),
            agents: Vec::new(),
            tasks: None,
            open_turns: None,
            overlaps: None,
        };
        match site.open() {
            Ok(Some(open)) => {
                snapshot.problems.extend(problems(site, &open));
                if let LedgerCondition::Broken { problem } = &snapshot.ledger.condition {
                    snapshot.problems.push(format!("the ledger was changed after it was written: {problem}"));
                }
                let turns = open.turns.iter().map(|turns| turns.list().map_or(0, |turns| turns.len()));
                snapshot.open_turns = Some(turns.sum());
                snapshot.overlaps = overlap::list(open.gate.workspace()).ok().map(|files| files.len());
                if let Err(fault) = snapshot.read_tasks(site, &open) {
                    snapshot.coordination = None;
                    snapshot.problems.push(fault.to_string());
                }
            }
            Ok(None) => snapshot.set_up = false,
            Err(fault) => {
                snapshot.coordination = None;
                snapshot.problems.push(fault.to_string());
            }
        }
        snapshot
    }

    /// The figures of one agent; zeros for an agent that has never claimed anything.
    pub(crate) fn of_agent(&self, agent: &Agent) -> Figures {
        let known = self.agents.iter().find(|figures| figures.agent_name == agent.as_str());
        known.cloned().unwrap_or_else(|| Figures::new(agent.as_str(), 0, &Tally::default()))
    }

    fn read_tasks(&mut self, site: &Site, open: &OpenWorkspace) -> Result<()> {
        let Some(vault) = &open.vault else { return Ok(()) };
        let (all, each) = vault.figures(self.now)?;
        (self.coordination, self.agents) = (Some(all), each);
        let stale_claims = site.stale_claims(vault)?;
        let Some(board) = site.board()? else { return Ok(()) };
        self.tasks = Some(TaskFigures {
            counts: State::ALL.map(|state| (state, board.column(state).len())),
            stale_claims,
            oldest_waiting: OldestTask::of(board.column(State::NeedsAction)),
            oldest_pending_approval: OldestTask::of(board.column(State::PendingApproval)),
        });
        Ok(())
    }
}

/// What keeps the workspace or its vault from being used right now.
fn problems(site: &Site, open: &OpenWorkspace) -> Vec<String> {
    let state = open.gate.workspace().state_path();
    let folders: Vec<PathBuf> =
        ["", "locks", "stage", "journal", "history"].iter().map(|name| state.join(name)).collect();
    let usable = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    let unusable = |folder: &PathBuf| match rustix::fs::access(folder, usable) {
        Ok(()) if folder.is_dir() => None,
        Ok(()) => Some(format!("`{}` is not a folder", folder.display())),
        Err(error) => {
            let error = std::io::Error::from(error);
            Some(format!("`{}` is not usable: {error}", folder.display()))
        }
    };
    let mut problems: Vec<String> = folders.iter().filter_map(unusable).collect();
    match &open.vault {
        Some(vault) => problems.extend(vault.store().problems()),
        None if site.had_vault() || misses_its_vault(open) => problems.push("the vault is gone".to_owned()),
        None => {}
    }
    problems
}

/// Whether the configuration names a vault that is not there. Faults of the configuration are reported elsewhere.
fn misses_its_vault(open: &OpenWorkspace) -> bool {
    let workspace = open.gate.workspace();
    VaultHome::of(workspace.path(), workspace.settings()).is_ok_and(|home| home.misses_its_vault())
}
