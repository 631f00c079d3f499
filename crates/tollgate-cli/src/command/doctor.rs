//! `tollgate doctor`: how well files are protected here, what is broken, and how to mend it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde_json::json;
use tollgate::commit::Guarantee;
use tollgate::doctor::{Leftovers, leftovers};
use tollgate::error::Fault;
use tollgate::ledger::{Verdict, Wrong};
use tollgate::name::Agent;
use tollgate::probe::{FileSystem, Reach, probe};
use tollgate::recovery::Kind;
use tollgate::settings::{Mode, Settings};
use tollgate::vault::GitStore;
use tollgate::vault::git::{Finding, Probe};
use tollgate::vault::state::State;
use tollgate::vault::store::Unfit;
use tollgate::workspace::{STATE_FOLDER, STATE_VERSION, Workspace, read_settings};

use crate::answer::{Answer, Said, Stop};
use crate::door::{Door, FoundBy};
use crate::hook::checkup::{Checkup, Hooks, checkups};
use crate::host::Trust;
use crate::tasks::{Tasks, has_vault, vault_folder};
use crate::words;

/// Look at the workspace: how well files are protected here, what is broken, and how to mend it
///
/// Tries with real files what the file system can do, heals what a crash has left half done, verifies the ledger, and
/// looks at the settings, the privacy of the state, recovery, reservations and turns. Every finding is `ok`, a `warning` or
/// a `problem`; the exit code is 1 if there is a problem.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate doctor
  tollgate doctor --json | jq '.findings[] | select(.level != \"ok\")'")]
pub(crate) struct Wish {}

/// One thing that was looked at.
#[derive(Debug)]
pub(crate) enum Fact {
    Workspace {
        root: PathBuf,
        found_by: FoundBy,
    },
    Settings {
        settings: Box<Settings>,
        written: bool,
    },
    FileSystem(FileSystem),
    /// The state is on another file system than the workspace.
    OtherFileSystem,
    NoState,
    State {
        version: u32,
    },
    Privacy {
        state: PathBuf,
        mode: u32,
        ours: bool,
    },
    /// Before the state was opened, which heals, and after.
    Leftovers {
        before: Leftovers,
        after: Leftovers,
    },
    Ledger {
        verdict: Box<Verdict>,
        head_file: Option<PathBuf>,
    },
    Recovery {
        entries: usize,
        bytes: u64,
        late: usize,
        room: u64,
    },
    Reservations {
        live: usize,
        void: usize,
    },
    Turns {
        running: usize,
    },
    Vault {
        folder: PathBuf,
        open: usize,
        healed: usize,
        reclaimable: usize,
        /// Agents that have, or had, tasks, and no role.
        unknown: Vec<Agent>,
        unfit: Vec<Unfit>,
    },
    /// What the remote allows, and what was found and healed there.
    Git {
        remote: String,
        branch: String,
        probe: Probe,
        findings: Vec<Finding>,
    },
    Host(Checkup),
    /// The check itself failed.
    Broken {
        check: &'static str,
        fault: Fault,
    },
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Ok,
    Warning,
    Problem,
}

/// A fact, judged and worded.
#[derive(Debug, Serialize)]
pub(crate) struct Checked {
    pub(crate) check: &'static str,
    pub(crate) level: Level,
    pub(crate) message: String,
    pub(crate) mend: Option<String>,
}

