//! A path leads to what the agent read: links that are retargeted, files that become links or folders, folders that
//! become files.

use std::fs;
use std::os::unix::fs::symlink;

use tollgate::digest::Digest;
use tollgate::guard::{Action, Change, Expected};
use tollgate::refusal::ErrorType;

use crate::world::World;

/// `v1/c` and `v2/c`, and `cur`, a link to `v1`.
fn versions() -> World {
    let world = World::new();
    world.outsider_writes("v1/c", "old");
    world.outsider_writes("v2/c", "foreign");
    symlink("v1", world.root().join("cur")).unwrap();
    world
}

fn retarget(world: &World, link: &str, to: &str) {
    let _ = fs::remove_file(world.root().join(link));
    symlink(to, world.root().join(link)).unwrap();
}

#[test]
fn a_write_through_a_retargeted_link_is_stale() {
    let world = versions();
    let agent = world.agent("blue");
    agent.reads("cur/c");
    retarget(&world, "cur", "v2");
    let payload = agent.writes("cur/c", "mine").refused_stale().payload();
    assert_eq!(payload.expected_hash, Some(Digest::of(b"old")));
    assert_eq!(payload.actual_hash, Some(Digest::of(b"foreign")));
    world.holds("v2/c", "foreign");
    // In any spelling, and again.
    agent.writes("v1/../cur/./c", "mine").refused_stale();
    agent.edits("cur/c", "foreign", "mine").refused_stale();
    agent.deletes("cur/c").refused_stale();
    agent.moves("cur/c", "d").refused_stale();
    agent.applies(vec![Change::new("cur/c", Action::Write(b"mine".to_vec()))]).refused_stale();
    world.holds("v2/c", "foreign");
    assert_eq!(world.lines_of("MUTATION_CONFLICT").len(), 6);
    agent.reads("cur/c").writes("cur/c", "mine").done();
    world.holds("v2/c", "mine");
    world.holds("v1/c", "old");
}

#[test]
fn a_read_of_another_file_through_the_link_does_not_hide_the_change() {
    let world = versions();
    world.outsider_writes("v2/d", "d");
    let agent = world.agent("blue");
    agent.reads("cur/c");
    retarget(&world, "cur", "v2");
    agent.reads("cur/d");
    agent.writes("cur/c", "mine").refused_stale();
    world.holds("v2/c", "foreign");
}

#[test]
fn reading_the_file_under_its_own_path_is_enough_after_a_refusal() {
    let world = versions();
    let agent = world.agent("blue");
    agent.reads("cur/c");
    retarget(&world, "cur", "v2");
    agent.writes("cur/c", "mine").refused_stale();
    agent.reads("v2/c").writes("cur/c", "mine").done();
    world.holds("v2/c", "mine");
}

#[test]
fn the_agents_own_write_through_a_link_is_remembered() {
    let world = versions();
    let agent = world.agent("blue");
    agent.writes("cur/c", "mine").done();
    retarget(&world, "cur", "v2");
    agent.writes("cur/c", "mine again").refused_stale();
    world.holds("v2/c", "foreign");
}

#[test]
fn a_file_that_became_a_link_is_stale() {
    let world = World::new();
    world.outsider_writes("c", "old");
    world.outsider_writes("other", "foreign");
    let agent = world.agent("blue");
    agent.reads("c").misses("new");
    retarget(&world, "c", "other");
    retarget(&world, "new", "other");
    agent.writes("c", "mine").refused_stale();
    agent.edits("c", "foreign", "mine").refused_stale();
    let payload = agent.writes("new", "mine").refused_stale().payload();
    assert_eq!((payload.expected_hash, payload.actual_hash), (None, Some(Digest::of(b"foreign"))));
    world.holds("other", "foreign");
}

#[test]
fn a_folder_that_became_a_link_is_stale_and_so_is_a_link_that_became_a_folder() {
    let world = versions();
    let agent = world.agent("blue");
    agent.reads("v1/c").reads("cur/c");
    fs::rename(world.root().join("v1"), world.root().join("v0")).unwrap();
    symlink("v2", world.root().join("v1")).unwrap();
    agent.writes("v1/c", "mine").refused_stale();
    fs::remove_file(world.root().join("cur")).unwrap();
    world.outsider_writes("cur/c", "foreign too");
    agent.writes("cur/c", "mine").refused_stale();
    world.holds("v2/c", "foreign");
    world.holds("cur/c", "foreign too");
}

