//! `kill -9` before every system call of the command, and of its `git commit`, that changes the disk. The repository is as before, or has the commit; the next
//! command heals what is left.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use tollgate_testing::strace::{self, Call};
use tollgate_testing::until;

use crate::repository;
use crate::world::{Run, World};

/// The calls with which the command changes files and folders, starts programs and takes locks.
const CHANGING: &str = "rename,renameat,renameat2,link,linkat,symlinkat,unlink,unlinkat,rmdir,write,pwrite64,fsync,fdatasync,\
    mkdir,mkdirat,chmod,fchmod,fchmodat,ftruncate,openat,copy_file_range,flock,execve,clone,clone3,vfork";

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

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    /// The command, without the processes that it starts.
    Command,
    /// The `git commit` that it starts.
    Git,
    /// That, and then the command at once.
    Both,
}

impl Victim {
    /// Runs the command, with the calls of the victim in a log.
    fn traced<'w>(self, world: &'w World, kill: &[String]) -> Run<'w> {
        let log = world.tmp().join("log");
        let commit = [env!("CARGO_BIN_EXE_tollgate"), "commit", "-m", "mine", "--agent", "blue"];
        let strace = |command: &[&str]| {
            let arguments = strace::arguments(CHANGING, &log, kill, command.iter().copied());
            arguments.into_iter().filter(|argument| argument != "-f").collect::<Vec<_>>()
        };
        if self == Self::Command {
            return world.program("strace", strace(&commit)).anywhere();
        }
        let git = world.shell("command -v git").stdout();
        let traced = strace(&[git.trim()]).join("' '");
        let then = if self == Self::Both { "[ $code -lt 128 ] || kill -9 $PPID" } else { "" };
        let script = format!(
            "#!/bin/sh\ncase \" $* \" in *' commit '*) ;; *) exec {} \"$@\" ;; esac\n\
             strace '{traced}' \"$@\"\ncode=$?\n{then}\nexit $code\n",
            git.trim()
        );
        let bin = world.tmp().join("bin");
        fs::create_dir_all(&bin).unwrap();
        fs::write(bin.join("git"), script).unwrap();
        fs::set_permissions(bin.join("git"), Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        world.program(commit[0], commit[1..].iter()).anywhere().env("PATH", path)
    }

    fn calls(self, staged: Staged) -> Vec<Call> {
        let world = world(staged);
        self.traced(&world, &[]).ends().is(0);
        let log = fs::read_to_string(world.tmp().join("log")).unwrap();
        let lines: String = log.lines().map(|line| format!("0 {line}\n")).collect();
        strace::calls(&lines).into_iter().filter(Call::changes).collect()
    }
}

/// What must never change, beside the commit: the files of the tree, with their modes, and the branch that HEAD names.
fn tree(world: &World) -> BTreeMap<OsString, (u32, Vec<u8>)> {
    let names = fs::read_dir(world.root()).unwrap().map(|entry| entry.unwrap().file_name());
    let files = names.filter(|name| name != ".git" && name != ".tollgate").chain([".git/HEAD".into()]);
    let file = |name: OsString| {
        let path = world.path(&name);
        let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
        (name, (mode, fs::read(path).unwrap()))
    };
    files.map(file).collect()
}

/// The number of commits on the branch. No other branch and no damaged object is there, whatever runs beside.
fn commits(world: &World, call: &Call) -> usize {
    world.git("fsck --strict");
    assert_eq!(world.git("for-each-ref '--format=%(refname)'"), "refs/heads/main", "{call:?}");
    world.git("rev-list --count HEAD").parse().unwrap()
}

fn killed_everywhere(victim: Victim, staged: Staged) {
    let calls = victim.calls(staged);
    assert!(calls.len() > 30, "{calls:?}");
    let (mut as_before, mut committed) = (0, 0);
    for call in calls {
        let world = world(staged);
        let (index, before) = (fs::read(world.path(".git/index")).unwrap(), tree(&world));
        let ran = victim.traced(&world, &[call.inject("signal=KILL")]).ends();
        // At once, before anything heals.
        assert!((1..=2).contains(&commits(&world, &call)), "{call:?}");
        assert_eq!(tree(&world), before, "{call:?}");
        // A git that was started goes on, and keeps the next command from healing until it has ended.
        until(&format!("the next command heals after {call:?}"), || {
            world.commit(&["--dry-run", "--agent", "green"]).ends();
            let left = fs::read_dir(world.path(".tollgate/commits")).map_or(0, Iterator::count);
            (left == 0).then_some(())
        });
        let names = fs::read_dir(world.path(".git")).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = names.filter(|name| name.to_string_lossy().contains("tollgate")).collect();
        assert!(left.is_empty() && !world.path(".git/index.lock").exists(), "{call:?}: {left:?}");
        assert_eq!(tree(&world), before, "{call:?}");
        let count = commits(&world, &call);
        let lines = world.json("ledger tail --type COMMIT").as_array().unwrap().len();
        let also = if staged == Staged::AFile { "\nM  b" } else { "" };
        // git itself leaves the lock of a branch, and says so.
        world.shell("find .git -name '*.lock' -delete").is(0);
        if count == 1 {
            as_before += 1;
            assert!(!format!("{ran}").starts_with("exit 0"), "{call:?}: {ran}");
            assert_eq!(fs::read(world.path(".git/index")).unwrap(), index, "{call:?}");
            assert_eq!(lines, 0, "{call:?}");
            world.commit(&["-m", "again", "--agent", "blue"]).ends().is(0);
        } else {
            committed += 1;
            assert_eq!((count, lines), (2, 1), "{call:?}: {ran}");
            world.commit(&["-m", "again", "--agent", "blue"]).ends().is(1);
        }
        assert_eq!(world.git("show --format= --name-only HEAD"), "a");
        let expected = format!("{also}\n M c").trim_start_matches('\n').to_owned();
        assert_eq!(world.git("status --porcelain"), expected.trim_end(), "{call:?}: {ran}");
        world.git("fsck --strict");
        world.run("ledger verify").is(0);
    }
    assert!(as_before > 5 && committed > 2, "{as_before} as before, {committed} committed");
}

#[test]
fn killed_at_any_point_the_repository_is_as_before_or_has_the_commit() {
    killed_everywhere(Victim::Command, Staged::Nothing);
}

#[test]
fn and_so_it_is_beside_what_somebody_has_staged() {
    killed_everywhere(Victim::Command, Staged::AFile);
}

#[test]
fn and_so_it_is_if_git_is_killed() {
    killed_everywhere(Victim::Git, Staged::AFile);
}

#[test]
fn and_so_it_is_if_both_are_killed() {
    killed_everywhere(Victim::Both, Staged::Nothing);
}
