//! The turn: what an agent saw first, and what it knows now.

use std::time::Instant;

use tollgate::digest::Digest;
use tollgate::part::Part;
use tollgate::path::FilePath;
use tollgate::shared_turn::SharedTurns;
use tollgate::turn::{Extent, FileState, Session, Turn, TurnState};

use crate::world::{Agent, World, as_ordinary_user};

fn initial(agent: &Agent<'_>, path: &str) -> Option<Digest> {
    agent.world.gate.get_initial_hash(&agent.turn, path).unwrap()
}

#[test]
fn the_first_read_stores_the_hash_and_it_is_returned_exactly() {
    let world = World::new();
    world.outsider_writes("file_a.ts", "let a = 1");
    let agent = world.agent("blue");
    assert_eq!(initial(&agent, "file_a.ts"), None);
    let (_, sha256) = agent.read("file_a.ts", Part::Whole);
    assert_eq!(sha256, Digest::of(b"let a = 1"));
    assert_eq!(initial(&agent, "file_a.ts"), Some(sha256));
}

#[test]
fn the_initial_hash_survives_foreign_changes_re_reads_own_writes_and_deletion() {
    let world = World::new();
    world.outsider_writes("file_b.ts", "one");
    let agent = world.agent("blue");
    agent.reads("file_b.ts");
    let first = Some(Digest::of(b"one"));
    world.outsider_writes("file_b.ts", "two");
    assert_eq!(initial(&agent, "file_b.ts"), first);
    agent.reads("file_b.ts");
    assert_eq!(initial(&agent, "file_b.ts"), first, "a second read does not change it");
    agent.writes("file_b.ts", "three").done();
    assert_eq!(initial(&agent, "file_b.ts"), first);
    world.outsider_removes("file_b.ts");
    assert_eq!(initial(&agent, "file_b.ts"), first);
}

#[test]
fn every_spelling_of_a_path_is_the_same_file_even_after_its_deletion() {
    let world = World::new();
    world.outsider_writes("src/a.rs", "one");
    std::os::unix::fs::symlink("src", world.root().join("link")).unwrap();
    let agent = world.agent("blue");
    agent.reads("link/../src/./a.rs");
    let first = Some(Digest::of(b"one"));
    let absolute = world.root().join("src/a.rs");
    for spelling in ["src/a.rs", "link/a.rs", "./src//a.rs", absolute.to_str().unwrap()] {
        assert_eq!(initial(&agent, spelling), first, "{spelling}");
    }
    world.outsider_removes("src/a.rs");
    assert_eq!(initial(&agent, "link/a.rs"), first);
    assert_eq!(agent.turn.files().len(), 1);
}

#[test]
fn a_new_turn_knows_nothing_until_it_reads() {
    let world = World::new();
    world.outsider_writes("a", "one");
    // The session remembers. The turn does not.
    let session = Session::default();
    let first = world.agent_in("blue", session.clone());
    first.reads("a");
    world.gate.end_turn(first.turn).unwrap();
    let second = world.agent_in("blue", session);
    assert_eq!(initial(&second, "a"), None);
    assert!(second.turn.files().is_empty());
    world.outsider_writes("a", "two");
    second.reads("a");
    assert_eq!(initial(&second, "a"), Some(Digest::of(b"two")));
}

#[test]
fn an_empty_file_has_the_hash_of_no_bytes() {
    let world = World::new();
    world.outsider_writes("empty", "");
    let agent = world.agent("blue");
    agent.reads("empty");
    assert_eq!(initial(&agent, "empty"), Some(Digest::of(b"")));
    agent.writes("empty", "full").done();
}

