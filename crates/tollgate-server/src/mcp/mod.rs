//! The MCP server: the tools of the reference filesystem server, with every write through the gate.
//!
//! One connection is one agent with one running turn. [`serve_stdio`] serves one connection and returns when the client
//! closes it; [`router`] serves many clients over HTTP.
//!
//! Calls go one way: `service` (the protocol, by rmcp) -> `tools` (one table) -> `connection` (its turns and claims) ->
//! `server` -> the gate. Only `service`, `lines`, `http` and `sessions` know rmcp.

mod answer;
mod collate;
mod connection;
mod flexible;
mod glob;
mod http;
mod lines;
mod patch;
mod room;
mod server;
mod service;
mod sessions;
mod stdio;
mod tasks;
mod tools;
mod turns;

pub use http::router;
pub use server::{IDLE, Server, ServerOptions};
pub use service::serve;
pub use stdio::serve_stdio;
pub use tasks::ServedVault;
