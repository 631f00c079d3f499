//! A transaction: the command runs in a private view of the workspace, and its changes are committed when it ends.

use std::path::Path;

use tollgate_base::error::{Fault, Result};
use tollgate_guard::gate::Gate;

use crate::{RunOutcome, RunRequest};

/// Why transactions are not possible here.
pub(crate) fn why_not(_workspace: &Path) -> Option<String> {
    Some("not supported yet".to_owned())
}

pub(crate) fn run(_gate: &Gate, _request: &RunRequest<'_>) -> Result<RunOutcome> {
    Err(Fault::invalid("transactions do not run commands yet"))
}
