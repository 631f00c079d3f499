//! PostgreSQL as an engine: one server, or two of which one is a synchronous standby.

use serde_json::Value;
use tollgate_testing::free_port;
use tollgate_testing::postgres::{Server, compare_no_versions};

use super::{Engine, Faults, machine};

/// The schema of the tasks. A worker of an earlier run, which may reach this one at the same port, has another.
fn schema() -> String {
    format!("team_{}", std::process::id())
}

pub(super) struct Postgres {
    /// The one that takes writes, and its standby.
    servers: Vec<Server>,
    ports: Vec<u16>,
    is_dead: bool,
    /// Whether the standby was promoted. The first server must not come back then: it would take writes of its own.
    is_promoted: bool,
}

fn on_port(port: u16, settings: &str) -> String {
    format!("listen_addresses = '127.0.0.1'\nport = {port}\n{settings}")
}

impl Postgres {
    /// A server with these lines in its configuration.
    pub(super) fn start(settings: &str) -> Self {
        let port = free_port();
        let server = Server::start_on(port, &on_port(port, settings));
        Self { servers: vec![server], ports: vec![port], is_dead: false, is_promoted: false }
    }

    /// A server with a synchronous standby.
    pub(super) fn with_standby() -> Self {
        let (mut pair, port) = (Self::start(""), free_port());
        let standby = pair.servers[0].standby(port, &on_port(port, ""));
        pair.servers[0].waits_for_its_standby();
        pair.servers.push(standby);
        pair.ports.push(port);
        pair
    }

    /// A server that gives a task to everybody who asks for it.
    pub(super) fn without_comparison() -> Self {
        let engine = Self::start("fsync = off");
        // The first command creates the schema.
        machine(&engine.url(), "3s").run("task list").is(0);
        compare_no_versions(&engine.servers[0], &schema());
        engine
    }

    /// The server that takes writes.
    fn primary(&mut self) -> &mut Server {
        &mut self.servers[usize::from(self.is_promoted)]
    }

    fn kill(&mut self) -> bool {
        self.primary().kill();
        self.is_dead = true;
        true
    }

    fn promote(&mut self) -> bool {
        if self.is_promoted {
            return false;
        }
        self.primary().kill();
        self.is_promoted = true;
        self.primary().sql().batch_execute("select pg_promote()").unwrap();
        true
    }
}

impl Engine for Postgres {
    fn ports(&self) -> Vec<u16> {
        self.ports.clone()
    }

    fn url_at(&self, ports: &[u16]) -> String {
        let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("postgres://postgres@{}/postgres?schema={}&sslmode=disable", hosts.join(","), schema())
    }

    fn events(&self) -> Vec<Value> {
        let query = format!("select entry::text from {}.ledger order by pos", schema());
        let rows = self.servers[usize::from(self.is_promoted)].sql().query(&query, &[]).unwrap();
        rows.iter().map(|row| serde_json::from_str(row.get(0)).unwrap()).collect()
    }

    const FAULTS: Faults<Self> = &[("server killed", Self::kill), ("standby promoted", Self::promote)];

    fn recover(&mut self) {
        if std::mem::take(&mut self.is_dead) {
            self.primary().restart();
        }
    }
}
