//! The HTTP server: bind, serve, stop.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Router};
use tokio::sync::{Mutex, watch};
use tollgate::error::{Fault, Result};
use tollgate::name::Agent;
use tower::ServiceExt;

use crate::access::{Access, Credentials, Visitor};
use crate::connections::{self, Limits};
use crate::fault_response::FaultResponse;
use crate::site::Site;
use crate::workspace_provider::OpenWorkspace;
use crate::{dashboard, health, mcp, metrics, notices};

/// After a stop request, running requests have this long to finish.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// The number of requests that may wait for the disk at the same time.
const BLOCKING_THREADS: usize = 32;

/// A server that has its address but does not answer yet.
pub struct BoundServer {
    listener: TcpListener,
    address: SocketAddr,
    access: Arc<Access>,
    stop: Stop,
}

/// Stops a server, from any thread. Clones stop the same server.
#[derive(Clone)]
pub struct Stop(watch::Sender<bool>);

impl Stop {
    /// Lets running requests finish, then stops the server.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl BoundServer {
    /// Binds the address. `names` are additional host names of the server, without a port.
    pub fn new(
        listen: SocketAddr,
        names: impl IntoIterator<Item = String>,
        credentials: Credentials,
    ) -> Result<Self> {
        let at = |source| Fault::Io { doing: "listen on", path: listen.to_string().into(), source };
        let listener = TcpListener::bind(listen).map_err(at)?;
        listener.set_nonblocking(true).map_err(at)?;
        let address = listener.local_addr().map_err(at)?;
        let access = Arc::new(Access::new(address, names, credentials));
        Ok(Self { listener, address, access, stop: Stop(watch::Sender::new(false)) })
    }

    /// The address it listens on, with the real port even if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A handle that stops the server.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Serves until it is stopped. Blocks; creates its own runtime.
    pub fn run(self, site: Site) -> Result<()> {
        let fault = |source| Fault::Io { doing: "serve", path: self.address.to_string().into(), source };
        // One thread for the protocol is enough: blocking threads do the work, and an idle server stays small.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS)
            .build()
            .map_err(fault)?;
        let served = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            let feeding = tokio::spawn(site.clone().feed_changes());
            let following = tokio::spawn(site.clone().follow_ledger());
            let checking = tokio::spawn(site.clone().late_write_checks());
            // Before the first request is answered: what happens after it is told.
            let telling = notices::start(site.clone()).await.map(tokio::spawn);
            // Read all tasks now, so that the first page does not have to wait for it.
            let first = site.clone();
            tokio::task::spawn_blocking(move || first.board().map(drop));
            let mut stop_again = self.stop.0.subscribe();
            let closing = site.clone();
            let (mut stop_pages, pages) = (self.stop.0.subscribe(), closing.clone());
            tokio::spawn(async move {
                let _ = stop_pages.wait_for(|stop| *stop).await;
                // Now, because open pages would keep their connections.
                pages.feed.close();
            });
            let serving = connections::serve(
                listener,
                router(site, self.access),
                Limits::of_this_process(),
                self.stop.0.subscribe(),
            );
            tokio::select! {
                () = serving => {}
                // Without this limit, one endless request would keep the server running.
                () = async {
                    let _ = stop_again.wait_for(|stop| *stop).await;
                    tokio::time::sleep(STOP_TIMEOUT).await;
                } => {}
            }
            // Again, because without connections the task above may not have run.
            closing.feed.close();
            for task in [feeding, following, checking].into_iter().chain(telling) {
                task.abort();
            }
            Ok(())
        });
        runtime.shutdown_timeout(STOP_TIMEOUT);
        served.map_err(fault)
    }
}

/// All routes, for visitors who may visit them.
fn router(site: Site, access: Arc<Access>) -> Router {
    let endpoint = McpEndpoint { site: site.clone(), servers: Arc::default() };
    let routes = Router::new()
        .route("/health", get(health::get))
        .route("/metrics", get(metrics::get))
        .merge(dashboard::router())
        .with_state(site)
        .merge(Router::new().route("/mcp", any(mcp_request)).with_state(endpoint));
    access.guard(routes.layer(map_response(add_headers)))
}

/// Responses are valid only now, and browsers must not guess their type.
async fn add_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.entry(X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
    response
}

/// The `/mcp` endpoint. Each agent has its own server: its own turns, its own sessions, and its own protected paths.
#[derive(Clone)]
struct McpEndpoint {
    site: Site,
    servers: Arc<Mutex<HashMap<Agent, ServerEntry>>>,
}

/// The server of an agent. Created when the agent first calls, once the workspace is open. Each has a lock of its own: opening a
/// gate may take time, and other agents do not wait for it.
type ServerEntry = Arc<Mutex<Option<AgentServer>>>;

