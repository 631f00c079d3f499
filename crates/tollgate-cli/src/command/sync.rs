//! `tollgate sync`: synchronises once with the git remote.

use clap::Args;
use serde_json::json;

use crate::answer::{Answer, Said};
use crate::error::{CliError, UsageError};
use crate::invocation::Invocation;
use crate::words;

/// Synchronise once with the git remote: fetch new commits, and reclaim the tasks of dead owners
///
/// For vaults with `[vault] sync = "git"`. The first time, it tests whether the remote accepts the pushes that claims need.
/// `tollgate work` synchronises every --interval seconds, and the other commands do it when they need to.
///
/// It updates the working tree like `git pull --ff-only`. If your own edits or commits are in the way, it leaves the working
/// tree alone and says so.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate sync
  tollgate sync --json | jq .followed")]
pub(crate) struct SyncArgs {}

pub(crate) fn run(invocation: &Invocation, _: &SyncArgs) -> Result<Answer, CliError> {
    let tasks = invocation.tasks()?;
    let Some(round) = tasks.sync()? else { return Err(UsageError::NoGitSync.into()) };
    let (reclaimed, passed) = tasks.vault.reclaim(invocation.now())?;
    let followed = round.followed.as_ref().map(|followed| followed.word);
    Ok(Answer::Done(Said {
        json: json!({
            "tip": round.tip,
            "news": round.news,
            "reclaimed": reclaimed.iter().map(|one| &one.task).collect::<Vec<_>>(),
            "followed": followed,
            "aside": round.aside.iter().map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>(),
        }),
        words: words::synced(&round, &reclaimed),
        notes: words::together(&[
            words::put_aside(&invocation.viewpoint(), &round.aside),
            words::skipped_faults(&invocation.viewpoint(), &passed),
            round.followed.as_ref().and_then(words::not_following).unwrap_or_default(),
        ]),
    }))
}
