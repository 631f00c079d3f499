//! A program unaware of tollgate saves a file while a commit is stopped after one of its system calls, for each of them.
//! Then the commit continues or is killed. Either way, the save is at the path or in recovery.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, mpsc};
use std::thread;

use rustix::process::Signal;

use crate::scene::{Files, Scene, lines_of, mutations, open, read};
use crate::strace::{Call, End, IN_PROCESS, StoppedRun, calls};

pub(crate) const FOREIGN: &str = "a foreign save";

#[derive(Debug, Clone, Copy)]
enum Save {
    Rename,
    InPlace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    GoOn,
    Die,
}

fn save_everywhere(scene: &Scene, path: &str) {
    let root = scene.fresh();
    let (end, calls) = calls(&root, &[], &scene.commit(&root));
    assert!(matches!(end, End::Done), "{end:?}");
    let mut ends = [0; 3];
    // Before its first mark, the committer has not read all files yet and would build on the save.
    let after_reading = calls.iter().skip_while(|call| call.name != "pwrite64");
    for call in after_reading.filter(|call| call.changes() || call.asks_for_quiet()) {
        for save in [Save::Rename, Save::InPlace] {
            for then in [Then::GoOn, Then::Die] {
                let root = scene.fresh();
                let story = format!(
                    "{save:?} of {path} after {} {}, then {then:?}: {}",
                    call.name, call.nth, call.line
                );
                let (end, saved) = stop_and_save(scene, &root, call, path, save, then);
                let (applied, at_path) = judge(scene, &root, path, saved, &story);
                // A write in place may come too late to be noticed before the answer. A rename cannot.
                let on_time = matches!(save, Save::InPlace) || !saved || at_path;
                assert!(on_time, "{story}: kept aside, but it belongs at the path");
                match end {
                    End::Done => assert!(applied, "{story}: acknowledged, but gone"),
                    End::Refused(_) => assert!(!applied, "{story}: refused, but applied"),
                    End::Killed => assert_eq!(then, Then::Die, "{story}"),
                    End::Fault(words) => panic!("{story}: {words}"),
                }
                ends[match (then, applied) {
                    (Then::GoOn, true) => 0,
                    (Then::GoOn, false) => 1,
                    _ => 2,
                }] += 1;
                scene.discard(&root);
            }
        }
    }
    println!("{path}: {} done, {} refused, {} killed", ends[0], ends[1], ends[2]);
    assert!(ends.iter().all(|&count| count > 0), "all saves fell on one side: {ends:?}");
}

fn stop_and_save(scene: &Scene, root: &Path, call: &Call, path: &str, save: Save, then: Then) -> (End, bool) {
    let stopped = StoppedRun::start(root, &[call.inject("signal=STOP")], &scene.commit(root));
    let target = root.join(path);
    // Nobody can save into a folder that does not exist yet.
    let saved = target.parent().unwrap().is_dir();
    let saver = match save {
        _ if !saved => None,
        Save::Rename => {
            rename_over(&target, FOREIGN);
            None
        }
        Save::InPlace => Some(start_writing(target)),
    };
    let signal = match then {
        Then::GoOn => Signal::CONT,
        Then::Die => Signal::KILL,
    };
    let end = stopped.ends_after(signal);
    if let Some(saver) = saver {
        saver.join().unwrap();
    }
    (end, saved)
}

pub(crate) fn rename_over(path: &Path, text: &str) {
    let temporary = path.with_file_name(".foreign.tmp");
    fs::write(&temporary, text).unwrap();
    fs::rename(&temporary, path).unwrap();
}

/// Opens the file for writing and writes it. Returns when that is done, or while it waits for the end of the lease.
pub(crate) fn start_writing(path: PathBuf) -> thread::JoinHandle<()> {
    let (tell, told) = mpsc::channel();
    let saver = thread::spawn(move || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let opened = options.clone().custom_flags(flags).open(&path);
        let opened = match opened {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                tell.send(Some(fs::canonicalize("/proc/thread-self").unwrap())).unwrap();
                options.open(&path)
            }
            opened => opened,
        };
        opened.unwrap().write_all(FOREIGN.as_bytes()).unwrap();
        let _ = tell.send(None);
    });
    if let Some(task) = told.recv().unwrap() {
        let sleeps = || {
            let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_none_or(|fields| !fields.starts_with('R'))
        };
        // It is not in open(2) yet when it says that it is about to wait there.
        while !sleeps() {
            thread::yield_now();
        }
    }
    saver
}

