//! Serves a folder over HTTP: `mcp_http [--agent NAME] [--listen ADDRESS] [--token TOKEN] DIR`, with its tasks if it has a
//! vault. Says its address, then serves until it is stopped.
#![allow(clippy::print_stdout, reason = "who starts it needs the port")]

use std::time::Duration;

use tollgate::gate::Gate;
use tollgate::workspace::{Options, Workspace};
use tollgate_server::mcp::{IDLE, Server, Tasks};
use tollgate_server::visitor::Visitors;

#[path = "shared/vault.rs"]
mod vault;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut agent = "agent".to_owned();
    let mut folder = ".".to_owned();
    let mut listen = "127.0.0.1:0".to_owned();
    let mut token = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--agent" => agent = value()?,
            "--listen" => listen = value()?,
            "--token" => token = Some(value()?),
            _ => folder = argument,
        }
    }
    let workspace = Workspace::open(folder, Options::default())?;
    let mut server = Server::over(Gate::new(workspace.clone()), agent.parse()?, IDLE);
    if workspace.path().join(&workspace.settings().vault.dir).is_dir() {
        server = server.with_tasks(Tasks::new(vault::open(&workspace)?, Duration::ZERO));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let visitors = Visitors::new(address, [], token)?;
        println!("http://{address}/mcp");
        axum::serve(listener, server.router(&visitors)).await?;
        Ok(())
    })
}
