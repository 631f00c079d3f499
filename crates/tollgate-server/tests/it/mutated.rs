//! Mutated messages and requests get an answer or are ignored. The server goes on.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_fuzz::fuzz;

use crate::http::Site;
use crate::world::World;

/// The panics in threads of servers, which answer such a call with an error. Threads of tests have names.
fn panics() -> usize {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let thread = std::thread::current();
            if thread.name().is_none_or(|name| name.starts_with("tokio")) {
                COUNT.fetch_add(1, Ordering::SeqCst);
            }
            usual(info);
        }));
    });
    COUNT.load(Ordering::SeqCst)
}

/// Messages of a client, one for each kind of tool.
fn messages() -> Vec<String> {
    let call = |id: i64, name: &str, arguments: Value| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": arguments}}).to_string()
    };
    vec![
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}).to_string(),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
            .to_string(),
        call(2, "read_text_file", json!({"path": "a", "head": 3})),
        call(3, "write_file", json!({"path": "d/n", "content": "x", "expected_hash": "0".repeat(64)})),
        call(
            4,
            "edit_file",
            json!({"path": "a", "edits": [{"oldText": "one", "newText": "two"}], "dryRun": true}),
        ),
        call(5, "search_files", json!({"path": ".", "pattern": "**/*.{rs,md}", "excludePatterns": ["x"]})),
        call(
            6,
            "write_files",
            json!({"changes": [{"path": "a", "delete": true}, {"path": "b", "content": "é"}]}),
        ),
        call(7, "claim_task", json!({"task": "a"})),
        call(8, "release_task", json!({"task": "a", "claim_id": "c-0123456789abcdef", "result": "success"})),
        call(9, "list_tasks", json!({"state": "Needs_Action", "limit": 5})),
    ]
}

#[test]
fn mutated_json_rpc_messages_do_not_stop_the_server() {
    panics();
    let world = World::with_vault("[guard]\nquiet_wait = \"5ms\"\n");
    world.adds("a", "x");
    world.outsider_writes("a", "one\ntwo\n");
    let mut client = world.client();
    fuzz("json-rpc", &messages(), |bytes| {
        let line = String::from_utf8_lossy(bytes).replace('\n', " ");
        client.line(&line);
        // Every answer is read, so that nothing is left in the pipe.
        let id = client.send("ping", json!({}));
        client.wait(id);
    });
    assert_eq!(panics(), 0);
    world.client().done("list_directory", json!({"path": "."}));
}

#[test]
fn an_id_that_is_not_json_is_not_repeated() {
    let mut client = World::new().client();
    for id in ["1e400", "\"\\ud800\""] {
        client.line(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}"));
        let answer = client.message().unwrap();
        assert_eq!(answer["id"], Value::Null, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().starts_with("the id must be"), "{answer}");
    }
}

#[test]
fn mutated_http_requests_do_not_stop_the_server() {
    panics();
    let world = World::new();
    let site = Site::new(world.serving_as("blue"));
    let host = site.address();
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
        "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}})
        .to_string();
    let usual = format!(
        "Host: {host}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nConnection: close\r\n"
    );
    let requests = [
        format!("POST /mcp HTTP/1.1\r\n{usual}Content-Length: {}\r\n\r\n{body}", body.len()),
        format!("GET /mcp?a=%41&b HTTP/1.1\r\n{usual}Mcp-Session-Id: x\r\n\r\n"),
        format!("DELETE /mcp HTTP/1.1\r\n{usual}Mcp-Session-Id: x\r\nOrigin: http://{host}\r\n\r\n"),
        format!("POST /mcp HTTP/1.1\r\n{usual}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    ];
    fuzz("http", &requests, |bytes| {
        let mut stream = TcpStream::connect(host).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        // The server may close the connection before everything is written.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.take(1 << 20).read_to_end(&mut Vec::new());
    });
    assert_eq!(panics(), 0);
    let mut stream = TcpStream::connect(host).unwrap();
    stream.write_all(requests[1].as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
}
