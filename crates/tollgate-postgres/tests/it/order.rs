//! The ledger is read from a cursor on while many write: every line, in its order. Wake-ups, and changes by hand.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use tollgate_base::task::State;
use tollgate_postgres::PostgresStore;
use tollgate_testing::postgres::{Server, is_installed, sabotage};
use tollgate_vault::event::Entry;
use tollgate_vault::store::{Hint, NoticedChange, Wake};
use tollgate_vault::{ClaimKind, ClaimRequest, Release, StepId, Store, Terms, Vault};

use crate::stores::Stores;

const WRITERS: usize = 6;
const TASKS: usize = 60;

/// Many threads claim and release tasks while a reader follows: what it saw, and what there is.
fn follow(server: &Server) -> (Vec<Entry>, Vec<Entry>) {
    let store = |_| Arc::new(server.store("order"));
    let stores: Vec<Arc<PostgresStore>> = (0..WRITERS).map(store).collect();
    for number in 0..WRITERS * TASKS {
        let task = format!("t{number}").parse().unwrap();
        stores[0].add(&StepId::new().unwrap(), &task, b"text", Timestamp::now()).unwrap();
    }
    let is_over = AtomicBool::new(false);
    let reader = server.store("order");
    thread::scope(|scope| {
        let follower = scope.spawn(|| {
            let (mut cursor, mut events) = (String::new(), Vec::new());
            loop {
                let is_last = is_over.load(Ordering::SeqCst);
                let (page, next) = reader.events(&cursor, 1000).unwrap();
                let is_empty = page.is_empty();
                events.extend(page);
                cursor = next;
                if is_last && is_empty {
                    return events;
                }
            }
        });
        let writers: Vec<_> = stores
            .iter()
            .enumerate()
            .map(|(number, store)| {
                let vault = Vault::new(Arc::clone(store) as Arc<dyn Store>, Terms::default());
                scope.spawn(move || {
                    let agent = format!("a{number}").parse().unwrap();
                    let request = ClaimRequest { agent, kind: ClaimKind::Leased, renamed_in: false };
                    for task in (0..TASKS).map(|n| format!("t{}", n * WRITERS + number)) {
                        let task = task.parse().unwrap();
                        let claimed = vault.claim(&task, &request, Timestamp::now()).unwrap().unwrap();
                        let done =
                            vault.release(&task, &claimed.claim.id, &Release::success(), Timestamp::now());
                        done.unwrap().unwrap();
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, Ordering::SeqCst);
        (follower.join().unwrap(), reader.events("", usize::MAX).unwrap().0)
    })
}

#[test]
fn a_reader_sees_every_line_in_its_order_while_many_write() {
    if !is_installed() {
        return;
    }
    let (seen, all) = follow(&Server::start(""));
    assert_eq!(all.len(), 2 * WRITERS * TASKS);
    assert_eq!(seen, all);
}

/// A line is committed while the line before it is still being written: what a reader sees then, and when both are there.
fn out_of_order(server: &Server) -> [usize; 2] {
    let vault = Vault::new(Arc::new(server.store("order")), Terms::default());
    let (task, now) = ("x".parse().unwrap(), Timestamp::now());
    vault.add(&task, b"text", now).unwrap();
    let request = ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: false };
    let claimed = vault.claim(&task, &request, now).unwrap().unwrap();
    let (first, cursor) = vault.store().events("", 10).unwrap();
    assert_eq!(first.len(), 1);
    let mut sql = server.sql();
    sql.batch_execute("set search_path = \"order\"").unwrap();
    let mut slow = sql.transaction().unwrap();
    let line = serde_json::to_string(&first[0]).unwrap();
    slow.execute("select record_events('slow', array[$1])", &[&line]).unwrap();
    vault.release(&task, &claimed.claim.id, &Release::success(), now).unwrap().unwrap();
    let (early, cursor) = vault.store().events(&cursor, 10).unwrap();
    slow.commit().unwrap();
    let (late, _) = vault.store().events(&cursor, 10).unwrap();
    [early.len(), late.len()]
}

#[test]
fn a_line_is_not_shown_before_the_line_before_it() {
    if !is_installed() {
        return;
    }
    assert_eq!(out_of_order(&Server::shared()), [0, 2]);
}

#[test]
fn without_the_lock_a_reader_misses_a_line() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    server.store("order").events("", 1).expect("the schema is there");
    sabotage(&server, "order", "record_events", "perform pg_advisory_xact_lock_shared", "perform concat");
    assert_eq!(out_of_order(&server), [1, 0]);
}

#[test]
fn a_line_that_will_never_come_is_not_waited_for() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    let store = server.store("order");
    store.record(&[]).unwrap();
    let mut sql = server.sql();
    sql.batch_execute("set search_path = \"order\"").unwrap();
    let lost = "select nextval('lines')";
    sql.batch_execute(lost).unwrap();
    let vault = Vault::new(Arc::new(server.store("order")), Terms::default());
    let (task, now) = ("x".parse().unwrap(), Timestamp::now());
    vault.add(&task, b"text", now).unwrap();
    let request = ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: false };
    vault.claim(&task, &request, now).unwrap().unwrap();
    assert_eq!(store.events("", 10).unwrap().0.len(), 1);
    // Now somebody always writes, and after a while the reader waits for all who do.
    sql.batch_execute(lost).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let store = server.store("order");
                while !is_over.load(Ordering::SeqCst) {
                    store.record(&[]).unwrap();
                }
            });
        }
        vault
            .claim(&task, &ClaimRequest { agent: "red".parse().unwrap(), ..request }, now)
            .unwrap()
            .unwrap_err();
        let mut pauses = tollgate_base::lock::Pauses::lasting(Duration::from_secs(30));
        while store.events("", 10).unwrap().0.len() < 2 {
            assert!(pauses.pause(), "the line after the gap comes");
        }
        is_over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn a_listener_hears_of_new_tasks_also_after_the_server_was_killed() {
    if !is_installed() {
        return;
    }
    let mut server = Server::start("fsync = off");
    let (store, other) = (server.store("listen"), server.store("listen"));
    let (heard, hints) = mpsc::channel();
    let wake: Wake = Arc::new(move |hint| drop(heard.send(hint)));
    let watch = store.watch(&[State::NeedsAction], wake).unwrap();
    let next = || hints.recv_timeout(Duration::from_secs(30)).expect("a hint");
    assert_eq!(next(), Hint::Everything, "it listens");
    let add = |name: &str| {
        other.add(&StepId::new().unwrap(), &name.parse().unwrap(), b"text", Timestamp::now()).unwrap()
    };
    add("first");
    assert!(matches!(next(), Hint::Task(name, State::NeedsAction, _) if name.stem() == "first"));
    server.kill();
    server.restart();
    assert_eq!(next(), Hint::Everything, "it listens again");
    add("second");
    assert!(matches!(next(), Hint::Task(name, State::NeedsAction, _) if name.stem() == "second"));
    drop(watch);
    add("third");
    assert!(hints.recv_timeout(Duration::from_secs(30)).is_err(), "the thread has ended");
}

