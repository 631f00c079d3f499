//! The server itself: bind, serve, stop.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use tokio::sync::watch;
use tollgate::error::{Fault, Result};
use tower::ServiceExt;

use crate::site::Site;
use crate::visitor::Visitors;
use crate::{accounts, dashboard, health, mcp, metrics};

/// When asked to stop, answers that are under way get so long.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Pages and figures wait for the disk, not for each other.
const BLOCKING_THREADS: usize = 32;

/// A server that has its address, and does not answer yet.
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    visitors: Visitors,
    stop: Stop,
}

/// Asks a server to stop, from any thread. Clones ask the same one.
#[derive(Clone)]
pub struct Stop(watch::Sender<bool>);

impl Stop {
    /// Lets what is under way finish, then ends.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Bound {
    /// Takes the address. `names` are more names that the server goes by, without port.
    pub fn new(
        listen: SocketAddr,
        names: impl IntoIterator<Item = String>,
        token: Option<String>,
    ) -> Result<Self> {
        let at = |source| Fault::Io { doing: "listen on", path: listen.to_string().into(), source };
        // Before the address is taken: who is told to come back with a token has taken nothing.
        let visitors = Visitors::new(listen, names, token)
            .map_err(|error| Fault::Invalid { what: error.to_string() })?;
        let listener = TcpListener::bind(listen).map_err(at)?;
        listener.set_nonblocking(true).map_err(at)?;
        let address = listener.local_addr().map_err(at)?;
        Ok(Self { listener, address, visitors, stop: Stop(watch::Sender::new(false)) })
    }

    /// Where it listens; the port is the real one also if any was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The way to stop it.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Serves until it is asked to stop. Blocks; makes its own runtime.
    pub fn run(self, site: Site) -> Result<()> {
        let fault = |source| Fault::Io { doing: "serve", path: self.address.to_string().into(), source };
        // One thread for the protocol: the work is done by the threads that may block, and an idle server stays small.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS)
            .build()
            .map_err(fault)?;
        let served = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            let telling = tokio::spawn(site.clone().watch_and_tell());
            let counting = tokio::spawn(accounts::keep(site.clone()));
            let looking = tokio::spawn(site.clone().second_looks());
            // All tasks are read once, before somebody waits for a page.
            let first = site.clone();
            tokio::task::spawn_blocking(move || first.board().map(drop));
            let mut asked = self.stop.0.subscribe();
            let mut asked_too = self.stop.0.subscribe();
            let closing = site.clone();
            let serving = axum::serve(listener, router(site, &self.visitors));
            let serving = serving.with_graceful_shutdown(async move {
                let _ = asked.wait_for(|stop| *stop).await;
                closing.feed.close();
            });
            let served = tokio::select! {
                served = serving.into_future() => served,
                // Who does not come to an end by then would keep the server for ever.
                () = async {
                    let _ = asked_too.wait_for(|stop| *stop).await;
                    tokio::time::sleep(LAST_WORDS).await;
                } => Ok(()),
            };
            for task in [telling, counting, looking] {
                task.abort();
            }
            served
        });
        runtime.shutdown_timeout(LAST_WORDS);
        served.map_err(fault)
    }
}

/// All routes, for these visitors only. To be called inside a runtime.
pub fn router(site: Site, visitors: &Visitors) -> Router {
    let agents = Agents { site: site.clone(), visitors: visitors.clone(), door: OnceLock::new().into() };
    let routes = Router::new()
        .route("/health", get(health::get))
        .route("/metrics", get(metrics::get))
        .merge(dashboard::router())
        .with_state(site)
        .merge(Router::new().route("/mcp", any(to_agents)).with_state(agents));
    visitors.guard(routes.layer(map_response(for_this_moment)))
}

/// What is told is true now, and is what it says it is.
async fn for_this_moment(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.entry(X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
    response
}

/// The door for agents, which opens with the workspace.
#[derive(Clone)]
struct Agents {
    site: Site,
    visitors: Visitors,
    door: Arc<OnceLock<(mcp::Server, Router)>>,
}

async fn to_agents(State(agents): State<Agents>, request: Request) -> Result<Response, Infallible> {
    let Ok(Some(open)) = agents.site.open() else {
        let sentence = "this folder is not set up: run `tollgate init` in it\n";
        return Ok((StatusCode::SERVICE_UNAVAILABLE, sentence).into_response());
    };
    let (server, router) = agents.door.get_or_init(|| {
        let server = mcp::Server::over(open.gate.clone(), agents.site.agent.clone(), mcp::IDLE);
        let router = server.router(&agents.visitors);
        (server, router)
    });
    // The vault may have been set up since.
    if let Some(found) = &open.vault {
        let settle = open.gate.workspace().settings().vault.settle.0;
        server.offer_tasks(|| mcp::Tasks::new(found.vault.clone(), settle));
    }
    router.clone().oneshot(request).await
}
