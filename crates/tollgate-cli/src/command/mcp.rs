//! `tollgate mcp`: serves files and tasks to an agent over the Model Context Protocol, on stdin and stdout.

use std::path::PathBuf;

use clap::Args;
use tollgate_server::mcp::{ServedVault, Server, ServerOptions, serve_stdio};

use crate::answer::Answer;
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::output;
use crate::surroundings::Surroundings;
use crate::words;

/// Serve the workspace to one agent over MCP, on stdin and stdout
///
/// A drop-in replacement for the reference filesystem server: the same tools, without lost updates, and tools for tasks. Give
/// the agent's name here; the client cannot choose it. The server ends when the client closes the connection, and other agents
/// can then claim the tasks that were claimed over it.
#[derive(Debug, Args)]
#[command(after_help = "Example, in the MCP configuration of an agent program
  {\"mcpServers\": {\"files\": {
    \"command\": \"tollgate\",
    \"args\": [\"mcp\", \"--agent\", \"blue\", \"/path/to/project\"]}}}")]
pub(crate) struct McpArgs {
    /// Workspace, as with `-C`
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath, conflicts_with = "workspace")]
    folder: Option<PathBuf>,
}

pub(crate) fn run(invocation: &Invocation, args: &McpArgs) -> Result<Answer, CliError> {
    let elsewhere = args.folder.as_ref().map(|folder| invocation.elsewhere(folder));
    let invocation = elsewhere.as_ref().unwrap_or(invocation);
    let gate = invocation.gate()?;
    if let Some(root) = invocation.created() {
        // Now, because the server runs for a long time.
        output::tell(&words::created_state(root));
    }
    let tasks = invocation.tasks_of(gate.workspace())?;
    let agent = invocation.agent()?;
    let session = invocation.session(&gate, &agent)?;
    let options = ServerOptions { home: Surroundings::home(), session, ..ServerOptions::new(agent) };
    let again = invocation.elsewhere(&invocation.root()?.0);
    let mut server = Server::new(gate, options).reopened_by(move || again.gate());
    if let Some(tasks) = tasks {
        tasks.keep_in_touch()?;
        server = server
            .with_tasks(ServedVault::new(tasks.vault.clone(), tasks.settle).given(invocation.given_claim()?));
    }
    serve_stdio(&server)?;
    Ok(Answer::Streamed)
}
