//! MCP over streamable HTTP: many clients at once, each with its own turns.
//!
//! A client of an older protocol has a session, which is a connection like the one over stdio. From 2026-07-28 on, the
//! protocol has no sessions: each call stands alone, and the client names its turn with `turn_id`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use super::server::Server;
use super::service::ClientService;
use super::sessions::Sessions;

/// Many times the size of a large source file. A client that has to write more can use stdio.
const LONGEST_REQUEST: usize = 64 << 20;

/// The time between two searches for idle turns.
const ROUND: Duration = Duration::from_secs(60);

/// A router with `/mcp`. It lets everybody in, so the caller must guard it. Call it once, inside a runtime: its timers run
/// there for as long as the runtime does.
pub fn router(server: &Server) -> Router {
    tokio::spawn(housekeeping(server.clone()));
    let sessions = Sessions::new(server.turns().idle());
    let mut config = StreamableHttpServerConfig::default()
        // `Hosts` checks these, for all routes alike.
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_max_request_body_bytes(LONGEST_REQUEST);
    config.json_response = true;
    let server = server.clone();
    let service =
        StreamableHttpService::new(move || Ok(ClientService::new(&server)), Arc::new(sessions), config);
    Router::new().route_service("/mcp", service)
}

async fn housekeeping(server: Server) {
    let expire = async {
        let every = ROUND.min(server.turns().idle().max(Duration::from_millis(10)));
        loop {
            tokio::time::sleep(every).await;
            let server = server.clone();
            // A panic there must not end this loop.
            let _ = tokio::task::spawn_blocking(move || server.expire()).await;
        }
    };
    tokio::select! {
        () = expire => {}
        () = server.late_write_checks() => {}
    }
}
