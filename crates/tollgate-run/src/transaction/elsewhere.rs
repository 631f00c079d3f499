//! Transactions need Linux. Elsewhere, the answer says so.

use std::ffi::OsString;
use std::path::Path;

use tollgate_base::error::Result;
use tollgate_guard::gate::Gate;

use crate::outcome::{LevelAttempt, RunEnd};
use crate::request::RunRequest;

const WHY_NOT: &str = "only Linux can give a command its own view of a folder";

pub(crate) fn why_not(_: &Gate) -> Result<Option<String>> {
    Ok(Some(WHY_NOT.to_owned()))
}

pub(crate) fn run(_: &Gate, _: &RunRequest<'_>) -> Result<LevelAttempt> {
    Ok(LevelAttempt::NotPossible(WHY_NOT.to_owned()))
}

pub(crate) fn trial(_: &Gate, _: &[OsString], _: &Path) -> Result<std::result::Result<RunEnd, String>> {
    Ok(Err(WHY_NOT.to_owned()))
}
