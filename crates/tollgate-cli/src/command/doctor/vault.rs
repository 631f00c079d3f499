//! The tasks of a workspace: their vault and its store, the roles of agents, and git worktrees that share it or do not.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tollgate::error::{At, Fault};
use tollgate::name::Agent;
use tollgate::settings::{Agents, Settings};
use tollgate::tasks::VaultHome;
use tollgate::vault::Denial;
use tollgate::vault::brief::{Brief, HEAD};
use tollgate::vault::checkup::{Finding, Level};
use tollgate::vault::figures::Figures;
use tollgate::vault::state::State;
use tollgate::vault::store::NotATask;
use tollgate::vault::view;
use tollgate::visible::plain;
use tollgate::worktree::{in_linked_trees, in_main_tree};

use crate::hook::checkup::Check;
use crate::invocation::Invocation;
use crate::tasks::LoggedVault;
use crate::words::{self, Viewpoint, count, short, shown};

/// The findings about a vault that can be opened.
pub(super) fn with_state(invocation: &Invocation, tasks: &LoggedVault, missing: &[State]) -> Vec<Check> {
    let mut checks = Vec::new();
    // First, because it synchronises with the remote.
    match tasks.vault.store().checkup() {
        Ok(findings) if findings.is_empty() => {}
        findings => checks.push((tasks.store, findings.map(|findings| of_store(&findings)))),
    }
    if tasks.has_view {
        checks.push(("view", view::findings(&tasks.folder).map(|findings| of_store(&findings))));
    }
    let tasks_found = look(invocation, tasks).map(|found| found.finding(&invocation.viewpoint(), missing));
    checks.push(("vault", tasks_found));
    checks.extend(breakers(invocation, tasks).transpose().map(|found| ("breaker", found)));
    checks
}

/// What the store found and fixed, as one finding.
fn of_store(findings: &[Finding]) -> Finding {
    let words: Vec<_> = findings.iter().map(|finding| plain(&finding.what)).collect();
    Finding {
        level: findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok),
        what: words.join("\n"),
        fix: findings.iter().rev().find_map(|finding| finding.fix.as_deref().map(plain)),
    }
}

/// The tasks of a vault, as far as they were looked at.
#[derive(Default)]
struct TasksFound {
    folder: PathBuf,
    open: usize,
    healed: usize,
    reclaimable: usize,
    unfit: Vec<NotATask>,
    /// Why some tasks will never be claimed.
    stuck: Vec<Denial>,
    /// Agents that have claimed tasks and have no role.
    unknown: Vec<Agent>,
}

impl TasksFound {
    /// The finding. `missing`: the folders of states that the vault did not have.
    fn finding(&self, view: &Viewpoint, missing: &[State]) -> Finding {
        let mut words = format!("`{}`, {}", shown(view, &self.folder), count(self.open, "open task"));
        if self.healed > 0 {
            words += &format!(", recovered {}", count(self.healed, "interrupted step"));
        }
        let missing = missing_words(missing);
        if self.reclaimable > 0 {
            let tasks = count(self.reclaimable, "task");
            return Finding::warning(format!("{words}; {tasks} claimed by dead workers{missing}"))
                .fix("run `tollgate task reclaim`, or start `tollgate work`, which also reclaims them");
        }
        if let Some(first) = self.unfit.first() {
            let why = format!("`{}` in `{}`: {}", short(&plain(&first.name)), first.state, plain(&first.why));
            let files = count(self.unfit.len(), "file");
            return Finding::warning(format!("{words}; {files} not valid as a task, first {why}{missing}"))
                .fix("fix it or move it away; it cannot be claimed");
        }
        if let Some(first) = self.stuck.first() {
            let (tasks, why) = (count(self.stuck.len(), "task"), plain(&first.to_string()));
            return Finding::warning(format!("{words}; {tasks} cannot be claimed, first: {why}{missing}"))
                .fix("`tollgate task why` explains one task; change its `after` or `action`, or reject it");
        }
        if self.unknown.is_empty() {
            return Finding::ok(words + &missing);
        }
        let names: Vec<_> = self.unknown.iter().map(|agent| format!("`{agent}`")).collect();
        let whom = if names.len() == 1 { "it" } else { "them" };
        Finding::ok(format!(
            "{words}; {} may perform every action, because the configuration has no `[agent.NAME]` for {whom}{missing}",
            names.join(", ")
        ))
        .fix(
            "to restrict an agent, add to `.tollgate/config.toml`: `[agent.NAME]` with `allowed = [\"ACTION\"]`, and \
             `sensitive = [\"ACTION\"]` for actions that a person must approve",
        )
    }
}

