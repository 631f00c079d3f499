//! A vault with a git remote: what a round of synchronisation did, what the remote allows, what a person has to check.

use std::path::PathBuf;

use tollgate::error::Fault;
use tollgate::vault::checkup::{Finding, Synced, TreeStatus};
use tollgate::vault::{Reclaimed, TaskName};
use tollgate::visible::plain;

use super::claim::reclaimed as reclaimed_words;
use super::error::fault_words;
use super::text::{Viewpoint, count, shown};

pub(crate) fn may_be_old(view: &Viewpoint, fault: &Fault) -> String {
    format!("note: {}; showing the last known state", fault_words(view, fault))
}

/// The notes that are not empty, one per line.
pub(crate) fn together(notes: &[String]) -> String {
    notes.iter().filter(|note| !note.is_empty()).cloned().collect::<Vec<_>>().join("\n")
}

pub(crate) fn synced(synced: &Synced, reclaimed: &[Reclaimed]) -> String {
    let news = if synced.news { "new commits" } else { "no new commits" };
    let mut words = format!("the remote is at {}: {news}", &synced.tip[..synced.tip.len().min(8)]);
    if !reclaimed.is_empty() {
        words += "\n";
        words += &reclaimed_words(reclaimed, false);
    }
    words
}

pub(crate) fn put_aside(view: &Viewpoint, paths: &[PathBuf]) -> String {
    let lines = paths.iter().map(|path| {
        format!(
            "note: another machine changed this task first; the version of this machine is kept in `{}`",
            shown(view, path)
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

pub(crate) fn not_following(followed: &TreeStatus) -> Option<String> {
    Some(match followed {
        TreeStatus::UpToDate | TreeStatus::Forward | TreeStatus::Ahead => return None,
        TreeStatus::OtherBranch => {
            "note: the working tree was not updated: another branch is checked out; claims still work".into()
        }
        TreeStatus::Diverged => {
            "note: the working tree was not updated: it has commits that the remote lacks; run `git pull --rebase`, then \
             `git push`"
                .into()
        }
        TreeStatus::InTheWay(what) => {
            format!("note: the working tree was not updated: {}; commit it or move it away", plain(what))
        }
    })
}

pub(crate) fn fenced_off(task: &TaskName) -> String {
    format!(
        "another machine took over `{}`; the command was killed, and its changes are kept aside",
        plain(task.as_str())
    )
}

pub(crate) fn silent_for_a_lease(task: &TaskName) -> String {
    format!(
        "the remote was unreachable for nearly a whole lease, after which other machines may claim `{}`; its command was \
         killed",
        plain(task.as_str())
    )
}

/// The doctor's findings about the store.
pub(super) fn store_words(view: &Viewpoint, findings: &[Finding]) -> (String, Option<String>) {
    let (mut words, mut fix) = (Vec::new(), None);
    for finding in findings {
        match finding {
            Finding::Fine(what) => words.push(plain(what)),
            Finding::RefusesClaims { what, said } => {
                words.push(format!("the remote refuses what claims need ({}): {}", plain(what), plain(said)));
                fix = Some(
                    "allow refs under `[vault] claim_refs`, or set `claim_refs = \"refs/heads/tollgate/claims\"` in every clone"
                        .to_owned(),
                );
            }
            Finding::Twice { task, kept, removed } => {
                let removed: Vec<_> = removed.iter().map(|slot| format!("`{slot}`")).collect();
                words.push(format!(
                    "`{}` was also in {}; kept it in `{kept}` and set the other copy aside",
                    plain(task.as_str()),
                    removed.join(", ")
                ));
            }
            Finding::OrphanedClaim(task) => {
                words.push(format!(
                    "deleted a claim of `{}`, which is no longer where the claim says",
                    plain(task.as_str())
                ));
            }
            Finding::UnreadableClaim(name) => {
                words.push(format!("this version cannot read `{}`", plain(name)));
                fix = Some("install a newer tollgate; if there is none, delete that ref".to_owned());
            }
            Finding::NotFollowing(followed) => {
                if let Some(note) = not_following(followed) {
                    words.push(note.trim_start_matches("note: ").to_owned());
                }
            }
            Finding::Aside(paths) => {
                words.push(format!("{} set aside", count(paths.len(), "file")));
                let folder = paths.first().and_then(|path| path.parent());
                fix = folder
                    .map(|folder| format!("check the files in `{}`, then delete them", shown(view, folder)));
            }
        }
    }
    (words.join("\n"), fix)
}
