//! Turns that several processes share: what they know, what a crash leaves, whose folders are trusted.

use super::*;
use crate::stripe_lock::stripe;
use crate::turn::{Extent, FileState};

fn state(text: &str) -> FileState {
    FileState::Present(Digest::of(text.as_bytes()))
}

fn path(name: &str) -> FilePath {
    FilePath::trusted(Path::new("/w").join(name))
}

fn turns() -> (tempfile::TempDir, SharedTurns) {
    let keep = tempfile::tempdir().unwrap();
    let turns = SharedTurns::new(keep.path().join("run")).unwrap();
    (keep, turns)
}

fn begin(turns: &SharedTurns, id: &str) -> SharedTurn {
    begin_leaving(turns, id, Leaves::Nothing)
}

fn begin_leaving(turns: &SharedTurns, id: &str, leaves: Leaves) -> SharedTurn {
    turns.begin(id.parse().unwrap(), "blue".parse().unwrap(), Timestamp::now(), leaves).unwrap()
}

#[test]
fn processes_share_what_a_turn_knows() {
    let (_keep, turns) = turns();
    let first = begin(&turns, "t1");
    first.observe(&path("a"), state("one"), Extent::Whole).unwrap();
    first.observe(&path("b\nc"), FileState::Absent, Extent::Whole).unwrap();
    first.observe(&path("u"), FileState::Unreadable, Extent::Whole).unwrap();
    let second = turns.open(&"t1".parse().unwrap()).unwrap();
    second.refused(&path("a")).unwrap();
    second.observe(&path("a"), state("two"), Extent::Part).unwrap();
    let sighting = first.get(&path("a")).unwrap().unwrap();
    assert_eq!(sighting.initial(), state("one").digest());
    assert_eq!(sighting.baseline(Extent::Whole), state("one"));
    assert_eq!(sighting.baseline(Extent::Part), state("two"));
    assert_eq!(first.get(&path("b\nc")).unwrap(), Some(Sighting::new(FileState::Absent)));
    assert_eq!(first.get(&path("u")).unwrap(), Some(Sighting::new(FileState::Unreadable)));
    assert_eq!(first.files().unwrap().len(), 3);
    let wanted = first.files_where(|path| !path.ends_with("a")).unwrap();
    assert_eq!(wanted, [path("b\nc"), path("u")]);
    assert_eq!(first.get(&path("b")).unwrap(), None);
}

#[test]
fn a_turn_leaves_nothing_or_what_the_agent_knew_whether_it_has_ended_or_not() {
    let (keep, turns) = turns();
    let known = |turn: &SharedTurn| turn.known(&[], &path("a")).unwrap();
    let turn = begin(&turns, "t1");
    turn.observe(&path("a"), state("one"), Extent::Whole).unwrap();
    turns.end(turn).unwrap();
    assert!(turns.open(&"t1".parse().unwrap()).is_err());
    assert_eq!(fs::read_dir(keep.path().join("run/turns")).unwrap().count(), 0);
    let first = begin_leaving(&turns, "t2", Leaves::Known);
    assert_eq!(known(&first), None);
    first.observe(&path("a"), state("one"), Extent::Whole).unwrap();
    let second = begin_leaving(&turns, "t3", Leaves::Known);
    assert_eq!(known(&second), Some(state("one")), "the first turn has not ended");
    first.wrote(&path("a"), state("two")).unwrap();
    first.set_lead(Path::new("/w/link"), &path("a")).unwrap();
    turns.end(first).unwrap();
    assert_eq!(second.get(&path("a")).unwrap(), None);
    assert_eq!(known(&second), Some(state("two")));
    let names = [PathBuf::from("/w/link")];
    assert_eq!(second.known(&names, &path("b")).unwrap(), Some(state("two")), "the link led to `a`");
    assert_eq!(known(&begin(&turns, "t4")), None, "a turn that leaves nothing learns nothing");
}

#[test]
fn a_stamp_is_found_only_if_all_of_it_is_the_same() {
    let (_keep, turns) = turns();
    let turn = begin(&turns, "t1");
    let stamp = Stamp { device: 1, inode: 2, size: 3, modified: 4, changed: 5 };
    let digest = Digest::of(b"x");
    turn.keep_stamp(&path("a"), &Stamp { changed: 4, ..stamp }, Digest::of(b"y")).unwrap();
    turn.keep_stamp(&path("a"), &stamp, digest).unwrap();
    assert_eq!(turn.stamped(&path("a"), &stamp).unwrap(), Some(digest));
    assert_eq!(turn.stamped(&path("b"), &stamp).unwrap(), None);
    let later = Stamp { changed: 55, ..stamp };
    assert_eq!(turn.stamped(&path("a"), &later).unwrap(), None);
    assert_eq!(turn.stamped(&path("a"), &Stamp { size: 33, ..stamp }).unwrap(), None);
}

#[test]
fn concurrent_updates_are_all_kept() {
    let (_keep, turns) = turns();
    begin(&turns, "t1");
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let turns = &turns;
            scope.spawn(move || {
                let turn = turns.open(&"t1".parse().unwrap()).unwrap();
                for index in 0..100 {
                    let name = path(&format!("{worker}-{index}"));
                    turn.observe(&name, state("x"), Extent::Whole).unwrap();
                    turn.wrote(&name, state("y")).unwrap();
                }
            });
        }
    });
    let files = turns.open(&"t1".parse().unwrap()).unwrap().files().unwrap();
    assert_eq!(files.len(), 800);
    assert!(files.iter().all(|(_, sighting)| sighting.initial() == state("x").digest()));
    assert!(files.iter().all(|(_, sighting)| sighting.baseline(Extent::Whole) == state("y")));
}

