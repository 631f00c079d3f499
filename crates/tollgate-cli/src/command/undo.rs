//! `tollgate undo`: takes a change back, a whole turn, or a task.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use serde_json::json;
use tollgate::error::Fault;
use tollgate::gate::Gate;
use tollgate::guard::{Expected, Outcome};
use tollgate::history::chosen::{Chosen, Which};
use tollgate::history::content::Contents;
use tollgate::history::step::{Back, Steps};
use tollgate::ledger::Ledger;
use tollgate::merge::diff_texts;
use tollgate::name::Agent;
use tollgate::recovery::RecoveryEntry;
use tollgate::{Digest, TaskName};

use super::past::{Past, asked, ledger_name, no, not_allowed, nothing_found, paths_of, plan_json};
use crate::answer::{Answer, Reply};
use crate::command::moment::moment;
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::report::change::ChangeVerb;
use crate::words;

/// Undo a change: the last one, that of a file, a whole turn, or all that was done for a task
///
/// Without arguments the last guarded change is undone, with all its files. WHAT is the number of a change, from `tollgate history`, or
/// a file, whose last change is meant (`./12` if its name is a number). --turn, --task, and --agent with --since mean all these changes
/// at once. Created files are deleted, deleted files come back, moved files are moved back.
///
/// Shows the diff and asks, which needs a terminal; with --yes it does not ask. The undo is one guarded write of all files: all are
/// undone or none, and only if each file still is as the diff shows it. It is in the ledger, so a second `undo` undoes the first.
///
/// What others have changed in these files since stays: a three-way merge takes out only what is undone. If that is a conflict, nothing
/// is undone, and the conflicts are listed. The bytes are kept for a limited time (`[history]` in the settings).
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate undo
  tollgate undo 12 --dry-run
  tollgate undo src/a.rs --yes
  tollgate undo --turn t-0123456789abcdef
  tollgate undo --agent blue --since 2h")]
