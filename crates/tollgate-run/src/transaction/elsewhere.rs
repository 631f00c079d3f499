//! Transactions need Linux. Elsewhere, the answer says so.

use tollgate_base::error::Result;
use tollgate_guard::gate::Gate;
use tollgate_guard::turn::TurnState;

use crate::outcome::Attempt;
use crate::request::RunRequest;

const WHY_NOT: &str = "only Linux can give a command its own view of a folder";

/// There is none.
pub(crate) enum Transaction {}

impl Transaction {
    pub(crate) fn finish(self, _: &Gate, _: &dyn TurnState) -> Result<()> {
        match self {}
    }
}

pub(crate) fn why_not(_: &Gate) -> Result<Option<String>> {
    Ok(Some(WHY_NOT.to_owned()))
}

pub(crate) fn run(_: &Gate, _: &RunRequest<'_>) -> Result<Attempt> {
    Ok(Attempt::NotPossible(WHY_NOT.to_owned()))
}
