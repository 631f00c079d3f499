//! What becomes an exception: a refusal of the guard, a denial of the vault, or a fault.

use serde_json::{Value, json};
use tollgate::error::Fault;
use tollgate::guard::{Outcome, Refused};
use tollgate::vault::NotOwner;

/// The answer to a call.
pub type Answered<T> = Result<T, CallFailure>;

/// Why a call was not carried out. Nothing was changed.
#[derive(Debug)]
pub enum CallFailure {
    /// The guard refused it.
    Refused(Refused),
    /// The vault denied it: what programs see of the denial.
    Denied(Value),
    /// Something outside tollgate's rules went wrong.
    Fault(Fault),
}

impl CallFailure {
    /// The failure as the packages read it: `kind` is `refused`, `denied` or `fault`, `message` is a sentence, and `payload`
    /// is what the command line prints with `--json`.
    pub fn json(&self) -> Value {
        match self {
            Self::Refused(refused) => json!({
                "kind": "refused",
                "message": refused.to_string(),
                "payload": refused.payload(),
                "payloads": refused.payloads(),
                "reports": refused.reports(),
            }),
            Self::Denied(payload) => {
                json!({"kind": "denied", "message": payload["message"], "payload": payload})
            }
            Self::Fault(fault) => {
                let (message, hint) = (fault.to_string(), fault.hint());
                let mut payload = json!({"error": fault.code(), "message": message});
                if let Some(hint) = hint {
                    payload["hint"] = hint.into();
                }
                json!({"kind": "fault", "message": message, "payload": payload})
            }
        }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::Fault(Fault::invalid(what))
    }
}

impl From<Fault> for CallFailure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Refused> for CallFailure {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<NotOwner> for CallFailure {
    fn from(not_owner: NotOwner) -> Self {
        Self::Denied(not_owner.json())
    }
}

/// A refusal as a failure.
pub(crate) fn done<T>(outcome: Result<Outcome<T>, Fault>) -> Answered<T> {
    Ok(outcome?.into_result()?)
}
