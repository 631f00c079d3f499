//! Events from the beginning: out of the files of the archive, then out of the engine.

use std::fs;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use tollgate_base::settings::Durability;
use tollgate_vault::copy::{CopiedHistory, copy};
use tollgate_vault::event::Entry;
use tollgate_vault::{State, Store};

use super::archive::{all, files, piece, work};
use super::cluster::Cluster;
use super::{shared, with_archive};
use crate::archived::Archived;
use crate::store::EtcdStore;

/// All events, in pages of this size.
fn paged(store: &EtcdStore, size: usize) -> Vec<Entry> {
    let (mut events, mut cursor) = (Vec::new(), String::new());
    loop {
        let (page, next) = store.events(&cursor, size).unwrap();
        let is_over = page.len() < size;
        events.extend(page);
        cursor = next;
        if is_over {
            return events;
        }
    }
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap().map(|file| file.unwrap().path()).filter(|path| path.is_file()) {
        fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
    }
}

#[test]
fn the_machine_that_has_the_archive_reads_from_the_beginning() {
    let cluster = Cluster::of(1);
    let url = cluster.url();
    let keep = tempfile::tempdir().unwrap();
    let store = with_archive(&url, "one", keep.path());
    work(&store, 0..10);
    let before = all(&store);
    // Lines that are no part of the archive: of another vault before it, of a repaired tail inside it, of a crash after it.
    files(keep.path()).append(&before[19..], Durability::Durable).unwrap();
    store.inside.archive(keep.path(), 24).unwrap();
    let path = keep.path().join("ledger.jsonl");
    fs::write(&path, [&fs::read(&path).unwrap()[..], b"{\"torn"].concat()).unwrap();
    store.inside.archive(keep.path(), 18).unwrap();
    files(keep.path()).append(&before[8..10], Durability::Durable).unwrap();
    for size in [1, 2, 3, 7, 8, 19, 20, 100] {
        assert_eq!(paged(&store, size), before, "pages of {size}");
    }
    // The archive grows while somebody reads it.
    let (_, cursor) = store.events("", 5).unwrap();
    store.inside.archive(keep.path(), 9).unwrap();
    assert_eq!(store.events(&cursor, usize::MAX).unwrap().0, before[5..]);
    for foreign in ["archive.0.99", "archive.1.0", "archive.7.3"] {
        assert!(store.events(foreign, 1).is_err(), "{foreign}");
    }
    // A reader in the files keeps the archive where it is.
    store.keep_after("export", &cursor).unwrap();
    assert_eq!(store.inside.archive(keep.path(), 2).unwrap(), 0);

    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("t2.md", "t3.md", 1)).unwrap();
    let fault = store.events("", 100).unwrap_err().to_string();
    assert!(fault.contains("is missing, or not the one that was archived"), "{fault}");
}

#[test]
fn another_machine_says_which_one_has_the_archive_and_reads_a_copy() {
    let cluster = Cluster::of(1);
    let url = cluster.url();
    let keep = tempfile::tempdir().unwrap();
    let [here, there] = ["here", "there"].map(|name| keep.path().join(name));
    let (store, other) = (with_archive(&url, "one", &here), with_archive(&url, "other", &there));
    work(&store, 0..10);
    let before = all(&store);
    store.inside.archive(&here, 15).unwrap();
    let copied = there.join("from-one");
    let told = || other.events("", 1).unwrap_err().to_string();
    let whose = "in the archive of the machine `one`";
    assert!(told().contains(whose) && told().contains(copied.to_str().unwrap()), "{}", told());
    assert!(other.keep_after("export", "").is_err());
    copy_files(&here, &copied);
    assert_eq!(paged(&other, 7), before);
    store.inside.archive(&here, 9).unwrap();
    assert!(told().contains(whose), "the copy is too old: {}", told());
    copy_files(&here, &copied);
    assert_eq!(all(&other), before);
}

#[test]
fn events_since_a_time_need_no_archive_if_everything_in_it_is_older() {
    let cluster = Cluster::of(1);
    let url = cluster.url();
    let keep = tempfile::tempdir().unwrap();
    let (store, other) = (with_archive(&url, "one", keep.path()), shared(&url, "other"));
    work(&store, 0..4);
    let newest = all(&store)[7].time;
    let later = newest + SignedDuration::from_nanos(1);
    assert_eq!(other.cursor_before(later).unwrap(), "", "nothing is archived");
    store.inside.archive(keep.path(), 0).unwrap();
    work(&store, 4..6);
    let cursor = other.cursor_before(later).unwrap();
    assert_eq!(other.events(&cursor, 100).unwrap().0.len(), 4);
    assert_eq!(other.cursor_before(newest).unwrap(), "", "the last archived event has this time");
}

