//! Vaults in another format.

use jiff::Timestamp;
use tollgate_base::error::Fault;
use tollgate_testing::etcd::Cluster;
use tollgate_vault::{State, Store};

use super::opened;
use crate::layout::FORMAT;
use crate::message::TxnOperation;

#[test]
fn another_format_is_refused() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    let refused = |format: u32| {
        let shared = &opened(&url, "other").shared;
        shared.act(vec![TxnOperation::put(shared.layout.format(), format.to_string())]).unwrap();
        opened(&url, "ours").scan(State::NeedsAction, Timestamp::now()).unwrap_err()
    };
    let fault = refused(FORMAT + 1);
    assert!(matches!(fault, Fault::NewerFormat { known: FORMAT, .. }), "{fault}");
    let fault = refused(FORMAT - 1).to_string();
    assert!(fault.contains("from before the first release"), "{fault}");
}
