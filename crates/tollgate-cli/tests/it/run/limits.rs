//! Large workspaces, full disks, missing rights and other machines.

use std::fs;

use super::{HOLD, refused};
use crate::world::{Ran, World, hash};

/// More names than tollgate lists at the start of a command.
fn large() -> World {
    let world = World::new();
    for folder in 0..500 {
        fs::create_dir(world.path(format!("d{folder}"))).unwrap();
        for file in 0..100 {
            fs::write(world.path(format!("d{folder}/f{file}")), "one\n").unwrap();
        }
    }
    world
}

#[test]
fn fifty_thousand_names_are_guarded() {
    let world = large();
    let ran =
        world.guarded("sed -i s/one/1/ d7/f7; rm d8/f8; mv d9/f9 d9/g; rm -r d10; echo n > n").ends().is(0);
    // That the reads are not known is said only where it matters.
    let says_so = |ran: &Ran| ran.stderr().contains("too many files here to know all that the command read");
    assert!(!says_so(&ran), "{ran}");
    let serial = world.guarded_with(&["--serial"], "cat d1/f1").ends().is(0);
    assert!(says_so(&serial), "{serial}");
    world.holds("d7/f7", "1\n");
    assert!(!world.path("d8/f8").exists() && world.path("d9/g").exists() && !world.path("d10").exists());
    for script in ["sed -i s/one/1/ d1/f1", "echo mine > d1/f1", "rm d1/f1", "rm -r d1"] {
        world.puts("d1/f1", "one\n");
        let ran =
            world.held(&[], &format!("{script}; echo x > other; {HOLD}"), || world.puts("d1/f1", "theirs\n"));
        assert!(says_so(&ran), "{ran}");
        assert_eq!(refused(ran), [("f1".to_owned(), "STALE_FILE".to_owned())], "{script}");
        world.holds("d1/f1", "theirs\n");
        assert!(!world.path("other").exists());
    }
    // What the agent knew counts here, too.
    let turn = world.turn("blue");
    world.run(&format!("read d2/f2 --turn {turn}")).is(0);
    world.puts("d2/f2", "theirs\n");
    refused(world.guarded_with(&["--turn", &turn], "echo mine > d2/f2").ends());
    reads_in_named_folders_are_known(&world);
}

fn reads_in_named_folders_are_known(world: &World) {
    let turn = world.turn("blue");
    let reads = |script: &str| {
        let ran = world.guarded_with(&["--turn", &turn, "--json"], script).ends().is(0);
        serde_json::from_str::<serde_json::Value>(&ran.stdout()).unwrap()["reads"].clone()
    };
    let read = |path: &str| serde_json::json!([{"path": path, "sha256": hash("one\n")}]);
    assert_eq!(reads("cat d3/f3"), read("d3/f3"));
    assert_eq!(reads("cd d4 && head -n 1 f4"), read("d4/f4"));
    assert_eq!(reads("a=5; cat d$a/f$a"), serde_json::json!([]), "nobody knows that it reads there");
    // What a command showed to the agent, the agent knows.
    world.puts("d3/f3", "theirs\n");
    world.tollgate(["write", "d3/f3", "--turn", &turn]).stdin("mine\n").ends().is(1);
    // What somebody else changes while the command works on it is noticed.
    let ran = world.held(&[], &format!("cat d6/f6 > seen; {HOLD}"), || world.puts("d6/f6", "theirs\n"));
    assert!(ran.stderr().contains("`d6/f6` was read by the command and changed by someone else"), "{ran}");
}

#[test]
fn thousands_of_changes_are_made_together() {
    let world = World::with("[guard]\ndurability = \"fast\"\n");
    let make = "i=0; while [ $i -lt 2000 ]; do echo $i > f$i; i=$((i+1)); done";
    world.guarded(make).ends().is(0);
    world.guarded("sed -i s/^/x/ f*").ends().is(0);
    world.holds("f1999", "x1999\n");
    let ran = world.held(&[], &format!("sed -i s/^/y/ f*; {HOLD}"), || world.puts("f1000", "theirs\n"));
    assert_eq!(refused(ran), [("f1000".to_owned(), "STALE_FILE".to_owned())]);
    world.holds("f0", "x0\n");
    world.guarded("rm f*").ends().is(0);
    assert_eq!(world.tree().len(), 0);
}

/// Runs a script in which `W` is the workspace and `run` is `tollgate run`, as root of its own user namespace.
fn alone(world: &World, script: &str) -> Ran {
    let script = format!(
        "W={}; run() {{ {} run -C \"$W\" \"$@\"; }}; {script}",
        world.root().display(),
        env!("CARGO_BIN_EXE_tollgate")
    );
    world.program("unshare", ["--map-root-user", "--mount", "bash", "-c", &script]).everywhere().ends()
}

