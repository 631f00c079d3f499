//! Tasks on etcd: one owner across any number of machines.
//!
//! [`EtcdStore`] implements [`tollgate_vault::Store`] with public API only. A step is one transaction: it compares the task with
//! the version that the rules have seen, and writes the task, its claim record and the ledger line of the step, all or nothing.
//! The line has the id of the step as its key, so a step whose answer was lost is recognised when it is taken again. etcd's
//! lock API is not used: a lock can be lost without its holder noticing, while a comparison cannot.
//!
//! # Who is alive
//!
//! A held claim has a key that is bound to the lease of its process; see `process_lease`. A leased claim has a lease of its own, whose
//! id is made from that of the claim. etcd's clock decides when a lease ends, and only etcd's: the clocks of machines may
//! differ by any amount.
//!
//! # What it is built on
//!
//! etcd's JSON gateway, over plain HTTP, with `ureq`: synchronous, and without the code generator and the C++ tools that a gRPC
//! client needs to be built. TLS is rustls with `ring`, which needs nothing but the C compiler that linking Rust programs needs
//! anyway (`aws-lc-rs` needs more tools on some platforms, OpenSSL must be installed). There are no built-in certificate
//! authorities: an etcd has its own, so `etcds://` names its file.
//!
//! # Invariants
//!
//! Every call has a deadline. Nothing is printed and no environment is read: the login is an option. Imports go one way: `store`, then
//! `checkup`, `format` and `steps`, then `feed`, `trim`, `readers`, `lines`, `shared_store`, then the rest.

mod addresses;
mod call_error;
mod checkup;
mod client;
mod feed;
mod format;
mod layout;
mod line_place;
mod lines;
mod liveness;
mod message;
mod node_failure;
mod node_report;
mod process_lease;
mod readers;
mod shared_store;
mod steps;
mod store;
mod tasks_of_name;
#[cfg(test)]
mod tests;
mod tls;
mod trim;
mod url;
mod version;
mod view;

pub use store::{EtcdOptions, EtcdStore};
pub use tls::Login;
pub use url::{EtcdUrl, TlsFiles};
