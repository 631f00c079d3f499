//! Connections: how many there may be, which one gives way to a new one, and how long they may be silent.
//!
//! Anybody who can reach the server can open connections, so none of them may cost another visitor the service. There is a
//! limit, well below the number of descriptors that the process may have. At the limit, a new connection replaces the
//! oldest one that does not serve a visitor who has proved who they are. So `/health` answers even if thousands of idle
//! connections are open. Such visitors are limited, too, so that there is always room for a new connection.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tower::ServiceExt;

use crate::patience::{PatientBody, PatientStream};

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
        // Half of them: the other half is for files, folders and watches.
        let half = descriptors.map_or(MOST, |most| usize::try_from(most / 2).unwrap_or(MOST));
        let patience = Duration::from_secs(30);
        Self { connections: half.clamp(FEWEST, MOST), head: patience, pause: patience }
    }
}

/// The most connections. A person has a few, an agent one or two.
const MOST: usize = 512;

/// The fewest, however few descriptors the process may have.
const FEWEST: usize = 16;

/// The largest head of a request, and the buffer for it. Every idle connection can fill one. Browsers send a few KiB.
const HEAD_SIZE: usize = 64 << 10;

/// Pauses for this long if the kernel cannot accept connections now, for example because it has no memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// All connections of one server. Clones are the same.
#[derive(Clone)]
pub(crate) struct Connections(Arc<Shared>);

struct Shared {
    limits: Limits,
    table: Mutex<Table>,
    /// Notified when the last connection has ended.
    empty: Notify,
}

#[derive(Default)]
struct Table {
    next: u64,
    /// By number, so the oldest is the first.
    open: BTreeMap<u64, OpenConnection>,
    /// The requests in progress of visitors who have proved who they are, by visitor.
    proved: HashMap<String, usize>,
}

struct OpenConnection {
    /// Ends the connection.
    end: Arc<Notify>,
    /// The number of requests in progress of a visitor who has proved who they are.
    proved_now: usize,
    /// Whether there was such a request at any time.
    proved_ever: bool,
}

/// One connection. Every request on it carries it.
#[derive(Clone)]
pub(crate) struct Connection {
    all: Connections,
    number: u64,
}

/// A request of a visitor who has proved who they are. The connection stays until it is dropped.
pub(crate) struct ProvedRequest {
    connection: Connection,
    visitor: String,
}

impl Connections {
    pub(crate) fn new(limits: Limits) -> Self {
        Self(Arc::new(Shared { limits, table: Mutex::default(), empty: Notify::new() }))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves every connection, until `stop` is true and the open requests are done.
    pub(crate) async fn serve(self, listener: TcpListener, router: Router, stop: watch::Receiver<bool>) {
        let mut stopped = stop.clone();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stopped.wait_for(|stop| *stop) => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    if let Some((connection, end)) = self.enter() {
                        let serving = connection.clone().serve(stream, router.clone(), end, stop.clone());
                        tokio::spawn(async move {
                            serving.await;
                            connection.leave();
                        });
                    }
                    // Lets connections that were ended close their descriptors before the next one is accepted.
                    tokio::task::yield_now().await;
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    self.make_room(&mut self.table());
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        loop {
            let empty = self.0.empty.notified();
            if self.table().open.is_empty() {
                return;
            }
            empty.await;
        }
    }

    /// A new connection, and what ends it. `None` if every connection is needed.
    fn enter(&self) -> Option<(Connection, Arc<Notify>)> {
        let mut table = self.table();
        if table.open.len() >= self.0.limits.connections && !self.make_room(&mut table) {
            return None;
        }
        let (number, end) = (table.next, Arc::new(Notify::new()));
        table.next += 1;
        table.open.insert(number, OpenConnection { end: end.clone(), proved_now: 0, proved_ever: false });
        Some((Connection { all: self.clone(), number }, end))
    }

    /// Ends the oldest connection of a stranger, or else the oldest idle one. Returns whether there was one.
    fn make_room(&self, table: &mut Table) -> bool {
        let idle = || table.open.iter().filter(|(_, entry)| entry.proved_now == 0);
        let stranger = idle().find(|(_, entry)| !entry.proved_ever).or_else(|| idle().next());
        let Some(number) = stranger.map(|(number, _)| *number) else { return false };
        if let Some(entry) = table.open.remove(&number) {
            entry.end.notify_one();
        }
        true
    }
}

impl Connection {
    async fn serve(
        self,
        stream: TcpStream,
        router: Router,
        end: Arc<Notify>,
        mut stop: watch::Receiver<bool>,
    ) {
        // An answer is written at once; waiting for more would only delay it.
        let _ = stream.set_nodelay(true);
        let Limits { head, pause, .. } = self.all.0.limits;
        let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let mut request: Request = request.map(|body| Body::new(PatientBody::new(body, pause)));
            request.extensions_mut().insert(self.clone());
            let router = router.clone();
            async move { router.oneshot(request).await as Result<Response, Infallible> }
        });
        let mut protocol = http1::Builder::new();
        protocol.timer(TokioTimer::new()).header_read_timeout(head);
        protocol.max_buf_size(HEAD_SIZE).max_header_size(HEAD_SIZE);
        let mut serving =
            pin!(protocol.serve_connection(TokioIo::new(PatientStream::new(stream, pause)), service));
        let stopped = tokio::select! {
            // Whatever ended the connection, there is nobody to tell.
            _ = &mut serving => false,
            () = end.notified() => false,
            _ = stop.wait_for(|stop| *stop) => true,
        };
        if stopped {
            serving.as_mut().graceful_shutdown();
            tokio::select! {
                _ = serving => {}
                () = end.notified() => {}
            }
        }
    }

    fn leave(&self) {
        let mut table = self.all.table();
        table.open.remove(&self.number);
        if table.open.is_empty() {
            self.all.0.empty.notify_waiters();
        }
    }

    /// The visitor who sends this request has proved who they are. `None` if they have too many requests in progress, or
    /// all visitors together have.
    pub(crate) fn prove(&self, visitor: &str) -> Option<ProvedRequest> {
        let mut table = self.all.table();
        let limit = self.all.0.limits.connections;
        let (own, all) =
            (table.proved.get(visitor).copied().unwrap_or(0), table.proved.values().sum::<usize>());
        // No visitor can keep the others out, and all of them together leave room for a new connection.
        if own >= limit / 4 || all >= limit * 3 / 4 {
            return None;
        }
        // A connection that has just been ended gets no answer anyway.
        let entry = table.open.get_mut(&self.number)?;
        entry.proved_now += 1;
        entry.proved_ever = true;
        *table.proved.entry(visitor.to_owned()).or_default() += 1;
        Some(ProvedRequest { connection: self.clone(), visitor: visitor.to_owned() })
    }
}

