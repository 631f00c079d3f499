//! MCP over HTTP: hosts and origins, sessions of the older protocol, calls without a session of the newer one.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_server::hosts::Hosts;
use tollgate_server::mcp::{self, Server};
use tollgate_testing::until_true;

use crate::limits::{call_of, write_of};
use crate::world::{World, refusal, sha256};

/// A server in its own thread. It ends with the test.
pub(crate) struct Site {
    address: SocketAddr,
}

struct Response {
    status: u16,
    head: String,
    body: String,
}

impl Response {
    /// The message in the body, plain or as an event stream.
    #[track_caller]
    fn message(&self) -> Value {
        let mut data = self.body.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
        let text = data.rfind(|data| data.starts_with('{')).unwrap_or(&self.body);
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {} {}", self.head, self.body))
    }

    fn header(&self, name: &str) -> Option<String> {
        let line = |line: &str| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        };
        self.head.lines().find_map(line)
    }
}

impl Site {
    pub(crate) fn new(server: Server) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let hosts = Hosts::new(address, []);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                axum::serve(listener, hosts.guard(mcp::router(&server))).await.unwrap();
            });
        });
        Self { address }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn send(&self, method: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let mut request =
            format!("{method} /mcp HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        let host = self.address.to_string();
        let usual = [
            ("Host", host.as_str()),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        for (name, value) in usual {
            if !headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name)) {
                request.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{request}\r\n{body}").as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        let body = if chunked { unchunk(body) } else { body.to_owned() };
        Response { status, head: head.to_owned(), body }
    }

    fn post(&self, headers: &[(&str, &str)], message: &Value) -> Response {
        self.send("POST", headers, &message.to_string())
    }

    /// A client of the older protocol.
    pub(crate) fn session(&self) -> Session<'_> {
        let answer = self.post(&[], &initialize());
        assert_eq!(answer.status, 200, "{}", answer.body);
        let id = answer.header("mcp-session-id").unwrap();
        let session = Session { site: self, id };
        let done = session.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        assert_eq!(done.status, 202);
        session
    }

    /// A call of the newer protocol, which has no sessions.
    pub(crate) fn alone(&self, tool: &str, arguments: Value) -> Value {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        });
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments, "_meta": meta}});
        let headers =
            [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", tool)];
        let answer = self.post(&headers, &message);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let result = answer.message()["result"].clone();
        assert_eq!(result["resultType"], "complete", "{}", answer.body);
        result
    }
}

fn unchunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            break;
        }
        whole.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
    whole
}

fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params":
        {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}})
}

pub(crate) struct Session<'s> {
    site: &'s Site,
    id: String,
}

impl Session<'_> {
    /// Ends the session. After that, a call in it gets status 404.
    pub(crate) fn ends(&self) {
        let headers = [("Mcp-Session-Id", self.id.as_str()), ("MCP-Protocol-Version", "2025-11-25")];
        let ended = self.site.send("DELETE", &headers, "");
        assert!((200..300).contains(&ended.status), "{}", ended.status);
        let gone = self.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}));
        assert_eq!(gone.status, 404);
    }

    fn post(&self, message: &Value) -> Response {
        self.site.post(&[("Mcp-Session-Id", &self.id), ("MCP-Protocol-Version", "2025-11-25")], message)
    }

    pub(crate) fn call(&self, tool: &str, arguments: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        let answer = self.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}));
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.message()["result"].clone()
    }
}

#[track_caller]
pub(crate) fn text(result: &Value) -> String {
    assert!(result.get("isError").is_none(), "{result}");
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn requests_from_other_sites_are_denied() {
    let world = World::new();
    let site = Site::new(world.server.clone());
    for (headers, status) in [
        (vec![("Host", "evil.example")], 403),
        (vec![("Host", "evil.example:80")], 403),
        (vec![("Host", "")], 403),
        (vec![("Origin", "http://evil.example")], 403),
        (vec![("Origin", "null")], 403),
        (vec![("Origin", "http://localhost:5173")], 403),
        (vec![("Host", "localhost"), ("Origin", "http://localhost")], 200),
        (vec![("Host", "localhost")], 200),
        (vec![], 200),
    ] {
        let answer = site.post(&headers, &initialize());
        assert_eq!(answer.status, status, "{headers:?} {}", answer.body);
        assert_eq!(answer.header("mcp-session-id").is_some(), status == 200);
    }
    for method in ["GET", "DELETE", "OPTIONS", "PUT"] {
        assert_eq!(site.send(method, &[("Host", "evil.example")], "").status, 403, "{method}");
    }
}

#[test]
fn each_session_has_its_own_turn() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let site = Site::new(world.server.clone());
    let (first, second) = (site.session(), site.session());
    assert_ne!(first.id, second.id);
    for session in [&first, &second] {
        let result = session.call("read_text_file", json!({"path": "a"}));
        assert_eq!((text(&result).as_str(), &result["_meta"]["sha256"]), ("one", &json!(sha256("one"))));
    }
    text(&first.call("write_file", json!({"path": "a", "content": "first"})));
    let result = second.call("write_file", json!({"path": "a", "content": "second"}));
    assert_eq!(refusal(&result, "STALE_FILE")["actual_hash"], sha256("first"));
    text(&second.call("read_text_file", json!({"path": "a"})));
    text(&second.call("write_file", json!({"path": "a", "content": "second"})));
    world.holds("a", "second");
    first.ends();
    assert_eq!(site.post(&[("Mcp-Session-Id", "made-up")], &initialize()).status, 404);
}

