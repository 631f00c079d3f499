//! Several machines and three etcd nodes, as whole programs.

pub(crate) mod campaign;
#[path = "../../../../tollgate-etcd/src/tests/cluster.rs"]
pub(crate) mod cluster;
pub(crate) mod proxy;
mod stories;

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use self::cluster::{Cluster, post};
use self::proxy::Proxy;
use crate::world::World;

/// A machine: a workspace of its own, whose tasks are at this address.
pub(crate) fn machine(url: &str, lease: &str) -> World {
    let world = World::new();
    let vault = format!("[vault]\nstore = \"{url}\"\nlease = \"{lease}\"\nmax_attempts = 1000\nretry = []\n");
    world.puts(".tollgate/config.toml", format!("{vault}[work]\nbreaker = 0\n[log]\ndir = \"log\"\n"));
    world
}

/// The ways of one machine to all nodes.
struct Ways(Vec<Proxy>);

impl Ways {
    fn to(cluster: &Cluster) -> Self {
        Self(cluster.ports().into_iter().map(Proxy::to).collect())
    }

    /// The address through these ways, of the same tasks as `url`.
    fn url(&self, url: &str) -> String {
        let nodes: Vec<_> = self.0.iter().map(|way| format!("127.0.0.1:{}", way.port)).collect();
        format!("etcd://{}/{}", nodes.join(","), url.rsplit_once('/').unwrap().1)
    }

    fn cut(&self, is_cut: bool) {
        self.0.iter().for_each(|way| way.cut(is_cut));
    }
}

/// All events in the engine, in their order, as JSON.
fn events(cluster: &Cluster, url: &str) -> Vec<Value> {
    let base64 = |text: String| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    let prefix = url.rsplit_once('/').unwrap().1;
    let body = json!({
        "key": base64(format!("{prefix}/ledger/")), "range_end": base64(format!("{prefix}/ledger0")),
        "sort_order": "ASCEND", "sort_target": "CREATE",
    });
    let ports = cluster.ports();
    let found = ports.iter().find_map(|port| post(*port, "/v3/kv/range", &body)).expect("a node answers");
    let line = |kv: &Value| -> Vec<Value> {
        let value = kv["value"].as_str().unwrap();
        let value = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, value).unwrap();
        let mut line: Value = serde_json::from_slice(&value).unwrap();
        line["events"].take().as_array().cloned().unwrap_or_default()
    };
    found["kvs"].as_array().into_iter().flatten().flat_map(line).collect()
}

pub(crate) fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}
