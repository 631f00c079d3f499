//! Old lines of the ledger are removed, and what they add up to stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tollgate_base::lock::Pauses;
use tollgate_base::name::StepId;
use tollgate_testing::etcd::{Cluster, post};
use tollgate_vault::checkup::Level;
use tollgate_vault::copy::{CopiedHistory, copy};
use tollgate_vault::event::Entry;
use tollgate_vault::{ClaimKind, ClaimRequest, Release, State, StepOutcome, Store, Terms, Vault};

use super::{fake_node, opened};
use crate::lines::KEEP;
use crate::message::{Txn, TxnOperation};
use crate::store::EtcdStore;
use crate::trim::HELD_BACK;

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

/// What the engine still has.
fn kept(store: &EtcdStore) -> Vec<Entry> {
    store.events(&store.oldest_cursor().unwrap(), usize::MAX).unwrap().0
}

fn lines(store: &EtcdStore) -> usize {
    store.shared.count(&store.shared.layout.lines()).unwrap()
}

#[test]
fn old_lines_are_removed_the_figures_stay_and_a_reader_of_them_is_told() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    let (store, other) = (opened(&url, "one"), opened(&url, "other"));
    work(&store, 0..10);
    let before = all(&store);
    let (figures, head) = (store.tallies().unwrap(), store.events("", 4).unwrap().1);
    assert_eq!(store.shared.trim(100).unwrap(), 0, "there are few");
    assert_eq!(store.shared.trim(28).unwrap(), 0, "there are hardly too many");
    assert_eq!((store.oldest_cursor().unwrap(), all(&store)), (String::new(), before.clone()));
    assert_eq!(store.shared.trim(15).unwrap(), 15);
    assert_eq!((lines(&store), kept(&other)), (15, before[10..].to_vec()));
    assert_eq!(other.shared.trim(9).unwrap(), 6, "any machine removes them");
    assert_eq!(kept(&store), before[14..]);

    // The figures are those of all lines, for those who have read them and for those who have not.
    for store in [&store, &other] {
        assert_eq!(store.tallies().unwrap(), figures);
    }
    for (cursor, which) in [("", "its oldest events"), (&*head, "events after the place")] {
        let fault = store.events(cursor, 10).unwrap_err().to_string();
        assert!(fault.contains("keeps the latest 20 lines") && fault.contains(which), "{fault}");
        // As the fault advises.
        let last = before[13].time;
        assert!(fault.contains(&format!("only events after {last} can be read")), "{fault}");
    }
    work(&store, 10..11);
    assert_eq!(other.tallies().unwrap().values().map(|tally| tally.claims).sum::<u64>(), 11);
    let finding = &other.checkup().unwrap();
    assert!(finding.iter().any(|finding| finding.what.contains("were removed")), "{finding:?}");
}

#[test]
fn processes_that_remove_lines_at_the_same_time_count_each_of_them_once() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    let store = opened(&url, "one");
    work(&store, 0..80);
    let (before, figures) = (all(&store), store.tallies().unwrap());
    std::thread::scope(|scope| {
        for n in 0..6 {
            let other = opened(&url, &format!("m{n}"));
            scope.spawn(move || {
                for keep in [200, 150, 100, 12] {
                    other.shared.trim(keep).unwrap();
                }
            });
        }
    });
    assert_eq!((lines(&store), kept(&store)), (12, before[152..].to_vec()));
    assert_eq!(
        (opened(&url, "new").tallies().unwrap(), store.tallies().unwrap()),
        (figures.clone(), figures)
    );
}

#[test]
fn a_new_process_adds_up_the_ledger_without_reading_it_twice() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    let store = opened(&url, "one");
    work(&store, 0..5);
    assert_eq!(store.shared.trim(9).unwrap(), 6);
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
    let new = opened(&format!("etcd://127.0.0.1:{port}/{}", url.rsplit('/').next().unwrap()), "two");
    assert_eq!(new.tallies().unwrap(), store.tallies().unwrap());
    assert_eq!(reads.load(Ordering::Relaxed), 1);
}