#[test]
fn a_call_without_a_session_needs_a_hash_or_a_turn_to_overwrite() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let site = Site::new(world.server.clone());
    assert_eq!(text(&site.alone("read_text_file", json!({"path": "a"}))), "one");
    for (tool, arguments) in [
        ("write_file", json!({"path": "a", "content": "x"})),
        ("edit_file", json!({"path": "a", "edits": [{"oldText": "one", "newText": "x"}]})),
        ("delete_file", json!({"path": "a"})),
        ("move_file", json!({"source": "a", "destination": "b"})),
        ("write_files", json!({"changes": [{"path": "a", "content": "x"}]})),
    ] {
        let result = site.alone(tool, arguments);
        assert_eq!(result["isError"], true);
        assert!(result["content"][0]["text"].as_str().unwrap().contains("call begin_turn"), "{result}");
    }
    world.holds("a", "one");
    // It may create a file, and it may write with an explicit hash or a turn.
    text(&site.alone("write_file", json!({"path": "new", "content": "x"})));
    text(&site.alone("write_file", json!({"path": "a", "content": "two", "expected_hash": sha256("one")})));
    let begun = site.alone("begin_turn", json!({}));
    let turn = begun["structuredContent"]["turn_id"].as_str().unwrap();
    text(&site.alone("read_text_file", json!({"path": "a", "turn_id": turn})));
    world.outsider_writes("a", "foreign");
    let result = site.alone("write_file", json!({"path": "a", "content": "x", "turn_id": turn}));
    assert_eq!(refusal(&result, "STALE_FILE")["expected_hash"], sha256("two"));
    text(&site.alone("read_text_file", json!({"path": "a", "turn_id": turn})));
    text(&site.alone("write_file", json!({"path": "a", "content": "x", "turn_id": turn})));
    text(&site.alone("end_turn", json!({"turn_id": turn})));
    assert_eq!(site.alone("read_text_file", json!({"path": "a", "turn_id": turn}))["isError"], true);
}

#[test]
fn a_made_up_session_id_does_not_create_a_session() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let site = Site::new(world.server.clone());
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    let params = json!({"name": "write_file", "arguments": {"path": "a", "content": "x"}, "_meta": meta});
    let headers = [
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "write_file"),
        ("Mcp-Session-Id", "made-up"),
    ];
    site.post(&headers, &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}));
    world.holds("a", "one");
}

#[test]
fn a_request_has_a_limited_size() {
    let world = World::new();
    let site = Site::new(world.server.clone());
    let session = site.session();
    let headers = [("Mcp-Session-Id", session.id.as_str())];
    let send = |body: &str| site.send("POST", &headers, body);
    let done = send(&write_of(64 << 20));
    assert!(done.status == 200 && done.body.contains("Successfully wrote"), "{} {}", done.head, done.body);
    let refused = send(&write_of((64 << 20) + 1));
    assert!(refused.status == 413 && refused.body.contains("64 MiB"), "{} {}", refused.head, refused.body);
    assert_eq!(send(&call_of(1 << 17)).status, 200);
    let refused = send(&call_of((1 << 17) + 1));
    assert!(refused.status == 413 && refused.body.contains("131072 values"), "{}", refused.body);
}

#[test]
fn idle_turns_end_without_a_call() {
    let world = World::new();
    let site = Site::new(world.idle_after(Duration::from_millis(100)));
    let begun = site.alone("begin_turn", json!({}));
    let turn = begun["structuredContent"]["turn_id"].as_str().unwrap();
    until_true("the end of the turn", || !world.ledger("TURN_ENDED").is_empty());
    let result = site.alone("get_initial_hash", json!({"file_path": "a", "turn_id": turn}));
    assert_eq!(result["isError"], true);
}

#[test]
fn clients_that_race_over_http_lose_nothing() {
    const CLIENTS: usize = 6;
    const EACH: usize = 8;
    let world = World::new();
    world.outsider_writes("list", "");
    let site = Site::new(world.server.clone());
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let site = &site;
            scope.spawn(move || {
                let session = site.session();
                for round in 0..EACH {
                    loop {
                        let list = text(&session.call("read_text_file", json!({"path": "list"})));
                        let content = format!("{list}{number}-{round}\n");
                        let result = session.call("write_file", json!({"path": "list", "content": content}));
                        if result.get("isError").is_none() {
                            break;
                        }
                    }
                }
            });
        }
    });
    assert_eq!(String::from_utf8(world.bytes("list")).unwrap().lines().count(), CLIENTS * EACH);
}

#[test]
fn invalid_requests_over_http_only_cause_an_error() {
    let world = World::new();
    let site = Site::new(world.server.clone());
    for body in [
        "",
        "{",
        "[]",
        "null",
        "{\"jsonrpc\":\"2.0\"}",
        "\u{0}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\"}",
    ] {
        let answer = site.send("POST", &[], body);
        assert!((400..500).contains(&answer.status), "{body:?} {} {}", answer.status, answer.body);
    }
    for headers in [
        [("Content-Type", "text/plain")],
        [("Accept", "text/html")],
        [("MCP-Protocol-Version", "1999-01-01")],
    ] {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
        assert!((400..500).contains(&site.post(&headers, &message).status), "{headers:?}");
    }
    for method in ["PUT", "PATCH", "HEAD", "GET"] {
        assert!((400..500).contains(&site.send(method, &[], "").status), "{method}");
    }
    text(&site.session().call("list_directory", json!({"path": "."})));
}
