//! Logins and TLS, with real nodes.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::json;
use tollgate_base::error::Result;
use tollgate_testing::etcd::{Cluster, post};
use tollgate_testing::free_port;
use tollgate_vault::store::Scan;
use tollgate_vault::{State, Store};

use super::fake_node;
use crate::{EtcdOptions, EtcdStore, EtcdUrl, Login};

fn store(url: &str, login: Option<(&str, &str)>, base: &Path) -> Result<EtcdStore> {
    let login = login.map(|(user, password)| Login { user: user.to_owned(), password: password.to_owned() });
    EtcdStore::open(EtcdOptions {
        url: EtcdUrl::parse(url)?,
        login,
        base: base.to_owned(),
        machine: "here".to_owned(),
        lease: Duration::from_secs(60),
        deadline: Duration::from_secs(5),
        journal: None,
    })
}

fn look(store: &EtcdStore) -> Result<Scan> {
    store.scan(State::NeedsAction, Timestamp::now())
}

/// From now on, the engine wants a login.
fn want_logins(port: u16) {
    for (path, body) in [
        ("user/add", json!({ "name": "root", "password": "secret" })),
        ("role/add", json!({ "name": "root" })),
        ("user/grant", json!({ "user": "root", "role": "root" })),
        ("user/add", json!({ "name": "guest", "password": "secret" })),
        ("enable", json!({})),
    ] {
        assert!(post(port, &format!("/v3/auth/{path}"), &body).is_some(), "{path}");
    }
}

#[test]
fn doctor_warns_of_versions_that_have_a_risk_with_logins() {
    let node = |version: &'static str| {
        let answer = json!({ "etcdserver": version, "token": "x", "members": [{}, {}, {}] }).to_string();
        fake_node::start(move |_, _| Some((200, answer.clone())))
    };
    for (version, login, has_risk) in
        [("3.4.21", true, true), ("3.4.21", false, false), ("3.4.22", true, false)]
    {
        let login = login.then_some(("root", "secret"));
        let store = store(&format!("etcd://127.0.0.1:{}/x", node(version)), login, Path::new(".")).unwrap();
        let found = format!("{:?}", store.checkup().unwrap());
        assert_eq!(found.contains("install 3.4.22 or later"), has_risk, "{version} {login:?}: {found}");
    }
}

#[test]
fn a_login_is_needed_used_and_renewed() {
    let cluster = Cluster::start();
    let url = cluster.url();
    let port = cluster.ports()[0];
    want_logins(port);
    let base = Path::new(".");
    let nobody = look(&store(&url, None, base).unwrap()).unwrap_err();
    assert!(nobody.to_string().contains("TOLLGATE_STORE_USER"), "{nobody}");
    let wrong = look(&store(&url, Some(("root", "wrong")), base).unwrap()).unwrap_err();
    assert_eq!(wrong.code(), "REMOTE_REFUSED", "{wrong}");
    let guest = look(&store(&url, Some(("guest", "secret")), base).unwrap()).unwrap_err();
    assert_eq!(guest.code(), "REMOTE_REFUSED", "{guest}");
    let store = store(&url, Some(("root", "secret")), base).unwrap();
    look(&store).unwrap();
    // As if the token had expired.
    store.shared.client.forge_token("old.token");
    store.events("", 10).unwrap();
    let findings = store.checkup().unwrap();
    assert!(findings.iter().any(|found| found.what.contains("accepts our writes")), "{findings:?}");
}

fn openssl(words: &str) {
    let out = Command::new("openssl").args(words.split(' ')).output().unwrap();
    assert!(out.status.success(), "{words}: {}", String::from_utf8_lossy(&out.stderr));
}

/// An authority `NAME.pem`, and certificates that it signed: for a node, and for us with and without a name.
fn certificates(folder: &Path, name: &str) {
    let at = |file: &str| folder.join(file).display().to_string();
    std::fs::write(at("names"), "subjectAltName=IP:127.0.0.1").unwrap();
    let new = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    let (ca, ca_key, names) = (at(&format!("{name}.pem")), at(&format!("{name}.key")), at("names"));
    openssl(&format!("req -x509 {new} -days 2 -subj /CN={name} -keyout {ca_key} -out {ca}"));
    for (who, subject) in [("node", "/CN=node"), ("own", "/CN=own"), ("nameless", "/O=team")] {
        let file = at(&format!("{name}-{who}"));
        openssl(&format!("req -new {new} -subj {subject} -keyout {file}.key -out {file}.csr"));
        let signed = format!("-in {file}.csr -CA {ca} -CAkey {ca_key} -CAcreateserial -extfile {names}");
        openssl(&format!("x509 -req {signed} -days 2 -out {file}.pem"));
    }
}

struct SingleNode(Child);

