//! Words for tasks: the board, claims, decisions, the lines of the log.

use std::path::Path;

use jiff::Timestamp;
use tollgate::error::Fault;
use tollgate::name::Agent;
use tollgate::vault::block::Verdict;
use tollgate::vault::claim::{ClaimId, Mode, Tenure};
use tollgate::vault::event::{Event, Kind};
use tollgate::vault::figures::Figures;
use tollgate::vault::shown::Row;
use tollgate::vault::state::{Slot, State};
use tollgate::vault::store::{Landed, Stored, Unfit};
use tollgate::vault::{Claimed, Line, Not, Reason, Reclaimed, TaskName};

use super::{ago, count, counted, fault_words, moment, plain, short, shown};
use crate::answer::{Answer, Said, Stop};
use crate::command::doctor::Fact;
use crate::door::Door;

/// So many of the finished tasks are on the board,
const LATEST: usize = 5;

/// and so many of those that wait: a screen.
const FIRST: usize = 40;

// Wrong calls

pub(crate) fn no_vault(door: &Door, folder: &Path) -> Fault {
    Fault::Missing { what: format!("the vault `{}`", shown(door, folder)) }
}

pub(crate) fn no_claim_id() -> Stop {
    Stop::usage(
        "no claim is named",
        "give `--claim-id ID`, as `task claim` printed it, or set `TOLLGATE_CLAIM_ID`",
    )
}

pub(crate) fn bad_priority(text: &str) -> String {
    format!("`{}` is no priority; use critical, high, normal, low, lowest, or p0 to p4", plain(text))
}

pub(crate) fn bad_verdict() -> String {
    "use `success` or `failure`".into()
}

pub(crate) fn bad_title() -> Stop {
    Stop::usage("the title is empty, or more than one line", "give one line; more text goes into `--body`")
}

pub(crate) fn bad_task(why: &str) -> Stop {
    Stop::usage(format!("an agent could not read this task: {why}"), "change the body or the options")
}

pub(crate) fn bad_task_option(option: &str) -> Stop {
    let hint = match option {
        "due" => "give a day or a time, such as `2026-12-01` or `2026-12-01T09:00:00Z`",
        _ => "choose a simpler text, without spaces at its ends",
    };
    Stop::usage(format!("`--{option}` cannot be used as it is"), hint)
}

pub(crate) fn failed_is_not_done() -> Stop {
    Stop::usage(
        "failed work cannot go to `Done`",
        "leave `--to` out for another attempt, or say `--to Rejected` or `--to Pending_Approval`",
    )
}

pub(crate) fn nobody_decides() -> Stop {
    Stop::usage("`--by` is empty", "name who decides, or leave it out for your user name")
}

pub(crate) fn agents_do_not_decide(agent: &str) -> String {
    format!("`{}` is an agent, and only people approve and reject", plain(agent))
}

// Adding and looking

pub(crate) fn task_is_there(task: &TaskName, slot: &Slot) -> Answer {
    let message = format!("there is a task `{}` already, in `{slot}`", plain(task.as_str()));
    Answer::NotValid(Said {
        notes: format!("refused: {message}\nhint: choose another `--name`, or leave it out"),
        json: serde_json::json!({"task": task, "refused": true, "reason": "exists", "message": message}),
        ..Said::default()
    })
}

pub(crate) fn task_added(landed: &Landed) -> String {
    format!("added `{}` to `{}`", plain(landed.task.as_str()), landed.slot)
}

/// A length of time, roughly.
fn lasting(seconds: i64) -> String {
    ago(Timestamp::UNIX_EPOCH, Timestamp::from_second(-seconds).unwrap_or_default()).replace(" ago", "")
}

/// All tasks, state by state.
pub(crate) fn board(board: &[(State, Vec<Row>)], max_attempts: u32, whole: bool) -> String {
    let rows = || board.iter().flat_map(|(_, rows)| rows);
    let width = |text: &dyn Fn(&Row) -> String| {
        let longest = rows().map(|row| text(row).chars().count()).max().unwrap_or(0);
        longest.min(48)
    };
    let (name, action) = (width(&|row| plain(row.task.as_str())), width(&action_of));
    let mut lines = Vec::new();
    for (state, rows) in board {
        lines.push(format!("{state:<16} {}", rows.len()));
        let most = match (whole, state.is_final()) {
            (true, _) => usize::MAX,
            (false, true) => LATEST,
            (false, false) => FIRST,
        };
        for row in rows.iter().take(most) {
            lines.push(row_words(row, name, action, max_attempts).trim_end().to_owned());
        }
        if rows.len() > most {
            lines.push(format!("  and {} more: `tollgate task list --state {state}`", rows.len() - most));
        }
    }
    if board.len() > 1 && rows().next().is_none() {
        lines.push("hint: `tollgate task add 'what is to be done'` adds the first".into());
    }
    lines.join("\n")
}

