//! What the guard costs, as ratios to the bare work. Both sides of a ratio are measured in one run, sample by sample in
//! alternation, so that a slow disk or machine is slow for both. Not part of the tests.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and stops at the first fault"
)]

mod common;

use std::fs;
use std::hint::black_box;
use std::io;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tollgate::digest::Digest;
use tollgate::guard::{Action, Change};
use tollgate::ledger::Ledger;
use tollgate::name::TurnId;
use tollgate::part::Part;
use tollgate::settings::Durability;
use tollgate::turn::{Extent, FileState, Turn, TurnState as _};

use self::common::{Desk, bare_write, bytes, done, entry, ledger_of, sample};

fn main() {
    println!("| what | tollgate | bare | measured | aim |");
    println!("|---|---|---|---|---|");
    hashing();
    writing(Durability::Durable);
    large_write();
    transaction();
    writing(Durability::Fast);
    ledger();
    turn();
}

fn row(what: &str, (guarded, bare): (Duration, Duration), measured: &str, aim: &str) {
    println!("| {what} | {guarded:.1?} | {bare:.1?} | {measured} | {aim} |");
}

fn ratio((a, b): (Duration, Duration)) -> String {
    format!("{:.2}", a.as_secs_f64() / b.as_secs_f64())
}

fn hashing() {
    let desk = Desk::new(Durability::Fast);
    let content = bytes(1 << 20, 0);
    fs::write(desk.keep.path().join("w/f"), &content).unwrap();
    let path = desk.keep.path().join("w/f");
    let read = |_| {
        done(desk.gate.read_to(&desk.turn, "f", Part::Whole, &mut io::sink()).unwrap());
    };
    let (guarded, in_memory) = sample(300, read, |_| {
        black_box(Sha256::digest(black_box(&content)));
    });
    let share = |(guarded, bare): (Duration, Duration)| format!("{} of its speed", ratio((bare, guarded)));
    let pair = (guarded, in_memory);
    row("read and hash 1 MiB, against SHA-256 of 1 MiB in memory", pair, &share(pair), "0.95");
    let pair = sample(300, read, |_| {
        black_box(Sha256::digest(fs::read(&path).unwrap()));
    });
    row("read and hash 1 MiB, against `read` and SHA-256", pair, &share(pair), "");
}

fn writing(durability: Durability) {
    let desk = Desk::new(durability);
    let bare = desk.bare();
    let pair = sample(
        400,
        |sample| desk.write("f", bytes(4096, sample)),
        |sample| bare_write(&bare, "f", &bytes(4096, sample), durability),
    );
    let (what, aim) = match durability {
        Durability::Durable => {
            ("durable write of 4 KiB with its ledger line, against the same write, bare", "1.5")
        }
        Durability::Fast => ("`fast` write of 4 KiB, against write and rename without a flush", ""),
    };
    row(what, pair, &ratio(pair), aim);
}

fn large_write() {
    let desk = Desk::new(Durability::Durable);
    let bare = desk.bare();
    let pair = sample(
        60,
        |sample| desk.write("f", bytes(1 << 20, sample)),
        |sample| bare_write(&bare, "f", &bytes(1 << 20, sample), Durability::Durable),
    );
    let added = pair.0.as_secs_f64() * 1e3 - pair.1.as_secs_f64() * 1e3;
    row(
        "durable write of 1 MiB, against the same write, bare",
        pair,
        &format!("{added:.2} ms added"),
        "3 ms",
    );
}

fn transaction() {
    let desk = Desk::new(Durability::Durable);
    let bare = desk.bare();
    let names: Vec<String> = (0..10).map(|number| format!("f{number}")).collect();
    let pair = sample(
        60,
        |sample| {
            let change = |name: &String| Change::new(name, Action::Write(bytes(4096, sample)));
            done(desk.gate.apply(&desk.turn, names.iter().map(change).collect()).unwrap());
        },
        |sample| {
            for name in &names {
                bare_write(&bare, name, &bytes(4096, sample), Durability::Durable);
            }
        },
    );
    row("atomic change of ten files of 4 KiB, against ten bare durable writes", pair, &ratio(pair), "1.5");
}

fn ledger() {
    let keep = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let ledger = |name: &str, lines| ledger_of(&keep.path().join(name), lines);
    let (long, short) = (ledger("long", 1_000_000), ledger("short", 10));
    let line = [entry()];
    let append = |ledger: &Ledger| {
        black_box(ledger.append(&line, Durability::Fast).unwrap());
    };
    let pair = sample(2000, |_| append(&long), |_| append(&short));
    row("ledger line number 1,000,000, against number 10", pair, &ratio(pair), "1.0");
    // Another process has appended in the meantime, so the end must be found again.
    let reopened = |name: &str| {
        let folder = keep.path().join(name);
        Ledger::new(&folder, &folder.join("lock"), u64::MAX, None)
    };
    let pair = sample(2000, |_| append(&reopened("long")), |_| append(&reopened("short")));
    row(
        "ledger line number 1,000,000, against number 10, by a process that has not appended yet",
        pair,
        &ratio(pair),
        "1.0",
    );
}

fn turn() {
    const FILES: usize = 100_000;
    let desk = Desk::new(Durability::Fast);
    let workspace = desk.gate.workspace();
    let paths: Vec<_> = (0..FILES)
        .map(|number| workspace.canonical(format!("src/module{}/file{number}.rs", number % 97)).unwrap())
        .collect();
    let turn = Turn::begin(TurnId::new().unwrap(), "bench".parse().unwrap());
    let before = resident();
    for (number, path) in paths.iter().enumerate() {
        let state = FileState::Present(Digest::of(&number.to_ne_bytes()));
        turn.observe(path, state, Extent::Whole).unwrap();
    }
    let memory = resident() - before;
    // A thousand look-ups per sample, spread over all files.
    let look_up = |sample: usize| {
        for step in 0..1000 {
            let path = &paths[(sample * 7919 + step * 104_729) % FILES];
            black_box(turn.get(path).unwrap().unwrap().initial());
        }
    };
    let (thousand, _) = sample(200, look_up, |_| ());
    let one = thousand / 1000;
    println!("| look-up of an initial hash among 100,000 files | {one:.0?} | | | 1 µs |");
    println!("| memory of a turn with 100,000 files | {} bytes a file | | | |", memory / FILES);
}

/// The memory of this process that is in use, in bytes.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}
