//! The doctor's findings: what each fact means, and how to fix what is wrong.

use std::path::Path;

use tollgate::commit::Guarantee;
use tollgate::error::Fault;
use tollgate::ledger::Verification;
use tollgate::settings::{Durability, GuardMode, Settings, Unread};
use tollgate::vault::checkup::Level;
use tollgate::vault::state::State;
use tollgate::visible::plain;
use tollgate::workspace::{STATE_FOLDER, STATE_VERSION};
use tollgate_guard::doctor::Leftovers;
use tollgate_guard::probe::{FileSystem, Reach};

use super::change::guarantee;
use super::error::{fault_words, hint};
use super::git::store_words;
use super::init::found_by_words;
use super::ledger::{problem, start_new};
use super::run::run_level;
use super::status::missing_vault_problem;
use super::task::vault_words;
use super::text::{Viewpoint, ago, count, counted, quoted, shown, size};
use super::trust::{commands_words, outside_words};
use crate::host::Trust;
use crate::report::diagnosis::{Checked, Fact, HookState, HostCheckup, Registration};
use crate::report::status::StatusProblem;

/// How to fix a setting that disables hooks or a server.
const DELETE_SETTING: &str = "delete that setting, unless you want it; agents cannot do it for you";

/// All findings, one after the other, then a summary.
pub(crate) fn diagnosis(checked: &[Checked]) -> String {
    let mut words = String::new();
    for found in checked {
        let level = match found.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Problem => "problem",
        };
        words += &format!("{level:<8} {:<12} {}\n", found.check, found.message.replace('\n', "\n  "));
        if let Some(fix) = &found.fix {
            words += &format!("  hint: {fix}\n");
        }
    }
    let number = |level| checked.iter().filter(|found| found.level == level).count();
    words
        + &match (number(Level::Problem), number(Level::Warning)) {
            (0, 0) => "no problems".to_owned(),
            (0, warnings) => format!("no problems, {}", count(warnings, "warning")),
            (problems, _) => format!("{} to fix", count(problems, "problem")),
        }
}

fn host_words(view: &Viewpoint, checkup: &HostCheckup) -> (String, Option<String>) {
    let HostCheckup { host, program, found, has_server, hooks } = checkup;
    let program = if found.on_path { String::new() } else { format!("; `{program}` is not on PATH") };
    let set_up = format!("run `tollgate init --host {host}`");
    match hooks {
        HookState::None if *has_server => (
            format!(
                "`{host}` has no hooks: tollgate guards what its agent writes with the tools of the MCP server"
            ),
            None,
        ),
        HookState::None => (
            format!("`{host}` is not guarded: no hooks installed{program}"),
            Some(format!("{set_up} to install them")),
        ),
        HookState::Through(other) => {
            (format!("`{host}` is guarded by the hooks of `{other}`, which it calls too{program}"), None)
        }
        HookState::ThroughOff { other, by } => (
            format!(
                "`{host}` is not guarded: it calls the hooks of `{other}` too, but they are {}{program}",
                plain(by)
            ),
            Some(DELETE_SETTING.into()),
        ),
        HookState::Outdated => (
            format!("`{host}`: hooks installed by another version of tollgate{program}"),
            Some(format!("{set_up} to update them")),
        ),
        HookState::InPlace { wrong: Some(wrong), .. } => (
            format!("`{host}`: hooks installed, but not responding correctly: {}", plain(wrong)),
            Some(format!(
                "check that `tollgate` is on the PATH of `{host}` and is this version; {set_up} to install the \
                 hooks again"
            )),
        ),
        HookState::InPlace { trust, called, level, .. } => {
            let called = match called.and_then(|time| jiff::Timestamp::try_from(time).ok()) {
                Some(time) => format!("last used {}", ago(view.now, time)),
                None => "not used yet".into(),
            };
            let (state, fix) = match trust {
                Trust::NotNeeded => ("installed and responding".to_owned(), None),
                Trust::Given => ("installed, approved and responding".to_owned(), None),
                Trust::Missing(how) => {
                    ("installed and responding, but not approved yet".to_owned(), Some((*how).to_owned()))
                }
                Trust::SwitchedOff(by) => {
                    (format!("installed and responding, but {}", plain(by)), Some(DELETE_SETTING.into()))
                }
            };
            let level = match level {
                Some(level) => {
                    format!("; shell commands run through `tollgate run`, level `{}`", plain(level))
                }
                None => String::new(),
            };
            (format!("`{host}`: hooks {state}; {called}{level}{program}"), fix)
        }
    }
}