/// The server of one agent.
struct AgentServer {
    server: mcp::Server,
    router: Router,
    /// The workspace as it was open when the server got its gate and its vault. The site opens it again when the settings
    /// change.
    follows: Weak<OpenWorkspace>,
}

impl McpEndpoint {
    /// The routes of an agent's server, which has the gate and the vault of the workspace as it is open now. `None` where
    /// tollgate is not set up.
    async fn router_of(&self, agent: &Agent) -> Result<Option<Router>, FaultResponse> {
        let server = self.servers.lock().await.entry(agent.clone()).or_default().clone();
        // Before the look at the site: of two requests, the later must not bring back an older gate.
        let mut server = server.lock().await;
        let Some(open) = self.site.open()? else { return Ok(None) };
        let follows = Arc::downgrade(&open);
        if let Some(known) = server.as_ref().filter(|known| known.follows.ptr_eq(&follows)) {
            return Ok(Some(known.router.clone()));
        }
        let named = agent.clone();
        let gate = self.site.blocking(move |site| site.gate_of(&named)).await?;
        let known = server.get_or_insert_with(|| {
            let home = self.site.options.home.clone();
            let options = mcp::ServerOptions { home, ..mcp::ServerOptions::new(agent.clone()) };
            let server = mcp::Server::new(gate.clone(), options);
            AgentServer { router: mcp::router(&server), server, follows: Weak::new() }
        });
        // The server stays the same, and with it what its turns have read.
        known.server.replace_gate(gate);
        let settle = open.gate.workspace().settings().vault.settle.0;
        let tasks = open.vault.as_ref().map(|vault| mcp::ServedVault::new(vault.clone(), settle));
        known.server.replace_tasks(tasks);
        known.follows = follows;
        Ok(Some(known.router.clone()))
    }
}

async fn mcp_request(
    State(endpoint): State<McpEndpoint>,
    Extension(visitor): Extension<Visitor>,
    request: Request,
) -> Result<Response, FaultResponse> {
    let Visitor::Agent(agent) = visitor else { return Ok(StatusCode::FORBIDDEN.into_response()) };
    match endpoint.router_of(&agent).await? {
        Some(router) => router.oneshot(request).await.map_err(|never| match never {}),
        None => {
            let sentence = "tollgate is not set up in this folder: run `tollgate init` in it\n";
            Ok((StatusCode::SERVICE_UNAVAILABLE, sentence).into_response())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::mpsc;

    use tokio::sync::Notify;
    use tollgate::gate::Gate;
    use tollgate::workspace::{Options, Workspace};

    use super::*;
    use crate::site::SiteOptions;
    use crate::workspace_provider::WorkspaceProvider;

    /// Opens the gate of the agent `slow` only when it is told to.
    struct SlowProvider {
        root: PathBuf,
        opening: Arc<Notify>,
        go_on: std::sync::Mutex<mpsc::Receiver<()>>,
    }

    impl WorkspaceProvider for SlowProvider {
        fn root(&self) -> &Path {
            &self.root
        }

        fn vault(&self) -> PathBuf {
            self.root.join("vault")
        }

        fn open(&self) -> Result<Option<OpenWorkspace>> {
            let gate = Gate::new(Workspace::open(&self.root, Options::default())?);
            Ok(Some(OpenWorkspace { gate, vault: None, turns: Vec::new() }))
        }

        fn gate_of(&self, agent: &Agent) -> Result<Gate> {
            if agent.as_str() == "slow" {
                self.opening.notify_one();
                let _ = self.go_on.lock().unwrap().recv();
            }
            Ok(Gate::new(Workspace::open(&self.root, Options::default())?))
        }
    }

    #[test]
    fn an_agent_does_not_wait_while_the_gate_of_another_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (opening, (go, go_on)) = (Arc::new(Notify::new()), mpsc::channel());
        let provider = SlowProvider {
            root: folder.path().canonicalize().unwrap(),
            opening: opening.clone(),
            go_on: std::sync::Mutex::new(go_on),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let options = SiteOptions { person: "ada".into(), home: None };
            let site = Site::new(Box::new(provider), options).unwrap();
            let endpoint = McpEndpoint { site, servers: Arc::default() };
            let of = |agent: &str| {
                let (endpoint, agent) = (endpoint.clone(), agent.parse().unwrap());
                async move { matches!(endpoint.router_of(&agent).await, Ok(Some(_))) }
            };
            let slow = tokio::spawn(of("slow"));
            opening.notified().await;
            let quick = tokio::time::timeout(Duration::from_secs(20), of("quick")).await;
            drop(go);
            assert_eq!(quick, Ok(true));
            assert!(slow.await.unwrap());
        });
    }
}
