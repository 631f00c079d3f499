//! A vault with a git remote: what a round of synchronisation did, what the remote allows, what a person has to check.

use std::path::{Path, PathBuf};

use tollgate::error::Fault;
use tollgate::settings::StoreChoice;
use tollgate::vault::checkup::{LocalCopy, SyncRound};
use tollgate::vault::view::Notice;
use tollgate::vault::{ReclaimedTask, TaskName};
use tollgate::visible::plain;

use super::claim::reclaimed as reclaimed_words;
use super::error::fault_words;
use super::text::{Viewpoint, shown};

pub(crate) fn may_be_old(view: &Viewpoint, fault: &Fault) -> String {
    format!("note: {}; showing the last known state", fault_words(view, fault))
}

/// The notes that are not empty, one per line.
pub(crate) fn together(notes: &[String]) -> String {
    notes.iter().filter(|note| !note.is_empty()).cloned().collect::<Vec<_>>().join("\n")
}

pub(crate) fn synced(synced: &SyncRound, reclaimed: &[ReclaimedTask]) -> String {
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

pub(crate) fn not_following(followed: &LocalCopy) -> Option<String> {
    followed.why_not.as_ref().map(|why| format!("note: {}", plain(why)))
}

/// Another machine has reclaimed the task, or a person has returned it.
pub(crate) fn fenced_off(task: &TaskName, store: &StoreChoice) -> String {
    let aside = match store {
        StoreChoice::Git => ", and its changes to the task are kept aside",
        StoreChoice::Folder | StoreChoice::Engine(_) => "",
    };
    format!("the claim on `{}` was lost; the command was killed{aside}", plain(task.as_str()))
}

pub(crate) fn slept_for_a_lease(task: &TaskName) -> String {
    format!(
        "this worker was stopped, or the machine slept, for most of a lease, after which other machines may claim `{}`; \
         its command was killed",
        plain(task.as_str())
    )
}

pub(crate) fn silent_for_a_lease(task: &TaskName) -> String {
    format!(
        "the remote was unreachable for most of a lease, after which other machines may claim `{}`; its command was \
         killed",
        plain(task.as_str())
    )
}

/// Something that people should know about the folders that show an engine.
pub(crate) fn view_notice(notice: &Notice) -> String {
    format!("note: {}", plain(&notice.to_string()))
}

pub(crate) fn keeps_view(view: &Viewpoint, folder: &Path) -> String {
    format!("keeping `{}` in step with the engine until you press Ctrl-C\n", shown(view, folder))
}

pub(crate) const VIEW_KEPT_ELSEWHERE: &str = "another process is keeping the folders in step with the engine";

pub(crate) fn view_round(unfinished: &[TaskName]) -> String {
    if unfinished.is_empty() {
        return "the folders and the engine agree".to_owned();
    }
    let names: Vec<String> = unfinished.iter().map(|task| format!("`{}`", plain(task.as_str()))).collect();
    format!(
        "the folders and the engine agree, except for files that are still being written, have only just changed, or cannot be read: {}\n\
         hint: run `tollgate sync` again when these files are complete",
        names.join(", ")
    )
}
