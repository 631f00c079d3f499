//! `tollgate status`: what is guarded here, who works here, and what waits for a person.
//!
//! Cheap enough for a prompt: it tests no hook, and reads no more than the end of the ledger. What cannot be found out, because
//! an engine does not answer or a file is damaged, is a problem beside what can.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::json;
use tollgate::error::Fault;
use tollgate::event::{Event, RefusalStatus};
use tollgate::ledger::{Ledger, LineDefect};
use tollgate::overlap;
use tollgate::settings::GuardMode;
use tollgate::tasks::VaultHome;
use tollgate::turn::TurnState;
use tollgate::unfinished_list::{self, ChangeSize, ListedFile};
use tollgate::vault::figures::Figures;
use tollgate::vault::state::State;
use tollgate::vault::store::NotATask;
use tollgate::visible::plain;
use tollgate::workspace::{STATE_FOLDER, has_state, read_settings};

use crate::answer::{Answer, Form, Reply};
use crate::error::CliError;
use crate::hook::checkup::glance;
use crate::invocation::Invocation;
use crate::report::status::{
    AgentStatus, ClaimStatus, Hooks, HostStatus, HostUse, RefusalCount, StatusProblem, UnfinishedCount,
    WaitingTask, WorkspaceStatus,
};
use crate::words::{self, short};

/// The number of ledger lines that are read. More lines of one day are a busy day, and then the exact number is no news.
const LINES: usize = 5_000;

/// The number of unfinished files that are listed for people.
const LISTED: usize = 100;

/// Show what is guarded here, who works here, and what waits for a person
///
/// Lists the agent programs that are used here with their hooks, their MCP registration and their last call; the running
/// agents; the claimed tasks; the tasks that await approval; the writes that were refused since midnight UTC; how many files
/// are unfinished, and whose they are; the files on which several agents work; and problems, such as a ledger whose end is gone
/// or an engine that does not answer. The exit code is 1 if something needs a person. `tollgate doctor` tests all of it, which
/// takes longer.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate status
  tollgate status --json | jq .pending_approvals
  tollgate status --unfinished")]
pub(crate) struct StatusArgs {
    /// List the files that are in no commit, with their authors, ages and sizes
    #[arg(long)]
    unfinished: bool,
}

pub(crate) fn run(invocation: &Invocation, args: &StatusArgs) -> Result<Answer, CliError> {
    if args.unfinished {
        return list_unfinished(invocation);
    }
    let (root, _) = invocation.root()?;
    let state = root.join(STATE_FOLDER);
    let settings = read_settings(&state.join("config.toml"))?;
    let mut status = WorkspaceStatus {
        workspace: root.to_string_lossy().into_owned(),
        set_up: has_state(&root),
        has_writes: invocation.has_state()?,
        mode: settings.guard.mode,
        hosts: glance(invocation, &root),
        ..WorkspaceStatus::default()
    };
    // What cannot be found out is a problem, and the rest is shown.
    for part in [look_at_agents, look_at_ledger, look_at_unfinished, look_at_overlaps, look_at_tasks] {
        if let Err(fault) = part(invocation, &mut status) {
            let problem = words::fault_words(&invocation.viewpoint(), &fault);
            status.problems.push(StatusProblem::new(problem, plain(&words::hint(&fault))));
        }
    }
    status.problems.extend(problems(&status));
    status.needs_person = !status.problems.is_empty() || !status.pending_approvals.is_empty();
    let said = Reply::new(
        words::status(&invocation.viewpoint(), &status),
        serde_json::to_value(&status).unwrap_or_default(),
    );
    Ok(if status.needs_person { Answer::NotValid(said) } else { Answer::Done(said) })
}

fn look_at_ledger(invocation: &Invocation, status: &mut WorkspaceStatus) -> Result<(), Fault> {
    let ledger = invocation.ledger()?;
    if let Some(wrong) = ledger.check_end()? {
        let problem = match wrong {
            LineDefect::CutTail => "the end of the ledger was cut off, or the ledger was deleted",
            _ => "the last known line of the ledger was edited",
        };
        let hint = "run `tollgate ledger verify`, which says what is wrong and what to do";
        status.problems.push(StatusProblem::new(problem, hint));
    }
    status.refusals_today = refusals_today(invocation, &ledger)?;
    Ok(())
}

