//! Serves a folder over stdio: `mcp_stdio [--agent NAME] [--fast] DIR`, with its tasks if it has a vault. What the tests start.

use std::time::Duration;

use tollgate::gate::Gate;
use tollgate::workspace::Workspace;
use tollgate_server::mcp::{IDLE, Server, Tasks, serve_stdio};

#[path = "shared/vault.rs"]
mod vault;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut agent = "agent".to_owned();
    let mut folder = ".".to_owned();
    let mut fast = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--agent" => agent = arguments.next().ok_or("--agent needs a name")?,
            "--fast" => fast = true,
            _ => folder = argument,
        }
    }
    let mut options = tollgate::workspace::Options::default();
    if fast {
        let config = std::path::Path::new(&folder).join(".tollgate/config.toml");
        let mut settings = tollgate::workspace::read_settings(&config)?;
        settings.guard.durability = tollgate::settings::Durability::Fast;
        options.settings = Some(settings);
    }
    let workspace = Workspace::open(&folder, options)?;
    let mut server = Server::over(Gate::new(workspace.clone()), agent.parse()?, IDLE);
    if workspace.path().join(&workspace.settings().vault.dir).is_dir() {
        server = server.with_tasks(Tasks::new(vault::open(&workspace)?, Duration::ZERO));
    }
    serve_stdio(&server)?;
    Ok(())
}
