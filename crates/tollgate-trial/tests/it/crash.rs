//! `kill -9` before every system call that changes the disk: of single writes, of a six-file commit, and of the healing
//! after each of them. The result is always all or nothing.

use std::path::Path;

use crate::scene::{Fate, Scene};
use crate::strace::{Call, End, calls, copy, run};

/// Kills the commit before each of its calls. `twice` also kills each healing process before each of its calls.
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
        scene.discard(&root);
    }
    println!("{before} rolled back, {after} applied, {recoveries} healing processes killed");
    assert!(
        before > 0 && after > 0,
        "the kills fell on one side only: {before} rolled back, {after} applied"
    );
}

fn changing_calls(scene: &Scene, degraded: &[String]) -> Vec<Call> {
    let root = scene.fresh();
    let (end, calls) = calls(&root, degraded, &scene.commit(&root));
    assert!(matches!(end, End::Done), "{end:?}");
    assert_eq!(scene.judge(&root, "undisturbed"), Fate::After);
    let calls: Vec<Call> = calls.into_iter().filter(Call::changes).collect();
    assert!(calls.len() > 8, "too few calls: {calls:#?}");
    calls
}

fn kill_recovery_everywhere(scene: &Scene, crashed: &Path, story: &str) -> usize {
    let heal = |root: &Path| ["heal".to_owned(), "--root".to_owned(), root.to_str().unwrap().to_owned()];
    let root = scene.next();
    copy(crashed, &root);
    let arguments = heal(&root);
    let (end, calls) = calls(&root, &[], &arguments.each_ref().map(String::as_str));
    assert!(matches!(end, End::Done), "{story}: {end:?}");
    scene.discard(&root);
    let mut killed = 0;
    for call in calls.into_iter().filter(Call::changes) {
        let root = scene.next();
        copy(crashed, &root);
        let end = run(&[call.inject("signal=KILL")], &heal(&root).each_ref().map(String::as_str));
        let story = format!("{story}; then healing killed before {} {}: {}", call.name, call.nth, call.line);
        assert!(matches!(end, End::Killed), "{story}: {end:?}");
        scene.judge(&root, &story);
        scene.discard(&root);
        killed += 1;
    }
    killed
}

#[test]
fn an_update_is_all_or_nothing() {
    kill_everywhere(&Scene::update(), &[], true);
}

#[test]
fn the_first_update_in_a_workspace_is_all_or_nothing() {
    kill_everywhere(&Scene::first_update(), &[], false);
}

#[test]
fn a_creation_is_all_or_nothing() {
    kill_everywhere(&Scene::create(), &[], true);
}

#[test]
fn a_creation_in_new_folders_is_all_or_nothing() {
    kill_everywhere(&Scene::create_in_new_folder(), &[], true);
}

#[test]
fn a_creation_in_a_folder_with_inherited_group_is_all_or_nothing() {
    kill_everywhere(&Scene::create_in_marked_folder(), &[], true);
}

#[test]
fn a_deletion_is_all_or_nothing() {
    kill_everywhere(&Scene::delete(), &[], true);
}

#[test]
fn a_move_is_all_or_nothing() {
    kill_everywhere(&Scene::rename(), &[], true);
}

#[test]
fn a_move_of_a_folder_is_all_or_nothing() {
    kill_everywhere(&Scene::rename_folder(), &[], true);
}

#[test]
fn six_files_change_together_or_not_at_all() {
    kill_everywhere(&Scene::six(), &[], true);
}

#[test]
fn more_files_than_can_be_open_change_together_or_not_at_all() {
    kill_everywhere(&Scene::large(), &[], false);
}

#[test]
fn more_files_than_can_be_open_change_together_or_not_at_all_without_exchange() {
    kill_everywhere(&Scene::large(), &no_exchange(), false);
}

#[test]
fn changes_on_another_file_system_are_all_or_nothing() {
    if let Some(scene) = Scene::elsewhere() {
        kill_everywhere(&scene, &[], false);
    }
}

/// An undo takes its bytes from the store of contents.
#[test]
fn an_undo_of_six_files_is_all_or_nothing() {
    kill_everywhere(&Scene::undo_six(), &[], false);
}

/// If a power failure brought the intent back, healing would delete the file that it names: after the swap, that is the
/// replaced file.
#[test]
fn an_intent_is_deleted_for_good_before_its_file_is_swapped() {
    let Some(scene) = Scene::elsewhere() else { return };
    let calls = changing_calls(&scene, &[]);
    let find = |from: usize, wanted: &dyn Fn(&Call) -> bool| {
        calls[from..].iter().position(wanted).map(|at| from + at)
    };
    let in_journal = |call: &Call| call.line.contains("/.tollgate/journal>");
    let created = find(0, &|call| call.line.contains("O_EXCL") && call.line.contains(".tollgate-")).unwrap();
    let deleted = find(created, &|call| call.name == "unlinkat" && in_journal(call)).unwrap();
    let flushed = find(deleted, &|call| call.name == "fsync" && in_journal(call));
    let swapped = find(deleted, &|call| call.line.contains("RENAME_EXCHANGE")).unwrap();
    assert!(flushed.is_some_and(|flushed| flushed < swapped), "{:#?}", &calls[created..=swapped]);
}

/// A later sweep moves replaced files to recovery, and then to the store of contents. It may be killed too.
#[test]
fn a_sweep_killed_anywhere_loses_nothing() {
    let scene = Scene::six();
    let done = scene.fresh();
    assert!(matches!(run(&[], &scene.commit(&done)), End::Done));
    let sweep = |root: &Path| ["sweep".to_owned(), "--root".to_owned(), root.to_str().unwrap().to_owned()];
    let root = scene.next();
    copy(&done, &root);
    let (end, calls) = calls(&root, &[], &sweep(&root).each_ref().map(String::as_str));
    assert!(matches!(end, End::Done), "{end:?}");
    scene.bytes_are_kept(&root, "swept");
    let changing = calls.iter().filter(|call| call.changes()).count();
    assert!(changing > 6, "each of the six replaced files is moved");
    assert_eq!(scene.judge(&root, "swept"), Fate::After);
    for call in calls.into_iter().filter(Call::changes) {
        let root = scene.next();
        copy(&done, &root);
        let end = run(&[call.inject("signal=KILL")], &sweep(&root).each_ref().map(String::as_str));
        let story = format!("sweep killed before {} {}: {}", call.name, call.nth, call.line);
        assert!(matches!(end, End::Killed), "{story}: {end:?}");
        scene.bytes_are_kept(&root, &story);
        assert_eq!(scene.judge(&root, &story), Fate::After, "{story}");
    }
}

/// On a file system that cannot exchange two names, so that a swap takes three steps.
#[test]
fn six_files_change_together_or_not_at_all_without_exchange() {
    kill_everywhere(&Scene::six(), &no_exchange(), false);
}

#[test]
fn single_changes_are_all_or_nothing_without_exchange() {
    for scene in [Scene::update(), Scene::create_in_new_folder(), Scene::delete(), Scene::rename()] {
        kill_everywhere(&scene, &no_exchange(), true);
    }
}

/// On a file system where a file cannot have two names.
#[test]
fn a_creation_is_all_or_nothing_without_links() {
    for scene in [Scene::create(), Scene::create_in_new_folder()] {
        kill_everywhere(&scene, &["inject=linkat:error=EPERM".to_owned()], true);
    }
}

fn no_exchange() -> Vec<String> {
    vec!["inject=renameat2:error=EINVAL".to_owned()]
}
