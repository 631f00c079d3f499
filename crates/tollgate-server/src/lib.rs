//! The long-running parts of tollgate: MCP over stdio and HTTP, and the dashboard of one workspace.
//!
//! This is the only crate with an asynchronous runtime. Every access to a file is a call of the synchronous library, on a
//! thread that may block. Nothing here decides what may be written.
//!
//! - [`mcp`]: the MCP server, a drop-in for the reference filesystem server.
//! - [`serve`]: the HTTP server; [`site`]: what its pages and endpoints share.
//! - [`access`]: who may visit what; [`hosts`]: which requests were meant for this server; [`secret`] and [`tokens`]: what
//!   visitors prove themselves with.
//! - [`workspace_provider`]: how the server gets its workspace; [`feed`]: what happens there, live.
//! - [`dashboard`]: pages for people; `health` and `metrics`: figures for programs, from one `snapshot`.
//! - [`notices`]: tells people that something needs them, by a command or a webhook.
//! - [`board`] and [`ledger_monitor`]: the tasks and the ledger, kept in memory; `watch` keeps them up to date.

pub mod access;
pub mod board;
mod connections;
pub mod dashboard;
mod exposition;
pub mod fault_response;
pub mod feed;
mod guesses;
mod health;
pub mod hosts;
mod late_write_check;
pub mod ledger_monitor;
pub mod mcp;
mod metrics;
pub mod notices;
pub mod secret;
pub mod serve;
pub mod site;
mod snapshot;
mod sums;
pub mod tokens;
mod trends;
mod watch;
pub mod workspace_provider;
