//! `tollgate serve` as a real process, asked over HTTP.

mod demo;
mod health;
mod metrics;
mod safety;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::world::{Process, Run, World, until};

/// A server, running.
pub(super) struct Served {
    pub(super) process: Process,
    pub(super) address: String,
    /// What it said when it began.
    pub(super) said: Value,
}

/// What it answered.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Reply {
    #[track_caller]
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let line =
            self.head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
        line.split_once(": ").map(|(_, value)| value)
    }
}

impl Served {
    /// With these words after `serve`, on any free port.
    pub(super) fn new(world: &World, words: &[&str]) -> Self {
        Self::of(world.tollgate(["serve", "--listen", "127.0.0.1:0", "--json"].iter().chain(words)))
    }

    pub(super) fn of(mut run: Run<'_>) -> Self {
        run.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = Process(run.command.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let address = said["url"].as_str().unwrap().trim_matches('/').replace("http://", "");
        Self { process, address, said }
    }

    /// One request, exactly as it is written here, but for the address.
    pub(super) fn asks(&self, request: &str) -> Reply {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(request.replace("HERE", &self.address).as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{request}: {text}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_owned(), body: body.to_owned() }
    }

    pub(super) fn gets(&self, path: &str) -> Reply {
        self.asks(&format!("GET {path} HTTP/1.1\r\nHost: HERE\r\nConnection: close\r\n\r\n"))
    }

    pub(super) fn health(&self) -> Value {
        self.gets("/health").json()
    }

    /// Waits until its health is as wanted.
    #[track_caller]
    pub(super) fn until_health(&self, what: &str, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        until(what, || Some(self.health()).filter(&mut wanted))
    }

    /// The metrics, once the ledger was read up to this line.
    #[track_caller]
    pub(super) fn metrics(&self, seq: u64) -> metrics::Page {
        until("the ledger to be read", || {
            let page = metrics::Page::read(&self.gets("/metrics").body);
            (page.value("tollgate_ledger_last_seq", &[]) == Some(seq as f64)).then_some(page)
        })
    }

    /// Ends it as a person would, and says how long that took.
    #[track_caller]
    pub(super) fn ends(mut self, signal: rustix::process::Signal) -> Duration {
        let began = Instant::now();
        self.process.signal(signal);
        assert_eq!(self.process.ends().code(), Some(0));
        began.elapsed()
    }
}

/// The number of the last line of the ledger.
pub(super) fn last_seq(world: &World) -> u64 {
    world.json("ledger tail -n 1")[0]["seq"].as_u64().unwrap()
}

#[test]
fn a_folder_that_never_saw_tollgate_is_left_alone_and_begins_when_it_is_set_up() {
    let world = World::new();
    world.puts("a.txt", "a");
    let served = Served::new(&world, &[]);
    assert_eq!(served.said["set_up"], false);
    let health = served.gets("/health");
    assert_eq!((health.status, &health.json()["set_up"]), (200, &false.into()));
    assert_eq!(served.gets("/").status, 200);
    assert_eq!(served.gets("/metrics").status, 200);
    let mcp =
        served.asks("POST /mcp HTTP/1.1\r\nHost: HERE\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(mcp.status, 503, "{mcp:?}");
    let names: Vec<_> =
        std::fs::read_dir(world.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a.txt"], "nothing was made");
    // Somebody sets it up.
    world.run("init --vault").is(0);
    served
        .until_health("the page to begin", |health| health["set_up"] == true && health["tasks"].is_object());
    world.run("task add hello").is(0);
    served.until_health("the task", |health| health["tasks"]["waiting"] == 1);
    let mcp =
        served.asks("POST /mcp HTTP/1.1\r\nHost: HERE\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert_ne!(mcp.status, 503, "{mcp:?}");
}

#[test]
fn what_is_said_in_the_terminal() {
    let world = World::new();
    let said = |run: Run<'_>| {
        let mut run = run;
        run.command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Process(run.command.spawn().unwrap());
        let stdout = process.0.stdout.take().unwrap();
        let lines: Vec<String> = BufReader::new(stdout).lines().take(6).map_while(Result::ok).collect();
        drop(process);
        lines
    };
    let lines = said(world.tollgate(["serve", "--listen", "127.0.0.1:0"]));
    assert!(lines[0].starts_with("dashboard http://127.0.0.1:"), "{lines:?}");
    assert!(lines[2].contains("not set up") && lines[2].contains("nothing was made"), "{lines:?}");
    assert!(lines[3].contains("tollgate init"), "{lines:?}");
}

#[test]
fn what_writes_have_replaced_gets_its_second_look() {
    let world = World::with("[guard]\ngrace = \"1s\"\n");
    let served = Served::new(&world, &[]);
    let waits = || std::fs::read_dir(world.path(".tollgate/stage")).unwrap().count();
    for text in ["one", "two"] {
        world.tollgate(["write", "a"]).stdin(text).ends().is(0);
    }
    assert_eq!(waits(), 1, "no command comes by that would take it");
    until("the second look", || (waits() == 0).then_some(()));
    drop(served);
}
