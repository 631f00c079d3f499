//! MCP over streamable HTTP: many clients at once, each with its own turns.
//!
//! A client of an older protocol has a session, which is a connection like that over stdio. A client of 2026-07-28 and
//! later has none: each call stands alone, and it holds on to its turn by `turn_id`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use super::Server;
use super::wire::Door;
use crate::visitor::Visitors;

/// As much as the content of a large source file many times over. A client that writes more uses stdio.
const LONGEST_REQUEST: usize = 64 << 20;

/// How often idle turns are looked for.
const ROUND: Duration = Duration::from_secs(60);

impl Server {
    /// A router with `/mcp`, for these visitors only. To be called inside a runtime, and once: its timers run there for
    /// as long as the runtime does.
    pub fn router(&self, visitors: &Visitors) -> Router {
        tokio::spawn(housekeeping(self.clone()));
        let mut session = SessionConfig::default();
        // A session that is forgotten takes the turn with it, and the client's next write would be unguarded.
        session.keep_alive = Some(self.0.turns.idle());
        let mut sessions = LocalSessionManager::default();
        sessions.session_config = session;
        let mut config = StreamableHttpServerConfig::default()
            // Who may come in is decided once, before this.
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_max_request_body_bytes(LONGEST_REQUEST);
        config.json_response = true;
        let server = self.clone();
        let service = StreamableHttpService::new(move || Ok(Door::new(&server)), Arc::new(sessions), config);
        visitors.guard(Router::new().route_service("/mcp", service))
    }
}

async fn housekeeping(server: Server) {
    let expire = async {
        let every = ROUND.min(server.0.turns.idle().max(Duration::from_millis(10)));
        loop {
            tokio::time::sleep(every).await;
            let server = server.clone();
            // A panic there is no reason to stop looking.
            let _ = tokio::task::spawn_blocking(move || server.expire()).await;
        }
    };
    tokio::select! {
        () = expire => {}
        () = server.second_looks() => {}
    }
}
