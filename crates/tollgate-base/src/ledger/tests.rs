//! Appending to a ledger and reading it, and the world in which the tests of the ledger happen.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::read::BLOCK;
use super::*;
use crate::digest::Digest;
use crate::error::{Fault, Result};
use crate::event::{Event, TailMoved};
use crate::lock::Lock;
use crate::settings::Durability;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

mod cursor;
mod damage;
mod following;
mod mutated;
mod tallies;

struct World {
    folder: TempDir,
    max_size: u64,
}

impl World {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), max_size: 1 << 20 }
    }

    /// With the lines 1 to `lines`.
    fn with(lines: u64) -> Self {
        let world = Self::new();
        world.append(1..=lines);
        world
    }

    /// With the lines 1 to `lines`, every `per_file` of them in a file of their own.
    fn rotated(lines: u64, per_file: u64) -> Self {
        let mut world = Self::new();
        for number in 1..=lines {
            // At 1 every file is full already.
            world.max_size = if number % per_file == 1 { 1 } else { 1 << 20 };
            world.append([number]);
        }
        world.max_size = 1 << 20;
        world
    }

    /// As another process would open it.
    fn ledger(&self) -> Ledger {
        self.ledger_with(Some(self.head()))
    }

    fn ledger_with(&self, head: Option<PathBuf>) -> Ledger {
        Ledger::new(self.folder.path(), &self.path("lock"), self.max_size, head)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn head(&self) -> PathBuf {
        self.path("state/tollgate/head")
    }

    fn append(&self, numbers: impl IntoIterator<Item = u64>) -> Vec<Line> {
        let entries: Vec<Entry> =
            numbers.into_iter().map(|number| entry(json!({"number": number}))).collect();
        appended(&self.ledger(), &entries, Durability::Fast)
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.path("ledger.jsonl")).unwrap()
    }

    fn text(&self) -> Vec<String> {
        String::from_utf8(self.bytes()).unwrap().lines().map(str::to_owned).collect()
    }

    fn write(&self, lines: &[String]) {
        fs::write(
            self.path("ledger.jsonl"),
            lines.iter().map(|line| format!("{line}\n")).collect::<String>(),
        )
        .unwrap();
    }

    fn seqs(&self) -> Vec<u64> {
        self.ledger().newest_first().unwrap().map(|line| line.unwrap().seq).collect()
    }

    fn files(&self) -> Vec<String> {
        let names = fs::read_dir(self.folder.path()).unwrap().map(|item| item.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name.starts_with("ledger"));
        names.sort();
        names
    }

    #[track_caller]
    fn good(&self, lines: u64) {
        let found = self.ledger().verify().unwrap();
        assert_eq!(found.problem, None);
        assert_eq!((found.lines, found.first_seq), (lines, Some(1)));
        assert_eq!(found.head.map(|head| head.seq), Some(lines));
    }

    fn problem(&self) -> Problem {
        self.ledger().verify().unwrap().problem.expect("a problem is found")
    }

    /// In `ledger.jsonl`.
    #[track_caller]
    fn wrong(&self, line: u64, seq: u64, wrong: LineDefect) {
        let problem = self.problem();
        assert_eq!((problem.line, problem.seq, problem.wrong), (line, seq, wrong));
        assert_eq!(problem.file, self.path("ledger.jsonl"));
    }
}

/// The lines after this number that are not damaged, the oldest first.
fn lines_after(ledger: &Ledger, seq: u64) -> Vec<Line> {
    let good = ledger.newest_first().unwrap().filter_map(Result::ok);
    let mut lines: Vec<Line> = good.take_while(|line| line.seq > seq).collect();
    lines.reverse();
    lines
}

/// The lines of these entries, read back.
fn appended(ledger: &Ledger, entries: &[Entry], durability: Durability) -> Vec<Line> {
    let numbers = ledger.append(entries, durability).unwrap();
    let mut lines = lines_after(ledger, numbers.start.saturating_sub(1));
    lines.truncate(entries.len());
    assert_eq!(lines.iter().map(|line| line.seq).collect::<Vec<_>>(), numbers.collect::<Vec<_>>());
    lines
}

