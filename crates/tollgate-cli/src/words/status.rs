//! The status of a workspace.

use std::path::Path;

use tollgate::overlap::{Overlap, Worker};
use tollgate::settings::{GuardMode, ShellCommands};
use tollgate::unfinished_list::{ChangeSize, ListedFile};
use tollgate::visible::plain;

use super::text::{Viewpoint, ago, count, counted, shown, size};
use crate::report::status::{AgentFiles, Hooks, HostStatus, StatusProblem, UnfinishedCount, WorkspaceStatus};

pub(crate) fn status(view: &Viewpoint, status: &WorkspaceStatus) -> String {
    let mut lines = Vec::new();
    let mut line = |label: &str, text: String| lines.push(format!("{label:<12} {text}"));
    let mode = match (status.set_up, status.mode) {
        (false, _) => "not set up",
        (true, _) if !status.has_writes => "nothing was written here through tollgate yet",
        (true, GuardMode::Enforce) if status.hosts.iter().any(|host| host.guarded) => "guarded",
        (true, GuardMode::Enforce) => "guarded, but no agent program has hooks here",
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
    line("unfinished", unfinished(&status.unfinished));
    if !status.overlaps.is_empty() {
        line("overlaps", some(status.overlaps.iter().map(overlap).collect(), ""));
    }
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

/// Whose unfinished files there are: `3 files: 2 by `blue`; 1 by people or other programs`.
fn unfinished(count: &UnfinishedCount) -> String {
    let (agents, people): (Vec<_>, Vec<_>) = count.agents.iter().partition(|of| of.agent.is_some());
    let rest = agents.len().saturating_sub(NAMES);
    let mut parts: Vec<String> = agents.iter().take(NAMES).map(|of| by(of)).collect();
    if rest > 0 {
        let files = agents[NAMES..].iter().map(|of| of.files).sum::<usize>();
        parts.push(format!("{files} by {}", counted(rest, "other agent", "other agents")));
    }
    parts.extend(people.iter().map(|of| by(of)));
    match count.files {
        0 => "no files".to_owned(),
        files => format!("{}: {}", counted(files, "file", "files"), parts.join("; ")),
    }
}

/// Who works on a file: `` `src/a.rs` by `blue` (lines 3 to 8) and `red` ``.
fn overlap(Overlap { path, workers }: &Overlap) -> String {
    let worker = |worker: &Worker| {
        let lines = match worker.lines {
            Some((first, last)) if first == last => format!(" (line {first})"),
            Some((first, last)) => format!(" (lines {first} to {last})"),
            None if worker.changed => String::new(),
            None => " (has read it)".to_owned(),
        };
        let tree = worker.tree.as_ref().map(|tree| format!(" in `{}`", plain(&tree.to_string_lossy())));
        format!("`{}`{lines}{}", worker.agent, tree.unwrap_or_default())
    };
    let workers: Vec<String> = workers.iter().take(NAMES).map(worker).collect();
    format!("`{}` by {}", plain(&path.to_string_lossy()), workers.join(" and "))
}

fn by(of: &AgentFiles) -> String {
    match &of.agent {
        Some(agent) => format!("{} by `{agent}`", of.files),
        None => format!("{} by people or other programs", of.files),
    }
}

/// The unfinished files, of which the first have sizes and are listed.
pub(crate) fn unfinished_files(
    view: &Viewpoint,
    root: &Path,
    files: &[ListedFile],
    sizes: &[ChangeSize],
) -> String {
    if files.is_empty() {
        return "no unfinished files".into();
    }
    let rows: Vec<[String; 4]> = files
        .iter()
        .zip(sizes)
        .map(|(file, change)| {
            let agent = file.agent.as_ref().map_or("no agent".to_owned(), |agent| format!("`{agent}`"));
            let age = file.since.map_or("-".to_owned(), |since| ago(view.now, since));
            let change = match change {
                ChangeSize::Lines { added, removed } => format!("+{added} -{removed}"),
                ChangeSize::Bytes(bytes) => size(*bytes),
            };
            [agent, age, change, shown(view, &root.join(&file.path))]
        })
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let [agents, ages, changes] = [0, 1, 2].map(width);
    let mut lines = vec![format!("unfinished: {}", unfinished(&UnfinishedCount::of(files)))];
    lines.extend(rows.iter().map(|[agent, age, change, path]| {
        format!("  {agent:<agents$}  {age:<ages$}  {change:<changes$}  {path}")
    }));
    if files.len() > sizes.len() {
        lines
            .push(format!("  and {} more: `tollgate status --unfinished --json`", files.len() - sizes.len()));
    }
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
    let shell = match host.shell {
        Some(ShellCommands::Parse) => ", scripts in its shell not guarded",
        Some(ShellCommands::Transaction) | None => "",
    };
    let mcp = if host.mcp { ", MCP server registered" } else { "" };
    let seen = match host.last_seen {
        Some(time) => format!(", last seen {}", ago(view.now, time)),
        None if host.hooks == Hooks::Installed => ", not seen yet".to_owned(),
        None => String::new(),
    };
    format!("{hooks}{shell}{mcp}{seen}")
}

/// The configuration names a vault that is not there: what is wrong, and what to do.
pub(crate) fn missing_vault(view: &Viewpoint, folder: &Path) -> (String, &'static str) {
    (
        format!("the configuration names `{}`, which is not a vault", shown(view, folder)),
        "restore the folder, run `tollgate init --vault` to create it, or delete `dir` under `[vault]`",
    )
}