/// What the doctor found, and how to fix it.
pub(crate) fn finding(view: &Viewpoint, fact: &Fact) -> (String, Option<String>) {
    match fact {
        Fact::Workspace { root, found_by } => {
            (format!("`{}` ({})", plain(&root.to_string_lossy()), found_by_words(*found_by)), None)
        }
        Fact::Ignored { root, owner } => (
            format!("ignored `{}`: its `.tollgate` belongs to another user, with the id {owner}", plain(&root.to_string_lossy())),
            Some(format!("if you trust that user, run `tollgate trust -C {}`", quoted(root))),
        ),
        Fact::Settings { settings, written } => settings_words(settings, *written),
        Fact::Commands { commands, trusted } => commands_words(commands, *trusted),
        Fact::Outside { folder, trusted } => outside_words(view, folder, *trusted),
        Fact::Notify { trusted: true } => ("you trust whom the configuration tells when something needs a person".into(), None),
        Fact::Notify { trusted: false } => (
            "nobody is told when something needs a person: you have not trusted the command or the webhook in `[notify]`".into(),
            Some("read the configuration, then run `tollgate trust`".into()),
        ),
        Fact::FileSystem(found) => file_system_words(found),
        Fact::OtherFileSystem => (
            "`.tollgate` is on another file system than the workspace, so late writes by other programs are not \
             detected"
                .into(),
            Some("keep `.tollgate` on the file system of the workspace".into()),
        ),
        Fact::NoState => {
            ("no guarded writes here yet, so the levels of `tollgate run` were tried in a temporary folder".into(), None)
        }
        Fact::State { version } => (format!("format {version}, readable"), None),
        Fact::Privacy { mode, ours: true, .. } if mode & 0o007 == 0 => {
            (format!("private (mode {mode:o})"), None)
        }
        Fact::Privacy { state, mode, ours: true } => (
            format!("other users can open `.tollgate` (mode {mode:o}), which contains names and earlier contents of your files"),
            Some(format!("make it private: `chmod o-rwx {}`", quoted(state))),
        ),
        Fact::Privacy { ours: false, .. } => (
            "`.tollgate` belongs to another user, so you may lack permissions for parts of it".into(),
            Some(
                "share it through a group that may write to the workspace, or give it to the workspace's owner"
                    .into(),
            ),
        ),
        Fact::Leftovers { before, after } => leftover_words(view, before, after),
        Fact::Ledger { verdict, head_file } => ledger_words(view, verdict, head_file.as_deref()),
        Fact::Recovery { entries, bytes, late, room } => {
            let used = format!("{}, {} of {}", counted(*entries, "entry", "entries"), size(*bytes), size(*room));
            match late {
                0 => (used, None),
                late => (
                    format!("{used}; {} by other programs", count(*late, "late write")),
                    Some("list them with `tollgate recovery list` and restore what you need".into()),
                ),
            }
        }
        Fact::Reservations { live, void } => (
            match (live, void) {
                (0, 0) => "none".into(),
                (live, 0) => format!("{live} active"),
                (live, void) => format!(
                    "{live} active, {void} expired (they block nobody; the next write of their file removes them)"
                ),
            },
            None,
        ),
        Fact::Turns { running } => (format!("{running} running"), None),
        Fact::RunLevel { level, why_not, reached } => (run_level(*level, why_not.as_deref(), *reached), None),
        Fact::Worktree { shared_with: Some(main), has_vault } => {
            let copy = if *has_vault { "; the copy of the vault in this worktree is not used" } else { "" };
            (format!("git worktree: its tasks are those of `{}`{copy}", plain(&main.to_string_lossy())), None)
        }
        Fact::Worktree { has_vault: true, .. } => (
            "this git worktree has a vault of its own, so agents in other worktrees can claim the same tasks".into(),
            Some("to share one vault, remove `tree` under `[vault]` from `.tollgate/config.toml`".into()),
        ),
        Fact::Worktree { .. } => ("git worktree; no vault".into(), None),
        Fact::Worktrees { shared, apart } => {
            let mut words = format!("{} of this repository with the same tasks", count(*shared, "git worktree"));
            if let Some(first) = apart.first() {
                let whose = if apart.len() == 1 { "its" } else { "their" };
                let apart = count(apart.len(), "git worktree");
                words += &format!("; {apart} with tasks of {whose} own, such as `{}`", plain(&first.to_string_lossy()));
            }
            let fix = "agents there can claim the same tasks again: run `tollgate doctor` there to see why the vault is not shared";
            (words, (!apart.is_empty()).then(|| fix.to_owned()))
        }
        Fact::Vault { missing, .. } => {
            let (words, fix) = vault_words(view, fact);
            (words + &missing_folders(missing), fix)
        }
        Fact::NoVault { folder } => {
            let StatusProblem { problem, hint } = missing_vault_problem(view, folder);
            (problem, Some(hint))
        }
        Fact::Unapproved { action, agent } => (
            format!(
                "`{}` is sensitive for `{agent}`, but agents without an `[agent.NAME]` execute it without approval",
                plain(action)
            ),
            Some("set `agents = \"listed\"` under `[vault]`, so that only agents with a table claim tasks".into()),
        ),
        Fact::Breakers(stopped) => (
            plain(&stopped.join("; ")),
            Some(
                "look at the output in the tasks' files, fix the command, then start `tollgate work` again or wait for \
                 its next try"
                    .into(),
            ),
        ),
        Fact::Store { findings, .. } => store_words(findings),
        Fact::Host(checkup) => host_words(view, checkup),
        Fact::Server { host, file, state } => {
            let place = format!("`{host}`: MCP server registered in `{}`", plain(&file.to_string_lossy()));
            match state {
                Registration::Responding => (format!("{place} and responding"), None),
                Registration::NotStarted(program) => {
                    (format!("{place}; not tested, because it is `{}` and not `tollgate`", plain(program)), None)
                }
                Registration::SwitchedOff(by) => {
                    (format!("{place}, but {}", plain(by)), Some(DELETE_SETTING.into()))
                }
                Registration::Disabled => (format!("{place}, but disabled there"), Some("enable it".into())),
                Registration::Wrong(why) => (
                    format!("{place}, but it does not work: {}", plain(why)),
                    Some(format!(
                        "fix the entry `tollgate` there, or run `tollgate init --mcp {host} --remove`, then `tollgate init \
                         --mcp {host}`"
                    )),
                ),
            }
        }
        Fact::Broken { fault, .. } => (fault_words(view, fault), Some(fix(fault))),
    }
}

