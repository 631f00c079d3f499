//! Tasks in folders: a claim is a move, and the move decides.
//!
//! Every step of a task is taken under a kernel lock of that task's stripe, so the processes of all workspaces that share
//! the vault exclude each other. People and programs that know nothing of the lock only ever see atomic moves, and a move
//! never replaces anything. A step is written down before it is taken (`log`); if the process dies, the next one
//! finishes the step or rolls it back (`heal`).
//!
//! Invariants: the folder that a file is in is the task's state, whoever put it there; `.tollgate/` only explains it.

mod apply;
mod cache;
pub(crate) mod disk;
mod heal;
mod held;
mod layout;
mod log;
pub(crate) mod migrate;
mod scan;
mod store;
#[cfg(test)]
pub(crate) mod tests;
mod watch;

pub use self::layout::{FolderOptions, FolderStore};
