//! Following the ledger from a cursor that was kept somewhere else, whatever happened to the files in the meantime.

use super::*;

/// As a reader keeps it while it does not run: as JSON, or as a word.
fn kept(cursor: Cursor) -> Cursor {
    let read: Cursor = serde_json::from_str(&serde_json::to_string(&cursor).unwrap()).unwrap();
    read.to_string().parse().unwrap()
}

fn follower(world: &World, cursor: Cursor) -> Follower {
    world.ledger().follow_from(kept(cursor))
}

#[track_caller]
fn lost(world: &World, cursor: Cursor) -> Lost {
    match next(&mut follower(world, cursor), 1) {
        (lines, Followed::Lost(lost)) if lines.is_empty() => lost,
        found => panic!("found: {found:?}"),
    }
}

/// The numbers of the next lines, and how the look at them ended.
fn next(follower: &mut Follower, most: usize) -> (Vec<u64>, Followed) {
    let mut seqs = Vec::new();
    let followed = follower.advance(most, |line| seqs.push(line.seq)).unwrap();
    (seqs, followed)
}

/// All cursors of a ledger: `cursors[n]` is after line `n`.
fn cursors(world: &World) -> Vec<Cursor> {
    let lines = lines_after(&world.ledger(), 0);
    std::iter::once(Cursor::START).chain(lines.iter().map(Line::cursor)).collect()
}

#[test]
fn every_cursor_leads_to_the_lines_after_it() {
    for world in [World::with(1), World::with(12), World::rotated(12, 3), World::rotated(40, 7)] {
        let cursors = cursors(&world);
        let last = cursors.len() as u64 - 1;
        for (seq, cursor) in (0..).zip(&cursors) {
            let mut follower = follower(&world, *cursor);
            assert_eq!(follower.cursor(), *cursor);
            let expected: Vec<u64> = (seq + 1..=last).collect();
            assert_eq!(next(&mut follower, 100), (expected, Followed::ToTheEnd), "after {seq} of {last}");
            assert_eq!(follower.cursor(), cursors[last as usize]);
            assert_eq!(next(&mut follower, 100), (vec![], Followed::ToTheEnd), "each line once");
        }
    }
}

#[test]
fn an_empty_ledger_is_followed_from_its_start() {
    let world = World::new();
    let mut follower = follower(&world, Cursor::START);
    assert_eq!(next(&mut follower, 9), (vec![], Followed::ToTheEnd));
    world.append([1, 2]);
    assert_eq!(next(&mut follower, 9), (vec![1, 2], Followed::ToTheEnd));
}

#[test]
fn what_is_not_a_cursor_is_refused() {
    let hash = "0".repeat(64);
    assert_eq!(format!("0-{hash}").parse::<Cursor>().unwrap(), Cursor::START);
    for bad in ["", "0", "-", "0-", "x-y", &format!("-1-{hash}"), &format!("1-{hash}0"), "1-\x1b[31m"] {
        let error = bad.parse::<Cursor>().unwrap_err().to_string();
        assert!(!error.contains(char::is_control), "{error:?} is safe to print");
    }
}

#[test]
fn lines_come_in_batches() {
    let world = World::rotated(10, 3);
    let mut follower = follower(&world, cursors(&world)[2]);
    assert_eq!(next(&mut follower, 3), (vec![3, 4, 5], Followed::Further));
    assert_eq!(next(&mut follower, 3), (vec![6, 7, 8], Followed::Further));
    assert_eq!(next(&mut follower, 3), (vec![9, 10], Followed::ToTheEnd));
}

