//! What grows with what: the cost of one operation against the number of files in the turn, tasks in the vault, lines in the
//! ledger and agents, and against the size of the file. Beside each figure stands that of the bare work, measured in
//! alternation. `scripts/bench` draws the plots from the lines that this prints. Not part of the tests.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and stops at the first fault"
)]

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tollgate::digest::Digest;
use tollgate::gate::Gate;
use tollgate::guard::Expected;
use tollgate::settings::Durability;
use tollgate::tasks::LedgerJournal;
use tollgate::turn::{Extent, FileState, TurnState as _};
use tollgate::vault::{ClaimKind, ClaimRequest, FolderOptions, FolderStore, Release, TaskName, Terms, Vault};

use self::common::{Desk, bare_write, bytes, done, ledger_of, sample};

fn main() {
    println!("plot, what grows, microseconds with tollgate, microseconds without");
    files_in_the_turn();
    tasks_in_the_vault();
    lines_in_the_ledger();
    size_of_the_file();
    agents();
}

fn point(plot: &str, grown: usize, (ours, bare): (Duration, Duration)) {
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    println!("{plot}, {grown}, {:.2}, {:.2}", micros(ours), micros(bare));
}

/// A write of 4 KiB without a flush, which would hide everything else.
fn files_in_the_turn() {
    let desk = Desk::new(Durability::Fast);
    let mut known = 0;
    for files in [10_usize, 100, 1_000, 10_000, 100_000] {
        while known < files {
            let path = format!("src/module{}/file{known}.rs", known % 97);
            let path = desk.gate.workspace().canonical(path).unwrap();
            let state = FileState::Present(Digest::of(&known.to_ne_bytes()));
            desk.turn.observe(&path, state, Extent::Whole).unwrap();
            known += 1;
        }
        let bare = desk.bare();
        let pair = sample(
            300,
            |sample| desk.write("f", bytes(4096, sample)),
            |sample| bare_write(&bare, "f", &bytes(4096, sample), Durability::Fast),
        );
        point("turn", files, pair);
    }
}

/// One claim and release by name, without a flush, against two bare renames.
fn tasks_in_the_vault() {
    for tasks in [10, 100, 1_000, 10_000, 100_000] {
        let keep = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (root, bare) = (keep.path().join("vault"), keep.path().join("bare"));
        let vault = vault(&root);
        for folder in ["from", "to", "end"] {
            fs::create_dir_all(bare.join(folder)).unwrap();
        }
        let total = tasks + 400;
        for number in 0..total {
            let text = format!("---\naction: triage\n---\n# Task {number}\n\nSome text about it.\n");
            fs::write(root.join(format!("Needs_Action/t{number}.md")), &text).unwrap();
            fs::write(bare.join(format!("from/t{number}.md")), &text).unwrap();
        }
        let request =
            ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Held, renamed_in: true };
        let (mut ours, mut theirs) = (tasks..total, tasks..total);
        let pair = sample(
            300,
            |_| {
                let task: TaskName = format!("t{}", ours.next().unwrap()).parse().unwrap();
                let claimed = vault.claim(&task, &request, Timestamp::now()).unwrap().unwrap();
                let release = Release::success();
                vault.release(&task, &claimed.claim.id, &release, Timestamp::now()).unwrap().unwrap();
            },
            |_| {
                let name = format!("t{}.md", theirs.next().unwrap());
                fs::rename(bare.join("from").join(&name), bare.join("to").join(&name)).unwrap();
                fs::rename(bare.join("to").join(&name), bare.join("end").join(&name)).unwrap();
            },
        );
        point("tasks", tasks, pair);
    }
}

fn vault(root: &Path) -> Vault {
    let state = root.join(".tollgate");
    fs::create_dir_all(&state).unwrap();
    let ledger = tollgate::ledger::Ledger::new(&state, &state.join("lock"), 64 << 20, None);
    let journal = Arc::new(LedgerJournal::new(ledger, "bench".into(), Durability::Fast, None));
    let options = FolderOptions { durability: Durability::Fast, ..FolderOptions::new(journal) };
    Vault::new(Arc::new(FolderStore::open(root, options).unwrap()), Terms::default())
}

/// One more line, by a process that has not appended yet, against one more line of a bare file.
fn lines_in_the_ledger() {
    let keep = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for lines in [10, 1_000, 100_000, 1_000_000] {
        let folder = keep.path().join(lines.to_string());
        ledger_of(&folder, lines);
        let line = [common::entry()];
        let bare = folder.join("bare");
        fs::write(&bare, "").unwrap();
        let pair = sample(
            1000,
            |_| {
                let ledger = tollgate::ledger::Ledger::new(&folder, &folder.join("lock"), u64::MAX, None);
                ledger.append(&line, Durability::Fast).unwrap();
            },
            |_| {
                let mut file = fs::File::options().append(true).open(&bare).unwrap();
                std::io::Write::write_all(&mut file, &[b'x'; 500]).unwrap();
            },
        );
        point("ledger", lines, pair);
    }
}

fn size_of_the_file() {
    for size in [1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24] {
        let desk = Desk::new(Durability::Durable);
        let bare = desk.bare();
        let pair = sample(
            if size > 1 << 20 { 12 } else { 60 },
            |sample| desk.write("f", bytes(size, sample)),
            |sample| bare_write(&bare, "f", &bytes(size, sample), Durability::Durable),
        );
        point("size", size, pair);
    }
}

/// The time for one durable write of 4 KiB while this number of agents write, each to a file of its own.
fn agents() {
    const ROUND: Duration = Duration::from_millis(500);
    let desk = Desk::new(Durability::Durable);
    let bare = desk.bare();
    let together = |agents: usize, write: &(dyn Fn(usize, usize) + Sync)| {
        let (over, writes) = (AtomicBool::new(false), AtomicUsize::new(0));
        let began = Instant::now();
        thread::scope(|scope| {
            for agent in 0..agents {
                let (over, writes) = (&over, &writes);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        write(agent, writes.fetch_add(1, Ordering::Relaxed));
                    }
                });
            }
            thread::sleep(ROUND);
            over.store(true, Ordering::Relaxed);
        });
        began.elapsed() / u32::try_from(writes.into_inner()).unwrap()
    };
    for agents in [1, 2, 4, 8, 16] {
        let gates: Vec<(Gate, _)> = (0..agents)
            .map(|agent| {
                let gate = desk.gate.clone();
                let turn = gate.begin_turn(format!("agent-{agent}").parse().unwrap()).unwrap();
                fs::create_dir_all(bare.join(agent.to_string())).unwrap();
                (gate, turn)
            })
            .collect();
        let guarded = |agent: usize, sample: usize| {
            let (gate, turn) = &gates[agent];
            let content = bytes(4096, sample);
            done(gate.write(turn, format!("f{agent}"), content, Expected::Baseline).unwrap());
        };
        let plain = |agent: usize, sample: usize| {
            bare_write(&bare.join(agent.to_string()), "f", &bytes(4096, sample), Durability::Durable);
        };
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            ours.push(together(agents, &guarded));
            theirs.push(together(agents, &plain));
        }
        point("agents", agents, (common::median(ours), common::median(theirs)));
    }
}
