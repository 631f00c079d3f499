//! Every system call that opens or changes a file fails once, in each way that it can fail. Either the commit succeeds
//! anyway, or there is a clear fault and nothing has changed. Then the same with a disk that is really full.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::scene::{Fate, Scene, read};
use crate::strace::{Call, End, calls, run};

/// The errors of a call of this name on a disk that is full, broken or remote. `EINTR` must never cause a fault.
fn errors(call: &Call) -> &'static [&'static str] {
    match call.name.as_str() {
        "write" | "pwrite64" | "ftruncate" | "fsync" | "fdatasync" | "mkdir" | "mkdirat" => {
            &["ENOSPC", "EIO", "EINTR"]
        }
        "openat" if call.changes() => &["ENOSPC", "EIO", "EMFILE", "EINTR"],
        // A signal cannot interrupt the opening of a folder.
        "openat" | "openat2" if call.line.contains("O_DIRECTORY") => &["EIO", "EMFILE"],
        "open" | "openat" | "openat2" => &["EIO", "EMFILE", "EINTR"],
        "rename" | "renameat" | "renameat2" | "link" | "linkat" => &["ENOSPC", "EIO", "EXDEV", "EINTR"],
        "unlink" | "unlinkat" | "fchmod" | "fchown" | "fsetxattr" => &["EIO", "EINTR"],
        "fcntl" if call.asks_for_quiet() => &["EIO", "EINTR"],
        "fcntl" => &[],
        other => panic!("how can `{other}` fail? {}", call.line),
    }
}

fn fail_everywhere(scene: &Scene) {
    let root = scene.fresh();
    let (end, calls) = calls(&root, &[], &scene.commit(&root));
    assert!(matches!(end, End::Done), "{end:?}");
    let (mut stood, mut faults) = (0, 0);
    for call in &calls {
        for error in errors(call) {
            let root = scene.fresh();
            let end = run(&[call.inject(&format!("error={error}"))], &scene.commit(&root));
            let story = format!("{error} from {} {}: {}", call.name, call.nth, call.line);
            let fate = match &end {
                End::Done => Fate::After,
                End::Fault(words) => {
                    assert!(is_clear(words), "{story}: {words}");
                    assert_eq!(read(&root), scene.before, "{story}: a fault, but something was changed");
                    Fate::Before
                }
                End::Refused(_) | End::Killed => panic!("{story}: {end:?}"),
            };
            assert!(*error != "EINTR" || fate == Fate::After, "{story}: interrupted is not failed: {end:?}");
            assert_eq!(scene.judge(&root, &story), fate, "{story}: the answer was {end:?}");
            match fate {
                Fate::After => stood += 1,
                Fate::Before => faults += 1,
            }
            scene.discard(&root);
        }
    }
    println!("{stood} stood, {faults} faults");
    assert!(stood > 0 && faults > 0);
}

/// The message says what failed, where, and why.
fn is_clear(words: &str) -> bool {
    words.contains(": cannot ")
        && words.contains('`')
        && words.contains("os error")
        && !words.contains("panicked")
}

/// From one call on, every call of that name fails, so that the undo fails too. The next process heals the workspace.
fn fail_from_there_on(scene: &Scene) {
    let root = scene.fresh();
    let (_, calls) = calls(&root, &[], &scene.commit(&root));
    for call in calls.iter().filter(|call| call.changes() || call.opens()) {
        let root = scene.fresh();
        let injection = format!("inject={}:error=EIO:when={}+", call.name, call.nth);
        let end = run(&[injection], &scene.commit(&root));
        let story = format!("EIO from {} {} on: {}", call.name, call.nth, call.line);
        let fate = scene.judge(&root, &story);
        match end {
            End::Done => assert_eq!(fate, Fate::After, "{story}: acknowledged, but gone"),
            // If every write fails, the answer cannot be printed either.
            End::Fault(words) => assert!(call.name == "write" || is_clear(&words), "{story}: {words}"),
            End::Refused(_) | End::Killed => panic!("{story}: {end:?}"),
        }
        scene.discard(&root);
    }
}

#[test]
fn a_failing_call_fails_a_single_change_clearly_or_not_at_all() {
    for scene in [
        Scene::update(),
        Scene::create(),
        Scene::create_in_new_folder(),
        Scene::create_in_marked_folder(),
        Scene::delete(),
        Scene::rename(),
    ] {
        fail_everywhere(&scene);
    }
}

