//! The store on real etcd nodes.

mod conforming;
mod deadlines;
mod engine;
mod fake_node;
mod format;
mod namesakes;
mod queue;
mod race;
mod refusals;
mod secure;
mod tenure;
mod trim;

use std::sync::Arc;
use std::time::Duration;

use crate::{EtcdOptions, EtcdStore, EtcdUrl};

/// A store of one machine at this address.
fn open(url: &str, machine: &str, lease: Duration) -> EtcdStore {
    EtcdStore::open(options(url, machine, lease)).unwrap()
}

fn options(url: &str, machine: &str, lease: Duration) -> EtcdOptions {
    EtcdOptions {
        url: EtcdUrl::parse(url).unwrap(),
        login: None,
        base: ".".into(),
        machine: machine.to_owned(),
        lease,
        deadline: Duration::from_secs(10),
        journal: None,
    }
}

fn opened(url: &str, machine: &str) -> Arc<EtcdStore> {
    Arc::new(open(url, machine, Duration::from_secs(600)))
}
