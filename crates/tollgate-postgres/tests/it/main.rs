//! The store on real PostgreSQL servers that the tests start themselves.

mod campaign;
mod conformance;
mod faults;
mod leases;
mod lost_answers;
mod order;
mod proxy;
mod server;
mod setup;