fn action_of(row: &Row) -> String {
    row.brief.as_ref().ok().and_then(|brief| brief.action.as_deref()).map(plain).unwrap_or_default()
}

fn row_words(row: &Row, name: usize, action: usize, max_attempts: u32) -> String {
    let mut words = match &row.brief {
        Ok(brief) => format!("  {:<8}", brief.priority.as_str()),
        Err(_) => format!("  {:<8}", "?"),
    };
    words += &format!(
        "  {:<name$}  {:<action$}  {:>7}",
        plain(row.task.as_str()),
        action_of(row),
        lasting(row.age_s)
    );
    if let Some(agent) = row.slot.agent() {
        words += &format!("  by {agent}");
    }
    let claimed = row.note.claim.is_some();
    if row.note.attempts > u32::from(claimed) {
        let number = row.note.attempts;
        words += &if claimed {
            format!("  attempt {number} of {max_attempts}")
        } else {
            format!("  {number} of {max_attempts} attempts used")
        };
    }
    if let Some(reason) = &row.note.reason {
        words += &format!("  {}", short(&plain(reason)));
    }
    if let Err(broken) = &row.brief {
        words += &format!("  cannot be read: {}", plain(&broken.to_string()));
    }
    words
}

/// What lies in the vault and cannot be a task.
pub(crate) fn unfit(unfit: &[Unfit]) -> String {
    let line = |found: &Unfit| {
        format!(
            "note: `{}` in `{}` is passed over: {}",
            short(&plain(&found.name)),
            found.state,
            plain(&found.why)
        )
    };
    unfit.iter().map(line).collect::<Vec<_>>().join("\n")
}

pub(crate) fn task_shown(door: &Door, stored: &Stored, bytes: &[u8]) -> String {
    let mut words = format!("`{}` in `{}`", plain(stored.task.as_str()), stored.slot);
    if let Some(path) = &stored.path {
        words += &format!("\n  file      {}", shown(door, path));
    }
    match &stored.brief {
        Ok(brief) => {
            words += &format!("\n  priority  {}", brief.priority.as_str());
            if let Some(action) = &brief.action {
                words += &format!("\n  action    {}", plain(action));
            }
            if let Some(due) = brief.due {
                words += &format!("\n  due       {}", moment(due));
            }
            if !brief.after.is_empty() {
                let after: Vec<_> = brief.after.iter().map(|task| plain(task.as_str())).collect();
                words += &format!("\n  after     {}", after.join(", "));
            }
        }
        Err(broken) => words += &format!("\n  broken    {}", plain(&broken.to_string())),
    }
    if let Some(claim) = &stored.note.claim {
        let until = match claim.tenure {
            Tenure::Held => "as long as its command runs".to_owned(),
            Tenure::Leased(until) => format!("until {}", moment(until)),
        };
        words +=
            &format!("\n  claimed   by {} {}, {until}, {}", claim.agent, ago(door.now(), claim.at), claim.id);
    }
    if stored.note.attempts > 0 {
        words += &format!("\n  attempts  {}", stored.note.attempts);
    }
    if let Some(reason) = &stored.note.reason {
        words += &format!("\n  reason    {}", short(&plain(reason)));
    }
    if let Some(approval) = &stored.note.approval {
        words += &format!("\n  approved  by {} {}", plain(&approval.by), ago(door.now(), approval.at));
    }
    words.push('\n');
    for line in String::from_utf8_lossy(bytes).lines() {
        words.push('\n');
        words += &plain(line);
    }
    if stored.len > bytes.len() as u64 {
        words += &format!("\n... and {} more bytes", stored.len - bytes.len() as u64);
    }
    words
}

pub(crate) fn may_claim(agent: &Agent, task: &TaskName, mode: Mode) -> String {
    match mode {
        Mode::Execute => format!("`{agent}` may claim `{task}`"),
        Mode::Draft => {
            format!("`{agent}` may claim `{task}` to draft it; a person approves before it is executed")
        }
    }
}

