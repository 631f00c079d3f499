//! The settings `unread` and `mode`.

use tollgate::digest::Digest;
use tollgate::guard::{Action, Change, Expected, Outcome};
use tollgate::refusal::ErrorType;
use tollgate::turn::{FileState, Session, Turn};
use tollgate_guard::change::{CommandLook, StartState};
use tollgate_guard::view::ViewChanges;

use crate::world::World;

#[test]
fn by_default_only_files_that_were_read_are_checked() {
    let world = World::new();
    world.outsider_writes("a", "one");
    world.agent("blue").writes("a", "two").done();
    world.holds("a", "two");
}

#[test]
fn refuse_requires_a_read_but_allows_new_files() {
    let world = World::with("[guard]\nunread = \"refuse\"");
    world.outsider_writes("a", "one");
    let agent = world.agent("blue");
    let payload = agent.writes("a", "two").refused(ErrorType::UnreadFile).payload();
    assert_eq!(payload.actual_hash, Some(Digest::of(b"one")));
    agent.edits("a", "one", "two").refused(ErrorType::UnreadFile);
    agent.deletes("a").refused(ErrorType::UnreadFile);
    world.holds("a", "one");
    agent.writes("new", "x").done();
    agent.reads("a").writes("a", "two").done();
    // Reading a folder would not help, so it is not called unread.
    world.outsider_writes("folder/x", "x");
    agent.writes("folder", "x").refused(ErrorType::NotAFile);
    agent.edits("folder", "x", "y").refused(ErrorType::NotAFile);
    agent.deletes("folder").refused(ErrorType::NotAFile);
}

#[test]
fn known_compares_with_all_turns_of_the_session_whether_they_have_ended_or_not() {
    for ended in [true, false] {
        let world = World::with("[guard]\nunread = \"known\"");
        world.outsider_writes("a", "one");
        world.outsider_writes("b", "one");
        let session = Session::default();
        let turn = || world.gate.begin_turn_in("blue".parse().unwrap(), session.clone()).unwrap();
        let parallel = turn();
        let first = turn();
        let _ = world.gate.read(&first, "a", tollgate::part::Part::Whole).unwrap();
        world.outsider_writes("a", "two");
        let write = |turn: &Turn, path: &str| world.gate.write(turn, path, "x", Default::default()).unwrap();
        assert!(matches!(write(&first, "a"), Outcome::Refused(_)));
        if ended {
            world.gate.end_turn(first).unwrap();
        }
        for turn in [turn(), parallel] {
            assert!(matches!(write(&turn, "a"), Outcome::Refused(_)));
        }
        assert!(matches!(write(&turn(), "b"), Outcome::Done(_)), "no turn knew it");
        world.holds("a", "two");
        world.agent("stranger").writes("a", "x").done();
    }
}

#[test]
fn known_remembers_where_links_led() {
    let world = World::with("[guard]\nunread = \"known\"");
    world.outsider_writes("v1/c", "old");
    world.outsider_writes("v2/c", "foreign");
    let cur = world.root().join("cur");
    std::os::unix::fs::symlink("v1", &cur).unwrap();
    let session = Session::default();
    let turn = || world.gate.begin_turn_in("blue".parse().unwrap(), session.clone()).unwrap();
    let _ = world.gate.read(&turn(), "cur/c", tollgate::part::Part::Whole).unwrap();
    std::fs::remove_file(&cur).unwrap();
    std::os::unix::fs::symlink("v2", &cur).unwrap();
    let written = world.gate.write(&turn(), "cur/c", "mine", Default::default()).unwrap();
    assert!(matches!(written, Outcome::Refused(_)));
    world.holds("v2/c", "foreign");
}

#[test]
fn observe_records_but_refuses_nothing() {
    let world = World::with("[guard]\nmode = \"observe\"\nunread = \"refuse\"");
    world.outsider_writes("a", "one");
    let agent = world.agent("blue");
    agent.writes("a", "unread").done();
    agent.reads("a");
    world.outsider_writes("a", "two");
    agent.writes("a", "mine").done();
    world.holds("a", "mine");
    world.outsider_writes("a", "three words here");
    agent.edits("a", "three", "3").done();
    world.holds("a", "3 words here");
    let statuses: Vec<_> = world
        .lines_of("MUTATION_CONFLICT")
        .into_iter()
        .map(|line| line["result"]["status"].clone())
        .collect();
    assert_eq!(statuses, ["OBSERVED", "OBSERVED"]);
    assert_eq!(world.lines_of("MUTATION_REFUSED").len(), 1);
}