#[test]
fn a_task_that_was_claimed_has_not_come_to_the_queue() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    let store = Arc::new(server.store("gone"));
    let vault = Vault::new(Arc::clone(&store) as Arc<dyn Store>, Terms::default());
    let (now, name) = (Timestamp::now(), "claimed".parse().unwrap());
    vault.add(&name, b"text", now).unwrap();
    let (heard, hints) = mpsc::channel();
    let wake: Wake = Arc::new(move |hint| drop(heard.send(hint)));
    let _watch = store.watch(&[State::NeedsAction], wake).unwrap().unwrap();
    let next = || hints.recv_timeout(Duration::from_secs(30)).expect("a hint");
    assert_eq!(next(), Hint::Everything, "it listens");
    let request = ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: false };
    vault.claim(&name, &request, now).unwrap().unwrap();
    assert_eq!(next(), Hint::Task(name, State::NeedsAction, NoticedChange::Touched));
    let new: tollgate_vault::TaskName = "new".parse().unwrap();
    vault.add(&new, b"text", now).unwrap();
    assert_eq!(next(), Hint::Task(new, State::NeedsAction, NoticedChange::MovedIn));
}

#[test]
fn a_listener_looks_again_if_nobody_told_it_of_a_step() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    let store = server.store("untold");
    let (heard, hints) = mpsc::channel();
    let wake: Wake = Arc::new(move |hint| drop(heard.send(hint)));
    let _watch = store.watch(&[State::NeedsAction], wake).unwrap().unwrap();
    let next = || hints.recv_timeout(Duration::from_secs(60)).expect("a hint");
    assert_eq!(next(), Hint::Everything, "it listens");
    // As by a process that dies after its step, before the server has told the listeners.
    let step = "set tollgate.tells = 'on'; set search_path = untold;
        insert into tasks (name, state, text) values ('a.md', 'Needs_Action', 'x')";
    server.sql().batch_execute(step).unwrap();
    assert_eq!(next(), Hint::Everything);
}

