//! `tollgate commit`: commits this agent's own changes in git, and nobody else's.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use tollgate::guard::Outcome;
use tollgate::own_commit::{CommitAnswer, CommitRequest, HookOutput, Left, OwnCommit, RepositoryHooks};
use tollgate::turn::TurnState;

use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::person::Person;
use crate::words;

/// Commit your own changes in git, and nobody else's
///
/// Commits what this agent has changed through tollgate since HEAD, in the working tree of the current folder: written, created,
/// deleted and moved files. Changes of other agents and people stay as they are, on disk and in the index, also if they are in the
/// same file: then your changes alone are committed, if they apply to HEAD's version without a conflict. What cannot be told apart is
/// left, and listed with the reason.
///
/// Your own git makes the commit, with the repository's hooks and signing. Without -m, a person at a terminal writes the message
/// in git's editor.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate commit -m 'parser: accept empty lines' --agent blue
  tollgate commit src docs/parser.md -m 'parser: accept empty lines'
  tollgate commit --dry-run

Exit code 1: nothing was committed, because there is nothing, or git or a hook refused.")]
pub(crate) struct CommitArgs {
    /// Only these files, and the files in these folders
    #[arg(value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
    /// The message
    #[arg(long, short)]
    message: Option<String>,
    /// Only show what would be committed
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(invocation: &Invocation, args: &CommitArgs) -> Result<Answer, CliError> {
    if args.message.is_none() && !args.dry_run && Person::here(invocation).is_err() {
        return Err(CliError::usage(
            "no message given, and git's editor is only for a person at a terminal",
            "give the message with `-m MESSAGE`",
        ));
    }
    let gate = invocation.gate()?;
    let turn: Box<dyn TurnState> = match invocation.carried_turn() {
        Some(turn) => Box::new(turn),
        None => invocation.turn(&gate)?,
    };
    let mut others = Vec::new();
    for turns in invocation.existing_turns()? {
        others.extend(turns.list()?);
    }
    let turns: Vec<&dyn TurnState> = others.iter().map(|turn| turn as &dyn TurnState).collect();
    let paths = args.paths.iter().map(|path| Ok(gate.workspace().canonical_link(invocation.path(path)?)?));
    let paths = paths.collect::<Result<Vec<_>, CliError>>()?;
    let paths: Vec<PathBuf> = paths.iter().map(|path| path.as_path().to_owned()).collect();
    let request = CommitRequest {
        turn: &*turn,
        turns: &turns,
        folder: &invocation.base()?,
        paths: &paths,
        message: args.message.as_deref(),
        dry_run: args.dry_run,
        output: HookOutput::Stderr,
        hooks: match invocation.surroundings().carried {
            Some(_) => RepositoryHooks::Skip,
            None => RepositoryHooks::Run,
        },
    };
    Ok(match gate.commit_own(&request)? {
        Outcome::Refused(refused) => Answer::Refused(refused),
        Outcome::Done(CommitAnswer::Commit(commit)) => Answer::Done(Reply {
            words: words::committed(&commit),
            notes: words::left(&commit.left),
            json: committed_json(&commit),
        }),
        Outcome::Done(CommitAnswer::Nothing(left)) => {
            let message = words::nothing_to_commit(turn.agent(), &left, invocation.is_for_a_run());
            not_committed("nothing_to_commit", &message, &left)
        }
        Outcome::Done(CommitAnswer::Cannot(why)) => {
            not_committed(why.word(), &words::not_committed(&why), &[])
        }
    })
}

fn committed_json(commit: &OwnCommit) -> Value {
    let OwnCommit { commit, branch, paths, left } = commit;
    let left: Vec<Value> = left.iter().map(Left::json).collect();
    json!({"commit": commit, "branch": branch, "paths": paths, "left": left})
}

fn not_committed(reason: &str, message: &str, left: &[Left]) -> Answer {
    let (first, hint) =
        message.split_once("\nhint: ").map_or((message, None), |(first, hint)| (first, Some(hint)));
    let left: Vec<Value> = left.iter().map(Left::json).collect();
    Answer::NotValid(Reply::noted(
        message.to_owned(),
        json!({"refused": true, "reason": reason, "message": first, "hint": hint, "left": left}),
    ))
}
