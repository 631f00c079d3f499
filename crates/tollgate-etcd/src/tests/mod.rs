//! The store on real etcd nodes.

mod archive;
mod cluster;
mod conforming;
mod deadlines;
mod engine;
mod fake_node;
mod format;
mod namesakes;
mod queue;
mod race;
mod secure;
mod tenure;

use std::sync::Arc;
use std::time::Duration;

use crate::{EtcdOptions, EtcdStore, EtcdUrl};

/// A store of one machine at this address.
fn open(url: &str, machine: &str, lease: Duration) -> EtcdStore {
    let options = EtcdOptions {
        url: EtcdUrl::parse(url).unwrap(),
        login: None,
        base: ".".into(),
        machine: machine.to_owned(),
        lease,
        deadline: Duration::from_secs(10),
        archive: None,
        journal: None,
    };
    EtcdStore::open(options).unwrap()
}

fn shared(url: &str, machine: &str) -> Arc<EtcdStore> {
    Arc::new(open(url, machine, Duration::from_secs(600)))
}
