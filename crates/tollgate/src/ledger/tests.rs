//! The ledger as its users see it, and as a power cut, a full disk or an editor leaves it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use tempfile::TempDir;

use super::read::BLOCK;
use super::*;

mod following;

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
        let options = LedgerOptions { max_size: self.max_size, head };
        Ledger::new(self.folder.path(), &self.path("lock"), options)
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
        appended(&self.ledger(), &entries, Flush::No)
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
        let verdict = self.ledger().verify().unwrap();
        assert_eq!(verdict.problem, None);
        assert_eq!((verdict.lines, verdict.first_seq), (lines, Some(1)));
        assert_eq!(verdict.head.map(|head| head.seq), Some(lines));
    }

    fn problem(&self) -> Problem {
        self.ledger().verify().unwrap().problem.expect("a problem is found")
    }

    /// In `ledger.jsonl`.
    #[track_caller]
    fn wrong(&self, line: u64, seq: u64, wrong: Wrong) {
        let problem = self.problem();
        assert_eq!((problem.line, problem.seq, problem.wrong), (line, seq, wrong));
        assert_eq!(problem.file, self.path("ledger.jsonl"));
    }
}

/// The lines of these entries, read back.
fn appended(ledger: &Ledger, entries: &[Entry], flush: Flush) -> Vec<Line> {
    let numbers = ledger.append(entries, flush).unwrap();
    let mut lines = ledger.lines_after(numbers.start.saturating_sub(1)).unwrap();
    lines.truncate(entries.len());
    assert_eq!(lines.iter().map(|line| line.seq).collect::<Vec<_>>(), numbers.collect::<Vec<_>>());
    lines
}

fn entry(payload: Value) -> Entry {
    Entry {
        time: "2026-11-05T10:00:00.5Z".parse().unwrap(),
        agent: Some("blue".parse().unwrap()),
        turn: None,
        action_type: ActionType::Mutation,
        payload,
        result: json!({"status": "APPLIED"}),
    }
}

fn descending(from: u64) -> Vec<u64> {
    (1..=from).rev().collect()
}

#[test]
fn nothing_is_a_good_ledger() {
    let world = World::new();
    let ledger = world.ledger();
    assert_eq!(ledger.newest_first().unwrap().count(), 0);
    assert_eq!(ledger.lines_after(0).unwrap(), []);
    assert!(ledger.append(&[], Flush::Data).unwrap().is_empty());
    ledger.sync().unwrap();
    let verdict = ledger.verify().unwrap();
    let nothing = Verdict { lines: 0, first_seq: None, head: None, remembered: None, problem: None };
    assert_eq!(verdict, nothing);
    assert_eq!(world.files(), [""; 0], "to look does not make files");

    let options = LedgerOptions { max_size: 1, head: None };
    let nowhere = Ledger::new(&world.path("nowhere"), &world.path("nowhere/lock"), options);
    assert_eq!(nowhere.newest_first().unwrap().count(), 0);
    assert_eq!(nowhere.verify().unwrap(), nothing);
}

#[test]
fn a_line_is_exactly_so() {
    let world = World::with(1);
    let zeros = "0".repeat(64);
    let first = format!(
        r#"{{"seq":1,"prev":"{zeros}","time":"2026-11-05T10:00:00.5Z","agent":"blue","turn":null,"action_type":"MUTATION","payload":{{"number":1}},"result":{{"status":"APPLIED"}}}}"#
    );
    assert_eq!(world.text(), std::slice::from_ref(&first));
    let second = world.append([2]).remove(0);
    assert_eq!((second.seq, second.prev), (2, Digest::of(first.as_bytes())));
    assert_eq!(world.text()[1], serde_json::to_string(&second).unwrap());
    assert_eq!(fs::metadata(world.path("ledger.jsonl")).unwrap().permissions().mode() & 0o117, 0);
}

