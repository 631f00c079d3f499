//! What tasks on etcd cost, compared with etcd itself, on three nodes on this machine. Every ratio is of one run, by turns, because
//! machines differ. Fails if a ratio is worse than promised in `docs/reference/engines.md`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark may")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};
use tollgate_etcd::{EtcdOptions, EtcdStore, EtcdUrl};
use tollgate_testing::etcd::{self, Cluster};
use tollgate_vault::store::{Hint, Watch};
use tollgate_vault::{ClaimKind, ClaimQueue, ClaimRequest, State, Terms, Vault};

/// How many claims are measured at once.
const CLAIMS: usize = 400;

fn vault(url: &str, machine: &str) -> Vault {
    let options = EtcdOptions {
        url: EtcdUrl::parse(url).unwrap(),
        login: None,
        base: ".".into(),
        machine: machine.to_owned(),
        lease: Duration::from_secs(600),
        deadline: Duration::from_secs(10),
        journal: None,
    };
    Vault::new(Arc::new(EtcdStore::open(options).unwrap()), Terms::default())
}

/// The same address with another node first: machines begin with different nodes.
fn spread(url: &str, number: usize) -> String {
    let (nodes, prefix) = url.strip_prefix("etcd://").unwrap().rsplit_once('/').unwrap();
    let mut nodes: Vec<&str> = nodes.split(',').collect();
    let first = number % nodes.len();
    nodes.rotate_left(first);
    format!("etcd://{}/{prefix}", nodes.join(","))
}

/// What the store talks to etcd with, without the store: the same library, limits and header.
struct Bare {
    agent: ureq::Agent,
    port: u16,
}

impl Bare {
    fn new(port: u16) -> Self {
        Self { agent: ureq::Agent::config_builder().build().new_agent(), port }
    }

