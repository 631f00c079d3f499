//! What the guard costs, as ratios to the bare work. Both sides of a ratio are measured in one run, sample by sample in
//! alternation, so that a slow disk or machine is slow for both. Not part of the tests.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and stops at the first fault"
)]

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use tollgate::digest::Digest;
use tollgate::event::{Event, FileChanged, Guarantee, Mutation, MutationStatus};
use tollgate::gate::Gate;
use tollgate::guard::{Action, Change, Expected, Outcome};
use tollgate::ledger::{Entry, Ledger};
use tollgate::name::TurnId;
use tollgate::part::Part;
use tollgate::settings::{Durability, Settings};
use tollgate::turn::{Extent, FileState, Turn, TurnState};
use tollgate::workspace::{Options, Workspace};

fn main() {
    println!("| what | guarded | bare | measured | aim |");
    println!("|---|---|---|---|---|");
    hashing();
    writing(Durability::Durable);
    large_write();
    transaction();
    writing(Durability::Fast);
    ledger();
    turn();
}

/// The medians of both sides, sampled alternately.
fn sample(samples: usize, mut a: impl FnMut(usize), mut b: impl FnMut(usize)) -> (Duration, Duration) {
    fn time(f: &mut impl FnMut(usize), sample: usize) -> Duration {
        let start = Instant::now();
        f(sample);
        start.elapsed()
    }
    // Warm up caches, the folder's blocks and the processor's clock.
    for sample in 0..samples / 10 + 1 {
        a(sample);
        b(sample);
    }
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    for sample in 0..samples {
        // The first side alternates, because the second may pay for what the first left to the disk.
        if sample % 2 == 0 {
            of_a.push(time(&mut a, sample));
            of_b.push(time(&mut b, sample));
        } else {
            of_b.push(time(&mut b, sample));
            of_a.push(time(&mut a, sample));
        }
    }
    (median(of_a), median(of_b))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn row(what: &str, (guarded, bare): (Duration, Duration), measured: &str, aim: &str) {
    println!("| {what} | {guarded:.1?} | {bare:.1?} | {measured} | {aim} |");
}

fn ratio((a, b): (Duration, Duration)) -> String {
    format!("{:.2}", a.as_secs_f64() / b.as_secs_f64())
}

/// A workspace on the file system of the checkout, and an agent's turn.
struct Desk {
    keep: tempfile::TempDir,
    gate: Gate,
    turn: Turn,
}

impl Desk {
    fn new(durability: Durability) -> Self {
        let keep = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::create_dir(keep.path().join("w")).unwrap();
        fs::create_dir(keep.path().join("bare")).unwrap();
        let mut settings = Settings::default();
        settings.guard.durability = durability;
        let options = Options { settings: Some(settings), ..Options::default() };
        let gate = Gate::new(Workspace::open(keep.path().join("w"), options).unwrap());
        let turn = gate.begin_turn("bench".parse().unwrap()).unwrap();
        Self { keep, gate, turn }
    }

    fn bare(&self) -> PathBuf {
        self.keep.path().join("bare")
    }

    fn write(&self, path: &str, bytes: Vec<u8>) {
        done(self.gate.write(&self.turn, path, bytes, Expected::Baseline).unwrap());
    }
}

fn done<T>(outcome: Outcome<T>) -> T {
    match outcome {
        Outcome::Done(value) => value,
        Outcome::Refused(refused) => panic!("{refused:?}"),
    }
}

/// Bytes that differ from sample to sample. Otherwise a write would have nothing to do.
fn bytes(length: usize, sample: usize) -> Vec<u8> {
    let mut bytes = vec![b'x'; length];
    bytes[..8].copy_from_slice(&(sample as u64).to_ne_bytes());
    bytes[8..12].copy_from_slice(&std::process::id().to_ne_bytes());
    bytes
}

/// What a careful program does without a guard: temporary file, flush, rename, flush of the folder.
fn bare_write(folder: &Path, name: &str, bytes: &[u8], durability: Durability) {
    let temporary = folder.join(".tmp");
    let mut file = File::create(&temporary).unwrap();
    file.write_all(bytes).unwrap();
    if durability == Durability::Durable {
        file.sync_all().unwrap();
    }
    fs::rename(&temporary, folder.join(name)).unwrap();
    if durability == Durability::Durable {
        File::open(folder).unwrap().sync_all().unwrap();
    }
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
    row("read and hash 1 MiB / SHA-256 of 1 MiB in memory", pair, &share(pair), "0.95");
    let pair = sample(300, read, |_| {
        black_box(Sha256::digest(fs::read(&path).unwrap()));
    });
    row("read and hash 1 MiB / `read` and SHA-256", pair, &share(pair), "");
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
        Durability::Durable => ("durable write of 4 KiB with its ledger line / the same write, bare", "1.5"),
        Durability::Fast => ("`fast` write of 4 KiB / write and rename without a flush", ""),
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
    row("durable write of 1 MiB / the same write, bare", pair, &format!("{added:.2} ms added"), "3 ms");
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
    row("ten files of 4 KiB, all or none / ten bare durable writes", pair, &ratio(pair), "1.5");
}

fn ledger() {
    let keep = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let ledger = |name: &str, lines: usize| {
        let folder = keep.path().join(name);
        fs::create_dir(&folder).unwrap();
        // In one file of any length.
        let ledger = Ledger::new(&folder, &folder.join("lock"), u64::MAX, None);
        let mut left = lines;
        while left > 0 {
            let some = left.min(1000);
            ledger.append(&vec![entry(); some], Durability::Fast).unwrap();
            left -= some;
        }
        ledger
    };
    let (long, short) = (ledger("long", 1_000_000), ledger("short", 10));
    let line = [entry()];
    let append = |ledger: &Ledger| {
        black_box(ledger.append(&line, Durability::Fast).unwrap());
    };
    let pair = sample(2000, |_| append(&long), |_| append(&short));
    row("ledger line number 1,000,000 / number 10", pair, &ratio(pair), "1.0");
    // Another process has appended in the meantime, so the end must be found again.
    let reopened = |name: &str| {
        let folder = keep.path().join(name);
        Ledger::new(&folder, &folder.join("lock"), u64::MAX, None)
    };
    let pair = sample(2000, |_| append(&reopened("long")), |_| append(&reopened("short")));
    row(
        "ledger line number 1,000,000 / number 10, by a process that has not appended yet",
        pair,
        &ratio(pair),
        "1.0",
    );
}

fn entry() -> Entry {
    Entry {
        time: "2026-11-15T12:00:00Z".parse().unwrap(),
        agent: Some("bench".parse().unwrap()),
        turn: None,
        event: Event::Mutation(
            Mutation::File(FileChanged {
                id: "1a1dd21bff5945b5bee".into(),
                tool_name: "write_file".into(),
                target_file: "src/some/file.rs".into(),
                hash_before: Some(Digest::of(b"before")),
                hash_after: Some(Digest::of(b"after")),
                moved_to: None,
                guarantee: Some(Guarantee::Full),
                owner: None,
                recovered: false,
                took_us: None,
                via: None,
                level: None,
            }),
            MutationStatus::Applied,
        ),
    }
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
    println!("| look-up of a first hash among 100,000 files | {one:.0?} | | | 1 µs |");
    println!("| memory of a turn with 100,000 files | {} bytes a file | | | |", memory / FILES);
}

/// The memory of this process that is in use, in bytes.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}
