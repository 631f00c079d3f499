//! The code that both promises of tollgate share: names, digests, faults, kernel locks, settings, events and the ledger.
//!
//! The guard (`tollgate-guard`) and the vault (`tollgate-vault`) build on this crate and do not depend on each other.
//! Programs depend on `tollgate`, which re-exports what they need.

pub mod audit;
pub mod authorities;
pub mod boot_clock;
pub mod digest;
mod durability;
pub mod error;
pub mod event;
pub mod file;
mod git_settings;
pub mod glob;
mod guard_settings;
mod history_settings;
pub mod ledger;
pub mod lock;
pub mod name;
mod notify_settings;
pub mod private;
pub mod program;
pub mod settings;
mod store_choice;
pub mod sys;
pub mod task;
pub mod tracked;
mod units;
mod vault_settings;
pub mod visible;
mod words;
pub mod working_tree;