    fn txn(&self, body: &Value) -> Value {
        let url = format!("http://127.0.0.1:{}/v3/kv/txn", self.port);
        let limit = Some(Duration::from_secs(10));
        let request = self.agent.post(url).header("Grpc-Metadata-hasleader", "true").config();
        let request = request.timeout_global(limit).timeout_send_request(limit).timeout_send_body(limit);
        let request = request.timeout_recv_response(limit).timeout_recv_body(limit).build();
        let text = request.send(body.to_string()).unwrap().body_mut().read_to_string().unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// If the key is as it was at this revision, it gets this value. The new revision.
    fn compare_and_swap(&self, key: &str, revision: &str, value: &str) -> String {
        let (key, value) = (STANDARD.encode(key), STANDARD.encode(value));
        let answer = self.txn(&json!({
            "compare": [{ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision }],
            "success": [{ "request_put": { "key": key, "value": value } }],
        }));
        assert_eq!(answer["succeeded"], true, "{answer}");
        answer["header"]["revision"].as_str().unwrap().to_owned()
    }

    /// Puts many tasks at once.
    fn fill(&self, prefix: &str, tasks: usize) {
        let (format, number) = (STANDARD.encode(format!("{prefix}/format")), STANDARD.encode("3"));
        self.txn(&json!({ "success": [{ "request_put": { "key": format, "value": number } }] }));
        let numbers: Vec<usize> = (0..tasks).collect();
        for some in numbers.chunks(100) {
            let put = |n: &usize| {
                let head = "Needs_Action\n{\"since\":\"2026-11-16T00:00:00Z\"}";
                let value = format!("{head}\n# Task {n}\n\nSome text.\n");
                let key = format!("{prefix}/task/open/t{n}.md/s-{n:016x}");
                json!({ "request_put": { "key": STANDARD.encode(key), "value": STANDARD.encode(value) } })
            };
            let success: Vec<Value> = some.iter().map(put).collect();
            self.txn(&json!({ "success": success }));
        }
    }
}

/// Puts many tasks into a vault.
fn fill(cluster: &Cluster, url: &str, tasks: usize) {
    Bare::new(cluster.ports()[0]).fill(url.rsplit_once('/').unwrap().1, tasks);
}

fn request(n: usize) -> ClaimRequest {
    ClaimRequest { agent: format!("a{n}").parse().unwrap(), kind: ClaimKind::Held, renamed_in: false }
}

/// What many operations cost.
#[derive(Clone, Copy)]
struct Cost {
    per_second: f64,
    /// Processor time of one operation, in microseconds: of all nodes, and of all clients. It hardly depends on what else the
    /// machine does.
    nodes: f64,
    clients: f64,
}

/// What the work costs that does this many operations.
fn cost(cluster: &Cluster, operations: usize, work: impl FnOnce()) -> Cost {
    let used = || (cluster.processor_time(), etcd::processor_time("self"));
    let (before, began) = (used(), Instant::now());
    work();
    let (after, took) = (used(), began.elapsed());
    let each = |before: Duration, after: Duration| (after - before).as_secs_f64() * 1e6 / operations as f64;
    Cost {
        per_second: operations as f64 / took.as_secs_f64(),
        nodes: each(before.0, after.0),
        clients: each(before.1, after.1),
    }
}

/// Claims by this many workers, each with its own process's view, of tasks that are all different.
fn claims(cluster: &Cluster, workers: usize) -> Cost {
    let each = CLAIMS / workers;
    let url = cluster.url();
    fill(cluster, &url, CLAIMS);
    let now = Timestamp::now();
    let mut crew: Vec<(Vault, ClaimQueue)> = (0..workers)
        .map(|n| {
            let vault = vault(&spread(&url, n), &format!("m{n}"));
            // Connects, makes the view and the lease.
            vault.store().scan(State::NeedsAction, now).unwrap();
            drop(vault.store().hold(&tollgate_vault::ClaimId::new().unwrap()).unwrap());
            let mut queue = ClaimQueue::default();
            for task in (0..each).map(|task| format!("t{}", task * workers + n)) {
                vault.push(&mut queue, &task.parse().unwrap(), &request(n), now).unwrap();
            }
            (vault, queue)
        })
        .collect();
    cost(cluster, CLAIMS, || {
        thread::scope(|scope| {
            for (n, (vault, queue)) in crew.iter_mut().enumerate() {
                scope.spawn(move || {
                    for _ in 0..each {
                        // Its lock lives until the end.
                        std::mem::forget(vault.next(queue, &request(n), now).expect("all of them"));
                    }
                });
            }
        });
    })
}

/// How many bytes a claimed task has in the engine.
fn size_of_claimed(cluster: &Cluster) -> usize {
    let url = cluster.url();
    fill(cluster, &url, 1);
    let vault = vault(&url, "one");
    std::mem::forget(vault.claim_next(&request(0), Timestamp::now()).unwrap().0.expect("there is one"));
    let key = format!("{}/task/open/t0.md/s-{:016x}", url.rsplit_once('/').unwrap().1, 0);
    let get = json!({ "success": [{ "request_range": { "key": STANDARD.encode(key) } }] });
    let found = Bare::new(cluster.ports()[0]).txn(&get);
    let value = found["responses"][0]["response_range"]["kvs"][0]["value"].as_str().expect("it is there");
    STANDARD.decode(value).unwrap().len()
}

/// Compare-and-swaps of values of this size by as many threads, with as many machines that watch what is swapped.
fn swaps(cluster: &Cluster, workers: usize, size: usize, watched: bool) -> Cost {
    let each = CLAIMS / workers;
    let ports = cluster.ports();
    let url = cluster.url();
    let watching: Vec<Vault> = (0..workers).map(|n| vault(&spread(&url, n), &format!("m{n}"))).collect();
    if watched {
        watching
            .iter()
            .for_each(|vault| drop(vault.store().scan(State::NeedsAction, Timestamp::now()).unwrap()));
    }
    let prefix = url.rsplit_once('/').unwrap().1;
    let work = || {
        thread::scope(|scope| {
            for n in 0..workers {
                // The node that machine `n` begins with, too.
                let bare = Bare::new(ports[(std::process::id() as usize + n) % ports.len()]);
                scope.spawn(move || {
                    let mut revision = "0".to_owned();
                    let key = format!("{prefix}/task/bare-{n}");
                    for _ in 0..each {
                        revision = bare.compare_and_swap(&key, &revision, &"x".repeat(size));
                    }
                });
            }
        });
    };
    cost(cluster, CLAIMS, work)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Milliseconds for one claim among this many tasks, with a view that is there, and for the first look of that view.
fn claim_among(cluster: &Cluster, tasks: usize) -> [f64; 2] {
    let url = cluster.url();
    fill(cluster, &url, tasks);
    let timed = |work: &mut dyn FnMut()| {
        let began = Instant::now();
        work();
        began.elapsed().as_secs_f64() * 1e3
    };
    let now = Timestamp::now();
    let vault = vault(&url, "one");
    let first = timed(&mut || drop(vault.store().scan(State::NeedsAction, now).unwrap()));
    let mut queue = vault.queue(&request(0), now).unwrap();
    let claim = |_| {
        timed(&mut || std::mem::forget(vault.next(&mut queue, &request(0), now).expect("there are more")))
    };
    let viewed: Vec<f64> = (0..50).map(claim).collect();
    [median(viewed), first]
}

/// Two hundred machines watch; all of them must hear of every task.
fn watchers(cluster: &Cluster, watchers: usize, tasks: usize) -> (f64, Duration) {
    let url = cluster.url();
    let heard: Arc<Vec<AtomicUsize>> = Arc::new((0..watchers).map(|_| AtomicUsize::new(0)).collect());
    let watches: Vec<(Vault, Watch)> = (0..watchers)
        .map(|n| {
            let vault = vault(&url, &format!("m{n}"));
            let heard = Arc::clone(&heard);
            let wake = move |hint: Hint| {
                if matches!(hint, Hint::Task(..)) {
                    heard[n].fetch_add(1, Ordering::SeqCst);
                }
            };
            let watch = vault.store().watch(&[State::NeedsAction], Arc::new(wake)).unwrap().unwrap();
            (vault, watch)
        })
        .collect();
    let writer = vault(&url, "writer");
    let began = Instant::now();
    for n in 0..tasks {
        writer.add(&format!("t{n}").parse().unwrap(), b"text", Timestamp::now()).unwrap();
    }
    let rate = tasks as f64 / began.elapsed().as_secs_f64();
    let written = Instant::now();
    while !heard.iter().all(|heard| heard.load(Ordering::SeqCst) >= tasks) {
        let least = heard.iter().map(|heard| heard.load(Ordering::SeqCst)).min();
        assert!(written.elapsed() < Duration::from_secs(60), "one has heard only {least:?} of {tasks}");
        thread::sleep(Duration::from_millis(1));
    }
    drop(watches);
    (rate, written.elapsed())
}

/// How long nobody can write after the leader was killed: by bare compare-and-swaps, and by adding tasks.
fn gaps(cluster: &mut Cluster) -> (Duration, Duration) {
    let url = cluster.url();
    let ports = cluster.ports();
    let vault = vault(&url, "one");
    vault.add(&"warm".parse().unwrap(), b"text", Timestamp::now()).unwrap();
    let leader = cluster.leader();
    let others: Vec<u16> = ports.iter().copied().filter(|port| *port != ports[leader]).collect();
    let died = Instant::now();
    cluster.kill(leader);
    let (bare, ours) = thread::scope(|scope| {
        let bare = scope.spawn(move || {
            let body = json!({ "key": "YQ==", "value": "YQ==" });
            while !others.iter().any(|port| etcd::post(*port, "/v3/kv/put", &body).is_some()) {}
            died.elapsed()
        });
        let ours = scope.spawn(move || {
            let name = "after".parse().unwrap();
            while vault.add(&name, b"text", Timestamp::now()).is_err() {}
            died.elapsed()
        });
        (bare.join().unwrap(), ours.join().unwrap())
    });
    cluster.restart(leader);
    cluster.wait_until_ready();
    (bare, ours)
}

/// Claims by this many machines, against swaps that as many machines watch, and against swaps that nobody watches.
fn compare(cluster: &Cluster, workers: usize) {
    let (mut ours, mut watched, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    let size = size_of_claimed(cluster);
    for _ in 0..15 {
        watched.push(swaps(cluster, workers, size, true));
        ours.push(claims(cluster, workers));
        alone.push(swaps(cluster, workers, size, false));
    }
    let told = |what: &str, bare: &[Cost], aim: &str| {
        let middle = |figure: fn(&Cost) -> f64| median(bare.iter().map(figure).collect());
        let pairs = ours.iter().zip(bare);
        let ratio = median(pairs.map(|(ours, bare)| ours.per_second / bare.per_second).collect());
        println!(
            "| {what} | {:.0} per second; {:.0} µs of processor time in the nodes, {:.0} µs in the clients | {ratio:.2} | {aim} |",
            middle(|cost| cost.per_second),
            middle(|cost| cost.nodes),
            middle(|cost| cost.clients),
        );
        ratio
    };
    told(&format!("claims, {workers} at a time"), &ours, "");
    let ratio = told(&format!("bare compare-and-swaps of {size} bytes, watched by as many"), &watched, "0.8");
    told("the same, watched by nobody", &alone, "");
    assert!(ratio >= 0.6, "claims cost too much: {ratio:.2}");
}

fn main() {
    let parts: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    // `cargo test --benches` only wants to know whether it starts.
    if parts.iter().any(|word| word == "--test") {
        return;
    }
    let is_wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    let mut cluster = Cluster::durable();
    println!("| what | measured | claims, against it | aim |");
    println!("|---|---|---|---|");
    if is_wanted("claims") {
        compare(&cluster, 1);
        compare(&cluster, 4);
    }
    if is_wanted("among") {
        let [few, _] = claim_among(&cluster, 100);
        let [many, first] = claim_among(&cluster, 100_000);
        println!(
            "| a claim with a view among 100,000 tasks | {many:.2} ms; among 100 tasks {few:.2} ms | | the same |"
        );
        println!("| the first look at 100,000 tasks | {first:.0} ms | | |");
        assert!(many < 2.0 * few + 1.0, "a claim among many tasks costs more: {many:.2} ms, not {few:.2} ms");
    }
    if is_wanted("watchers") {
        let (rate, behind) = watchers(&cluster, 200, 200);
        println!(
            "| 200 machines that watch, 200 tasks, added at {rate:.0} per second | all heard of all, {behind:.2?} after the last | | all |"
        );
    }
    if is_wanted("leader") {
        let mut more = Vec::new();
        for _ in 0..3 {
            let (bare, ours) = gaps(&mut cluster);
            println!(
                "| the leader is killed: until etcd writes again, and tollgate | {bare:.2?}, {ours:.2?} | | 1 s longer |"
            );
            more.push(ours.as_secs_f64() - bare.as_secs_f64());
        }
        assert!(median(more.clone()) <= 1.0, "tollgate needs too long after an election: {more:?} s");
    }
}
