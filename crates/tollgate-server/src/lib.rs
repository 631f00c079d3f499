//! The doors of tollgate that stay open: MCP over stdio and over HTTP, and the site of one workspace.
//!
//! The only crate with an asynchronous runtime. Whatever touches a file is a call of the synchronous library on a
//! thread that may block; nothing here decides what may be written.
//!
//! - [`mcp`]: the MCP server, a drop-in for the reference filesystem server.
//! - [`serve`]: the HTTP server; [`site`]: what its pages and endpoints share; [`feed`]: what happens, live.
//! - [`dashboard`]: pages for people; `health` and `metrics`: figures for programs.
//! - [`board`] and [`accounts`]: what they show, kept in memory by what the feed tells.
//! - [`visitor`]: who may come in over HTTP.

pub mod accounts;
pub mod board;
pub mod dashboard;
mod exposition;
pub mod feed;
mod health;
pub mod mcp;
mod metrics;
mod second_look;
pub mod serve;
pub mod site;
mod sums;
pub mod visitor;
