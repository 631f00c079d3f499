//! Access control, requests that must change nothing, and how the server stops.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rustix::process::Signal;

use super::Served;
use crate::world::World;

fn vault() -> World {
    let world = World::new();
    world.run("init --vault").is(0);
    world.run("task add hello").is(0);
    world
}

#[test]
fn foreign_hosts_and_origins_are_refused_everywhere() {
    let world = vault();
    let served = Served::new(&world, &["--name", "box.local"]);
    for path in ["/", "/health", "/metrics", "/mcp", "/nowhere"] {
        let ask = |method: &str, headers: &str| {
            served.asks(&format!("{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n")).status
        };
        assert_eq!(ask("GET", "Host: evil.example\r\n"), 403, "{path}");
        assert_eq!(ask("GET", "Host: HERE\r\nOrigin: http://evil.example\r\n"), 403, "{path}");
        assert_eq!(ask("POST", "Host: HERE\r\nOrigin: null\r\n"), 403, "{path}");
        assert_eq!(ask("GET", "Host: HERE\r\nOrigin: http://localhost:5173\r\n"), 403, "{path}");
        assert_ne!(ask("GET", "Host: HERE\r\nOrigin: http://HERE\r\n"), 403, "{path}");
        assert_ne!(ask("GET", "Host: box.local:1\r\n"), 403, "{path}");
    }
    for path in ["/health", "/metrics"] {
        for method in ["POST", "PUT", "DELETE"] {
            let reply =
                served.asks(&format!("{method} {path} HTTP/1.1\r\nHost: HERE\r\nConnection: close\r\n\r\n"));
            assert_eq!(reply.status, 405, "{method} {path}");
        }
    }
}

const CHOSEN: &str = "a-secret-that-a-person-has-chosen/+%";

#[test]
fn beyond_loopback_everybody_needs_a_token() {
    let world = vault();
    let words = ["serve", "--listen", "0.0.0.0:0", "--name", "box.local", "--json"];
    world.tollgate(words).ends().is(2).fault("USAGE");
    world.tollgate(words.iter().chain(&["--token", ""])).ends().is(2).fault("USAGE");
    for weak in ["sesame", "123456789012345678901", "a secret with spaces in it, too long"] {
        let fault = world.tollgate(words).env("TOLLGATE_TOKEN", weak).ends().is(2).fault("USAGE");
        assert!(fault["hint"].as_str().unwrap().contains("openssl rand"), "{fault}");
        world.tollgate(["serve", "--listen", "127.0.0.1:0", "--token", weak]).ends().is(2);
    }
    let served = Served::of(world.tollgate(words).env("TOLLGATE_TOKEN", CHOSEN));
    let port = served.address.strip_prefix("box.local:").unwrap();
    let served = Served { address: format!("127.0.0.1:{port}"), ..served };
    assert_eq!(served.secret, "a-secret-that-a-person-has-chosen%2F%2B%25", "the address is encoded");
    let token = |words: &str| world.json(words)["token"].as_str().unwrap().to_owned();
    let (monitor, agent) = (token("token add watch --monitor"), token("token add blue"));
    for path in ["/health", "/metrics"] {
        let nobody = served.asks(&format!("GET {path} HTTP/1.1\r\nHost: HERE\r\nConnection: close\r\n\r\n"));
        assert_eq!(nobody.status, 401, "{path}");
        assert_eq!(nobody.header("www-authenticate"), Some("Bearer"));
        assert!(nobody.body.contains("tollgate token add NAME --monitor"), "{nobody:?}");
        assert_eq!(served.gets_as(CHOSEN, path).status, 200, "{path}");
        assert_eq!(served.gets_as(&monitor, path).status, 200, "{path}");
        assert_eq!(served.gets_as(&agent, path).status, 403, "{path}");
        assert_eq!(served.gets_as("wrong", path).status, 401, "{path}");
    }
    assert_eq!(served.gets_as(&monitor, "/").status, 403);
    assert_eq!(served.gets_as(&monitor, "/mcp").status, 403);
    let entered = served
        .asks(&format!("GET /?token={} HTTP/1.1\r\nHost: HERE\r\nConnection: close\r\n\r\n", served.secret));
    assert_eq!((entered.status, entered.header("location")), (303, Some("/")));
}

#[test]
fn get_requests_change_nothing() {
    let world = vault();
    let served = Served::new(&world, &[]);
    served.until_health("the ledger", |health| health["ledger"]["state"] == "whole");
    let tree = || {
        world.script("find . -type f -newer mark -o -type d -newer mark; find . | sort").ends().is(0).stdout()
    };
    world.puts("mark", "");
    let before = tree();
    for path in ["/", "/health", "/health?agent=blue", "/metrics", "/nowhere", "/mcp"] {
        served.gets(path);
    }
    assert_eq!(tree(), before);
}

#[test]
fn it_stops_soon_even_with_open_connections() {
    for signal in [Signal::INT, Signal::TERM] {
        let world = vault();
        let served = Served::new(&world, &[]);
        // One connection without a request, and one that stays open after its request.
        let silent = TcpStream::connect(&served.address).unwrap();
        let mut idle = TcpStream::connect(&served.address).unwrap();
        idle.write_all(format!("GET /health HTTP/1.1\r\nHost: {}\r\n\r\n", served.address).as_bytes())
            .unwrap();
        let mut byte = [0];
        idle.read_exact(&mut byte).unwrap();
        let took = served.ends(signal);
        assert!(took < Duration::from_secs(8), "{took:?}");
        drop((silent, idle));
    }
}

#[test]
fn a_port_in_use_is_a_clear_fault_and_leaves_nothing() {
    let world = World::bare();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for demo in [&[][..], &["--demo"]] {
        let run = world.tollgate(["serve", "--listen", &address, "--json"].iter().chain(demo));
        let fault = run.env("TMPDIR", world.root()).ends().is(3).fault("IO_ERROR");
        assert!(fault["message"].as_str().unwrap().contains(&address), "{fault}");
        assert!(fault["hint"].as_str().unwrap().contains("--listen 127.0.0.1:0"), "{fault}");
    }
    assert_eq!(std::fs::read_dir(world.root()).unwrap().count(), 0);
    let named = world.tollgate(["serve", "--listen", "localhost:7311"]).ends().is(2);
    assert!(
        named.filtered.contains("give an address and a port, as in 127.0.0.1:7311"),
        "{}",
        named.filtered
    );
    let fault =
        world.tollgate(["serve", "--listen", "192.0.2.1:7311", "--token", CHOSEN, "--json"]).ends().is(3);
    fault.fault("IO_ERROR");
}

#[test]
fn an_agent_cannot_start_the_dashboard() {
    let world = vault();
    let run = world.tollgate(["serve", "--listen", "127.0.0.1:0", "--json"]).env("TOLLGATE_AGENT", "blue");
    run.ends().is(2).fault("USAGE");
}
