//! `tollgate run` at the level of the gate, and where it only observes: with real programs, as real processes.

mod calls;
mod levels;
mod processes;
mod replace;
mod stale;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::thread;

use serde_json::Value;

use crate::world::{Ran, World, until};

/// A workspace with a file `f`, and beside it a program `pause`, which says that it was reached and waits.
fn world() -> World {
    let world = World::new();
    world.puts("f", "one\n");
    let pause = world.tmp().join("pause");
    fs::write(&pause, "#!/bin/sh\n: > ../ready\ncat ../go > /dev/null\n").unwrap();
    fs::set_permissions(&pause, fs::Permissions::from_mode(0o755)).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        world.tmp().join("go"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    world
}

/// Runs a command under the gate. When it is in `pause`, does something and lets it go on.
fn interrupted(world: &World, level: &str, words: &[&str], act: impl FnOnce() + Send) -> Ran {
    thread::scope(|scope| {
        scope.spawn(|| {
            until("the program to pause", || world.tmp().join("ready").exists().then_some(()));
            act();
            go(world);
        });
        run(world, level, words)
    })
}

fn run(world: &World, level: &str, words: &[&str]) -> Ran {
    world.tollgate(["run", "--mode", level, "--"].iter().chain(words)).ends()
}

/// Lets a paused program go on. Fails if no program comes to wait there.
fn go(world: &World) {
    until("a program that waits", || opens_for_a_reader(&world.tmp().join("go")).then_some(()));
}

/// Opens a pipe without waiting: an error if nobody reads it.
fn opens_for_a_reader(pipe: &Path) -> bool {
    OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(pipe).is_ok()
}

/// The payloads of a refused run. Fails if its exit code is not 75.
#[track_caller]
fn payloads(ran: Ran) -> Vec<Value> {
    let ran = ran.is(75);
    let lines = ran.stderr();
    lines
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The lines of the ledger of this type.
fn ledger(world: &World, kind: &str) -> Vec<Value> {
    let text = fs::read_to_string(world.path(".tollgate/ledger.jsonl")).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["action_type"] == kind).collect()
}

/// A program of Perl that enters a Landlock domain, in which only sockets cannot be created, and executes its arguments. Every
/// domain forbids mounts.
const LANDLOCK: &str = r#"
    my $prctl = `uname -m` =~ /x86_64/ ? 157 : 167;
    syscall($prctl, 38, 1, 0, 0, 0) == 0 or die "$!";
    my $attributes = pack("Q", 1 << 9);
    my $rules = syscall(444, $attributes, 8, 0);
    $rules >= 0 && syscall(446, $rules, 0) == 0 or die "no Landlock: $!";
    exec @ARGV or die "$!";
"#;

/// Two ways in which another program saves a file.
const SAVES: [fn(&World, &str); 2] = [
    |world, text| world.puts("f", text),
    |world, text| {
        let beside = world.tmp().join("beside");
        fs::write(&beside, text).unwrap();
        fs::rename(beside, world.path("f")).unwrap();
    },
];
