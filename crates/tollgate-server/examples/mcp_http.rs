//! Serves a folder over HTTP, and its tasks if it has a vault: `mcp_http [--agent NAME] DIR`. It prints its address and
//! serves until it is stopped. It asks for no token, so every user of the machine can write the folder through it: use
//! `tollgate serve` for anything but a test.
#![allow(clippy::print_stdout, reason = "the program that starts it needs the port")]

use tollgate::gate::Gate;
use tollgate::workspace::Workspace;
use tollgate_server::hosts::Hosts;
use tollgate_server::mcp::{self, ServedVault, Server, ServerOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut agent = "agent".to_owned();
    let mut folder = ".".to_owned();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--agent" => agent = value()?,
            _ => folder = argument,
        }
    }
    let workspace = Workspace::open(folder, Default::default())?;
    let options = ServerOptions { home: std::env::home_dir(), ..ServerOptions::new(agent.parse()?) };
    let mut server = Server::new(Gate::new(workspace.clone()), options);
    if let Some(tasks) = tollgate::tasks::open(&workspace, Default::default())? {
        server = server.with_tasks(ServedVault::new(tasks.vault, tasks.settle));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let hosts = Hosts::new(address, []);
        println!("http://{address}/mcp");
        axum::serve(listener, hosts.guard(mcp::router(&server))).await?;
        Ok(())
    })
}