#[test]
fn files_that_become_full_between_two_reads_leave_no_gap() {
    let mut world = World::with(3);
    let (mut reading, at_the_end) = (follower(&world, Cursor::START), *cursors(&world).last().unwrap());
    assert_eq!(next(&mut reading, 2), (vec![1, 2], Followed::Further), "in the middle of the file");
    let mut waiting = follower(&world, at_the_end);
    assert_eq!(next(&mut waiting, 9), (vec![], Followed::ToTheEnd), "at the end of the file");
    // Added before the file is full, and then file after file.
    world.append([4]);
    world.max_size = 1;
    for number in 5..=8 {
        world.append([number]);
    }
    assert_eq!(world.files().len(), 5);
    assert_eq!(next(&mut reading, 99), ((3..=8).collect(), Followed::ToTheEnd));
    assert_eq!(next(&mut waiting, 99), ((4..=8).collect(), Followed::ToTheEnd));
    assert_eq!(next(&mut follower(&world, at_the_end), 99), ((4..=8).collect(), Followed::ToTheEnd));
}

#[test]
fn a_follower_at_the_end_of_a_full_file_waits_for_the_next_file() {
    let world = World::with(3);
    let cursor = *cursors(&world).last().unwrap();
    let mut before = follower(&world, cursor);
    // The writer died between the renaming of the full file and the making of the next.
    fs::rename(world.path("ledger.jsonl"), world.path("ledger-1.jsonl")).unwrap();
    let mut after = follower(&world, cursor);
    for _ in 0..2 {
        assert_eq!(next(&mut before, 9).0, [0; 0]);
        assert_eq!(next(&mut after, 9).0, [0; 0]);
    }
    world.append([4]);
    assert_eq!(next(&mut before, 9).0, [4]);
    assert_eq!(next(&mut after, 9).0, [4]);
}

/// Threads with ledgers of their own append as separate processes do.
fn follow_while_others_append(world: &World, lines: u64) {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let ledger = world.ledger();
            scope.spawn(move || {
                for number in 0..lines / 4 {
                    ledger.append(&[entry(json!({"number": number}))], Durability::Fast).unwrap();
                }
            });
        }
        for most in [1, 7, 500] {
            scope.spawn(move || {
                let mut seqs = Vec::new();
                let mut reader = follower(world, Cursor::START);
                while seqs.last() != Some(&lines) {
                    let followed = reader.advance(most, |line| seqs.push(line.seq)).unwrap();
                    assert!(!matches!(followed, Followed::Lost(_)), "{followed:?} at {:?}", reader.cursor());
                    if most == 7 {
                        // A reader that is started again and again.
                        reader = follower(world, reader.cursor());
                    }
                }
                assert!(seqs.iter().copied().eq(1..=lines), "{most} at once: {seqs:?}");
            });
        }
    });
    world.good(lines);
}

#[test]
fn lines_are_followed_without_a_gap_while_others_append() {
    follow_while_others_append(&World::new(), 800);
}

#[test]
fn lines_are_followed_without_a_gap_while_files_become_full() {
    // About four lines a file, so that the readers meet the change of files hundreds of times.
    let world = World { max_size: 800, ..World::new() };
    follow_while_others_append(&world, 800);
    assert!(world.files().len() > 100, "{} files", world.files().len());
    // One line a file: readers also meet files that are still empty when they are opened.
    follow_while_others_append(&World { max_size: 1, ..World::new() }, 200);
}

#[test]
fn a_torn_tail_is_not_read_and_what_replaces_it_is() {
    let world = World::with(5);
    let whole = world.bytes();
    let cursors = cursors(&world);
    let start_of_last = whole.len() - world.text()[4].len() - 1;
    for cut in start_of_last..whole.len() {
        fs::write(world.path("ledger.jsonl"), &whole[..cut]).unwrap();
        let mut reading = follower(&world, cursors[3]);
        assert_eq!(next(&mut reading, 9).0, [4], "cut at {cut}");
        let mut waiting = follower(&world, cursors[4]);
        assert_eq!(next(&mut waiting, 9).0, [0; 0]);
        let last_known = lost(&world, cursors[5]);
        assert_eq!(last_known, Lost::Cut);
        // Cuts the tail off, says so in line 5 unless nothing was torn, and adds a line.
        world.append([6]);
        let expected: &[u64] = if cut == start_of_last { &[5] } else { &[5, 6] };
        assert_eq!(next(&mut reading, 9).0, expected);
        assert_eq!(next(&mut waiting, 9).0, expected);
    }
}