pub(crate) struct UndoArgs {
    /// A change, by its number, or a file, whose last change is meant [default: the last change]
    #[arg(value_name = "WHAT", value_hint = clap::ValueHint::FilePath, conflicts_with_all = ["to", "task", "since"])]
    what: Option<PathBuf>,
    /// Restore this entry of `recovery list`, whatever the file holds now
    #[arg(long, value_name = "ID", conflicts_with_all = ["task", "since"])]
    to: Option<String>,
    /// Undo what agents changed while they had claimed this task, and no other
    #[arg(long, conflicts_with = "since")]
    task: Option<TaskName>,
    /// With --agent: undo what this agent has changed since this time, such as `yesterday`, `2h` or `2026-11-18`
    #[arg(long, value_name = "TIME", value_parser = |text: &str| moment(text, Timestamp::now()))]
    since: Option<Timestamp>,
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// The changes that are to be undone.
enum Meant {
    /// These.
    Changes(Which),
    /// The last change.
    Last,
    /// The last change of this file, and only what it did to the file.
    LastOf(PathBuf),
}

pub(crate) fn run(invocation: &Invocation, args: &UndoArgs) -> Result<Answer, CliError> {
    if !invocation.has_state()? {
        return Ok(no("nothing_to_undo", &words::nothing_to_undo(args.what.as_deref())));
    }
    if let Some(id) = &args.to {
        return restore_entry(invocation, args, id);
    }
    let meant = meant(invocation, args)?;
    // `--agent` and `--turn` say what is undone, not who undoes it.
    let by_whom = match &meant {
        Meant::Changes(Which::Turn(_) | Which::Agent(..)) => Some(invocation.unnamed()),
        _ => None,
    };
    let invocation = by_whom.as_ref().unwrap_or(invocation);
    let gate = invocation.gate()?;
    let chosen = match &meant {
        Meant::Changes(which) => match which.find(gate.workspace().ledger())? {
            Some(chosen) => Some(chosen),
            None => return Ok(nothing_found(which)),
        },
        Meant::Last => last(gate.workspace().ledger())?,
        Meant::LastOf(path) => last_of(&gate, &ledger_name(invocation, gate.workspace(), path)?)?,
    };
    match chosen {
        Some(chosen) => undo(invocation, args, &gate, &chosen),
        None => Ok(no("nothing_to_undo", &words::nothing_to_undo(args.what.as_deref()))),
    }
}

fn meant(invocation: &Invocation, args: &UndoArgs) -> Result<Meant, CliError> {
    let number = args.what.as_deref().and_then(Path::to_str).and_then(|text| text.parse().ok());
    Ok(match (&args.what, &args.task, args.since, &invocation.global().turn) {
        (Some(path), ..) => match number {
            Some(line) => Meant::Changes(Which::Line(line)),
            None => Meant::LastOf(path.clone()),
        },
        (None, Some(task), ..) => Meant::Changes(Which::Task(task.clone())),
        (None, None, Some(since), _) => match invocation.named_agent() {
            Some(agent) => Meant::Changes(Which::Agent(agent.clone(), since)),
            None => {
                return Err(CliError::usage(
                    "`--since` does not say whose changes to undo".to_owned(),
                    "give `--agent NAME`".to_owned(),
                ));
            }
        },
        (None, None, None, Some(turn)) => Meant::Changes(Which::Turn(turn.clone())),
        (None, None, None, None) => Meant::Last,
    })
}

/// The last change.
fn last(ledger: &Ledger) -> Result<Option<Chosen>, Fault> {
    let mut change = None;
    let read = Steps::read(ledger, Back::ToTheStart, |step| {
        match *change.get_or_insert(step.change) == step.change {
            true => ControlFlow::Continue(true),
            false => ControlFlow::Break(()),
        }
    })?;
    Ok((!read.steps.is_empty()).then(|| Chosen::all(read.steps)))
}

/// The last step that changed this file.
fn last_of(gate: &Gate, name: &str) -> Result<Option<Chosen>, Fault> {
    let mut is_found = false;
    let read = Steps::read(gate.workspace().ledger(), Back::ToTheStart, |step| {
        if is_found {
            return ControlFlow::Break(());
        }
        is_found = step.effects().iter().any(|(path, before, after)| *path == name && before != after);
        ControlFlow::Continue(is_found)
    })?;
    Ok((!read.steps.is_empty()).then(|| Chosen::all(read.steps)))
}

fn undo(invocation: &Invocation, args: &UndoArgs, gate: &Gate, chosen: &Chosen) -> Result<Answer, CliError> {
    if let Some(refused) = not_allowed(invocation, chosen.meant().map(|step| step.agent.as_ref()))? {
        return Ok(refused);
    }
    let contents = Contents::of(gate.workspace()).left_by(&chosen.steps);
    let plan = chosen.plan_to_undo(&contents)?;
    let shown = words::to_undo(&invocation.viewpoint(), gate.workspace().path(), chosen.meant(), &plan);
    let mut json = plan_json(&plan, "undone");
    if let Some([from, to]) = plan.folders.first() {
        return Ok(no("folder_was_moved", &words::folder_is_not_moved_back(from, to)));
    }
    if plan.conflicts().next().is_some() {
        let why = words::undo_conflicts(&plan);
        let (message, hint) = why.split_once("\nhint: ").unwrap_or((&why, ""));
        json["refused"] = true.into();
        json["reason"] = "conflict".into();
        json["message"] = message.trim_start_matches("refused: ").into();
        json["hint"] = hint.into();
        return Ok(Answer::NotValid(Reply::noted(format!("{shown}\n{why}"), json)));
    }
    if plan.changes.is_empty() {
        return Ok(no("already_undone", words::ALREADY_UNDONE));
    }
    if args.dry_run {
        json["dry_run"] = true.into();
        return Ok(Answer::Long(Reply { words: shown, notes: words::DRY_UNDO.to_owned(), json }));
    }
    if !args.yes
        && let Some(refused) = asked(invocation, &shown)?
    {
        return Ok(refused);
    }
    let turn = invocation.turn(gate)?;
    match gate.apply_as(turn.as_ref(), "undo", plan.changes)? {
        Outcome::Refused(refused) => Ok(Answer::AllRefused(refused)),
        Outcome::Done(applied) => {
            // The change is made. If this sweep fails, the next one does its work.
            let _ = gate.workspace().sweep();
            let view = invocation.viewpoint();
            let words = words::applied(&view, ChangeVerb::Restore, &applied);
            json["undone"] = paths_of(&json);
            Ok(Answer::Done(Reply {
                words: if args.yes { format!("{shown}\n{words}") } else { words },
                notes: words::weaker_guarantees(&view, &applied),
                json,
            }))
        }
    }
}

/// The agent that wrote what a file holds now, if one did.
fn author(ledger: &Ledger, name: &str, now: Digest) -> Result<Option<Agent>, Fault> {
    let past = Past::of(ledger, name, Some(now))?;
    Ok(past.states.last().and_then(|state| past.author(state)).cloned())
}

/// Restores an entry of recovery over whatever the file holds now.
fn restore_entry(invocation: &Invocation, args: &UndoArgs, id: &str) -> Result<Answer, CliError> {
    let gate = invocation.gate()?;
    let entry = RecoveryEntry::named(gate.workspace().recovery()?, id)?;
    let (entry, kept) = gate.workspace().recovered(&entry.id)?;
    let view = invocation.viewpoint();
    // The file must still have exactly the bytes that the diff was made from.
    let (disk, expected) = match gate.peek(entry.path.as_path()) {
        Ok(Outcome::Done(read)) => (read.bytes, Expected::Hash(read.sha256)),
        Err(Fault::Missing { .. }) => (Vec::new(), Expected::Absent),
        Ok(Outcome::Refused(refused)) => return Ok(Answer::Refused(refused)),
        Err(fault) => return Err(fault.into()),
    };
    if let Expected::Hash(now) = expected {
        let name = ledger_name(invocation, gate.workspace(), entry.path.as_path())?;
        if let Some(refused) =
            not_allowed(invocation, [author(gate.workspace().ledger(), &name, now)?.as_ref()])?
        {
            return Ok(refused);
        }
    }
    let diff = diff_texts(&disk, &kept, ["on disk", "restored"]);
    let shown = words::to_restore(&view, &entry, diff.as_deref());
    if args.dry_run {
        let json = json!({"dry_run": true, "restored": entry.id, "diff": diff});
        return Ok(Answer::Long(Reply { words: shown, notes: words::DRY_UNDO.to_owned(), json }));
    }
    if !args.yes
        && let Some(refused) = asked(invocation, &shown)?
    {
        return Ok(refused);
    }
    let turn = invocation.turn(&gate)?;
    match gate.restore_over(turn.as_ref(), &entry, kept, expected)? {
        Outcome::Refused(refused) => Ok(Answer::Refused(refused)),
        Outcome::Done(applied) => {
            // The change is made. If this sweep fails, the next one does its work.
            let _ = gate.workspace().sweep();
            let mut json = applied.json();
            json["restored"] = entry.id.clone().into();
            json["diff"] = diff.into();
            let applied = [applied];
            let words = words::applied(&view, ChangeVerb::Restore, &applied);
            Ok(Answer::Done(Reply {
                words: if args.yes { format!("{shown}\n{words}") } else { words },
                notes: words::weaker_guarantees(&view, &applied),
                json,
            }))
        }
    }
}
