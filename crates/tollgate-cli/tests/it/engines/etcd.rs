//! Three etcd nodes as an engine.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Engine;
use super::cluster::{Cluster, post};

pub(super) struct Etcd {
    pub(super) cluster: Cluster,
    prefix: &'static str,
}

impl Etcd {
    pub(super) fn start() -> Self {
        Self { cluster: Cluster::start(), prefix: "team" }
    }
}

impl Engine for Etcd {
    fn ports(&self) -> Vec<u16> {
        self.cluster.ports()
    }

    fn url_at(&self, ports: &[u16]) -> String {
        let nodes: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("etcd://{}/{}", nodes.join(","), self.prefix)
    }

    fn events(&self) -> Vec<Value> {
        let prefix = self.prefix;
        let body = json!({
            "key": STANDARD.encode(format!("{prefix}/ledger/")),
            "range_end": STANDARD.encode(format!("{prefix}/ledger0")),
            "sort_order": "ASCEND", "sort_target": "CREATE",
        });
        let found = self.ports().into_iter().find_map(|port| post(port, "/v3/kv/range", &body));
        let line = |kv: &Value| -> Vec<Value> {
            let value = STANDARD.decode(kv["value"].as_str().unwrap()).unwrap();
            let mut line: Value = serde_json::from_slice(&value).unwrap();
            line["events"].take().as_array().cloned().unwrap_or_default()
        };
        found.expect("a node answers")["kvs"].as_array().into_iter().flatten().flat_map(line).collect()
    }
}
