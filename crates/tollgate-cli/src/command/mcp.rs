//! `tollgate mcp`: a file server for agents that speak the Model Context Protocol, over stdin and stdout.

use std::path::PathBuf;

use clap::Args;
use tollgate_server::mcp::{IDLE, Server, serve_stdio};

use crate::answer::{Answer, Stop};
use crate::door::Door;

/// Serve the workspace to one agent over MCP, on stdin and stdout
///
/// A drop-in for the reference filesystem server: the same tools, and no write is lost. The agent is named here and not
/// by its client. It ends when the client closes the connection.
#[derive(Debug, Args)]
#[command(after_help = "Example, in the MCP configuration of an agent program
  {\"mcpServers\": {\"files\": {\"command\": \"tollgate\", \"args\": [\"mcp\", \"--agent\", \"blue\", \"/path/to/project\"]}}}")]
pub(crate) struct Wish {
    /// The workspace, as with `-C`
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath, conflicts_with = "workspace")]
    folder: Option<PathBuf>,
}

pub(crate) fn run(door: &Door, wish: &Wish) -> Result<Answer, Stop> {
    let elsewhere = wish.folder.as_ref().map(|folder| door.elsewhere(folder));
    let door = elsewhere.as_ref().unwrap_or(door);
    serve_stdio(&Server::over(door.gate()?, door.agent()?, IDLE))?;
    Ok(Answer::Streamed)
}
