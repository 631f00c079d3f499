//! An audit in bounded memory, over several files of the ledger.

use crate::event::{Event, FileChanged, Mutation, MutationStatus};
use crate::ledger::{Entry, Ledger};
use crate::settings::Durability;

use super::{AuditScope, audit};

#[test]
fn the_chain_goes_on_from_file_to_file_of_the_ledger() {
    let keep = tempfile::tempdir().unwrap();
    let ledger = Ledger::new(keep.path(), &keep.path().join("lock"), 4096, None);
    let hash = |number: u64| Some(crate::digest::Digest::of(&number.to_le_bytes()));
    let entry = |file: u64, round: u64| {
        let change = FileChanged {
            id: format!("{file}-{round}"),
            target_file: format!("f{file}"),
            hash_before: hash(round),
            hash_after: hash(round + 1),
            ..FileChanged::default()
        };
        let event = Event::Mutation(Mutation::File(change), MutationStatus::Applied);
        Entry { time: "2026-11-16T12:00:00Z".parse().unwrap(), agent: None, turn: None, event }
    };
    for round in 0..200 {
        let entries: Vec<Entry> = (0..5).map(|file| entry(file, round)).collect();
        ledger.append(&entries, Durability::Fast).unwrap();
    }
    let files = std::fs::read_dir(keep.path()).unwrap().count();
    assert!(files > 20, "{files} files");
    let records = keep.path().join("records");
    std::fs::write(&records, "").unwrap();
    let strict = AuditScope { records: vec![records], shared: false };
    let report = audit(&ledger, &strict).unwrap();
    assert_eq!((report.lines, report.changes, report.files), (1000, 1000, 5));
    assert_eq!((report.outside_changes, report.flaws), (0, vec![]));
    ledger.append(&[entry(3, 100)], Durability::Fast).unwrap();
    let flaws = audit(&ledger, &strict).unwrap().flaws;
    assert_eq!(flaws.iter().map(|flaw| flaw.seq).collect::<Vec<_>>(), [Some(1001)], "{flaws:?}");
}