pub(crate) fn figures(all: &Figures, each: &[Figures]) -> String {
    let line = |figures: &Figures| {
        format!(
            "{:<16} {:>6} {:>8} {:>8} {:>8.3}",
            figures.agent_name,
            figures.active_claims,
            figures.total_claims,
            figures.claim_conflicts_avoided,
            figures.claim_success_rate
        )
    };
    let mut lines =
        vec![format!("{:<16} {:>6} {:>8} {:>8} {:>8}", "agent", "active", "claims", "avoided", "success")];
    lines.extend(each.iter().map(line));
    lines.push(line(all));
    lines.join("\n")
}

// Claims

pub(crate) fn claimed(door: &Door, claimed: &Claimed) -> String {
    let claim = &claimed.claim;
    let mut words = format!("claimed `{}` for `{}`", plain(claimed.task.as_str()), claim.agent);
    if let Some(path) = &claimed.path {
        words += &format!("\n  file      {}", shown(door, path));
    }
    words += &format!("\n  claim id  {}", claim.id);
    if let Some(action) = &claim.action {
        words += &format!("\n  action    {}", plain(action));
    }
    if claim.mode == Mode::Draft {
        words += "\n  mode      draft: write what you would do under `## Draft` in the file, do not do it";
    }
    if let Tenure::Leased(until) = claim.tenure {
        words += &format!("\n  lease     until {}", moment(until));
        words += &format!(
            "\nhint: do it, then `tollgate task release {} --claim-id {}`",
            plain(claimed.task.stem()),
            claim.id
        );
    }
    words
}

pub(crate) fn not_claimed(not: &Not) -> String {
    let hint = match not.reason {
        Reason::Lost => "take another: `tollgate task claim --next`",
        Reason::NotEligible => {
            "take another: `tollgate task claim --next`; `tollgate task why` tells it for each agent"
        }
        Reason::Blocked => "do what it waits for first, or take another: `tollgate task claim --next`",
        Reason::Incomplete => "let its author finish or mend the file, then claim it again",
        Reason::None => "`tollgate task list` shows all tasks, `tollgate task add` makes one",
    };
    format!("refused: {}\nhint: {hint}", plain(&not.sentence))
}

pub(crate) fn nothing_to_claim(line: &Line) -> String {
    let mut others = Vec::new();
    if line.blocked > 0 {
        others.push(format!("{} for other tasks", counted(line.blocked, "waits", "wait")));
    }
    if line.foreign > 0 {
        others.push(format!("{} to other agents", counted(line.foreign, "is left", "are left")));
    }
    if others.is_empty() {
        "no task can be claimed now".into()
    } else {
        format!("no task can be claimed now: {}", others.join(", "))
    }
}

