//! Other systems cannot ask a supervisor before they make a system call.

use tollgate_base::error::Result;
use tollgate_guard::gate::Gate;

use crate::level::RunLevel;
use crate::outcome::LevelAttempt;
use crate::request::RunRequest;

/// No level is known to the kernel.
pub(crate) fn level_here() -> Option<RunLevel> {
    None
}

/// No run has a door.
pub(crate) fn is_without_door() -> bool {
    false
}

/// Never.
pub(crate) fn why_not() -> Option<String> {
    Some("only Linux asks a supervisor before it makes a system call".to_owned())
}

pub(crate) fn run(_gate: &Gate, _request: &RunRequest<'_>) -> Result<LevelAttempt> {
    Ok(LevelAttempt::NotPossible(why_not().unwrap_or_default()))
}
