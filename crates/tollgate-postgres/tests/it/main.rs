//! The store on real PostgreSQL servers that the tests start themselves.

mod campaign;
mod conformance;
mod faults;
mod proxy;
mod server;
