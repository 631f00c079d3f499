//! A way to a server of an engine that can be cut. What was sent into a cut way arrives when it is whole again, as on a real network.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;

pub(crate) struct Proxy {
    pub(crate) port: u16,
    cut: Way,
}

type Way = Arc<(Mutex<Cut>, Condvar)>;

/// Who cannot use a way.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Cut {
    #[default]
    Nobody,
    Everybody,
    /// The etcd node with this id.
    Node(String),
}

impl Proxy {
    pub(crate) fn to(server: u16) -> Self {
        Self::that(server, |_| {})
    }

    /// A way to an etcd node on which transactions lose their conditions.
    pub(crate) fn without_conditions(node: u16) -> Self {
        Self::that(node, drop_conditions)
    }

    /// A way that changes what is sent to the server.
    fn that(server: u16, changes: fn(&mut [u8])) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let cut = Way::default();
        let way = Arc::clone(&cut);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let connection = Arc::new(Connection { way: Arc::clone(&way), node: OnceLock::new() });
                thread::spawn(move || {
                    connection.wait_until_whole();
                    let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { return };
                    let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) else { return };
                    let there = Arc::clone(&connection);
                    thread::spawn(move || there.carry(from, to, changes));
                    connection.carry(server, client, |_| {});
                });
            }
        });
        Self { port, cut }
    }

    pub(crate) fn cut(&self, cut: Cut) {
        *self.cut.0.lock().unwrap() = cut;
        self.cut.1.notify_all();
    }
}

/// One connection on a way.
struct Connection {
    way: Way,
    /// The id of the etcd node that made it; empty if a machine did.
    node: OnceLock<String>,
}

impl Connection {
    fn wait_until_whole(&self) {
        let is_cut = |cut: &mut Cut| match cut {
            Cut::Nobody => false,
            Cut::Everybody => true,
            Cut::Node(id) => self.node.get() == Some(id),
        };
        drop(self.way.1.wait_while(self.way.0.lock().unwrap(), is_cut).unwrap());
    }

    fn carry(&self, mut from: TcpStream, mut to: TcpStream, changes: fn(&mut [u8])) {
        let mut bytes = [0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            // The first bytes come from the side that made the connection.
            self.node.get_or_init(|| sender(&bytes[..count]));
            self.wait_until_whole();
            changes(&mut bytes[..count]);
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        self.wait_until_whole();
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }
}

/// The id of the etcd node that sends this request to another node.
fn sender(request: &[u8]) -> String {
    let text = String::from_utf8_lossy(request);
    text.lines().find_map(|line| line.strip_prefix("X-Server-From: ")).unwrap_or_default().to_owned()
}

/// Replaces the conditions of a transaction with spaces, so that the length of the request stays the same. They contain no lists.
fn drop_conditions(request: &mut [u8]) {
    let start = b"\"compare\":[";
    let Some(at) = request.windows(start.len()).position(|window| window == start) else { return };
    let conditions = request[at + start.len()..].iter_mut();
    conditions.take_while(|byte| **byte != b']').for_each(|byte| *byte = b' ');
}
