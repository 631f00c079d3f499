//! Refusals, for people and for models: what was refused, why, and what to do next.

use std::path::Path;

use tollgate::guard::Refused;
use tollgate::premise::ChangedPremise;
use tollgate::refusal::{Reason, Refusal, Stale};
use tollgate::turn::FileState;
use tollgate::visible::plain;

use super::text::{Viewpoint, ago, hash_or_none, quoted, shown};

pub(crate) fn refused(view: &Viewpoint, refused: &Refused) -> String {
    let all: Vec<String> = refused.refusals().iter().map(|refusal| refusal_words(view, refusal)).collect();
    all.join("\n")
}

fn refusal_words(view: &Viewpoint, refusal: &Refusal) -> String {
    let path = shown(view, refusal.path.as_path());
    let (fact, hint) = match &refusal.reason {
        Reason::Stale(stale) if stale.harm.is_none() => return stale_words(view, &path, stale),
        Reason::Busy { holder: Some(holder) } => (
            format!("`{path}` is busy: `{holder}` is about to write it"),
            format!("wait a moment, read `{path}` again, then retry"),
        ),
        Reason::Busy { holder: None } => (
            format!("`{path}` is busy: another process has it open for writing"),
            "retry in a moment; a file that is always open, such as a log, cannot be replaced: append to it"
                .into(),
        ),
        Reason::Unread { .. } => (
            format!("`{path}` was not read in this turn"),
            format!("read `{path}` with the same `--turn`, then base your write on what you find"),
        ),
        Reason::Unreadable => (
            format!("the last read of `{path}` failed, so its content is not known"),
            format!("read `{path}` again; after a read that succeeds, write"),
        ),
        Reason::Outside => (
            format!("`{path}` is outside the workspace"),
            "choose a path inside the workspace, or give the right workspace with `-C DIR`; a symbolic link that leads out \
             of the workspace counts as outside"
                .into(),
        ),
        Reason::Protected => (
            format!("`{path}` is protected"),
            "choose another path, or ask a person to make the change".into(),
        ),
        Reason::OtherTree => (
            format!("`{path}` is in another working tree of this repository"),
            "make the change in your own working tree; if it must be made there, ask a person: they can start you there, or \
             set `stay = false` under `[git]` in `.tollgate/config.toml`"
                .into(),
        ),
        Reason::NotAFile => (
            format!("`{path}` is not a regular file"),
            "choose the path of a file, not of a folder or a device".into(),
        ),
        Reason::HardLinked => (
            format!("`{path}` has other names (hard links), and a write would separate them"),
            "ask a person: they can break the link, or set `hard_links = \"detach\"` in \
             `.tollgate/config.toml`"
                .into(),
        ),
        Reason::ReadOnly => (
            format!("`{path}` is read-only"),
            "ask a person: they can change its permissions, or set `read_only = \"replace\"` in \
             `.tollgate/config.toml`"
                .into(),
        ),
        Reason::Fenced(lost) => (
            format!("your claim on the task `{}` has ended, so `{path}` was not written", lost.task),
            format!(
                "stop working on this task: another agent may have it; `tollgate task show {}` says who, and a new claim lets \
                 you write again",
                lost.task.stem()
            ),
        ),
        Reason::TextNotFound { found: 0, text } => (
            format!("the old text is not in `{path}`\n  looked for  {}", plain(text)),
            format!("read `{path}` again and copy the old text exactly, with its white space"),
        ),
        Reason::TextNotFound { found, text } => (
            format!("the old text occurs {found} times in `{path}`\n  looked for  {}", plain(text)),
            "give more of the lines around it, so that it is unique, or replace all with `--all`".into(),
        ),
        Reason::PremiseChanged(files) => return premise_words(view, &path, files),
        // A later library may have reasons that this file does not know. Its report has a sentence for each.
        _ => {
            let report = refusal.report();
            (format!("`{path}`: {}", plain(&report.message)), plain(&report.recovery_hint))
        }
    };
    format!("refused: {fact}\nhint: {hint}")
}

fn premise_words(view: &Viewpoint, path: &str, files: &[ChangedPremise]) -> String {
    let mut words = format!("refused: `{path}` was not changed, because your work rests on files that were");
    for file in files {
        let sentence = file.sentence(&shown(view, file.path.as_path()), view.now);
        words += &format!("\n  {sentence}");
    }
    words + "\nhint: read these files again, check whether your change is still right, then make it"
}

fn stale_words(view: &Viewpoint, path: &str, stale: &Stale) -> String {
    let mut words = match stale.expected {
        FileState::Absent => format!("refused: `{path}` already exists\n"),
        // A command may write a file that was changed before tollgate had hashed it.
        FileState::Unreadable => format!("refused: `{path}` is stale\n  you last saw  an earlier version\n"),
        seen => format!("refused: `{path}` is stale\n  you last saw  {}\n", hash_or_none(seen)),
    };
    words += &format!("  on disk       {}", hash_or_none(stale.actual));
    if let Some(by) = &stale.changed_by {
        words += &format!(", written by `{}` {}", by.agent, ago(view.now, by.time));
    }
    words.push('\n');
    if let Some(diff) = &stale.diff {
        for line in diff.lines() {
            words += format!("    {}", plain(line)).trim_end();
            words.push('\n');
        }
    }
    words
        + &match (stale.expected, stale.actual) {
            (FileState::Absent, _) => {
                format!("hint: read `{path}`, then change what you find or choose another path")
            }
            (_, FileState::Absent) => {
                format!(
                    "hint: read `{path}` again; if it was deleted on purpose, leave it, otherwise write it again"
                )
            }
            _ if stale.mergeable => {
                format!(
                    "hint: run `tollgate merge {} --write` to write a clean merge of your change, or read the whole of \
                     `{path}` again, redo your change on what you find, then write",
                    quoted(Path::new(path))
                )
            }
            _ => {
                format!(
                    "hint: read the whole of `{path}` again, redo your change on what you find, then write"
                )
            }
        }
}
