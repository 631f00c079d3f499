//! Other systems cannot ask a supervisor before they make a system call.

use tollgate_base::error::Result;
use tollgate_guard::gate::Gate;

use crate::outcome::Attempt;
use crate::request::RunRequest;

/// Never.
pub(crate) fn why_not() -> Option<String> {
    Some("only Linux asks a supervisor before it makes a system call".to_owned())
}

pub(crate) fn run(_gate: &Gate, _request: &RunRequest<'_>) -> Result<Attempt> {
    Ok(Attempt::NotPossible(why_not().unwrap_or_default()))
}
