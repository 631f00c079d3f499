//! What a node answers instead of doing what it was asked: what may have been carried out, and what waits for a person.

use std::path::Path;
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tollgate_base::error::Fault;
use tollgate_base::lock::Pauses;
use tollgate_base::name::StepId;
use tollgate_base::task::TaskName;
use tollgate_testing::etcd::{Cluster, post};
use tollgate_vault::{ClaimKind, ClaimRequest, Release, State, StepOutcome, Store, Terms, Vault};

use super::{fake_node, opened};
use crate::client::{CallError, Client};
use crate::layout::Layout;
use crate::message::{Range, RangeAnswer, encoded, end_of};
use crate::process_lease::ProcessLease;
use crate::{EtcdUrl, Login};

/// A client of a node that gives this answer to every call.
fn client_of(status: u16, answer: String) -> Client {
    let port = fake_node::start(move |path, _| match path {
        "/version" => Some((200, json!({ "etcdserver": "3.5.30" }).to_string())),
        _ => Some((status, answer.clone())),
    });
    let url = EtcdUrl::parse(&format!("etcd://127.0.0.1:{port}/x")).unwrap();
    Client::new(&url, None, Duration::from_millis(300), Path::new(".")).unwrap()
}

#[test]
fn an_answer_that_leaves_open_whether_the_call_was_carried_out_is_not_a_refusal() {
    let said = |code: i64, message: &str| json!({ "code": code, "message": message }).to_string();
    for (status, answer) in [
        (499, said(1, "context canceled")),
        (500, said(2, "raft: stopped")),
        (500, said(13, "stream terminated by RST_STREAM")),
        (429, said(8, "etcdserver: too many requests")),
        (429, said(8, "etcdserver: mvcc: database space exceeded")),
        (200, "<html>a proxy</html>".to_owned()),
    ] {
        let client = client_of(status, answer.clone());
        let called = client.call::<RangeAnswer>("/v3/kv/txn", &Range::all("x").body(), client.deadline);
        assert!(
            matches!(&called, Err(CallError::Unanswered(Fault::Unreachable { .. }))),
            "{answer}: {called:?}"
        );
    }
    for (code, message) in
        [(3, "etcdserver: duplicate key given in txn request"), (8, "grpc: message too large")]
    {
        let client = client_of(400, said(code, message));
        let called = client.call::<RangeAnswer>("/v3/kv/txn", &Range::all("x").body(), client.deadline);
        assert!(matches!(&called, Err(CallError::Refused { .. })), "{message}: {called:?}");
    }
}

