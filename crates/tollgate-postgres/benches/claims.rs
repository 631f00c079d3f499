//! What a claim costs on PostgreSQL, compared in alternating rounds with the bare compare-and-swap of the same client on the
//! same server; a claim among many tasks; and many listeners.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::needless_range_loop,
    clippy::unwrap_used,
    reason = "a benchmark prints its figures and stops at the first surprise"
)]

#[path = "../tests/it/server.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tollgate_base::error::Result;
use tollgate_base::task::{State, TaskName};
use tollgate_postgres::PostgresStore;
use tollgate_vault::event::{Entry, EventPage};
use tollgate_vault::store::{Scan, Wake};
use tollgate_vault::{
    ClaimKind, ClaimRequest, Release, Step, StepId, StepOutcome, Store, Task, Terms, Vault,
};

use server::Server;

const ROUNDS: usize = 7;
const OPERATIONS: usize = 800;
const LISTENERS: usize = 200;

fn main() {
    let parts: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    // `cargo test --benches` only wants to know whether it starts.
    if !server::is_installed() || parts.iter().any(|word| word == "--test") {
        return;
    }
    let is_wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    // Vacuuming would be counted for whoever is measured at that moment.
    let server = Server::start("autovacuum = off");
    println!("| what | tollgate | compared with | ratio | aim |");
    println!("|---|---|---|---|---|");
    for clients in [1, 8].into_iter().filter(|_| is_wanted("claims")) {
        compare(&server, clients);
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
    let data = server.folder.path().join("data");
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

fn compare(server: &Server, clients: usize) {
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
    let (update, select) = (
        format!("update {schema}.bare set version = version + 1, body = $3 where id = $1 and version = $2"),
        format!("select version, body from {schema}.bare where id = $1"),
    );
    let mut bare: Vec<_> = (0..clients)
        .map(|_| {
            let mut sql = server.sql();
            let (update, select) = (sql.prepare(&update).expect("sql"), sql.prepare(&select).expect("sql"));
            (sql, update, select, vec![0_i64; OPERATIONS])
        })
        .collect();
    let mut costs: [Vec<Cost>; 4] = Default::default();
    let body = vec![b'x'; 400];
    for round in 0..ROUNDS {
        server.sql().batch_execute(&format!("truncate {schema}.tasks")).expect("empty");
        fill(server, &schema, 2 * OPERATIONS);
        let share = OPERATIONS / clients;
        let cas = timed(server, &mut bare, |number, (sql, update, _, versions)| {
            for n in number * share..(number + 1) * share {
                let done = sql.execute(update, &[&format!("t{n}"), &versions[n], &body]).expect("sql");
                assert_eq!(done, 1);
                versions[n] += 1;
            }
        });
        let look_cas = timed(server, &mut bare, |number, (sql, update, select, versions)| {
            for n in number * share..(number + 1) * share {
                let version: i64 = sql.query_one(select, &[&format!("t{n}")]).expect("sql").get(0);
                assert_eq!(sql.execute(update, &[&format!("t{n}"), &version, &body]).expect("sql"), 1);
                versions[n] += 1;
            }
        });
        let mut steps: Vec<(Arc<PostgresStore>, Vec<Step>)> = Vec::new();
        for (number, store) in stores.iter().enumerate() {
            let postponing = Arc::new(Postponing(Arc::clone(store), Mutex::default()));
            let vault = Vault::new(Arc::clone(&postponing) as Arc<dyn Store>, Terms::default());
            for n in number * share..(number + 1) * share {
                let denied =
                    vault.claim(&name(format!("t{n}")), &request(), Timestamp::now()).expect("no fault");
                assert!(denied.is_err());
            }
            let kept = std::mem::take(&mut *postponing.1.lock().expect("no panic"));
            steps.push((Arc::clone(store), kept));
        }
        let step = timed(server, &mut steps, |_, (store, steps)| {
            for step in steps {
                assert!(matches!(store.apply(step).expect("no fault"), StepOutcome::Done(_)));
            }
        });
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
            for (kept, cost) in costs.iter_mut().zip([cas, look_cas, step, claim]) {
                kept.push(cost);
            }
        }
    }
    let [cas, look_cas, step, claim] = &costs;
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
        println!("| {what}, {clients} at a time | {} | {} | {ratio:.2} | 0.8 |", told(ours), told(bare));
    };
    row("steps of a claim, against bare compare-and-swaps", step, cas);
    row("whole claims, against a look and a compare-and-swap", claim, look_cas);
}

/// Claims by name and from a queue, among few and among many tasks.
fn among_many(server: &Server) {
    let mut figures = Vec::new();
    for tasks in [100, 100_000] {
        let schema = format!("among_{tasks}");
        let store = Arc::new(server.store(&schema));
        store.events("", 1).expect("the schema is there");
        fill(server, &schema, tasks);
        let vault = Vault::new(store, Terms::default());
        let started = Instant::now();
        let mut queue = vault.queue(&request(), Timestamp::now()).expect("no fault");
        let first = started.elapsed();
        let time = |work: &mut dyn FnMut()| {
            let started = Instant::now();
            work();
            started.elapsed().as_secs_f64() * 1e3
        };
        let now = Timestamp::now();
        // One after the other: a process that has just made a long queue has to wait for its turn on a busy machine.
        let claim = |n: usize| vault.claim(&name(format!("t{}", tasks - 1 - n)), &request(), now);
        let named: Vec<f64> =
            (0..20).map(|n| time(&mut || drop(claim(n).expect("no fault").expect("claimed")))).collect();
        let queued: Vec<f64> = (0..20)
            .map(|_| time(&mut || drop(vault.next(&mut queue, &request(), now).expect("claimed"))))
            .collect();
        let next = |_| {
            let vault = Vault::new(Arc::new(server.store(&schema)), Terms::default());
            time(&mut || drop(vault.claim_next(&request(), now).expect("no fault").0.expect("claimed")))
        };
        let begun: Vec<f64> = (0..20).map(next).collect();
        figures.push([named, queued, begun, vec![first.as_secs_f64() * 1e3]].map(median));
    }
    for (n, what) in
        ["by name", "the next of a queue", "the next, by a new process", "the first look"].iter().enumerate()
    {
        let (few, many) = (figures[0][n], figures[1][n]);
        println!(
            "| a claim among 100,000 tasks, against 100: {what} | {many:.2} ms | {few:.2} ms | {:.2} | 1 |",
            many / few
        );
    }
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
