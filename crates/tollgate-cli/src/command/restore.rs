//! `tollgate restore`: a file as it was at some time, or before a change.

use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use serde_json::json;
use tollgate::error::Fault;
use tollgate::guard::{Action, Change, Expected, Outcome};
use tollgate::history::content::Contents;
use tollgate::history::trail::By;
use tollgate::ledger::Ledger;
use tollgate::merge::diff_texts;

use super::past::{Past, asked, ledger_name, no, not_allowed};
use crate::answer::{Answer, Reply};
use crate::command::moment::{FORMS, moment};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::report::change::ChangeVerb;
use crate::words;

/// Restore a file as it was at some time, or after a change
///
/// --at is a time, or the number of a change from `tollgate history`, after which the file is restored. What was done to it since is
/// overwritten; to keep that, use `tollgate undo`. A file that has been moved is restored under its present name.
///
/// Shows the diff and asks, which needs a terminal; with --yes it does not ask. The restore is a guarded write: it is made only if
/// the file still is as the diff shows it, and recovery keeps what it replaces. The bytes of the past are kept for a limited time
/// (`[history]` in the settings).
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate restore src/a.rs --at yesterday
  tollgate restore src/a.rs --at 12 --yes")]
pub(crate) struct RestoreArgs {
    /// The file
    #[arg(value_hint = clap::ValueHint::FilePath)]
    path: PathBuf,
    /// A time, such as `yesterday`, `2h` or `2026-11-18`, or the number of a change
    #[arg(long, value_name = "TIME|N", value_parser = at)]
    at: At,
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// When.
#[derive(Debug, Clone, Copy)]
pub(super) enum At {
    Time(Timestamp),
    /// After this ledger line.
    Line(u64),
}

/// A time, or the number of a ledger line.
pub(super) fn at(text: &str) -> Result<At, String> {
    match text.parse() {
        Ok(line) => Ok(At::Line(line)),
        Err(_) => moment(text, Timestamp::now()).map(At::Time).map_err(|_| {
            let text = tollgate::visible::plain(text);
            format!("`{text}` is neither a time nor the number of a change: write {FORMS}, or a number from `tollgate history`")
        }),
    }
}

pub(crate) fn run(invocation: &Invocation, args: &RestoreArgs) -> Result<Answer, CliError> {
    let gate = invocation.gate()?;
    let name = ledger_name(invocation, gate.workspace(), &args.path)?;
    let disk = Contents::of(gate.workspace()).on_disk(&name)?;
    let now = disk.as_ref().map(|disk| disk.digest);
    let past = Past::of(gate.workspace().ledger(), &name, now)?;
    let Some(index) = held(&past, args.at, gate.workspace().ledger())? else {
        return Ok(no("not_found", &words::nothing_known_then(&args.path.display().to_string())));
    };
    let then = past.states[index].digest;
    if then == now {
        return Ok(no("already_so", words::ALREADY_UNDONE));
    }
    if let Some(refused) =
        not_allowed(invocation, past.states[index + 1..].iter().map(|state| past.author(state)))?
    {
        return Ok(refused);
    }
    let contents = Contents::of(gate.workspace()).left_by(&past.steps);
    let bytes = match then.map(|digest| contents.find(digest)).transpose()? {
        Some(None) => return Ok(no("not_kept", words::NOT_KEPT)),
        bytes => bytes.flatten(),
    };
    let before = disk.and_then(|disk| disk.bytes).unwrap_or_default();
    let diff = diff_texts(&before, bytes.as_deref().unwrap_or_default(), ["on disk", "restored"]);
    let path = contents.path(&name);
    let shown = words::file_to_restore(&invocation.viewpoint(), &path, bytes.is_none(), diff.as_deref());
    let json = json!({"path": name, "before": now, "after": then, "diff": diff});
    if args.dry_run {
        return Ok(Answer::Long(Reply { words: shown, notes: words::DRY_UNDO.to_owned(), json }));
    }
    if !args.yes
        && let Some(refused) = asked(invocation, &shown)?
    {
        return Ok(refused);
    }
    let action = bytes.map_or(Action::Delete, Action::Write);
    let expected = now.map_or(Expected::Absent, Expected::Hash);
    let turn = invocation.turn(&gate)?;
    match gate.apply_as(turn.as_ref(), "restore", vec![Change::new(path, action).expecting(expected)])? {
        Outcome::Refused(refused) => Ok(Answer::Refused(refused)),
        Outcome::Done(applied) => {
            // The change is made. If this sweep fails, the next one does its work.
            let _ = gate.workspace().sweep();
            let view = invocation.viewpoint();
            let words = words::applied(&view, ChangeVerb::Restore, &applied);
            Ok(Answer::Done(Reply {
                words: if args.yes { format!("{shown}\n{words}") } else { words },
                notes: words::weaker_guarantees(&view, &applied),
                json,
            }))
        }
    }
}

/// Which of the states of a file was that at some time. `None`: the ledger does not know.
fn held(past: &Past, at: At, ledger: &Ledger) -> Result<Option<usize>, Fault> {
    if let At::Line(line) = at
        && ledger.newest_first()?.flatten().next().is_none_or(|newest| !(1..=newest.seq).contains(&line))
    {
        return Ok(None);
    }
    let is_past = |index: usize| match (at, past.steps.get(index)) {
        (At::Time(time), Some(step)) => step.time <= time,
        (At::Line(line), Some(step)) => step.seq <= line || step.change == line,
        (_, None) => false,
    };
    Ok(past.states.iter().rposition(|state| match state.by {
        // Before the first step.
        None => true,
        Some(By::Step(index)) => is_past(index),
        // It was there when the next step came, and nobody knows since when.
        Some(By::SomebodyBefore(index)) => is_past(index),
    }))
}