#[test]
fn an_unfinished_line_is_ignored_and_overwritten() {
    let (keep, turns) = turns();
    let turn = begin(&turns, "t1");
    turn.observe(&path("a"), state("one"), Extent::Whole).unwrap();
    let shard = keep.path().join("run/turns/t1/files").join(format!("{:02x}", stripe(path("a").as_path())));
    let whole = fs::read(&shard).unwrap();
    for length in 0..whole.len() {
        fs::write(&shard, &whole[..length]).unwrap();
        assert_eq!(turn.get(&path("a")).unwrap(), None, "cut at {length}");
        turn.observe(&path("a"), state("two"), Extent::Whole).unwrap();
        assert_eq!(
            turn.get(&path("a")).unwrap().unwrap().initial(),
            state("two").digest(),
            "cut at {length}"
        );
    }
}

#[test]
fn texts_are_kept_up_to_a_limit() {
    let (_keep, turns) = turns();
    let turn = begin(&turns, "t1");
    turn.keep_text(Digest::of(b"x"), b"x").unwrap();
    assert_eq!(turn.text(Digest::of(b"x")).unwrap().as_deref(), Some(b"x".as_slice()));
    assert_eq!(turn.text(Digest::of(b"y")).unwrap(), None);
    assert!(!turn.reserve_text(TEXT_PER_TURN).unwrap());
    assert!(turn.reserve_text(TEXT_PER_TURN - 1).unwrap());
    turn.keep_text(Digest::of(b"z"), b"z").unwrap();
    assert_eq!(turn.text(Digest::of(b"z")).unwrap(), None);
}

#[test]
fn a_folder_open_to_others_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let keep = tempfile::tempdir().unwrap();
    let folder = keep.path().join("run");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(SharedTurns::new(folder.clone()).is_err());
    fs::remove_dir(&folder).unwrap();
    std::os::unix::fs::symlink(keep.path(), &folder).unwrap();
    assert!(SharedTurns::new(folder).is_err());
}

/// Begins another turn, which deletes forgotten ones.
fn begin_another(turns: &SharedTurns, now: Timestamp) {
    turns.begin("another".parse().unwrap(), "blue".parse().unwrap(), now, Leaves::Nothing).unwrap();
}

/// Sets the time of the last change of a file, or of a folder and everything in it.
fn set_times(path: &Path, time: Timestamp) {
    if path.is_dir() {
        names_in(path).unwrap().iter().for_each(|name| set_times(&path.join(name), time));
    }
    File::open(path).unwrap().set_modified(time.into()).unwrap();
}

#[test]
fn forgotten_turns_are_deleted() {
    let (_keep, turns) = turns();
    let turn = begin(&turns, "t1");
    turn.observe(&path("a"), state("one"), Extent::Whole).unwrap();
    begin_another(&turns, Timestamp::now() + FORGOTTEN + Duration::from_secs(60));
    assert!(turns.open(&"t1".parse().unwrap()).is_err());
}

/// A line that is rewritten in place changes the times of its file only, and not those of the folders above it.
#[test]
fn a_turn_is_used_as_long_as_anything_in_it_is_written() {
    let (keep, turns) = turns();
    let turn = begin(&turns, "t1");
    turn.observe(&path("a"), state("one"), Extent::Whole).unwrap();
    set_times(&keep.path().join("run"), Timestamp::now() - 2 * FORGOTTEN);
    turn.wrote(&path("a"), state("two")).unwrap();
    begin_another(&turns, Timestamp::now());
    assert!(turns.open(&"t1".parse().unwrap()).is_ok());
}

#[test]
fn a_clock_that_was_set_back_deletes_no_turn() {
    let (_keep, turns) = turns();
    begin(&turns, "t1");
    begin_another(&turns, Timestamp::now() - 2 * FORGOTTEN);
    assert!(turns.open(&"t1".parse().unwrap()).is_ok());
}

#[test]
fn an_agent_is_alone_while_only_commands_of_its_session_run() {
    let (_keep, turns) = turns();
    let turn_of = |id: &str, agent: &str| {
        turns.begin(id.parse().unwrap(), agent.parse().unwrap(), Timestamp::now(), Leaves::Nothing).unwrap()
    };
    let (blue, sub, red) = (turn_of("t1", "blue"), turn_of("t2", "blue.3f9a1c"), turn_of("t3", "red"));
    let second = |second| Timestamp::from_second(second).unwrap();
    let alone = |turn: &SharedTurn, at: i64| turn.ran_alone_at(second(at).as_nanosecond()).unwrap();
    assert!(!alone(&blue, 5), "no command has run");
    blue.ran(second(10), second(20)).unwrap();
    blue.ran(second(30), second(40)).unwrap();
    red.ran(second(35), second(50)).unwrap();
    let ran: Vec<i64> = (0..60).filter(|at| alone(&blue, *at)).collect();
    assert_eq!(ran, (10..=20).chain(30..35).collect::<Vec<_>>(), "until red's command began");
    assert!(alone(&sub, 15), "another agent of the session");
    assert!(!alone(&red, 15) && !alone(&red, 38) && alone(&red, 45));
    // The list does not grow without limit.
    for number in 0..3_000 {
        blue.ran(second(1_000 + number), second(1_000 + number)).unwrap();
    }
    let times = blue.commands().join("blue").join(TIMES);
    assert!(fs::metadata(times).unwrap().len() < 2 * COMMANDS as u64);
    assert!(alone(&blue, 3_999) && !alone(&blue, 15));
}
