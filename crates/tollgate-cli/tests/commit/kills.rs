//! `kill -9` before every system call of the command that changes the disk. The repository is as before, or has the commit; the next
//! command heals what is left.

use std::collections::BTreeMap;
use std::fs;

use tollgate_testing::strace::{self, Call};
use tollgate_testing::until;

use crate::repository;
use crate::world::{Run, World};

/// The calls with which the command changes files and folders, starts programs and takes locks.
const CHANGING: &str = "rename,renameat,renameat2,link,linkat,symlinkat,unlink,unlinkat,rmdir,write,pwrite64,fsync,fdatasync,\
    mkdir,mkdirat,chmod,fchmod,fchmodat,ftruncate,openat,copy_file_range,flock,execve";

/// What a person has staged before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Staged {
    Nothing,
    AFile,
}

fn world(staged: Staged) -> World {
    let world = repository("echo 1 >a; echo 1 >b; echo 1 >c");
    world.shell("echo 2 | tollgate write a --agent blue; echo 2 | tollgate write c --agent red").is(0);
    if staged == Staged::AFile {
        world.shell("echo 2 >b; git add b").is(0);
    }
    world
}

/// Without the processes that the command starts.
fn traced<'w>(world: &'w World, kill: &[String]) -> Run<'w> {
    let log = world.tmp().join("log");
    let commit = [env!("CARGO_BIN_EXE_tollgate"), "commit", "-m", "mine", "--agent", "blue"];
    let arguments = strace::arguments(CHANGING, &log, kill, commit);
    world.program("strace", arguments.into_iter().filter(|argument| argument != "-f")).anywhere()
}

fn calls(staged: Staged) -> Vec<Call> {
    let world = world(staged);
    traced(&world, &[]).ends().is(0);
    let log = fs::read_to_string(world.tmp().join("log")).unwrap();
    let lines: String = log.lines().map(|line| format!("0 {line}\n")).collect();
    strace::calls(&lines).into_iter().filter(Call::changes).collect()
}

/// What must never change, beside the commit: the files, and what is staged.
fn files(world: &World) -> BTreeMap<&'static str, Vec<u8>> {
    ["a", "b", "c"].into_iter().map(|name| (name, fs::read(world.path(name)).unwrap())).collect()
}

fn killed_everywhere(staged: Staged) {
    let calls = calls(staged);
    assert!(calls.len() > 30, "{calls:?}");
    let (mut as_before, mut committed) = (0, 0);
    for call in calls {
        let world = world(staged);
        let (index, tree) = (fs::read(world.path(".git/index")).unwrap(), files(&world));
        let ran = traced(&world, &[call.inject("signal=KILL")]).ends();
        // A git that was started goes on, and keeps the next command from healing until it has ended.
        until(&format!("the next command heals after {call:?}"), || {
            world.commit(&["--dry-run", "--agent", "green"]).ends();
            let left = fs::read_dir(world.path(".tollgate/commits")).map_or(0, Iterator::count);
            (left == 0).then_some(())
        });
        let names = fs::read_dir(world.path(".git")).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = names.filter(|name| name.to_string_lossy().contains("tollgate")).collect();
        assert!(left.is_empty() && !world.path(".git/index.lock").exists(), "{call:?}: {left:?}");
        assert_eq!(files(&world), tree, "{call:?}");
        let count = world.git("rev-list --count HEAD");
        let lines = world.json("ledger tail --type COMMIT").as_array().unwrap().len();
        let also = if staged == Staged::AFile { "\nM  b" } else { "" };
        if count == "1" {
            as_before += 1;
            assert!(!format!("{ran}").starts_with("exit 0"), "{call:?}: {ran}");
            assert_eq!(fs::read(world.path(".git/index")).unwrap(), index, "{call:?}");
            assert_eq!(lines, 0, "{call:?}");
            world.commit(&["-m", "again", "--agent", "blue"]).ends().is(0);
        } else {
            committed += 1;
            assert_eq!((count.as_str(), lines), ("2", 1), "{call:?}: {ran}");
            world.commit(&["-m", "again", "--agent", "blue"]).ends().is(1);
        }
        assert_eq!(world.git("show --format= --name-only HEAD"), "a");
        let expected = format!("{also}\n M c").trim_start_matches('\n').to_owned();
        assert_eq!(world.git("status --porcelain"), expected.trim_end(), "{call:?}: {ran}");
        world.git("fsck --strict");
        world.run("ledger verify").is(0);
    }
    assert!(as_before > 5 && committed > 5, "{as_before} as before, {committed} committed");
}

#[test]
fn killed_at_any_point_the_repository_is_as_before_or_has_the_commit() {
    killed_everywhere(Staged::Nothing);
}

#[test]
fn and_so_it_is_beside_what_somebody_has_staged() {
    killed_everywhere(Staged::AFile);
}
