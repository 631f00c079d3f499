//! What an agent is told beside the answer to a call: changes of files that it has read, and other agents on the same files.
//!
//! Each thing is told once in a turn. The words are the same through every door.

use std::path::Path;

use crate::open_turn;
use crate::overlap;
use crate::premises;
use crate::root::Root;
use crate::turn::TurnState;
use tollgate_base::error::Result;
use tollgate_base::settings::{GuardMode, Premises};

/// The number of changed files that one answer names. A switch of the branch changes hundreds.
const FILES: usize = 10;

/// After this number of bytes, files are named without their diffs. Some programs cut what is longer than 10,000.
const DIFFS: usize = 3000;

/// What an agent should hear now; empty if there is nothing.
pub(crate) fn notes(root: &Root, turn: &dyn TurnState, folder: &Path) -> Result<String> {
    let settings = &root.settings().guard;
    if settings.mode != GuardMode::Enforce {
        return Ok(String::new());
    }
    let Some(open) = open_turn::load(&root.state_path(), turn.id())? else { return Ok(String::new()) };
    let changed = match settings.premises {
        Premises::Off => Vec::new(),
        Premises::Note | Premises::Refuse => premises::news(root, turn, &open)?,
    };
    let now = root.now();
    let shown = |path: &Path| path.strip_prefix(folder).unwrap_or(path).to_string_lossy().into_owned();
    let mut notes: Vec<String> = Vec::new();
    let mut length = 0;
    for premise in changed.iter().take(FILES) {
        let path = shown(premise.path.as_path());
        notes.push(match length < DIFFS {
            true => premise.note(&path, now),
            false => format!("note: {}", premise.sentence(&path, now)),
        });
        length += notes.last().map_or(0, String::len);
    }
    if changed.len() > FILES {
        let more = changed.len() - FILES;
        notes.push(format!("note: {more} more files that you have read in this turn were changed by others"));
    }
    if settings.premises == Premises::Refuse && !changed.is_empty() {
        notes.push("hint: read them again; until then, every write of yours is refused".to_owned());
    }
    notes.extend(overlap::news(root, &open, &changed, folder)?);
    Ok(notes.join("\n"))
}
