//! Damage: what a power cut, a full disk, a crash or an editor leaves, and how `verify` names it.

use super::*;

#[test]
fn a_line_cut_at_any_byte_is_moved_to_its_own_file() {
    let whole = World::with(3).bytes();
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for cut in last + 1..whole.len() {
        let world = World::new();
        fs::write(world.path("ledger.jsonl"), &whole[..cut]).unwrap();
        world.wrong(3, 3, LineDefect::Torn);
        assert_eq!(world.seqs(), [2, 1], "what is not whole is not shown");

        let line = world.append([4]).remove(0);
        assert_eq!(line.seq, 4, "the healing has number 3");
        assert_eq!(fs::read(world.path("ledger.torn-3")).unwrap(), &whole[last..cut]);
        let healed = &lines_after(&world.ledger(), 2)[0];
        let moved = TailMoved { bytes_dropped: (cut - last) as u64, kept_in: "ledger.torn-3".into() };
        assert_eq!(healed.event, Event::LedgerHealed(moved));
        let text = format!(r#""payload":{{"bytes_dropped":{},"kept_in":"ledger.torn-3"}}"#, cut - last);
        assert!(healed.text.contains(&text), "{}", healed.text);
        world.good(4);
        assert_eq!(&world.bytes()[..last], &whole[..last]);
    }
}

#[test]
fn whatever_a_power_cut_leaves_is_moved_to_its_own_file() {
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
fn a_tail_that_is_torn_twice_at_one_number_is_kept_twice() {
    let world = World::with(2);
    fs::write(world.path("ledger.torn-3"), "of a crash").unwrap();
    fs::write(world.path("ledger.jsonl"), [&world.bytes()[..], b"half"].concat()).unwrap();
    world.append([4]);
    assert_eq!(fs::read_to_string(world.path("ledger.torn-3")).unwrap(), "of a crash");
    assert_eq!(fs::read_to_string(world.path("ledger.torn-3.2")).unwrap(), "half");
    assert_eq!(payload(&lines_after(&world.ledger(), 2)[0])["kept_in"], "ledger.torn-3.2");
}

#[test]
fn damage_in_the_middle_stays_and_verify_names_it() {
    let world = World::with(4);
    let mut lines = world.text();
    lines[1] = "not json".to_owned();
    world.write(&lines);
    assert_eq!(world.append([5])[0].seq, 5);
    assert_eq!(world.text()[1], "not json");
    assert_eq!(world.files(), ["ledger.jsonl"]);
    world.wrong(2, 2, LineDefect::NotALine);

    let read: Vec<Result<Line>> = world.ledger().newest_first().unwrap().collect();
    assert!(matches!(&read[3], Err(Fault::Damaged { .. })), "{read:?}");
    assert_eq!(read[4].as_ref().unwrap().seq, 1, "the reader goes on behind it");
    assert_eq!(lines_after(&world.ledger(), 0).len(), 4);
}

#[test]
fn verify_names_the_line_of_any_changed_byte() {
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
fn verify_says_what_was_done_to_a_line() {
    let world = World::with(6);
    let lines = world.text();
    let edit = |change: &dyn Fn(&mut Vec<String>)| {
        let mut changed = lines.clone();
        change(&mut changed);
        world.write(&changed);
    };

    edit(&|lines| lines[2] = lines[2].replace("blue", "pink"));
    world.wrong(3, 3, LineDefect::Edited);
    edit(&|lines| lines[2] = lines[2].replace("\"seq\":3", "\"seq\":5"));
    world.wrong(3, 3, LineDefect::Edited);
    edit(&|lines| lines[0] = lines[0].replace("\"prev\":\"0", "\"prev\":\"1"));
    world.wrong(1, 1, LineDefect::Edited);
    edit(&|lines| lines[5] = lines[5].replace("blue", "pink"));
    world.wrong(6, 6, LineDefect::Rewritten);

    edit(&|lines| drop(lines.drain(2..4)));
    world.wrong(3, 3, LineDefect::Removed);
    assert_eq!(world.problem().missing, 2);
    edit(&|lines| drop(lines.remove(0)));
    world.wrong(1, 1, LineDefect::Removed);

    edit(&|lines| lines.swap(2, 3));
    world.wrong(3, 4, LineDefect::Reordered);
    edit(&|lines| lines.swap(1, 4));
    world.wrong(2, 5, LineDefect::Reordered);
    edit(&|lines| lines.insert(4, lines[1].clone()));
    world.wrong(5, 2, LineDefect::Reordered);
    edit(&|lines| lines.push(lines[1].clone()));
    world.wrong(7, 2, LineDefect::Reordered);
}

#[test]
fn the_head_reveals_a_cut_end_and_later_appends_do_not_hide_it() {
    let world = World::with(5);
    world.write(&world.text()[..3]);
    assert_eq!(world.ledger_with(None).verify().unwrap().problem, None, "the chain alone cannot tell");
    world.wrong(4, 4, LineDefect::CutTail);
    assert_eq!(world.problem().missing, 2);

    for number in 14..=19 {
        world.append([number]);
    }
    world.wrong(5, 5, LineDefect::Rewritten);
    fs::remove_file(world.head()).unwrap();
    world.append([20]);
    world.good(10);

    fs::remove_file(world.path("ledger.jsonl")).unwrap();
    world.wrong(1, 1, LineDefect::CutTail);
    let world = World::rotated(6, 3);
    fs::remove_file(world.path("ledger.jsonl")).unwrap();
    world.wrong(1, 4, LineDefect::CutTail);
}

#[test]
fn the_last_known_line_is_compared_without_reading_the_others() {
    let world = World::rotated(6, 3);
    let check = || world.ledger().check_end().unwrap();
    assert_eq!(check(), None);
    let head = fs::read(world.head()).unwrap();
    // Others have appended since.
    world.append(7..=9);
    fs::write(world.head(), &head).unwrap();
    assert_eq!(check(), None);
    // What is wrong in earlier files is for `verify`.
    let first = world.path(&world.files()[0]);
    fs::write(&first, fs::read_to_string(&first).unwrap().replace(':', ";")).unwrap();
    assert_eq!(check(), None);

    let with = |edit: &dyn Fn(&mut Vec<String>)| {
        let world = World::with(4);
        let mut changed = world.text();
        edit(&mut changed);
        world.write(&changed);
        world.ledger().check_end().unwrap()
    };
    assert_eq!(with(&|_| ()), None);
    assert_eq!(with(&|lines| drop(lines.pop())), Some(LineDefect::CutTail));
    assert_eq!(with(&Vec::clear), Some(LineDefect::CutTail));
    assert_eq!(
        with(&|lines| lines[3] = lines[3].replace("\"number\":4", "\"number\":5")),
        Some(LineDefect::Rewritten)
    );
    assert_eq!(with(&|lines| lines[3] = "no line".into()), Some(LineDefect::NotALine));
    let gone = World::with(4);
    fs::remove_file(gone.path("ledger.jsonl")).unwrap();
    assert_eq!(gone.ledger().check_end().unwrap(), Some(LineDefect::CutTail));
    // Nothing is remembered.
    assert_eq!(gone.ledger_with(None).check_end().unwrap(), None);
}

#[test]
fn after_a_power_cut_only_flushed_lines_must_be_there() {
    let world = World::new();
    let append = |number: u64, durability| {
        appended(&world.ledger(), &[entry(json!({ "number": number }))], durability);
    };
    for (number, durability) in [
        (1, Durability::Fast),
        (2, Durability::Durable),
        (3, Durability::Durable),
        (4, Durability::Fast),
        (5, Durability::Fast),
    ] {
        append(number, durability);
    }
    let (lines, head) = (world.text(), fs::read_to_string(world.head()).unwrap());
    let other_boot = || {
        let mut record: Value = serde_json::from_str(&head).unwrap();
        record["unflushed"]["boot"] = json!("another");
        fs::write(world.head(), record.to_string()).unwrap();
    };
    for kept in 0..=5 {
        world.write(&lines[..kept]);
        fs::write(world.head(), &head).unwrap();
        let is_cut = world.ledger().verify().unwrap().problem.is_some();
        assert_eq!(is_cut, kept < 5, "{kept} lines in the same boot");
        other_boot();
        let is_cut = world.ledger().verify().unwrap().problem.is_some();
        assert_eq!(is_cut, kept < 3, "{kept} lines after a power cut");
        append(6, Durability::Fast);
        assert_eq!(
            world.ledger().verify().unwrap().problem.is_some(),
            kept < 3,
            "{kept} lines, and one more"
        );
    }
}

#[test]
fn a_head_that_cannot_be_used_does_not_stop_an_append() {
    let world = World::new();
    assert_eq!(world.ledger().verify().unwrap().remembered, None);
    let line = world.append([1, 2]).remove(1);
    let head = Cursor { seq: 2, hash: Digest::of(line.text.as_bytes()) };
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
    nowhere.append(&[entry(json!(5))], Durability::Fast).unwrap();
}

#[test]
fn an_edit_in_a_full_file_is_named_in_that_file() {
    let world = World::rotated(7, 3);
    let path = world.path("ledger-4.jsonl");
    fs::write(&path, fs::read_to_string(&path).unwrap().replace("\"number\":6", "\"number\":9")).unwrap();
    let expected = Problem { file: path, line: 3, seq: 6, missing: 0, wrong: LineDefect::Edited };
    assert_eq!(world.problem(), expected, "though the wrong hash is in the next file");
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
fn verify_waits_for_an_unfinished_write() {
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
fn a_reader_that_may_not_take_the_lock_may_read() {
    let world = World::rotated(5, 3);
    let ledger = Ledger::new(world.folder.path(), &world.path("nowhere/lock"), 1, None);
    assert_eq!(ledger.verify().unwrap().lines, 5);
    assert_eq!(ledger.newest_first().unwrap().count(), 5);
    assert!(ledger.append(&[entry(json!(6))], Durability::Fast).is_err());
}
