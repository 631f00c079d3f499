//! Old lines of the ledger move to files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::json;
use tollgate_base::ledger::Ledger;
use tollgate_base::lock::Pauses;
use tollgate_base::name::StepId;
use tollgate_base::settings::Durability;
use tollgate_vault::checkup::Level;
use tollgate_vault::event::Entry;
use tollgate_vault::figures::Tally;
use tollgate_vault::{ClaimKind, ClaimRequest, Release, State, StepOutcome, Store, Terms, Vault};

use super::cluster::{Cluster, post};
use super::{fake_node, shared, with_archive};
use crate::archive::{HELD_BACK, KEEP};
use crate::archived::{ArchivePiece, Archived};
use crate::line_place::LinePlace;
use crate::message::{Act, Txn};
use crate::store::EtcdStore;

/// Two lines of the ledger with events for each task, and one without.
pub(super) fn work(store: &Arc<EtcdStore>, tasks: std::ops::Range<usize>) {
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

pub(super) fn all(store: &EtcdStore) -> Vec<Entry> {
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
    // A reader that is behind the archive is told.
    for cursor in ["", &head] {
        let fault = store.events(cursor, 10).unwrap_err().to_string();
        assert!(fault.contains("the archive of the machine `one`"), "{fault}");
    }
}

#[test]
fn a_new_process_adds_up_the_ledger_without_reading_it_twice() {
    let cluster = Cluster::start();
    let (url, folder) = (cluster.url(), tempfile::tempdir().unwrap());
    let store = with_archive(&url, "one", folder.path());
    work(&store, 0..5);
    assert_eq!(store.inside.archive(folder.path(), 9).unwrap(), 6);
    // Passes everything on, and counts how often lines are read.
    let reads = Arc::new(AtomicUsize::new(0));
    let (counted, etcd) = (Arc::clone(&reads), cluster.ports()[0]);
    let port = fake_node::start(move |path, body| {
        let is_read = path == "/v3/kv/range" && body.contains("min_create_revision");
        counted.fetch_add(usize::from(is_read), Ordering::Relaxed);
        let answer = match path {
            "/version" => json!({ "etcdserver": "3.5.30" }),
            _ => post(etcd, path, &serde_json::from_str(body).ok()?)?,
        };
        Some((200, answer.to_string()))
    });
    let new = shared(&format!("etcd://127.0.0.1:{port}/{}", url.rsplit('/').next().unwrap()), "two");
    assert_eq!(new.tallies().unwrap(), store.tallies().unwrap());
    assert_eq!(reads.load(Ordering::Relaxed), 1);
}

#[test]
fn a_task_that_is_added_again_after_its_line_was_archived_is_one_task() {
    let cluster = Cluster::of(1);
    let store = shared(&cluster.url(), "one");
    let vault = Vault::new(Arc::clone(&store) as Arc<dyn Store>, Terms::default());
    let (keep, now) = (tempfile::tempdir().unwrap(), Timestamp::now());
    let (id, name) = (StepId::new().unwrap(), "x".parse().unwrap());
    let add = || store.add(&id, &name, b"text", now).unwrap();
    let StepOutcome::Done(first) = add() else { panic!("nothing is there") };
    let again = || {
        store.inside.archive(keep.path(), 0).unwrap();
        assert!(matches!(add(), StepOutcome::Done(landed) if landed == first));
        let named = store.inside.ask(&name).unwrap();
        assert_eq!(named.tasks.len(), 1, "{named:?}");
    };
    again();
    let request = ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Held, renamed_in: false };
    let claimed = vault.claim(&name, &request, now).unwrap().unwrap();
    again();
    vault.release(&name, &claimed.claim.id, &Release::success(), now).unwrap().unwrap();
    again();
}