#[test]
fn a_vault_is_copied_with_its_archive_or_not_at_all() {
    let cluster = Cluster::of(1);
    let url = cluster.url();
    let keep = tempfile::tempdir().unwrap();
    let (store, other) = (with_archive(&url, "one", keep.path()), shared(&url, "other"));
    work(&store, 0..10);
    let before = all(&store);
    store.inside.archive(keep.path(), 9).unwrap();
    let now = Timestamp::now();
    let target = shared(&cluster.url(), "one");
    for (from, to) in [(&other, &target), (&target, &other)] {
        let fault = copy(&**from, &**to, now, &mut |_, _| ()).unwrap_err().to_string();
        assert!(fault.contains("in the archive of the machine `one`"), "{fault}");
    }
    assert!(target.scan(State::Done, now).unwrap().tasks.is_empty(), "not one task was copied");
    let report = copy(&*store, &*target, now, &mut |_, _| ()).unwrap().unwrap();
    assert_eq!(report.history, CopiedHistory::Added(20));
    assert_eq!(all(&target), before);
}

#[test]
fn another_machine_takes_over_if_the_first_does_not_archive_any_more() {
    let cluster = Cluster::of(1);
    let url = cluster.url();
    let keep = tempfile::tempdir().unwrap();
    let [here, there] = ["here", "there"].map(|name| keep.path().join(name));
    let (one, other) = (with_archive(&url, "one", &here), with_archive(&url, "other", &there));
    work(&one, 0..10);
    let before = all(&one);
    assert_eq!(one.inside.archive(&here, 24).unwrap(), 6);
    let archive_there = |keep| other.inside.archive(&there, keep).unwrap();

    // It waits while there are few lines, while the first machine archives, and while a reader needs them.
    assert_eq!([archive_there(12), archive_there(12)], [0, 0], "24 lines are not more than twice 12");
    assert_eq!(archive_there(9), 0, "it has looked once");
    assert_eq!(one.inside.archive(&here, 21).unwrap(), 3);
    assert_eq!(archive_there(9), 0, "the first machine has archived since");
    one.keep_after("export", &one.events("", 8).unwrap().1).unwrap();
    assert_eq!([archive_there(9), archive_there(9)], [0, 0], "a reader has not read the next nine lines");
    one.keep_after("export", &one.events("", 20).unwrap().1).unwrap();
    assert!(!there.exists(), "nothing was made here");

    // The first machine is in the middle of a batch when the other one takes over.
    let stated = one.inside.archived().unwrap();
    assert_eq!([archive_there(9), archive_there(9)], [0, 12], "it could not have archived before");
    assert_eq!(one.inside.archive_batch(&files(&here), stated, 6, true).unwrap(), 0);
    assert_eq!(one.inside.archive(&here, 8).unwrap(), 0, "it is not the one that archives any more");
    let pieces = one.inside.archived().unwrap().1.pieces;
    assert_eq!(pieces, [piece("one", 1, 6), piece("other", 1, 8)]);
    assert_eq!(one.tallies().unwrap().values().map(|tally| tally.claims).sum::<u64>(), 10);

    // Each of them reads everything with a copy of the piece of the other.
    for (store, from, to) in
        [(&one, &there, here.join("from-other")), (&other, &here, there.join("from-one"))]
    {
        assert!(store.events("", 1).is_err());
        copy_files(from, &to);
        for size in [1, 6, 7, 14, 100] {
            assert_eq!(paged(store, size), before, "pages of {size}");
        }
    }
    let found = other.inside.archive_places().unwrap().unwrap().what;
    assert!(found.ends_with("the machine `one`, then `other` (this one)"), "{found}");

    // It takes the work back in the same way, after everything that its files have.
    work(&one, 10..11);
    one.keep_after("export", &one.events("", 100).unwrap().1).unwrap();
    let end = one.inside.archived().unwrap().1.pieces.len();
    assert_eq!([one.inside.archive(&here, 4).unwrap(), one.inside.archive(&here, 4).unwrap()], [0, 8]);
    let last = one.inside.archived().unwrap().1.pieces[end].clone();
    assert_eq!((&*last.machine, last.last + 1 - last.first), ("one", 5));
    assert_eq!(all(&one)[..20], before);
}

#[test]
fn a_machine_that_takes_over_from_an_earlier_version_does_not_guess_what_that_has_archived() {
    let cluster = Cluster::of(1);
    let url = cluster.url();
    let keep = tempfile::tempdir().unwrap();
    let store = with_archive(&url, "other", keep.path());
    work(&store, 0..10);
    let newest = all(&store)[19].time;
    let (lines, _) = store.inside.lines_from(0, 3).unwrap();
    let earlier = format!("{{\"revision\":{},\"machine\":\"one\",\"tallies\":{{}}}}", lines[2].revision);
    assert!(store.inside.state(0, &serde_json::from_str::<Archived>(&earlier).unwrap()).unwrap());
    let archive = || store.inside.archive(keep.path(), 9).unwrap();
    assert_eq!([archive(), archive()], [0, 18]);
    let fault = store.events("", 1).unwrap_err().to_string();
    assert!(fault.contains("on the machine `one`"), "{fault}");
    assert_eq!(store.cursor_before(newest).unwrap(), "");
    // As the fault advises.
    let later = store.inside.archived().unwrap().1.time.unwrap() + SignedDuration::from_nanos(1);
    assert!(fault.contains(&(later - SignedDuration::from_nanos(1)).to_string()), "{fault}");
    let cursor = store.cursor_before(later).unwrap();
    assert_eq!(store.events(&cursor, 100).unwrap().0.len(), 6, "what is in the engine");
}
