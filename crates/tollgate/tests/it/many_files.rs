//! Multi-file changes are atomic.

use tollgate::digest::Digest;
use tollgate::edit::Edit;
use tollgate::guard::{Action, Change, Expected};
use tollgate::refusal::ErrorType;

use crate::world::World;

fn write(path: &str, text: &str) -> Change {
    Change::new(path, Action::Write(text.into()))
}

#[test]
fn all_kinds_of_change_are_applied_together() {
    let world = World::new();
    for (path, text) in [("a", "a1"), ("b", "b1 b2"), ("c", "c1"), ("d", "d1")] {
        world.outsider_writes(path, text);
    }
    let agent = world.agent("blue");
    agent.reads("a").reads("b").reads("c").reads("d");
    agent
        .applies(vec![
            write("a", "a2"),
            Change::new("b", Action::Edit(vec![Edit::once("b1", "B1"), Edit::all("b2", "B2")])),
            Change::new("c", Action::Delete),
            Change::new("d", Action::MoveTo("sub/e".into())),
            Change::new("sub/deep/new", Action::Create(b"new".to_vec())),
        ])
        .done();
    world.holds("a", "a2");
    world.holds("b", "B1 B2");
    world.holds("sub/e", "d1");
    world.holds("sub/deep/new", "new");
    assert!(!world.root().join("c").exists() && !world.root().join("d").exists());
    assert_eq!(world.lines_of("MUTATION").len(), 5);
    agent.applies(vec![write("a", "a3"), write("sub/e", "e2"), write("c", "again")]).done();
    assert_eq!(std::fs::read_dir(world.root().join(".tollgate/journal")).unwrap().count(), 0);
}

#[test]
fn one_stale_file_refuses_the_whole_change_and_every_stale_file_is_reported() {
    let world = World::new();
    for path in ["a", "b", "c", "d"] {
        world.outsider_writes(path, path);
    }
    let agent = world.agent("blue");
    agent.reads("a").reads("b").reads("c").reads("d");
    world.outsider_writes("c", "changed");
    world.outsider_removes("b");
    let changes =
        vec![write("d", "x"), write("c", "x"), write("a", "x"), write("b", "x"), write("new/file", "x")];
    let refused = agent.applies(changes).refused_stale();
    assert_eq!(
        refused.payload().file_path,
        world.root().join("b").display().to_string(),
        "first in path order"
    );
    let told: Vec<_> = refused.reports().into_iter().map(|report| report.details.path).collect();
    assert_eq!(told, ["b", "c"].map(|name| world.root().join(name).display().to_string()));
    world.holds("a", "a");
    world.holds("c", "changed");
    world.holds("d", "d");
    assert!(!world.root().join("new").exists());
    assert_eq!(world.lines_of("MUTATION_CONFLICT").len(), 2);
    assert_eq!(world.lines_of("MUTATION").len(), 0);
}

#[test]
fn one_file_that_cannot_be_written_refuses_the_whole_change() {
    let world = World::new();
    world.outsider_writes("a", "a");
    let agent = world.agent("blue");
    agent.reads("a");
    agent.applies(vec![write("a", "x"), write(".tollgate/x", "x")]).refused(ErrorType::ProtectedPath);
    agent.applies(vec![write("a", "x"), write("../x", "x")]).refused(ErrorType::OutsideWorkspace);
    let edit = Change::new("a", Action::Edit(vec![Edit::once("nowhere", "x")]));
    agent.applies(vec![write("b", "x"), edit]).refused(ErrorType::TextNotFound);
    let expected = Change::new("b", Action::Write(b"x".to_vec())).expecting(Expected::Hash(Digest::of(b"b")));
    agent.applies(vec![write("a", "x"), expected]).refused_stale();
    world.holds("a", "a");
    assert!(!world.root().join("b").exists());
}

#[test]
fn invalid_changes_are_faults_and_change_nothing() {
    let world = World::new();
    world.outsider_writes("a", "a");
    let agent = world.agent("blue");
    for changes in [
        vec![],
        vec![write("a", "x"), write("./a", "y")],
        vec![Change::new("a", Action::MoveTo("a".into()))],
        vec![write("a", "x"), Change::new("gone", Action::Delete)],
        vec![write("a", "x"), Change::new("gone", Action::MoveTo("b".into()))],
        vec![write("a", "x"), Change::new("gone", Action::Edit(vec![Edit::once("x", "y")]))],
    ] {
        assert!(world.gate.apply(&agent.turn, changes).is_err());
        world.holds("a", "a");
    }
}

#[test]
fn a_hundred_files_change_together() {
    let world = World::new();
    let agent = world.agent("blue");
    let changes = |text: &str| (0..100).map(|index| write(&format!("f{index}"), text)).collect();
    agent.applies(changes("one")).done();
    agent.applies(changes("two")).done();
    world.outsider_writes("f50", "foreign");
    agent.applies(changes("three")).refused_stale();
    world.holds("f0", "two");
    world.holds("f99", "two");
    world.holds("f50", "foreign");
}