impl Drop for SingleNode {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A node with these addresses for clients and these options.
fn start(folder: &Path, clients: &str, options: &[&str]) -> SingleNode {
    let peer = format!("http://127.0.0.1:{}", free_port());
    let child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "etcd", "--name", "n", "--data-dir"])
        .arg(folder.join("data"))
        .args(["--listen-client-urls", clients, "--advertise-client-urls", clients])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("n={peer}"), "--logger", "zap", "--log-level", "error"])
        .args(options)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    SingleNode(child)
}

/// A node that takes only connections with a certificate of ours, and at the second address any.
fn start_secure(folder: &Path, clients: &str) -> SingleNode {
    let at = |file: &str| folder.join(file).display().to_string();
    let (ca, cert, key) = (at("ours.pem"), at("ours-node.pem"), at("ours-node.key"));
    let files = ["--trusted-ca-file", &ca, "--cert-file", &cert, "--key-file", &key, "--client-cert-auth"];
    start(folder, clients, &files)
}

/// Waits until the node has started.
fn look_until(store: &EtcdStore, is_enough: impl Fn(&Result<Scan>) -> bool) -> Result<Scan> {
    let began = Instant::now();
    loop {
        let looked = look(store);
        if is_enough(&looked) {
            return looked;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{looked:?}");
    }
}

#[test]
fn tls_and_mutual_tls_let_only_the_right_ones_talk() {
    let keep = tempfile::tempdir().unwrap();
    let folder = keep.path();
    certificates(folder, "ours");
    certificates(folder, "theirs");
    let place = format!("127.0.0.1:{}", free_port());
    let _node = start_secure(folder, &format!("https://{place}"));
    let open = |parameters: &str| store(&format!("etcds://{place}/x?{parameters}"), None, folder);
    let right = open("ca=ours.pem&cert=ours-own.pem&key=ours-own.key").unwrap();
    look_until(&right, Result::is_ok).unwrap();
    for wrong in [
        "ca=theirs.pem&cert=ours-own.pem&key=ours-own.key",
        "ca=ours.pem",
        "ca=ours.pem&cert=theirs-own.pem&key=theirs-own.key",
    ] {
        let fault = look(&open(wrong).unwrap()).unwrap_err();
        assert_eq!(fault.code(), "REMOTE_UNREACHABLE", "{wrong}: {fault}");
    }
    assert!(open("ca=nowhere.pem").is_err(), "a file that is not there");
    assert!(open("ca=names").is_err(), "a file without a certificate");
}

#[test]
fn a_login_with_a_certificate_that_has_a_common_name_is_refused_and_the_fault_says_why() {
    let keep = tempfile::tempdir().unwrap();
    let folder = keep.path();
    certificates(folder, "ours");
    let (place, port) = (format!("127.0.0.1:{}", free_port()), free_port());
    let _node = start_secure(folder, &format!("https://{place},http://127.0.0.1:{port}"));
    let login = Some(("root", "secret"));
    let open = |who: &str| {
        store(&format!("etcds://{place}/x?ca=ours.pem&cert=ours-{who}.pem&key=ours-{who}.key"), login, folder)
            .unwrap()
    };
    // Before anybody needs a login, every certificate will do.
    let plain = store(&format!("etcd://127.0.0.1:{port}/x"), None, folder).unwrap();
    look_until(&plain, Result::is_ok).unwrap();
    want_logins(port);
    look(&open("nameless")).unwrap();
    let named = open("own");
    let fault = look(&named).unwrap_err();
    assert_eq!(fault.code(), "REMOTE_REFUSED", "{fault}");
    assert!(fault.to_string().contains("certificate without a CommonName"), "{fault}");
    let findings = named.checkup().unwrap();
    assert!(findings[0].what.contains("certificate without a CommonName"), "{findings:?}");
    assert!(!format!("{findings:?}").contains("start it"), "{findings:?}");
}

#[test]
fn what_a_node_says_in_plain_text_is_repeated() {
    let keep = tempfile::tempdir().unwrap();
    let place = format!("127.0.0.1:{}", free_port());
    let _node = start(keep.path(), &format!("http://{place}"), &["--host-whitelist", "another.example"]);
    let store = store(&format!("etcd://{place}/x"), None, keep.path()).unwrap();
    let is_answered = |looked: &Result<Scan>| match looked {
        Err(fault) => fault.code() != "REMOTE_UNREACHABLE",
        Ok(_) => true,
    };
    let fault = look_until(&store, is_answered).unwrap_err().to_string();
    assert!(fault.contains("421") && fault.contains("--host-whitelist"), "{fault}");
    assert!(!fault.contains('\n'), "{fault}");
    let findings = store.checkup().unwrap();
    assert!(findings[0].what.contains("--host-whitelist"), "{findings:?}");
}
