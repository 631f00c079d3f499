//! The files with which tollgate is installed: the script, the workflow of a release, the action, the plugin, the formula.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod files;
mod install;
#[path = "../export/tools.rs"]
mod tools;
#[path = "../it/world.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod world;
