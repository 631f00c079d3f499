//! What a claim costs on PostgreSQL, compared in alternating rounds with the bare compare-and-swap of the same client on the
//! same server; a claim among many tasks; and many listeners.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a benchmark prints its figures and stops at the first surprise"
)]

#[path = "../tests/it/stores.rs"]
mod stores;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::{Client, Config, NoTls, Statement};
use tollgate_base::error::Result;
use tollgate_base::task::{State, TaskName};
use tollgate_postgres::PostgresStore;
use tollgate_testing::postgres::{Server, is_installed};
use tollgate_vault::event::{Entry, EventPage};
use tollgate_vault::store::{Scan, Wake};
use tollgate_vault::{
    ClaimKind, ClaimRequest, Release, Step, StepId, StepOutcome, Store, Task, Terms, Vault,
};

use stores::Stores;

const ROUNDS: usize = 7;
const OPERATIONS: usize = 800;
const LISTENERS: usize = 200;

fn main() {
    let parts: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    // `cargo test --benches` only wants to know whether it starts.
    if !is_installed() || parts.iter().any(|word| word == "--test") {
        return;
    }
    let is_wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    // Vacuuming would be counted for whoever is measured at that moment.
    let server = Server::start("autovacuum = off");
    println!("| what | tollgate | compared with | ratio | aim |");
    println!("|---|---|---|---|---|");
    if is_wanted("claims") {
        compare(&server, 1, "");
        compare(&server, 8, "");
    }
    if is_wanted("flushes") {
        // The server waits for a millisecond before each flush, as if its disk were slower.
        let slow = Server::start("autovacuum = off\ncommit_delay = 1000\ncommit_siblings = 0");
        compare(&slow, 1, ", flushes of 1 ms");
        compare(&slow, 8, ", flushes of 1 ms");
    }
    if is_wanted("among") {
        among_many(&server);
    }
    if is_wanted("listeners") {
        listen(&server);
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// What many operations cost, in microseconds for one of them.
#[derive(Clone, Copy)]
struct Cost {
    time: f64,
    /// Processor time, of the processes of the server and of all clients. It depends less on what else the machine does.
    server: f64,
    clients: f64,
}

/// What it costs if every client does its share, on a thread of its own.
fn timed<C: Send>(server: &Server, clients: &mut [C], work: impl Fn(usize, &mut C) + Sync) -> Cost {
    let (before, started) = (server_times(server), Instant::now());
    let used = thread::scope(|scope| {
        let share = |(number, client)| {
            let work = &work;
            scope.spawn(move || {
                let before = processor_time("thread-self");
                work(number, client);
                processor_time("thread-self").saturating_sub(before)
            })
        };
        let shares: Vec<_> = clients.iter_mut().enumerate().map(share).collect();
        shares.into_iter().map(|share| share.join().expect("no panic")).sum()
    });
    let (time, after) = (started.elapsed(), server_times(server));
    // A process that has ended did something else.
    let in_server = after.iter().filter_map(|(process, after)| Some(*after - *before.get(process)?)).sum();
    let each = |time: Duration| time.as_secs_f64() * 1e6 / OPERATIONS as f64;
    Cost { time: each(time), server: each(in_server), clients: each(used) }
}

/// How much processor time each process of a server has used so far.
fn server_times(server: &Server) -> BTreeMap<String, Duration> {
    let data = server.folder().join("data");
    let is_of_server =
        |entry: &fs::DirEntry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == data);
    let processes = fs::read_dir("/proc").expect("processes").flatten().filter(is_of_server);
    let names = processes.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.map(|name| (name.clone(), processor_time(&name))).collect()
}

/// How much processor time a process with one thread, or this thread, has used so far.
fn processor_time(process: &str) -> Duration {
    let counted = fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap_or_default();
    let nanoseconds = counted.split_whitespace().next().and_then(|number| number.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// A store that keeps the steps that it is to take, so that they can be taken alone.
struct Postponing(Arc<PostgresStore>, Mutex<Vec<Step>>);

impl Store for Postponing {
    fn apply(&self, step: &Step) -> Result<StepOutcome> {
        self.1.lock().expect("no panic").push(step.clone());
        Ok(StepOutcome::Conflict)
    }

    fn scan(&self, state: State, now: Timestamp) -> Result<Scan> {
        self.0.scan(state, now)
    }

    fn get(&self, task: &TaskName, state: Option<State>, now: Timestamp) -> Result<Option<Task>> {
        self.0.get(task, state, now)
    }

    fn read(&self, task: &Task, limit: u64) -> Result<Option<Vec<u8>>> {
        self.0.read(task, limit)
    }

    fn add(&self, id: &StepId, task: &TaskName, text: &[u8], now: Timestamp) -> Result<StepOutcome> {
        self.0.add(id, task, text, now)
    }

    fn record(&self, events: &[Entry]) -> Result<()> {
        self.0.record(events)
    }

    fn events(&self, after: &str, limit: usize) -> Result<EventPage> {
        self.0.events(after, limit)
    }
}

fn request() -> ClaimRequest {
    ClaimRequest { agent: "blue".parse().expect("a name"), kind: ClaimKind::Leased, renamed_in: false }
}

fn name(text: String) -> TaskName {
    text.parse().expect("a name")
}

/// Adds this number of tasks to a vault at once.
fn fill(server: &Server, schema: &str, tasks: usize) {
    let sql = format!(
        "insert into {schema}.tasks (name, state, text, urgency)
        select 't' || n || '.md', 'Needs_Action', convert_to('# Task' || chr(10) || repeat('some words ', 20), 'UTF8'), '21'
        from generate_series(0, {}) n; analyze; checkpoint",
        tasks - 1
    );
    server.sql().batch_execute(&sql).expect("filled");
}

/// For each store, the steps of its share of the claims of these tasks.
fn postponed(
    stores: &[Arc<PostgresStore>],
    share: usize,
    first: usize,
) -> Vec<(Arc<PostgresStore>, Vec<Step>)> {
    let kept = |(number, store): (usize, &Arc<PostgresStore>)| {
        let postponing = Arc::new(Postponing(Arc::clone(store), Mutex::default()));
        let vault = Vault::new(Arc::clone(&postponing) as Arc<dyn Store>, Terms::default());
        for n in number * share..(number + 1) * share {
            let task = name(format!("t{}", first + n));
            assert!(vault.claim(&task, &request(), Timestamp::now()).expect("no fault").is_err());
        }
        let kept = std::mem::take(&mut *postponing.1.lock().expect("no panic"));
        (Arc::clone(store), kept)
    };
    stores.iter().enumerate().map(kept).collect()
}

/// What the store talks to the server with, without the store: the same library, with a limit for each answer.
struct Bare {
    runtime: Runtime,
    client: Client,
    update: Statement,
    select: Statement,
    shaped: Statement,
}

impl Bare {
    fn connect(server: &Server, schema: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let options = format!("-c search_path={schema} -c statement_timeout=10000");
        let config: Config = server.address().parse().expect("an address");
        let (client, connection) =
            runtime.block_on(config.clone().options(options).connect(NoTls)).expect("connected");
        runtime.spawn(connection);
        let prepared = |sql| runtime.block_on(client.prepare(sql)).expect("sql");
        let update =
            prepared("update bare set version = version + 1, body = $3 where id = $1 and version = $2");
        let select = prepared("select version, body from bare where id = $1");
        let shaped = prepared(
            "update shaped set version = version + 1, body = $3, owner = 'blue', lease_until = now() + interval '1 minute'
            where id = $1 and version = $2",
        );
        Self { runtime, client, update, select, shaped }
    }

    fn wait<T>(&self, answer: impl Future<Output = Result<T, tokio_postgres::Error>>) -> T {
        let answered = async { timeout(Duration::from_secs(10), answer).await };
        self.runtime.block_on(answered).expect("an answer in time").expect("sql")
    }

    /// A compare-and-swap.
    fn swap(&self, statement: &Statement, task: usize, version: i64, body: &[u8]) {
        let done = self.wait(self.client.execute(statement, &[&format!("t{task}"), &version, &body]));
        assert_eq!(done, 1);
    }

    fn look(&self, task: usize) -> i64 {
        self.wait(self.client.query_one(&self.select, &[&format!("t{task}")])).get(0)
    }
}

/// How many bytes a claimed task has in the server.
fn size_of_claimed(server: &Server, schema: &str) -> usize {
    let store = server.store(schema);
    store.events("", 1).expect("the schema is there");
    fill(server, schema, 1);
    let vault = Vault::new(Arc::new(store), Terms::default());
    vault.claim(&name("t0".to_owned()), &request(), Timestamp::now()).expect("no fault").expect("claimed");
    let sql = format!("select octet_length(text) + octet_length(record::text) from {schema}.tasks");
    let size: i32 = server.sql().query_one(&sql, &[]).expect("sql").get(0);
    usize::try_from(size).expect("a size")
}

fn compare(server: &Server, clients: usize, disk: &str) {
    let schema = format!("compare_{clients}");
    let stores: Vec<_> = (0..clients).map(|_| Arc::new(server.store(&schema))).collect();
    stores[0].events("", 1).expect("the schema is there");
    let mut sql = server.sql();
    sql.batch_execute(&format!(
        "create table {schema}.bare (id text primary key, version bigint not null, body bytea not null);
        insert into {schema}.bare select 't' || n, 0, convert_to(repeat('some words ', 20), 'UTF8')
        from generate_series(0, {OPERATIONS}) n"
    ))
    .expect("created");
    // What any claim protocol needs at least: an owner, a lease, a version, and an index of what waits, or nobody could find the
    // next task among many.
    sql.batch_execute(&format!(
        "create table {schema}.shaped (id text primary key, version bigint not null, body bytea not null, owner text,
            lease_until timestamptz, urgency text not null default '21', added timestamptz not null default now());
        create index on {schema}.shaped (urgency, added, id) where owner is null"
    ))
    .expect("created");
    let mut bare: Vec<_> = (0..clients).map(|_| Bare::connect(server, &schema)).collect();
    let mut costs: [Vec<Cost>; 6] = Default::default();
    let body = vec![b'x'; size_of_claimed(server, &format!("size_{clients}"))];
    for round in 0..ROUNDS {
        let refill = format!(
            "truncate {schema}.tasks; truncate {schema}.shaped; insert into {schema}.shaped (id, version, body)
            select id, 0, body from {schema}.bare"
        );
        server.sql().batch_execute(&refill).expect("filled");
        fill(server, &schema, 3 * OPERATIONS);
        let share = OPERATIONS / clients;
        // Two swaps in each round before.
        let version = 2 * round as i64;
        let cas = timed(server, &mut bare, |number, bare| {
            (number * share..(number + 1) * share).for_each(|n| bare.swap(&bare.update, n, version, &body));
        });
        let shaped_cas = timed(server, &mut bare, |number, bare| {
            (number * share..(number + 1) * share).for_each(|n| bare.swap(&bare.shaped, n, 0, &body));
        });
        let look_cas = timed(server, &mut bare, |number, bare| {
            for n in number * share..(number + 1) * share {
                bare.swap(&bare.update, n, bare.look(n), &body);
            }
        });
        let take = |first: usize| {
            let mut steps = postponed(&stores, share, first);
            timed(server, &mut steps, |_, (store, steps)| {
                for step in steps {
                    assert!(matches!(store.apply(step).expect("no fault"), StepOutcome::Done(_)));
                }
            })
        };
        let step = take(0);
        let heard = {
            let (hear, hears) = mpsc::channel();
            let wake: Wake = Arc::new(move |_| hear.send(()).unwrap_or(()));
            let _watch = stores[0].watch(&State::ALL, wake).expect("no fault");
            hears.recv().expect("it listens");
            take(2 * OPERATIONS)
        };
        let mut vaults: Vec<_> = stores
            .iter()
            .map(|store| Vault::new(Arc::clone(store) as Arc<dyn Store>, Terms::default()))
            .collect();
        let claim = timed(server, &mut vaults, |number, vault| {
            for n in number * share..(number + 1) * share {
                let task = name(format!("t{}", OPERATIONS + n));
                vault.claim(&task, &request(), Timestamp::now()).expect("no fault").expect("claimed");
            }
        });
        // The first round connects and prepares.
        if round > 0 {
            for (kept, cost) in costs.iter_mut().zip([cas, shaped_cas, look_cas, step, heard, claim]) {
                kept.push(cost);
            }
        }
    }
    let [cas, shaped_cas, look_cas, step, heard, claim] = &costs;
    let row = |what: &str, ours: &[Cost], bare: &[Cost]| {
        let told = |costs: &[Cost]| {
            let middle = |figure: fn(&Cost) -> f64| median(costs.iter().map(figure).collect());
            format!(
                "{:.0} per second; {:.0} µs of processor time in the server, {:.0} µs in the clients",
                1e6 / middle(|cost| cost.time),
                middle(|cost| cost.server),
                middle(|cost| cost.clients)
            )
        };
        let ratio = median(ours.iter().zip(bare).map(|(ours, bare)| bare.time / ours.time).collect());
        println!(
            "| {what}, {clients} at a time{disk} | {} | {} | {ratio:.2} | 0.8 |",
            told(ours),
            told(bare)
        );
    };
    row("steps of a claim, against bare compare-and-swaps", step, cas);
    row("the same, against swaps of rows with an owner, a lease and a place in an index", step, shaped_cas);
    row("the same while somebody listens, against bare compare-and-swaps", heard, cas);
    row("whole claims, against a look and a compare-and-swap", claim, look_cas);
}

/// Milliseconds that some work takes.
fn millis(work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_secs_f64() * 1e3
}

/// Claims by name and from a queue, among few and among many tasks, by turns.
fn among_many(server: &Server) {
    let now = Timestamp::now();
    let schema = |tasks: usize| format!("among_{tasks}");
    let sizes = [100, 100_000];
    let (mut first, mut vaults) = (Vec::new(), Vec::new());
    for tasks in sizes {
        let store = Arc::new(server.store(&schema(tasks)));
        store.events("", 1).expect("the schema is there");
        fill(server, &schema(tasks), tasks);
        let vault = Vault::new(store, Terms::default());
        let mut queue = None;
        first.push(vec![millis(|| queue = Some(vault.queue(&request(), now).expect("no fault")))]);
        vaults.push((vault, queue.expect("made")));
    }
    let mut named = [Vec::new(), Vec::new()];
    let mut queued = named.clone();
    let mut begun = named.clone();
    for n in 0..25 {
        for (size, (vault, queue)) in vaults.iter_mut().enumerate() {
            let task = name(format!("t{}", sizes[size] - 1 - n));
            let claim = || drop(vault.claim(&task, &request(), now).expect("no fault").expect("claimed"));
            named[size].push(millis(claim));
            queued[size].push(millis(|| drop(vault.next(queue, &request(), now).expect("claimed"))));
            let new = Vault::new(Arc::new(server.store(&schema(sizes[size]))), Terms::default());
            let next = || drop(new.claim_next(&request(), now).expect("no fault").0.expect("claimed"));
            begun[size].push(millis(next));
        }
    }
    let told = |what: &str, [few, many]: [Vec<f64>; 2], aim: &str| {
        let ratio = median(many.iter().zip(&few).map(|(many, few)| many / few).collect());
        let (few, many) = (median(few), median(many));
        println!(
            "| {what} among 100,000 tasks, against 100 | {many:.2} ms | {few:.2} ms | {ratio:.2} | {aim} |"
        );
    };
    told("a claim by name", named, "1");
    told("the next claim of a queue", queued, "1");
    told("the next claim of a new process", begun, "1");
    told("the first look", first.try_into().expect("two"), "");
}

/// Many listeners, each with connections of its own, while tasks are claimed and released.
fn listen(server: &Server) {
    let tasks = 200;
    server.store("listen").events("", 1).expect("the schema is there");
    fill(server, "listen", tasks);
    let (ready, are_ready) = mpsc::channel();
    let seen = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..LISTENERS {
            let (ready, seen) = (ready.clone(), &seen);
            scope.spawn(move || {
                let store = server.store("listen");
                let (heard, hints) = mpsc::channel();
                let wake: Wake = Arc::new(move |_| heard.send(()).unwrap_or(()));
                let _watch = store.watch(&State::ALL, wake).expect("no fault");
                hints.recv().expect("it listens");
                ready.send(()).expect("counted");
                let (mut cursor, mut done) = (String::new(), BTreeSet::new());
                while done.len() < 2 * tasks {
                    hints.recv_timeout(Duration::from_secs(60)).expect("a hint");
                    hints.try_iter().for_each(drop);
                    let (page, next) = store.events(&cursor, usize::MAX).expect("no fault");
                    done.extend(page.iter().filter_map(|entry| entry.event.keys().step.map(str::to_owned)));
                    cursor = next;
                }
                seen.fetch_add(done.len(), Ordering::SeqCst);
            });
        }
        (0..LISTENERS).for_each(|_| are_ready.recv().expect("ready"));
        let vault = Vault::new(Arc::new(server.store("listen")), Terms::default());
        let started = Instant::now();
        for n in 0..tasks {
            let (task, now) = (name(format!("t{n}")), Timestamp::now());
            let claimed = vault.claim(&task, &request(), now).expect("no fault").expect("claimed");
            vault
                .release(&task, &claimed.claim.id, &Release::success(), now)
                .expect("no fault")
                .expect("released");
        }
        println!(
            "| {LISTENERS} listeners | {:.0} steps per second | | | |",
            2.0 * tasks as f64 / started.elapsed().as_secs_f64()
        );
    });
    println!("| events that they saw | {} | {} | | all |", seen.into_inner(), LISTENERS * 2 * tasks);
}