fn look_at_unfinished(invocation: &Invocation, status: &mut WorkspaceStatus) -> Result<(), Fault> {
    let files = unfinished_list::list(&invocation.root()?.0, &invocation.ledger()?)?;
    status.unfinished = UnfinishedCount::of(&files);
    Ok(())
}

fn look_at_overlaps(invocation: &Invocation, status: &mut WorkspaceStatus) -> Result<(), Fault> {
    // No turn has begun before this folder is made.
    if invocation.root()?.0.join(STATE_FOLDER).join("open").is_dir() {
        let workspace = invocation.workspace()?;
        status.overlaps = overlap::list(&workspace)?;
    }
    Ok(())
}

/// `tollgate status --unfinished`. For people only the first files, because they do not read more; for programs all.
fn list_unfinished(invocation: &Invocation) -> Result<Answer, CliError> {
    let root = invocation.root()?.0;
    let files = unfinished_list::list(&root, &invocation.ledger()?)?;
    let first = match invocation.form() {
        Form::Json => &files[..],
        Form::Words => &files[..files.len().min(LISTED)],
    };
    let sizes = unfinished_list::sizes(&root, first)?;
    let words = words::unfinished_files(&invocation.viewpoint(), &root, &files, &sizes);
    let rows = first.iter().zip(&sizes).map(|(file, size)| {
        let (added, removed, bytes) = match *size {
            ChangeSize::Lines { added, removed } => (Some(added), Some(removed), None),
            ChangeSize::Bytes(bytes) => (None, None, Some(bytes)),
        };
        let ListedFile { path, agent, since, committed } = file;
        let path = path.to_string_lossy();
        json!({"path": path, "agent": agent, "since": since, "added": added, "removed": removed, "bytes": bytes, "committed": committed})
    });
    Ok(Answer::Done(Reply::new(words, rows.collect())))
}

fn look_at_tasks(invocation: &Invocation, status: &mut WorkspaceStatus) -> Result<(), Fault> {
    if !status.set_up {
        return Ok(());
    }
    let home = VaultHome::at(invocation.root()?.0).and_then(|own| VaultHome::of(&own.root, &own.settings))?;
    if home.misses_its_vault() {
        let (problem, hint) = words::missing_vault(&invocation.viewpoint(), &home.folder());
        status.problems.push(StatusProblem::new(problem, hint));
    }
    if !home.has_vault() {
        return Ok(());
    }
    let Some(tasks) = invocation.tasks_of(&invocation.workspace()?)? else { return Ok(()) };
    if let Err(fault) = tasks.sync() {
        let fact = words::fault_words(&invocation.viewpoint(), &fault);
        let problem = format!("{fact}; the claims and approvals are the last known ones");
        status.problems.push(StatusProblem::new(problem, plain(&words::hint(&fault))));
    }
    let now = invocation.now();
    for row in tasks.vault.rows(State::InProgress, now)?.0 {
        let (task, agent) = (row.task.name.to_string(), row.task.slot.agent().cloned());
        status.claims.push(ClaimStatus { task, agent, age_s: row.age_s });
    }
    for row in tasks.vault.rows(State::PendingApproval, now)?.0 {
        let task = row.task.name.to_string();
        status.pending_approvals.push(WaitingTask { task, age_s: row.age_s });
    }
    let (stuck, unfit) = tasks.vault.stuck(now)?;
    if let Some(first) = stuck.first() {
        let more = match stuck.len() - 1 {
            0 => String::new(),
            more => format!("; and {} that no agent can claim", words::count(more, "more task")),
        };
        let hint = "run `tollgate doctor`, which says for each task what to do";
        status.problems.push(StatusProblem::new(plain(&format!("{first}{more}")), hint));
    }
    if let Some(first) = unfit.first() {
        let more = match unfit.len() - 1 {
            0 => String::new(),
            more => format!("; and {} that no agent can claim", words::count(more, "more file")),
        };
        let NotATask { name, state, why } = first;
        let problem = format!("`{}` in `{state}`: {}{more}", short(&plain(name)), plain(why));
        status.problems.push(StatusProblem::new(problem, "run `tollgate task list`, which names each file"));
    }
    for sentence in tasks.vault.figures(now)?.1.iter().filter_map(Figures::stopped) {
        let hint = "fix the command of the worker; it tries one task again by itself";
        status.problems.push(StatusProblem::new(plain(&sentence), hint));
    }
    Ok(())
}