impl ProvedRequest {
    /// The response, which keeps the connection until it is sent or dropped.
    pub(crate) fn answered(self, response: Response) -> Response {
        keeping(response, self)
    }
}

/// The response, which keeps a value until it is sent or dropped.
pub(crate) fn keeping<T: Unpin + Send + 'static>(response: Response, kept: T) -> Response {
    response.map(|body| Body::new(KeepingBody { body, _kept: kept }))
}

impl Drop for ProvedRequest {
    fn drop(&mut self) {
        let mut table = self.connection.all.table();
        if let Some(entry) = table.open.get_mut(&self.connection.number) {
            entry.proved_now -= 1;
        }
        if let Some(count) = table.proved.get_mut(&self.visitor) {
            *count -= 1;
            if *count == 0 {
                table.proved.remove(&self.visitor);
            }
        }
    }
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

    use super::*;

    fn of(connections: usize) -> Connections {
        // Short, because the tests wait that long.
        let pause = Duration::from_millis(200);
        Connections::new(Limits { connections, head: pause, pause })
    }

    fn numbers(connections: &Connections) -> Vec<u64> {
        connections.table().open.keys().copied().collect()
    }

    #[test]
    fn a_new_connection_replaces_the_oldest_stranger_then_the_oldest_idle_one() {
        let connections = of(4);
        let all: Vec<Connection> = (0..4).map(|_| connections.enter().unwrap().0).collect();
        let working = all[0].prove("ada").unwrap();
        drop(all[1].prove("blue").unwrap());
        let new = connections.enter().unwrap().0;
        assert_eq!(numbers(&connections), [0, 1, 3, 4], "2 is the oldest stranger");
        assert!(all[2].prove("ada").is_none(), "it has been ended");
        let working = [working, new.prove("blue").unwrap()];
        connections.enter().unwrap();
        assert_eq!(numbers(&connections), [0, 1, 4, 5]);
        let last = all[1].prove("green").unwrap();
        connections.enter().unwrap();
        assert_eq!(numbers(&connections), [0, 1, 4, 6]);
        drop((working, last));
        connections.enter().unwrap();
        assert_eq!(numbers(&connections), [0, 1, 4, 7]);
        for connection in &all {
            connection.leave();
        }
        assert_eq!(numbers(&connections), [4, 7]);
    }

    #[test]
    fn visitors_leave_room_for_others() {
        let connections = of(16);
        let enter = || connections.enter().unwrap().0;
        let mut working = Vec::new();
        for visitor in ["ada", "blue", "green"] {
            for _ in 0..4 {
                working.push(enter().prove(visitor).unwrap());
            }
            assert!(enter().prove(visitor).is_none(), "{visitor} has a quarter of all connections");
        }
        assert!(enter().prove("red").is_none(), "three quarters are in use");
        working.pop();
        assert!(enter().prove("red").is_some());
        drop(working);
        assert!(connections.table().proved.is_empty());
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
            let serving = tokio::spawn(of(16).serve(listener, router, stopped));
            for (size, status) in [(HEAD_SIZE, "200"), (HEAD_SIZE + 1, "431"), (70_000, "431")] {
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
            let connections = of(16);
            let serving = tokio::spawn(connections.clone().serve(listener, router, stopped));
            assert_eq!(answers(address, b"").await, "", "nothing was sent");
            answers(address, b"GET / HTTP/1.1\r\nHost: x\r\nX-Half: ").await;
            let idle = answers(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
            assert!(idle.ends_with("hello"), "answered, then closed: {idle}");
            let whole = b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody";
            assert!(answers(address, whole).await.ends_with("got 4 bytes"));
            let part =
                answers(address, b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf").await;
            assert!(part.ends_with("not all arrived"), "{part}");
            // A client that takes nothing of a large answer.
            let mut deaf = TcpStream::connect(address).await.unwrap();
            deaf.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
            let begun = std::time::Instant::now();
            while connections.table().next < 6 || !connections.table().open.is_empty() {
                assert!(begun.elapsed() < Duration::from_secs(20), "the connection stays open");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            stop.send_replace(true);
            serving.await.unwrap();
        });
    }
}
