//! `tollgate doctor`: how well files are protected here, what is broken, and how to fix it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tollgate::error::Fault;
use tollgate::gate::Gate;
use tollgate::recovery::RecoveryKind;
use tollgate::settings::{Agents, Settings};
use tollgate::tasks::VaultHome;
use tollgate::vault::checkup::Level;
use tollgate::vault::figures::Figures;
use tollgate::vault::state::State;
use tollgate::vault::view;
use tollgate::workspace::{STATE_FOLDER, STATE_VERSION, Workspace, read_settings};
use tollgate::worktree::{in_linked_trees, in_main_tree};
use tollgate_guard::doctor::leftovers;
use tollgate_guard::probe::probe;
use tollgate_run::{Availability, available};

use crate::answer::{Answer, Said};
use crate::error::CliError;
use crate::hook::checkup::checkups;
use crate::invocation::Invocation;
use crate::progress::Progress;
use crate::report::diagnosis::{Checked, Fact};
use crate::tasks::LoggedVault;
use crate::trust::Configured;
use crate::words;

/// Check the workspace: how well files are protected here, what is broken, and how to fix it
///
/// Tests with real files what the file system can do, recovers interrupted writes, verifies the ledger, tests the hooks of
/// agent programs, and checks the settings, the privacy of the state, recovery, reservations, turns and the vault. Every
/// finding is `ok`, a `warning` or a `problem`. The exit code is 1 if there is a problem.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate doctor
  tollgate doctor --json | jq '.findings[] | select(.level != \"ok\")'")]
pub(crate) struct DoctorArgs {}

pub(crate) fn run(invocation: &Invocation, _: &DoctorArgs) -> Result<Answer, CliError> {
    let (root, found_by) = invocation.root()?;
    let _progress = Progress::of("checking the workspace");
    let mut facts = vec![Fact::Workspace { root: root.clone(), found_by }];
    let ignored = invocation.ignored().iter();
    facts.extend(ignored.map(|(root, owner)| Fact::Ignored { root: root.clone(), owner: *owner }));
    look(invocation, &root, &mut facts);
    facts.extend(checkups(invocation, &root));
    let checked: Vec<Checked> = facts
        .iter()
        .map(|fact| {
            let (message, fix) = words::finding(&invocation.viewpoint(), fact);
            Checked { check: fact.check(), level: fact.level(), message, fix }
        })
        .collect();
    let healthy = checked.iter().all(|found| found.level != Level::Problem);
    let said = Said {
        words: words::diagnosis(&checked),
        json: json!({"workspace": root.to_string_lossy(), "healthy": healthy, "findings": checked}),
        ..Said::default()
    };
    Ok(if healthy { Answer::Done(said) } else { Answer::NotValid(said) })
}

/// Makes all checks. If one fails, the others are still made.
fn look(invocation: &Invocation, root: &Path, facts: &mut Vec<Fact>) {
    let state = root.join(STATE_FOLDER);
    let mut add = |check, fact: Result<Fact, Fault>| {
        facts.push(fact.unwrap_or_else(|fault| Fact::Broken { check, fault }));
    };
    let config = state.join("config.toml");
    let settings = read_settings(&config);
    let usable = settings.is_ok();
    add(
        "settings",
        settings.map(|settings| Fact::Settings { settings: Box::new(settings), written: config.exists() }),
    );
    if let Some(fact) = worktree(root, read_settings(&config).unwrap_or_default()) {
        add("worktree", fact);
    }
    match Configured::read(root) {
        Ok(configured) if configured.commands.is_empty() => {}
        configured => add(
            "commands",
            configured.map(|configured| Fact::Commands {
                trusted: invocation.trust().trusts(root, &configured),
                commands: configured.commands,
            }),
        ),
    }
    let stage = state.join("stage");
    let place = if stage.is_dir() { &stage } else { root };
    add("file system", probe(place).map(Fact::FileSystem));
    let in_engine = VaultHome::at(root.to_owned()).is_ok_and(|home| home.is_in_engine());
    if !state.join("version").exists() && !in_engine {
        add("state", Ok(Fact::NoState));
        return;
    }
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    if device(&stage).is_some_and(|stage| Some(stage) != device(root)) {
        add("file system", Ok(Fact::OtherFileSystem));
    }
    let before = leftovers(&state);
    // Without usable settings it cannot be opened, and that is already reported.
    let workspace = if usable { Some(invocation.workspace()) } else { None };
    let workspace = match workspace {
        Some(Ok(workspace)) => {
            add("state", Ok(Fact::State { version: STATE_VERSION }));
            // If another process is sweeping now, that is just as good.
            let _ = workspace.sweep();
            Some(workspace)
        }
        Some(Err(fault)) => {
            add("state", Err(fault));
            None
        }
        None => None,
    };
    add("privacy", privacy(invocation, &state));
    add("leftovers", before.and_then(|before| Ok(Fact::Leftovers { before, after: leftovers(&state)? })));
    add("ledger", ledger(invocation, root));
    if let Some(workspace) = &workspace {
        match available(&Gate::new(workspace.clone())) {
            Ok(levels) => {
                let reached = levels.iter().find(|found| found.why_not.is_none()).map(|found| found.level);
                for Availability { level, why_not } in levels {
                    add("run", Ok(Fact::RunLevel { level, why_not, reached: Some(level) == reached }));
                }
            }
            Err(fault) => add("run", Err(fault)),
        }
        add("recovery", recovery(workspace));
        add("reservations", reservations(invocation, workspace));
    }
    add("turns", turns(invocation));
    if let Some(workspace) = &workspace {
        match invocation.tasks_of(workspace) {
            Ok(Some(tasks)) => {
                // First, because it synchronises with the remote.
                match tasks.vault.store().checkup() {
                    Ok(findings) if findings.is_empty() => {}
                    findings => {
                        let name = tasks.store;
                        add(name, findings.map(|findings| Fact::Store { name, findings }));
                    }
                }
                if tasks.has_view {
                    let findings = view::findings(&tasks.folder);
                    add("view", findings.map(|findings| Fact::Store { name: "view", findings }));
                }
                add("vault", vault(invocation, &tasks));
                match breakers(invocation, &tasks) {
                    Ok(stopped) if stopped.is_empty() => {}
                    stopped => add("breaker", stopped.map(Fact::Breakers)),
                }
            }
            Ok(None) => {}
            Err(fault) => add("vault", Err(fault)),
        }
    }
}

