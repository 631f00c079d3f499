//! Every kind of change comes to the workspace as it would without tollgate.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::HOLD;
use crate::world::World;

/// Before each script: a file, a folder with files and a folder in it, a link, a read-only file.
pub(super) const BEFORE: &str = "umask 022; echo one > f; mkdir -p d/sub; echo x > d/x; echo y > d/sub/y; ln -s f l; ln -s d dl; \
    echo ro > ro; chmod 444 ro; mkdir empty; printf 'a\\0b' > binary; : > nothing";

pub(super) const SCRIPTS: &[&str] = &[
    "echo new > new",
    "mkdir -p a/b/c && echo new > a/b/c/new",
    "mkdir -p a/b/c",
    "mkdir -m 700 private; echo x > private/x; chmod 600 private/x",
    "rm f",
    "rm -r d",
    "rm d/x",
    "rm -r d/sub",
    "rmdir empty",
    "rm f && echo again > f",
    "rm -r d && mkdir d && echo z > d/z",
    "rm -r d && mkdir d && echo z > d/x",
    "rm -r d && mkdir -m 700 d",
    "mv f g",
    "mv f d/f",
    "mv d/x d/sub/x",
    "mv d e",
    "mkdir n && mv f n/ && mv n m",
    "chmod +x f",
    "chmod 600 d/x && chmod 700 d",
    "chmod 444 f && chmod 644 ro",
    "echo changed > f && chmod 755 f",
    "ln -s somewhere new-link",
    "ln -sfn d/sub l",
    "rm l",
    "rm l && echo file > l",
    "rm f && ln -s ro f",
    "rm dl && mkdir dl && echo z > dl/z",
    "rm f && mkdir f && echo in > f/in",
    "rm f && mkdir -p f/a/b && echo in > f/a/b/in",
    "rm f && mkdir f",
    "rm -r d && echo file > d",
    "rm -r d && ln -s f d",
    "rmdir empty && echo file > empty",
    "rm -r d && echo file > d && rm f && mkdir f && mv d f/d",
    "echo through > l",
    "echo x > dl/x2",
    "rm -f ro && echo new > ro",
    "sed -i s/ro/rw/ ro",
    ": > f",
    "cp binary copy; cp nothing nothing2; printf '\\377' >> binary",
    "ln f hard",
    "head -c 300000 /dev/zero | tr '\\0' x > large",
    "i=0; while [ $i -lt 200 ]; do echo $i > many$i; i=$((i+1)); done",
    "mkdir 'a b' && echo x > 'a b/c,d:e\\f' && ln -s 'x y' 'l:m'",
    "echo x > \"$(printf 'new\\nline')\"",
    "touch f",
    "true",
];

#[test]
fn every_kind_of_change_is_made() {
    for script in SCRIPTS {
        let (native, guarded) = (World::new(), World::new());
        for world in [&native, &guarded] {
            world.native(BEFORE).ends().is(0);
        }
        native.native(script).ends().is(0);
        let ran = guarded.guarded(script).ends().is(0);
        assert_eq!(guarded.tree(), native.tree(), "{script}\n{ran}");
        guarded.nothing_is_left();
        guarded.run("ledger verify").is(0);
    }
}

#[test]
fn a_program_sees_its_own_changes_and_others_do_not_see_them_yet() {
    let world = World::new();
    world.puts("f", "one\n");
    let ran = world.held(&[], &format!("echo mine > f; rm -f g; mkdir d; {HOLD}; cat f; ls -d d"), || {
        world.holds("f", "one\n");
        assert!(!world.path("d").exists());
    });
    assert_eq!(ran.is(0).stdout(), "mine\nd\n");
    world.holds("f", "mine\n");
}

#[test]
fn times_are_those_of_the_command() {
    let world = World::new();
    world.puts("f", "one\n");
    world.puts("g", "one\n");
    world
        .guarded("touch -d @1000 f; echo x > g; touch -d @2000 g; echo x > n; touch -d @3000 n")
        .ends()
        .is(0);
    let modified = |name: &str| fs::metadata(world.path(name)).unwrap().mtime();
    assert_eq!(["f", "g", "n"].map(modified), [1000, 2000, 3000]);
}

