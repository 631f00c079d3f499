//! Why a call to etcd has no answer, and what that means for a user.

use tollgate_base::error::Fault;

use crate::node_failure::{code, is_too_large};

/// Why a call has no answer.
#[derive(Debug)]
pub(crate) enum CallError {
    /// etcd said no, so nothing was changed.
    Refused { code: i64, message: String },
    /// No node could be reached, so nothing was changed.
    Unsent(Fault),
    /// The call was sent, and no answer came. It may have been carried out.
    Unanswered(Fault),
}

impl CallError {
    /// As a fault of the engine at this address.
    pub(crate) fn fault(self, shown: &str) -> Fault {
        let what = match self {
            Self::Unsent(fault) | Self::Unanswered(fault) => return fault,
            // What is too large now is too large later. Everything else may be allowed one day.
            Self::Refused { message, .. } if is_too_large(&message) => {
                return Fault::invalid(format!("`{shown}` answered: {message}"));
            }
            Self::Refused { message, .. } if message.contains("user name is empty") => {
                "it wants a user: set `TOLLGATE_STORE_USER` and `TOLLGATE_STORE_PASSWORD`, or for the other store of a \
                 copy `TOLLGATE_COPY_USER` and `TOLLGATE_COPY_PASSWORD`"
                    .to_owned()
            }
            Self::Refused { message, .. } if message.contains("CommonName") => format!(
                "it wants a login, and then it takes only a client certificate without a CommonName ({message})"
            ),
            Self::Refused { message, .. } => message,
        };
        Fault::RemoteRefused { remote: shown.to_owned(), what }
    }

    pub(crate) fn is_lease_gone(&self) -> bool {
        matches!(self, Self::Refused { code: code::NOT_FOUND, message } if message.contains("lease"))
    }
}

pub(crate) type CallResult<T> = Result<T, CallError>;