/// Checks that the save is not lost, that the other files changed all or not at all, and that the workspace is healthy.
/// Returns whether the commit succeeded, and whether the save is at the path.
fn judge(scene: &Scene, root: &Path, path: &str, saved: bool, story: &str) -> (bool, bool) {
    let _no_children = IN_PROCESS.read().unwrap_or_else(PoisonError::into_inner);
    let workspace = open(root);
    let found = read(root);
    // If a save to the new name of a moved file comes before the first check, the undo moves it to the old name.
    let names = touched(scene, path);
    let at_path = names.iter().any(|name| found.get(*name).is_some_and(|text| text == FOREIGN));
    assert!(
        !saved || at_path || holds(root, FOREIGN),
        "{story}: the save is lost: {found:?} {:#?}",
        crate::scene::state(root)
    );
    let lines = mutations(&workspace).len();
    assert!(lines == 0 || lines == scene.changes.len(), "{story}: {lines} lines");
    let applied = lines > 0;
    let expected = if applied { &scene.after } else { &scene.before };
    assert_eq!(others(scene, &found, path), others(scene, expected, path), "{story}: applied: {applied}");
    if saved && !applied {
        assert!(at_path, "{story}: nothing was applied, so the save should be at the path: {found:?}");
    }
    // The old bytes still exist, unless the outsider itself overwrote them.
    for (_, text) in
        scene.before.iter().filter(|(name, text)| !text.is_empty() && !names.contains(&name.as_str()))
    {
        assert!(found.values().any(|found| found == text) || holds(root, text), "{story}: `{text}` is gone");
    }
    scene.later_writes_work(&workspace, &found, story);
    scene.nothing_is_left(root, story);
    assert_eq!(workspace.ledger().verify().unwrap().problem, None, "{story}");
    if saved && !at_path {
        assert!(holds(root, FOREIGN), "{story}: the save was kept and is lost now");
        let late = lines_of(&workspace, "LATE_EXTERNAL_WRITE");
        assert!(!late.is_empty(), "{story}: kept aside, but nobody is told");
    }
    (applied, at_path)
}

/// The path that the outsider saves, and the other end of the move that it is part of.
fn touched<'a>(scene: &Scene, path: &'a str) -> Vec<&'a str>
where
    'static: 'a,
{
    let moves = scene.changes.iter().filter_map(|change| change.strip_prefix("move:")?.split_once(':'));
    let mut touched = vec![path];
    touched.extend(moves.filter(|(from, to)| *from == path || *to == path).flat_map(|(from, to)| [from, to]));
    touched
}

/// The files that the outsider did not touch.
fn others(scene: &Scene, files: &Files, path: &str) -> Files {
    let touched = touched(scene, path);
    let untouched = |name: &str| !touched.contains(&name) && !name.ends_with('/');
    files
        .iter()
        .filter(|(name, _)| untouched(name))
        .map(|(name, text)| (name.clone(), text.clone()))
        .collect()
}

/// Whether a file with this text is kept in the state.
pub(crate) fn holds(root: &Path, text: &str) -> bool {
    ["stage", "history/late", "history/replaced", "history/taken_back", "history/contents"].iter().any(
        |folder| {
            let entries = fs::read_dir(root.join(".tollgate").join(folder)).unwrap();
            entries
                .map(|entry| fs::read(entry.unwrap().path()).unwrap())
                .any(|found| found == text.as_bytes())
        },
    )
}

#[test]
fn a_save_during_an_update_is_not_lost() {
    save_everywhere(&Scene::update(), "a");
}

/// An edit is made from the bytes that are on disk, so it has a base of its own.
#[test]
fn a_save_during_an_edit_is_not_lost() {
    save_everywhere(&Scene::edit(), "a");
}

#[test]
fn a_save_during_a_creation_is_not_lost() {
    save_everywhere(&Scene::create(), "a");
    save_everywhere(&Scene::create_in_new_folder(), "n/o/a");
    save_everywhere(&Scene::create_in_marked_folder(), "g/a");
}

#[test]
fn a_save_during_a_deletion_is_not_lost() {
    save_everywhere(&Scene::delete(), "a");
}

#[test]
fn a_save_during_a_move_is_not_lost() {
    save_everywhere(&Scene::rename(), "a");
    save_everywhere(&Scene::rename(), "b");
}

#[test]
fn a_save_during_a_transaction_is_not_lost() {
    for path in ["a", "s/d"] {
        save_everywhere(&Scene::six(), path);
    }
}

#[test]
fn a_save_on_another_file_system_is_not_lost() {
    if let Some(scene) = Scene::elsewhere() {
        save_everywhere(&scene, "o/a");
    }
}

#[test]
fn a_save_where_a_transaction_moves_or_creates_is_not_lost() {
    for path in ["m", "n/e"] {
        save_everywhere(&Scene::six(), path);
    }
}