#[test]
fn a_cursor_whose_line_is_not_there_is_told_so() {
    let world = World::rotated(12, 5);
    let kept = cursors(&world);
    let other = World::new();
    other.append([7]);
    other.append((1..=20).rev());
    for (seq, cursor) in cursors(&other).into_iter().enumerate().skip(1) {
        let expected = if seq > 12 { Lost::Cut } else { Lost::Changed };
        assert_eq!(lost(&world, cursor), expected, "from another ledger, after line {seq}");
    }
    assert_eq!(lost(&World::new(), kept[4]), Lost::Cut);

    let path = world.path("ledger-6.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"number\":8", "\"number\":9")).unwrap();
    assert_eq!(lost(&world, kept[8]), Lost::Changed, "edited");
    assert_eq!(next(&mut follower(&world, kept[9]), 9), (vec![10, 11, 12], Followed::ToTheEnd));
    fs::write(&path, &text).unwrap();

    fs::remove_file(&path).unwrap();
    for cursor in &kept[6..=9] {
        assert_eq!(lost(&world, *cursor), Lost::Changed, "its file was deleted from the middle");
    }
    let mut before_the_gap = follower(&world, kept[4]);
    assert_eq!(next(&mut before_the_gap, 9), (vec![5, 11, 12], Followed::Doubtful));
    fs::remove_file(world.path("ledger-1.jsonl")).unwrap();
    assert_eq!(lost(&world, kept[9]), Lost::Deleted);
    let mut at_the_gap = follower(&world, kept[10]);
    assert_eq!(next(&mut at_the_gap, 9), (vec![11, 12], Followed::ToTheEnd), "the next line vouches for it");
}

#[test]
fn a_follower_whose_place_is_gone_stops_until_it_is_back() {
    let world = World::with(6);
    let whole = world.bytes();
    let mut following = follower(&world, Cursor::START);
    assert_eq!(next(&mut following, 9).0.len(), 6);
    world.write(&world.text()[..3]);
    let cut = Followed::Lost(Lost::Cut);
    assert_eq!(next(&mut following, 9), (vec![], cut));
    world.append([14, 15, 16, 17]);
    assert_eq!(next(&mut following, 9), (vec![], Followed::Lost(Lost::Changed)), "not a silent restart");
    fs::write(world.path("ledger.jsonl"), &whole).unwrap();
    world.append([7]);
    assert_eq!(next(&mut following, 9).0, [7]);
}

#[test]
fn damaged_lines_beside_the_place_do_not_hide_it() {
    let world = World::with(9);
    let cursors = cursors(&world);
    let mut lines = world.text();
    lines[4] = "x".repeat(40_000);
    world.write(&lines);
    assert_eq!(next(&mut follower(&world, cursors[4]), 9), (vec![6, 7, 8, 9], Followed::Doubtful));
    assert_eq!(next(&mut follower(&world, cursors[6]), 9), (vec![7, 8, 9], Followed::ToTheEnd));
    assert_eq!(lost(&world, cursors[5]), Lost::Changed);
}

/// Bounded: a few blocks around the places that the bisection looks at, not the whole file.
#[test]
fn the_place_is_found_without_reading_the_whole_file() {
    let world = World::with(20_000);
    let size = world.bytes().len() as u64;
    let cursor = world.ledger().newest_before(10_001).unwrap().next().unwrap().unwrap().cursor();
    let read = || {
        let io = fs::read_to_string("/proc/thread-self/io").unwrap();
        io.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse::<u64>().ok()).unwrap()
    };
    let before = read();
    let mut follower = follower(&world, cursor);
    assert_eq!(next(&mut follower, 1), (vec![10_001], Followed::Further));
    assert!(read() - before < size / 8, "{} of {size} bytes", read() - before);
}
