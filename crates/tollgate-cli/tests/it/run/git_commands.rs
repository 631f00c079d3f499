//! Commands that a program plants in git's configuration, at both levels.

use std::fs;

use crate::world::World;

/// A repository whose owner has an editor and an alias with a command.
fn world() -> World {
    let world = World::new();
    world.puts("f", "one\n");
    let script = "git init -q -b main . && git config user.email a@b && git config user.name a && git config core.editor vi \
                  && git config alias.mine '!true' && git add f && git commit -qm one";
    world.script(script).ends().is(0);
    world
}

const LEVELS: [&str; 2] = ["transaction", "gate"];

#[test]
fn a_program_cannot_plant_a_command_for_git() {
    for level in LEVELS {
        let world = world();
        world.script("git worktree add -q tree").ends().is(0);
        let before = fs::read_to_string(world.path(".git/config")).unwrap();
        fs::write(world.tmp().join("evil"), "[core]\n\tpager = evil\n").unwrap();
        for script in [
            "git config core.fsmonitor ./evil",
            "git config core.hooksPath hooks",
            "git config core.editor evil",
            "git config include.path ../evil",
            "git config filter.x.clean evil && git config filter.x.smudge evil",
            "git config alias.st '!evil'",
            "git remote add other . && git config remote.other.uploadpack evil",
            "printf '[core]\\n\\tsshCommand = evil\\n' >> .git/config",
            "python3 -c \"open('.git/config', 'a').write('[gpg]program=evil')\"",
            "cp ../evil evil && mv evil .git/config",
            "mv ../evil .git/config",
            "cp ../evil evil && ln -f evil .git/config",
            "rm .git/config; ln -s ../../evil .git/config",
            "git config extensions.worktreeConfig true; git config --worktree core.pager evil",
            "git config alias.st 'grep -Oevil .'",
            "mkdir t; cp -r .git/objects .git/refs t; printf '[core]\n\tpager = evil\n' > t/config; echo ../t > .git/commondir",
            "echo ../../../t > .git/worktrees/tree/commondir",
        ] {
            let ran = world.guarded_with(&["--mode", level], script).ends();
            assert!(ran.stderr().contains("PROTECTED_PATH"), "{level}: {script}: {ran}");
            // At the level of the gate, what came before the refused call stays: a deleted file, a new remote.
            let now = fs::read_to_string(world.path(".git/config")).unwrap_or_default();
            assert!(
                !now.contains("evil") && !world.path(".git/config.worktree").exists(),
                "{level}: {script}: {now}"
            );
            assert!(!world.path(".git/commondir").exists(), "{level}: {script}");
            world.holds(".git/worktrees/tree/commondir", "../..\n");
            fs::write(world.path(".git/config"), &before).unwrap();
            fs::write(world.tmp().join("evil"), "[core]\n\tpager = evil\n").unwrap();
        }
    }
}

#[test]
fn everyday_work_with_git_changes_its_configuration() {
    for level in LEVELS {
        let world = world();
        for script in [
            "git config user.name b && git config alias.st status && git config core.fsmonitor false",
            "git remote add origin . && git fetch -q && git branch -q -u origin/main && git remote rename origin other",
            "git config core.editor vi && git config --unset core.editor && git config --unset alias.mine",
            "git init -q new && git clone -q . copy && git worktree add -q tree && git clone -q --bare . bare",
            "cd copy && git config push.default current && git config --unset push.default",
        ] {
            let ran = world.guarded_with(&["--mode", level], script).env("GIT_ALLOW_PROTOCOL", "file").ends();
            assert!(!ran.stderr().contains("PROTECTED_PATH"), "{level}: {script}: {ran}");
            ran.is(0);
        }
        if level == "transaction" {
            let script = "cd copy && git submodule --quiet add \"$(cd .. && pwd)\" sub";
            world.guarded(script).env("GIT_ALLOW_PROTOCOL", "file").ends().is(0);
            assert!(world.path("copy/.git/modules/sub/config").exists());
        }
        let config = fs::read_to_string(world.path(".git/config")).unwrap();
        assert!(config.contains("[remote \"other\"]") && !config.contains("editor"), "{config}");
    }
}

/// Without hooks, nothing in a git directory is closed by its name.
#[test]
fn the_git_directory_of_a_workspace_is_not_replaced() {
    for level in LEVELS {
        for script in [
            "rm -rf .git; echo 'gitdir: other/.git' > .git",
            "rm -rf .git; ln -s other/.git .git",
            "mv .git t; mv other/.git .git",
            "mv .git/HEAD h; mkdir .git/hooks; echo evil > .git/hooks/post-checkout; mv h .git/HEAD",
        ] {
            let world = World::new();
            let prepare =
                "git init -q --template= . && git init -q other && git -C other config core.pager evil";
            world.script(prepare).ends().is(0);
            let ran = world.guarded_with(&["--mode", level], script).ends();
            assert!(ran.stderr().contains("PROTECTED_PATH"), "{level}: {script}: {ran}");
            let config = fs::read_to_string(world.path(".git/config")).unwrap_or_default();
            assert!(!config.contains("evil") && !world.path(".git").is_symlink(), "{level}: {script}: {ran}");
            assert!(!world.path(".git/hooks/post-checkout").exists(), "{level}: {script}: {ran}");
        }
    }
}

/// What protects the hooks of a checkout does not keep it: an agent removes the clones and worktrees that it has made.
#[test]
fn a_command_removes_a_checkout_as_a_whole() {
    let world = world();
    world
        .guarded("git clone -q . copy && git worktree add -q tree && git worktree add -q deep/other")
        .ends()
        .is(0);
    let ran = world.guarded("rm copy/.git/hooks/*; echo x > tree/.git").ends().is(75);
    assert!(ran.stderr().contains("PROTECTED_PATH"), "{ran}");
    let ran =
        world.guarded("rm -rf copy && mkdir -p copy/.git/hooks && echo x > copy/.git/hooks/pre-push.sample");
    assert!(ran.ends().is(75).stderr().contains("PROTECTED_PATH"));
    world.guarded("rm -rf copy && git worktree remove tree && rm -rf deep").ends().is(0);
    for gone in ["copy", "tree", "deep", ".git/worktrees/tree"] {
        assert!(!world.path(gone).exists(), "{gone}");
    }
    world.guarded("rm -rf .git").ends().is(75);
}

/// A repository that a command makes may have no commands either. At the level of the gate, git goes on without them.
#[test]
fn a_new_repository_brings_no_command() {
    for level in LEVELS {
        let world = world();
        for (script, config) in [
            ("git clone -q -c core.hooksPath=/tmp/x . copy", "copy/.git/config"),
            ("git clone -q --bare -c core.pager=x . bare", "bare/config"),
        ] {
            let ran = world.guarded_with(&["--mode", level], script).ends();
            let config = fs::read_to_string(world.path(config)).unwrap_or_default();
            assert!(!config.contains("hooksPath") && !config.contains("pager"), "{level}: {script}: {ran}");
            assert_eq!(config.is_empty(), level == "transaction", "{level}: {script}: {ran}");
        }
    }
}
