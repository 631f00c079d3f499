//! What the benchmarks of the guard share: alternating samples, a workspace, and the bare write to compare with.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tollgate::digest::Digest;
use tollgate::event::{Event, FileChanged, Guarantee, Mutation, MutationStatus};
use tollgate::gate::Gate;
use tollgate::guard::{Expected, Outcome};
use tollgate::ledger::{Entry, Ledger};
use tollgate::settings::{Durability, Settings};
use tollgate::turn::Turn;
use tollgate::workspace::{Options, Workspace};

/// The medians of both sides, sampled alternately.
pub(crate) fn sample(
    samples: usize,
    mut a: impl FnMut(usize),
    mut b: impl FnMut(usize),
) -> (Duration, Duration) {
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

pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// A workspace on the file system of the checkout, and an agent's turn.
pub(crate) struct Desk {
    pub(crate) keep: tempfile::TempDir,
    pub(crate) gate: Gate,
    pub(crate) turn: Turn,
}

impl Desk {
    pub(crate) fn new(durability: Durability) -> Self {
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

    pub(crate) fn bare(&self) -> PathBuf {
        self.keep.path().join("bare")
    }

    pub(crate) fn write(&self, path: &str, bytes: Vec<u8>) {
        done(self.gate.write(&self.turn, path, bytes, Expected::Baseline).unwrap());
    }
}

pub(crate) fn done<T>(outcome: Outcome<T>) -> T {
    match outcome {
        Outcome::Done(value) => value,
        Outcome::Refused(refused) => panic!("{refused:?}"),
    }
}

/// Bytes that differ from sample to sample. Otherwise a write would have nothing to do.
pub(crate) fn bytes(length: usize, sample: usize) -> Vec<u8> {
    let mut bytes = vec![b'x'; length];
    bytes[..8].copy_from_slice(&(sample as u64).to_ne_bytes());
    bytes[8..12].copy_from_slice(&std::process::id().to_ne_bytes());
    bytes
}

/// What a careful program does without a guard: temporary file, flush, rename, flush of the folder.
pub(crate) fn bare_write(folder: &Path, name: &str, bytes: &[u8], durability: Durability) {
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

/// A ledger with this many lines, in one file of any length.
pub(crate) fn ledger_of(folder: &Path, lines: usize) -> Ledger {
    fs::create_dir(folder).unwrap();
    let ledger = Ledger::new(folder, &folder.join("lock"), u64::MAX, None);
    let mut left = lines;
    while left > 0 {
        let some = left.min(1000);
        ledger.append(&vec![entry(); some], Durability::Fast).unwrap();
        left -= some;
    }
    ledger
}

pub(crate) fn entry() -> Entry {
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
                executable: false,
                recovered: false,
                took_us: None,
                via: None,
                level: None,
            }),
            MutationStatus::Applied,
        ),
    }
}
