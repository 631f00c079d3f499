//! Tasks: the board, one task, figures, and the lines of an agent's log.

use std::path::Path;

use jiff::Timestamp;
use tollgate::error::{Fault, MissingKind};
use tollgate::event::{Event, Fragment};
use tollgate::ledger::Entry;
use tollgate::name::Agent;
use tollgate::vault::claim::{Mode, Tenure};
use tollgate::vault::figures::Figures;
use tollgate::vault::shown::Row;
use tollgate::vault::state::{Slot, State};
use tollgate::vault::store::{NotATask, Task, TaskAfterStep};
use tollgate::vault::{Circle, Denial, TaskName};
use tollgate::visible::{is_invisible, plain};

use super::text::{Viewpoint, ago, count, counted, moment, short, shown};
use crate::answer::{Answer, Reply};

/// The number of finished tasks on the board.
const LATEST: usize = 5;

/// The number of waiting tasks on the board, which fills a screen.
const FIRST: usize = 40;

// Usage errors

pub(crate) fn no_vault(view: &Viewpoint, folder: &Path) -> Fault {
    Fault::missing(MissingKind::Vault, format!("the vault `{}`", shown(view, folder)))
}

pub(crate) fn bad_priority(text: &str) -> String {
    format!("`{}` is not a priority; use critical, high, normal, low, lowest, or p0 to p4", plain(text))
}

pub(crate) fn bad_verdict() -> String {
    "use `success` or `failure`".into()
}

pub(crate) fn not_prose(text: &str) -> String {
    format!("`{}` looks like an option; if it is the text, begin it with a space", plain(text))
}

// New tasks, and views

pub(crate) fn task_is_there(task: &TaskName, slot: &Slot) -> Answer {
    let message = format!("a task named `{}` already exists in `{slot}`", plain(task.as_str()));
    Answer::NotValid(Reply::noted(
        format!("refused: {message}\nhint: choose another `--name`, or omit it"),
        serde_json::json!({"task": task, "refused": true, "reason": "exists", "message": message}),
    ))
}

pub(crate) fn closes_a_circle(circle: &Circle) -> Answer {
    let task = circle.first();
    let message =
        task.map(|task| Denial::Circle(task.clone(), circle.clone()).to_string()).unwrap_or_default();
    Answer::NotValid(Reply::noted(
        format!("refused: {}\nhint: choose another `--after`, or omit it", plain(&message)),
        serde_json::json!({"task": task, "refused": true, "reason": "circle", "message": message}),
    ))
}

pub(crate) fn task_added(landed: &TaskAfterStep) -> String {
    format!("added `{}` to `{}`", plain(landed.task.as_str()), landed.slot)
}

/// What was imported, or would be.
pub(crate) fn imported(added: &[TaskName], present: usize, closed: usize, is_dry: bool) -> String {
    let verb = if is_dry { "would import" } else { "imported" };
    let mut lines: Vec<String> =
        added.iter().map(|task| format!("{verb} `{}`", plain(task.as_str()))).collect();
    lines.push(format!("{verb} {}; {present} already there, {closed} closed", count(added.len(), "task")));
    lines.join("\n")
}

pub(crate) fn not_imported(why: &str) -> String {
    format!("skipped: {}", plain(why))
}

/// An approximate length of time.
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
    let (name, action) = (width(&|row| plain(row.task.name.as_str())), width(&action_of));
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
        lines.push("hint: run `tollgate task add TITLE` to add the first task".into());
    }
    lines.join("\n")
}

fn action_of(row: &Row) -> String {
    row.task.brief.as_ref().ok().and_then(|brief| brief.action.as_deref()).map(plain).unwrap_or_default()
}

fn row_words(row: &Row, name: usize, action: usize, max_attempts: u32) -> String {
    let mut words = match &row.task.brief {
        Ok(brief) => format!("  {:<8}", brief.priority.as_str()),
        Err(_) => format!("  {:<8}", "?"),
    };
    words += &format!(
        "  {:<name$}  {:<action$}  {:>7}",
        plain(row.task.name.as_str()),
        action_of(row),
        lasting(row.age_s)
    );
    if let Some(agent) = row.task.slot.agent() {
        words += &format!("  by {agent}");
    }
    let number = row.record.attempts;
    match &row.record.reason {
        _ if row.record.claim.is_some() && number > 1 => {
            words += &format!("  attempt {number} of {max_attempts}");
        }
        // Without a reason the last attempt succeeded: the task was drafted or approved.
        Some(reason) if number > 0 => {
            words += &format!("  {number} of {max_attempts} attempts used  {}", short(&plain(reason)));
        }
        Some(reason) => words += &format!("  {}", short(&plain(reason))),
        None => {}
    }
    if let Some(pause) = &row.record.pause {
        words += &format!("  paused until {}", moment(pause.until));
    }
    if let Err(broken) = &row.task.brief {
        words += &format!("  cannot be read: {}", plain(&broken.to_string()));
    }
    words
}

