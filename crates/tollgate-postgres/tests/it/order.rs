//! The ledger is read from a cursor on while many write: every line, in its order. Wake-ups, and changes by hand.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use tollgate_base::task::State;
use tollgate_postgres::PostgresStore;
use tollgate_vault::event::Entry;
use tollgate_vault::store::{Hint, Wake};
use tollgate_vault::{ClaimKind, ClaimRequest, Release, StepId, Store, Terms, Vault};

use crate::server::{Server, is_installed, sabotage};

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

#[test]
fn without_the_lock_a_reader_misses_lines() {
    if !is_installed() {
        return;
    }
    let server = Server::start("");
    assert!(server.store("order").problems().is_empty(), "the schema is there");
    sabotage(&server, "order", "lock_vault", "pg_advisory_xact_lock", "");
    // A notification takes a lock of its own at the commit, which hides the missing one.
    sabotage(&server, "order", "tell", "perform pg_notify", "perform concat");
    let (seen, all) = follow(&server);
    assert!(seen.len() < all.len(), "{} of {} lines", seen.len(), all.len());
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
fn what_a_person_changes_with_sql_is_seen() {
    if !is_installed() {
        return;
    }
    let server = Server::start("fsync = off");
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