fn entry(payload: Value) -> Entry {
    Entry {
        time: "2026-11-05T10:00:00.5Z".parse().unwrap(),
        agent: Some("blue".parse().unwrap()),
        turn: None,
        event: Event::Other { action_type: "MUTATION".into(), payload, result: json!({"status": "APPLIED"}) },
    }
}

fn payload(line: &Line) -> Value {
    line.json()["payload"].take()
}

fn descending(from: u64) -> Vec<u64> {
    (1..=from).rev().collect()
}

#[test]
fn an_empty_ledger_is_valid() {
    let world = World::new();
    let ledger = world.ledger();
    assert_eq!(ledger.newest_first().unwrap().count(), 0);
    assert_eq!(lines_after(&ledger, 0), []);
    assert!(ledger.append(&[], Durability::Durable).unwrap().is_empty());
    ledger.sync().unwrap();
    let found = ledger.verify().unwrap();
    let nothing = Verification { lines: 0, first_seq: None, head: None, remembered: None, problem: None };
    assert_eq!(found, nothing);
    assert_eq!(world.files(), [""; 0], "to look does not make files");

    let nowhere = Ledger::new(&world.path("nowhere"), &world.path("nowhere/lock"), 1, None);
    assert_eq!(nowhere.newest_first().unwrap().count(), 0);
    assert_eq!(nowhere.verify().unwrap(), nothing);
}

#[test]
fn a_line_has_exactly_these_bytes() {
    let world = World::with(1);
    let zeros = "0".repeat(64);
    let first = format!(
        r#"{{"seq":1,"prev":"{zeros}","time":"2026-11-05T10:00:00.5Z","agent":"blue","turn":null,"action_type":"MUTATION","payload":{{"number":1}},"result":{{"status":"APPLIED"}}}}"#
    );
    assert_eq!(world.text(), std::slice::from_ref(&first));
    let second = world.append([2]).remove(0);
    assert_eq!((second.seq, second.prev), (2, Digest::of(first.as_bytes())));
    assert_eq!(world.text()[1], *second.text);
    assert_eq!(second.event, entry(json!({"number": 2})).event, "what no version writes so is kept as it is");
    assert_eq!(fs::metadata(world.path("ledger.jsonl")).unwrap().permissions().mode() & 0o117, 0);
}

#[test]
fn two_ledger_objects_continue_one_chain() {
    let world = World::new();
    let (a, b) = (world.ledger(), world.ledger());
    for number in 1..=10 {
        let from = if number % 3 == 0 { &b } else { &a };
        let lines = appended(from, &[entry(json!(number)), entry(json!("and"))], Durability::Durable);
        assert_eq!([lines[0].seq, lines[1].seq], [2 * number - 1, 2 * number]);
    }
    a.sync().unwrap();
    world.good(20);
    assert_eq!(world.seqs(), descending(20));
}

#[test]
fn many_writers_append_at_once() {
    let world = World { max_size: 40_000, ..World::new() };
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let ledger = world.ledger();
            scope.spawn(move || {
                for number in 0..200 {
                    ledger
                        .append(&[entry(json!({"thread": thread, "number": number}))], Durability::Fast)
                        .unwrap();
                }
            });
        }
        // Readers beside them see whole lines, without a gap.
        for _ in 0..20 {
            let seqs = world.seqs();
            assert!(seqs.iter().copied().eq((1..=seqs.len() as u64).rev()), "{seqs:?}");
            assert_eq!(world.ledger().verify().unwrap().problem, None);
        }
    });
    world.good(1600);
    assert!(world.files().len() > 5, "files became full in the meantime");
    for thread in 0..8 {
        let mine = |line: &Line| payload(line)["thread"] == thread;
        let numbers = lines_after(&world.ledger(), 0).into_iter().filter(mine);
        assert!(numbers.map(|line| payload(&line)["number"].as_u64().unwrap()).eq(0..200));
    }
}

