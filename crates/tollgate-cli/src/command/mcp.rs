//! `tollgate mcp`: a file server for agents that speak the Model Context Protocol, over stdin and stdout.

use std::path::PathBuf;

use clap::Args;
use tollgate_server::mcp::{IDLE, Server, Tasks, serve_stdio};

use crate::answer::{Answer, Stop};
use crate::door::Door;

/// Serve the workspace to one agent over MCP, on stdin and stdout
///
/// A drop-in for the reference filesystem server: the same tools, and no write is lost; and tools for tasks. The agent is
/// named here and not by its client. It ends when the client closes the connection, and what the agent has claimed over it is
/// then free for others.
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
    let gate = door.gate()?;
    let tasks = door.tasks_of(gate.workspace())?;
    let mut server = Server::over(gate, door.agent()?, IDLE);
    if let Some(tasks) = tasks {
        tasks.keep_in_touch();
        server = server.with_tasks(Tasks::new(tasks.vault, tasks.settle).given(door.given_claim()?));
    }
    serve_stdio(&server)?;
    Ok(Answer::Streamed)
}