#[test]
fn on_a_full_disk_nothing_is_written() {
    let world = World::new();
    let ran = alone(
        &world,
        "mount -t tmpfs -o size=500k none $W; cd $W; mkdir -m 700 .tollgate; echo one > f; run -- true || exit 1; \
         run -- sh -c 'head -c 300000 /dev/zero > big; echo two > f'; echo code $?; cat f; ls; run -- true; echo code $?",
    );
    let out = ran.stdout();
    assert!(out.starts_with("code 125\none\nf\ncode 0\n"), "{ran}");
    assert!(ran.stderr().contains("No space left"), "{ran}");
}

#[test]
fn a_workspace_that_is_read_only_is_a_fault() {
    let world = World::new();
    world.puts("f", "one\n");
    world.guarded("true").ends().is(0);
    world.nothing_is_left();
    let ran = alone(
        &world,
        "mount --bind $W $W; mount -o remount,bind,ro $W; run -- sh -c 'echo two > f'; echo code $?",
    );
    assert_eq!(ran.stdout(), "code 125\n", "{ran}");
    assert!(ran.stderr().contains("Read-only file system"), "{ran}");
}

#[test]
fn without_namespaces_the_answer_says_so_and_the_command_does_not_start() {
    let world = World::new();
    let ran = alone(
        &world,
        "echo 0 > /proc/sys/user/max_user_namespaces; cd $W; \
         setpriv --bounding-set=-all --inh-caps=-all bash -c \"$(declare -f run); W=$W; run --mode transaction -- touch ran\"; \
         echo code $?",
    );
    assert_eq!(ran.stdout(), "code 125\n", "{ran}");
    assert!(ran.stderr().contains("allows no private view"), "{ran}");
    assert!(!world.path("ran").exists());
}

/// Most users are not root. They get a user namespace of their own.
#[test]
fn a_user_without_rights_has_the_same_guard() {
    let world = World::new();
    let user = "setpriv --reuid=1234 --regid=1234 --clear-groups";
    let script = format!(
        "chmod 755 .. && chmod -R 777 ../home ../run ../state && mkdir ../u && echo secret > ../u/secret && \
         chmod 600 ../u/secret && chown 1234:1234 ../u && cd ../u && export XDG_RUNTIME_DIR=/nowhere \
         XDG_STATE_HOME=$PWD/../state TMPDIR=/tmp && {user} mkdir -m 700 .tollgate && {user} sh -c 'echo one > f' && \
         {user} tollgate run -- sh -c 'id -u; sed -i s/one/1/ f; echo new > n; rm n; cat secret; echo x > secret; \
         rm f; mkdir f; echo in > f/in; ls -ln f/in | cut -c1-10'; echo code $?; cat f/in; cat secret; until [ -z \"$(ls .tollgate/runs)\" ]; do sleep 0.01; done"
    );
    let ran = world.program("bash", ["-c", &script]).everywhere().ends();
    assert_eq!(ran.stdout(), "1234\n-rw-r--r--\ncode 0\nin\nsecret\n", "{ran}");
}

#[test]
fn where_the_workspace_is_the_vault_tasks_are_claimed_inside_runs_too() {
    let world = World::with("[vault]\ndir = \".\"\ndurability = \"fast\"\nsettle = \"0ms\"\n");
    world.run("init --vault .").is(0);
    for level in ["transaction", "gate"] {
        world.run(&format!("task add {level}")).is(0);
        let claim = format!("tollgate task claim {level} --agent blue");
        let script = format!("echo {level} > f; {claim} || exit 9; {HOLD}");
        let ran = world.held(&["--mode", level], &script, || {
            let lost = world.run(&format!("task claim {level} --agent red"));
            assert!(format!("{lost}").starts_with("exit 1"), "the claim is not seen: {lost}");
        });
        ran.is(0);
        world.holds("f", format!("{level}\n"));
    }
}

/// The hint helps: the caller has called the command correctly.
#[test]
fn a_command_that_cannot_be_guarded_gets_a_hint_that_helps() {
    let world = World::new();
    let ran = alone(
        &world,
        "echo 0 > /proc/sys/user/max_user_namespaces; cd $W; \
         setpriv --bounding-set=-all --inh-caps=-all bash -c \"$(declare -f run); W=$W; run --mode transaction -- true\"",
    );
    let ran = ran.is(125);
    assert!(ran.stderr().contains("take a weaker level with `--mode gate`"), "{ran}");
    let ran = world.tollgate(["run", "--pass", "/tmp", "--", "true"]).ends().is(125);
    assert!(ran.stderr().contains("give `--pass` a folder below the root"), "{ran}");
}