#[test]
fn a_full_file_is_renamed_and_the_chain_goes_on() {
    let world = World::rotated(7, 3);
    assert_eq!(world.files(), ["ledger-1.jsonl", "ledger-4.jsonl", "ledger.jsonl"]);
    world.good(7);
    assert_eq!(world.seqs(), descending(7));
    let after: Vec<u64> = lines_after(&world.ledger(), 2).iter().map(|line| line.seq).collect();
    assert_eq!(after, [3, 4, 5, 6, 7]);

    fs::remove_file(world.path("ledger-4.jsonl")).unwrap();
    let problem = world.problem();
    assert_eq!((problem.seq, problem.missing, problem.wrong), (4, 3, LineDefect::Removed));
}

#[test]
fn a_full_file_is_never_overwritten() {
    let mut world = World::with(3);
    fs::write(world.path("ledger-1.jsonl"), "precious").unwrap();
    world.max_size = 1;
    assert_eq!(world.append([4])[0].seq, 4);
    assert_eq!(fs::read_to_string(world.path("ledger-1.jsonl")).unwrap(), "precious");
    assert_eq!(world.text().len(), 4);
}

#[test]
fn a_reader_is_not_confused_by_files_that_become_full_while_it_reads() {
    let mut world = World::rotated(6, 3);
    let mut reader = world.ledger().newest_first().unwrap();
    assert_eq!(reader.next().unwrap().unwrap().seq, 6);
    world.max_size = 1;
    world.append([7]);
    world.append([8]);
    assert_eq!(world.files().len(), 4);
    let seqs: Vec<u64> = reader.map(|line| line.unwrap().seq).collect();
    assert_eq!(seqs, descending(5));
}

#[test]
fn the_lines_before_a_number_are_found_by_bisection() {
    let before = |world: &World, seq: u64| -> Vec<u64> {
        world.ledger().newest_before(seq).unwrap().map(|line| line.unwrap().seq).collect()
    };
    for world in [World::with(0), World::with(1), World::with(12), World::rotated(12, 3)] {
        let all = world.seqs();
        for seq in 0..15 {
            let expected: Vec<u64> = all.iter().copied().filter(|found| *found < seq).collect();
            assert_eq!(before(&world, seq), expected, "before {seq} in {:?}", world.files());
        }
    }
    // A damaged line has no number. It is met in its place, and hides no other.
    let world = World::with(9);
    let mut lines = world.text();
    lines[4] = "x".repeat(40_000);
    world.write(&lines);
    let read: Vec<Option<u64>> =
        world.ledger().newest_before(8).unwrap().map(|line| line.ok().map(|line| line.seq)).collect();
    assert_eq!(read, [Some(7), Some(6), None, Some(4), Some(3), Some(2), Some(1)]);
}

