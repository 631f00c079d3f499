//! Applied changes, and how well each was protected.

use tollgate::commit::{AppliedChange, Guarantee};
use tollgate::turn::FileState;

use super::text::{Viewpoint, hash_or_none, shown};
use crate::report::change::ChangeVerb;

/// Printed before stdin is read from a terminal.
pub(crate) const STDIN_IS_READ: &str = "reading from the terminal; end with ctrl-d";

pub(crate) fn applied(view: &Viewpoint, verb: ChangeVerb, applied: &[AppliedChange]) -> String {
    applied.iter().map(|applied| applied_words(view, verb, applied)).collect::<Vec<_>>().join("\n")
}

fn applied_words(view: &Viewpoint, verb: ChangeVerb, applied: &AppliedChange) -> String {
    let did = match verb {
        ChangeVerb::Write => "wrote",
        ChangeVerb::Edit => "edited",
        ChangeVerb::Restore => "restored",
        ChangeVerb::Merge => "merged",
    };
    let path = shown(view, applied.path.as_path());
    let (before, after) = (hash_or_none(applied.before), hash_or_none(applied.after));
    match (&applied.moved_to, applied.before, applied.after) {
        (Some(to), ..) if applied.link => {
            format!("moved the link `{path}` to `{}`", shown(view, to.as_path()))
        }
        (Some(to), ..) => format!("moved `{path}` to `{}`, {after}", shown(view, to.as_path())),
        (None, _, FileState::Absent) if applied.link => format!("deleted the link `{path}`"),
        (None, _, FileState::Absent) => {
            format!(
                "deleted `{path}`, {before}\nhint: run `tollgate recovery restore {}` to restore it",
                applied.id
            )
        }
        (None, FileState::Absent, _) if verb == ChangeVerb::Restore => format!("restored `{path}`, {after}"),
        (None, FileState::Absent, _) => format!("created `{path}`, {after}"),
        (None, ..) if applied.before == applied.after => {
            format!("{did} `{path}`, {after}: the same bytes as before")
        }
        (None, ..) => format!("{did} `{path}`, {before} -> {after}"),
    }
}

/// A note for each file with a weaker guarantee than usual.
pub(crate) fn weaker_guarantees(view: &Viewpoint, applied: &[AppliedChange]) -> String {
    let note = |applied: &AppliedChange| {
        let meaning = guarantee(applied.guarantee)?;
        Some(format!("note: weaker protection for `{}`: {meaning}", shown(view, applied.path.as_path())))
    };
    applied.iter().filter_map(note).collect::<Vec<_>>().join("\n")
}

/// The meaning of a weaker guarantee; `None` for the full one.
pub(crate) fn guarantee(guarantee: Guarantee) -> Option<&'static str> {
    match guarantee {
        Guarantee::Full | Guarantee::Reserved => None,
        Guarantee::NoQuiet => Some(
            "this file system has no file leases, so if another program saves the file during a write, tollgate \
             detects and keeps that save only afterwards",
        ),
        Guarantee::NoLateWriteCheck => Some(
            "the file is on another file system than `.tollgate`, so late writes by other programs are not detected",
        ),
        Guarantee::NoExchange => Some(
            "the file system cannot swap two files, so a save by another program between check and rename is lost",
        ),
    }
}
