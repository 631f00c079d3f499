//! `tollgate doctor`: how well files are protected here, what is broken, and how to fix it.
//!
//! Each check returns its finding, already in words. If a check fails, the others are still made.

mod state;
mod vault;

use std::path::Path;

use clap::Args;
use serde_json::json;
use tollgate::error::{At, Fault};
use tollgate::gate::Gate;
use tollgate::settings::{Durability, GuardMode, Settings, Unread};
use tollgate::tasks::VaultHome;
use tollgate::vault::checkup::{Finding, Level};
use tollgate::visible::plain;
use tollgate::workspace::{Options, STATE_FOLDER, STATE_VERSION, Workspace, read_settings};
use tollgate_guard::doctor::leftovers;
use tollgate_run::{Availability, RunLevel, available};

use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::hook::checkup::{Check, checkups};
use crate::host;
use crate::invocation::Invocation;
use crate::progress::Progress;
use crate::surroundings::Surroundings;
use crate::trust::{Commands, Configured, TrustedNotify};
use crate::words::{self, count, quoted, shown};

/// What to do about something in the configuration that the user has not agreed to.
const TRUST_IT: &str = "read the configuration, then run `tollgate trust`";

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
    let place = plain(&root.to_string_lossy());
    let mut checks =
        vec![("workspace", Ok(Finding::ok(format!("`{place}` ({})", words::found_by(found_by)))))];
    for (root, owner) in invocation.ignored() {
        let place = plain(&root.to_string_lossy());
        let what = format!("ignored `{place}`: its `.tollgate` belongs to another user, with the id {owner}");
        let fix = format!("if you trust that user, run `tollgate trust -C {}`", quoted(root));
        checks.push(("workspace", Ok(Finding::warning(what).fix(fix))));
    }
    look(invocation, &root, &mut checks);
    checks.extend(checkups(invocation, &root));
    let view = invocation.viewpoint();
    let failed = |fault: Fault| Finding::problem(words::fault_words(&view, &fault)).fix(state::fix(&fault));
    let findings: Vec<(&str, Finding)> =
        checks.into_iter().map(|(check, found)| (check, found.unwrap_or_else(failed))).collect();
    let healthy = findings.iter().all(|(_, finding)| finding.level != Level::Problem);
    let as_json = |(check, Finding { level, what, fix }): &(&str, Finding)| json!({"check": check, "level": level, "message": what, "hint": fix});
    let said = Reply::new(
        in_words(&findings),
        json!({
            "workspace": root.to_string_lossy(),
            "healthy": healthy,
            "findings": findings.iter().map(as_json).collect::<Vec<_>>(),
        }),
    );
    Ok(if healthy { Answer::Done(said) } else { Answer::NotValid(said) })
}

/// All findings, one after the other, then a summary.
fn in_words(findings: &[(&str, Finding)]) -> String {
    let mut words = String::new();
    for (check, Finding { level, what, fix }) in findings {
        let level = match level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Problem => "problem",
        };
        words += &format!("{level:<8} {check:<12} {}\n", what.replace('\n', "\n  "));
        if let Some(fix) = fix {
            words += &format!("  hint: {fix}\n");
        }
    }
    let number = |level| findings.iter().filter(|(_, finding)| finding.level == level).count();
    words
        + &match (number(Level::Problem), number(Level::Warning)) {
            (0, 0) => "no problems".to_owned(),
            (0, warnings) => format!("no problems, {}", count(warnings, "warning")),
            (problems, _) => format!("{} to fix", count(problems, "problem")),
        }
}

