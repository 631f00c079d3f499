//! Bad input gets a clear answer: no hang, no panic, no change.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use tollgate::guard::{Expected, Outcome};
use tollgate::part::Part;
use tollgate::refusal::ErrorType;

use crate::world::World;

fn answer(world: &World, path: &Path) -> (String, String) {
    let agent = world.agent("blue");
    let word = |outcome: tollgate::error::Result<Outcome<()>>| match outcome {
        Ok(Outcome::Done(())) => "DONE".to_owned(),
        Ok(Outcome::Refused(refused)) => {
            serde_json::to_value(refused.payload().error_type).unwrap().as_str().unwrap().into()
        }
        Err(fault) => fault.code().to_owned(),
    };
    let read = word(world.gate.read(&agent.turn, path, Part::Whole).map(|outcome| outcome.map(|_| ())));
    let write =
        word(world.gate.write(&agent.turn, path, "x", Expected::Baseline).map(|outcome| outcome.map(|_| ())));
    (read, write)
}

#[test]
fn every_unusual_path_gets_a_clear_answer() {
    let world = World::new();
    fs::create_dir(world.root().join("folder")).unwrap();
    world.outsider_writes("file", "x");
    std::os::unix::fs::symlink("/etc", world.root().join("out")).unwrap();
    std::os::unix::fs::symlink("loop", world.root().join("loop")).unwrap();
    std::os::unix::fs::symlink(world.outside().join("nowhere"), world.root().join("dangling_out")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        world.root().join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let table: &[(&[u8], &str, &str)] = &[
        (b"../x", "OUTSIDE_WORKSPACE", "OUTSIDE_WORKSPACE"),
        (b"folder/../../x", "OUTSIDE_WORKSPACE", "OUTSIDE_WORKSPACE"),
        (b"/etc/passwd", "OUTSIDE_WORKSPACE", "OUTSIDE_WORKSPACE"),
        (b"out/passwd", "OUTSIDE_WORKSPACE", "OUTSIDE_WORKSPACE"),
        (b"dangling_out", "OUTSIDE_WORKSPACE", "OUTSIDE_WORKSPACE"),
        (b"/dev/zero", "OUTSIDE_WORKSPACE", "OUTSIDE_WORKSPACE"),
        (b"folder", "NOT_A_FILE", "NOT_A_FILE"),
        (b"", "NOT_A_FILE", "NOT_A_FILE"),
        (b"fifo", "NOT_A_FILE", "NOT_A_FILE"),
        (b"loop", "IO_ERROR", "IO_ERROR"),
        (b"file/below", "IO_ERROR", "IO_ERROR"),
        (b"nul\0byte", "IO_ERROR", "IO_ERROR"),
        (&[b'x'; 300], "IO_ERROR", "IO_ERROR"),
        (&[b'x'; 5000], "IO_ERROR", "IO_ERROR"),
        (b"new/", "INVALID", "INVALID"),
        (b"new/.", "INVALID", "INVALID"),
        (b"file/", "INVALID", "INVALID"),
        (b"folder/", "NOT_A_FILE", "NOT_A_FILE"),
        (b"new\nline", "NOT_FOUND", "DONE"),
        (b"\x1b[31mred", "NOT_FOUND", "DONE"),
        (b"not utf-8 \xff\xfe", "NOT_FOUND", "DONE"),
        (&[b'y'; 255], "NOT_FOUND", "DONE"),
        (b"-rf", "NOT_FOUND", "DONE"),
        (b"a, b = c%20~", "NOT_FOUND", "DONE"),
    ];
    for (path, read, write) in table {
        let path = PathBuf::from(OsString::from_vec(path.to_vec()));
        let shown: String = path.to_string_lossy().chars().take(40).collect();
        assert_eq!(answer(&world, &path), ((*read).to_owned(), (*write).to_owned()), "{shown:?}");
        if *write == "DONE" {
            assert_eq!(answer(&world, &path), ("DONE".to_owned(), "DONE".to_owned()), "{shown:?} again");
            assert_eq!(fs::read(world.root().join(&path)).unwrap(), b"x");
        }
    }
    assert!(!world.outside().join("x").exists() && !world.outside().join("nowhere").exists());
    assert!(world.gate.workspace().ledger().verify().unwrap().problem.is_none());
}

#[test]
fn a_path_of_4095_bytes_works() {
    let world = World::new();
    let mut path = PathBuf::new();
    while world.root().join(&path).as_os_str().len() + 102 < 4095 {
        path.push("x".repeat(100));
    }
    path.push("y".repeat(4094 - world.root().join(&path).as_os_str().len()));
    assert_eq!(world.root().join(&path).as_os_str().len(), 4095);
    let path = path.to_str().unwrap();
    let agent = world.agent("blue");
    agent.creates(path, "one").done();
    agent.writes(path, "two").done();
    assert_eq!(agent.read(path, Part::Whole).0, b"two");
}

#[test]
fn a_folder_replaced_by_a_link_is_refused() {
    let world = World::new();
    let outside = world.outside().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a"), "theirs").unwrap();
    world.outsider_writes("folder/a", "one");
    let agent = world.agent("blue");
    agent.reads("folder/a");
    fs::remove_dir_all(world.root().join("folder")).unwrap();
    std::os::unix::fs::symlink(&outside, world.root().join("folder")).unwrap();
    agent.writes("folder/a", "x").refused(ErrorType::OutsideWorkspace);
    assert_eq!(fs::read(outside.join("a")).unwrap(), b"theirs");
}

#[test]
fn a_log_that_is_always_open_is_busy_for_writes_and_can_be_read() {
    let world = World::with("[guard]\nquiet_wait = \"30ms\"");
    world.outsider_writes("log", "one\n");
    let mut log = fs::File::options().append(true).open(world.root().join("log")).unwrap();
    let agent = world.agent("blue");
    assert_eq!(agent.read("log", Part::Whole).0, b"one\n");
    log.write_all(b"two\n").unwrap();
    assert_eq!(agent.read("log", Part::Whole).0, b"one\ntwo\n");
    agent.writes("log", "x").refused(ErrorType::FileBusy);
    agent.edits("log", "one", "x").refused(ErrorType::FileBusy);
    agent.deletes("log").refused(ErrorType::FileBusy);
    world.holds("log", "one\ntwo\n");
    drop(log);
    agent.writes("log", "x").done();
}

#[test]
fn a_file_that_grows_during_a_read_is_read_up_to_its_old_length() {
    let world = World::new();
    world.outsider_writes("log", "start\n");
    let path = world.root().join("log");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut log = fs::File::options().append(true).open(&path).unwrap();
            // Long enough to grow during the reads, and short enough to be read in time on a busy machine.
            let line = [b'x'; 4096];
            while !stop.load(std::sync::atomic::Ordering::Relaxed) && log.metadata().unwrap().len() < 32 << 20
            {
                log.write_all(&line).unwrap();
            }
        });
        let agent = world.agent("blue");
        for _ in 0..20 {
            let (bytes, sha256) = agent.read("log", Part::Whole);
            assert_eq!(
                tollgate::digest::Digest::of(&bytes),
                sha256,
                "the hash is that of the returned bytes"
            );
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_huge_file_is_streamed_hashed_and_replaced() {
    let world = World::new();
    let path = world.root().join("huge");
    // Sparse, so it takes no space on disk. The bytes are still read and hashed.
    fs::File::create(&path).unwrap().set_len(2 << 30).unwrap();
    let agent = world.agent("blue");
    struct Count(u64);
    impl Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    let Outcome::Done(read) = world.gate.read_to(&agent.turn, "huge", Part::Whole, &mut count).unwrap()
    else {
        panic!()
    };
    assert_eq!((count.0, read.size), (2 << 30, 2 << 30));
    agent.writes("huge", "small").done();
    world.holds("huge", "small");
}

#[test]
fn a_file_that_is_too_large_to_edit_is_not_read() {
    let world = World::new();
    // Far more than the memory of any machine, so the test ends only if nothing reads it.
    fs::File::create(world.root().join("huge")).unwrap().set_len(1 << 42).unwrap();
    let agent = world.agent("blue");
    let edit = || vec![tollgate::edit::Edit::once("old", "new")];
    let fault = world.gate.edit(&agent.turn, "huge", edit(), Expected::Baseline).unwrap_err();
    assert!(fault.to_string().contains("larger than 16 MiB"), "{fault}");
}
