//! The door of a run: how `tollgate` inside a run reaches the state and the tasks, which the command itself cannot change.
//!
//! The process in front of the run listens at a socket in the folder of the run. `tollgate` inside connects, and passes its
//! arguments and its three streams. For each call the front starts `tollgate` outside, with its own environment: neither the
//! command's view, nor its filter, nor its variables apply there. The answer is the exit code.
//!
//! Who may do what is decided by the process that is started, which knows that it works for a run.

mod carried_call;
#[cfg_attr(not(target_os = "linux"), path = "door/elsewhere.rs")]
pub(crate) mod socket;

pub use carried_call::CarriedCall;
pub use socket::{call, receive};

/// The variable that tells a command the folder of its run.
pub const FOLDER_VARIABLE: &str = "TOLLGATE_RUN_FOLDER";

/// The folder in that of a run where `tollgate` in the view keeps state: what it does there becomes part of the run.
pub const INNER: &str = "inner";
