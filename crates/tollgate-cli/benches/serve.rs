//! The cost of the server with many tasks and a long ledger, compared with an empty workspace in the same run.
//!
//! `cargo bench -p tollgate-cli --bench serve`; `TOLLGATE_BENCH=small` for a quick look. Needs `wrk` for the load.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark may")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use tollgate::ledger::Entry;
use tollgate::settings::Durability;
use tollgate::workspace::{Options, Workspace};

const TOLLGATE: &str = env!("CARGO_BIN_EXE_tollgate");
const PAGES: [&str; 3] = ["/", "/health", "/metrics"];

fn main() {
    let small = std::env::var_os("TOLLGATE_BENCH").is_some();
    let scale = |number: usize| if small { number / 20 } else { number };
    let keep = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let empty = workspace(&keep.path().join("empty"), 0, 0);
    let (tasks, lines) = (scale(10_000), scale(1_000_000));
    let full = workspace(&keep.path().join("full"), tasks, lines);
    println!("| what | empty | {tasks} tasks and {lines} ledger lines | ratio | aim |");
    println!("|---|---|---|---|---|");

    let began = Instant::now();
    let (empty, full) = (Server::new(&empty), Server::new(&full));
    println!("| a page requested right after the start | | {} | | |", ms(full.first(began)));
    full.until_read();
    println!(
        "| from the start until all lines are read and the chain is checked | | {} | | |",
        ms(began.elapsed())
    );
    empty.until_read();
    for page in PAGES {
        let (mut of_empty, mut of_full) = (Vec::new(), Vec::new());
        let (mut to_empty, mut to_full) = (empty.connects(), full.connects());
        for _ in 0..300 {
            of_empty.push(empty.ask(&mut to_empty, page));
            of_full.push(full.ask(&mut to_full, page));
        }
        let (a, b) = (median(of_empty), median(of_full));
        let ratio = b.as_secs_f64() / a.as_secs_f64();
        let aim = if page == "/" { "3" } else { "" };
        println!("| `{page}` | {} | {} | {ratio:.2} | {aim} |", ms(a), ms(b));
    }
    let (before, ticks) = (full.memory(), full.ticks());
    std::thread::sleep(Duration::from_secs(5));
    println!("| five idle seconds | | {} ms of processor time | | |", 10 * (full.ticks() - ticks));
    println!("| memory before the load | | {before} KiB | | |");
    let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| agents(&full.root, &over, &done));
        for (page, seconds) in [("/health", 10), ("/", 10), ("/metrics", 5), ("/health", 10), ("/", 10)] {
            load(&full, page, if small { 2 } else { seconds });
            println!("| memory after that | | {} KiB | | |", full.memory());
        }
        over.store(true, Ordering::Relaxed);
    });
    println!("| tasks claimed and released in the meantime | | {} | | |", done.load(Ordering::Relaxed));
}

fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// A workspace in which half of the tasks wait, the others are done, and some wait for approval.
fn workspace(root: &Path, tasks: usize, lines: usize) -> PathBuf {
    let vault = root.join("vault");
    for state in ["Needs_Action", "In_Progress", "Pending_Approval", "Approved", "Done", "Rejected"] {
        fs::create_dir_all(vault.join(state)).unwrap();
    }
    fs::create_dir_all(root.join(".tollgate")).unwrap();
    fs::write(root.join(".tollgate/config.toml"), "[vault]\ndurability = \"fast\"\n").unwrap();
    let old = std::time::SystemTime::now() - Duration::from_secs(60);
    for number in 0..tasks {
        let state = match number % 100 {
            0 => "Pending_Approval",
            1..50 => "Done",
            _ => "Needs_Action",
        };
        let mut file = File::create(vault.join(format!("{state}/task-{number:06}.md"))).unwrap();
        write!(file, "---\naction: triage\n---\n# Task {number}\n\nSome text about it.\n").unwrap();
        file.set_modified(old).unwrap();
    }
    let root = root.canonicalize().unwrap();
    let ledger = Workspace::open(&root, Options::default()).unwrap().ledger().clone();
    for batch in 0..lines.div_ceil(10_000) {
        let entries: Vec<Entry> = (0..10_000.min(lines - batch * 10_000)).map(entry).collect();
        ledger.append(&entries, Durability::Fast).unwrap();
    }
    root
}

