//! A small TCP proxy in front of a server: it cuts connections, or says nothing.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

/// What happens to the next request that contains these bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It does not reach the server, and the connection is cut.
    CutBefore(Vec<u8>),
    /// It reaches the server; the connection is cut when the server has answered.
    CutAfter(Vec<u8>),
    /// Nothing reaches anybody any more, on any connection.
    Silence,
}

/// What the proxy is to do next; `None` when it is done.
pub(crate) type Order = Arc<Mutex<Option<Fate>>>;

/// Starts a proxy: its port, and what it is to do.
pub(crate) fn start(folder: &Path) -> (u16, Order) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let order = Order::default();
    let (orders, socket) = (Arc::clone(&order), folder.join(".s.PGSQL.5432"));
    thread::spawn(move || {
        while let Ok((client, _)) = listener.accept() {
            let (order, socket) = (Arc::clone(&orders), socket.clone());
            thread::spawn(move || serve(client, &socket, &order));
        }
    });
    (port, order)
}

fn serve(client: TcpStream, socket: &PathBuf, order: &Order) {
    let Ok(server) = UnixStream::connect(socket) else { return };
    let (mut from_server, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let is_cut = Arc::new(Mutex::new(false));
    let (cut, orders) = (Arc::clone(&is_cut), Arc::clone(order));
    let answers = thread::spawn(move || {
        let mut buffer = [0; 65536];
        while let Ok(length @ 1..) = from_server.read(&mut buffer) {
            if *cut.lock().unwrap() {
                let _ = to_client.shutdown(Shutdown::Both);
                let _ = from_server.shutdown(Shutdown::Both);
                return;
            }
            let is_silent = *orders.lock().unwrap() == Some(Fate::Silence);
            if !is_silent && to_client.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
    });
    let (mut from_client, mut to_server) = (client, server);
    let mut buffer = [0; 65536];
    while let Ok(length @ 1..) = from_client.read(&mut buffer) {
        let request = &buffer[..length];
        let has = |bytes: &[u8]| request.windows(bytes.len()).any(|window| window == bytes);
        let mut order = order.lock().unwrap();
        match order.clone() {
            Some(Fate::Silence) => continue,
            Some(Fate::CutBefore(bytes)) if has(&bytes) => {
                *order = None;
                break;
            }
            Some(Fate::CutAfter(bytes)) if has(&bytes) => {
                *order = None;
                *is_cut.lock().unwrap() = true;
            }
            _ => {}
        }
        drop(order);
        if to_server.write_all(request).is_err() {
            break;
        }
    }
    let _ = to_server.shutdown(Shutdown::Both);
    let _ = from_client.shutdown(Shutdown::Both);
    let _ = answers.join();
}