/// More files than a commit keeps open at the same time, in several folders: updates, creations, deletions and moves.
fn many(world: &World, agent: &crate::world::Agent<'_>) -> Vec<Change> {
    (0..100)
        .map(|number| {
            let path = format!("d{}/f{number}", number % 7);
            if number % 4 != 1 {
                world.outsider_writes(&path, format!("old {number}"));
                agent.reads(&path);
            }
            match number % 4 {
                0 => write(&path, &format!("new {number}")),
                1 => Change::new(format!("new/{number}/f"), Action::Create(b"created".to_vec())),
                2 => Change::new(path, Action::Delete),
                _ => Change::new(path, Action::MoveTo(format!("moved/f{number}").into())),
            }
        })
        .collect()
}

fn hold_old(world: &World) {
    for number in (0..100).filter(|number| number % 4 != 1) {
        world.holds(&format!("d{}/f{number}", number % 7), format!("old {number}"));
    }
    assert!(!world.root().join("new").exists() && !world.root().join("moved").exists());
}

#[test]
fn a_large_commit_changes_all_files() {
    let world = World::new();
    let agent = world.agent("blue");
    let changes = many(&world, &agent);
    agent.applies(changes).done();
    for number in 0..100 {
        let path = format!("d{}/f{number}", number % 7);
        match number % 4 {
            0 => world.holds(&path, format!("new {number}")),
            1 => world.holds(&format!("new/{number}/f"), "created"),
            2 => assert!(!world.root().join(path).exists()),
            _ => world.holds(&format!("moved/f{number}"), format!("old {number}")),
        }
    }
    assert_eq!(world.lines_of("MUTATION").len(), 100);
    assert_eq!(std::fs::read_dir(world.root().join(".tollgate/journal")).unwrap().count(), 0);
    assert_eq!(world.gate.workspace().recovery().unwrap().len(), 50, "replaced and deleted bytes are kept");
    // The agent knows what it wrote; unchanged bytes are no change.
    let again = (0..100).filter(|number| number % 4 == 0);
    let again = again.map(|number| write(&format!("d{}/f{number}", number % 7), &format!("new {number}")));
    agent.applies(again.collect()).done();
    agent.writes("new/1/f", "mine").done();
    agent.writes("moved/f3", "mine").done();
}

#[test]
fn a_large_commit_with_stale_files_changes_nothing_and_reports_all_of_them() {
    let world = World::new();
    let agent = world.agent("blue");
    let changes = many(&world, &agent);
    let stale = ["d0/f0", "d2/f2", "d3/f3"];
    for path in stale {
        world.outsider_writes(path, "foreign");
    }
    let refused = agent.applies(changes).refused_stale();
    let told: Vec<_> = refused.reports().into_iter().map(|report| report.details.path).collect();
    assert_eq!(told, stale.map(|path| world.root().join(path).display().to_string()));
    for (path, number) in stale.into_iter().zip([0, 2, 3]) {
        world.outsider_writes(path, format!("old {number}"));
    }
    hold_old(&world);
    assert_eq!(std::fs::read_dir(world.root().join(".tollgate/stage")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(world.root().join(".tollgate/journal")).unwrap().count(), 0);
    let changes = many(&world, &agent);
    agent.applies(changes).done();
}

#[test]
fn a_large_commit_waits_for_a_program_that_has_a_file_open_and_then_gives_up() {
    let world = World::with("[guard]\nquiet_wait = \"50ms\"");
    let agent = world.agent("blue");
    let changes = many(&world, &agent);
    let open = std::fs::File::options().append(true).open(world.root().join("d0/f0")).unwrap();
    agent.applies(changes.clone()).refused(ErrorType::FileBusy);
    hold_old(&world);
    drop(open);
    agent.applies(changes).done();
}

#[test]
fn edits_and_writes_that_are_stale_are_reported_together() {
    let world = World::new();
    for path in ["a", "b", "c"] {
        world.outsider_writes(path, path);
    }
    let agent = world.agent("blue");
    agent.reads("a").reads("b").reads("c");
    for path in ["a", "b", "c"] {
        world.outsider_writes(path, "foreign");
    }
    std::fs::remove_file(world.root().join("c")).unwrap();
    std::fs::create_dir(world.root().join("c")).unwrap();
    let edit = Change::new("a", Action::Edit(vec![Edit::once("foreign", "x")]));
    let refused =
        agent.applies(vec![edit, write("b", "x"), write("c", "x"), write("d", "x")]).refused_stale();
    assert_eq!(refused.refusals().len(), 3);
}
