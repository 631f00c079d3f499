//! Stores on a server.

use tollgate_postgres::{PostgresOptions, PostgresStore};
use tollgate_testing::postgres::Server;

pub(crate) trait Stores {
    fn options(&self, schema: &str) -> PostgresOptions;

    fn store(&self, schema: &str) -> PostgresStore {
        PostgresStore::open(self.options(schema)).expect("a store")
    }
}

impl Stores for Server {
    fn options(&self, schema: &str) -> PostgresOptions {
        PostgresOptions::parse(&self.url(schema)).expect("a URL")
    }
}
