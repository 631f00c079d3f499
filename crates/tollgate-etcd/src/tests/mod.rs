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
mod refusals;
mod replay;
mod secure;
mod tenure;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::{EtcdOptions, EtcdStore, EtcdUrl};

/// A store of one machine at this address.
fn open(url: &str, machine: &str, lease: Duration) -> EtcdStore {
    open_with(url, machine, lease, None)
}

/// The same, with the folder of its archive.
fn with_archive(url: &str, machine: &str, folder: &Path) -> Arc<EtcdStore> {
    Arc::new(open_with(url, machine, Duration::from_secs(600), Some(folder.to_owned())))
}

fn open_with(url: &str, machine: &str, lease: Duration, archive: Option<PathBuf>) -> EtcdStore {
    EtcdStore::open(EtcdOptions { archive, ..options(url, machine, lease) }).unwrap()
}

fn options(url: &str, machine: &str, lease: Duration) -> EtcdOptions {
    EtcdOptions {
        url: EtcdUrl::parse(url).unwrap(),
        login: None,
        base: ".".into(),
        machine: machine.to_owned(),
        lease,
        deadline: Duration::from_secs(10),
        archive: None,
        journal: None,
    }
}

fn shared(url: &str, machine: &str) -> Arc<EtcdStore> {
    Arc::new(open(url, machine, Duration::from_secs(600)))
}
