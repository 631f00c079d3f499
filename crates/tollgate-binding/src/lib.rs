//! What the packages for Python and TypeScript share: a workspace, turns, a vault and claims as handles that live in another
//! language.
//!
//! A handle can be used from several threads, and knows when it has ended. Calls block, so a package makes them outside of
//! its interpreter's lock or event loop. What a call answers is JSON with the keys of the command line, and a [`CallFailure`] is
//! what becomes an exception. The packages translate, and decide nothing.
//!
//! Unlike the library, this crate reads the environment: a program that imports tollgate must be held to what the command
//! `tollgate` is held to in the same place.

mod claim_handle;
mod environment;
mod failure;
mod open_claim;
mod own_process;
mod past;
mod turn_handle;
mod vault_handle;
mod workspace_handle;

pub use claim_handle::{ClaimEnd, ClaimHandle};
pub use failure::{Answered, CallFailure};
pub use past::PastSelection;
pub use turn_handle::{FileRead, TurnHandle};
pub use vault_handle::{Missing, VaultHandle};
pub use workspace_handle::WorkspaceHandle;
