//! Calls end in time, whatever a node does, and whatever must be asked before.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::fake_node;
use crate::client::Client;
use crate::message::{Range, RangeAnswer};
use crate::{EtcdUrl, Login};

fn client(port: u16) -> Client {
    let url = EtcdUrl::parse(&format!("etcd://127.0.0.1:{port}/x")).unwrap();
    let login = Login { user: "ada".to_owned(), password: "secret".to_owned() };
    Client::new(&url, Some(login), Duration::from_secs(10), Path::new(".")).unwrap()
}

/// How long a call with this deadline takes, which must fail.
fn call_in_vain(client: &Client, deadline: Duration) -> Duration {
    let began = Instant::now();
    let answer = client.call::<RangeAnswer>("/v3/kv/range", &Range::all("x").body(), deadline);
    assert!(answer.is_err(), "there was an answer");
    began.elapsed()
}

#[test]
fn the_version_and_the_login_take_their_time_from_that_of_the_call() {
    // Three answers: the version, the login, the call itself.
    let port = fake_node::start(|_, _| {
        thread::sleep(Duration::from_secs(1));
        Some((200, json!({ "etcdserver": "3.5.30", "token": "x" }).to_string()))
    });
    let took = call_in_vain(&client(port), Duration::from_millis(1200));
    assert!(took < Duration::from_millis(2500), "{took:?}");
}

#[test]
fn a_node_has_time_to_sort_many_lines_before_it_answers() {
    let port = fake_node::start(|path, _| {
        if path == "/v3/kv/range" {
            thread::sleep(Duration::from_secs(2));
        }
        Some((200, json!({ "etcdserver": "3.5.30", "token": "x" }).to_string()))
    });
    let sorted = Range { created_since: Some(0), ..Range::all("x") };
    assert!(client(port).range(&sorted).is_ok());
}

#[test]
fn a_login_that_nobody_answers_does_not_make_other_calls_wait() {
    let version = json!({ "etcdserver": "3.5.30" }).to_string();
    let port = fake_node::start(move |path, _| (path == "/version").then(|| (200, version.clone())));
    let client = client(port);
    let slowest = thread::scope(|scope| {
        let call = || scope.spawn(|| call_in_vain(&client, Duration::from_millis(500)));
        let calls: Vec<_> = (0..8).map(|_| call()).collect();
        calls.into_iter().map(|call| call.join().unwrap()).max().unwrap()
    });
    assert!(slowest < Duration::from_millis(2500), "{slowest:?}");
}
