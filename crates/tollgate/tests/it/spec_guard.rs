//! The guard refuses stale writes, and no others.

use std::fs;
use std::time::{Duration, Instant};

use tollgate::digest::Digest;
use tollgate::guard::{Action, Change, Expected};
use tollgate::refusal::ErrorType;

use crate::world::World;

#[test]
fn a_stale_write_is_blocked_and_the_foreign_bytes_stay() {
    let world = World::new();
    world.outsider_writes("file_a.txt", "H1");
    let agent = world.agent("blue");
    agent.reads("file_a.txt");
    world.outsider_writes("file_a.txt", "H2");
    agent.writes("file_a.txt", "mine").refused_stale();
    world.holds("file_a.txt", "H2");
}

#[test]
fn an_unmodified_file_is_written() {
    let world = World::new();
    world.outsider_writes("file_b.txt", "H3");
    let agent = world.agent("blue");
    agent.reads("file_b.txt").writes("file_b.txt", "mine").done();
    world.holds("file_b.txt", "mine");
    agent.writes("file_b.txt", "mine again").done();
    world.holds("file_b.txt", "mine again");
}

#[test]
fn after_a_refusal_a_re_read_allows_the_next_write_until_the_file_changes_again() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let agent = world.agent("blue");
    agent.reads("a");
    world.outsider_writes("a", "two");
    agent.writes("a", "x").refused_stale();
    agent.writes("a", "x").refused_stale();
    agent.reads("a").writes("a", "three").done();
    world.outsider_writes("a", "four");
    agent.writes("a", "x").refused_stale();
    world.holds("a", "four");
}

#[test]
fn after_a_refusal_a_partial_read_allows_edits_but_not_an_overwrite() {
    let world = World::new();
    world.outsider_writes("a", "one\ntwo\n");
    let agent = world.agent("blue");
    agent.reads("a");
    world.outsider_writes("a", "one\nTWO\n");
    agent.edits("a", "one", "1").refused_stale();
    agent.reads_line("a", 2).writes("a", "all new").refused_stale();
    agent.edits("a", "TWO", "2").done();
    world.holds("a", "one\n2\n");
    agent.writes("a", "all new").done();
}

#[test]
fn a_partial_read_is_enough_as_a_first_read() {
    let world = World::new();
    world.outsider_writes("a", "one\ntwo\n");
    let agent = world.agent("blue");
    agent.reads_line("a", 1).writes("a", "new").done();
    world.holds("a", "new");
}

#[test]
fn a_change_that_keeps_size_and_time_stamp_is_noticed() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let path = world.root().join("a");
    let agent = world.agent("blue");
    agent.reads("a");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    world.outsider_writes("a", "two");
    fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    agent.writes("a", "x").refused_stale();
    world.holds("a", "two");
}

#[test]
fn a_touch_or_a_rewrite_of_the_same_bytes_is_not_a_conflict() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let path = world.root().join("a");
    let agent = world.agent("blue");
    agent.reads("a");
    let later = std::time::SystemTime::now() + Duration::from_secs(9);
    fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
    agent.writes("a", "two").done();
    world.outsider_writes("a", "two");
    agent.writes("a", "three").done();
    world.outsider_writes("tmp", "three");
    fs::rename(world.root().join("tmp"), &path).unwrap();
    agent.writes("a", "four").done();
}

#[test]
fn a_deleted_target_is_stale_and_says_so() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let agent = world.agent("blue");
    agent.reads("a");
    world.outsider_removes("a");
    for refused in [agent.writes("a", "x").refused_stale(), agent.edits("a", "one", "x").refused_stale()] {
        assert_eq!(refused.payload().actual_hash, None);
        assert_eq!(refused.reports()[0].message, "Target missing. Re-read required.");
    }
    assert!(!world.root().join("a").exists());
    agent.misses("a").writes("a", "again").done();
}