#[test]
fn a_failing_call_fails_the_first_update_in_a_workspace_clearly_or_not_at_all() {
    fail_everywhere(&Scene::first_update());
}

#[test]
fn a_failing_call_fails_six_files_clearly_or_not_at_all() {
    fail_everywhere(&Scene::six());
}

#[test]
fn a_failing_call_fails_changes_on_another_file_system_clearly_or_not_at_all() {
    if let Some(scene) = Scene::elsewhere() {
        fail_everywhere(&scene);
    }
}

#[test]
fn after_a_broken_disk_the_next_process_recovers() {
    for scene in [Scene::update(), Scene::create_in_new_folder(), Scene::delete(), Scene::six()] {
        fail_from_there_on(&scene);
    }
}

/// A small file system. `None`, with a message, if it cannot be mounted.
struct Small(tempfile::TempDir);

impl Small {
    fn mount() -> Option<Self> {
        let small = tempfile::tempdir().unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k,nr_inodes=256", "tmpfs"])
            .arg(small.path())
            .output();
        match mount {
            Ok(output) if output.status.success() => Some(Self(small)),
            answer => {
                println!("skipped: a full disk needs the right to mount a tmpfs: {answer:?}");
                None
            }
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_a_clear_fault_and_changes_nothing() {
    let Some(small) = Small::mount() else { return };
    for scene in [Scene::update(), Scene::six()] {
        // One free page less each time, from enough down to none.
        let (mut stood, mut faults) = (0, 0);
        for pages in (0..24).rev() {
            let root = small.0.path().join("w");
            crate::strace::copy(&scene.template(), &root);
            let filler = small.0.path().join("filler");
            fill(&filler, pages);
            let end = run(&[], &scene.commit(&root));
            let story = format!("{pages} pages free");
            let fate = match &end {
                End::Done => Fate::After,
                End::Fault(words) => {
                    assert!(is_clear(words), "{story}: {words}");
                    assert!(words.starts_with("DISK_FULL"), "{story}: {words}");
                    Fate::Before
                }
                End::Refused(_) | End::Killed => panic!("{story}: {end:?}"),
            };
            let expected = if fate == Fate::After { &scene.after } else { &scene.before };
            assert_eq!(read(&root), *expected, "{story}");
            fs::remove_file(&filler).unwrap();
            assert_eq!(scene.judge(&root, &story), fate, "{story}");
            scene.discard(&root);
            match fate {
                Fate::After => stood += 1,
                Fate::Before => faults += 1,
            }
        }
        println!("{stood} stood, {faults} faults");
        assert!(stood > 0 && faults > 0);
    }
}

/// What a commit has replaced is moved to the store of contents later, which needs room.
#[test]
fn storing_on_a_full_disk_loses_nothing() {
    let Some(small) = Small::mount() else { return };
    let scene = Scene::six();
    let (mut stood, mut faults) = (0, 0);
    for pages in (0..12).rev() {
        let root = small.0.path().join("w");
        crate::strace::copy(&scene.template(), &root);
        assert!(matches!(run(&[], &scene.commit(&root)), End::Done));
        let filler = small.0.path().join("filler");
        fill(&filler, pages);
        let story = format!("{pages} pages free");
        match run(&[], &["sweep", "--root", root.to_str().unwrap()]) {
            End::Done => stood += 1,
            End::Fault(words) => {
                assert!(words.starts_with("DISK_FULL") && is_clear(&words), "{story}: {words}");
                faults += 1;
            }
            end => panic!("{story}: {end:?}"),
        }
        scene.bytes_are_kept(&root, &story);
        fs::remove_file(&filler).unwrap();
        assert!(matches!(run(&[], &["sweep", "--root", root.to_str().unwrap()]), End::Done), "{story}");
        scene.bytes_are_kept(&root, &story);
        assert_eq!(scene.judge(&root, &story), Fate::After, "{story}");
        scene.discard(&root);
    }
    println!("{stood} stood, {faults} faults");
    assert!(stood > 0 && faults > 0);
}

/// Fills the file system until this number of pages is free.
fn fill(filler: &Path, pages: usize) {
    use std::io::Write;
    let mut file = fs::File::create(filler).unwrap();
    let mut written = 0u64;
    while file.write_all(&[0; 4096]).is_ok() {
        written += 4096;
    }
    file.set_len(written.saturating_sub(4096 * pages as u64)).unwrap();
}