fn missing_folders(missing: &[State]) -> String {
    let names: Vec<String> = missing.iter().map(|state| format!("`{state}`")).collect();
    match names.len() {
        0 => String::new(),
        1 => format!("; it has no folder {}, which tollgate creates when it is needed", names[0]),
        _ => format!("; it has no folders {}, which tollgate creates when they are needed", names.join(", ")),
    }
}

fn settings_words(settings: &Settings, written: bool) -> (String, Option<String>) {
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
    match guard.mode {
        GuardMode::Enforce => (words, None),
        GuardMode::Observe => (
            format!("{words}; stale writes are recorded but not refused"),
            Some("set `mode = \"enforce\"` to refuse them".into()),
        ),
        GuardMode::Off => (
            format!("{words}; writes are not checked, so updates can be lost"),
            Some("set `mode = \"enforce\"`".into()),
        ),
    }
}

fn file_system_words(found: &FileSystem) -> (String, Option<String>) {
    let can = |what: &str, can: bool| format!("{what} {}", if can { "yes" } else { "no" });
    let abilities = [
        can("lease", found.lease),
        can("exchange", found.exchange),
        can("no-replace", found.no_replace),
        can("links", found.links),
    ]
    .join(", ");
    let name = found.name.unwrap_or("unknown type");
    let level = match found.guarantee() {
        Guarantee::Full => "full protection: saves by other programs are never overwritten",
        weaker => guarantee(weaker).unwrap_or_default(),
    };
    let words = format!("{name} ({abilities}), {level}");
    match (found.guarantee(), found.reach) {
        (_, Reach::Network) => (
            format!("{words}; writes on other machines are not detected"),
            Some("run all agents of this workspace on one machine, or keep it on a local disk".into()),
        ),
        (Guarantee::Full, _) => (words, None),
        _ => (words, Some("for full protection keep the workspace on ext4, xfs, btrfs or tmpfs".into())),
    }
}