/// As some editors save: the old file is moved away, and a moment later the new one is written. If that took longer than the
/// guard waits, on a busy machine, the round does not count.
#[test]
fn a_file_that_an_editor_moves_away_for_a_moment_is_not_called_deleted() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let (path, away) = (world.root().join("a"), world.root().join("a~"));
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        assert!(Instant::now() < end, "the editor was never fast enough");
        world.outsider_writes("a", "one");
        let agent = world.agent("blue");
        agent.reads("a");
        let moved = Instant::now();
        fs::rename(&path, &away).unwrap();
        let took = std::thread::scope(|scope| {
            let editor = scope.spawn(|| {
                // The editor works; nobody waits for this.
                std::thread::sleep(Duration::from_millis(50));
                fs::rename(&away, &path).unwrap();
                moved.elapsed()
            });
            agent.writes("a", "two");
            editor.join().unwrap()
        });
        if took < Duration::from_millis(150) {
            agent.done();
            world.holds("a", "two");
            return;
        }
    }
}

#[test]
fn a_deleted_folder_is_a_deleted_target() {
    let world = World::new();
    world.outsider_writes("deep/er/a", "one");
    let agent = world.agent("blue");
    agent.reads("deep/er/a");
    fs::remove_dir_all(world.root().join("deep")).unwrap();
    agent.writes("deep/er/a", "x").refused_stale();
    assert!(!world.root().join("deep").exists());
}

#[test]
fn reading_alone_checks_nothing_and_writes_no_line() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let agent = world.agent("blue");
    agent.reads("a");
    world.outsider_writes("a", "two");
    agent.reads("a");
    let kinds: Vec<_> = world.ledger().into_iter().map(|line| line["action_type"].clone()).collect();
    assert_eq!(kinds, ["TURN_STARTED"]);
}

#[test]
fn a_directory_is_not_a_file() {
    let world = World::new();
    fs::create_dir(world.root().join("folder")).unwrap();
    let agent = world.agent("blue");
    agent.writes("folder", "x").refused(ErrorType::NotAFile);
    agent.writes("", "x").refused(ErrorType::NotAFile);
    agent.deletes("folder").refused(ErrorType::NotAFile);
    assert!(world.root().join("folder").is_dir());
}

#[test]
fn an_explicit_expectation_overrides_the_baseline() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let agent = world.agent("blue");
    let one = Expected::Hash(Digest::of(b"one"));
    agent.writes_expecting("a", "two", one).done();
    agent.writes_expecting("a", "three", one).refused_stale();
    world.holds("a", "two");
    agent.writes_expecting("a", "x", Expected::Absent).refused_stale();
    agent.writes_expecting("b", "x", Expected::Absent).done();
    agent.writes_expecting("c", "x", one).refused_stale();
}

/// The fastest of many writes, because the machine may be busy.
#[test]
fn a_write_of_a_mebibyte_takes_less_than_50_ms() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let agent = world.agent("blue");
    agent.reads("a");
    let time = |number: u8| {
        let text = vec![number; 1 << 20];
        let start = Instant::now();
        world.gate.write(&agent.turn, "a", text, Expected::Baseline).unwrap().into_result().unwrap();
        start.elapsed()
    };
    let fastest = (0..100).map(time).find(|time| *time < Duration::from_millis(50));
    assert!(fastest.is_some());
}

#[test]
fn create_never_overwrites() {
    let world = World::new();
    let agent = world.agent("blue");
    agent.creates("new/deep/a", "one").done();
    world.holds("new/deep/a", "one");
    agent.creates("new/deep/a", "two").refused_stale();
    let _open = fs::File::options().append(true).open(world.root().join("new/deep/a")).unwrap();
    agent.creates("new/deep/a", "two").refused_stale();
    world.holds("new/deep/a", "one");
}