/// The files in the vault that cannot be tasks.
pub(crate) fn unfit(unfit: &[NotATask]) -> String {
    let line = |found: &NotATask| {
        format!("note: skipped `{}` in `{}`: {}", short(&plain(&found.name)), found.state, plain(&found.why))
    };
    unfit.iter().map(line).collect::<Vec<_>>().join("\n")
}

pub(crate) fn task_shown(view: &Viewpoint, task: &Task, bytes: &[u8]) -> String {
    let mut words = format!("`{}` in `{}`", plain(task.name.as_str()), task.slot);
    if let Some(path) = &task.path {
        words += &format!("\n  file      {}", shown(view, path));
    }
    match &task.brief {
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
    if let Some(claim) = &task.record.claim {
        let until = match claim.tenure {
            Tenure::Held => "as long as its command runs".to_owned(),
            Tenure::Leased(until) => format!("until {}", moment(until)),
        };
        words +=
            &format!("\n  claimed   by {} {}, {until}, {}", claim.agent, ago(view.now, claim.at), claim.id);
    }
    if let Some(agent) = &task.record.released_by {
        words += &format!("\n  released  by {agent}");
    }
    if task.record.attempts > 0 {
        words += &format!("\n  attempts  {}", task.record.attempts);
    }
    if let Some(reason) = &task.record.reason {
        words += &format!("\n  reason    {}", short(&plain(reason)));
    }
    if let Some(approval) = &task.record.approval {
        words += &format!("\n  approved  by {} {}", plain(&approval.by), ago(view.now, approval.at));
    }
    words += "\n\n";
    words += &unrendered(bytes);
    if task.len > bytes.len() as u64 {
        words += &format!("\n... and {} more bytes", task.len - bytes.len() as u64);
    }
    words
}

/// Every line of a text, with invisible characters and bytes that are not UTF-8 marked.
pub(super) fn unrendered(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for (number, line) in chunk.valid().split('\n').enumerate() {
            if number > 0 {
                text.push('\n');
            }
            text += &plain(line.strip_suffix('\r').unwrap_or(line));
        }
        for byte in chunk.invalid() {
            text += &format!("\\x{byte:02x}");
        }
    }
    text.truncate(text.trim_end_matches('\n').len());
    text
}

/// A task, whole, for the person who decides about it.
pub(crate) fn task_for_decision(view: &Viewpoint, task: &Task, bytes: &[u8]) -> String {
    let hidden = String::from_utf8_lossy(bytes).chars().filter(|c| *c != '\n' && is_invisible(*c)).count();
    let mut words = task_shown(view, task, bytes);
    words += "\n--- end of the text";
    if hidden > 0 {
        words += &format!(
            "; {} marked, as in \\u{{200b}}: look at them before you decide",
            counted(hidden, "invisible character is", "invisible characters are")
        );
    }
    words
}

pub(crate) fn may_claim(agent: &Agent, task: &TaskName, mode: Mode) -> String {
    match mode {
        Mode::Execute => format!("`{agent}` may claim `{task}`"),
        Mode::Draft => {
            format!(
                "`{agent}` may claim `{task}` to draft it; a person must approve it before it is executed"
            )
        }
    }
}

pub(crate) fn figures(all: &Figures, each: &[Figures]) -> String {
    let line = |figures: &Figures| {
        format!(
            "{:<16} {:>6} {:>8} {:>8} {:>14}",
            figures.agent_name,
            figures.active_claims,
            figures.total_claims,
            figures.claim_conflicts_avoided,
            format!("{} of {}", figures.attempts_succeeded, figures.attempts)
        )
    };
    let mut lines =
        vec![format!("{:<16} {:>6} {:>8} {:>8} {:>14}", "agent", "active", "claims", "lost", "succeeded")];
    lines.extend(each.iter().map(line));
    lines.push(line(all));
    lines.join("\n")
}

// The log

/// A line of an agent's log.
pub(crate) fn log_line(time: Timestamp, workspace: &Path, text: &str) -> String {
    let workspace = plain(&workspace.to_string_lossy());
    format!("{} {workspace} {}", time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ"), short(&plain(text)))
}

/// An event in the log of its agent. The line does not start with the agent's name, which is the name of the log.
pub(crate) fn event_line(entry: &Entry) -> String {
    let described = entry.event.described();
    // The words of the claim-by-move contract.
    if let Event::Claim(claimed) = &entry.event {
        let detail = described.detail.map(|detail| format!(" ({detail})")).unwrap_or_default();
        return format!("Claimed: {}{detail}", claimed.task);
    }
    let agent = entry.agent.as_ref().map_or("-", |agent| agent.as_str());
    let mut words = String::new();
    for part in &described.sentence {
        words += match part {
            Fragment::Agent if words.is_empty() => "",
            Fragment::Agent => agent,
            Fragment::Words(text)
            | Fragment::File(text)
            | Fragment::Task(text)
            | Fragment::Person(text)
            | Fragment::Code(text) => text,
            Fragment::State(state) => state.as_str(),
        };
    }
    let detail = described.detail.map(|detail| format!(" ({detail})")).unwrap_or_default();
    let reason = described.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{}{detail}{reason}", words.trim_start())
}
