//! Tasks in PostgreSQL: one owner at a time, for any number of machines.
//!
//! [`PostgresStore`] implements the trait [`Store`](tollgate_vault::Store) on PostgreSQL 14 or later. One schema holds one
//! vault: the tasks, the ledger, and the steps that were taken. tollgate creates the schema.
//!
//! ```no_run
//! use std::sync::Arc;
//! use tollgate_postgres::{PostgresOptions, PostgresStore};
//! use tollgate_vault::{Terms, Vault};
//!
//! let mut options = PostgresOptions::parse("postgres://db1,db2/work?schema=tollgate&ca=/etc/ssl/db.pem")?;
//! options.user = "tollgate".to_owned();
//! options.password = Some("from a safe place".to_owned());
//! let vault = Vault::new(Arc::new(PostgresStore::open(options)?), Terms::default());
//! # Ok::<(), tollgate_base::error::Fault>(())
//! ```
//!
//! # How it works
//!
//! - **One round trip per step.** A step is one call of one function in the database, and that is one transaction.
//! - **One order.** Steps run side by side, but a reader never gets a ledger line before the lines before it: writers share
//!   an advisory lock until their lines are visible, and a reader that misses a line takes it alone.
//! - **Lost answers.** The database remembers the ids of steps. If the connection breaks, the store connects again and sends
//!   the same step again, until the call's time is over: one effect, one ledger line.
//! - **One clock.** Leases are measured with the clock of the database. The store tells its caller when a lease ends by
//!   the caller's own clock, so the clocks of two machines are never compared.
//! - **Several servers.** The store uses the first host that accepts writes, so it follows when a standby is promoted.
//!
//! # Limitations
//!
//! If an asynchronous standby is promoted, steps that were acknowledged can be lost; the checkup warns about such standbys.
//! A pooler that shares connections between transactions (PgBouncer in transaction mode) does not work.
//!
//! # Invariants
//!
//! This crate prints nothing and reads no environment. It uses only the public API of `tollgate-vault`. Every call has a
//! deadline. The async runtime of the client runs only inside a call, on the caller's thread, and on the thread of a watch.

mod checkup;
mod fields;
mod held;
mod link;
mod listing;
mod options;
mod passfile;
mod pool;
mod probe;
mod queue;
mod schema;
mod store;
mod texts;
mod tls;
mod watch;

pub use options::{PostgresHost, PostgresOptions, PostgresTls};
pub use passfile::read_passfile;
pub use store::PostgresStore;
