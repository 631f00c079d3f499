//! `tollgate sync`: synchronises once with the git remote, or keeps the folders in step with an engine.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tollgate::error::Fault;
use tollgate::vault::view::ViewOptions;

use crate::answer::{Answer, Form, Reply, json_line};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::output;
use crate::tasks::LoggedVault;
use crate::words;

/// Synchronise once with the git remote: fetch new commits, and reclaim the tasks of dead owners
///
/// For vaults with `[vault] sync = "git"`. The first time, it tests whether the remote accepts the pushes that claims need.
/// `tollgate work` synchronises every --interval seconds, and the other commands do it when they need to.
///
/// It updates the working tree like `git pull --ff-only`. If your own edits or commits are in the way, it leaves the working
/// tree alone and says so.
///
/// With an engine and `[vault] view = true`, it makes the folders of this machine and the tasks of the engine agree: once, or
/// with --follow until it gets SIGINT or SIGTERM. `tollgate work` and `tollgate serve` do the same while they run.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate sync
  tollgate sync --json | jq .followed
  tollgate sync --follow")]
pub(crate) struct SyncArgs {
    /// Keep the folders of this machine in step with the engine, until SIGINT or SIGTERM
    #[arg(long)]
    follow: bool,
}

pub(crate) fn run(invocation: &Invocation, args: &SyncArgs) -> Result<Answer, CliError> {
    let tasks = invocation.tasks()?;
    match (tasks.view_options(), args.follow) {
        (Some(_), true) => return follow(invocation, &tasks),
        (Some(options), false) => return one_round(&tasks, options),
        (None, true) => {
            return Err(CliError::usage(
                "this workspace has no folder view of an engine",
                "name an engine as `store` and set `view = true` under `[vault]` in `.tollgate/config.toml`",
            ));
        }
        (None, false) => {}
    }
    let Some(round) = tasks.sync()? else {
        return Err(CliError::usage(
            "the vault of this workspace has no remote",
            "put the vault into a git clone and set `sync = \"git\"` under `[vault]` in `.tollgate/config.toml`",
        ));
    };
    let (reclaimed, passed) = tasks.vault.reclaim(invocation.now())?;
    let followed = round.followed.as_ref().map(|followed| followed.word);
    Ok(Answer::Done(Reply {
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

/// Keeps the view until a signal.
fn follow(invocation: &Invocation, tasks: &LoggedVault) -> Result<Answer, CliError> {
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|source| Fault::Io {
        doing: "wait for",
        path: "signals".into(),
        source,
    })?;
    let _view = tasks.keep_view()?;
    output::say(&match invocation.form() {
        Form::Words => words::keeps_view(&invocation.viewpoint(), &tasks.folder),
        Form::Json => json_line(&json!({"view": tasks.folder.to_string_lossy()})),
    })?;
    signals.forever().next();
    Ok(Answer::Streamed)
}

/// Makes the folders and the engine agree once. Files that somebody is still writing are waited for, for a moment.
fn one_round(tasks: &LoggedVault, options: ViewOptions) -> Result<Answer, CliError> {
    let until = Instant::now() + 2 * options.settle + Duration::from_secs(1);
    let Some(mut view) = tasks.open_view(options)? else {
        let json = json!({"view": "kept_by_another_process", "unfinished": []});
        return Ok(Answer::Done(Reply::new(words::VIEW_KEPT_ELSEWHERE.to_owned(), json)));
    };
    let unfinished = view.work_until(until)?;
    let word = if unfinished.is_empty() { "up_to_date" } else { "unfinished" };
    let json = json!({"view": word, "unfinished": unfinished});
    Ok(Answer::Done(Reply::new(words::view_round(&unfinished), json)))
}
