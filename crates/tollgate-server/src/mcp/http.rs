//! MCP over streamable HTTP: many clients at once, each with its own turns.
//!
//! A client of an older protocol has a session, which is a connection like the one over stdio. From 2026-07-28 on, the
//! protocol has no sessions: each call stands alone, and the client names its turn with `turn_id`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use super::room::{self, LONGEST, MOST_VALUES, Space};
use super::server::Server;
use super::service::ClientService;
use super::sessions::Sessions;
use crate::connections::keeping;

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
        .with_max_request_body_bytes(LONGEST);
    config.json_response = true;
    let server = server.clone();
    let service =
        StreamableHttpService::new(move || Ok(ClientService::new(&server)), Arc::new(sessions), config);
    Router::new().route_service("/mcp", service).layer(from_fn_with_state(Space::new(), with_room))
}

/// Reads a request when there is room for it, and keeps the room until the client has taken the answer.
async fn with_room(State(space): State<Space>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    // A client that does not say how much it will send may send the most.
    let size = body.size_hint().upper().and_then(|size| usize::try_from(size).ok()).unwrap_or(LONGEST);
    let Some(room) = space.enter(size).await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let too_large = |what: String| {
        (StatusCode::PAYLOAD_TOO_LARGE, format!("the request has more than {what}\n")).into_response()
    };
    // Fails, too, if the client ends the connection or pauses for too long. Then nobody reads the answer.
    let Ok(body) = to_bytes(body, LONGEST).await else { return too_large(format!("{} MiB", LONGEST >> 20)) };
    if room::size(&body).is_none() {
        return too_large(format!("{MOST_VALUES} values"));
    }
    parts.extensions.insert(room.clone());
    keeping(next.run(Request::from_parts(parts, Body::from(body))).await, room)
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
