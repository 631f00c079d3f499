//! The doors of tollgate that stay open: MCP over stdio and over HTTP.
//!
//! The only crate with an asynchronous runtime. Whatever touches a file is a call of the synchronous library on a
//! thread that may block; nothing here decides what may be written.
//!
//! - [`mcp`]: the MCP server, a drop-in for the reference filesystem server.
//! - [`visitor`]: who may come in over HTTP.

pub mod mcp;
pub mod visitor;
