//! `kill -9` before every system call of the supervisor that changes the disk. The result is always all or nothing, and the
//! next command removes what is left.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tollgate_testing::strace::{self, Call};

use crate::world::{Run, World};

/// The calls with which the supervisor changes files and folders.
const CHANGING: &str = "rename,renameat,renameat2,linkat,symlinkat,unlink,unlinkat,rmdir,write,pwrite64,fsync,fdatasync,\
    mkdir,mkdirat,chmod,fchmod,fchmodat,fchown,fsetxattr,fremovexattr,utimensat,ftruncate";

const BEFORE: &str = "echo one > f; echo g > g; echo h > h; mkdir -p d/sub; echo x > d/x; echo y > d/sub/y; echo e > e; \
    ln -s f l; mkdir gone; echo z > gone/z";

/// Every kind of change in one command.
const SCRIPT: &str = "echo two > f; rm g; chmod 755 h; mkdir -p n/m; echo new > n/m/new; ln -sf h l; ln -s x k; \
    rm -r d; echo file > d; rm e; mkdir e; echo in > e/in; rm -r gone; mkdir empty";

fn world() -> World {
    let world = World::new();
    world.native(BEFORE).ends().is(0);
    world.guarded("true").ends().is(0);
    world.nothing_is_left();
    world
}

fn traced<'w>(world: &'w World, kill: &[String], log: &Path) -> Run<'w> {
    let run = [env!("CARGO_BIN_EXE_tollgate"), "run", "--", "sh", "-c", SCRIPT];
    world.program("strace", strace::arguments(CHANGING, log, kill, run)).everywhere()
}

/// The calls of the supervisor that no other process makes as often, so that only the supervisor is killed there.
fn calls_of_supervisor() -> Vec<Call> {
    let world = world();
    let log = world.tmp().join("log");
    traced(&world, &[], &log).ends().is(0);
    let calls = strace::calls(&fs::read_to_string(&log).unwrap());
    let journal = calls.iter().rfind(|call| call.line.contains(".json\""));
    let supervisor = &journal.expect("the supervisor writes a journal").process;
    let is_alone = |call: &&Call| {
        let same = |other: &Call| other.name == call.name && other.nth == call.nth;
        call.process == *supervisor && !calls.iter().any(|other| other.process != *supervisor && same(other))
    };
    calls.iter().filter(is_alone).cloned().collect()
}

#[test]
fn a_supervisor_killed_at_any_point_leaves_all_or_nothing() {
    let before = world().tree();
    let after: BTreeMap<String, String> = {
        let world = world();
        world.native(SCRIPT).ends().is(0);
        world.tree()
    };
    let calls = calls_of_supervisor();
    assert!(calls.len() > 50, "{calls:?}");
    let (mut rolled_back, mut made) = (0, 0);
    for call in calls {
        let world = world();
        let ran = traced(&world, &[call.inject("signal=KILL")], &world.tmp().join("log")).ends();
        // The next command heals.
        world.guarded("true").ends().is(0);
        let tree = world.tree();
        if tree == before {
            rolled_back += 1;
            assert!(!format!("{ran}").starts_with("exit 0"), "{call:?}: nothing was written: {ran}");
        } else {
            assert_eq!(tree, after, "{call:?}: {ran}");
            made += 1;
        }
        world.nothing_is_left();
        world.run("ledger verify").is(0);
        // What is left in the stage is only what the late-write check will move to recovery.
        world.guarded("echo again > f").ends().is(0);
        world.holds("f", "again\n");
    }
    assert!(rolled_back > 20 && made > 0, "{rolled_back} rolled back, {made} made");
}

#[test]
fn a_command_that_is_killed_leaves_what_it_had_written() {
    let world = world();
    let ran = world.guarded("echo two > f; kill -9 $$; echo three > f").ends();
    assert!(format!("{ran}").contains("signal: 9"), "{ran}");
    world.holds("f", "two\n");
    world.nothing_is_left();
}

#[test]
fn if_command_and_supervisor_are_killed_nothing_is_written() {
    let world = world();
    // The supervisor is the parent of the command, and the front is the supervisor's.
    let ran = world.guarded("echo two > f; kill -9 $PPID; kill -9 $$").ends().is(125);
    assert!(ran.stderr().contains("was killed"), "{ran}");
    world.holds("f", "one\n");
    world.guarded("true").ends().is(0);
    world.nothing_is_left();
}
