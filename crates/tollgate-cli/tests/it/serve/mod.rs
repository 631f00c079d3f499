//! `tollgate serve` as a process, with real HTTP requests.

mod crowded;
mod demo;
mod health;
mod metrics;
mod notices;
mod safety;
mod strangers;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::world::{Process, Run, World, until};

/// A running server.
pub(crate) struct Served {
    pub(super) process: Process,
    pub(super) address: String,
    /// The person's secret.
    pub(super) secret: String,
    /// The JSON that it printed when it started.
    pub(super) said: Value,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(super) status: u16,
    pub(super) head: String,
    pub(crate) body: String,
}

impl Reply {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let line =
            self.head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
        line.split_once(": ").map(|(_, value)| value)
    }
}

impl Served {
    /// Starts `serve` with these arguments, on a free port.
    pub(crate) fn new(world: &World, words: &[&str]) -> Self {
        Self::of(world.tollgate(["serve", "--listen", "127.0.0.1:0", "--json"].iter().chain(words)))
    }

    pub(crate) fn of(mut run: Run<'_>) -> Self {
        run.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = Process(run.command.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let url = said["url"].as_str().unwrap().strip_prefix("http://").unwrap();
        let (address, secret) = url.split_once("/?token=").unwrap();
        let (address, secret) = (address.to_owned(), secret.to_owned());
        Self { process, address, secret, said }
    }

    /// Sends exactly these bytes, with the server's address in place of `HERE`.
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

    /// A page, as the person sees it.
    pub(crate) fn gets(&self, path: &str) -> Reply {
        self.gets_as(&self.secret, path)
    }

    /// A page, with this token.
    pub(super) fn gets_as(&self, token: &str, path: &str) -> Reply {
        self.asks(&format!(
            "GET {path} HTTP/1.1\r\nHost: HERE\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        ))
    }

    /// A client of `/mcp` with this token.
    pub(super) fn client<'s>(&'s self, token: &'s str) -> Client<'s> {
        let mut client = Client { served: self, token, session: String::new() };
        let hello = client.posts(&initialize());
        client.session = hello.header("mcp-session-id").unwrap_or_else(|| panic!("{hello:?}")).to_owned();
        client.posts(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    pub(super) fn health(&self) -> Value {
        self.gets("/health").json()
    }

    /// Waits for this condition of `/health`.
    #[track_caller]
    pub(super) fn until_health(&self, what: &str, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        until(what, || Some(self.health()).filter(&mut wanted))
    }

    /// The metrics, after the server has read the ledger up to this line.
    #[track_caller]
    pub(super) fn metrics(&self, seq: u64) -> metrics::Page {
        until("the ledger to be read", || {
            let page = metrics::Page::read(&self.gets("/metrics").body);
            (page.value("tollgate_ledger_last_seq", &[]) == Some(seq as f64)).then_some(page)
        })
    }

    /// Stops the server with a signal, and returns how long that took.
    #[track_caller]
    pub(super) fn ends(mut self, signal: Signal) -> Duration {
        let began = Instant::now();
        self.process.signal(signal);
        assert_eq!(self.process.ends().code(), Some(0));
        began.elapsed()
    }
}

/// The first message of a session.
fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params":
        {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}})
}

/// A client of `/mcp`.
pub(super) struct Client<'s> {
    served: &'s Served,
    token: &'s str,
    session: String,
}

impl Client<'_> {
    /// Sends one message.
    pub(super) fn posts(&self, message: &Value) -> Reply {
        let body = message.to_string();
        let session = match self.session.as_str() {
            "" => String::new(),
            id => format!("Mcp-Session-Id: {id}\r\n"),
        };
        self.served.asks(&format!(
            "POST /mcp HTTP/1.1\r\nHost: HERE\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nAuthorization: Bearer {}\r\n{session}Content-Length: {}\r\n\r\n\
             {body}",
            self.token,
            body.len()
        ))
    }

    /// Calls a tool, and returns its result.
    pub(super) fn calls(&self, tool: &str, arguments: &Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        let answer =
            self.posts(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}));
        // The answer is an event in a stream.
        let data = answer.body.lines().find_map(|line| line.strip_prefix("data: {"));
        let data = data.unwrap_or_else(|| panic!("{answer:?}"));
        serde_json::from_str::<Value>(&format!("{{{data}")).unwrap()["result"].clone()
    }
}

/// The number of the last line of the ledger.
pub(super) fn last_seq(world: &World) -> u64 {
    world.json("ledger tail -n 1")[0]["seq"].as_u64().unwrap()
}

