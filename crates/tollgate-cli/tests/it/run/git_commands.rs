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
        ] {
            let ran = world.guarded_with(&["--mode", level], script).ends();
            assert!(ran.stderr().contains("PROTECTED_PATH"), "{level}: {script}: {ran}");
            // At the level of the gate, what came before the refused call stays: a deleted file, a new remote.
            let now = fs::read_to_string(world.path(".git/config")).unwrap_or_default();
            assert!(
                !now.contains("evil") && !world.path(".git/config.worktree").exists(),
                "{level}: {script}: {now}"
            );
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
