//! `tollgate doctor`: how well files are protected here, what is broken, and how to fix it.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tollgate::error::{At, Fault};
use tollgate::gate::Gate;
use tollgate::recovery::RecoveryKind;
use tollgate::settings::{Agents, Settings};
use tollgate::tasks::VaultHome;
use tollgate::vault::brief::{Brief, HEAD};
use tollgate::vault::checkup::Level;
use tollgate::vault::figures::Figures;
use tollgate::vault::state::State;
use tollgate::vault::store::Unfit;
use tollgate::vault::view;
use tollgate::workspace::{Options, STATE_FOLDER, STATE_VERSION, Workspace, read_settings};
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
use crate::surroundings::Surroundings;
use crate::tasks::LoggedVault;
use crate::trust::{Configured, TrustedNotify};
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
    for folder in Configured::read(root).map(|configured| configured.outside).unwrap_or_default() {
        let trusted = invocation.trust().trusts_folder(root, &folder.path);
        add("folder", Ok(Fact::Outside { folder, trusted }));
    }
    match Configured::read(root) {
        Ok(configured) if configured.notify.is_set() => {
            let trusted = invocation.trust().notify(root);
            add("notify", trusted.map(|notify| Fact::Notify { trusted: notify != TrustedNotify::Untrusted }));
        }
        // A fault is reported above.
        _ => {}
    }
    let stage = state.join("stage");
    let place = if stage.is_dir() { &stage } else { root };
    add("file system", probe(place).map(Fact::FileSystem));
    let home = VaultHome::at(root.to_owned()).and_then(|own| VaultHome::of(root, &own.settings));
    // What a remote or an engine says about the tasks can be known only through a workspace with a state.
    let in_store = home.as_ref().is_ok_and(|home| home.settings.vault.is_shared());
    if let Some(fact) = home.as_ref().ok().and_then(unapproved) {
        add("roles", Ok(fact));
    }
    if !state.join("version").exists() && !in_store {
        add("state", Ok(Fact::NoState));
        if state.exists() {
            add("privacy", privacy(invocation, &state));
        }
        add("ledger", ledger(invocation, root));
        levels(levels_without_state(), &mut add);
        add("turns", turns(invocation));
        // Faults here come from the settings or the worktree, and are already reported.
        if let Some(fact) = home.ok().and_then(|home| vault_without_state(&home).transpose()) {
            add("vault", fact);
        }
        return;
    }
    let missing = home.as_ref().map(missing_folders).unwrap_or_default();
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
        levels(available(&Gate::new(workspace.clone())), &mut add);
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
                add("vault", vault(invocation, &tasks, missing));
                match breakers(invocation, &tasks) {
                    Ok(stopped) if stopped.is_empty() => {}
                    stopped => add("breaker", stopped.map(Fact::Breakers)),
                }
            }
            Ok(None) => {
                if let Some(fact) = home.ok().and_then(|home| vault_without_state(&home).transpose()) {
                    add("vault", fact);
                }
            }
            Err(fault) => add("vault", Err(fault)),
        }
    }
}

/// One finding for each level of `tollgate run`.
fn levels(levels: Result<Vec<Availability>, Fault>, add: &mut impl FnMut(&'static str, Result<Fact, Fault>)) {
    match levels {
        Ok(levels) => {
            let reached = levels.iter().find(|found| found.why_not.is_none()).map(|found| found.level);
            for Availability { level, why_not } in levels {
                add("run", Ok(Fact::RunLevel { level, why_not, reached: Some(level) == reached }));
            }
        }
        Err(fault) => add("run", Err(fault)),
    }
}

/// The levels in a temporary workspace: to try them needs a state, and the doctor makes none here.
fn levels_without_state() -> Result<Vec<Availability>, Fault> {
    let place = Surroundings::temporary();
    let folder = tempfile::Builder::new().prefix("tollgate-levels-").tempdir_in(&place);
    let folder = folder.at("make a folder in", &place)?;
    available(&Gate::new(Workspace::open(folder.path(), Options::default())?))
}

/// What can be said about a vault in folders without opening it, which would make files. `None`: nothing names one.
fn vault_without_state(home: &VaultHome) -> Result<Option<Fact>, Fault> {
    let folder = home.folder();
    if !home.has_vault() {
        return Ok(home.misses_its_vault().then_some(Fact::NoVault { folder }));
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
            unfit.extend(why.map(|why| Unfit { name, state, why }));
        }
    }
    let missing = missing_folders(home);
    Ok(Some(Fact::Vault {
        folder,
        open,
        missing,
        healed: 0,
        reclaimable: 0,
        unknown: Vec::new(),
        unfit,
        stuck: Vec::new(),
    }))
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

/// The first action that one agent may only draft, if agents without a table may execute it.
fn unapproved(home: &VaultHome) -> Option<Fact> {
    if !home.has_vault() || home.settings.vault.agents == Agents::Listed {
        return None;
    }
    let mut tables = home.settings.agent.iter();
    tables.find_map(|(agent, role)| {
        let action = role.sensitive.first()?.clone();
        Some(Fact::Unapproved { action, agent: agent.clone() })
    })
}

/// The folders of states that a vault in folders does not have.
fn missing_folders(home: &VaultHome) -> Vec<State> {
    if home.settings.vault.is_shared() || !home.has_vault() {
        return Vec::new();
    }
    let folder = home.folder();
    State::ALL.into_iter().filter(|state| !folder.join(state.as_str()).is_dir()).collect()
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

fn vault(invocation: &Invocation, tasks: &LoggedVault, missing: Vec<State>) -> Result<Fact, Fault> {
    let healed = tasks.vault.store().heal()?;
    let (mut open, mut unfit) = (0, Vec::new());
    for state in State::ALL.into_iter().filter(|state| !state.is_final()) {
        let scan = tasks.vault.store().scan(state, invocation.now())?;
        open += scan.tasks.len();
        unfit.extend(scan.unfit);
        unfit.extend(scan.tasks.into_iter().filter_map(|task| {
            let why = task.brief.err()?.to_string();
            Some(Unfit { name: task.name.to_string(), state, why })
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
    let stuck = tasks.vault.stuck(invocation.now())?;
    Ok(Fact::Vault {
        folder: tasks.folder.clone(),
        open,
        missing,
        healed,
        reclaimable,
        unknown,
        unfit,
        stuck,
    })
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