#[test]
fn a_process_that_only_watches_archives_and_doctor_warns_if_none_does() {
    let cluster = Cluster::of(1);
    let url = cluster.url();
    let keep = tempfile::tempdir().unwrap();
    let store = with_archive(&url, "one", keep.path());
    let warns = || store.inside.size(false).unwrap().iter().any(|found| found.level == Level::Warning);
    work(&store, 0..14);
    assert!(warns(), "42 lines are more than twice {KEEP}");
    let _watch = store.watch(&[State::Done], Arc::new(|_| ())).unwrap();
    *store.inside.archive_at.lock().unwrap() = Instant::now();
    let mut pauses = Pauses::lasting(Duration::from_secs(60));
    while store.inside.lines_from(0, 100).unwrap().0.len() > KEEP {
        assert!(pauses.pause(), "nobody has archived the lines");
    }
    assert!(!warns());
}

#[test]
fn an_archive_that_cannot_be_written_keeps_nobody_from_claiming() {
    let cluster = Cluster::of(1);
    let file = tempfile::NamedTempFile::new().unwrap();
    let store = with_archive(&cluster.url(), "one", file.path());
    work(&store, 0..10);
    assert!(store.inside.archive(file.path(), KEEP).is_err(), "a file is not a folder");
    *store.inside.archive_at.lock().unwrap() = Instant::now();
    let vault = Vault::new(Arc::clone(&store) as Arc<dyn Store>, Terms::default());
    assert_eq!(vault.reclaim(Timestamp::now()).unwrap().0, []);
}

#[test]
fn a_foreign_key_among_the_lines_is_named() {
    let cluster = Cluster::of(1);
    let store = shared(&cluster.url(), "one");
    let key = format!("{}note", store.inside.layout.lines());
    let txn = Txn { success: vec![Act::put(&key, b"milk")], ..Txn::default() };
    store.inside.client.txn(&txn).unwrap();
    let fault = store.events("", 10).unwrap_err().to_string();
    assert!(fault.contains(&key), "{fault}");
}

#[test]
fn the_archive_does_not_overtake_a_reader() {
    let cluster = Cluster::of(1);
    let url = cluster.url();
    let (store, reader) = (shared(&url, "one"), shared(&url, "reader"));
    let keep = tempfile::tempdir().unwrap();
    work(&store, 0..4);
    let before = all(&store);
    // Two readers of one machine, one of which has read nothing yet.
    let (page, cursor) = reader.events("", 4).unwrap();
    assert_eq!(page, before[..4]);
    reader.keep_after("slow", "").unwrap();
    reader.keep_after("fast", &cursor).unwrap();
    work(&store, 4..8);
    assert_eq!(store.inside.archive(keep.path(), 5).unwrap(), 0, "one reader has read nothing");
    assert_eq!(reader.events("", 4).unwrap().0, before[..4]);
    reader.keep_after("slow", &cursor).unwrap();
    assert!(store.inside.archive(keep.path(), 5).unwrap() > 0);
    let (page, end) = reader.events(&cursor, usize::MAX).unwrap();
    assert_eq!(page, all_after(&store, &before, 4), "nothing is missing");

    // A reader that came too late is told at once, and holds nothing back: it cannot go on anyway.
    assert!(reader.keep_after("late", "").is_err());
    for name in ["fast", "slow"] {
        reader.keep_after(name, &end).unwrap();
    }
    assert!(store.inside.archive(keep.path(), 5).unwrap() > 0);
}

#[test]
fn readers_do_not_hold_back_more_lines_than_the_engine_can_keep() {
    let cluster = Cluster::of(1);
    let keep = tempfile::tempdir().unwrap();
    let store = with_archive(&cluster.url(), "one", keep.path());
    store.keep_after("forgotten", "").unwrap();
    work(&store, 0..4);
    let before = all(&store);
    let lines = store.inside.lines_from(0, 1000).unwrap().0.len();
    let few = lines / HELD_BACK;
    assert_eq!(store.inside.archive(keep.path(), few + 1).unwrap(), 0, "there is room for them");
    assert_eq!(store.inside.archive(keep.path(), few - 1).unwrap(), lines - few + 1);
    assert!(store.keep_after("forgotten", &LinePlace { revision: 1, events: 0 }.to_string()).is_err());
    assert_eq!(all(&store), before, "nothing is lost");
}