impl Fact {
    fn check(&self) -> &'static str {
        match self {
            Self::Workspace { .. } => "workspace",
            Self::Settings { .. } => "settings",
            Self::FileSystem(_) | Self::OtherFileSystem => "file system",
            Self::NoState | Self::State { .. } => "state",
            Self::Privacy { .. } => "privacy",
            Self::Leftovers { .. } => "leftovers",
            Self::Ledger { .. } => "ledger",
            Self::Recovery { .. } => "recovery",
            Self::Reservations { .. } => "reservations",
            Self::Turns { .. } => "turns",
            Self::Vault { .. } => "vault",
            Self::Git { .. } => "git",
            Self::Host(_) => "hooks",
            Self::Broken { check, .. } => check,
        }
    }

    fn level(&self) -> Level {
        let warn_if = |warn: bool| if warn { Level::Warning } else { Level::Ok };
        match self {
            Self::Broken { .. } => Level::Problem,
            Self::OtherFileSystem => Level::Warning,
            Self::Settings { settings, .. } => warn_if(settings.guard.mode != Mode::Enforce),
            Self::FileSystem(found) => {
                warn_if(found.guarantee() != Guarantee::Full || found.reach == Reach::Network)
            }
            Self::Privacy { mode, ours, .. } => warn_if(mode & 0o007 != 0 || !ours),
            Self::Leftovers { after, .. } => warn_if(!after.unknown.is_empty()),
            Self::Ledger { verdict, head_file } => match &verdict.problem {
                // The next append heals it.
                Some(problem) if problem.wrong == Wrong::Torn => Level::Warning,
                Some(_) => Level::Problem,
                None => warn_if(head_file.is_none()),
            },
            Self::Host(Checkup { hooks: Hooks::InPlace { wrong: Some(_), .. }, .. }) => Level::Problem,
            Self::Host(Checkup { hooks: Hooks::InPlace { trust, .. }, .. }) => {
                warn_if(!matches!(trust, Trust::NotNeeded | Trust::Given))
            }
            Self::Host(Checkup { hooks, .. }) => warn_if(matches!(hooks, Hooks::Outdated)),
            Self::Recovery { late, .. } => warn_if(*late > 0),
            Self::Git { probe: Probe::NoClaimRefs(_), .. } => Level::Problem,
            Self::Git { findings, .. } => warn_if(!findings.is_empty()),
            Self::Vault { reclaimable, unfit, .. } => warn_if(*reclaimable > 0 || !unfit.is_empty()),
            Self::Workspace { .. }
            | Self::NoState
            | Self::State { .. }
            | Self::Reservations { .. }
            | Self::Turns { .. } => Level::Ok,
        }
    }
}

