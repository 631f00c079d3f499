//! Words for tasks over git: what a round has brought, what the remote allows, what a person has to look at.

use std::path::PathBuf;

use tollgate::error::Fault;
use tollgate::vault::git::{Finding, Followed, Probe, Round};
use tollgate::vault::{Reclaimed, TaskName};

use super::{count, fault_words, plain, shown};
use crate::answer::Stop;
use crate::command::doctor::Fact;
use crate::door::Door;

pub(crate) fn no_git_sync() -> Stop {
    Stop::usage(
        "the vault of this workspace has no remote",
        "set `sync = \"git\"` under `[vault]` in `.tollgate/config.toml`; docs/git.md tells how",
    )
}

pub(crate) fn may_be_old(door: &Door, fault: &Fault) -> String {
    format!("note: {}; this is what was last seen", fault_words(door, fault))
}

/// Those that say something, one after the other.
pub(crate) fn together(notes: &[String]) -> String {
    notes.iter().filter(|note| !note.is_empty()).cloned().collect::<Vec<_>>().join("\n")
}

pub(crate) fn synced(round: &Round, reclaimed: &[Reclaimed]) -> String {
    let mut words = match round.news {
        true => format!("the remote is at {}, which was new", &round.tip[..round.tip.len().min(8)]),
        false => format!("the remote is at {}, nothing was new", &round.tip[..round.tip.len().min(8)]),
    };
    if round.paid > 0 {
        words +=
            &format!("; told it of {} that happened while it was out of reach", count(round.paid, "step"));
    }
    if !reclaimed.is_empty() {
        words += "\n";
        words += &super::reclaimed(reclaimed, false);
    }
    words
}

pub(crate) fn put_aside(door: &Door, paths: &[PathBuf]) -> String {
    let lines = paths.iter().map(|path| {
        format!(
            "note: what was done here was overtaken; it is kept in `{}` for you to look at",
            shown(door, path)
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

pub(crate) fn not_following(followed: &Followed) -> Option<String> {
    Some(match followed {
        Followed::UpToDate | Followed::Forward | Followed::Ahead => return None,
        Followed::OtherBranch => {
            "note: the working tree does not follow: another branch is checked out; claims are not touched by that".into()
        }
        Followed::Diverged => {
            "note: the working tree does not follow: it has commits that the remote lacks; `git pull --rebase`, then `git push`"
                .into()
        }
        Followed::InTheWay(what) => {
            format!("note: the working tree does not follow: {}; commit it or move it away", plain(what))
        }
    })
}

pub(crate) fn fenced_off(task: &TaskName) -> String {
    format!(
        "`{}` was taken over by another machine; its command was ended, and what it did is kept aside",
        plain(task.as_str())
    )
}

pub(crate) fn silent_for_a_lease(task: &TaskName) -> String {
    format!(
        "`{}`: the remote was out of reach for nearly a lease, after which others may take it; its command was ended",
        plain(task.as_str())
    )
}

/// What the doctor says about the remote.
pub(crate) fn git_words(door: &Door, fact: &Fact) -> (String, Option<String>) {
    let Fact::Git { remote, branch, probe, findings } = fact else { return (String::new(), None) };
    let place = format!("branch `{}` of `{}`", plain(branch), plain(remote));
    if let Probe::NoClaimRefs(said) = probe {
        return (
            format!("{place} is reached, but refuses what a claim needs: {}", plain(said)),
            Some("allow refs under `[vault] claim_refs`, or set `claim_refs = \"refs/heads/tollgate/claims\"` in every clone".into()),
        );
    }
    let mut words = vec![format!("{place} takes what a claim needs")];
    let mut mend = None;
    for finding in findings {
        match finding {
            Finding::Twice { task, kept, removed } => {
                let removed: Vec<_> = removed.iter().map(|slot| format!("`{slot}`")).collect();
                words.push(format!(
                    "`{}` was also in {}; it stays in `{kept}`, the other is put aside",
                    plain(task.as_str()),
                    removed.join(", ")
                ));
            }
            Finding::OrphanedCard { task } => {
                words.push(format!(
                    "removed a claim of `{}`, which is not where it was",
                    plain(task.as_str())
                ));
            }
            Finding::UnknownCard { name } => {
                words.push(format!("`{}` cannot be understood", plain(name)));
                mend = Some("install a newer tollgate; if there is none, remove that ref".to_owned());
            }
            Finding::NotFollowing(followed) => {
                if let Some(note) = not_following(followed) {
                    words.push(note.trim_start_matches("note: ").to_owned());
                }
            }
            Finding::Aside(paths) => {
                words.push(format!("{} put aside", count(paths.len(), "file")));
                let folder = paths.first().and_then(|path| path.parent());
                mend = folder
                    .map(|folder| format!("look at what is in `{}` and remove it", shown(door, folder)));
            }
        }
    }
    (words.join("\n"), mend)
}
