//! `tollgate undo`: restores what the last guarded write replaced.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tollgate::error::Fault;
use tollgate::event::{Event, FileChanged, FolderMoved, Mutation, MutationStatus};
use tollgate::guard::{Expected, Outcome};
use tollgate::ledger::Ledger;
use tollgate::merge::diff_texts;
use tollgate::recovery::{RecoveryEntry, RecoveryKind};
use tollgate::turn::FileState;

use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::person::Person;
use crate::report::change::ChangeVerb;
use crate::words;

/// Restore what the last guarded write replaced
///
/// Restores the file that the last guarded change replaced or deleted, or FILE, or with --to exactly that entry of `recovery
/// list`. Files that were created or moved, and changes of several files, need a FILE or the command that reverts them. Shows the
/// diff and asks, which needs a terminal; with --yes it does not ask. The restore is a guarded write: it is
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
    // Without a name, the last change is meant. An older one is not a substitute for a change that cannot be undone.
    if args.path.is_none() && args.to.is_none() {
        let last = last_change(&invocation.ledger()?)?;
        if last.len() > 1 || last.first().is_some_and(|file| file.id != entry.id) {
            return Ok(refused("not_the_last_change", &words::not_the_last_change(&last)));
        }
    }
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
            Err(why) => return Ok(refused(why.word(), &words::nobody_undoes(&why))),
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
            Ok(Answer::Done(Reply {
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
        return Ok(Some(RecoveryEntry::named(kept, id)?));
    }
    Ok(kept.into_iter().find(|kept| kept.kind == RecoveryKind::Replaced))
}

/// The files of the last guarded change, newest line first. Empty if the ledger has no change.
fn last_change(ledger: &Ledger) -> Result<Vec<FileChanged>, Fault> {
    let mut files: Vec<FileChanged> = Vec::new();
    // A damaged line is the business of `ledger verify`.
    for line in ledger.newest_first()?.flatten() {
        match line.event {
            Event::Mutation(Mutation::File(file), MutationStatus::Applied)
                if files.first().is_none_or(|last| last.tool_name == file.tool_name) =>
            {
                // Only the first line of a change says how long it took.
                let is_first = file.took_us.is_some();
                files.push(file);
                if is_first {
                    return Ok(files);
                }
            }
            Event::Mutation(Mutation::Folder(folder), MutationStatus::Applied) if files.is_empty() => {
                let FolderMoved { id, target_file, moved_to, .. } = folder;
                let moved_to = Some(moved_to);
                return Ok(vec![FileChanged { id, target_file, moved_to, ..FileChanged::default() }]);
            }
            _ if files.is_empty() => {}
            // The lines of one change follow each other.
            _ => break,
        }
    }
    // A tool of the agent's own program made the last one, or another process finished it: each has one line.
    files.truncate(1);
    Ok(files)
}

fn refused(reason: &str, message: &str) -> Answer {
    let (first, hint) =
        message.split_once("\nhint: ").map_or((message, None), |(first, hint)| (first, Some(hint)));
    let first = first.trim_start_matches("refused: ");
    Answer::NotValid(Reply::noted(
        message.to_owned(),
        json!({"refused": true, "reason": reason, "message": first, "hint": hint}),
    ))
}
