//! Many agents, one workspace, nothing lost.
//!
//! tollgate lets several AI agents, and the people beside them, change the same files without overwriting each other.
//! It remembers the SHA-256 of every file an agent read in its [`turn`]; before a write it compares with the disk.
//! If the file was changed meanwhile, the write is refused with an exact machine-readable `STALE_FILE`, nothing on disk
//! changes, one line goes to the [`ledger`], and after a re-read the agent may write.
//!
//! The library is synchronous and silent: it prints nothing, reads no environment, and takes its clock from
//! [`Options`](workspace::Options).
//!
//! # Read, think, write
//!
//! ```
//! use tollgate::gate::Gate;
//! use tollgate::guard::{Expected, Outcome};
//! use tollgate::part::Part;
//! use tollgate::workspace::{Options, Workspace};
//!
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! std::fs::write(folder.join("notes.md"), "one\n")?;
//!
//! let gate = Gate::new(Workspace::open(folder, Options::default())?);
//! let turn = gate.begin_turn("blue".parse()?)?;
//! let Outcome::Done(read) = gate.read(&turn, "notes.md", Part::Whole)? else { panic!("refused") };
//!
//! // Somebody who knows nothing of tollgate saves the file while the agent thinks.
//! std::fs::write(folder.join("notes.md"), "two\n")?;
//!
//! let Outcome::Refused(refused) = gate.write(&turn, "notes.md", "ONE\n", Expected::Baseline)? else { panic!("lost") };
//! assert_eq!(refused.payload().expected_hash, Some(read.sha256));
//! assert_eq!(std::fs::read_to_string(folder.join("notes.md"))?, "two\n");
//!
//! // Read again, redo the change on what is there, write.
//! let Outcome::Done(read) = gate.read(&turn, "notes.md", Part::Whole)? else { panic!("refused") };
//! let text = String::from_utf8(read.bytes)?.to_uppercase();
//! let Outcome::Done(_) = gate.write(&turn, "notes.md", text, Expected::Baseline)? else { panic!("refused") };
//! assert_eq!(std::fs::read_to_string(folder.join("notes.md"))?, "TWO\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to look
//!
//! - [`gate`]: the calls that agents make, and the two around the tools of an agent's own program.
//! - [`folder`]: listing, making and moving folders; [`preview`]: what an edit would do.
//! - [`turn`]: what an agent saw first and knew last; [`shared_turn`]: the same for short-lived processes.
//! - [`refusal`]: the answer "no", for controllers and for agents.
//! - [`workspace`]: the folder, its settings and its state. [`settings`] lists what can be set.
//! - [`ledger`]: what happened, one line each, with a chain of hashes.
//! - [`recovery`]: the bytes that guarded writes replaced. [`conflict`]: what refused writes ran into.
//! - [`commit`]: how files are changed so that nothing is lost, step by step.
//!
//! # Limitations
//!
//! - Only what goes through the gate is guarded. A program that opens a file and blindly writes old content into it
//!   after a guarded write has overwritten that write; the next read shows it.
//! - A foreign program that resolved a path before a guarded write and writes after it has written into the replaced file.
//!   That cannot be prevented from user space. It is found a moment later, kept in recovery and reported in the ledger.
//! - While a guarded write is verified, a foreign save may make it swap back; for some microseconds the new bytes are
//!   visible at the path although the write is then refused or repeated.
//! - Readers that do not ask the gate can see some files of a many-file change before the others.
//! - Full protection needs Linux and a local file system. Elsewhere the weaker [`Guarantee`](commit::Guarantee) is
//!   written into each ledger line.

#[cfg(windows)]
compile_error!("tollgate does not support Windows yet: its promises need more than a rename there");

pub mod chronicle;
pub mod commit;
pub mod conflict;
pub mod deadline;
mod diff;
pub mod digest;
mod disk;
pub mod doctor;
pub mod edit;
pub mod error;
pub mod folder;
pub mod gate;
pub mod guard;
mod heal;
pub mod ledger;
pub mod lock;
pub mod name;
pub mod part;
pub mod path;
mod place;
pub mod preview;
pub mod probe;
pub mod recovery;
pub mod refusal;
mod reservation;
pub mod settings;
pub mod shared_turn;
mod stage;
mod sys;
pub mod turn;
pub mod vault;
pub mod workspace;

pub use heal::Swept;