#[test]
fn a_task_that_is_added_again_after_its_line_was_removed_is_one_task() {
    let cluster = Cluster::shared();
    let store = opened(&cluster.url(), "one");
    let vault = Vault::new(Arc::clone(&store) as Arc<dyn Store>, Terms::default());
    let now = Timestamp::now();
    let (id, name) = (StepId::new().unwrap(), "x".parse().unwrap());
    let add = || store.add(&id, &name, b"text", now).unwrap();
    let StepOutcome::Done(first) = add() else { panic!("nothing is there") };
    let again = || {
        store.shared.trim(0).unwrap();
        assert!(matches!(add(), StepOutcome::Done(landed) if landed == first));
        let named = store.shared.ask(&name).unwrap();
        assert_eq!(named.tasks.len(), 1, "{named:?}");
    };
    again();
    assert_eq!(store.oldest_cursor().unwrap(), "", "no event was removed");
    let request = ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Held, renamed_in: false };
    let claimed = vault.claim(&name, &request, now).unwrap().unwrap();
    again();
    vault.release(&name, &claimed.claim.id, &Release::success(), now).unwrap().unwrap();
    again();
}

#[test]
fn a_process_that_only_watches_removes_old_lines_and_doctor_warns_if_none_does() {
    let cluster = Cluster::shared();
    let store = opened(&cluster.url(), "one");
    let warns = || store.shared.size(false).unwrap().iter().any(|found| found.level == Level::Warning);
    work(&store, 0..14);
    assert!(warns(), "42 lines are more than twice {KEEP}");
    let _watch = store.watch(&[State::Done], Arc::new(|_| ())).unwrap();
    *store.shared.trim_at.lock().unwrap() = Instant::now();
    let mut pauses = Pauses::lasting(Duration::from_secs(60));
    while lines(&store) > KEEP {
        assert!(pauses.pause(), "nobody has removed the lines");
    }
    assert!(!warns());
}

#[test]
fn a_foreign_key_among_the_lines_is_named() {
    let cluster = Cluster::shared();
    let store = opened(&cluster.url(), "one");
    let key = format!("{}note", store.shared.layout.lines());
    let txn = Txn { success: vec![TxnOperation::put(&key, b"milk")], ..Txn::default() };
    store.shared.client.txn(&txn).unwrap();
    let fault = store.events("", 10).unwrap_err().to_string();
    assert!(fault.contains(&key), "{fault}");
}

#[test]
fn lines_stay_until_their_readers_have_read_them() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    let (store, reader) = (opened(&url, "one"), opened(&url, "reader"));
    work(&store, 0..4);
    let before = all(&store);
    // Two readers of one machine, one of which has read nothing yet.
    let (page, cursor) = reader.events("", 4).unwrap();
    assert_eq!(page, before[..4]);
    reader.keep_after("slow", "").unwrap();
    reader.keep_after("fast", &cursor).unwrap();
    work(&store, 4..8);
    let before = all(&store);
    assert_eq!(store.shared.trim(5).unwrap(), 0, "one reader has read nothing");
    assert_eq!(reader.events("", 4).unwrap().0, before[..4]);
    reader.keep_after("slow", &cursor).unwrap();
    assert!(store.shared.trim(5).unwrap() > 0);
    assert_eq!(kept(&store), before[4..], "only what was read is gone");
    let (page, end) = reader.events(&cursor, usize::MAX).unwrap();
    assert_eq!(page, before[4..], "nothing is missing");

    // A reader that came too late is told at once, and holds nothing back: it cannot go on anyway.
    assert!(reader.keep_after("late", "").is_err());
    for name in ["fast", "slow"] {
        reader.keep_after(name, &end).unwrap();
    }
    assert!(store.shared.trim(5).unwrap() > 0);
}

#[test]
fn readers_do_not_hold_back_more_lines_than_the_engine_can_keep() {
    let cluster = Cluster::shared();
    let store = opened(&cluster.url(), "one");
    store.keep_after("forgotten", "").unwrap();
    work(&store, 0..4);
    let lines = lines(&store);
    let few = lines / HELD_BACK;
    assert_eq!(store.shared.trim(few + 1).unwrap(), 0, "there is room for them");
    assert_eq!(store.shared.trim(few - 1).unwrap(), lines - few + 1);
    assert!(store.keep_after("forgotten", "").is_err(), "it is told");
}

