//! Logins and TLS, with real nodes.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::json;
use tollgate_base::error::Result;
use tollgate_vault::store::Scan;
use tollgate_vault::{State, Store};

use super::cluster::{Cluster, free_port, post};
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
        archive: None,
        journal: None,
    })
}

fn look(store: &EtcdStore) -> Result<Scan> {
    store.scan(State::NeedsAction, Timestamp::now())
}

#[test]
fn a_login_is_needed_used_and_renewed() {
    let cluster = Cluster::start();
    let url = cluster.url();
    let port = cluster.ports()[0];
    for (path, body) in [
        ("user/add", json!({ "name": "root", "password": "secret" })),
        ("role/add", json!({ "name": "root" })),
        ("user/grant", json!({ "user": "root", "role": "root" })),
        ("user/add", json!({ "name": "guest", "password": "secret" })),
        ("enable", json!({})),
    ] {
        assert!(post(port, &format!("/v3/auth/{path}"), &body).is_some(), "{path}");
    }
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
    store.inside.client.forge_token("old.token");
    store.events("", 10).unwrap();
    let findings = store.checkup().unwrap();
    assert!(findings.iter().any(|found| found.what.contains("takes our writes")), "{findings:?}");
}

fn openssl(words: &str) {
    let out = Command::new("openssl").args(words.split(' ')).output().unwrap();
    assert!(out.status.success(), "{words}: {}", String::from_utf8_lossy(&out.stderr));
}

/// An authority `NAME.pem`, and certificates that it signed: for a node, and for us.
fn certificates(folder: &Path, name: &str) {
    let at = |file: &str| folder.join(file).display().to_string();
    std::fs::write(at("names"), "subjectAltName=IP:127.0.0.1").unwrap();
    let new = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    let (ca, ca_key, names) = (at(&format!("{name}.pem")), at(&format!("{name}.key")), at("names"));
    openssl(&format!("req -x509 {new} -days 2 -subj /CN={name} -keyout {ca_key} -out {ca}"));
    for who in ["node", "own"] {
        let file = at(&format!("{name}-{who}"));
        openssl(&format!("req -new {new} -subj /CN={who} -keyout {file}.key -out {file}.csr"));
        let signed = format!("-in {file}.csr -CA {ca} -CAkey {ca_key} -CAcreateserial -extfile {names}");
        openssl(&format!("x509 -req {signed} -days 2 -out {file}.pem"));
    }
}

struct SecureNode(Child);

impl Drop for SecureNode {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn tls_and_mutual_tls_let_only_the_right_ones_talk() {
    let keep = tempfile::tempdir().unwrap();
    let folder = keep.path();
    certificates(folder, "ours");
    certificates(folder, "theirs");
    let (client, peer) = (free_port(), free_port());
    let (client, peer) = (format!("https://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let at = |file: &str| folder.join(file).display().to_string();
    let child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "etcd", "--name", "n", "--data-dir", &at("data")])
        .args(["--client-cert-auth", "--trusted-ca-file", &at("ours.pem")])
        .args(["--cert-file", &at("ours-node.pem"), "--key-file", &at("ours-node.key")])
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("n={peer}"), "--logger", "zap", "--log-level", "error"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _node = SecureNode(child);
    let place = client.trim_start_matches("https://");
    let open = |parameters: &str| store(&format!("etcds://{place}/x?{parameters}"), None, folder);
    let right = open("ca=ours.pem&cert=ours-own.pem&key=ours-own.key").unwrap();
    let began = Instant::now();
    while let Err(fault) = look(&right) {
        assert!(began.elapsed() < Duration::from_secs(60), "{fault}");
    }
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