fn entry(number: usize) -> Entry {
    let hash = format!("sha256:{number:064x}");
    let (action_type, payload, result) = match number % 4 {
        0 => (
            "MUTATION_CONFLICT",
            json!({"tool_name": "write_file", "target_file": "src/main.rs", "baseline_hash": hash, "current_hash": hash}),
            json!({"status": "DENIED", "error_type": "STALE_FILE"}),
        ),
        1 => (
            "CLAIM",
            json!({"task": format!("task-{number:06}.md"), "claim_id": "c-0123456789abcdef", "epoch": number, "mode": "execute",
                "from": "Needs_Action", "attempt": 1, "waited_ms": number, "step": "s-0123456789abcdef"}),
            json!({"status": "CLAIMED"}),
        ),
        _ => (
            "MUTATION",
            json!({"id": "0123456789abcdef012345", "tool_name": "write_file", "target_file": "src/main.rs",
                "hash_before": hash, "hash_after": hash, "guarantee": "full", "took_us": number}),
            json!({"status": "APPLIED"}),
        ),
    };
    let agent = ["blue", "green", "red", "violet"][number % 4];
    let (time, turn) = (Timestamp::now(), Some("t-0123456789abcdef".parse().unwrap()));
    let event = json!({"action_type": action_type, "payload": payload, "result": result});
    let event = serde_json::from_value(event).unwrap();
    Entry { time, agent: Some(agent.parse().unwrap()), turn, event }
}

struct Server {
    child: Child,
    address: String,
    /// The header with which the person asks for pages.
    proof: String,
    root: PathBuf,
}

impl Server {
    fn new(root: &Path) -> Self {
        let mut command = Command::new(TOLLGATE);
        command.args(["serve", "--listen", "127.0.0.1:0", "--json", "-C"]).arg(root).stdout(Stdio::piped());
        let mut child = command.env_remove("TOLLGATE_AGENT").spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        let (address, secret) = said["url"].as_str().unwrap().split_once("/?token=").unwrap();
        let address = address.replace("http://", "");
        Self { child, address, proof: format!("Authorization: Bearer {secret}"), root: root.to_owned() }
    }

    fn connects(&self) -> BufReader<TcpStream> {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        BufReader::new(stream)
    }

    fn first(&self, began: Instant) -> Duration {
        self.ask(&mut self.connects(), "/");
        began.elapsed()
    }

    fn until_read(&self) {
        let mut connection = self.connects();
        while !self.body(&mut connection, "/health").contains("\"state\":\"whole\"") {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn ask(&self, connection: &mut BufReader<TcpStream>, page: &str) -> Duration {
        let began = Instant::now();
        self.body(connection, page);
        began.elapsed()
    }

    fn body(&self, connection: &mut BufReader<TcpStream>, page: &str) -> String {
        let request = format!("GET {page} HTTP/1.1\r\nHost: localhost\r\n{}\r\n\r\n", self.proof);
        connection.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut line, mut length, mut in_pieces) = (String::new(), 0, false);
        loop {
            line.clear();
            connection.read_line(&mut line).unwrap();
            let header = line.trim_end().to_ascii_lowercase();
            if let Some(value) = header.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            in_pieces |= header == "transfer-encoding: chunked";
            if header.is_empty() {
                break;
            }
        }
        assert!(!in_pieces, "{page}");
        let mut bytes = vec![0; length];
        connection.read_exact(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// In KiB.
    fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Processor time, in hundredths of a second.
    fn ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn load(server: &Server, page: &str, seconds: u64) {
    let url = format!("http://{}{page}", server.address);
    let mut wrk = Command::new("wrk");
    wrk.args(["-t1", "-c16", "--latency", "-H", &server.proof, &format!("-d{seconds}s"), &url]);
    let Ok(output) = wrk.output() else {
        println!("`wrk` is not installed: no load on `{page}`");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let after = |word: &str| {
        let line = text.lines().find(|line| line.trim().starts_with(word)).unwrap_or_default();
        line.trim().trim_start_matches(word).trim().to_owned()
    };
    let errors = text.lines().find(|line| line.contains("Non-2xx") || line.contains("Socket errors"));
    println!(
        "| load on `{page}` while two agents work | | {} requests per second, median {}, 99 of 100 within {}{} | | |",
        after("Requests/sec:"),
        after("50%"),
        after("99%"),
        errors.map_or_else(String::new, |errors| format!(", {}", errors.trim()))
    );
}

/// Two agents that claim and release with the command, like scripts.
fn agents(root: &Path, over: &AtomicBool, done: &AtomicU64) {
    std::thread::scope(|scope| {
        for agent in ["blue", "green"] {
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let run = |words: &[&str]| {
                        let mut command = Command::new(TOLLGATE);
                        command.arg("-C").arg(root).args(words).args(["--agent", agent, "--json"]);
                        let output = command.stderr(Stdio::null()).output().unwrap();
                        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default()
                    };
                    let claimed = run(&["task", "claim", "--next"]);
                    let (Some(task), Some(id)) = (claimed["task"].as_str(), claimed["claim_id"].as_str())
                    else {
                        return;
                    };
                    run(&["task", "release", task, "--claim-id", id]);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
}
