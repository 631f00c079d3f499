//! The recovery list: which bytes are kept, and why.

use tollgate::recovery::{RecoveryEntry, RecoveryKind};

use super::text::{Viewpoint, moment, shown, size};

pub(crate) fn kept(view: &Viewpoint, kept: &[RecoveryEntry]) -> String {
    if kept.is_empty() {
        return "recovery is empty".into();
    }
    let line = |kept: &RecoveryEntry| {
        let why = match kept.kind {
            RecoveryKind::Replaced => "replaced by",
            RecoveryKind::Late => "written after a write by",
            RecoveryKind::TakenBack => "rolled back, written by",
        };
        let (id, time, size) = (&kept.id, moment(kept.time), size(kept.size));
        let path = shown(view, kept.path.as_path());
        format!("{id}  {time}  {size:>9}  {path}  {why} `{}`", kept.replaced_by)
    };
    kept.iter().map(line).collect::<Vec<_>>().join("\n")
}
