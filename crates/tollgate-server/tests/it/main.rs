//! The MCP server as its clients see it, and the site.
#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::needless_pass_by_value, reason = "tests")]

mod bounds;
mod clients;
mod concurrency;
mod http;
mod install;
mod limits;
mod malformed;
mod mutated;
mod refusals;
mod side_by_side;
mod site;
mod tasks;
mod tools;
mod turns;
mod world;
