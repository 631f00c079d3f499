//! The status of a workspace.

use std::path::Path;

use tollgate::error::Fault;
use tollgate::ledger::Wrong;
use tollgate::settings::GuardMode;
use tollgate::visible::plain;

use super::error::{fault_words, hint};
use super::text::{Viewpoint, ago, count, shown};
use crate::report::status::{Hooks, HostStatus, StatusProblem, WorkspaceStatus};

pub(crate) fn status(view: &Viewpoint, status: &WorkspaceStatus) -> String {
    let mut lines = Vec::new();
    let mut line = |label: &str, text: String| lines.push(format!("{label:<12} {text}"));
    let mode = match (status.set_up, status.mode) {
        (false, _) => "not set up",
        (true, _) if !status.has_writes => "nothing was written here through tollgate yet",
        (true, GuardMode::Enforce) => "guarded",
        (true, GuardMode::Observe) => "observed, not guarded",
        (true, GuardMode::Off) => "not guarded",
    };
    line("workspace", format!("`{}`, {mode}", plain(&status.workspace)));
    if status.hosts.is_empty() {
        line("programs", "no agent program found".into());
    }
    for host in &status.hosts {
        line(host.host, host_words(view, host));
    }
    let agents = status
        .agents
        .iter()
        .map(|agent| format!("`{}`, started {}", agent.agent, ago(view.now, agent.since)));
    line("agents", some(agents.collect(), "none running"));
    let claims = status.claims.iter().map(|claim| match &claim.agent {
        Some(agent) => format!("`{}` by `{agent}`", plain(&claim.task)),
        None => format!("`{}`", plain(&claim.task)),
    });
    line("claims", some(claims.collect(), "none"));
    let waiting = status.pending_approvals.iter().map(|task| format!("`{}`", plain(&task.task)));
    line("approvals", some(waiting.collect(), "none pending"));
    let more = if status.refusals_today.at_least { "at least " } else { "" };
    line("refusals", format!("{more}{} today", status.refusals_today.count));
    for StatusProblem { problem, hint } in &status.problems {
        lines.push(format!("problem: {problem}\n  hint: {hint}"));
    }
    let approvals = status.pending_approvals.len();
    if approvals > 0 {
        let waits =
            format!("{} a person's decision", if approvals == 1 { "task awaits" } else { "tasks await" });
        lines.push(format!(
            "{approvals} {waits}\n  hint: run `tollgate task show TASK`, then `tollgate task approve TASK`"
        ));
    }
    if !status.set_up {
        lines.push("hint: run `tollgate init` to set up this folder".into());
    }
    lines.push(match (status.needs_person, status.problems.len()) {
        (false, _) => "nothing needs a person".into(),
        (true, 0) => "a person is needed".into(),
        (true, problems) => format!("a person is needed: {}", count(problems, "problem")),
    });
    lines.join("\n")
}

/// The most names in one line.
const NAMES: usize = 5;

fn some(names: Vec<String>, none: &str) -> String {
    let rest = names.len().saturating_sub(NAMES);
    match (names.len(), rest) {
        (0, _) => none.to_owned(),
        (number, 0) => format!("{number}: {}", names.join("; ")),
        (number, rest) => format!("{number}: {} and {rest} more", names[..NAMES].join("; ")),
    }
}

fn host_words(view: &Viewpoint, host: &HostStatus) -> String {
    let hooks = match host.hooks {
        Hooks::Installed => "hooks installed".to_owned(),
        Hooks::Through(other) => format!("guarded by the hooks of `{other}`"),
        Hooks::NotApproved => "hooks installed, but disabled or not approved".to_owned(),
        Hooks::Outdated => "hooks installed by another version of tollgate".to_owned(),
        Hooks::Broken => "its configuration cannot be read".to_owned(),
        Hooks::None if host.mcp => "no hooks".to_owned(),
        Hooks::None => "not guarded".to_owned(),
    };
    let mcp = if host.mcp { ", MCP server registered" } else { "" };
    let seen = match host.last_seen {
        Some(time) => format!(", last seen {}", ago(view.now, time)),
        None if host.hooks == Hooks::Installed => ", not seen yet".to_owned(),
        None => String::new(),
    };
    format!("{hooks}{mcp}{seen}")
}

pub(crate) fn host_problem(host: &HostStatus) -> StatusProblem {
    let name = host.host;
    let (problem, hint) = match host.hooks {
        Hooks::Outdated => (
            format!("the hooks of `{name}` were installed by another version of tollgate"),
            format!("run `tollgate init --host {name}` to update them"),
        ),
        Hooks::NotApproved => (
            format!("`{name}` does not call its hooks, because they are disabled or not approved"),
            "run `tollgate doctor`, which says what to do".to_owned(),
        ),
        Hooks::Broken => (
            format!("the configuration of `{name}` cannot be read"),
            "run `tollgate doctor`, which says what is wrong".to_owned(),
        ),
        Hooks::Installed | Hooks::Through(_) | Hooks::None => (
            format!("`{name}` is not guarded"),
            format!("run `tollgate init --host {name}` to install its hooks"),
        ),
    };
    StatusProblem { problem, hint }
}

pub(crate) fn mode_problem(mode: GuardMode) -> StatusProblem {
    let problem = match mode {
        GuardMode::Off => "the guard is switched off: `mode = \"off\"`",
        _ => "the guard only observes, and refuses nothing: `mode = \"observe\"`",
    };
    let hint = "set `mode = \"enforce\"` under `[guard]` in `.tollgate/config.toml`, or delete the line";
    StatusProblem { problem: problem.to_owned(), hint: hint.to_owned() }
}

pub(crate) fn breaker_problem(sentence: String) -> StatusProblem {
    let hint = "fix the command of the worker; it tries one task again by itself".to_owned();
    StatusProblem { problem: plain(&sentence), hint }
}

/// The configuration names a vault that is not there.
pub(crate) fn missing_vault_problem(view: &Viewpoint, folder: &Path) -> StatusProblem {
    let problem = format!("the configuration names `{}`, which is not a vault", shown(view, folder));
    let hint =
        "restore the folder, run `tollgate init --vault` to create it, or delete `dir` under `[vault]`"
            .to_owned();
    StatusProblem { problem, hint }
}

/// The end of the ledger is not the one that was last known.
pub(crate) fn ledger_problem(wrong: Wrong) -> StatusProblem {
    let problem = match wrong {
        Wrong::CutTail => "the end of the ledger was cut off, or the ledger was deleted",
        _ => "the last known line of the ledger was edited",
    };
    let hint = "run `tollgate ledger verify`, which says what is wrong and what to do";
    StatusProblem { problem: problem.to_owned(), hint: hint.to_owned() }
}

/// The tasks are those of the last time that the remote could be reached.
pub(crate) fn old_tasks_problem(view: &Viewpoint, fault: &Fault) -> StatusProblem {
    let StatusProblem { problem, hint } = fault_problem(view, fault);
    StatusProblem { problem: format!("{problem}; the claims and approvals are the last known ones"), hint }
}

pub(crate) fn fault_problem(view: &Viewpoint, fault: &Fault) -> StatusProblem {
    StatusProblem { problem: fault_words(view, fault), hint: plain(&hint(fault)) }
}
