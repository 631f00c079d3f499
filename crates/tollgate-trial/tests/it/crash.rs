//! kill -9 before every system call that changes the disk: of single writes, of a six-file transaction, and of the
//! recovery after each of them. Always all or none.

use std::fs;

use crate::scene::{Fate, Scene};
use crate::strace::{Call, End, calls, copy, run};

/// Kills the commit before each of its calls. `twice` also kills each recovery before each of its calls.
fn kill_everywhere(scene: &Scene, degraded: &[String], twice: bool) {
    let (mut before, mut after, mut recoveries) = (0, 0, 0);
    for call in changing_calls(scene, degraded) {
        let root = scene.fresh();
        let mut injections = degraded.to_vec();
        injections.push(call.inject("signal=KILL"));
        let end = run(&injections, &scene.commit(&root));
        let story = format!("killed before {} {}: {}", call.name, call.nth, call.line);
        assert!(matches!(end, End::Killed), "{story}: {end:?}");
        if twice {
            recoveries += kill_recovery_everywhere(scene, &root, &story);
        }
        match scene.judge(&root, &story) {
            Fate::Before => before += 1,
            Fate::After => after += 1,
        }
        fs::remove_dir_all(&root).unwrap();
    }
    println!("{before} undone, {after} stand, {recoveries} recoveries killed");
    assert!(before > 0 && after > 0, "the kills fell on one side only: {before} undone, {after} stand");
}

fn changing_calls(scene: &Scene, degraded: &[String]) -> Vec<Call> {
    let root = scene.fresh();
    let (end, calls) = calls(&root, degraded, &scene.commit(&root));
    assert!(matches!(end, End::Done), "{end:?}");
    assert_eq!(scene.judge(&root, "undisturbed"), Fate::After);
    let calls: Vec<Call> = calls.into_iter().filter(Call::changes).collect();
    assert!(calls.len() > 8, "too few to be all: {calls:#?}");
    calls
}

fn kill_recovery_everywhere(scene: &Scene, crashed: &std::path::Path, story: &str) -> usize {
    let heal =
        |root: &std::path::Path| ["heal".to_owned(), "--root".to_owned(), root.to_str().unwrap().to_owned()];
    let root = scene.next();
    copy(crashed, &root);
    let arguments = heal(&root);
    let (end, calls) = calls(&root, &[], &arguments.each_ref().map(String::as_str));
    assert!(matches!(end, End::Done), "{story}: {end:?}");
    fs::remove_dir_all(&root).unwrap();
    let mut killed = 0;
    for call in calls.into_iter().filter(Call::changes) {
        let root = scene.next();
        copy(crashed, &root);
        let end = run(&[call.inject("signal=KILL")], &heal(&root).each_ref().map(String::as_str));
        let story = format!("{story}; then recovery killed before {} {}: {}", call.name, call.nth, call.line);
        assert!(matches!(end, End::Killed), "{story}: {end:?}");
        scene.judge(&root, &story);
        fs::remove_dir_all(&root).unwrap();
        killed += 1;
    }
    killed
}

#[test]
fn an_update_is_whole_or_not_there() {
    kill_everywhere(&Scene::update(), &[], true);
}

#[test]
fn a_creation_is_whole_or_not_there() {
    kill_everywhere(&Scene::create(), &[], true);
}

#[test]
fn a_creation_in_new_folders_is_whole_or_not_there() {
    kill_everywhere(&Scene::create_in_new_folder(), &[], true);
}

#[test]
fn a_deletion_is_whole_or_not_there() {
    kill_everywhere(&Scene::delete(), &[], true);
}

#[test]
fn a_move_is_whole_or_not_there() {
    kill_everywhere(&Scene::rename(), &[], true);
}

#[test]
fn six_files_change_together_or_not_at_all() {
    kill_everywhere(&Scene::six(), &[], true);
}

/// The same where the file system cannot exchange two names, so that a swap is three steps.
#[test]
fn six_files_change_together_or_not_at_all_without_exchange() {
    kill_everywhere(&Scene::six(), &no_exchange(), false);
}

#[test]
fn single_changes_are_whole_or_not_there_without_exchange() {
    for scene in [Scene::update(), Scene::create_in_new_folder(), Scene::delete(), Scene::rename()] {
        kill_everywhere(&scene, &no_exchange(), true);
    }
}

/// The same where a file cannot have two names.
#[test]
fn a_creation_is_whole_or_not_there_without_links() {
    for scene in [Scene::create(), Scene::create_in_new_folder()] {
        kill_everywhere(&scene, &["inject=linkat:error=EPERM".to_owned()], true);
    }
}

fn no_exchange() -> Vec<String> {
    vec!["inject=renameat2:error=EINVAL".to_owned()]
}
