//! `tollgate undo`: restores what the last guarded write replaced.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tollgate::error::Fault;
use tollgate::guard::{Expected, Outcome};
use tollgate::merge::diff_texts;
use tollgate::recovery::{RecoveryEntry, RecoveryKind};
use tollgate::turn::FileState;

use crate::answer::{Answer, Said};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::person::Person;
use crate::report::change::ChangeVerb;
use crate::words;

/// Restore what the last guarded write replaced
///
/// Restores the file that was replaced or deleted last, or FILE, or with --to exactly that entry of `recovery list`. Shows
/// the diff and asks, which needs a terminal; with --yes it does not ask. The restore is a guarded write: it is
/// made only if the file still has the bytes that the diff shows. Recovery keeps them, so a second `undo` undoes the first.
///
/// If another program has changed the file since that write, only --to restores it.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate undo src/a.rs
  tollgate undo --to 0643c1d2e8a1f07b3a9c5d --yes")]
pub(crate) struct UndoArgs {
    /// The file [default: the one that was replaced last]
    #[arg(value_hint = clap::ValueHint::FilePath)]
    path: Option<PathBuf>,
    /// The ID of an entry, from `recovery list`
    #[arg(long, value_name = "ID")]
    to: Option<String>,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

pub(crate) fn run(invocation: &Invocation, args: &UndoArgs) -> Result<Answer, CliError> {
    if !invocation.has_state()? {
        return Ok(refused("nothing_to_undo", &words::nothing_to_undo(args.path.as_deref())));
    }
    let gate = invocation.gate()?;
    let Some(entry) = chosen(invocation, args)? else {
        return Ok(refused("nothing_to_undo", &words::nothing_to_undo(args.path.as_deref())));
    };
    let (entry, kept) = gate.workspace().recovered(&entry.id)?;
    let view = invocation.viewpoint();
    // The file must still have exactly the bytes that the diff was made from.
    let (disk, expected, state) = match gate.peek(entry.path.as_path()) {
        Ok(Outcome::Done(read)) => (read.bytes, Expected::Hash(read.sha256), FileState::Present(read.sha256)),
        Err(Fault::Missing { .. }) => (Vec::new(), Expected::Absent, FileState::Absent),
        Ok(Outcome::Refused(refused)) => return Ok(Answer::Refused(refused)),
        Err(fault) => return Err(fault.into()),
    };
    if args.to.is_none() && state != entry.replaced_with {
        return Ok(refused("changed_since", &words::changed_since(&view, &entry)));
    }
    let diff = diff_texts(&disk, &kept, ["on disk", "restored"]);
    let shown = words::to_undo(&view, &entry, diff.as_deref());
    if !args.yes {
        match Person::here(invocation) {
            Err(why) => return Ok(refused(why.word(), &words::nobody_undoes())),
            Ok(person) if !person.agrees(&shown, words::UNDO_QUESTION)? => {
                return Ok(refused("not_confirmed", words::NOT_UNDONE));
            }
            Ok(_) => {}
        }
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
            Ok(Answer::Done(Said {
                words: if args.yes { format!("{shown}\n{words}") } else { words },
                notes: words::weaker_guarantees(&view, &applied),
                json,
            }))
        }
    }
}

/// The entry to restore. Late writes are not what a guarded write replaced, so only `--to` names them.
fn chosen(invocation: &Invocation, args: &UndoArgs) -> Result<Option<RecoveryEntry>, CliError> {
    let workspace = invocation.workspace()?;
    let mut kept = workspace.recovery()?;
    if let Some(path) = &args.path {
        let path = workspace.canonical(invocation.path(path)?)?;
        kept.retain(|kept| kept.path == path);
    }
    if let Some(id) = &args.to {
        let missing = || Fault::Missing { what: format!("the recovery entry `{}`", id.escape_debug()) };
        return Ok(Some(kept.into_iter().find(|kept| kept.id == *id).ok_or_else(missing)?));
    }
    Ok(kept.into_iter().find(|kept| kept.kind == RecoveryKind::Replaced))
}

fn refused(reason: &str, message: &str) -> Answer {
    let first = message.lines().next().unwrap_or_default();
    Answer::NotValid(Said {
        notes: message.to_owned(),
        json: json!({"refused": true, "reason": reason, "message": first.trim_start_matches("refused: ")}),
        ..Said::default()
    })
}
