//! Shared by the commands that change files: makes the change and answers with it.

use serde_json::Value;
use tollgate::commit::AppliedChange;
use tollgate::error::Result;
use tollgate::gate::Gate;
use tollgate::guard::Outcome;
use tollgate::turn::TurnState;

use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::report::change::ChangeVerb;
use crate::words;

/// Makes changes through the gate, in the given turn or in a new one, and answers with them.
pub(crate) fn change(
    invocation: &Invocation,
    verb: ChangeVerb,
    make: impl FnOnce(&Gate, &dyn TurnState) -> Result<Outcome<Vec<AppliedChange>>>,
    json: impl FnOnce(&[AppliedChange]) -> Value,
) -> Result<Answer, CliError> {
    let gate = invocation.gate()?;
    let turn = invocation.turn(&gate)?;
    match make(&gate, turn.as_ref())? {
        Outcome::Done(applied) => {
            // The change is made. If this sweep fails, the next one does its work.
            let _ = gate.workspace().sweep();
            let view = invocation.viewpoint();
            Ok(Answer::Done(Reply {
                words: words::applied(&view, verb, &applied),
                notes: match invocation.inner_state() {
                    // The run commits the change, with its own guarantee.
                    Some(_) => String::new(),
                    None => words::weaker_guarantees(&view, &applied),
                },
                json: json(&applied),
            }))
        }
        Outcome::Refused(refused) => Ok(Answer::Refused(refused)),
    }
}

pub(crate) fn change_one(
    invocation: &Invocation,
    verb: ChangeVerb,
    make: impl FnOnce(&Gate, &dyn TurnState) -> Result<Outcome<AppliedChange>>,
) -> Result<Answer, CliError> {
    let make = |gate: &Gate, turn: &dyn TurnState| Ok(make(gate, turn)?.map(|applied| vec![applied]));
    change(invocation, verb, make, |applied| applied.first().map_or(Value::Null, AppliedChange::json))
}