#[test]
fn an_unreadable_file_is_a_sighting_without_a_hash_and_the_turn_continues() {
    as_ordinary_user(
        "spec_turn::an_unreadable_file_is_a_sighting_without_a_hash_and_the_turn_continues",
        || {
            use std::os::unix::fs::PermissionsExt;
            let world = World::new();
            world.outsider_writes("secret", "x");
            let path = world.root().join("secret");
            let allow =
                |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            allow(0o200);
            let agent = world.agent("blue");
            let fault = world.gate.read(&agent.turn, "secret", Part::Whole).unwrap_err();
            assert_eq!(fault.code(), "NO_PERMISSION");
            assert_eq!(initial(&agent, "secret"), None);
            agent.writes("secret", "y").refused(tollgate::refusal::ErrorType::UnreadableFile);
            agent.creates("other", "the turn goes on").done();
            allow(0o600);
            // The agent has still not seen its bytes.
            agent.writes("secret", "y").refused(tollgate::refusal::ErrorType::UnreadableFile);
            agent.reads("secret").writes("secret", "y").done();
        },
    );
}

#[test]
fn the_initial_hash_is_that_of_the_first_successful_read() {
    let world = World::new();
    world.outsider_writes("b", "one");
    let agent = world.agent("blue");
    agent.misses("a");
    world.outsider_writes("a", "one");
    assert_eq!(initial(&agent, "a"), None);
    agent.reads("a");
    assert_eq!(initial(&agent, "a"), Some(Digest::of(b"one")));
    agent.writes("b", "mine").done();
    assert_eq!(initial(&agent, "b"), None, "a write is not a read");
    world.outsider_writes("b", "two");
    agent.writes("b", "mine").refused_stale();
    agent.reads("b").writes("b", "three").done();
    assert_eq!(initial(&agent, "b"), Some(Digest::of(b"two")));
}

#[test]
fn a_missing_file_is_a_sighting_and_may_then_be_created() {
    let world = World::new();
    let agent = world.agent("blue");
    agent.misses("new").writes("new", "x").done();
    world.holds("new", "x");
    let late = world.agent("red");
    late.misses("later");
    world.outsider_writes("later", "somebody was faster");
    let payload = late.writes("later", "x").refused_stale().payload();
    assert_eq!(payload.expected_hash, None);
    assert_eq!(payload.actual_hash, Some(Digest::of(b"somebody was faster")));
}

/// Not a benchmark: the limit is wide, so that only a look-up that reads the disk or scans all files exceeds it.
/// Where every user can write, another user may have made a folder of that name as a trap.
#[test]
fn a_turn_folder_of_another_user_is_refused() {
    let keep = tempfile::tempdir().unwrap();
    let own = keep.path().join("own");
    SharedTurns::new(own.clone()).unwrap();
    SharedTurns::new(own.clone()).unwrap();
    // Root can give a folder away. Others find one that is as private as it must be, but root's.
    let another = match std::os::unix::fs::chown(&own, Some(65534), None) {
        Ok(()) => own,
        Err(_) => "/root".into(),
    };
    assert!(another.symlink_metadata().is_ok_and(|found| found.is_dir()), "{}", another.display());
    let fault = SharedTurns::new(another).unwrap_err();
    assert!(fault.to_string().contains("and yours"), "{fault}");
}

#[test]
fn a_hundred_thousand_files_are_looked_up_without_touching_the_disk() {
    let turn = Turn::begin("t".parse().unwrap(), "blue".parse().unwrap());
    let world = World::new();
    let path = |index: usize| world.gate.workspace().canonical(format!("none/{index}")).unwrap();
    let state = FileState::Present(Digest::of(b"x"));
    let start = Instant::now();
    let paths: Vec<FilePath> = (0..100_000).map(path).collect();
    let on_disk = start.elapsed();
    for path in &paths {
        turn.observe(path, state, Extent::Whole).unwrap();
    }
    let start = Instant::now();
    for path in &paths {
        assert_eq!(turn.get(path).unwrap().unwrap().initial(), state.digest());
    }
    // To resolve a path takes a look at the disk. A busy machine slows both down.
    assert!(start.elapsed() < on_disk, "{:?} for 100,000 look-ups, {on_disk:?} on disk", start.elapsed());
}
