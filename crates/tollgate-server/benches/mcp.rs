//! Compares this server with the reference server in one run, on the same disk: reads, writes, memory, start-up.
//!
//! Run it with `cargo bench -p tollgate-server`. The reference server writes without checks, flushes or a ledger. Ours is
//! measured with its default (durable) and with `durability = "fast"`. Each round measures all three, in rotating order, and
//! the ratio is computed within the round, so that a busy machine affects both sides alike. The table shows the medians,
//! and for each ratio also the minimum and the maximum.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for the terminal")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate::gate::Gate;
use tollgate::settings::Settings;
use tollgate::workspace::{self, Workspace};
use tollgate_server::mcp::{self, ServerOptions, serve_stdio};

const ROUNDS: usize = 9;
const KINDS: [Kind; 3] = [Kind::Reference, Kind::Durable, Kind::Fast];
const FILES: usize = 32;
/// The number of concurrent requests, as from a client with several agents.
const ABREAST: usize = 8;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Reference,
    Durable,
    Fast,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("serve") {
        let (folder, fast) = (arguments.next().unwrap(), arguments.next().as_deref() == Some("fast"));
        let text = "[guard]\ndurability = \"fast\"\n";
        let settings = fast.then(|| Settings::parse(text, "config.toml".as_ref()).unwrap());
        let options = workspace::Options { settings, ..Default::default() };
        let gate = Gate::new(Workspace::open(folder, options).unwrap());
        return serve_stdio(&mcp::Server::new(gate, ServerOptions::new("bench".parse().unwrap()))).unwrap();
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-mcp-peers");
    let peers = target.join("mcp-peers");
    if !Command::new(&script).arg(&peers).status().is_ok_and(|status| status.success()) {
        println!(
            "{} cannot install the reference server, so there is nothing to compare with",
            script.display()
        );
        return;
    }
    let reference = peers.join("node_modules/@modelcontextprotocol/server-filesystem/dist/index.js");
    let bench = Bench { reference, folder: tempfile::tempdir_in(target).unwrap() };
    println!("| what | reference | durable | `fast` | durable, ratio | `fast`, ratio | aim |");
    println!("|---|---|---|---|---|---|---|");
    bench.rates(
        "reads of 4 KiB, one by one, per second",
        "3",
        1,
        300,
        &|_, file| json!({"name": "read_text_file", "arguments": {"path": file}}),
    );
    bench.rates(
        "reads of 4 KiB, 8 at once, per second",
        "3",
        ABREAST,
        600,
        &|_, file| json!({"name": "read_text_file", "arguments": {"path": file}}),
    );
    let write = |round: usize, file: &str| {
        let content = format!("{round}{}", "x".repeat(4096));
        json!({"name": "write_file", "arguments": {"path": file, "content": content}})
    };
    bench.rates("writes of 4 KiB, one by one, per second", "1; 3", 1, 150, &write);
    bench.rates("writes of 4 KiB, 8 at once, per second", "1; 3", ABREAST, 300, &write);
    bench.costs();
}

struct Bench {
    reference: PathBuf,
    folder: tempfile::TempDir,
}

impl Bench {
    fn start(&self, kind: Kind) -> Server {
        let name = match kind {
            Kind::Reference => "reference",
            Kind::Durable => "durable",
            Kind::Fast => "fast",
        };
        let root = self.folder.path().join(name);
        if !root.exists() {
            fs::create_dir(&root).unwrap();
            for number in 0..FILES {
                fs::write(root.join(format!("f{number}")), "x".repeat(4096)).unwrap();
            }
        }
        let mut command = match kind {
            Kind::Reference => Command::new("node"),
            _ => Command::new(std::env::current_exe().unwrap()),
        };
        match kind {
            Kind::Reference => command.arg(&self.reference).arg(&root),
            _ => command.arg("serve").arg(&root).arg(name),
        };
        let begun = Instant::now();
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let input = BufReader::new(child.stdout.take().unwrap());
        let output = child.stdin.take();
        let mut server = Server { child, input, output, next: 0, started: Duration::ZERO };
        server.send(
            "initialize",
            &json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}),
        );
        server.receive();
        server.started = begun.elapsed();
        server.line(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        server
    }

    fn rates(
        &self,
        title: &str,
        aim: &str,
        abreast: usize,
        calls: usize,
        call: &dyn Fn(usize, &str) -> Value,
    ) {
        let mut servers = KINDS.map(|kind| self.start(kind));
        let mut rounds = Vec::new();
        for round in 0..=ROUNDS {
            let mut rates = [0.0; KINDS.len()];
            for turn in 0..KINDS.len() {
                let at = (round + turn) % KINDS.len();
                let server = &mut servers[at];
                let begun = Instant::now();
                for number in 0..calls {
                    if number >= abreast {
                        server.receive();
                    }
                    server.send("tools/call", &call(round, &format!("f{}", number % FILES)));
                }
                for _ in 0..abreast {
                    server.receive();
                }
                rates[at] = calls as f64 / begun.elapsed().as_secs_f64();
            }
            // The first round warms up.
            if round > 0 {
                rounds.push(rates);
            }
        }
        row(title, &rounds, aim);
    }

    fn costs(&self) {
        let (mut starts, mut sizes) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let measured = KINDS.map(|kind| {
                let mut server = self.start(kind);
                server.send("tools/list", &json!({}));
                server.receive();
                (server.started.as_secs_f64() * 1000.0, server.resident() / 1024.0)
            });
            starts.push(measured.map(|(start, _)| start));
            sizes.push(measured.map(|(_, size)| size));
        }
        row("start-up to the first answer, ms", &starts, "0.1");
        row("memory at rest, MiB", &sizes, "0.1");
    }
}

fn row(title: &str, rounds: &[[f64; KINDS.len()]], aim: &str) {
    let column = |at: usize| median(rounds.iter().map(|round| round[at]).collect());
    let ratio = |at: usize| {
        let mut ratios: Vec<f64> = rounds.iter().map(|round| round[at] / round[0]).collect();
        ratios.sort_by(f64::total_cmp);
        let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
        format!("{:.2} ({least:.2} to {most:.2})", median(ratios))
    };
    let [reference, durable, fast] = [0, 1, 2].map(column);
    println!("| {title} | {reference:.1} | {durable:.1} | {fast:.1} | {} | {} | {aim} |", ratio(1), ratio(2));
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

struct Server {
    child: Child,
    input: BufReader<ChildStdout>,
    output: Option<ChildStdin>,
    next: u64,
    started: Duration,
}

impl Server {
    fn line(&mut self, message: &Value) {
        let mut line = message.to_string().into_bytes();
        line.push(b'\n');
        self.output.as_mut().unwrap().write_all(&line).unwrap();
    }

    fn send(&mut self, method: &str, params: &Value) {
        self.next += 1;
        let id = self.next;
        self.line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    fn receive(&mut self) {
        let mut line = String::new();
        assert!(self.input.read_line(&mut line).unwrap() > 0, "the server ended");
        assert!(!line.contains("\"isError\":true") && !line.contains("\"error\""), "{line}");
    }

    /// The memory in KiB.
    fn resident(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(f64::NAN)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.output.take());
        let _ = self.child.wait();
    }
}
