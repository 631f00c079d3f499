//! Transactions need Linux. Elsewhere, the answer says so.

use tollgate_base::error::Result;
use tollgate_guard::gate::Gate;

use crate::outcome::LevelAttempt;
use crate::request::RunRequest;

const WHY_NOT: &str = "only Linux can give a command its own view of a folder";

pub(crate) fn why_not(_: &Gate) -> Result<Option<String>> {
    Ok(Some(WHY_NOT.to_owned()))
}

pub(crate) fn run(_: &Gate, _: &RunRequest<'_>) -> Result<LevelAttempt> {
    Ok(LevelAttempt::NotPossible(WHY_NOT.to_owned()))
}