#[test]
fn the_chain_goes_on_through_one_ledger_and_another() {
    let world = World::new();
    let (a, b) = (world.ledger(), world.ledger());
    for number in 1..=10 {
        let from = if number % 3 == 0 { &b } else { &a };
        let lines = appended(from, &[entry(json!(number)), entry(json!("and"))], Flush::Data);
        assert_eq!([lines[0].seq, lines[1].seq], [2 * number - 1, 2 * number]);
    }
    a.sync().unwrap();
    world.good(20);
    assert_eq!(world.seqs(), descending(20));
}

#[test]
fn many_append_at_once() {
    let world = World { max_size: 40_000, ..World::new() };
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let ledger = world.ledger();
            scope.spawn(move || {
                for number in 0..200 {
                    ledger.append(&[entry(json!({"thread": thread, "number": number}))], Flush::No).unwrap();
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
    assert!(world.files().len() > 5, "full files were put aside meanwhile");
    for thread in 0..8 {
        let mine = |line: &Line| line.payload["thread"] == thread;
        let numbers = world.ledger().lines_after(0).unwrap().into_iter().filter(mine);
        assert!(numbers.map(|line| line.payload["number"].as_u64().unwrap()).eq(0..200));
    }
}

#[test]
fn a_line_cut_at_any_byte_is_healed() {
    let whole = World::with(3).bytes();
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for cut in last + 1..whole.len() {
        let world = World::new();
        fs::write(world.path("ledger.jsonl"), &whole[..cut]).unwrap();
        world.wrong(3, 3, Wrong::Torn);
        assert_eq!(world.seqs(), [2, 1], "what is not whole is not shown");

        let line = world.append([4]).remove(0);
        assert_eq!(line.seq, 4, "the healing has number 3");
        assert_eq!(fs::read(world.path("ledger.torn-3")).unwrap(), &whole[last..cut]);
        let healed = &world.ledger().lines_after(2).unwrap()[0];
        assert_eq!(healed.action_type, ActionType::LedgerHealed.as_str());
        assert_eq!(healed.payload, json!({"bytes_dropped": cut - last, "kept_in": "ledger.torn-3"}));
        world.good(4);
        assert_eq!(&world.bytes()[..last], &whole[..last]);
    }
}

#[test]
fn what_a_power_cut_leaves_is_healed() {
    let zeros = vec![0; 10_000];
    let half = [&zeros[..], b"\"result\":null}\n"].concat();
    let tails: [&[u8]; 6] =
        [&zeros, &half, b"\n", b"{}\n", b"garbage\n\0\0\n", &[&half[..], b"{\"se"].concat()];
    for (lines, tail) in (0..3).flat_map(|lines| tails.map(|tail| (lines, tail))) {
        let world = World::with(lines);
        let mut before = fs::read(world.path("ledger.jsonl")).unwrap_or_default();
        before.extend(tail);
        fs::write(world.path("ledger.jsonl"), &before).unwrap();
        assert_eq!(world.append([7])[0].seq, lines + 2);
        assert_eq!(fs::read(world.path(&format!("ledger.torn-{}", lines + 1))).unwrap(), tail);
        world.good(lines + 2);
    }
}

#[test]
fn torn_twice_at_one_number_is_kept_twice() {
    let world = World::with(2);
    fs::write(world.path("ledger.torn-3"), "of a crash").unwrap();
    fs::write(world.path("ledger.jsonl"), [&world.bytes()[..], b"half"].concat()).unwrap();
    world.append([4]);
    assert_eq!(fs::read_to_string(world.path("ledger.torn-3")).unwrap(), "of a crash");
    assert_eq!(fs::read_to_string(world.path("ledger.torn-3.2")).unwrap(), "half");
    assert_eq!(world.ledger().lines_after(2).unwrap()[0].payload["kept_in"], "ledger.torn-3.2");
}

#[test]
fn damage_in_the_middle_is_left_to_verify() {
    let world = World::with(4);
    let mut lines = world.text();
    lines[1] = "not json".to_owned();
    world.write(&lines);
    assert_eq!(world.append([5])[0].seq, 5);
    assert_eq!(world.text()[1], "not json");
    assert_eq!(world.files(), ["ledger.jsonl"]);
    world.wrong(2, 2, Wrong::NotALine);

    let read: Vec<Result<Line>> = world.ledger().newest_first().unwrap().collect();
    assert!(matches!(&read[3], Err(Fault::Damaged { .. })), "{read:?}");
    assert_eq!(read[4].as_ref().unwrap().seq, 1, "the reader goes on behind it");
    assert_eq!(world.ledger().lines_after(0).unwrap().len(), 4);
}

#[test]
fn any_changed_byte_is_found_and_its_line_named() {
    let world = World::with(4);
    let whole = world.bytes();
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(world.path("ledger.jsonl"), &changed).unwrap();
        let line = 1 + whole[..at].iter().filter(|byte| **byte == b'\n').count() as u64;
        let problem = world.problem();
        assert_eq!((problem.line, problem.seq), (line, line), "byte {at}: {problem:?}");
    }
}

#[test]
fn what_was_done_to_a_line_is_told() {
    let world = World::with(6);
    let lines = world.text();
    let edit = |change: &dyn Fn(&mut Vec<String>)| {
        let mut changed = lines.clone();
        change(&mut changed);
        world.write(&changed);
    };

    edit(&|lines| lines[2] = lines[2].replace("blue", "pink"));
    world.wrong(3, 3, Wrong::Edited);
    edit(&|lines| lines[2] = lines[2].replace("\"seq\":3", "\"seq\":5"));
    world.wrong(3, 3, Wrong::Edited);
    edit(&|lines| lines[0] = lines[0].replace("\"prev\":\"0", "\"prev\":\"1"));
    world.wrong(1, 1, Wrong::Edited);
    edit(&|lines| lines[5] = lines[5].replace("blue", "pink"));
    world.wrong(6, 6, Wrong::Rewritten);

    edit(&|lines| drop(lines.drain(2..4)));
    world.wrong(3, 3, Wrong::Removed);
    assert_eq!(world.problem().missing, 2);
    edit(&|lines| drop(lines.remove(0)));
    world.wrong(1, 1, Wrong::Removed);

    edit(&|lines| lines.swap(2, 3));
    world.wrong(3, 4, Wrong::Reordered);
    edit(&|lines| lines.swap(1, 4));
    world.wrong(2, 5, Wrong::Reordered);
    edit(&|lines| lines.insert(4, lines[1].clone()));
    world.wrong(5, 2, Wrong::Reordered);
    edit(&|lines| lines.push(lines[1].clone()));
    world.wrong(7, 2, Wrong::Reordered);
}

#[test]
fn a_cut_end_is_found_by_the_head_and_not_covered_up() {
    let world = World::with(5);
    world.write(&world.text()[..3]);
    assert_eq!(world.ledger_with(None).verify().unwrap().problem, None, "the chain alone cannot tell");
    world.wrong(4, 4, Wrong::CutTail);
    assert_eq!(world.problem().missing, 2);

    for number in 14..=19 {
        world.append([number]);
    }
    world.wrong(5, 5, Wrong::Rewritten);
    fs::remove_file(world.head()).unwrap();
    world.append([20]);
    world.good(10);

    fs::remove_file(world.path("ledger.jsonl")).unwrap();
    world.wrong(1, 1, Wrong::CutTail);
    let world = World::rotated(6, 3);
    fs::remove_file(world.path("ledger.jsonl")).unwrap();
    world.wrong(1, 4, Wrong::CutTail);
}

#[test]
fn the_head_is_only_a_witness() {
    let world = World::new();
    assert_eq!(world.ledger().verify().unwrap().remembered, None);
    let line = world.append([1, 2]).remove(1);
    let head = Head { seq: 2, hash: Digest::of(serde_json::to_string(&line).unwrap().as_bytes()) };
    assert_eq!(world.ledger().verify().unwrap().remembered, Some(head));
    let folder = world.head().parent().unwrap().metadata().unwrap();
    assert_eq!(folder.permissions().mode() & 0o777, 0o700);

    fs::write(world.head(), "garbage of some length".repeat(50)).unwrap();
    world.append([3]);
    assert_eq!(world.ledger().verify().unwrap().remembered.unwrap().seq, 3);

    let newer = r#"{"version":2,"what":"ever"}"#;
    fs::write(world.head(), newer).unwrap();
    world.append([4]);
    assert_eq!(fs::read_to_string(world.head()).unwrap(), newer);
    assert!(matches!(world.ledger().verify(), Err(Fault::NewerFormat { found: 2, .. })));

    let nowhere = world.ledger_with(Some(world.path("lock/head")));
    nowhere.append(&[entry(json!(5))], Flush::No).unwrap();
}

#[test]
fn a_full_file_is_put_aside_and_the_chain_goes_on() {
    let world = World::rotated(7, 3);
    assert_eq!(world.files(), ["ledger-1.jsonl", "ledger-4.jsonl", "ledger.jsonl"]);
    world.good(7);
    assert_eq!(world.seqs(), descending(7));
    let after: Vec<u64> = world.ledger().lines_after(2).unwrap().iter().map(|line| line.seq).collect();
    assert_eq!(after, [3, 4, 5, 6, 7]);

    fs::remove_file(world.path("ledger-4.jsonl")).unwrap();
    let problem = world.problem();
    assert_eq!((problem.seq, problem.missing, problem.wrong), (4, 3, Wrong::Removed));
}

#[test]
fn an_edit_in_a_full_file_is_named_there() {
    let world = World::rotated(7, 3);
    let path = world.path("ledger-4.jsonl");
    fs::write(&path, fs::read_to_string(&path).unwrap().replace("\"number\":6", "\"number\":9")).unwrap();
    let expected = Problem { file: path, line: 3, seq: 6, missing: 0, wrong: Wrong::Edited };
    assert_eq!(world.problem(), expected, "though it is the next file that tells");
}

#[test]
fn a_crash_between_two_files_is_harmless() {
    for next_file_made in [false, true] {
        let world = World::rotated(6, 3);
        fs::rename(world.path("ledger.jsonl"), world.path("ledger-4.jsonl")).unwrap();
        if next_file_made {
            fs::write(world.path("ledger.jsonl"), "").unwrap();
        }
        world.good(6);
        assert_eq!(world.seqs(), descending(6));
        assert_eq!(world.append([7])[0].seq, 7);
        world.good(7);
    }
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
fn a_reader_is_not_confused_by_files_put_aside_meanwhile() {
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
fn verify_waits_for_a_write_that_is_going_on() {
    let world = World::with(3);
    let whole = world.bytes();
    fs::remove_file(world.head()).unwrap();
    let lock = Lock::acquire(&world.path("lock"), Duration::ZERO).unwrap().unwrap();
    let opened = || {
        let links = fs::read_dir("/proc/self/fd").unwrap().flatten();
        links.filter(|link| fs::read_link(link.path()).is_ok_and(|to| to == world.path("lock"))).count()
    };
    fs::write(world.path("ledger.jsonl"), &whole[..whole.len() - 9]).unwrap();
    std::thread::scope(|scope| {
        let verifier = scope.spawn(|| world.ledger().verify().unwrap());
        while opened() < 2 && !verifier.is_finished() {
            std::thread::yield_now();
        }
        fs::write(world.path("ledger.jsonl"), &whole).unwrap();
        drop(lock);
        assert_eq!(verifier.join().unwrap().problem, None);
    });
}

#[test]
fn who_may_not_lock_may_read() {
    let world = World::rotated(5, 3);
    let options = LedgerOptions { max_size: 1, head: None };
    let ledger = Ledger::new(world.folder.path(), &world.path("nowhere/lock"), options);
    assert_eq!(ledger.verify().unwrap().lines, 5);
    assert_eq!(ledger.newest_first().unwrap().count(), 5);
    assert!(ledger.append(&[entry(json!(6))], Flush::No).is_err());
}

#[test]
fn a_look_at_the_middle_finds_its_place() {
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
            ledger.append(&[entry(json!("x".repeat(fill))), entry(json!(number))], Flush::No).unwrap();
        }
        assert_eq!(world.seqs(), descending(6), "fill {fill}");
        let lines = world.ledger().lines_after(0).unwrap();
        assert_eq!(lines[4].payload.as_str().unwrap().len(), fill);
        assert_eq!(world.append([7])[0].seq, 7);
        world.good(7);
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_a_clear_fault() {
    let world = World::new();
    let closed = world.path("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    // Permissions do not hold for root; where the kernel itself says no, they do not matter.
    let folder = if rustix::process::geteuid().is_root() { Path::new("/sys/kernel") } else { &closed };
    let ledger = Ledger::new(folder, &world.path("lock"), LedgerOptions { max_size: 1, head: None });
    let fault = ledger.append(&[entry(json!(1))], Flush::No).unwrap_err();
    let Fault::Io { path, source, .. } = &fault else { panic!("{fault}") };
    assert_eq!(*path, folder.join("ledger.jsonl"));
    let denied = [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem];
    assert!(denied.contains(&source.kind()), "{fault}");
    assert!(fault.hint().is_some());
}

#[test]
fn what_is_no_file_is_not_followed() {
    let world = World::new();
    fs::write(world.path("elsewhere"), "").unwrap();
    std::os::unix::fs::symlink(world.path("elsewhere"), world.path("ledger.jsonl")).unwrap();
    let fault = world.ledger().append(&[entry(json!(1))], Flush::No).unwrap_err();
    assert!(fault.to_string().contains("ledger.jsonl"), "{fault}");
    assert_eq!(fs::read(world.path("elsewhere")).unwrap(), b"");
}

#[test]
fn kinds_of_lines_have_their_names() {
    for kind in ActionType::ALL {
        assert_eq!(kind.as_str().parse::<ActionType>().unwrap(), *kind);
        let name = format!("{kind:?}").chars().fold(String::new(), |mut text, c| {
            if c.is_uppercase() && !text.is_empty() {
                text.push('_');
            }
            text.push(c.to_ascii_uppercase());
            text
        });
        assert_eq!(json!(kind), json!(name));
    }
    assert!("NONSENSE".parse::<ActionType>().unwrap_err().to_string().contains("MUTATION_CONFLICT"));
}

#[test]
fn what_stays_open_follows_the_ledger() {
    let world = World { max_size: 1500, ..World::new() };
    let ledgers = [world.ledger_with(None), world.ledger_with(None)];
    for number in 0..60_u64 {
        // Also several in a row by one of them, and more than one at once.
        let ledger = &ledgers[usize::from(number % 5 < 2)];
        let entries = vec![entry(json!({"number": number})); 1 + usize::from(number % 7 == 0)];
        appended(ledger, &entries, Flush::No);
    }
    assert!(world.files().len() > 5, "it went on in new files");
    world.good(69);
    // One of the others was killed while it wrote.
    fs::write(world.path("ledger.jsonl"), [&world.bytes()[..], b"{\"seq\":70,\"pr"].concat()).unwrap();
    let [known, _] = ledgers;
    assert_eq!(appended(&known, &[entry(json!("after"))], Flush::No)[0].seq, 71, "the healing has number 70");
    assert_eq!(fs::read(world.path("ledger.torn-70")).unwrap(), b"{\"seq\":70,\"pr");
    // Whoever has the old lock open and who opens the new one exclude each other.
    fs::remove_file(world.path("lock")).unwrap();
    std::thread::scope(|scope| {
        for ledger in [known, world.ledger_with(None)] {
            scope.spawn(move || {
                for number in 0..300 {
                    ledger.append(&[entry(json!({"number": number}))], Flush::No).unwrap();
                }
            });
        }
    });
    world.good(671);
}
