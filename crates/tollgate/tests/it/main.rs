//! Tests of the library through its public API.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod bad_input;
mod contents;
mod fence;
mod healing;
mod links;
mod many_files;
mod merge;
mod metadata;
mod model;
mod mutated;
mod overlaps;
mod policy;
mod premises;
mod random;
mod recovery;
mod schemas;
mod spec_error;
mod spec_guard;
mod spec_turn;
mod supply_chain;
mod tidy;
mod tool_use;
mod turn_records;
mod world;