#[test]
fn a_file_that_became_a_folder_is_stale() {
    let world = World::new();
    world.outsider_writes("c", "old");
    let agent = world.agent("blue");
    agent.reads("c");
    world.outsider_removes("c");
    world.outsider_writes("c/inside", "foreign");
    let payload = agent.writes("c", "mine").refused_stale().payload();
    assert_eq!((payload.expected_hash, payload.actual_hash), (Some(Digest::of(b"old")), None));
    agent.edits("c", "old", "mine").refused_stale();
    agent.deletes("c").refused_stale();
    world.holds("c/inside", "foreign");
    world.agent("green").writes("c", "mine").refused(ErrorType::NotAFile);
}

#[test]
fn a_file_whose_folder_became_a_file_is_stale() {
    let world = World::new();
    world.outsider_writes("dir/c", "old");
    let agent = world.agent("blue");
    agent.reads("dir/c");
    fs::remove_dir_all(world.root().join("dir")).unwrap();
    world.outsider_writes("dir", "foreign");
    let payload = agent.writes("dir/c", "mine").refused_stale().payload();
    assert_eq!((payload.expected_hash, payload.actual_hash), (Some(Digest::of(b"old")), None));
    agent.edits("dir/c", "old", "mine").refused_stale();
    agent.deletes("dir/c").refused_stale();
    world.holds("dir", "foreign");
}

#[test]
fn the_same_bytes_through_another_link_are_not_a_conflict() {
    let world = versions();
    world.outsider_writes("v2/c", "old");
    let agent = world.agent("blue");
    agent.reads("cur/c");
    retarget(&world, "cur", "v2");
    agent.writes("cur/c", "mine").done();
    world.holds("v2/c", "mine");
    world.holds("v1/c", "old");
    // Every spelling of an unchanged file, mixed.
    agent.reads("v1/c").writes("v1/c", "one").done();
    retarget(&world, "again", "v1");
    agent.writes("again/c", "two").done();
    agent.reads("again/c").writes("v1/c", "three").done();
    agent.writes("again/c", "four").done();
    assert_eq!(world.lines_of("MUTATION_CONFLICT").len(), 0);
}

#[test]
fn delete_and_move_act_on_the_link_itself() {
    let world = versions();
    symlink("v1/c", world.root().join("link")).unwrap();
    symlink("nowhere", world.root().join("dangling")).unwrap();
    symlink("/etc", world.root().join("out")).unwrap();
    symlink("circle", world.root().join("circle")).unwrap();
    let agent = world.agent("blue");
    let is_link = |name: &str| world.root().join(name).is_symlink();
    agent.reads("link").moves("link", "moved").done();
    assert!(!is_link("link") && is_link("moved"));
    agent.writes("moved", "mine").done();
    world.holds("v1/c", "mine");
    agent.moves("circle", "round").done();
    for link in ["moved", "dangling", "out", "cur", "round"] {
        agent.deletes(link).done();
        assert!(!is_link(link), "{link}");
    }
    world.holds("v1/c", "mine");
    // The names are free again.
    agent.writes("moved", "a file").done();
    agent.writes("link", "a file").done();
    world.holds("v1/c", "mine");
    world.gate.workspace().sweep().unwrap();
    assert!(world.gate.workspace().ledger().verify().unwrap().problem.is_none());
}

#[test]
fn a_link_that_leads_elsewhere_or_to_changed_bytes_is_not_deleted() {
    let world = versions();
    symlink("v1/c", world.root().join("link")).unwrap();
    let agent = world.agent("blue");
    agent.reads("link");
    retarget(&world, "link", "v2/c");
    agent.deletes("link").refused_stale();
    agent.moves("link", "moved").refused_stale();
    assert!(world.root().join("link").is_symlink());
    agent.reads("link").deletes("link").done();
    world.holds("v2/c", "foreign");
    let hash = Expected::Hash(Digest::of(b"something else"));
    let refused = world.gate.delete(&agent.turn, "cur/c", hash).unwrap();
    assert!(matches!(refused, tollgate::guard::Outcome::Refused(_)));
}

#[test]
fn a_link_on_the_way_to_protected_files_stays() {
    let world = World::with("[guard]\nprotected = [\"conf/locked\"]");
    world.outsider_writes("real/locked", "x");
    symlink("real", world.root().join("conf")).unwrap();
    let agent = world.agent("blue");
    agent.deletes("conf").refused(ErrorType::ProtectedPath);
    agent.moves("conf", "elsewhere").refused(ErrorType::ProtectedPath);
    assert!(world.root().join("conf").is_symlink());
}
