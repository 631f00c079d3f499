//! Serves a folder over stdio: `mcp_stdio [--agent NAME] [--fast] DIR`. What the tests and benchmarks start.

use tollgate_server::mcp::{Options, Server, serve_stdio};

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
    let mut options = Options::new(&folder, agent.parse()?);
    if fast {
        let config = std::path::Path::new(&folder).join(".tollgate/config.toml");
        let mut settings = tollgate::workspace::read_settings(&config)?;
        settings.guard.durability = tollgate::settings::Durability::Fast;
        options.workspace.settings = Some(settings);
    }
    serve_stdio(&Server::open(options)?)?;
    Ok(())
}
