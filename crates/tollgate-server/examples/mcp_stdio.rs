//! Serves a folder over stdio, and its tasks if it has a vault: `mcp_stdio [--agent NAME] [--fast] DIR`. The tests start it.

use tollgate::gate::Gate;
use tollgate::workspace::Workspace;
use tollgate_server::mcp::{ServedVault, Server, ServerOptions, serve_stdio};

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
    let options = ServerOptions { home: std::env::home_dir(), ..ServerOptions::new(agent.parse()?) };
    let mut server = Server::new(Gate::new(workspace.clone()), options);
    if let Some(tasks) = tollgate::tasks::open(&workspace, Default::default())? {
        server = server.with_tasks(ServedVault::new(tasks.vault, tasks.settle));
    }
    serve_stdio(&server)?;
    Ok(())
}
