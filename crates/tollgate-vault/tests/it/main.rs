//! The vault, as crates outside of it use it: public API only.

#![allow(clippy::unwrap_used, reason = "tests may")]

mod copy;
mod deadlines;
mod lists;
mod memory;
mod model;
mod mutated;
mod outage;
mod pages;
mod view;
