//! MCP over standard input and output: one client, one process.

use std::time::Duration;

use tollgate::error::{Fault, Result};

use super::room::CALLS;
use super::server::Server;
use super::service;

/// Running calls take a thread each. The rest is for standard input and output, for checks, and for the end of a connection.
const BLOCKING_THREADS: usize = CALLS + 8;

/// Serves one client on standard input and output, until the client closes the connection or the process gets SIGTERM.
/// Blocks; creates its own runtime.
pub fn serve_stdio(server: &Server) -> Result<()> {
    // One thread for the protocol is enough: blocking threads do the work, and an idle server stays small.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_keep_alive(Duration::from_secs(5))
        .build()
        .map_err(|source| fault("start the runtime of", source))?;
    let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
    let served = runtime.block_on(service::serve_until(server, input, output, terminated()));
    // A read of standard input cannot be cancelled, so do not wait for its thread. `serve_until` has waited for the calls.
    runtime.shutdown_background();
    served.map_err(|source| fault("serve", source))
}

/// Waits for SIGTERM. Most clients send it before they kill the server, so that its turns can end and its tasks are free.
async fn terminated() {
    let Ok(mut signal) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    signal.recv().await;
}

fn fault(doing: &'static str, source: std::io::Error) -> Fault {
    Fault::Io { doing, path: "stdio".into(), source }
}
