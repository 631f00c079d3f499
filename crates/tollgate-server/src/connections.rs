//! Connections: how many there may be, which one gives way to a new one, and how long they may be silent.
//!
//! Anybody who can reach the server can open connections, so none of them may cost another visitor the service. There is a
//! limit, well below the number of descriptors that the process may have. At the limit, a new connection replaces the
//! oldest one that does not serve a visitor who has proved who they are. So `/health` answers even if thousands of idle
//! connections are open. Such visitors are limited, too, so that there is always room for a new connection.
//!
//! hyper serves each connection, as in `axum::serve`, which limits neither the head of a request nor the time for it and
//! cannot end a connection.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::response::Response;
use axum::{Extension, Router};
use hyper::body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::AbortHandle;
use tokio_io_timeout::TimeoutStream;
use tower::Layer;
use tower_http::timeout::RequestBodyTimeoutLayer;

/// The limits of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The most connections.
    connections: usize,
    /// How long a client may take to send the head of a request, and how long a connection may be idle between two
    /// requests.
    head: Duration,
    /// How long a client may pause within the body of a request, or while it takes an answer.
    pause: Duration,
}

impl Limits {
    /// The limits for this process.
    pub(crate) fn of_this_process() -> Self {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let patience = Duration::from_secs(30);
        Self { connections: most_connections(descriptors), head: patience, pause: patience }
    }
}

/// The most connections of a process that may have this many descriptors; `None` if there is no limit. Half of them: the other half
/// is for files, folders and watches.
fn most_connections(descriptors: Option<u64>) -> usize {
    let half = descriptors.map_or(MOST, |most| usize::try_from(most / 2).unwrap_or(MOST));
    half.clamp(FEWEST, MOST)
}

/// The most connections. A person has a few, an agent one or two.
const MOST: usize = 512;

/// The fewest, however few descriptors the process may have.
const FEWEST: usize = 16;

/// The largest head of a request, and the buffer for it. Every idle connection can fill one. Browsers send a few KiB.
const HEAD_SIZE: usize = 64 << 10;

/// Pauses for this long if the kernel cannot accept connections now, for example because it has no memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves every connection, until `stop` is true and the open requests are done.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) {
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(limits.head);
    protocol.max_buf_size(HEAD_SIZE).max_header_size(HEAD_SIZE);
    let proved = Arc::new(ProvedRequests::new(limits.connections));
    let (shutdown, mut open) = (GracefulShutdown::new(), OpenConnections::default());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, _)) => {
                if !open.has_room(limits.connections) && !open.make_room() {
                    continue;
                }
                // An answer is written at once; waiting for more would only delay it.
                let _ = stream.set_nodelay(true);
                let mut stream = Box::pin(TimeoutStream::new(stream));
                // A client that sends nothing may be waiting for an answer, so only writing has a limit.
                stream.as_mut().set_write_timeout_pinned(Some(limits.pause));
                let connection = Connection { proved: proved.clone(), last: Arc::default() };
                let service = Extension(connection.clone()).layer(router.clone());
                let service = RequestBodyTimeoutLayer::new(limits.pause).layer(service);
                let serving =
                    protocol.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
                let task = tokio::spawn(shutdown.watch(serving));
                open.0.push((connection, task.abort_handle()));
                // Lets connections that were ended close their descriptors before the next one is accepted.
                tokio::task::yield_now().await;
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => {
                open.make_room();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    shutdown.shutdown().await;
}

/// The open connections, oldest first, each with what ends it.
#[derive(Default)]
struct OpenConnections(Vec<(Connection, AbortHandle)>);

impl OpenConnections {
    /// Whether there are fewer than this.
    fn has_room(&mut self, limit: usize) -> bool {
        self.0.retain(|(_, task)| !task.is_finished());
        self.0.len() < limit
    }

    /// Ends the oldest connection of a stranger, or else the oldest idle one. Returns whether there was one.
    fn make_room(&mut self) -> bool {
        let uses = self.0.iter().map(|(connection, _)| connection.usage()).enumerate();
        let least = uses.min_by_key(|(_, usage)| *usage);
        let Some((index, Usage::Stranger | Usage::Idle)) = least else { return false };
        let (_, task) = self.0.remove(index);
        task.abort();
        true
    }
}

/// Whom a connection serves. A smaller value is replaced first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Usage {
    /// Nobody has proved on it who they are.
    Stranger,
    /// A visitor has, and waits for nothing now.
    Idle,
    /// A visitor has, and waits for an answer.
    Busy,
}