/// What a look at the line has passed over.
pub(crate) fn passed_over(door: &Door, line: &Line) -> String {
    let parts = [unfit(&line.unfit), passed(door, &line.faults)];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

pub(crate) fn passed(door: &Door, passed: &[(TaskName, Fault)]) -> String {
    let line = |(task, fault): &(TaskName, Fault)| {
        format!("note: `{}` is passed over: {}", plain(task.as_str()), fault_words(door, fault))
    };
    passed.iter().map(line).collect::<Vec<_>>().join("\n")
}

pub(crate) fn verified(task: &TaskName, id: &ClaimId, valid: bool) -> String {
    let task = plain(task.as_str());
    if valid {
        format!("`{task}` is claimed by `{id}`")
    } else {
        format!(
            "`{task}` is not, or no longer, claimed by `{id}`\nhint: stop working on it; whatever is done now may be done twice"
        )
    }
}

pub(crate) fn not_the_owner(why: &str) -> String {
    format!("refused: {}\nhint: stop working on it; the claim is over", plain(why))
}

pub(crate) fn renewed(task: &TaskName, until: Option<Timestamp>) -> String {
    let task = plain(task.as_str());
    match until {
        Some(until) => format!("renewed `{task}` until {}", moment(until)),
        None => format!("`{task}` is held by a lock and needs no renewal"),
    }
}

pub(crate) fn progress_noted(task: &TaskName) -> String {
    format!("noted in `{}`", plain(task.as_str()))
}

pub(crate) fn released(task: &TaskName, landed: &Landed) -> String {
    let mut words = format!("released `{}` to `{}`", plain(task.as_str()), landed.slot);
    if landed.task != *task {
        words +=
            &format!("\nnote: that name was taken there, so it is `{}` now", plain(landed.task.as_str()));
    }
    words
}

// Decisions

pub(crate) fn decided(landed: &Landed, verb: &str, by: &str) -> String {
    format!("{verb} `{}` for `{}`, now in `{}`", plain(landed.task.as_str()), plain(by), landed.slot)
}

pub(crate) fn decision_refused(reason: &str, message: &str) -> String {
    let hint = match reason {
        "agent" => {
            "ask a person to decide: `tollgate task approve` or `tollgate task reject` in their own shell"
        }
        _ => "`tollgate task list` shows where it is",
    };
    format!("refused: {}\nhint: {hint}", plain(message))
}

pub(crate) fn reclaimed(done: &[Reclaimed], dry_run: bool) -> String {
    if done.is_empty() {
        return "no owner is gone, nothing to take back".into();
    }
    let verb = if dry_run { "would take back" } else { "took back" };
    let line = |one: &Reclaimed| {
        format!(
            "{verb} `{}` from `{}` to `{}`: {}",
            plain(one.task.as_str()),
            one.agent,
            one.to,
            short(&plain(&one.reason))
        )
    };
    done.iter().map(line).collect::<Vec<_>>().join("\n")
}

// The log

/// A line of an agent's log.
pub(crate) fn log_line(time: Timestamp, text: &str) -> String {
    format!("{} {}", time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ"), short(&plain(text)))
}

pub(crate) fn event_line(event: &Event) -> String {
    let Event { kind, payload, result, .. } = event;
    let (task, status) = (payload.task.as_str(), &result.status);
    let id = payload.claim_id.as_ref().map_or("", ClaimId::as_str);
    let reason = payload.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    match kind {
        Kind::Claim => {
            let mode = payload.mode.map_or("", Mode::as_str);
            format!("claimed {task} {id}, attempt {}, mode {mode}", payload.attempt.unwrap_or_default())
        }
        Kind::ClaimLost => format!("lost {task} to another"),
        Kind::Renew => format!("renewed {task} {id}"),
        Kind::Release => {
            let (how, seconds) =
                (payload.result.map_or("", Verdict::as_str), payload.duration_s.unwrap_or_default());
            format!("released {task} {id} to {status}, {how} after {seconds} s{reason}")
        }
        Kind::Approval => {
            format!("{} {task}, now {status}{reason}", payload.decision.as_deref().unwrap_or_default())
        }
        Kind::Reclaim => format!("taken back {task} {id} to {status}{reason}"),
    }
}

// Init

pub(crate) fn vault_made(door: &Door, folder: &Path, new: bool) -> String {
    let folder = shown(door, folder);
    if new {
        format!("made the vault `{folder}`\nnext: `tollgate task add 'what is to be done'` adds a task")
    } else {
        format!("found the vault `{folder}`")
    }
}

pub(crate) fn vault_name_is_no_text() -> Stop {
    Stop::usage("the name of the vault's folder is not UTF-8", "choose another name for it")
}

pub(crate) fn name_the_vault_yourself(dir: &str) -> Stop {
    Stop::usage(
        "`.tollgate/config.toml` names another vault, or is not easily changed; the folders are made",
        format!("set `dir = \"{}\"` under `[vault]` in it", plain(dir)),
    )
}

/// What the doctor says about the vault.
pub(crate) fn vault_words(door: &Door, fact: &Fact) -> (String, Option<String>) {
    let Fact::Vault { folder, open, healed, reclaimable, unknown, unfit } = fact else {
        return (String::new(), None);
    };
    let mut words = format!("`{}`, {}", shown(door, folder), count(*open, "open task"));
    if *healed > 0 {
        words += &format!(", healed {} that a crash had left half made", count(*healed, "step"));
    }
    if *reclaimable > 0 {
        let tasks = count(*reclaimable, "task");
        return (
            format!("{words}; {tasks} in the hands of owners who are gone"),
            Some("`tollgate task reclaim` takes them back; so does every `tollgate work`".into()),
        );
    }
    if let Some(first) = unfit.first() {
        let why = format!("`{}` in `{}`: {}", short(&plain(&first.name)), first.state, plain(&first.why));
        let files = count(unfit.len(), "file");
        return (
            format!("{words}; {files} cannot be a task, the first is {why}"),
            Some("mend it or move it away; nothing is claimed from it".into()),
        );
    }
    if unknown.is_empty() {
        return (words, None);
    }
    let names: Vec<_> = unknown.iter().map(|agent| format!("`{agent}`")).collect();
    (
        format!(
            "{words}; {} may do every action, without an `[agent.NAME]` in the configuration",
            names.join(", ")
        ),
        Some("name what each agent is `allowed` and what is `sensitive` for it, as in docs/vault.md".into()),
    )
}