#[test]
fn delete_and_move_are_guarded_like_writes() {
    let world = World::new();
    world.outsider_writes("a", "one");
    world.outsider_writes("taken", "mine");
    let agent = world.agent("blue");
    agent.reads("a");
    world.outsider_writes("a", "two");
    agent.deletes("a").refused_stale();
    agent.moves("a", "b").refused_stale();
    world.holds("a", "two");
    let refused = agent.reads("a").moves("a", "taken").refused_stale();
    assert_eq!(refused.payload().file_path, world.root().join("taken").display().to_string());
    world.holds("taken", "mine");
    fs::create_dir(world.root().join("folder")).unwrap();
    agent.moves("a", "folder").refused(ErrorType::NotAFile);
    agent.moves("a", "deep/b").done();
    world.holds("deep/b", "two");
    assert!(!world.root().join("a").exists());
    agent.writes("deep/b", "three").done();
    agent.deletes("deep/b").done();
    assert!(!world.root().join("deep/b").exists());
    agent.writes("deep/b", "four").done();
}

#[test]
fn every_change_is_one_line_and_every_refusal_is_one_line() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let agent = world.agent("blue");
    agent.reads("a").writes("a", "two").done();
    world.outsider_writes("a", "three");
    agent.writes("a", "x").refused_stale();
    agent.writes("../out", "x").refused(ErrorType::OutsideWorkspace);
    agent.reads("a").edits("a", "three", "four").done();
    agent.moves("a", "b").done();
    agent.deletes("b").done();
    let kinds: Vec<_> = world.ledger().into_iter().map(|line| line["action_type"].clone()).collect();
    let wanted = [
        "TURN_STARTED",
        "MUTATION",
        "MUTATION_CONFLICT",
        "MUTATION_REFUSED",
        "MUTATION",
        "MUTATION",
        "MUTATION",
    ];
    assert_eq!(kinds, wanted);
    let line = world.lines_of("MUTATION").remove(0);
    assert_eq!(line["payload"]["hash_before"], format!("sha256:{}", Digest::of(b"one")));
    assert_eq!(line["payload"]["hash_after"], format!("sha256:{}", Digest::of(b"two")));
    assert_eq!(line["payload"]["guarantee"], "full");
    assert_eq!(line["result"], serde_json::json!({"status": "APPLIED"}));
    assert!(world.gate.workspace().ledger().verify().unwrap().problem.is_none());
}

#[test]
fn several_edits_are_one_change() {
    let world = World::new();
    world.outsider_writes("a", "one two three");
    let agent = world.agent("blue");
    agent.reads("a");
    let edits = vec![tollgate::edit::Edit::once("one", "1"), tollgate::edit::Edit::once("nowhere", "2")];
    agent.applies(vec![Change::new("a", Action::Edit(edits))]).refused(ErrorType::TextNotFound);
    world.holds("a", "one two three");
    let edits = vec![tollgate::edit::Edit::once("one", "1"), tollgate::edit::Edit::once("three", "3")];
    agent.applies(vec![Change::new("a", Action::Edit(edits))]).done();
    world.holds("a", "1 two 3");
    assert_eq!(world.lines_of("MUTATION").len(), 1);
}

#[test]
fn the_refusal_says_who_changed_the_file_and_how() {
    let world = World::new();
    world.outsider_writes("a", "one\ntwo\nthree\n");
    let (blue, red) = (world.agent("blue"), world.agent("red"));
    blue.reads("a");
    red.reads("a").writes("a", "one\nTWO\nthree\n").done();
    let refused = blue.writes("a", "x").refused_stale();
    let tollgate::refusal::Reason::Stale(stale) = &refused.refusals()[0].reason else { panic!() };
    assert_eq!(stale.changed_by.as_ref().unwrap().agent.as_str(), "red");
    assert!(stale.diff.as_ref().unwrap().contains("-two\n+TWO\n"));
    blue.reads("a").writes("a", "one\nmine\n").done();
    world.outsider_writes("a", "stranger");
    let refused = blue.writes("a", "x").refused_stale();
    let tollgate::refusal::Reason::Stale(stale) = &refused.refusals()[0].reason else { panic!() };
    assert_eq!(stale.changed_by, None, "the ledger does not know outsiders");
    assert!(stale.diff.as_ref().unwrap().contains("-mine"), "the agent knows the bytes that it wrote");
}
