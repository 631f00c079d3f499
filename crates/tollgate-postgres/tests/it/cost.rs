//! What looks and sweeps cost: how much each of them takes at once, and whom it keeps waiting.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use tollgate_base::lock::Pauses;
use tollgate_base::task::{State, TaskName};
use tollgate_testing::postgres::{Server, is_installed};
use tollgate_vault::{ClaimKind, ClaimRequest, StepId, Store, Terms, Vault};

use crate::stores::Stores;

#[test]
fn a_slow_look_at_one_state_does_not_keep_others_from_looking_at_the_queue() {
    if !is_installed() {
        return;
    }
    let server = Server::start("fsync = off");
    let (store, now) = (server.store("slow"), Timestamp::now());
    store.add(&StepId::new().unwrap(), &"x".parse().unwrap(), b"text", now).unwrap();
    let (mut sql, mut holder) = (server.sql(), server.sql());
    // As if there were millions of tasks in `Done`: a look at them lasts as long as this lock is held.
    sql.batch_execute(
        "set search_path = slow; alter table tasks rename to all_tasks;
        create view tasks as select * from all_tasks
            where state <> 'Done' or pg_advisory_xact_lock_shared(7) is not null;
        insert into all_tasks (name, state, text) values ('old.md', 'Done', 'text')",
    )
    .unwrap();
    holder.batch_execute("select pg_advisory_lock(7)").unwrap();
    thread::scope(|scope| {
        let done = scope.spawn(|| store.scan(State::Done, now));
        let waiting =
            "select count(*) from pg_locks where locktype = 'advisory' and objid = 7 and not granted";
        let mut pauses = Pauses::lasting(Duration::from_secs(30));
        while sql.query_one(waiting, &[]).unwrap().get::<_, i64>(0) == 0 {
            assert!(pauses.pause() && !done.is_finished(), "the look at `Done` takes long");
        }
        assert_eq!(store.scan(State::NeedsAction, now).unwrap().tasks.len(), 1);
        assert!(!done.is_finished(), "the queue was listed only after `Done`");
        holder.batch_execute("select pg_advisory_unlock(7)").unwrap();
        assert_eq!(done.join().unwrap().unwrap().tasks.len(), 1);
    });
}

#[test]
fn a_process_does_not_suspect_itself_while_it_holds_its_claims() {
    if !is_installed() {
        return;
    }
    let server = Server::start("fsync = off");
    let store = Arc::new(server.store("suspects"));
    let (vault, now) = (Vault::new(store.clone(), Terms::default()), Timestamp::now());
    let request = ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Held, renamed_in: false };
    let claim = |name: &str| {
        let task: TaskName = name.parse().unwrap();
        vault.add(&task, b"text", now).unwrap();
        vault.claim(&task, &request, now).unwrap().unwrap()
    };
    let suspects = || {
        let found = store.suspects(now).unwrap();
        found.iter().map(|task| task.name.stem().to_owned()).collect::<Vec<_>>()
    };
    let (mut left, kept) = (claim("left"), claim("kept"));
    assert_eq!(suspects(), [""; 0]);
    drop(left.lock.take());
    assert_eq!(suspects(), ["left"]);
    // Not even if its heartbeat is late.
    server.sql().batch_execute("update suspects.tasks set lease_until = now() - interval '1 day'").unwrap();
    assert_eq!(suspects(), ["left"]);
    drop(kept);
    assert_eq!(suspects().len(), 2);
}

#[test]
fn the_ids_of_old_steps_are_forgotten_some_at_a_time() {
    if !is_installed() {
        return;
    }
    let server = Server::start("fsync = off");
    let store = server.store("steps");
    store.events("", 1).expect("the schema is there");
    let mut sql = server.sql();
    let fill = "insert into steps.steps (id, taken_at)
        select 's' || n, clock_timestamp() - interval '1 hour' * (case when n > 12000 then 1 else 48 end)
        from generate_series(1, 12003) n";
    sql.batch_execute(fill).unwrap();
    let mut left = || {
        store.sweep(Timestamp::now()).unwrap();
        sql.query_one("select count(*) from steps.steps", &[]).unwrap().get::<_, i64>(0)
    };
    assert_eq!([left(), left(), left()], [2003, 3, 3]);
}
