//! Old lines of the ledger move to files.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use tollgate_base::ledger::Ledger;
use tollgate_base::settings::Durability;
use tollgate_vault::event::Entry;
use tollgate_vault::figures::Tally;
use tollgate_vault::{ClaimKind, ClaimRequest, Release, Store, Terms, Vault};

use super::cluster::Cluster;
use super::shared;
use crate::archived::{ArchivePiece, Archived};
use crate::store::EtcdStore;

/// Two lines of the ledger with events for each task, and one without.
fn work(store: &Arc<EtcdStore>, tasks: std::ops::Range<usize>) {
    let vault = Vault::new(Arc::clone(store) as Arc<dyn Store>, Terms::default());
    let now = Timestamp::now();
    for n in tasks {
        let name = format!("t{n}").parse().unwrap();
        vault.add(&name, b"text", now).unwrap();
        let request =
            ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Held, renamed_in: false };
        let claimed = vault.claim(&name, &request, now).unwrap().unwrap();
        vault.release(&name, &claimed.claim.id, &Release::success(), now).unwrap().unwrap();
    }
}

fn all(store: &EtcdStore) -> Vec<Entry> {
    store.events("", usize::MAX).unwrap().0
}

fn in_archive(folder: &Path) -> Vec<Entry> {
    let ledger = Ledger::new(folder, &folder.join("lock"), 1 << 20, None);
    let verified = ledger.verify().unwrap();
    assert!(verified.problem.is_none(), "{:?}", verified.problem);
    let lines: Vec<_> = ledger.newest_first().unwrap().map(|line| line.unwrap()).collect();
    let entry = |line: tollgate_base::ledger::Line| Entry {
        time: line.time,
        agent: line.agent,
        turn: line.turn,
        event: line.event,
    };
    lines.into_iter().rev().map(entry).collect()
}

#[test]
fn old_lines_are_in_the_archive_before_they_are_deleted_and_the_figures_stay() {
    let cluster = Cluster::start();
    let url = cluster.url();
    let (store, other) = (shared(&url, "one"), shared(&url, "other"));
    let keep = tempfile::tempdir().unwrap();
    let (folder, elsewhere) = (keep.path().join("archive"), keep.path().join("elsewhere"));
    work(&store, 0..10);
    let before = all(&store);
    let (figures, head) = (store.tallies().unwrap(), store.events("", 4).unwrap().1);
    assert_eq!(store.inside.archive(&folder, 100).unwrap(), 0, "there are few");
    assert_eq!(store.inside.archive(&folder, 15).unwrap(), 15);
    assert_eq!(in_archive(&folder), before[..10], "with their chain of hashes");
    assert_eq!(other.inside.archive(&elsewhere, 1).unwrap(), 0, "one machine has the archive");

    // The figures are those of all lines, for those who have read them and for those who have not.
    for store in [&store, &other] {
        assert_eq!(store.tallies().unwrap(), figures);
    }
    // A reader that is behind the archive is told, and learns where to go on.
    for cursor in ["", &head] {
        let fault = store.events(cursor, 10).unwrap_err().to_string();
        let next = fault.rsplit('`').nth(1).unwrap();
        assert_eq!(store.events(next, usize::MAX).unwrap().0, before[10..], "{fault}");
    }
}

#[test]
fn the_archive_does_not_overtake_a_reader() {
    let cluster = Cluster::start();
    let url = cluster.url();
    let (store, reader) = (shared(&url, "one"), shared(&url, "reader"));
    let keep = tempfile::tempdir().unwrap();
    work(&store, 0..4);
    let before = all(&store);
    let (_, cursor) = reader.events("", 2).unwrap();
    // The second page leaves its place in the engine.
    let (page, cursor) = reader.events(&cursor, 2).unwrap();
    assert_eq!(page, before[2..4]);
    work(&store, 4..8);
    assert!(store.inside.archive(keep.path(), 1).unwrap() > 0);
    let (page, _) = reader.events(&cursor, usize::MAX).unwrap();
    assert_eq!(page, all_after(&store, &before, 4), "nothing is missing");
}

/// What a reader must see after this many events.
fn all_after(store: &EtcdStore, before: &[Entry], read: usize) -> Vec<Entry> {
    let (_, archived) = store.inside.archived().unwrap();
    let rest = store.events(&format!("{}.{}", archived.revision, usize::MAX), usize::MAX).unwrap().0;
    assert_eq!(rest.len(), 16 - read, "the archive has only what was read");
    assert_eq!(rest[..before.len() - read], before[read..]);
    rest
}

#[test]
fn a_process_that_died_while_it_archived_leaves_nothing_twice() {
    let cluster = Cluster::start();
    let store = shared(&cluster.url(), "one");
    let keep = tempfile::tempdir().unwrap();
    work(&store, 0..10);
    let before = all(&store);
    // It becomes the archive, and moves some lines.
    assert_eq!(store.inside.archive(keep.path(), 27).unwrap(), 3);
    // As if it had died after it had written the next lines to the disk.
    let ledger = Ledger::new(keep.path(), &keep.path().join("lock"), 1 << 20, None);
    ledger.append(&before[2..6], Durability::Durable).unwrap();
    assert_eq!(store.inside.archive(keep.path(), 15).unwrap(), 12);
    assert_eq!(in_archive(keep.path()), before[..10]);
    assert_eq!(claims(&store), 10);
}