#[test]
fn what_a_person_changes_with_sql_is_seen() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    let store = server.store("sql");
    let now = Timestamp::now();
    let names = |state| {
        let tasks = store.scan(state, now).unwrap().tasks;
        let mut names: Vec<_> = tasks.iter().map(|task| task.name.stem().to_owned()).collect();
        names.sort();
        names
    };
    for name in ["a", "b", "c"] {
        store.add(&StepId::new().unwrap(), &name.parse().unwrap(), b"text", now).unwrap();
    }
    assert_eq!(
        (names(State::NeedsAction), names(State::Done)),
        (vec!["a".into(), "b".into(), "c".into()], vec![])
    );
    let before = store.get(&"b".parse().unwrap(), None, now).unwrap().unwrap();
    let mut sql = server.sql();
    sql.batch_execute("update sql.tasks set state = 'Done' where name = 'a.md'").unwrap();
    sql.batch_execute("update sql.tasks set text = 'other' where name = 'b.md'").unwrap();
    assert_eq!(
        (names(State::NeedsAction), names(State::Done)),
        (vec!["b".into(), "c".into()], vec!["a".into()])
    );
    assert_eq!(store.read(&before, 100).unwrap(), None, "its version has changed");
    sql.batch_execute("delete from sql.tasks where name = 'c.md'").unwrap();
    assert_eq!(names(State::NeedsAction), ["b"]);
    sql.batch_execute("insert into sql.tasks (name, state, text) values ('d.md', 'Needs_Action', 'x'), ('no/name', 'Needs_Action', 'x')").unwrap();
    assert_eq!(names(State::NeedsAction), ["b", "d"]);
    assert_eq!(store.scan(State::NeedsAction, now).unwrap().unfit.len(), 1);
}

#[test]
fn a_task_of_a_slow_transaction_is_listed_when_it_is_there() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    let (store, now) = (server.store("slow"), Timestamp::now());
    let count = || store.scan(State::NeedsAction, now).unwrap().tasks.len();
    assert_eq!(count(), 0);
    let mut sql = server.sql();
    let mut slow = sql.transaction().unwrap();
    slow.batch_execute("insert into slow.tasks (name, state, text) values ('a.md', 'Needs_Action', 'x')")
        .unwrap();
    for name in ["b", "c"] {
        store.add(&StepId::new().unwrap(), &name.parse().unwrap(), b"text", now).unwrap();
        count();
    }
    assert_eq!(count(), 2);
    slow.commit().unwrap();
    assert_eq!(count(), 3);
}
