//! `tollgate export`, as a process: every event arrives, in order, with the same id each time, whatever happens.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "../it/chance.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod chance;
mod endpoint;
mod formats;
mod kills;
mod lines;
mod memory;
mod peers;
mod receivers;
mod tools;
mod traces;
mod vaults;
#[path = "../it/world.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod world;
