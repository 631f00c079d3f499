//! Many agents, one workspace, nothing lost.
//!
//! tollgate lets several AI agents, and the people beside them, work on the same files and the same list of tasks. It
//! makes two promises:
//!
//! 1. **No lost update.** A write never destroys a change that its author has not seen. tollgate remembers the SHA-256 of
//!    every file that an agent read in its [`turn`] and compares it with the disk before a write. If the file was changed
//!    in the meantime, the write is refused with an exact machine-readable `STALE_FILE`, nothing on disk changes, and one
//!    line goes to the [`ledger`]. After a re-read the agent may write.
//! 2. **One owner.** At most one live owner works on a task at a time. Tasks are Markdown files in a [`vault`]; the first
//!    agent to claim a task owns it. If the owner dies, other agents can claim the task again.
//!
//! The library is synchronous and silent: it prints nothing, reads no environment, and takes its clock from [`Options`]
//! or an argument.
//!
//! # Read, think, write
//!
//! ```
//! use tollgate::{Expected, Gate, Options, Part, Workspace};
//!
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! std::fs::write(folder.join("notes.md"), "one\n")?;
//!
//! let gate = Gate::new(Workspace::open(folder, Options::default())?);
//! let turn = gate.begin_turn("blue".parse()?)?;
//! let read = gate.read(&turn, "notes.md", Part::Whole)?.into_result()?;
//!
//! // A program that knows nothing of tollgate saves the file while the agent thinks.
//! std::fs::write(folder.join("notes.md"), "two\n")?;
//!
//! let refused = gate.write(&turn, "notes.md", "ONE\n", Expected::Baseline)?.into_result().unwrap_err();
//! assert_eq!(refused.payload().expected_hash, Some(read.sha256));
//! assert_eq!(std::fs::read_to_string(folder.join("notes.md"))?, "two\n");
//!
//! // Read again, redo the change on what is there, write.
//! let read = gate.read(&turn, "notes.md", Part::Whole)?.into_result()?;
//! let text = String::from_utf8(read.bytes)?.to_uppercase();
//! gate.write(&turn, "notes.md", text, Expected::Baseline)?.into_result()?;
//! assert_eq!(std::fs::read_to_string(folder.join("notes.md"))?, "TWO\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Claim, work, release
//!
//! ```
//! use tollgate::{ClaimKind, ClaimRequest, Options, Release, State, Workspace, tasks};
//!
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! let workspace = Workspace::open(folder, Options::default())?;
//! let vault = tasks::create(&workspace, Default::default())?.vault;
//! vault.add(&"water-the-plants".parse()?, b"# Water the plants\n", workspace.now())?;
//!
//! let request = |agent: &str| -> tollgate::Result<ClaimRequest> {
//!     Ok(ClaimRequest { agent: agent.parse()?, kind: ClaimKind::Leased, renamed_in: false })
//! };
//! let task = "water-the-plants".parse()?;
//! // A denial (another agent was faster, for example) is an answer, not a fault: hence the two results.
//! let claimed = vault.claim(&task, &request("blue")?, workspace.now())??;
//! // A second agent hears that the task has an owner.
//! let denied = vault.claim(&task, &request("red")?, workspace.now())?.unwrap_err();
//! assert_eq!(denied.to_string(), "`blue` has claimed `water-the-plants.md`");
//!
//! let landed = vault.release(&task, &claimed.claim.id, &Release::success(), workspace.now())??;
//! assert_eq!(landed.slot.state(), State::Done);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to look
//!
//! - [`gate`]: the calls that agents make, and the two around the tools of an agent's own program.
//! - [`tasks`]: opens the vault of a workspace; [`worktree`]: which workspace that is in a git worktree. [`vault`]: the verbs, and the trait to write a store of your own.
//! - [`fence`]: an agent that has lost its claim writes nothing more. [`trust`]: what the user has agreed to.
//! - [`turn`]: what an agent saw first and knew last; [`shared_turn`]: the same for short-lived processes.
//! - [`refusal`]: the answer "no", for controllers and for agents.
//! - [`workspace`]: the folder, its settings and its state. [`settings`] lists what can be set.
//! - [`event`]: everything that is recorded. [`ledger`]: the record, one line each, with a chain of hashes.
//! - [`audit`]: whether a ledger proves both promises.
//! - [`recovery`]: the bytes that guarded writes replaced. [`conflict`]: what refused writes ran into. [`content`]: all bytes that are kept, by their hash.
//! - [`overlap`]: who works here, and on which files several agents work; [`premise`]: a file that was changed after an agent had read it.
//! - [`unfinished_list`]: whose unfinished files are in a working tree. [`folder`]: listing folders. [`edit`], [`part`]: what to replace in a file, and what to read of it.
//! - [`commit`]: how files are changed so that nothing is lost, step by step.
//!
//! # Limitations
//!
//! - Only writes through the gate are guarded. Another program that overwrites a file without reading it destroys a guarded
//!   write; the next read shows it.
//! - Another program that resolved a path before a guarded write and writes after it writes into the replaced file. That
//!   cannot be prevented from user space. The late-write check finds it a moment later, keeps it in recovery and records it.
//! - While a guarded write is verified, a save by another program may make it swap back: for some microseconds the new
//!   bytes are visible at the path although the write is then refused or repeated.
//! - Programs that do not use the gate can see some files of a multi-file change before the others.
//! - Full protection needs Linux and a local file system. Elsewhere the weaker [`Guarantee`](commit::Guarantee) is
//!   written into each ledger line.

mod credentials;
pub mod fence;
mod ledger_journal;
mod machine;
mod postgres;
pub mod tasks;
pub mod trust;
mod vault_home;
pub mod worktree;

pub use tollgate_base::{audit, digest, error, event, ledger, name, settings, visible};
pub use tollgate_guard::{
    Swept, change_list, commit, conflict, content, edit, folder, gate, git_config, guard, history, merge,
    open_turn, overlap, own_commit, part, path, premise, protected, recovery, refusal, shared_turn, turn,
    unfinished_list, workspace,
};
pub use tollgate_vault as vault;

pub use tollgate_base::digest::Digest;
pub use tollgate_base::error::{Fault, Result};
pub use tollgate_base::event::Event;
pub use tollgate_base::ledger::Ledger;
pub use tollgate_base::name::{Agent, ClaimId, TurnId};
pub use tollgate_base::settings::Settings;
pub use tollgate_base::task::{State, TaskName};
pub use tollgate_guard::gate::Gate;
pub use tollgate_guard::guard::{Expected, Outcome, Refused};
pub use tollgate_guard::part::Part;
pub use tollgate_guard::refusal::Refusal;
pub use tollgate_guard::turn::Turn;
pub use tollgate_guard::workspace::{Options, Workspace};
pub use tollgate_vault::{
    Claim, ClaimKind, ClaimRequest, Claimed, Denial, NotOwner, Release, Store, Task, Vault,
};
