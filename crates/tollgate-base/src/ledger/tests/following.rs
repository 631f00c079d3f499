//! Pages of the ledger, and following it while it grows, is rotated, or is meddled with.

use super::*;

fn all_pages(ledger: &Ledger, count: usize) -> Vec<u64> {
    let (mut seqs, mut before) = (Vec::new(), None);
    loop {
        let page = ledger.page(count, before, |_| true).unwrap();
        assert!(page.lines.len() <= count);
        seqs.extend(page.lines.iter().map(|line| line.seq));
        match page.older {
            Some(_) => before = page.older,
            None => return seqs,
        }
    }
}

#[test]
fn pages_give_every_line_once_however_many_files_there_are() {
    for (lines, per_file) in [(0, 1), (1, 1), (7, 3), (300, 1000), (300, 40)] {
        let world = if lines == 0 { World::new() } else { World::rotated(lines, per_file) };
        for count in [1, 7, 1000] {
            assert_eq!(all_pages(&world.ledger(), count), descending(lines), "{lines} {per_file} {count}");
        }
    }
}

#[test]
fn the_lines_before_any_number_are_found() {
    for world in [World::rotated(400, 1000), World::rotated(400, 90)] {
        let ledger = world.ledger();
        for before in [1, 2, 3, 89, 90, 91, 92, 180, 181, 250, 399, 400, 401, 402, 10_000] {
            let newest = ledger.page(1, Some(before), |_| true).unwrap();
            let expected = (before > 1).then(|| (before - 1).min(400));
            assert_eq!(newest.lines.first().map(|line| line.seq), expected, "before {before}");
        }
    }
}

#[test]
fn wanted_lines_are_found_and_a_long_search_goes_on_in_the_next_page() {
    let world = World::with(12_000);
    let ledger = world.ledger();
    let wanted = |line: &Line| payload(line)["number"] == 3;
    let (mut before, mut found, mut asked) = (None, Vec::new(), 0);
    loop {
        let page = ledger.page(10, before, wanted).unwrap();
        asked += 1;
        found.extend(page.lines);
        before = page.older;
        if before.is_none() {
            break;
        }
    }
    assert_eq!((found.len(), found[0].seq, asked), (1, 3, 3), "5,000 lines at a time");
}

#[test]
fn damaged_lines_are_counted_and_passed_over() {
    let world = World::with(60);
    let mut lines = world.text();
    lines[30] = "not a line".into();
    world.write(&lines);
    let page = world.ledger().page(1000, None, |_| true).unwrap();
    assert_eq!((page.lines.len(), page.damaged, page.older), (59, 1, None));
    for before in 2..=60 {
        let page = world.ledger().page(1, Some(before), |_| true).unwrap();
        let expected = if before == 32 { 30 } else { before - 1 };
        assert_eq!(page.lines[0].seq, expected);
    }
}

struct Following {
    follower: Follower,
    seqs: Vec<u64>,
}

impl Following {
    fn new(world: &World) -> Self {
        Self { follower: world.ledger().follow(), seqs: Vec::new() }
    }

    fn goes_on(&mut self) -> Followed {
        loop {
            match self.follower.advance(10, |line| self.seqs.push(line.seq)).unwrap() {
                Followed::Further => {}
                ended => return ended,
            }
        }
    }
}

#[test]
fn every_line_is_followed_once_through_all_files() {
    let mut world = World::new();
    let mut following = Following::new(&world);
    assert_eq!(following.goes_on(), Followed::ToTheEnd);
    for number in 1..=200_u64 {
        world.max_size = if number.is_multiple_of(30) { 1 } else { 1 << 20 };
        world.append([number]);
        if number.is_multiple_of(7) || number > 150 {
            assert_eq!(following.goes_on(), Followed::ToTheEnd, "{number}");
            assert_eq!(following.seqs, (1..=number).collect::<Vec<_>>());
        }
    }
    let mut late = Following::new(&world);
    assert_eq!(late.goes_on(), Followed::ToTheEnd);
    assert_eq!(late.seqs, (1..=200).collect::<Vec<_>>());
    assert_eq!(late.follower.cursor(), following.follower.cursor());
}

#[test]
fn half_a_line_is_not_a_line_yet() {
    let world = World::with(3);
    let mut following = Following::new(&world);
    let whole = world.bytes();
    for cut in whole.len() - 20..whole.len() {
        fs::write(world.path("ledger.jsonl"), &whole[..cut]).unwrap();
        let mut young = Following::new(&world);
        young.goes_on();
        assert_eq!(young.seqs, [1, 2]);
    }
    fs::write(world.path("ledger.jsonl"), &whole).unwrap();
    following.goes_on();
    assert_eq!(following.seqs, [1, 2, 3]);
}

#[test]
fn a_follower_notices_that_the_file_was_changed() {
    let meddle = |how: fn(&World)| {
        let world = World::rotated(20, 15);
        let mut following = Following::new(&world);
        assert_eq!(following.goes_on(), Followed::ToTheEnd);
        how(&world);
        let answer = following.goes_on();
        assert!(following.seqs.is_sorted_by(|a, b| a < b), "no line twice: {:?}", following.seqs);
        answer
    };
    let edited = |world: &World| {
        let text = String::from_utf8(world.bytes()).unwrap().replace("\"number\":17", "\"number\":71");
        // In place, as an editor without a backup does.
        fs::write(world.path("ledger.jsonl"), text).unwrap();
    };
    let replaced = |world: &World| {
        let bytes = world.bytes();
        fs::write(world.path("copy"), bytes).unwrap();
        fs::rename(world.path("copy"), world.path("ledger.jsonl")).unwrap();
    };
    let cut = |world: &World| {
        let lines = world.text();
        world.write(&lines[..2]);
    };
    let gone = |world: &World| fs::remove_file(world.path("ledger.jsonl")).unwrap();
    assert_eq!(meddle(edited), Followed::Doubtful);
    assert_eq!(meddle(replaced), Followed::Doubtful);
    assert_eq!(meddle(cut), Followed::Lost(Lost::Cut));
    assert_eq!(meddle(gone), Followed::Lost(Lost::Cut));
    assert_eq!(meddle(|world| drop(world.append([21]))), Followed::ToTheEnd);
}

#[test]
fn a_new_follower_doubts_a_ledger_that_is_not_whole() {
    let world = World::with(20);
    let lines = world.text();
    let mut without = lines.clone();
    without.remove(7);
    let mut edited = lines.clone();
    edited[7] = edited[7].replace("blue", "grey");
    for bad in [&without, &edited, &lines[..19].to_vec(), &vec!["{}".to_owned()]] {
        world.write(bad);
        let mut following = Following::new(&world);
        assert_eq!(following.goes_on(), Followed::Doubtful);
        assert!(world.ledger().verify().unwrap().problem.is_some());
    }
    world.write(&lines);
    assert_eq!(Following::new(&world).goes_on(), Followed::ToTheEnd);
}
