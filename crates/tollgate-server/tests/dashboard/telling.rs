//! Notices: a command or a webhook is told about approvals, breakers and repeated refusals.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64::Engine as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use tollgate::settings::{Durability, NotifySettings};
use tollgate_server::notices::{NoticeTarget, Webhook};

use crate::lively::entry;
use crate::world::World;

/// Longer than a notice takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// One request that a webhook got.
struct Posted {
    headers: Vec<(String, String)>,
    body: String,
}

impl Posted {
    fn header(&self, name: &str) -> &str {
        &self.headers.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{name}")).1
    }
}

/// A receiver of webhooks that fails this many times before it accepts.
fn receiver(failures: usize) -> (String, Receiver<Posted>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut reader = BufReader::new(stream.unwrap());
            let (mut headers, mut length) = (Vec::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if line.trim().is_empty() {
                    break;
                }
                if let Some((name, value)) = line.trim().split_once(": ") {
                    if name.eq_ignore_ascii_case("content-length") {
                        length = value.parse().unwrap();
                    }
                    headers.push((name.to_ascii_lowercase(), value.to_owned()));
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let status = if number < failures { "503 Service Unavailable" } else { "204 No Content" };
            write!(reader.get_mut(), "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                .unwrap();
            let posted = Posted { headers, body: String::from_utf8(body).unwrap() };
            if send.send(posted).is_err() {
                return;
            }
        }
    });
    (url, receive)
}

fn by_webhook(url: &str, tries: usize) -> NoticeTarget {
    let webhook = Some(Webhook::new(url.to_owned(), "a shared secret").unwrap());
    NoticeTarget { settings: NotifySettings::default(), webhook, pauses: vec![Duration::ZERO; tries - 1] }
}

#[test]
fn a_webhook_is_told_signed_and_told_again_until_it_accepts() {
    let (url, posts) = receiver(2);
    let world = World::telling(by_webhook(&url, 3));
    world.drafted_as("x", "Pay the rent", "ten coins");
    let posted: Vec<Posted> = (0..3).map(|_| posts.recv_timeout(PATIENCE).unwrap()).collect();
    for post in &posted {
        assert_eq!(post.header("webhook-id"), posted[0].header("webhook-id"), "the same notice");
        let (id, time) = (post.header("webhook-id"), post.header("webhook-timestamp"));
        let mut mac = Hmac::<Sha256>::new_from_slice(b"a shared secret").unwrap();
        mac.update(format!("{id}.{time}.{}", post.body).as_bytes());
        let wanted = base64::engine::general_purpose::STANDARD.encode(mac.finalize().into_bytes());
        assert_eq!(post.header("webhook-signature"), format!("v1,{wanted}"));
    }
    let notice: Value = serde_json::from_str(&posted[0].body).unwrap();
    assert_eq!(
        (&notice["event"], &notice["task"], &notice["title"]),
        (&json!("approval.pending"), &json!("x.md"), &json!("Pay the rent"))
    );
    assert_eq!(notice["workspace"], json!(world.root().to_str().unwrap()));
    world.hears("/health", "\"notify\":{\"sent\":1,\"failed\":0,\"dropped\":0}");
}

#[test]
fn breakers_and_repeated_refusals_are_told_too() {
    let (url, posts) = receiver(0);
    let world = World::telling(by_webhook(&url, 1));
    let blue = world.conflict("a");
    for _ in 0..4 {
        assert!(!blue.writes("a", "again\n"));
    }
    let next = || serde_json::from_str::<Value>(&posts.recv_timeout(PATIENCE).unwrap().body).unwrap();
    let told = next();
    assert_eq!(
        (&told["event"], &told["agent"], &told["file"]),
        (&json!("refusals.repeated"), &json!("blue"), &json!("a"))
    );
    let until = (jiff::Timestamp::now() + jiff::SignedDuration::from_mins(5)).to_string();
    let payload = json!({"failures": 5, "reason": "exit status 1", "until": until});
    let open = json!({"action_type": "BREAKER", "payload": payload, "result": {"status": "OPEN"}});
    let line = entry(jiff::SignedDuration::ZERO, "green", open);
    world.workspace().ledger().append(&[line], Durability::Fast).unwrap();
    let told = next();
    assert_eq!(
        (&told["event"], &told["agent"], &told["failures"]),
        (&json!("breaker.open"), &json!("green"), &json!(5))
    );
}

#[test]
fn a_dead_webhook_holds_nothing_up_and_is_told_in_health() {
    // Nobody listens there any more.
    let url = format!("http://{}/", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let world = World::telling(by_webhook(&url, 2));
    world.drafted("x", "ten coins");
    let reply = world.hears("/health", "\"failed\":1");
    reply.has("last_error").has("\"status\":\"ok\"");
    let visitor = world.visits("/approvals");
    assert_eq!(visitor.sends("/tasks/x.md/approve", &[]).status, 303);
}

#[test]
fn a_command_is_told_about_each_task_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("told");
    let append = format!("cat >> {}; echo >> {}", file.display(), file.display());
    let settings =
        NotifySettings { command: vec!["sh".into(), "-c".into(), append], ..NotifySettings::default() };
    let target = NoticeTarget { settings, webhook: None, pauses: Vec::new() };
    let world = World::telling(target);
    world.drafted("x", "ten coins");
    let told = |lines: usize| {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            if text.lines().count() >= lines {
                return text;
            }
            assert!(std::time::Instant::now() < deadline, "{text:?}");
            std::thread::yield_now();
        }
    };
    told(1);
    // Something else happens, and then another task waits. Only that is told.
    world.conflict("a");
    world.drafted("y", "ten coins");
    let text = told(2);
    let tasks: Vec<Value> =
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["task"].take()).collect();
    assert_eq!(tasks, [json!("x.md"), json!("y.md")], "each once");
}