fn missing_words(missing: &[State]) -> String {
    let names: Vec<String> = missing.iter().map(|state| format!("`{state}`")).collect();
    match names.len() {
        0 => String::new(),
        1 => format!("; it has no folder {}, which tollgate creates when it is needed", names[0]),
        _ => format!("; it has no folders {}, which tollgate creates when they are needed", names.join(", ")),
    }
}

fn look(invocation: &Invocation, tasks: &LoggedVault) -> Result<TasksFound, Fault> {
    let healed = tasks.vault.store().heal()?;
    let (mut open, mut unfit) = (0, Vec::new());
    for state in State::ALL.into_iter().filter(|state| !state.is_final()) {
        let scan = tasks.vault.store().scan(state, invocation.now())?;
        open += scan.tasks.len();
        unfit.extend(scan.unfit);
        unfit.extend(scan.tasks.into_iter().filter_map(|task| {
            let why = task.brief.err()?.to_string();
            Some(NotATask { name: task.name.to_string(), state, why })
        }));
    }
    let reclaimable = tasks.vault.reclaimable(invocation.now())?.len();
    let roles = &tasks.vault.terms().roles;
    let agents = tasks
        .vault
        .figures(invocation.now())?
        .1
        .into_iter()
        .filter_map(|figures| figures.agent_name.parse().ok());
    // If only listed agents may claim tasks, the others may do nothing.
    let unknown = agents.filter(|agent| !roles.knows(agent) && roles.agents == Agents::All).collect();
    let (stuck, _) = tasks.vault.stuck(invocation.now())?;
    Ok(TasksFound { folder: tasks.folder.clone(), open, healed, reclaimable, unfit, stuck, unknown })
}

/// What can be said about a vault in folders without opening it, which would make files. `None`: nothing names one.
pub(super) fn without_state(view: &Viewpoint, home: &VaultHome) -> Result<Option<Finding>, Fault> {
    let folder = home.folder();
    if !home.has_vault() {
        return Ok(home.misses_its_vault().then(|| {
            let (what, hint) = words::missing_vault(view, &folder);
            Finding::problem(what).fix(hint)
        }));
    }
    let (mut open, mut unfit) = (0, Vec::new());
    for state in State::ALL.into_iter().filter(|state| !state.is_final()) {
        for path in task_files(&folder.join(state.as_str()), state)? {
            open += 1;
            let mut head = Vec::new();
            let read = fs::File::open(&path).and_then(|file| file.take(HEAD as u64).read_to_end(&mut head));
            let why = match read {
                Ok(_) => Brief::read(&head).err().map(|broken| broken.to_string()),
                Err(error) => Some(error.to_string()),
            };
            let name = path.file_name().unwrap_or_default().to_string_lossy().escape_debug().to_string();
            unfit.extend(why.map(|why| NotATask { name, state, why }));
        }
    }
    let found = TasksFound { folder, open, unfit, ..TasksFound::default() };
    Ok(Some(found.finding(view, &missing_folders(home))))
}

/// The files in the folder of a state that look like tasks. Claimed tasks are in a folder for each agent.
fn task_files(folder: &Path, state: State) -> Result<Vec<PathBuf>, Fault> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.at("read", folder)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.at("read", folder)?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if path.is_dir() && state == State::InProgress && !is_hidden {
            found.extend(task_files(&path, State::NeedsAction)?);
        } else if path.is_file() && !is_hidden && path.extension().is_some_and(|end| end == "md") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The folders of states that a vault in folders does not have.
