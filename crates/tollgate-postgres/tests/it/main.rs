//! The store on real PostgreSQL servers that the tests start themselves.

mod conformance;
mod server;
