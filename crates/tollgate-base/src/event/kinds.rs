//! The one list of events: from it come the enum, the words of [`ActionType`], writing and reading.

use std::fmt;
use std::str::FromStr;

use serde::de::Deserializer;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::error::{Fault, Result};
use crate::task::State;

use super::files::{
    ErrorType, FileChanged, FolderMoved, LateWrite, Mutation, MutationStatus, RefusalStatus, ReservationVoid,
    TailMoved, TurnMark, WriteRefused,
};
use super::tasks::{
    ClaimFailed, ClaimLost, ClaimRenewed, TaskClaimed, TaskDecided, TaskReclaimed, TaskReleased,
};
use super::words::words;

/// The result of an event, written: a status that follows from the payload, or the keys that vary.
macro_rules! write_result {
    ($parts:ident, $payload:ident; => $status:expr) => {
        $parts.serialize_field("result", &Status { status: status($payload, $status) })?;
    };
    ($parts:ident, $payload:ident; $($key:ident: $type:ty),+) => {
        #[derive(Serialize)]
        struct Varies<'a> {
            $($key: &'a $type,)+
        }
        $parts.serialize_field("result", &Varies { $($key),+ })?;
    };
}

/// The result of an event, read and checked.
macro_rules! read_result {
    ($payload:ident, $result:ident; => $status:expr) => {
        if Status::<&str>::deserialize($result).ok()?.status != status(&$payload, $status) {
            return None;
        }
    };
    ($payload:ident, $result:ident; $($key:ident: $type:ty),+) => {
        #[derive(Deserialize)]
        struct Varies {
            $($key: $type,)+
        }
        let Varies { $($key),+ } = Varies::deserialize($result).ok()?;
    };
}