/// One connection. Every request on it carries it.
#[derive(Clone)]
pub(crate) struct Connection {
    proved: Arc<ProvedRequests>,
    /// The last proved request. A connection has one request at a time.
    last: Arc<Mutex<Option<Weak<ProvedRequest>>>>,
}

impl Connection {
    fn usage(&self) -> Usage {
        match &*self.last.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Usage::Stranger,
            Some(request) if request.strong_count() == 0 => Usage::Idle,
            Some(_) => Usage::Busy,
        }
    }

    /// The visitor who sends this request has proved who they are. `None` if they have too many requests in progress, or
    /// all visitors together have. The connection is not replaced while the result is kept.
    pub(crate) fn prove(&self, visitor: &str) -> Option<Arc<ProvedRequest>> {
        let request = Arc::new(self.proved.begin(visitor)?);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::downgrade(&request));
        Some(request)
    }
}

/// The requests in progress of visitors who have proved who they are. No visitor can keep the others out, and all of them
/// together leave room for a new connection.
struct ProvedRequests {
    all: Arc<Semaphore>,
    /// The most of one visitor.
    each: usize,
    by_visitor: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A request of a visitor who has proved who they are, until it is answered.
pub(crate) struct ProvedRequest {
    _of_all: OwnedSemaphorePermit,
    _of_visitor: OwnedSemaphorePermit,
}

impl ProvedRequests {
    fn new(connections: usize) -> Self {
        let all = Arc::new(Semaphore::new(connections * 3 / 4));
        Self { all, each: connections / 4, by_visitor: Mutex::default() }
    }

    fn begin(&self, visitor: &str) -> Option<ProvedRequest> {
        let mut by_visitor = self.by_visitor.lock().unwrap_or_else(PoisonError::into_inner);
        let own = by_visitor.entry(visitor.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.each)));
        Some(ProvedRequest {
            _of_visitor: own.clone().try_acquire_owned().ok()?,
            _of_all: self.all.clone().try_acquire_owned().ok()?,
        })
    }
}

/// The response, which keeps a value until it is sent or dropped.
pub(crate) fn keeping<T: Unpin + Send + 'static>(response: Response, kept: T) -> Response {
    response.map(|body| Body::new(KeepingBody { body, _kept: kept }))
}

/// The body of a response, with what is kept until it is sent.
struct KeepingBody<T> {
    body: Body,
    _kept: T,
}

impl<T: Unpin> HttpBody for KeepingBody<T> {
    type Data = <Body as HttpBody>::Data;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::extract::rejection::BytesRejection;
    use axum::routing::{get, post};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    /// Short, because the tests wait that long.
    const PAUSE: Duration = Duration::from_millis(200);

    const LIMITS: Limits = Limits { connections: 16, head: PAUSE, pause: PAUSE };

    fn connection(proved: &Arc<ProvedRequests>) -> Connection {
        Connection { proved: proved.clone(), last: Arc::default() }
    }

    #[test]
    fn half_of_the_descriptors_are_for_connections_and_at_most_512() {
        for (descriptors, connections) in
            [(Some(8), 16), (Some(256), 128), (Some(1024), 512), (Some(1 << 20), 512), (None, 512)]
        {
            assert_eq!(most_connections(descriptors), connections, "{descriptors:?}");
        }
    }