#[test]
fn an_answer_that_cannot_be_read_is_neither_a_version_nor_a_token() {
    let [good, page, empty] =
        [r#"{ "etcdserver": "3.5.30" }"#, "<html>a proxy</html>", "{}"].map(str::to_owned);
    let is_refused = |version: &String, token: Option<&String>| {
        let answers = (version.clone(), token.cloned().unwrap_or_default());
        let port = fake_node::start(move |path, _| {
            let text = match path {
                "/version" => answers.0.clone(),
                "/v3/auth/authenticate" => answers.1.clone(),
                _ => json!({}).to_string(),
            };
            Some((200, text))
        });
        let url = EtcdUrl::parse(&format!("etcd://127.0.0.1:{port}/x")).unwrap();
        let login = token.map(|_| Login { user: "ada".to_owned(), password: "secret".to_owned() });
        let client = Client::new(&url, login, Duration::from_secs(5), Path::new(".")).unwrap();
        let called = client.range(&Range::all("x"));
        // Nothing but the question was sent, so nothing was changed.
        let Err(CallError::Unsent(fault @ Fault::Unreachable { .. })) = called else {
            panic!("{version} {token:?}: {called:?}");
        };
        assert!(fault.to_string().contains("cannot be read"), "{fault}");
    };
    // Each call is tried again until its time is up, so all wait together.
    thread::scope(|scope| {
        let cases = [(&page, None), (&empty, None), (&good, Some(&page)), (&good, Some(&good))];
        for (version, token) in cases {
            scope.spawn(move || is_refused(version, token));
        }
    });
}

#[test]
fn what_the_engine_refuses_may_be_allowed_later_unless_it_is_too_large() {
    for (code, message, expected) in [
        (7, "etcdserver: permission denied", "REMOTE_REFUSED"),
        (9, "etcdserver: authentication is not enabled", "REMOTE_REFUSED"),
        (11, "etcdserver: mvcc: required revision has been compacted", "REMOTE_REFUSED"),
        (3, "etcdserver: request is too large", "INVALID"),
        (8, "grpc: received message larger than max (2097163 vs. 2097152)", "INVALID"),
    ] {
        let client = client_of(400, json!({ "code": code, "message": message }).to_string());
        let called = client.call::<RangeAnswer>("/v3/kv/txn", &Range::all("x").body(), client.deadline);
        let fault = called.unwrap_err().fault("x");
        assert_eq!(fault.code(), expected, "{fault}");
    }
}

#[test]
fn a_renewal_that_was_answered_with_an_error_does_not_end_the_lease() {
    // The gateways of etcd 3.5 and of etcd 3.6.
    for error in [
        json!({ "grpc_code": 14, "message": "etcdserver: no leader" }),
        json!({ "code": 14, "message": "etcdserver: no leader", "details": [] }),
    ] {
        let client = client_of(200, json!({ "error": error }).to_string());
        let renewed = client.keep_alive(1, client.deadline);
        assert!(matches!(renewed, Err(CallError::Unanswered(_))), "{renewed:?}");
    }
    let gone = json!({ "result": { "header": {}, "ID": "1" } }).to_string();
    assert_eq!(client_of(200, gone).keep_alive(1, Duration::from_secs(5)).unwrap(), None);
}

#[test]
fn a_renewal_by_a_leader_that_has_a_successor_proves_nothing() {
    for term in [2, 3] {
        let port = fake_node::start(move |path, _| {
            let header = |term: i64| json!({ "raft_term": term.to_string() });
            let found = json!([{ "response_range": { "kvs": [{ "key": "eA==" }] } }]);
            let answer = match path {
                "/version" => json!({ "etcdserver": "3.5.30" }),
                "/v3/lease/keepalive" => json!({ "result": { "header": header(2), "TTL": "3" } }),
                "/v3/kv/txn" => json!({ "header": header(term), "succeeded": true, "responses": found }),
                _ => json!({}),
            };
            Some((200, answer.to_string()))
        });
        let url = EtcdUrl::parse(&format!("etcd://127.0.0.1:{port}/x")).unwrap();
        let client = Client::new(&url, None, Duration::from_secs(5), Path::new(".")).unwrap();
        let (lease, layout) = (ProcessLease::new(Duration::from_secs(3), "here"), Layout::new("x"));
        lease.lease(&client, &layout).unwrap();
        let renewed = lease.renew(&client, &layout, Vec::new());
        assert_eq!(matches!(renewed, Ok(Some(_))), term == 2, "{term}");
        assert_eq!(matches!(renewed, Err(CallError::Unanswered(_))), term == 3, "{term}");
    }
}

#[test]
fn a_task_is_released_as_soon_as_a_full_engine_has_room_again() {
    let cluster = Cluster::with_quota(2 << 20);
    let store = opened(&cluster.url(), "one");
    let vault = Vault::new(store.clone(), Terms::default());
    let now = Timestamp::now();
    let name: TaskName = "x".parse().unwrap();
    vault.add(&name, b"text", now).unwrap();
    let request = ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: false };
    let claimed = vault.claim(&name, &request, now).unwrap().unwrap();

    let text = vec![b'x'; 500 << 10];
    let mut added: Vec<TaskName> = Vec::new();
    let fault = loop {
        added.push(format!("large-{}", added.len()).parse().unwrap());
        let large = &added[added.len() - 1];
        match store.add(&StepId::new().unwrap(), large, &text, now).unwrap() {
            StepOutcome::Done(_) => {}
            StepOutcome::Unknown(fault) => break fault.to_string(),
            outcome => panic!("{outcome:?}"),
        }
    };
    assert!(fault.contains("space exceeded") && fault.contains("etcdctl alarm disarm"), "{fault}");
    let release = || vault.release(&name, &claimed.claim.id, &Release::success(), Timestamp::now());
    let fault = release().unwrap_err();
    assert!(matches!(fault, Fault::Unreachable { .. }), "{fault}");

    let port = cluster.ports()[0];
    let large = format!("{}large-", store.shared.layout.open_tasks());
    let deleted = json!({ "key": encoded(&large), "range_end": encoded(end_of(&large)) });
    let deleted = post(port, "/v3/kv/deleterange", &deleted).unwrap();
    let revision = &deleted["header"]["revision"];
    let member = &deleted["header"]["member_id"];
    for (path, body) in [
        ("/v3/kv/compaction", json!({ "revision": revision, "physical": true })),
        ("/v3/maintenance/defragment", json!({})),
        ("/v3/maintenance/alarm", json!({ "action": "DEACTIVATE", "alarm": "NOSPACE", "memberID": member })),
    ] {
        assert!(post(port, path, &body).is_some(), "{path}");
    }
    let mut pauses = Pauses::lasting(Duration::from_secs(30));
    while release().is_err() {
        assert!(pauses.pause(), "it takes no writes");
    }
    assert!(store.get(&name, Some(State::Done), Timestamp::now()).unwrap().is_some());
}
