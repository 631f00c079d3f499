//! What other programs do while a commit is stopped after a chosen call: the newest save is at the path, and nothing else
//! that they wrote or set is lost.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::foreign::{FOREIGN, holds, rename_over, start_writing};
use crate::scene::{Fate, Scene, names};
use crate::strace::{Call, End, StoppedRun, calls, folder, run};

const NEWEST: &str = "the newest save";

/// The calls of an undisturbed commit.
fn undisturbed(scene: &Scene, injections: &[String]) -> Vec<Call> {
    let root = scene.fresh();
    calls(&root, injections, &scene.commit(&root)).1
}

/// A commit that is stopped after its first call of which this is true. It begins with its mark; before, it reads.
fn stopped_after(scene: &Scene, wanted: impl Fn(&Call) -> bool) -> (PathBuf, StoppedRun) {
    let calls = undisturbed(scene, &[]);
    let mut commit = calls.iter().skip_while(|call| call.name != "pwrite64");
    let call = commit.find(|call| wanted(call)).expect("such a call");
    let root = scene.fresh();
    let stopped = StoppedRun::start(&root, &[call.inject("signal=STOP")], &scene.commit(&root));
    (root, stopped)
}

fn exchanges(call: &Call) -> bool {
    call.line.contains("RENAME_EXCHANGE")
}

fn moves(call: &Call) -> bool {
    call.line.contains("RENAME_NOREPLACE")
}

/// The replaced or deleted file. A program that looked the path up in time still opens it there.
fn replaced(root: &Path) -> PathBuf {
    let [name] = names(root, "stage").try_into().expect("one file in the stage");
    root.join(".tollgate/stage").join(name)
}

#[track_caller]
fn at_path(root: &Path, path: &str, text: &str) {
    assert_eq!(fs::read_to_string(root.join(path)).unwrap(), text, "{:#?}", crate::scene::state(root));
}

#[track_caller]
fn is_stale(end: &End) {
    assert!(matches!(end, End::Refused(words) if words.contains("STALE_FILE")), "{end:?}");
}

#[test]
fn a_write_into_the_replaced_file_before_the_last_check_is_at_the_path() {
    let scene = Scene::update();
    let (root, stopped) = stopped_after(&scene, exchanges);
    let saver = start_writing(replaced(&root));
    let end = stopped.goes_on();
    saver.join().unwrap();
    is_stale(&end);
    at_path(&root, "a", FOREIGN);
}

/// A commit of many files closes each one after its look, so it looks at the replaced files once more.
#[test]
fn a_save_during_a_commit_of_many_files_stays_and_no_file_is_changed() {
    let scene = Scene::large();
    let in_place = |path: &Path| fs::write(path, FOREIGN).unwrap();
    let by_rename = |path: &Path| rename_over(path, FOREIGN);
    for save in [&in_place as &dyn Fn(&Path), &by_rename] {
        let (root, stopped) = stopped_after(&scene, exchanges);
        save(&root.join("d1/25"));
        is_stale(&stopped.goes_on());
        at_path(&root, "d1/25", FOREIGN);
        let mut kept = crate::scene::read(&root);
        kept.insert("d1/25".to_owned(), "one".to_owned());
        assert_eq!(kept, scene.before);
    }
}

#[test]
fn the_newest_of_two_saves_during_an_update_is_at_the_path_and_the_other_is_kept() {
    let scene = Scene::update();
    let (root, stopped) = stopped_after(&scene, exchanges);
    let saver = start_writing(replaced(&root));
    rename_over(&root.join("a"), NEWEST);
    let end = stopped.goes_on();
    saver.join().unwrap();
    is_stale(&end);
    at_path(&root, "a", NEWEST);
    assert!(holds(&root, FOREIGN), "the older save is lost");
}

#[test]
fn a_new_file_at_the_path_of_a_deletion_stays_and_a_write_into_the_deleted_file_is_kept() {
    let scene = Scene::delete();
    let (root, stopped) = stopped_after(&scene, moves);
    let saver = start_writing(replaced(&root));
    fs::write(root.join("a"), NEWEST).unwrap();
    let end = stopped.goes_on();
    saver.join().unwrap();
    is_stale(&end);
    at_path(&root, "a", NEWEST);
    assert!(holds(&root, FOREIGN), "the write into the deleted file is lost");
}