#[test]
fn many_events_at_once_are_several_lines() {
    let cluster = Cluster::of(1);
    let store = shared(&cluster.url(), "one");
    work(&store, 0..4);
    let events = all(&store);
    let lines = || store.inside.lines_from(0, 1000).unwrap().0;
    let before = lines().len();
    let many: Vec<Entry> = events.iter().cycle().take(100).cloned().collect();
    store.record(&many).unwrap();
    let new = &lines()[before..];
    assert!(new.len() > 10 && new.iter().all(|line| line.value.events.len() < 10));
    assert_eq!(all(&store)[events.len()..], many);
}

#[test]
fn each_reader_has_one_lease_which_it_keeps() {
    let cluster = Cluster::of(1);
    let url = cluster.url();
    let leases = || {
        let found = post(cluster.ports()[0], "/v3/lease/leases", &json!({})).unwrap();
        found["leases"].as_array().map_or(0, Vec::len)
    };
    for name in ["a", "b", "a", "b", "a"] {
        // Each time in a new process.
        shared(&url, "one").keep_after(name, "").unwrap();
    }
    assert_eq!(leases(), 2);
    shared(&url, "other").keep_after("a", "").unwrap();
    assert_eq!(leases(), 3);
}

#[test]
fn the_place_that_an_earlier_version_has_left_still_counts() {
    let cluster = Cluster::of(1);
    let store = shared(&cluster.url(), "one");
    let keep = tempfile::tempdir().unwrap();
    work(&store, 0..4);
    let (lines, _) = store.inside.lines_from(0, 5).unwrap();
    let key = format!("{}earlier", store.inside.layout.readers());
    let act = Act::put(key, lines[4].revision.to_string());
    store.inside.client.txn(&Txn { success: vec![act], ..Txn::default() }).unwrap();
    assert_eq!(store.inside.archive(keep.path(), 3).unwrap(), 4, "it may have read nothing of the fifth");
}

#[test]
fn doctor_names_a_reader_that_keeps_lines_from_being_archived() {
    let cluster = Cluster::of(1);
    let store = shared(&cluster.url(), "one");
    work(&store, 0..2);
    let (_, cursor) = store.events("", 2).unwrap();
    work(&store, 2..4);
    store.keep_after("fast", &store.events("", usize::MAX).unwrap().1).unwrap();
    store.keep_after("slow", &cursor).unwrap();
    let named = |keep| -> Vec<String> {
        store.inside.slow_readers(keep).unwrap().into_iter().map(|finding| finding.what).collect()
    };
    assert_eq!(named(9), [""; 0]);
    let found = named(8);
    assert!(found.len() == 1 && found[0].contains("/reader/one/slow` keeps 9 lines"), "{found:?}");
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
    let (_, cursor) = reader.events("", 10).unwrap();
    reader.keep_after("export", &cursor).unwrap();
    assert_eq!(store.inside.archive(keep.path(), 4).unwrap(), 12, "all lines before that one");
    assert_eq!(reader.events(&cursor, usize::MAX).unwrap().0, before[10..]);

    // A reader that has read all of it lets it go, and one that has not is told.
    let (page, end) = reader.events(&cursor, 2).unwrap();
    assert_eq!(page, some[2..]);
    reader.keep_after("export", &end).unwrap();
    assert_eq!(store.inside.archive(keep.path(), 4).unwrap(), 1);
    assert!(reader.events(&cursor, 10).is_err(), "two of the four events are in the archive");
}

pub(super) fn files(folder: &Path) -> Ledger {
    Ledger::new(folder, &folder.join("lock"), 1 << 20, None)
}

fn pieces(store: &EtcdStore) -> Vec<ArchivePiece> {
    store.inside.archived().unwrap().1.pieces
}

pub(super) fn piece(machine: &str, first: u64, last: u64) -> ArchivePiece {
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
    let url = cluster.url();
    let store = shared(&url, "one");
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
    // If the files are lost, the archive continues under another name, and nobody takes new lines for the lost ones.
    let renamed = with_archive(&url, "new", &keep.path().join("old"));
    let archive = || renamed.inside.archive(&keep.path().join("old"), 9).unwrap();
    assert_eq!([archive(), archive()], [0, 15]);
    assert_eq!(pieces(&store)[2], piece("new", 1, 10));
    let fault = renamed.events("", 1).unwrap_err().to_string();
    assert!(fault.contains("the archive of the machine `one`"), "{fault}");
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