fn leftover_words(view: &Viewpoint, before: &Leftovers, after: &Leftovers) -> (String, Option<String>) {
    let was = before.journals.len() + before.unfinished;
    let is = after.journals.len() + after.unfinished;
    let mut words = match (was, is) {
        (0, 0) => "no interrupted writes".to_owned(),
        (was, 0) => format!("recovered {}", count(was, "interrupted write")),
        (_, is) => format!("{} in progress", count(is, "change")),
    };
    if after.staged > 0 {
        words += &format!("; {} awaiting the late-write check", count(after.staged, "replaced file"));
    }
    match after.unknown.first() {
        None => (words, None),
        Some(first) => (
            format!(
                "{words}; {} in `.tollgate/stage` not created by tollgate",
                count(after.unknown.len(), "file")
            ),
            Some(format!("move it elsewhere, because tollgate never touches it: `{}`", shown(view, first))),
        ),
    }
}

fn ledger_words(
    view: &Viewpoint,
    verdict: &Verification,
    head_file: Option<&Path>,
) -> (String, Option<String>) {
    if let Some(found) = &verdict.problem {
        let (fact, hint) = problem(view, found, head_file);
        return (fact, Some(hint));
    }
    let lines = count(usize::try_from(verdict.lines).unwrap_or(usize::MAX), "line");
    match head_file {
        Some(_) => (format!("{lines}, valid"), None),
        None => (
            format!(
                "{lines}, valid; a truncated end cannot be detected, because you have no folder for state"
            ),
            Some("set `HOME` or `XDG_STATE_HOME`".into()),
        ),
    }
}

/// How to fix a fault. Unlike [`hint`], it never says to run the doctor.
fn fix(fault: &Fault) -> String {
    let (Fault::Damaged { path, .. } | Fault::Io { path, .. }) = fault else { return hint(fault) };
    let file = quoted(path);
    let mut aside = path.as_os_str().to_owned();
    aside.push(".damaged");
    let move_away = format!("mv {file} {}", quoted(Path::new(&aside)));
    let within = |folder: &str| path.parent().is_some_and(|parent| parent.ends_with(folder));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match fault {
        Fault::Damaged { .. } if within("journal") => format!(
            "move it away: `{move_away}`; tollgate then checks each file of that change on its own and keeps all \
             saved bytes"
        ),
        Fault::Damaged { .. } if name == "version" => {
            format!("if only this file is wrong, write it again: `echo {STATE_VERSION} > {file}`")
        }
        Fault::Damaged { .. } if name.starts_with("ledger") => format!(
            "set the ledger aside and start a new one: `{}`; then run `tollgate ledger verify`, which says how to \
             accept that",
            start_new(path)
        ),
        // The file is not damaged: other users can write to its folder, and could use it against the owner.
        Fault::Damaged { .. } if path.is_dir() => {
            format!("if the folder is yours, make it private: `chmod 700 {file}`; otherwise delete it")
        }
        Fault::Damaged { .. } => format!("move it away: `{move_away}`"),
        Fault::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound && within(STATE_FOLDER) => {
            let version = quoted(&path.with_file_name("version"));
            format!(
                "part of the state is missing: run `rm {version}`; the next guarded write restores the rest"
            )
        }
        fault => hint(fault),
    }
}