#[test]
fn each_changed_file_has_a_ledger_line() {
    let world = World::new();
    world.puts("f", "one\n");
    world.puts("g", "one\n");
    world.guarded_with(&["--agent", "blue"], "echo two > f; rm g; mkdir d; echo x > d/x").ends().is(0);
    let mut lines = Vec::new();
    for line in world.lines().iter().filter(|line| line["action_type"] == "MUTATION") {
        let payload = &line["payload"];
        assert_eq!((&payload["via"], &payload["level"]), (&"run".into(), &"transaction".into()));
        assert_eq!(line["agent"], "blue");
        lines.push(payload["target_file"].as_str().unwrap().to_owned());
    }
    lines.sort();
    assert_eq!(lines, ["d/x", "f", "g"]);
}

#[test]
fn what_was_replaced_is_in_recovery() {
    let world = World::new();
    world.puts("f", "one\n");
    world.guarded("echo two > f").ends().is(0);
    let kept = world.json("recovery list");
    let id = kept["recovery"][0]["id"].as_str().or_else(|| kept[0]["id"].as_str()).unwrap().to_owned();
    world.run(&format!("recovery restore {id}")).is(0);
    world.holds("f", "one\n");
}

#[test]
fn folders_that_git_ignores_are_changed_directly() {
    let world = World::new();
    world
        .native("git init -q .; printf 'target/\\nout\\n' > .gitignore; mkdir target; echo old > target/o")
        .ends()
        .is(0);
    let ran = world.held(&[], &format!("echo new > target/o; mkdir out; echo x > out/x; {HOLD}"), || {
        world.holds("target/o", "new\n");
    });
    ran.is(0);
    world.holds("out/x", "x\n");
    assert!(world.lines().is_empty(), "what git ignores is not in the ledger");
}

#[test]
fn a_folder_that_is_passed_is_changed_directly() {
    let world = World::new();
    world.puts("cache/o", "old\n");
    let ran = world.held(&["--pass", "cache"], &format!("echo new > cache/o; {HOLD}"), || {
        world.holds("cache/o", "new\n");
    });
    ran.is(0);
    world.guarded_with(&["--pass", "nowhere"], "true").ends().is(125);
    world.guarded_with(&["--pass", ".."], "true").ends().is(125);
}

#[test]
fn a_command_cannot_change_what_is_protected() {
    let world = World::new();
    world.native("git init -q . && git commit -q --allow-empty -m 1").ends().is(0);
    for (script, file) in [
        ("echo '#!/bin/sh' > .git/hooks/pre-commit", ".git/hooks/pre-commit"),
        ("mkdir -p .claude; echo '{}' > .claude/settings.json", ".claude/settings.json"),
        ("mkdir -p sub/.tollgate; echo x > sub/.tollgate/config.toml", "sub/.tollgate/config.toml"),
    ] {
        let ran = world.guarded(&format!("{script}; echo x > other")).ends().is(75);
        assert!(ran.stderr().contains("PROTECTED_PATH"), "{ran}");
        assert!(!world.path(file).exists() && !world.path("other").exists(), "{script}");
    }
    world.puts(".tollgate/config.toml", "# mine\n");
    world.guarded("echo x >> .tollgate/config.toml").ends().is(2);
    world.guarded("echo x > x; mv x .tollgate/config.toml").ends().is(1);
    world.holds(".tollgate/config.toml", "# mine\n");
    world.native("rm -f x").ends().is(0);
    // Git itself works, unless another git is at work.
    world
        .guarded("echo x > f; git add f; git commit -q -m 2; git config user.name x; git branch b")
        .ends()
        .is(0);
    let ran =
        world.held(&[], &format!("echo y > f; git add f; {HOLD}"), || world.puts(".git/index.lock", ""));
    assert!(ran.is(75).stderr().contains("FILE_BUSY"));
    world.holds("f", "x\n");
    fs::remove_file(world.path(".git/index.lock")).unwrap();
    world.guarded("git init -q new; git clone -q . ../copy; cp -r ../copy copy").ends().is(0);
    assert!(world.path("new/.git/HEAD").exists() && world.path("copy/.git/HEAD").exists());
}

#[test]
fn holes_stay_holes() {
    let world = World::new();
    world.native("truncate -s 64M old").ends().is(0);
    world.guarded("truncate -s 64M new; for f in old new; do printf x | dd of=$f bs=1 seek=40000000 conv=notrunc; done").ends().is(0);
    for file in ["old", "new"] {
        let found = fs::metadata(world.path(file)).unwrap();
        assert_eq!(found.len(), 64 << 20);
        assert!(found.blocks() * 512 < 1 << 20, "{file} takes {} bytes", found.blocks() * 512);
        let bytes = fs::read(world.path(file)).unwrap();
        assert_eq!((bytes[40_000_000], bytes.iter().filter(|&&byte| byte != 0).count()), (b'x', 1));
    }
}