/// Whose vault a linked git worktree uses, or which worktrees use the vault of a main tree.
fn worktree(root: &Path, settings: Settings) -> Option<Result<Fact, Fault>> {
    let own = VaultHome { root: root.to_owned(), settings };
    if in_main_tree(root) != Ok(None) {
        return Some(VaultHome::of(root, &own.settings).map(|home| Fact::Worktree {
            shared_with: Some(home.root).filter(|home| *home != own.root),
            has_vault: own.has_vault(),
        }));
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
    Some(Ok(Fact::Worktrees { shared: shared.len(), apart }))
}

fn vault(invocation: &Invocation, tasks: &LoggedVault) -> Result<Fact, Fault> {
    let healed = tasks.vault.store().heal()?;
    let (mut open, mut unfit) = (0, Vec::new());
    for state in State::ALL.into_iter().filter(|state| !state.is_final()) {
        let scan = tasks.vault.store().scan(state, invocation.now())?;
        open += scan.tasks.len();
        unfit.extend(scan.unfit);
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
    let stuck = tasks.vault.stuck(invocation.now())?;
    Ok(Fact::Vault { folder: tasks.folder.clone(), open, healed, reclaimable, unknown, unfit, stuck })
}

fn breakers(invocation: &Invocation, tasks: &LoggedVault) -> Result<Vec<String>, Fault> {
    Ok(tasks.vault.figures(invocation.now())?.1.iter().filter_map(Figures::stopped).collect())
}

fn privacy(invocation: &Invocation, state: &Path) -> Result<Fact, Fault> {
    let found = fs::symlink_metadata(state).map_err(|source| Fault::Io {
        doing: "look at",
        path: state.to_owned(),
        source,
    })?;
    let uid = invocation.uid();
    // Root may open everything. Users share a workspace through a group that may write to it.
    let ours = found.uid() == uid || uid == 0 || found.mode() & 0o020 != 0;
    Ok(Fact::Privacy { state: state.to_owned(), mode: found.mode() & 0o777, ours })
}

fn ledger(invocation: &Invocation, root: &Path) -> Result<Fact, Fault> {
    let verdict = Box::new(invocation.ledger()?.verify()?);
    Ok(Fact::Ledger { verdict, head_file: invocation.ledger_head(root)? })
}

fn recovery(workspace: &Workspace) -> Result<Fact, Fault> {
    let kept = workspace.recovery()?;
    Ok(Fact::Recovery {
        entries: kept.len(),
        bytes: kept.iter().map(|kept| kept.size).sum(),
        late: kept.iter().filter(|kept| kept.kind == RecoveryKind::Late).count(),
        room: workspace.settings().recovery.max_size.0,
    })
}

fn reservations(invocation: &Invocation, workspace: &Workspace) -> Result<Fact, Fault> {
    let reserved = leftovers(&workspace.state_path())?.reservations;
    let limit = workspace.settings().guard.reservation.0;
    let is_void = |since: jiff::Timestamp| invocation.now().duration_since(since).unsigned_abs() > limit;
    let void = reserved.iter().filter(|reserved| is_void(reserved.since)).count();
    Ok(Fact::Reservations { live: reserved.len() - void, void })
}

fn turns(invocation: &Invocation) -> Result<Fact, Fault> {
    let mut running = 0;
    for turns in invocation.existing_turns()? {
        running += turns.list()?.len();
    }
    Ok(Fact::Turns { running })
}
