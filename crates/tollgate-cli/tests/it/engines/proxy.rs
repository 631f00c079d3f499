//! A way to a server of an engine that can be cut. What was sent into a cut way arrives when it is whole again, as on a real network.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

pub(crate) struct Proxy {
    pub(crate) port: u16,
    is_cut: Way,
}

type Way = Arc<(Mutex<bool>, Condvar)>;

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
        let is_cut = Way::default();
        let way = Arc::clone(&is_cut);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let way = Arc::clone(&way);
                thread::spawn(move || {
                    wait_until_whole(&way);
                    let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { return };
                    let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) else { return };
                    let there = Arc::clone(&way);
                    thread::spawn(move || carry(from, to, &there, changes));
                    carry(server, client, &way, |_| {});
                });
            }
        });
        Self { port, is_cut }
    }

    pub(crate) fn cut(&self, is_cut: bool) {
        *self.is_cut.0.lock().unwrap() = is_cut;
        self.is_cut.1.notify_all();
    }
}

fn wait_until_whole(way: &Way) {
    let guard = way.0.lock().unwrap();
    drop(way.1.wait_while(guard, |is_cut| *is_cut).unwrap());
}

fn carry(mut from: TcpStream, mut to: TcpStream, way: &Way, changes: fn(&mut [u8])) {
    let mut bytes = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        wait_until_whole(way);
        changes(&mut bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    wait_until_whole(way);
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// Replaces the conditions of a transaction with spaces, so that the length of the request stays the same. They contain no lists.
fn drop_conditions(request: &mut [u8]) {
    let start = b"\"compare\":[";
    let Some(at) = request.windows(start.len()).position(|window| window == start) else { return };
    let conditions = request[at + start.len()..].iter_mut();
    conditions.take_while(|byte| **byte != b']').for_each(|byte| *byte = b' ');
}