    #[test]
    fn a_new_connection_replaces_the_oldest_stranger_then_the_oldest_idle_one() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (proved, mut open) = (Arc::new(ProvedRequests::new(16)), OpenConnections::default());
        let all: Vec<Connection> = (0..5).map(|_| connection(&proved)).collect();
        for connection in &all {
            open.0.push((connection.clone(), runtime.spawn(std::future::pending::<()>()).abort_handle()));
        }
        let left = |open: &OpenConnections| -> Vec<usize> {
            let number =
                |open: &Connection| all.iter().position(|known| Arc::ptr_eq(&known.last, &open.last));
            open.0.iter().map(|(connection, _)| number(connection).unwrap()).collect()
        };
        let working = all[0].prove("ada").unwrap();
        drop(all[1].prove("blue").unwrap());
        drop(all[3].prove("blue").unwrap());
        assert!(open.make_room());
        assert_eq!(left(&open), [0, 1, 3, 4], "2 is the oldest stranger");
        assert!(open.make_room());
        assert_eq!(left(&open), [0, 1, 3]);
        assert!(open.make_room());
        assert_eq!(left(&open), [0, 3], "1 is the oldest idle one");
        let more = all[3].prove("blue").unwrap();
        assert!(!open.make_room(), "both are needed");
        drop(working);
        assert!(open.make_room());
        assert_eq!(left(&open), [3]);
        drop(more);
        assert!(open.make_room());
    }

    #[test]
    fn visitors_leave_room_for_others() {
        let proved = Arc::new(ProvedRequests::new(16));
        let visit = |visitor| connection(&proved).prove(visitor);
        let mut working = Vec::new();
        for visitor in ["ada", "blue", "green"] {
            working.extend((0..4).map(|_| visit(visitor).unwrap()));
            assert!(visit(visitor).is_none(), "{visitor} has a quarter of all connections");
        }
        assert!(visit("red").is_none(), "three quarters are in use");
        working.pop();
        assert!(visit("red").is_some());
    }

    /// Sends bytes to a server, and returns what it answers until it closes the connection.
    async fn answers(address: std::net::SocketAddr, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let ended = tokio::time::timeout(Duration::from_secs(20), read).await;
        // A connection that is reset has ended, too.
        let _ = ended.expect("the server closes the connection");
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[test]
    fn the_head_of_a_request_has_a_limited_size() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (_stop, stopped) = watch::channel(false);
            let router = Router::new().route("/", get(async || "hello"));
            let serving = tokio::spawn(serve(listener, router, LIMITS, stopped));
            for (size, status) in [(65_536, "200"), (65_537, "431"), (70_000, "431")] {
                let around = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Large: \r\n\r\n";
                let large = format!("X-Large: {}", "x".repeat(size - around.len()));
                let head = around.replace("X-Large: ", &large);
                assert_eq!(head.len(), size);
                let answer = answers(address, head.as_bytes()).await;
                assert_eq!(answer.split(' ').nth(1), Some(status), "{size}: {answer}");
            }
            serving.abort();
        });
    }

    #[test]
    fn a_client_that_stops_in_the_middle_loses_its_connection() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            // More than the buffers of a connection hold.
            let large = get(async || "x".repeat(64 << 20));
            let body = post(async |body: Result<axum::body::Bytes, BytesRejection>| match body {
                Ok(bytes) => format!("got {} bytes", bytes.len()),
                Err(_) => "not all arrived".to_owned(),
            });
            let router =
                Router::new().route("/", get(async || "hello")).route("/large", large).route("/body", body);
            let (stop, stopped) = watch::channel(false);
            let serving = tokio::spawn(serve(listener, router, LIMITS, stopped));
            assert_eq!(answers(address, b"").await, "", "nothing was sent");
            answers(address, b"GET / HTTP/1.1\r\nHost: x\r\nX-Half: ").await;
            let idle = answers(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
            assert!(idle.ends_with("hello"), "answered, then closed: {idle}");
            let whole = b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody";
            assert!(answers(address, whole).await.ends_with("got 4 bytes"));
            let part =
                answers(address, b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf").await;
            assert!(part.ends_with("not all arrived"), "{part}");
            // A client that takes one byte of a large answer.
            let mut deaf = TcpStream::connect(address).await.unwrap();
            deaf.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
            deaf.read_u8().await.unwrap();
            stop.send_replace(true);
            let stopped = tokio::time::timeout(Duration::from_secs(20), serving).await;
            stopped.expect("the connection stays open").unwrap();
        });
    }
}
