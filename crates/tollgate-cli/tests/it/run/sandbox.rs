//! A workspace in which a sandbox has mounted something, as some agent programs do. It cannot be covered as a whole.

use std::fs;

use super::kinds::{BEFORE, SCRIPTS};
use super::{HOLD, refused};
use crate::world::{Ran, World, until};

/// A sandbox with a read-only `.git` and an empty `.codex`, which the script cannot unmount.
fn sandboxed(world: &World, script: &str) -> Ran {
    let inside = format!(
        "umask 022; exec tollgate run --mode transaction -- sh -c '{}'",
        script.replace('\'', "'\\''")
    );
    let outside = "mount --bind .git .git && mount -o remount,bind,ro .git && mount -t tmpfs none .codex && \
                   exec unshare --map-root-user --mount sh -c \"$INSIDE\"";
    let run = world.program("unshare", ["--map-root-user", "--mount", "sh", "-c", outside]).everywhere();
    run.env("INSIDE", inside).ends()
}

fn world() -> World {
    let world = World::new();
    world.native(BEFORE).ends().is(0);
    world.native("mkdir .git .codex; echo x > .git/HEAD").ends().is(0);
    world
}

#[test]
fn every_kind_of_change_is_made_except_that_folders_in_the_root_stay() {
    let stays = |script: &&&str| {
        !["rm -r d &", "rm -r d", "mv d e", "rmdir empty"].iter().any(|no| {
            **script == *no || script.starts_with("rm -r d &&") || script.starts_with("rmdir empty")
        })
    };
    for script in SCRIPTS.iter().filter(stays) {
        let (native, guarded) = (world(), world());
        native.native(script).ends().is(0);
        let ran = sandboxed(&guarded, script).is(0);
        assert_eq!(guarded.tree(), native.tree(), "{script}\n{ran}");
        guarded.nothing_is_left();
    }
    let world = world();
    assert!(sandboxed(&world, "rm -r d").is(1).stderr().contains("busy"));
}

#[test]
fn a_change_by_someone_else_is_never_lost() {
    for (script, file) in [
        ("sed -i s/one/1/ f", "f"),
        ("echo mine > f", "f"),
        ("echo more >> f", "f"),
        ("rm f", "f"),
        ("sed -i s/x/1/ d/x", "d/x"),
        ("rm d/x", "d/x"),
        ("rm -r d/sub", "d/sub/y"),
    ] {
        let world = world();
        let ran = std::thread::scope(|scope| {
            let script = format!("{script}; echo x > other; {HOLD}");
            let run = scope.spawn({
                let world = &world;
                move || sandboxed(world, &script)
            });
            until("the script", || (world.tmp().join("ready").exists() || run.is_finished()).then_some(()));
            world.puts(file, "theirs\n");
            fs::write(world.tmp().join("go"), "").unwrap();
            run.join().unwrap()
        });
        let name = file.rsplit('/').next().unwrap().to_owned();
        assert_eq!(refused(ran), [(name, "STALE_FILE".to_owned())], "{script}");
        world.holds(file, "theirs\n");
        assert!(!world.path("other").exists());
    }
}

#[test]
fn files_that_the_command_does_not_touch_may_change() {
    let world = world();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| sandboxed(&world, &format!("cat f >/dev/null; echo x > other; {HOLD}")));
        until("the script", || world.tmp().join("ready").exists().then_some(()));
        world.puts("f", "theirs\n");
        world.puts("d/x", "theirs\n");
        world.puts("new", "theirs\n");
        fs::write(world.tmp().join("go"), "").unwrap();
        run.join().unwrap().is(0);
    });
    for name in ["f", "d/x", "new"] {
        world.holds(name, "theirs\n");
    }
    world.holds("other", "x\n");
}