#[test]
fn a_line_that_was_read_in_part_is_not_skipped() {
    let cluster = Cluster::of(1);
    let url = cluster.url();
    let (store, reader) = (shared(&url, "one"), shared(&url, "reader"));
    let keep = tempfile::tempdir().unwrap();
    work(&store, 0..4);
    let some = all(&store)[..4].to_vec();
    // One line with four events, as `vault copy` writes them.
    store.record(&some).unwrap();
    work(&store, 4..6);
    let before = all(&store);
    let (_, start) = reader.events("", 8).unwrap();
    let (page, cursor) = reader.events(&start, 2).unwrap();
    assert_eq!(page, some[..2]);
    assert_eq!(store.inside.archive(keep.path(), 1).unwrap(), 12, "all lines before that one");
    assert_eq!(reader.events(&cursor, usize::MAX).unwrap().0, before[10..]);

    // A reader that has read all of it lets it go, and one that has not is told.
    assert_eq!(shared(&url, "reader").events(&cursor, 2).unwrap().0, some[2..]);
    assert_eq!(store.inside.archive(keep.path(), 1).unwrap(), 1);
    assert!(reader.events(&cursor, 10).is_err(), "two of the four events are in the archive");
}

fn files(folder: &Path) -> Ledger {
    Ledger::new(folder, &folder.join("lock"), 1 << 20, None)
}

fn pieces(store: &EtcdStore) -> Vec<ArchivePiece> {
    store.inside.archived().unwrap().1.pieces
}

fn piece(machine: &str, first: u64, last: u64) -> ArchivePiece {
    ArchivePiece { machine: machine.to_owned(), first, last }
}

#[test]
fn what_is_in_the_files_already_is_not_appended_again_even_if_the_next_batch_is_shorter() {
    let cluster = Cluster::of(1);
    let store = shared(&cluster.url(), "one");
    let keep = tempfile::tempdir().unwrap();
    work(&store, 0..10);
    let before = all(&store);
    assert_eq!(store.inside.archive(keep.path(), 27).unwrap(), 3);
    // As if it had died after it had written six events to the disk. Then a reader makes the next batch shorter.
    files(keep.path()).append(&before[2..8], Durability::Durable).unwrap();
    assert_eq!(store.inside.archive(keep.path(), 21).unwrap(), 6);
    assert_eq!((in_archive(keep.path()), pieces(&store)), (before[..8].to_vec(), vec![piece("one", 1, 6)]));
    assert_eq!(store.inside.archive(keep.path(), 15).unwrap(), 6);
    assert_eq!((in_archive(keep.path()), pieces(&store)), (before[..10].to_vec(), vec![piece("one", 1, 10)]));
    assert_eq!(claims(&store), 10);
}

#[test]
fn the_lines_of_another_vault_in_the_same_files_are_no_part_of_the_archive() {
    let cluster = Cluster::of(1);
    let store = shared(&cluster.url(), "one");
    let keep = tempfile::tempdir().unwrap();
    work(&store, 0..10);
    let before = all(&store);
    let foreign = &before[19..];
    files(keep.path()).append(foreign, Durability::Durable).unwrap();
    assert_eq!(store.inside.archive(keep.path(), 27).unwrap(), 3);
    files(keep.path()).append(foreign, Durability::Durable).unwrap();
    assert_eq!(store.inside.archive(keep.path(), 24).unwrap(), 3);
    assert_eq!(pieces(&store), [piece("one", 2, 3), piece("one", 5, 6)]);
    let archived = in_archive(keep.path());
    assert_eq!([&archived[1..3], &archived[4..6]].concat(), before[..4]);
    // A folder that lacks lines, such as that of an old copy of the workspace, is not continued.
    let fault = store.inside.archive(&keep.path().join("old"), 15).unwrap_err().to_string();
    assert!(fault.contains("it ends with line 0, although 6 lines were archived"), "{fault}");
}

fn claims(store: &EtcdStore) -> u64 {
    store.tallies().unwrap().values().map(|tally| tally.claims).sum()
}

#[test]
fn lines_that_a_crash_left_behind_the_archive_are_deleted_and_not_archived_again() {
    let cluster = Cluster::start();
    let store = shared(&cluster.url(), "one");
    let keep = tempfile::tempdir().unwrap();
    work(&store, 0..4);
    let before = all(&store);
    // As if it had died after it had said that these lines are archived, and before it could delete them.
    let (lines, _) = store.inside.lines_from(0, 3).unwrap();
    let ledger = Ledger::new(keep.path(), &keep.path().join("lock"), 1 << 20, None);
    ledger.append(&before[..2], Durability::Durable).unwrap();
    let mut archived =
        Archived { revision: lines[2].revision, machine: "one".to_owned(), ..Archived::default() };
    Tally::add_to(&mut archived.tallies, before[0].agent.as_ref(), &before[0].event);
    assert!(store.inside.state(0, &archived).unwrap());
    assert_eq!(store.inside.archive(keep.path(), 6).unwrap(), 3);
    assert_eq!(in_archive(keep.path()), before[..4]);
    let (left, _) = store.inside.lines_from(0, 100).unwrap();
    assert_eq!((left.len(), left[0].revision > archived.revision), (6, true));
    assert_eq!(claims(&store), 4);
}
