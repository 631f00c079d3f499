//! The queue by its index: how much a claim reads, and tasks that people write with SQL.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use postgres::Client;
use tollgate_base::lock::Pauses;
use tollgate_base::task::State;
use tollgate_postgres::PostgresStore;
use tollgate_testing::postgres::{Server, is_installed};
use tollgate_vault::store::TaskSummary;
use tollgate_vault::{ClaimKind, ClaimRequest, Release, Store, TaskName, Terms, Vault};

use crate::stores::Stores;

fn request() -> ClaimRequest {
    ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: false }
}

/// A server with a vault of this many tasks.
fn filled(tasks: usize) -> (Server, Client) {
    let server = Server::shared();
    server.store("queue").events("", 1).expect("the schema is there");
    let mut sql = server.sql();
    let fill = "set search_path = queue;
        select add_task('s' || n, 't' || n || '.md', 'text', '21') from generate_series(1, $1) n; analyze";
    sql.batch_execute(&fill.replace("$1", &tasks.to_string())).unwrap();
    (server, sql)
}

/// How many rows of tasks the server reads for what a new process does.
fn rows_read(server: &Server, sql: &mut Client, work: impl FnOnce(PostgresStore)) -> i64 {
    let mut read = || {
        let query = "select seq_tup_read + idx_tup_fetch from pg_stat_user_tables where relname = 'tasks'";
        sql.query_one(query, &[]).unwrap().get::<_, i64>(0)
    };
    let before = read();
    work(server.store("queue"));
    // The server counts when the connection has ended.
    let mut pauses = Pauses::lasting(Duration::from_secs(30));
    while read() == before {
        assert!(pauses.pause(), "the server counts");
    }
    read() - before
}

#[test]
fn a_claim_of_the_next_task_reads_few_of_many_tasks() {
    if !is_installed() {
        return;
    }
    let (server, mut sql) = filled(3_000);
    let claimed = rows_read(&server, &mut sql, |store| {
        let vault = Vault::new(Arc::new(store), Terms::default());
        let (claimed, _) = vault.claim_next(&request(), Timestamp::now()).unwrap();
        let claimed = claimed.unwrap();
        assert_eq!(claimed.task.stem(), "t1");
        let back = Release::give_back("stopped");
        vault.release(&claimed.task, &claimed.claim.id, &back, Timestamp::now()).unwrap().unwrap();
        vault.add(&"new".parse().unwrap(), b"text", Timestamp::now()).unwrap();
    });
    assert!(claimed < 100, "a claim reads {claimed} rows");
    let unknown = sql.query_one("select count(*) from tasks where urgency is null", &[]).unwrap();
    assert_eq!(unknown.get::<_, i64>(0), 0, "what tollgate writes has its place at once");
    let scanned = rows_read(&server, &mut sql, |store| {
        assert_eq!(store.scan(State::NeedsAction, Timestamp::now()).unwrap().tasks.len(), 3_001);
    });
    assert!(scanned >= 3_001, "the control: a scan reads {scanned} rows");
}

/// The names of the whole queue, in pages of this size.
fn queue(store: &PostgresStore, limit: usize) -> Vec<String> {
    let (mut names, mut cursor) = (Vec::new(), Some(String::new()));
    while let Some(after) = cursor {
        let page = store.queue_page(&after, limit, Timestamp::now()).unwrap().unwrap();
        let name = |task: &TaskSummary| task.name.stem().to_owned();
        names.extend(page.unfit.into_iter().map(|unfit| unfit.name).chain(page.tasks.iter().map(name)));
        cursor = page.next;
    }
    names
}

#[test]
fn a_task_that_a_person_writes_with_sql_has_its_place_in_the_queue() {
    if !is_installed() {
        return;
    }
    let (server, mut sql) = filled(3);
    let store = server.store("queue");
    let text = |priority: &str| format!("E'---\\npriority: {priority}\\n---\\n'");
    let write = |sql: &mut Client, statement: String| sql.batch_execute(&statement).unwrap();
    for (name, priority) in
        [("low.md", "low"), ("high.md", "high"), ("no/name", "urgent"), ("odd.md", "banana")]
    {
        let insert = "insert into tasks (name, state, text) values";
        write(&mut sql, format!("{insert} ('{name}', 'Needs_Action', {})", text(priority)));
    }
    let expected = ["no/name", "odd", "high", "t1", "t2", "t3", "low"];
    assert_eq!(queue(&store, 100), expected);
    assert_eq!(queue(&store, 1), expected);
    // A new text takes the place that it asks for, and the urgency of the old one is forgotten.
    let low: TaskName = "low".parse().unwrap();
    let before = store.get(&low, None, Timestamp::now()).unwrap().unwrap();
    write(&mut sql, format!("update tasks set text = {} where name = 'low.md'", text("p0")));
    write(&mut sql, format!("update tasks set text = {} where name = 'odd.md'", text("p4")));
    write(&mut sql, "update tasks set state = 'Approved' where name = 't2.md'".to_owned());
    write(&mut sql, "update tasks set state = 'Done' where name = 't1.md'".to_owned());
    assert_ne!(store.get(&low, None, Timestamp::now()).unwrap().unwrap().version, before.version);
    let version = store.get(&low, None, Timestamp::now()).unwrap().unwrap().version;
    assert_eq!(queue(&store, 2), ["no/name", "low", "high", "t2", "t3", "odd"]);
    let after = store.get(&low, None, Timestamp::now()).unwrap().unwrap().version;
    assert_eq!(version, after, "a place in the queue is not a change of the task");
    let written = sql.query_one("select count(*) from tasks where urgency is not null", &[]).unwrap();
    assert_eq!(written.get::<_, i64>(0), 6, "the next process need not read the texts");
}

#[test]
fn a_cursor_of_another_store_is_refused() {
    if !is_installed() {
        return;
    }
    let (server, _) = filled(1);
    let refused = server.store("queue").queue_page("x", 1, Timestamp::now()).unwrap_err();
    assert!(refused.to_string().contains("`x` is not a cursor"), "{refused}");
}