/// Makes all checks but those of agent programs.
fn look(invocation: &Invocation, root: &Path, checks: &mut Vec<Check>) {
    let view = invocation.viewpoint();
    let folder = root.join(STATE_FOLDER);
    let config = folder.join("config.toml");
    let settings = read_settings(&config);
    let usable = settings.is_ok();
    checks.push(("settings", settings.map(|settings| of_settings(&settings, config.exists()))));
    let worktree = vault::worktree(root, read_settings(&config).unwrap_or_default());
    checks.extend(worktree.map(|found| ("worktree", found)));
    trusted(invocation, root, checks);
    checks.push(("file system", state::file_system(root, &folder)));
    let home = VaultHome::at(root.to_owned()).and_then(|own| VaultHome::of(root, &own.settings));
    let unapproved = home.as_ref().ok().and_then(vault::unapproved);
    checks.extend(unapproved.map(|finding| ("roles", Ok(finding))));
    // What a remote or an engine says about the tasks can be known only through a workspace with a state.
    let in_store = home.as_ref().is_ok_and(|home| home.settings.vault.is_shared());
    if !folder.join("version").exists() && !in_store {
        let nothing =
            "no guarded writes here yet, so the levels of `tollgate run` were tried in a temporary folder";
        checks.push(("state", Ok(Finding::ok(nothing))));
        if folder.exists() {
            checks.push(("privacy", state::privacy(invocation, &folder)));
        }
        checks.push(("ledger", state::ledger(invocation, root)));
        checks.extend(levels(levels_without_state()));
        checks.push(("turns", state::turns(invocation)));
        // Faults here come from the settings or the worktree, and are already reported.
        let found = home.ok().and_then(|home| vault::without_state(&view, &home).transpose());
        checks.extend(found.map(|found| ("vault", found)));
        return;
    }
    let missing = home.as_ref().map(vault::missing_folders).unwrap_or_default();
    checks.extend(state::other_file_system(root, &folder).map(|finding| ("file system", Ok(finding))));
    let before = leftovers(&folder);
    // Without usable settings it cannot be opened, and that is already reported.
    let workspace = if usable { Some(invocation.workspace()) } else { None };
    let workspace = match workspace {
        Some(Ok(workspace)) => {
            checks.push(("state", Ok(Finding::ok(format!("format {STATE_VERSION}, readable")))));
            // If another process is sweeping now, that is just as good.
            let _ = workspace.sweep();
            Some(workspace)
        }
        Some(Err(fault)) => {
            checks.push(("state", Err(fault)));
            None
        }
        None => None,
    };
    checks.push(("privacy", state::privacy(invocation, &folder)));
    let left = before.and_then(|before| Ok(state::left(&view, &before, &leftovers(&folder)?)));
    checks.push(("leftovers", left));
    checks.push(("ledger", state::ledger(invocation, root)));
    if let Some(workspace) = &workspace {
        checks.extend(levels(available(&Gate::new(workspace.clone()))));
        checks.push(("recovery", state::recovery(workspace)));
        checks.push(("reservations", state::reservations(invocation, workspace)));
    }
    checks.push(("turns", state::turns(invocation)));
    match workspace.as_ref().map(|workspace| invocation.tasks_of(workspace)) {
        Some(Ok(Some(tasks))) => checks.extend(vault::with_state(invocation, &tasks, &missing)),
        Some(Ok(None)) => {
            let found = home.ok().and_then(|home| vault::without_state(&view, &home).transpose());
            checks.extend(found.map(|found| ("vault", found)));
        }
        Some(Err(fault)) => checks.push(("vault", Err(fault))),
        None => {}
    }
}

fn of_settings(settings: &Settings, written: bool) -> Finding {
    let guard = &settings.guard;
    let mode = match guard.mode {
        GuardMode::Enforce => "enforce",
        GuardMode::Observe => "observe",
        GuardMode::Off => "off",
    };
    let unread = match guard.unread {
        Unread::Allow => "allow",
        Unread::Known => "known",
        Unread::Refuse => "refuse",
    };
    let durability = match guard.durability {
        Durability::Durable => "durable",
        Durability::Fast => "fast",
    };
    let from = if written { "`.tollgate/config.toml`" } else { "defaults; no `.tollgate/config.toml`" };
    let words = format!("mode {mode}, unread {unread}, durability {durability} ({from})");
    let unknown = settings.run.parse.iter().find(|name| host::named(name).is_none());
    match guard.mode {
        GuardMode::Enforce => match unknown {
            None => Finding::ok(words),
            Some(name) => Finding::warning(format!(
                "{words}; `[run] parse` names `{}`, which is not an agent program",
                plain(name)
            ))
            .fix(format!("use these names: {}", host::names().join(", "))),
        },
        GuardMode::Observe => Finding::warning(format!("{words}; stale writes are recorded but not refused"))
            .fix("set `mode = \"enforce\"` to refuse them"),
        GuardMode::Off => {
            Finding::warning(format!("{words}; writes are not checked, so updates can be lost"))
                .fix("set `mode = \"enforce\"`")
        }
    }
}

