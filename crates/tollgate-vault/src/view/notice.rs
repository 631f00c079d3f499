//! What people are told about the view: by the process that maintains it, by a file in the vault, and by `doctor`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::view_files::{STALE_MARK, aside_folder, lock_path};
use crate::checkup::Finding;
use crate::state::Slot;
use tollgate_base::error::Result;
use tollgate_base::file::names_in;
use tollgate_base::lock::Lock;
use tollgate_base::private;
use tollgate_base::task::TaskName;

/// Something that people should know.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A person's file could not become a change of the task. Their copy is kept.
    SetAside {
        /// The task.
        task: TaskName,
        /// Where the file was.
        slot: Slot,
        /// Where it is now.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A person's file became a change of the task, but they may not have seen the text that it replaced: the view had
    /// shown it only shortly before. That text is kept.
    Unseen {
        /// The task.
        task: TaskName,
        /// Where it is.
        slot: Slot,
        /// Where the replaced text is.
        path: PathBuf,
    },
    /// A person's move was undone.
    PutBack {
        /// The task.
        task: TaskName,
        /// Where the person moved it.
        to: Slot,
        /// Why that is not possible.
        why: String,
    },
    /// A file that a person deleted came back, because the task is still there.
    Restored {
        /// The task.
        task: TaskName,
        /// Where it is.
        slot: Slot,
    },
    /// A file cannot be dealt with now. It is tried again.
    Stuck {
        /// The task.
        task: TaskName,
        /// What is wrong.
        why: String,
    },
    /// The view is out of date from now on.
    Stale {
        /// Why.
        why: String,
    },
    /// The view is up to date again.
    Fresh,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetAside { task, slot, path, why } => {
                write!(f, "the file `{slot}/{task}` was set aside: {why}; it is kept in `{}`", path.display())
            }
            Self::Unseen { task, slot, path } => write!(
                f,
                "the file `{slot}/{task}` was saved over a change that somebody else had just made; the text before it is kept \
                 in `{}`: check whether your text should include that change",
                path.display()
            ),
            Self::PutBack { task, to, why } => write!(f, "the move of `{task}` to `{to}` was undone: {why}"),
            Self::Restored { task, slot } => {
                write!(
                    f,
                    "the file `{slot}/{task}` was deleted, but the task still exists, so the file was restored"
                )
            }
            Self::Stuck { task, why } => write!(f, "`{task}` cannot be shown: {why}; trying again"),
            Self::Stale { why } => {
                write!(f, "the folders are out of date from now on, and nothing can be claimed: {why}")
            }
            Self::Fresh => f.write_str("the folders are up to date again"),
        }
    }
}

/// What the state of a view on disk says, for `doctor`.
pub fn findings(folder: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    if let Ok(mark) = private::read_to_string(&folder.join(STALE_MARK)) {
        let why = mark.lines().find(|line| line.starts_with("Since ")).unwrap_or("the reason is unknown");
        findings.push(Finding::problem(format!("the folders are out of date: {why}")));
    }
    let lock = lock_path(folder);
    // Looking does not create anything.
    let is_free = !lock.exists() || Lock::acquire(&lock, Duration::ZERO)?.is_some();
    findings.push(if is_free {
        Finding::warning("no process keeps the folders up to date")
            .fix("start `tollgate work`, `tollgate serve` or `tollgate sync --follow`")
    } else {
        Finding::ok("a process keeps the folders up to date")
    });
    let aside = aside_folder(folder);
    let mut kept = names_in(&aside)?;
    kept.sort();
    if let Some(first) = kept.first() {
        let what = format!("files set aside: {}, the first is `{}`", kept.len(), first.to_string_lossy());
        let fix = format!("check the files in `{}`, then delete them", aside.display());
        findings.push(Finding::warning(what).fix(fix));
    }
    Ok(findings)
}
