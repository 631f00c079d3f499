//! An HTTP endpoint whose answers a test decides.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

/// A request that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    pub(crate) path: String,
    /// In lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Arrived {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// What the endpoint does with a request.
pub(crate) enum Reply {
    /// Takes it.
    Take,
    /// Takes it and answers this.
    TakeAnd(&'static str),
    /// Does not take it: a status, and headers that end with a newline.
    Refuse(u16, &'static str),
    /// Says nothing and closes the connection.
    HangUp,
    /// Says nothing, and keeps the connection.
    Hang,
}

/// A running endpoint.
pub(crate) struct Endpoint {
    pub(crate) url: String,
    taken: Arc<Mutex<Vec<Arrived>>>,
}

impl Endpoint {
    /// Asks `reply` about every request.
    pub(crate) fn start(mut reply: impl FnMut(&Arrived) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let taken = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&taken);
        thread::spawn(move || {
            let mut silent = Vec::new();
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let Some(arrived) = read(&stream) else { continue };
                let (status, more, body, takes) = match reply(&arrived) {
                    Reply::Take => (200, "", "{}", true),
                    Reply::TakeAnd(body) => (200, "", body, true),
                    Reply::Refuse(status, headers) => (status, headers, "not now", false),
                    Reply::HangUp => continue,
                    Reply::Hang => {
                        silent.push(stream);
                        continue;
                    }
                };
                if takes {
                    keep.lock().unwrap().push(arrived);
                }
                let length = body.len();
                // The other end may be dead.
                let _ = write!(
                    &stream,
                    "HTTP/1.1 {status} Whatever\r\nContent-Length: {length}\r\nConnection: close\r\n{more}\r\n{body}"
                );
            }
        });
        Self { url, taken }
    }

    /// The requests that were taken.
    pub(crate) fn taken(&self) -> Vec<Arrived> {
        self.taken.lock().unwrap().clone()
    }

    /// The bodies of all requests to this path, one after the other.
    pub(crate) fn text(&self) -> String {
        self.taken().iter().map(|arrived| arrived.body.as_str()).collect()
    }
}

fn read(stream: &TcpStream) -> Option<Arrived> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length")?.1.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Arrived { path, headers, body: String::from_utf8(body).unwrap() })
}