#[test]
fn serve_creates_nothing_in_a_folder_without_tollgate_and_works_once_it_is_set_up() {
    let world = World::bare();
    world.puts("a.txt", "a");
    let served = Served::new(&world, &["--agent", "blue"]);
    let token = served.said["mcp"]["token"].as_str().unwrap();
    let mcp = || {
        served.asks(&format!(
            "POST /mcp HTTP/1.1\r\nHost: HERE\r\nConnection: close\r\nAuthorization: Bearer {token}\r\nContent-Length: 0\r\n\r\n"
        ))
    };
    assert_eq!(served.said["set_up"], false);
    let health = served.gets("/health");
    assert_eq!((health.status, &health.json()["set_up"]), (200, &false.into()));
    assert_eq!(served.gets("/").status, 200);
    assert_eq!(served.gets("/metrics").status, 200);
    assert_eq!(mcp().status, 503);
    let names: Vec<_> =
        std::fs::read_dir(world.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a.txt"], "nothing was created");
    // Somebody sets it up.
    world.run("init --vault").is(0);
    served.until_health("the server to notice", |health| {
        health["set_up"] == true && health["tasks"].is_object()
    });
    world.run("task add hello").is(0);
    served.until_health("the task", |health| health["tasks"]["waiting"] == 1);
    assert_ne!(mcp().status, 503);
}

#[test]
fn the_first_lines_in_the_terminal() {
    let world = World::new();
    let said = |mut run: Run<'_>| {
        run.command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Process(run.command.spawn().unwrap());
        let mut stdout = BufReader::new(process.0.stdout.take().unwrap());
        let mut text = String::new();
        stdout.read_line(&mut text).unwrap();
        process.signal(Signal::TERM);
        stdout.read_to_string(&mut text).unwrap();
        assert_eq!(process.ends().code(), Some(0));
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let lines = said(world.tollgate(["serve", "--listen", "127.0.0.1:0"]));
    assert!(
        lines[0].starts_with("dashboard http://127.0.0.1:") && lines[0].contains("/?token="),
        "{lines:?}"
    );
    assert!(lines[2].contains("not set up") && lines[2].contains("nothing was created"), "{lines:?}");
    assert!(lines[3].contains("tollgate init"), "{lines:?}");
}

#[test]
fn replaced_files_get_their_late_write_check() {
    let world = World::with("[guard]\ngrace = \"1s\"\n");
    let served = Served::new(&world, &[]);
    let waits = || std::fs::read_dir(world.path(".tollgate/stage")).unwrap().count();
    for text in ["one", "two"] {
        world.tollgate(["write", "a"]).stdin(text).ends().is(0);
    }
    assert_eq!(waits(), 1, "no other command has checked it");
    until("the late-write check", || (waits() == 0).then_some(()));
    drop(served);
}

#[test]
fn agents_work_on_tasks_over_mcp_even_if_the_vault_was_created_later() {
    let world = World::new();
    world.run("init").is(0);
    let served = Served::new(&world, &["--agent", "blue"]);
    assert_eq!(served.said["mcp"]["agent"], "blue");
    let client = served.client(served.said["mcp"]["token"].as_str().unwrap());
    let claims = || client.calls("claim_task", &json!({}));
    assert_eq!(claims()["isError"], true, "there is no vault");
    world.run("init --vault").is(0);
    world.run("task add hello").is(0);
    served.until_health("the task", |health| health["tasks"]["waiting"] == 1);
    let claimed = claims();
    assert_eq!(claimed["structuredContent"]["claimed"], true, "{claimed}");
    assert!(claimed["structuredContent"]["lease_until"].is_string(), "over HTTP it is a lease: {claimed}");
    let health = served.until_health("the claim", |health| health["tasks"]["in_progress"] == 1);
    let figures = &health["agents"][0];
    assert_eq!((&figures["agent_name"], &figures["total_claims"]), (&json!("blue"), &json!(1)), "{health}");
}

#[test]
fn changed_settings_reach_the_agents_of_mcp_and_their_turns_go_on() {
    let world = World::with("");
    world.run("init --vault").is(0);
    world.run("task add hello").is(0);
    world.puts("a", "one");
    let served = Served::new(&world, &["--agent", "blue"]);
    let client = served.client(served.said["mcp"]["token"].as_str().unwrap());
    let writes = |file: &str| client.calls("write_file", &json!({"path": file, "content": "mine"}));
    client.calls("read_text_file", &json!({"path": "a"}));
    assert_eq!(writes("b")["isError"], Value::Null);
    world.puts(
        ".tollgate/config.toml",
        "[guard]\nprotected = [\"b\"]\n[vault]\nagents = \"listed\"\n[agent.green]\nrole = \"green\"\n",
    );
    let refused = until("a refusal", || Some(writes("b")).filter(|answer| answer["isError"] == true));
    assert_eq!(refused["structuredContent"]["error_type"], "PROTECTED_PATH", "{refused}");
    let claimed = client.calls("claim_task", &json!({"task": "hello"}));
    assert_eq!(claimed["isError"], true, "only `green` may claim tasks now: {claimed}");
    world.puts("a", "foreign");
    let refused = writes("a");
    assert_eq!(refused["structuredContent"]["error_type"], "STALE_FILE", "its turn has read `a`: {refused}");
    // A server with settings that it cannot read serves nobody, and says why.
    world.puts(".tollgate/config.toml", "[guard]\nmode = \"s3cret\"\n");
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    let broken = until("an error", || Some(client.posts(&list)).filter(|reply| reply.status != 200));
    assert_eq!(broken.status, 500, "{broken:?}");
    assert!(broken.body.contains("line 2 of `") && !broken.body.contains("tollgate init"), "{broken:?}");
    assert!(!broken.body.contains("s3cret"), "an agent does not get the line: {broken:?}");
    // Its heartbeats and its folders are those of the first vault.
    world.puts(".tollgate/config.toml", "[vault]\ndir = \"other\"\n");
    let other =
        until("an error", || Some(client.posts(&list)).filter(|reply| reply.body.contains("another")));
    assert_eq!(other.status, 500, "{other:?}");
    world.puts(".tollgate/config.toml", "");
    until("an answer", || (client.posts(&list).status == 200).then_some(()));
    assert_eq!(writes("b")["isError"], Value::Null);
    assert_eq!(writes("a")["structuredContent"]["error_type"], "STALE_FILE");
}
