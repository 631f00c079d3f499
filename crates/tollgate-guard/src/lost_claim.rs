//! Refusing a change because the agent has lost the claim under which it works.

use crate::explain::object;
use crate::path::FilePath;
use crate::refusal::{Reason, Refusal};
use crate::request::Request;
use tollgate_base::error::Result;
use tollgate_base::settings::GuardMode;

/// The refusal of a change of this file, if the agent has lost a claim under which it works.
pub(crate) fn fenced(request: &Request<'_>, path: &FilePath) -> Result<Option<Refusal>> {
    let mode = request.root.settings().guard.mode;
    for fence in request.fences {
        if mode != GuardMode::Off
            && let Some(lost) = fence()?
        {
            return object(request, path, Reason::Fenced(lost));
        }
    }
    Ok(None)
}

/// The refusal if the claim was lost by now, just before the files are changed: staging large files takes time. If the settings only observe, the
/// loss is recorded already.
pub(crate) fn fenced_by_now(request: &Request<'_>, path: &FilePath) -> Result<Option<Refusal>> {
    match request.root.settings().guard.mode {
        GuardMode::Enforce => fenced(request, path),
        GuardMode::Observe | GuardMode::Off => Ok(None),
    }
}
