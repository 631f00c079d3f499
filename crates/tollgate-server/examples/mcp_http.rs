//! Serves a folder over HTTP, and its tasks if it has a vault: `mcp_http [--agent NAME] [--listen ADDRESS] [--token TOKEN]
//! DIR`. It prints its address and serves until it is stopped.
#![allow(clippy::print_stdout, reason = "the program that starts it needs the port")]

use tollgate::gate::Gate;
use tollgate::workspace::Workspace;
use tollgate_server::mcp::{self, Options, Server, Tasks};
use tollgate_server::visitor::Visitors;

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
    let workspace = Workspace::open(folder, Default::default())?;
    let options = Options { home: std::env::home_dir(), ..Options::new(agent.parse()?) };
    let mut server = Server::new(Gate::new(workspace.clone()), options);
    if let Some(tasks) = tollgate::tasks::open(&workspace, Default::default())? {
        server = server.with_tasks(Tasks::new(tasks.vault, tasks.settle));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let visitors = Visitors::new(address, [], token)?;
        println!("http://{address}/mcp");
        axum::serve(listener, mcp::router(&server, &visitors)).await?;
        Ok(())
    })
}
