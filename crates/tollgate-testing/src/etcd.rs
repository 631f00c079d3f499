//! Real etcd nodes on this machine, which can be killed, paused and started again. They end with the value.
//!
//! Most tests share three nodes, and each has a prefix of its own. A test that does something to a node, or to all keys, has a
//! cluster of its own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::shared::Shared;
use crate::{PATIENCE, free_port};

/// Some nodes that belong together.
pub struct Cluster {
    nodes: Vec<EtcdNode>,
    prefixes: AtomicUsize,
    folder: tempfile::TempDir,
    /// How many bytes the database of a node may have; 0: as many as etcd allows by default.
    quota: u64,
    flushes: bool,
}

struct EtcdNode {
    port: u16,
    peer: u16,
    /// The port at which the other nodes reach it.
    shown: u16,
    process: Option<Child>,
}

impl Cluster {
    /// Three nodes with a prefix for each test.
    pub fn shared() -> Arc<Self> {
        static SHARED: Shared<Cluster> = Shared::new();
        SHARED.get(Self::start)
    }

    /// Three nodes for one test alone.
    pub fn start() -> Self {
        Self::of(3)
    }

    /// As many nodes as this, for one test alone.
    pub fn of(size: usize) -> Self {
        Self::with_ways(size, |peer| peer)
    }

    /// Three nodes that flush what they write, for benchmarks. The others need not: the system keeps what a killed node wrote.
    pub fn durable() -> Self {
        Self::with(3, |peer| peer, 0, true)
    }

    /// One node whose database may have this many bytes.
    pub fn with_quota(quota: u64) -> Self {
        Self::with(1, |peer| peer, quota, false)
    }

    /// Nodes that reach each other at the ports that this function returns for their own.
    pub fn with_ways(size: usize, shown: impl FnMut(u16) -> u16) -> Self {
        Self::with(size, shown, 0, false)
    }

    fn with(size: usize, mut shown: impl FnMut(u16) -> u16, quota: u64, flushes: bool) -> Self {
        let node = |_| {
            let peer = free_port();
            EtcdNode { port: free_port(), peer, shown: shown(peer), process: None }
        };
        let mut cluster = Self {
            nodes: (0..size).map(node).collect(),
            prefixes: AtomicUsize::new(0),
            folder: tempfile::tempdir().unwrap(),
            quota,
            flushes,
        };
        (0..size).for_each(|number| cluster.restart(number));
        cluster.wait_until_ready();
        cluster
    }

    /// An address of this cluster with a prefix of its own.
    pub fn url(&self) -> String {
        let nodes: Vec<_> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        self.url_of(&nodes.join(","))
    }

    /// An address of this cluster through these nodes, with a prefix of its own.
    pub fn url_of(&self, nodes: &str) -> String {
        format!("etcd://{nodes}/test-{}", self.prefixes.fetch_add(1, Ordering::SeqCst))
    }

    /// The ports at which clients reach the nodes.
    pub fn ports(&self) -> Vec<u16> {
        self.nodes.iter().map(|node| node.port).collect()
    }

    /// How much processor time the nodes that run have used so far.
    pub fn processor_time(&self) -> Duration {
        let nodes = self.nodes.iter().filter_map(|node| node.process.as_ref());
        nodes.map(|process| processor_time(&process.id().to_string())).sum()
    }

    /// Starts a node that does not run, with the data that it had.
    pub fn restart(&mut self, number: usize) {
        let peers = self.nodes.iter().enumerate();
        let peers: Vec<_> = peers.map(|(n, node)| format!("n{n}=http://127.0.0.1:{}", node.shown)).collect();
        let node = &self.nodes[number];
        assert!(node.process.is_none(), "node {number} runs");
        let [client, peer, shown] =
            [node.port, node.peer, node.shown].map(|port| format!("http://127.0.0.1:{port}"));
        let data: PathBuf = self.folder.path().join(format!("n{number}"));
        let log = std::fs::File::options().create(true).append(true).open(self.log_file(number)).unwrap();
        // The kernel ends the node if the test is killed.
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "etcd", "--name"])
            .arg(format!("n{number}"))
            .arg("--data-dir")
            .arg(data)
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &shown])
            .args(["--initial-cluster", &peers.join(","), "--initial-cluster-token", "tollgate"])
            .args(["--initial-cluster-state", "new", "--logger", "zap", "--log-level", "error"])
            .arg(format!("--unsafe-no-fsync={}", !self.flushes))
            .args(["--quota-backend-bytes", &self.quota.to_string()])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("`etcd` is installed by `scripts/test`");
        self.nodes[number].process = Some(process);
    }

    /// `kill -9`
    pub fn kill(&mut self, number: usize) {
        let mut process = self.nodes[number].process.take().expect("it runs");
        process.kill().unwrap();
        assert_eq!(process.wait().unwrap().signal(), Some(9));
    }

    fn signal(&self, number: usize, signal: rustix::process::Signal) {
        let process = self.nodes[number].process.as_ref().expect("it runs");
        rustix::process::kill_process(rustix::process::Pid::from_child(process), signal).unwrap();
    }

    /// It hangs: its connections stay open, and nothing answers.
    pub fn pause(&self, number: usize) {
        self.signal(number, rustix::process::Signal::STOP);
    }

    /// It goes on after a pause.
    pub fn resume(&self, number: usize) {
        self.signal(number, rustix::process::Signal::CONT);
    }

    /// The id of a node that answers, as in the requests of nodes to each other.
    pub fn id(&self, number: usize) -> String {
        let port = self.nodes[number].port;
        let status = self.until("its status", || post(port, "/v3/maintenance/status", &json!({})));
        let id: u64 = status["header"]["member_id"].as_str().unwrap().parse().unwrap();
        format!("{id:x}")
    }

    /// The node that leads.
    pub fn leader(&self) -> usize {
        let leads = |node: &EtcdNode| {
            let status = post(node.port, "/v3/maintenance/status", &json!({}))?;
            let leader = status["leader"].as_str().filter(|leader| *leader != "0")?.to_owned();
            (status["header"]["member_id"] == leader.as_str()).then_some(())
        };
        self.until("a leader", || self.nodes.iter().position(|node| leads(node).is_some()))
    }

    /// Waits until a write succeeds.
    pub fn wait_until_ready(&self) {
        let body = json!({ "key": "cmVhZHk=", "value": "eWVz" });
        let put = |node: &EtcdNode| post(node.port, "/v3/kv/put", &body);
        self.until("a write", || self.nodes.iter().find_map(put));
    }

    /// Waits until the nodes do something. Fails if they do not.
    fn until<T>(&self, what: &str, mut there: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = there() {
                return found;
            }
            assert!(Instant::now() < deadline, "timeout while waiting for {what}: {}", self.logs());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log_file(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("n{number}.log"))
    }

    /// The files with what the nodes print.
    pub fn log_files(&self) -> Vec<PathBuf> {
        (0..self.nodes.len()).map(|number| self.log_file(number)).collect()
    }

    fn logs(&self) -> String {
        self.log_files().iter().map(|log| std::fs::read_to_string(log).unwrap_or_default()).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.nodes.iter_mut().filter_map(|node| node.process.as_mut()) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// How much processor time a process has used so far.
pub fn processor_time(process: &str) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name of the program may contain anything, so what follows its last parenthesis is counted.
    let numbers = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = numbers.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// A call of the gateway, without our client; `None` if it fails.
pub fn post(port: u16, path: &str, body: &Value) -> Option<Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    let body = body.to_string();
    // HTTP 1.0: the answer ends with the connection.
    let head = format!("POST {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.0 200").then(|| serde_json::from_str(body).ok())?
}
