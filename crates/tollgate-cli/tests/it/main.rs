//! The command `tollgate`, run as a whole, in surroundings of its own.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod bad_input;
mod doctor;
mod files;
mod help;
mod hook;
mod init;
mod ledger;
mod readme;
mod recovery;
mod refusals;
mod script;
mod surroundings;
mod turn;
mod world;
