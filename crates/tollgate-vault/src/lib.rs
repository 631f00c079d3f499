//! Tasks that at most one live owner works on at a time, over any store.
//!
//! [`Vault`] has the verbs: claim, verify, renew, release, approve, reclaim. They are written once, over the small trait
//! [`Store`]; this crate has two stores, [`FolderStore`] (a claim is a move of a file) and [`GitStore`] (a claim is a push
//! that a remote accepts). To write another, implement [`Store`] with public API only and run the `conformance` suite,
//! which is a feature of this crate.
//!
//! # A task's life
//!
//! ```
//! use std::sync::Arc;
//! use tollgate_vault::event::MemoryJournal;
//! use tollgate_vault::{ClaimKind, ClaimRequest, FolderOptions, FolderStore, Release, Terms, Vault};
//!
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! # let now = jiff::Timestamp::now();
//! let store = FolderStore::open(folder, FolderOptions::new(Arc::new(MemoryJournal::default())))?;
//! let vault = Vault::new(Arc::new(store), Terms::default());
//! vault.add(&"water-the-plants".parse()?, b"# Water the plants\n", now)?;
//!
//! let request = ClaimRequest { agent: "blue".parse()?, kind: ClaimKind::Leased, renamed_in: false };
//! // A denial (another agent was faster, for example) is an answer, not a fault: hence the two results.
//! let claimed = vault.claim(&"water-the-plants".parse()?, &request, now)??;
//! // ... work ...
//! let released = vault.release(&claimed.task, &claimed.claim.id, &Release::success(), now)?;
//! assert_eq!(released?.path, Some(folder.join("Done/water-the-plants.md")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//!
//! No clock, no environment, no printing: `now` is an argument. A denial is an answer ([`denial`]); a
//! [`Fault`](tollgate_base::error::Fault) is a fault. This crate knows nothing of the file guard.

pub mod anatomy;
pub mod block;
pub mod brief;
pub mod checkup;
pub mod claim;
pub mod claim_lock;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod copy;
pub mod deadline;
mod decisions;
pub mod denial;
pub mod event;
pub mod figures;
pub mod folder;
mod frontmatter;
pub mod git;
pub mod journal_copy;
pub mod new_task;
mod owner;
mod queue;
mod recent;
mod reclaim;
pub mod retry;
pub mod roles;
mod rules;
pub mod shown;
pub mod state;
pub mod step;
pub mod store;
mod vault;
pub mod view;
mod why;

pub use self::brief::Brief;
pub use self::claim::{Claim, ClaimRecord};
pub use self::claim_lock::ClaimLock;
pub use self::deadline::ClaimDeadlines;
pub use self::denial::{Allowed, Circle, Denial, DenialReason, NotOwner, Owned};
pub use self::folder::{FolderOptions, FolderStore};
pub use self::git::{GitOptions, GitStore};
pub use self::owner::{BEATS, ClaimKind, ClaimRequest, Claimed};
pub use self::queue::ClaimQueue;
pub use self::reclaim::{ReclaimedTask, Skipped};
pub use self::rules::{Release, Terms};
pub use self::step::{Step, StepOutcome};
pub use self::store::{Store, Task, TaskAfterStep, TaskSummary};
pub use self::vault::Vault;
pub use tollgate_base::name::{Agent, ClaimId, StepId};
pub use tollgate_base::task::{Mode, State, TaskName, Verdict};