pub(super) fn missing_folders(home: &VaultHome) -> Vec<State> {
    if home.settings.vault.is_shared() || !home.has_vault() {
        return Vec::new();
    }
    let folder = home.folder();
    State::ALL.into_iter().filter(|state| !folder.join(state.as_str()).is_dir()).collect()
}

/// The first action that one agent may only draft, if agents without a table may execute it.
pub(super) fn unapproved(home: &VaultHome) -> Option<Finding> {
    if !home.has_vault() || home.settings.vault.agents == Agents::Listed {
        return None;
    }
    let mut tables = home.settings.agent.iter();
    let (agent, action) = tables.find_map(|(agent, role)| Some((agent, role.sensitive.first()?)))?;
    let what = format!(
        "`{}` is sensitive for `{agent}`, but agents without an `[agent.NAME]` execute it without approval",
        plain(action)
    );
    let fix = "set `agents = \"listed\"` under `[vault]`, so that only agents with a table claim tasks";
    Some(Finding::warning(what).fix(fix))
}

/// Workers that have stopped claiming tasks.
fn breakers(invocation: &Invocation, tasks: &LoggedVault) -> Result<Option<Finding>, Fault> {
    let figures = tasks.vault.figures(invocation.now())?.1;
    let stopped: Vec<String> = figures.iter().filter_map(Figures::stopped).collect();
    Ok((!stopped.is_empty()).then(|| {
        Finding::warning(plain(&stopped.join("; "))).fix(
            "look at the output in the tasks' files, fix the command, then start `tollgate work` again or wait for its next try",
        )
    }))
}

/// Whose vault a linked git worktree uses, or which worktrees use the vault of a main tree.
pub(super) fn worktree(root: &Path, settings: Settings) -> Option<Result<Finding, Fault>> {
    let own = VaultHome { root: root.to_owned(), settings };
    if in_main_tree(root) != Ok(None) {
        return Some(VaultHome::of(root, &own.settings).map(|home| linked_tree(&own, &home)));
    }
    let trees = in_linked_trees(root);
    if trees.is_empty() || !own.has_vault() {
        return None;
    }
    // A tree without any vault has no tasks that could be claimed twice.
    let is_apart = |tree: &PathBuf| {
        let other = VaultHome::at(tree.clone()).and_then(|tree| VaultHome::of(&tree.root, &tree.settings));
        other.is_ok_and(|other| other.root != own.root && other.has_vault())
    };
    let (apart, shared): (Vec<_>, Vec<_>) = trees.into_iter().partition(is_apart);
    let words = format!("{} of this repository with the same tasks", count(shared.len(), "git worktree"));
    let Some(first) = apart.first() else { return Some(Ok(Finding::ok(words))) };
    let whose = if apart.len() == 1 { "its" } else { "their" };
    let trees = count(apart.len(), "git worktree");
    let what =
        format!("{words}; {trees} with tasks of {whose} own, such as `{}`", plain(&first.to_string_lossy()));
    let fix = "agents there can claim the same tasks again: run `tollgate doctor` there to see why the vault is not shared";
    Some(Ok(Finding::warning(what).fix(fix)))
}

/// The vault that a linked git worktree uses: that of its main tree, or its own.
fn linked_tree(own: &VaultHome, home: &VaultHome) -> Finding {
    let has_vault = own.has_vault();
    if home.root != own.root {
        let copy = if has_vault { "; the copy of the vault in this worktree is not used" } else { "" };
        let main = plain(&home.root.to_string_lossy());
        return Finding::ok(format!("git worktree: its tasks are those of `{main}`{copy}"));
    }
    if !has_vault {
        return Finding::ok("git worktree; no vault");
    }
    let what =
        "this git worktree has a vault of its own, so agents in other worktrees can claim the same tasks";
    let fix = "to share one vault, remove `tree` under `[vault]` from `.tollgate/config.toml`";
    Finding::warning(what).fix(fix)
}
