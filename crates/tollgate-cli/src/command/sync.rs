//! `tollgate sync`: one round with the git remote, by hand.

use clap::Args;
use serde_json::json;
use tollgate::vault::git::Followed;

use crate::answer::{Answer, Said, Stop};
use crate::door::Door;
use crate::words;

/// One round with the git remote: look, bring in what is new, take back what silent owners have left
///
/// For vaults with `[vault] sync = "git"`. The first round tries whether the remote takes what a claim needs. `tollgate work`
/// does a round every --interval seconds, and every other command that needs one does it by itself.
///
/// The working tree follows as by `git pull --ff-only`: if something that you have edited or committed is in the way, it
/// stays as it is, and the answer says so.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate sync
  tollgate sync --json | jq .followed")]
pub(crate) struct Wish {}

pub(crate) fn run(door: &Door, _: &Wish) -> Result<Answer, Stop> {
    let tasks = door.tasks()?;
    let Some(git) = &tasks.git else { return Err(words::no_git_sync()) };
    git.set_up()?;
    let round = git.sync()?;
    let (reclaimed, passed) = tasks.vault.reclaim(door.now())?;
    let followed = round.followed.as_ref().map(followed_word);
    Ok(Answer::Done(Said {
        json: json!({
            "tip": round.tip,
            "news": round.news,
            "told": round.paid,
            "reclaimed": reclaimed.iter().map(|one| &one.task).collect::<Vec<_>>(),
            "followed": followed,
            "aside": round.aside.iter().map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>(),
        }),
        words: words::synced(&round, &reclaimed),
        notes: words::together(&[
            words::put_aside(door, &round.aside),
            words::passed(door, &passed),
            round.followed.as_ref().and_then(words::not_following).unwrap_or_default(),
        ]),
    }))
}

/// For programs.
pub(crate) fn followed_word(followed: &Followed) -> &'static str {
    match followed {
        Followed::UpToDate => "up_to_date",
        Followed::Forward => "forward",
        Followed::OtherBranch => "other_branch",
        Followed::Ahead => "ahead",
        Followed::Diverged => "diverged",
        Followed::InTheWay(_) => "in_the_way",
    }
}