pub(crate) fn run(door: &Door, _: &Wish) -> Result<Answer, Stop> {
    let (root, found_by) = door.root()?;
    let mut facts = vec![Fact::Workspace { root: root.clone(), found_by }];
    look(door, &root, &mut facts);
    match checkups(door, &root) {
        Ok(found) => facts.extend(found.into_iter().map(Fact::Host)),
        Err(fault) => facts.push(Fact::Broken { check: "hooks", fault }),
    }
    let checked: Vec<Checked> = facts
        .iter()
        .map(|fact| {
            let (message, mend) = words::finding(door, fact);
            Checked { check: fact.check(), level: fact.level(), message, mend }
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

/// One check that cannot be made does not keep the others from being made.
fn look(door: &Door, root: &Path, facts: &mut Vec<Fact>) {
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
    let stage = state.join("stage");
    let place = if stage.is_dir() { &stage } else { root };
    add("file system", probe(place).map(Fact::FileSystem));
    if !state.join("version").exists() {
        add("state", Ok(Fact::NoState));
        return;
    }
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    if device(&stage).is_some_and(|stage| Some(stage) != device(root)) {
        add("file system", Ok(Fact::OtherFileSystem));
    }
    let before = leftovers(&state);
    // What cannot be opened for its settings alone has been told.
    let workspace = if usable { Some(door.workspace()) } else { None };
    let workspace = match workspace {
        Some(Ok(workspace)) => {
            add("state", Ok(Fact::State { version: STATE_VERSION }));
            // If another process sweeps at this moment, that is as good.
            let _ = workspace.sweep();
            Some(workspace)
        }
        Some(Err(fault)) => {
            add("state", Err(fault));
            None
        }
        None => None,
    };
    add("privacy", privacy(door, &state));
    add("leftovers", before.and_then(|before| Ok(Fact::Leftovers { before, after: leftovers(&state)? })));
    add("ledger", ledger(door, root));
    if let Some(workspace) = &workspace {
        add("recovery", recovery(workspace));
        add("reservations", reservations(door, workspace));
    }
    add("turns", turns(door));
    if let Some(workspace) = &workspace {
        let folder = vault_folder(root, workspace.settings());
        let settings = workspace.settings();
        if has_vault(&folder, settings) {
            match door.open_vault(workspace, &folder) {
                Ok(tasks) => {
                    // First, so that the vault is looked at as the remote has it.
                    if let Some(store) = &tasks.git {
                        add("git", git(store, settings));
                    }
                    add("vault", vault(door, tasks));
                }
                Err(fault) => add("vault", Err(fault)),
            }
        }
    }
}

fn git(store: &GitStore, settings: &Settings) -> Result<Fact, Fault> {
    let (remote, branch) = (settings.vault.remote.clone(), settings.vault.branch.clone());
    let probe = store.probe()?;
    let findings = if probe == Probe::Fine { store.checkup()? } else { Vec::new() };
    Ok(Fact::Git { remote, branch, probe, findings })
}

fn vault(door: &Door, tasks: Tasks) -> Result<Fact, Fault> {
    let healed = tasks.vault.heal()?.len();
    let (mut open, mut unfit) = (0, Vec::new());
    for state in State::ALL.into_iter().filter(|state| !state.is_final()) {
        let scan = tasks.vault.list(state, door.now())?;
        open += scan.tasks.len();
        unfit.extend(scan.unfit);
    }
    let reclaimable = tasks.vault.reclaimable(door.now())?.len();
    let roles = &tasks.vault.terms().roles;
    let agents = tasks.vault.figures()?.1.into_iter().filter_map(|figures| figures.agent_name.parse().ok());
    let unknown = agents.filter(|agent| !roles.knows(agent)).collect();
    Ok(Fact::Vault { folder: tasks.folder, open, healed, reclaimable, unknown, unfit })
}

fn privacy(door: &Door, state: &Path) -> Result<Fact, Fault> {
    let found = fs::symlink_metadata(state).map_err(|source| Fault::Io {
        doing: "look at",
        path: state.to_owned(),
        source,
    })?;
    let uid = door.uid();
    // Root may enter anything; a group that may write is how users share a workspace.
    let ours = found.uid() == uid || uid == 0 || found.mode() & 0o020 != 0;
    Ok(Fact::Privacy { state: state.to_owned(), mode: found.mode() & 0o777, ours })
}

fn ledger(door: &Door, root: &Path) -> Result<Fact, Fault> {
    let verdict = Box::new(door.ledger()?.verify()?);
    Ok(Fact::Ledger { verdict, head_file: door.ledger_head(root)? })
}

fn recovery(workspace: &Workspace) -> Result<Fact, Fault> {
    let kept = workspace.recovery()?;
    Ok(Fact::Recovery {
        entries: kept.len(),
        bytes: kept.iter().map(|kept| kept.size).sum(),
        late: kept.iter().filter(|kept| kept.kind == Kind::Late).count(),
        room: workspace.settings().recovery.max_size.0,
    })
}

fn reservations(door: &Door, workspace: &Workspace) -> Result<Fact, Fault> {
    let reserved = leftovers(&workspace.state_path())?.reservations;
    let limit = workspace.settings().guard.reservation.0;
    let is_void = |since: jiff::Timestamp| door.now().duration_since(since).unsigned_abs() > limit;
    let void = reserved.iter().filter(|reserved| is_void(reserved.since)).count();
    Ok(Fact::Reservations { live: reserved.len() - void, void })
}

fn turns(door: &Door) -> Result<Fact, Fault> {
    let mut running = 0;
    for turns in door.existing_turns()? {
        running += turns.list()?.len();
    }
    Ok(Fact::Turns { running })
}