#[test]
fn off_compares_nothing() {
    let world = World::with("[guard]\nmode = \"off\"\nunread = \"refuse\"");
    world.outsider_writes("a", "one");
    let agent = world.agent("blue");
    agent.reads("a");
    world.outsider_writes("a", "two");
    agent.writes("a", "mine").done();
    world.holds("a", "mine");
    assert_eq!(world.lines_of("MUTATION_CONFLICT").len(), 0);
}

/// A foreign change came after the agent's read and before the start of the command. Unless the command looked for its agent, it is
/// not overwritten.
#[test]
fn a_change_between_the_agents_read_and_the_start_of_a_command_is_not_overwritten() {
    let present = |text: &str| Some(FileState::Present(Digest::of(text.as_bytes())));
    for was in [present("two"), Some(FileState::Unreadable), None] {
        for (look, is_seen) in [
            (CommandLook::ForAgent, true),
            (CommandLook::ForItself, false),
            (CommandLook::None, false),
            (CommandLook::Unknown, false),
        ] {
            let world = World::new();
            world.outsider_writes("a", "one");
            let agent = world.agent("blue");
            agent.reads("a");
            world.outsider_writes("a", "two");
            let removal = || {
                let expected = Expected::AtStart(StartState { start: i128::MAX, was }, look);
                let files = vec![Change::new("a", Action::Delete).expecting(expected)];
                world.gate.commit_view(&agent.turn, ViewChanges { files, ..Default::default() }).unwrap()
            };
            assert_eq!(matches!(removal(), Outcome::Done(_)), is_seen, "{look:?} {was:?}");
            assert_eq!(world.root().join("a").exists(), !is_seen, "{look:?} {was:?}");
            if !is_seen {
                agent.reads("a");
                assert!(matches!(removal(), Outcome::Done(_)), "{look:?} {was:?}: the agent knows it now");
            }
        }
    }
}

/// What the command of a run has changed, and what it has only read, if the run is serial.
#[test]
fn the_mode_decides_about_the_changes_of_a_run() {
    for (mode, status, lines) in [("enforce", "DENIED", 1), ("observe", "OBSERVED", 1), ("off", "", 0)] {
        let world = World::with(&format!("[guard]\nmode = \"{mode}\"\nprotected = [\"locked\"]"));
        world.outsider_writes("locked/a", "one");
        world.outsider_writes("read", "theirs");
        let agent = world.agent("blue");
        let one = StartState { start: 0, was: Some(FileState::Present(Digest::of(b"one"))) };
        let removal = |path: &str| {
            let expected = Expected::AtStart(one, CommandLook::ForAgent);
            Change::new(path, Action::Delete).expecting(expected)
        };
        let protected = ViewChanges { files: vec![removal("locked/a")], ..Default::default() };
        let serial = ViewChanges { reads: vec![("read".into(), one)], ..Default::default() };
        for (changes, kind) in [(protected, "MUTATION_REFUSED"), (serial, "MUTATION_CONFLICT")] {
            let outcome = world.gate.commit_view(&agent.turn, changes).unwrap();
            assert_eq!(matches!(outcome, Outcome::Refused(_)), mode == "enforce", "{mode}: {kind}");
            let found = world.lines_of(kind);
            assert_eq!(found.len(), lines, "{mode}: {kind}");
            assert!(found.iter().all(|line| line["result"]["status"] == status), "{mode}: {found:?}");
        }
        assert_eq!(world.root().join("locked/a").exists(), mode == "enforce");
    }
}

#[test]
fn protected_paths_cannot_be_changed_in_any_way() {
    let world = World::with("[guard]\nprotected = [\"locked\", \"one/file\"]");
    world.outsider_writes("a", "x");
    world.outsider_writes("locked/b", "x");
    std::os::unix::fs::symlink("locked", world.root().join("way_in")).unwrap();
    let agent = world.agent("blue");
    for path in
        ["locked/b", "locked/new", "way_in/b", "./locked/../locked/b", "one/file", ".tollgate/version"]
    {
        agent.writes(path, "y").refused(ErrorType::ProtectedPath);
        agent.moves("a", path).refused(ErrorType::ProtectedPath);
    }
    agent.deletes("locked/b").refused(ErrorType::ProtectedPath);
    agent.moves("locked/b", "c").refused(ErrorType::ProtectedPath);
    agent.reads("locked/b");
    // A folder takes its files along, to names that may be protected.
    world.outsider_writes("dir/file", "x");
    let moved = |to: &str| world.gate.move_folder(&agent.turn, "dir", to).unwrap();
    assert!(matches!(moved("one"), Outcome::Refused(_)));
    world.holds("dir/file", "x");
    assert!(matches!(moved("two"), Outcome::Done(_)));
    agent.writes("locked_not", "y").done();
    agent.writes("one/other", "y").done();
}
