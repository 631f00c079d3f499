//! The command `tollgate`, run as a process in its own environment.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod bad_input;
mod contract;
mod crowd;
mod doctor;
mod files;
mod git;
mod help;
mod hook;
mod init;
mod ledger;
mod mcp;
mod mcp_setup;
mod old_state;
mod owners;
mod people;
mod readme;
mod recovery;
mod refusals;
mod run;
mod script;
mod security;
mod serve;
mod surroundings;
mod task;
mod task_bad_input;
mod task_crash;
mod task_rules;
mod terminal;
mod token;
mod trust;
mod turn;
mod work;
mod work_failures;
mod worktrees;
mod world;
