//! Three etcd nodes as an engine.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tollgate_testing::etcd::{Cluster, post};

use super::proxy::{Cut, Proxy};
use super::{Engine, Faults};
use crate::world::until;

/// The prefix of all keys. A worker of an earlier run, which may reach this one at the same ports, has another.
fn prefix() -> String {
    format!("team-{}", std::process::id())
}

pub(super) struct Etcd {
    cluster: Cluster,
    /// The ways of the nodes to each of them.
    ways: Vec<Proxy>,
    dead: Vec<usize>,
    paused: Option<usize>,
}

impl Etcd {
    pub(super) fn start() -> Self {
        let mut ways = Vec::new();
        let cluster = Cluster::with_ways(3, |peer| {
            ways.push(Proxy::to(peer));
            ways[ways.len() - 1].port
        });
        Self { cluster, ways, dead: Vec::new(), paused: None }
    }

    fn kill_leader(&mut self) -> bool {
        let leader = self.cluster.leader();
        self.cluster.kill(leader);
        self.dead.push(leader);
        true
    }

    fn pause_leader(&mut self) -> bool {
        let leader = self.cluster.leader();
        self.cluster.pause(leader);
        self.paused = Some(leader);
        true
    }

    /// Machines still reach it, and it does not know at once that it leads nobody.
    fn isolate_leader(&mut self) -> bool {
        let leader = self.cluster.leader();
        let id = self.cluster.id(leader);
        for (number, way) in self.ways.iter().enumerate() {
            way.cut(if number == leader { Cut::Everybody } else { Cut::Node(id.clone()) });
        }
        until("another leader", || (self.cluster.leader() != leader).then_some(true))
    }

    fn kill_all(&mut self) -> bool {
        (0..3).for_each(|node| self.cluster.kill(node));
        self.dead.extend(0..3);
        true
    }
}

impl Engine for Etcd {
    fn ports(&self) -> Vec<u16> {
        self.cluster.ports()
    }

    fn url_at(&self, ports: &[u16]) -> String {
        let nodes: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("etcd://{}/{}", nodes.join(","), prefix())
    }

    fn events(&self) -> Vec<Value> {
        let ledger = format!("{}/ledger", prefix());
        let body = json!({
            "key": STANDARD.encode(format!("{ledger}/")),
            "range_end": STANDARD.encode(format!("{ledger}0")),
            "sort_order": "ASCEND", "sort_target": "CREATE",
        });
        let ask = |port| post(port, "/v3/kv/range", &body);
        let found = until("a node to answer", || self.ports().into_iter().find_map(ask));
        let line = |kv: &Value| -> Vec<Value> {
            let value = STANDARD.decode(kv["value"].as_str().unwrap()).unwrap();
            let mut line: Value = serde_json::from_slice(&value).unwrap();
            line["events"].take().as_array().cloned().unwrap_or_default()
        };
        found["kvs"].as_array().into_iter().flatten().flat_map(line).collect()
    }

    fn log_files(&self) -> Vec<PathBuf> {
        self.cluster.log_files()
    }

    const FAULTS: Faults<Self> = &[
        ("leader killed", Self::kill_leader),
        ("leader paused", Self::pause_leader),
        ("leader cut off from the other nodes", Self::isolate_leader),
        ("all nodes killed", Self::kill_all),
    ];

    fn recover(&mut self) {
        self.ways.iter().for_each(|way| way.cut(Cut::Nobody));
        self.dead.drain(..).for_each(|node| self.cluster.restart(node));
        self.paused.take().into_iter().for_each(|node| self.cluster.resume(node));
        self.cluster.wait_until_ready();
    }
}