#[test]
fn many_events_at_once_are_several_lines() {
    let cluster = Cluster::shared();
    let store = opened(&cluster.url(), "one");
    work(&store, 0..4);
    let events = all(&store);
    let lines = || store.shared.lines_from(0, 1000).unwrap().0;
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
        opened(&url, "one").keep_after(name, "").unwrap();
    }
    assert_eq!(leases(), 2);
    opened(&url, "other").keep_after("a", "").unwrap();
    assert_eq!(leases(), 3);
}

#[test]
fn doctor_names_a_reader_that_keeps_lines_from_being_removed() {
    let cluster = Cluster::shared();
    let store = opened(&cluster.url(), "one");
    work(&store, 0..2);
    let (_, cursor) = store.events("", 2).unwrap();
    work(&store, 2..4);
    store.keep_after("fast", &store.events("", usize::MAX).unwrap().1).unwrap();
    store.keep_after("slow", &cursor).unwrap();
    let named = |keep| -> Vec<String> {
        store.shared.slow_readers(keep).unwrap().into_iter().map(|finding| finding.what).collect()
    };
    assert_eq!(named(9), [""; 0]);
    let found = named(8);
    assert!(found.len() == 1 && found[0].contains("/reader/one/slow` keeps 9 lines"), "{found:?}");
}

#[test]
fn a_line_that_was_read_in_part_is_not_skipped() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    let (store, reader) = (opened(&url, "one"), opened(&url, "reader"));
    work(&store, 0..4);
    let some = all(&store)[..4].to_vec();
    // One line with four events, as `vault copy` writes them.
    store.record(&some).unwrap();
    work(&store, 4..6);
    let before = all(&store);
    let (_, cursor) = reader.events("", 10).unwrap();
    reader.keep_after("export", &cursor).unwrap();
    assert_eq!(store.shared.trim(4).unwrap(), 12, "all lines before that one");
    assert_eq!(reader.events(&cursor, usize::MAX).unwrap().0, before[10..]);

    // A reader that has read all of it lets it go, and one that has not is told.
    let (page, end) = reader.events(&cursor, 2).unwrap();
    assert_eq!(page, some[2..]);
    reader.keep_after("export", &end).unwrap();
    assert_eq!(store.shared.trim(4).unwrap(), 1);
    assert!(reader.events(&cursor, 10).is_err(), "two of the four events were removed");
    assert_eq!(reader.events(&end, 10).unwrap().0, before[12..], "nothing that comes next was");
}

#[test]
fn events_since_a_time_are_read_if_everything_that_was_removed_is_older() {
    let cluster = Cluster::shared();
    let store = opened(&cluster.url(), "one");
    work(&store, 0..4);
    let newest = all(&store)[7].time;
    let later = newest + SignedDuration::from_nanos(1);
    assert_eq!(store.cursor_before(later).unwrap(), "", "nothing was removed");
    store.shared.trim(0).unwrap();
    work(&store, 4..6);
    let cursor = store.cursor_before(later).unwrap();
    assert_eq!(store.events(&cursor, 100).unwrap().0.len(), 4);
    assert_eq!(store.cursor_before(newest).unwrap(), "", "the last removed event has this time");
}

#[test]
fn a_vault_whose_oldest_events_were_removed_is_copied_with_the_others() {
    let cluster = Cluster::shared();
    let store = opened(&cluster.url(), "one");
    work(&store, 0..10);
    let before = all(&store);
    store.shared.trim(9).unwrap();
    let now = Timestamp::now();
    let target = opened(&cluster.url(), "one");
    let history = || copy(&*store, &*target, now, &mut |_, _| ()).unwrap().unwrap().history;
    assert_eq!(history(), CopiedHistory::AddedLatest(6));
    assert_eq!(all(&target), before[14..]);
    assert_eq!(history(), CopiedHistory::AddedLatest(0));
    assert_eq!(target.scan(State::Done, now).unwrap().tasks.len(), 10);
}