#[test]
fn lines_of_any_length_are_read_backwards() {
    let block = usize::try_from(BLOCK).unwrap();
    // Around the block's length, so that lines end before, at and after its edges.
    for fill in (block - 400..block + 10).step_by(7).chain([1, 5 * block, 5 * block + 1]) {
        let world = World::new();
        let ledger = world.ledger();
        for number in 0..3 {
            ledger.append(&[entry(json!("x".repeat(fill))), entry(json!(number))], Durability::Fast).unwrap();
        }
        assert_eq!(world.seqs(), descending(6), "fill {fill}");
        let lines = lines_after(&world.ledger(), 0);
        assert_eq!(payload(&lines[4]).as_str().unwrap().len(), fill);
        assert_eq!(world.append([7])[0].seq, 7);
        world.good(7);
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_a_clear_error() {
    let world = World::new();
    let closed = world.path("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    // Permissions do not hold for root; where the kernel itself says no, they do not matter.
    let folder = if rustix::process::geteuid().is_root() { Path::new("/sys/kernel") } else { &closed };
    let ledger = Ledger::new(folder, &world.path("lock"), 1, None);
    let fault = ledger.append(&[entry(json!(1))], Durability::Fast).unwrap_err();
    let Fault::Io { path, source, .. } = &fault else { panic!("{fault}") };
    assert_eq!(*path, folder.join("ledger.jsonl"));
    let denied = [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem];
    assert!(denied.contains(&source.kind()), "{fault}");
    assert!(fault.hint().is_some());
}

#[test]
fn a_link_is_not_followed() {
    let world = World::new();
    fs::write(world.path("elsewhere"), "").unwrap();
    std::os::unix::fs::symlink(world.path("elsewhere"), world.path("ledger.jsonl")).unwrap();
    let fault = world.ledger().append(&[entry(json!(1))], Durability::Fast).unwrap_err();
    assert!(fault.to_string().contains("ledger.jsonl"), "{fault}");
    assert_eq!(fs::read(world.path("elsewhere")).unwrap(), b"");
}

#[test]
fn a_process_that_keeps_the_files_open_notices_what_others_do() {
    let world = World { max_size: 1500, ..World::new() };
    let ledgers = [world.ledger_with(None), world.ledger_with(None)];
    for number in 0..60_u64 {
        // Also several in a row by one of them, and more than one at once.
        let ledger = &ledgers[usize::from(number % 5 < 2)];
        let entries = vec![entry(json!({"number": number})); 1 + usize::from(number % 7 == 0)];
        appended(ledger, &entries, Durability::Fast);
    }
    assert!(world.files().len() > 5, "it went on in new files");
    world.good(69);
    // One of the others was killed while it wrote.
    fs::write(world.path("ledger.jsonl"), [&world.bytes()[..], b"{\"seq\":70,\"pr"].concat()).unwrap();
    let [known, _] = ledgers;
    assert_eq!(
        appended(&known, &[entry(json!("after"))], Durability::Fast)[0].seq,
        71,
        "the healing has number 70"
    );
    assert_eq!(fs::read(world.path("ledger.torn-70")).unwrap(), b"{\"seq\":70,\"pr");
    // A process that has the old lock file open and one that opens the new file still exclude each other.
    fs::remove_file(world.path("lock")).unwrap();
    std::thread::scope(|scope| {
        for ledger in [known, world.ledger_with(None)] {
            scope.spawn(move || {
                for number in 0..300 {
                    ledger.append(&[entry(json!({"number": number}))], Durability::Fast).unwrap();
                }
            });
        }
    });
    world.good(671);
}

#[test]
fn a_ledger_that_stays_open_goes_on_where_others_have_brought_it() {
    let mut world = World::new();
    let kept = world.ledger();
    let append = |number: u64| appended(&kept, &[entry(json!({ "number": number }))], Durability::Fast);
    append(1);
    world.append([2]);
    append(3);
    // Another process begins a new file.
    world.max_size = 1;
    world.append([4]);
    append(5);
    world.good(5);
    assert_eq!(world.files(), ["ledger-1.jsonl", "ledger.jsonl"]);
    assert_eq!(world.text().len(), 2);
}

#[test]
fn a_ledger_that_stays_open_notices_that_its_files_were_deleted() {
    let world = World::new();
    let kept = world.ledger_with(None);
    let append = |number: u64| appended(&kept, &[entry(json!({ "number": number }))], Durability::Fast);
    append(1);
    fs::remove_file(world.path("ledger.jsonl")).unwrap();
    fs::remove_file(world.path("lock")).unwrap();
    // Another process that holds the new lock keeps this one from appending.
    let other = Lock::acquire(&world.path("lock"), Duration::ZERO).unwrap().unwrap();
    std::thread::scope(|scope| {
        let line = scope.spawn(|| append(1));
        let deadline = std::time::Instant::now() + Duration::from_millis(50);
        while std::time::Instant::now() < deadline {
            assert!(!world.path("ledger.jsonl").exists(), "appended without the lock");
        }
        drop(other);
        assert_eq!(line.join().unwrap()[0].seq, 1);
    });
    assert_eq!(world.text().len(), 1);
    // It has released the new lock.
    assert!(Lock::acquire(&world.path("lock"), Duration::ZERO).unwrap().is_some());
}