/// What is wrong with the guard itself.
fn problems(status: &WorkspaceStatus) -> Vec<StatusProblem> {
    let mut problems = Vec::new();
    let weaker = match status.mode {
        GuardMode::Enforce => None,
        GuardMode::Observe => Some("the guard only observes, and refuses nothing: `mode = \"observe\"`"),
        GuardMode::Off => Some("the guard is switched off: `mode = \"off\"`"),
    };
    problems.extend(weaker.map(|problem| {
        let hint = "set `mode = \"enforce\"` under `[guard]` in `.tollgate/config.toml`, or delete the line";
        StatusProblem::new(problem, hint)
    }));
    let some_guarded = status.hosts.iter().any(|host| host.guarded);
    for host in status.hosts.iter().filter(|host| !host.guarded) {
        let matters = match host.used {
            HostUse::InProject => true,
            // If nothing is guarded at all, the program that a person will start is probably one of these.
            HostUse::OnPath => !some_guarded,
            HostUse::Elsewhere => false,
        };
        if matters || host.hooks != Hooks::None {
            problems.push(not_guarded(host));
        }
    }
    problems
}

/// Why a program is not guarded.
fn not_guarded(host: &HostStatus) -> StatusProblem {
    let name = host.host;
    match host.hooks {
        Hooks::Outdated => StatusProblem::new(
            format!("the hooks of `{name}` were installed by another version of tollgate"),
            format!("run `tollgate init --host {name}` to update them"),
        ),
        Hooks::NotApproved => StatusProblem::new(
            format!("`{name}` does not call its hooks, because they are disabled or not approved"),
            "run `tollgate doctor`, which says what to do",
        ),
        Hooks::Broken => StatusProblem::new(
            format!("the configuration of `{name}` cannot be read"),
            "run `tollgate doctor`, which says what is wrong",
        ),
        Hooks::Installed | Hooks::Through(_) | Hooks::None => StatusProblem::new(
            format!("`{name}` is not guarded"),
            format!("run `tollgate init --host {name}` to install its hooks"),
        ),
    }
}

fn look_at_agents(invocation: &Invocation, status: &mut WorkspaceStatus) -> Result<(), Fault> {
    let mut agents = BTreeMap::new();
    for turns in invocation.existing_turns()? {
        for turn in turns.list()? {
            let since = turn.started();
            let agent = agents.entry(turn.agent().clone()).or_insert((0, since));
            *agent = (agent.0 + 1, agent.1.min(since));
        }
    }
    let agents = agents.into_iter().map(|(agent, (turns, since))| AgentStatus { agent, turns, since });
    status.agents = agents.collect();
    Ok(())
}

fn refusals_today(invocation: &Invocation, ledger: &Ledger) -> Result<RefusalCount, Fault> {
    let today = invocation.now().strftime("%Y-%m-%d").to_string();
    let mut found = RefusalCount::default();
    for (index, line) in ledger.newest_first()?.enumerate() {
        // `ledger verify` reports a damaged line.
        let Ok(line) = line else { break };
        if line.time.strftime("%Y-%m-%d").to_string() < today {
            break;
        }
        if index >= LINES {
            found.at_least = true;
            break;
        }
        let refused = matches!(
            line.event,
            Event::MutationConflict(_, RefusalStatus::Denied, ..)
                | Event::MutationRefused(_, RefusalStatus::Denied, ..)
        );
        found.count += usize::from(refused);
    }
    Ok(found)
}