/// Each line: the variant, its payload, the keys of its result if they vary, the word of its type, and `=>` the
/// status if it follows from the payload.
macro_rules! events {
    ($(
        $(#[$doc:meta])*
        $name:ident($payload:ty $(, $key:ident: $type:ty)*) = $word:literal $(=> $status:expr)?;
    )*) => {
        /// One thing that happened.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Event {
            $($(#[$doc])* $name($payload $(, $type)*),)*
            /// A line that a later version wrote, or that is not as any version writes it.
            Other {
                /// Its type.
                action_type: String,
                /// What was asked for.
                payload: Value,
                /// What came of it.
                result: Value,
            },
        }

        words! {
            /// The types of events that this version writes.
            ActionType { $($(#[$doc])* $name = $word,)* }
        }

        impl Event {
            /// The type, as it stands in the ledger.
            pub fn action_type(&self) -> &str {
                match self {
                    $(Self::$name(..) => $word,)*
                    Self::Other { action_type, .. } => action_type,
                }
            }

            /// The words of the result: the status, and the type of error if there is one.
            pub fn result_words(&self) -> Vec<&str> {
                match self {
                    $(Self::$name(_payload $(, $key)*) => {
                        vec![$($key.as_str(),)* $(status(_payload, $status))?]
                    })*
                    Self::Other { result, .. } => {
                        ["status", "error_type"].iter().filter_map(|key| result[key].as_str()).collect()
                    }
                }
            }

            /// `None` if it is not as this version writes it.
            pub(crate) fn read<'de, D>(action_type: &str, payload: D, result: D) -> Option<Self>
            where
                D: Deserializer<'de> + Copy,
            {
                match action_type {
                    $($word => {
                        let payload = <$payload>::deserialize(payload).ok()?;
                        read_result!(payload, result; $($key: $type),* $(=> $status)?);
                        Some(Self::$name(payload $(, $key)*))
                    })*
                    _ => None,
                }
            }
        }

        impl Serialize for Event {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut parts = serializer.serialize_struct("Event", 3)?;
                parts.serialize_field("action_type", self.action_type())?;
                match self {
                    $(Self::$name(payload $(, $key)*) => {
                        parts.serialize_field("payload", payload)?;
                        write_result!(parts, payload; $($key: $type),* $(=> $status)?);
                    })*
                    Self::Other { payload, result, .. } => {
                        parts.serialize_field("payload", payload)?;
                        parts.serialize_field("result", result)?;
                    }
                }
                parts.end()
            }
        }
    };
}

events! {
    /// A write was refused because the file is stale.
    MutationConflict(WriteRefused, status: RefusalStatus, error_type: ErrorType) = "MUTATION_CONFLICT";
    /// A write was refused for another reason.
    MutationRefused(WriteRefused, status: RefusalStatus, error_type: ErrorType) = "MUTATION_REFUSED";
    /// A file or a folder was changed; or a change that had a line was rolled back.
    Mutation(Mutation, status: MutationStatus) = "MUTATION";
    /// Another program wrote into a file after the file had been replaced.
    LateExternalWrite(LateWrite) = "LATE_EXTERNAL_WRITE" => |_| "KEPT";
    /// A tool call did not report its end in time, so its reservation is void.
    ReservationExpired(ReservationVoid) = "RESERVATION_EXPIRED" => |_| "EXPIRED";
    /// A task was claimed.
    Claim(TaskClaimed) = "CLAIM" => |_| "CLAIMED";
    /// Another agent claimed the task first.
    ClaimLost(ClaimLost) = "CLAIM_LOST" => |_| "LOST";
    /// A claim ended in an error.
    ClaimFailed(ClaimFailed) = "CLAIM_FAILED" => |_| "FAILED";
    /// The lease of a claim was extended.
    Renew(ClaimRenewed) = "RENEW" => |_| "RENEWED";
    /// The owner released a task, which is in this state now.
    Release(TaskReleased, status: State) = "RELEASE";
    /// A person decided about a task, or an approval became void.
    Approval(TaskDecided) = "APPROVAL" => TaskDecided::status;
    /// A task was taken from an owner who is gone, or a claim was rolled back. The task is in this state now.
    Reclaim(TaskReclaimed, status: State) = "RECLAIM";
    /// A turn began.
    TurnStarted(TurnMark) = "TURN_STARTED" => |_| "OK";
    /// A turn ended.
    TurnEnded(TurnMark) = "TURN_ENDED" => |_| "OK";
    /// A damaged end of the ledger was moved to a file of its own.
    LedgerHealed(TailMoved) = "LEDGER_HEALED" => |_| "HEALED";
}

/// A result that is a status and nothing else.
#[derive(Serialize, Deserialize)]
struct Status<S> {
    status: S,
}

fn status<P>(payload: &P, of: impl Fn(&P) -> &'static str) -> &'static str {
    of(payload)
}

impl Event {
    /// The names by which a line is found again.
    pub fn keys(&self) -> Keys<'_> {
        match self {
            Self::Claim(TaskClaimed { task, step, .. })
            | Self::ClaimLost(ClaimLost { task, step, .. })
            | Self::ClaimFailed(ClaimFailed { task, step, .. })
            | Self::Renew(ClaimRenewed { task, step, .. })
            | Self::Release(TaskReleased { task, step, .. }, _)
            | Self::Approval(TaskDecided { task, step, .. })
            | Self::Reclaim(TaskReclaimed { task, step, .. }, _) => {
                Keys { change: None, task: Some(task.as_str()), step: Some(step.as_str()) }
            }
            Self::Mutation(
                Mutation::File(FileChanged { id, .. }) | Mutation::Folder(FolderMoved { id, .. }),
                _,
            ) => Keys { change: Some(id), task: None, step: None },
            Self::Other { payload, .. } => Keys {
                change: payload["id"].as_str(),
                task: payload["task"].as_str(),
                step: payload["step"].as_str(),
            },
            Self::MutationConflict(..)
            | Self::MutationRefused(..)
            | Self::LateExternalWrite(_)
            | Self::ReservationExpired(_)
            | Self::TurnStarted(_)
            | Self::TurnEnded(_)
            | Self::LedgerHealed(_) => Keys { change: None, task: None, step: None },
        }
    }
}

/// The names by which a line is found again. A line of a later version has those that are where ours would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keys<'a> {
    /// The id of a change of a file or folder.
    pub change: Option<&'a str>,
    /// The task, by the name of its file.
    pub task: Option<&'a str>,
    /// The step of the task.
    pub step: Option<&'a str>,
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Parts {
            action_type: String,
            payload: Value,
            result: Value,
        }
        let Parts { action_type, payload, result } = Parts::deserialize(deserializer)?;
        let known = Self::read(&action_type, &payload, &result);
        Ok(known.unwrap_or(Self::Other { action_type, payload, result }))
    }
}

impl fmt::Display for ActionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for ActionType {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.iter().copied().find(|known| known.as_str() == text).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|known| known.as_str()).collect();
            Fault::invalid(format!(
                "`{}` is not a type of ledger line: {}",
                text.escape_debug(),
                known.join(", ")
            ))
        })
    }
}