#[test]
fn a_save_at_the_target_of_a_move_stays_there() {
    let scene = Scene::rename();
    let (root, stopped) = stopped_after(&scene, moves);
    rename_over(&root.join("b"), NEWEST);
    is_stale(&stopped.goes_on());
    at_path(&root, "b", NEWEST);
    assert!(!root.join("a").exists());
}

/// The ledger line cannot be flushed, so the creation is undone. One program has saved over the new file, and another saves
/// while the first save is moved aside to look at it.
#[test]
fn of_two_saves_while_a_creation_is_undone_both_are_kept() {
    let scene = Scene::create();
    let fault = "inject=fdatasync:error=EIO".to_owned();
    let calls = undisturbed(&scene, std::slice::from_ref(&fault));
    let linked = calls.iter().find(|call| call.name == "linkat").unwrap();
    let aside = calls.iter().skip_while(|call| call.name != "fdatasync").find(|call| moves(call)).unwrap();
    let root = scene.fresh();
    let injections = [fault, linked.inject("signal=STOP"), aside.inject("signal=STOP")];
    let mut stopped = StoppedRun::start(&root, &injections, &scene.commit(&root));
    rename_over(&root.join("a"), FOREIGN);
    stopped.go_on_to_next_stop();
    assert!(!root.join("a").exists(), "the first save is aside");
    fs::write(root.join("a"), NEWEST).unwrap();
    let end = stopped.goes_on();
    assert!(matches!(end, End::Fault(_)), "{end:?}");
    at_path(&root, "a", NEWEST);
    assert!(holds(&root, FOREIGN), "the first save is lost");
}

#[test]
fn a_change_of_the_mode_during_an_update_is_kept() {
    let scene = Scene::update();
    let calls = undisturbed(&scene, &[]);
    let after_reading = calls.iter().skip_while(|call| call.name != "pwrite64");
    let mut stops = 0;
    for call in after_reading.filter(|call| call.changes() || call.asks_for_quiet()) {
        let root = scene.fresh();
        let stopped = StoppedRun::start(&root, &[call.inject("signal=STOP")], &scene.commit(&root));
        fs::set_permissions(root.join("a"), Permissions::from_mode(0o640)).unwrap();
        let end = stopped.goes_on();
        let story = format!("after {} {}: {}", call.name, call.nth, call.line);
        assert!(matches!(end, End::Done), "{story}: {end:?}");
        let mode = fs::metadata(root.join("a")).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o640, "{story}: the mode is {mode:o}");
        scene.discard(&root);
        stops += 1;
    }
    assert!(stops > 5, "{stops} stops");
}

#[test]
fn one_save_of_the_same_bytes_during_an_update_does_not_stop_it() {
    let scene = Scene::update();
    let (root, stopped) = stopped_after(&scene, Call::asks_for_quiet);
    rename_over(&root.join("a"), "one");
    let end = stopped.goes_on();
    assert!(matches!(end, End::Done), "{end:?}");
    at_path(&root, "a", "two");
}

/// The commit holds the locks of its paths, so it lives, and nobody may finish or undo its work.
#[test]
fn a_process_that_opens_the_workspace_leaves_a_commit_under_way_alone() {
    for scene in [Scene::update(), Scene::six()] {
        let (root, stopped) = stopped_after(&scene, exchanges);
        let healed = run(&[], &["heal", "--root", root.to_str().unwrap()]);
        assert!(matches!(healed, End::Done), "{healed:?}");
        let end = stopped.goes_on();
        assert!(matches!(end, End::Done), "{end:?}");
        assert_eq!(scene.judge(&root, "opened by another process in between"), Fate::After);
    }
}

/// The path was looked up before, when the folder was a folder.
#[test]
fn a_folder_that_becomes_a_link_during_a_commit_does_not_lead_out_of_the_workspace() {
    let scene = Scene::new(&[("s/c", "one")], &["write:s/c:two"], &[("s/c", "two")], "");
    let (root, stopped) = stopped_after(&scene, |call| call.name == "pwrite64");
    let outside = folder();
    fs::write(outside.path().join("c"), "one").unwrap();
    fs::rename(root.join("s"), root.join("t")).unwrap();
    symlink(outside.path(), root.join("s")).unwrap();
    let end = stopped.goes_on();
    assert!(!matches!(end, End::Done), "{end:?}");
    at_path(outside.path(), "c", "one");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}
