//! A node that answers as a test says, for what a real etcd cannot be made to do.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// A status and a text; `None`: the node says nothing.
type Answered = Option<(u16, String)>;

/// Starts a node and returns its port. `answer` gets the path and the body of each request.
pub(super) fn start(answer: impl Fn(&str, &str) -> Answered + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = Arc::clone(&answer);
            thread::spawn(move || respond(stream, &*answer));
        }
    });
    port
}

fn respond(mut stream: TcpStream, answer: &dyn Fn(&str, &str) -> Answered) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 2)?;
        lines.push(line.to_ascii_lowercase());
        if reader.buffer().starts_with(b"\r\n") {
            reader.consume(2);
            break;
        }
    }
    let length = lines.iter().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    match answer(lines[0].split(' ').nth(1)?, std::str::from_utf8(&body).ok()?) {
        Some((status, text)) => {
            let head =
                format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", text.len());
            stream.write_all(format!("{head}{text}").as_bytes()).ok()
        }
        // Until the other side has given up.
        None => reader.read_to_end(&mut Vec::new()).ok().map(drop),
    }
}
