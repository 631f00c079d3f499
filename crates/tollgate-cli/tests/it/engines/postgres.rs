//! A PostgreSQL server as an engine.

use serde_json::Value;

use super::Engine;
use super::cluster::free_port;
use crate::postgres::server::Server;

/// The schema of the tasks.
const SCHEMA: &str = "team";

pub(super) struct Postgres {
    server: Server,
    port: u16,
}

impl Postgres {
    /// A server with these lines in its configuration.
    pub(super) fn start(settings: &str) -> Self {
        let port = free_port();
        let settings = format!("listen_addresses = '127.0.0.1'\nport = {port}\n{settings}");
        Self { server: Server::start_on(port, &settings), port }
    }
}

impl Engine for Postgres {
    fn ports(&self) -> Vec<u16> {
        vec![self.port]
    }

    fn url_at(&self, ports: &[u16]) -> String {
        let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("postgres://postgres@{}/postgres?schema={SCHEMA}&sslmode=disable", hosts.join(","))
    }

    fn events(&self) -> Vec<Value> {
        let query = format!("select entry::text from {SCHEMA}.ledger order by pos");
        let rows = self.server.sql().query(&query, &[]).unwrap();
        rows.iter().map(|row| serde_json::from_str(row.get(0)).unwrap()).collect()
    }

    const FAULTS: &'static [(&'static str, fn(&mut Self) -> bool)] = &[];

    fn recover(&mut self) {}
}
