//! The store on real PostgreSQL servers that the tests start themselves.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test stops at the first surprise and says what it skips"
)]

mod campaign;
mod conformance;
mod cost;
mod faults;
mod leases;
mod lost_answers;
mod order;
mod proxy;
mod queue;
mod setup;
mod stores;
