//! A ledger with any bytes in it is read, verified and continued without a panic.

use tollgate_fuzz::fuzz;

use super::*;

#[test]
fn mutated_lines_are_read_and_verified_without_a_panic() {
    let examples: Vec<Vec<u8>> =
        [1, 3, 20].map(|lines| fs::read(World::with(lines).path("ledger.jsonl")).unwrap()).into();
    let world = World::new();
    fuzz("ledger", &examples, |bytes| {
        fs::write(world.path("ledger.jsonl"), bytes).unwrap();
        let _ = fs::remove_file(world.path("figures.json"));
        let ledger = world.ledger_with(None);
        let read = ledger.newest_first().map(|lines| lines.take(100).filter(Result::is_ok).count());
        let _ = (read, ledger.verify(), ledger.tallies());
        let _ = ledger.follow_from(Cursor::START).advance(100, |line| drop(line.json()));
        for line in bytes.split(|byte| *byte == b'\n') {
            let _ = Line::parse(line).map(|line| line.cursor().to_string().parse::<Cursor>().unwrap());
        }
    });
}

#[test]
fn a_line_with_the_largest_number_is_doubtful() {
    let world = World::with(3);
    let text = fs::read_to_string(world.path("ledger.jsonl")).unwrap();
    fs::write(world.path("ledger.jsonl"), text.replacen("\"seq\":2,", &format!("\"seq\":{},", u64::MAX), 1))
        .unwrap();
    let followed = world.ledger_with(None).follow_from(Cursor::START).advance(100, drop).unwrap();
    assert!(matches!(followed, Followed::Doubtful), "{followed:?}");
}