/// What the configuration has that needs the user's trust: commands, folders outside the workspace, whom to tell.
fn trusted(invocation: &Invocation, root: &Path, checks: &mut Vec<Check>) {
    let configured = match Configured::read(root) {
        Ok(configured) => configured,
        Err(fault) => return checks.push(("commands", Err(fault))),
    };
    if !configured.commands.is_empty() {
        let trusted = invocation.trust().trusts(root, &configured);
        checks.push(("commands", Ok(of_commands(&configured.commands, trusted))));
    }
    for folder in &configured.outside {
        let path = shown(&invocation.viewpoint(), &folder.path);
        let what = words::held(folder.holds);
        let finding = match invocation.trust().trusts_folder(root, &folder.path) {
            true => {
                Finding::ok(format!("you trust the folder for {what} outside the workspace, `{path}`"))
            }
            false => Finding::warning(format!(
                "the folder for {what}, `{path}`, is outside the workspace and not used: you have not trusted it"
            ))
            .fix(TRUST_IT),
        };
        checks.push(("folder", Ok(finding)));
    }
    if configured.notify.is_set() {
        let finding = |notify| {
            match notify {
            TrustedNotify::Untrusted => Finding::warning(
                "nobody is told when something needs a person: you have not trusted the command or the webhook in `[notify]`",
            )
            .fix(TRUST_IT),
            _ => Finding::ok("you trust whom the configuration tells when something needs a person"),
        }
        };
        checks.push(("notify", invocation.trust().notify(root).map(finding)));
    }
}

fn of_commands(commands: &Commands, trusted: bool) -> Finding {
    let names: Vec<_> = commands.keys().map(|extension| format!("`*.{}`", plain(extension))).collect();
    let names = names.join(", ");
    if trusted {
        return Finding::ok(format!("you trust the formatters for {names} in the configuration"));
    }
    Finding::warning(format!(
        "the formatters for {names} in the configuration do not run: you have not trusted them"
    ))
    .fix(TRUST_IT)
}

/// One finding for each level of `tollgate run`.
fn levels(levels: Result<Vec<Availability>, Fault>) -> Vec<Check> {
    let levels = match levels {
        Ok(levels) => levels,
        Err(fault) => return vec![("run", Err(fault))],
    };
    let reached = levels.iter().find(|found| found.why_not.is_none()).map(|found| found.level);
    let finding = |Availability { level, why_not }: &Availability| {
        let word = level.word();
        if let Some(why) = why_not {
            return Finding::warning(format!("level `{word}` is not possible here: {}", plain(why)));
        }
        let what = match level {
            RunLevel::Transaction => "all changes of a command are made when it ends, or none",
            RunLevel::Gate => "a system call that would overwrite a change that the agent has not seen fails",
            RunLevel::Observe => "a command is only executed, without a guard",
        };
        Finding::ok(match level {
            level if Some(*level) == reached => {
                format!("`tollgate run` reaches the level `{word}`: {what}")
            }
            RunLevel::Gate => {
                format!("level `{word}` is possible, for commands that keep running: {what}")
            }
            _ => format!("level `{word}` is possible: {what}"),
        })
    };
    levels.iter().map(|level| ("run", Ok(finding(level)))).collect()
}

/// The levels in a temporary workspace: to try them needs a state, and the doctor makes none here.
fn levels_without_state() -> Result<Vec<Availability>, Fault> {
    let place = Surroundings::temporary();
    let folder = tempfile::Builder::new().prefix("tollgate-levels-").tempdir_in(&place);
    let folder = folder.at("make a folder in", &place)?;
    available(&Gate::new(Workspace::open(folder.path(), Options::default())?))
}
