//! Many connections: strangers cannot keep anybody out.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use super::Served;
use crate::world::World;

/// Opens this many connections, which send nothing. Those that the server closes count, too.
fn crowd(address: &str, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(address).unwrap()).collect()
}

#[test]
fn health_is_reachable_with_5000_idle_connections_and_1024_descriptors() {
    // The test itself needs more.
    let most = getrlimit(Resource::Nofile).maximum;
    assert!(most.is_none_or(|most| most > 8000), "the hard limit of descriptors is {most:?}");
    setrlimit(Resource::Nofile, Rlimit { current: Some(8000), maximum: most }).unwrap();
    let world = World::new();
    world.run("init --vault").is(0);
    let script = "ulimit -n 1024; exec tollgate serve --listen 127.0.0.1:0 --agent blue --json";
    let served = Served::of(world.script(script));
    let client = served.client(served.said["mcp"]["token"].as_str().unwrap());
    // An open page of the person.
    let mut page = TcpStream::connect(&served.address).unwrap();
    let (host, secret) = (&served.address, &served.secret);
    let head = format!("Host: {host}\r\nAuthorization: Bearer {secret}\r\n\r\n");
    write!(page, "GET /events?page=/board HTTP/1.1\r\n{head}").unwrap();
    let mut byte = [0];
    page.read_exact(&mut byte).unwrap();

    let idle = crowd(&served.address, 5000);
    let began = Instant::now();
    assert_eq!(served.gets("/health").status, 200);
    assert_eq!(served.gets("/metrics").status, 200);
    assert_eq!(served.gets("/").status, 200);
    let called = client.calls("list_allowed_directories", &json!({}));
    assert_eq!(called["isError"], Value::Null, "{called}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    // The open page was not closed to make room.
    world.run("task add fresh").is(0);
    page.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut seen = String::new();
    while !seen.contains("fresh") {
        let mut bytes = [0; 4096];
        let count = page.read(&mut bytes).unwrap();
        assert!(count > 0, "the page was closed: {seen}");
        seen += &String::from_utf8_lossy(&bytes[..count]);
    }
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", served.process.0.id())).unwrap().count();
    assert!(descriptors < 800, "{descriptors} descriptors are open");
    drop(idle);
}

#[test]
fn an_agent_cannot_use_up_all_sessions() {
    let world = World::new();
    world.run("init").is(0);
    let served = Served::new(&world, &["--agent", "blue"]);
    let token = served.said["mcp"]["token"].as_str().unwrap();
    let clients: Vec<_> = (0..64).map(|_| served.client(token)).collect();
    let one_more = super::Client { served: &served, token, session: String::new() };
    let refused = one_more.posts(&super::initialize());
    assert_eq!(refused.status, 500, "{refused:?}");
    assert!(refused.body.contains("64 sessions in use"), "{refused:?}");
    // Another agent is not affected, nor are the open sessions.
    let green = world.json("token add green")["token"].as_str().unwrap().to_owned();
    for client in [&clients[0], &clients[63], &served.client(&green)] {
        assert_eq!(client.calls("list_allowed_directories", &json!({}))["isError"], Value::Null);
    }
}
