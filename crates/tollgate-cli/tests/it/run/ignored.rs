//! Folders that git ignores: a command changes them directly, but not what a program of this workspace reads as its settings.

use std::fs;

use super::reach::{LEVELS, run_as_agent};
use crate::hook::Program;
use crate::hook::run::{SETTINGS, runs_in};
use crate::world::World;

/// A repository that ignores `build`, after a script that the author of a repository could have written.
fn with_links(script: &str) -> World {
    let world = World::new();
    let prepare = "git init -q; echo build > .gitignore; mkdir -p build/c build/d";
    world.script(&format!("{prepare}; {script}")).ends().is(0);
    world
}

/// The links that lead a protected name to another place, the file behind them, and ways to change it.
const LINKS: [(&str, &str); 9] = [
    ("ln -s build/c .claude; echo old > build/c/settings.json", "build/c/settings.json"),
    ("ln -s build/c .claude", "build/c/settings.json"),
    ("ln -s build/new/c .claude", "build/new/c/settings.json"),
    ("mkdir .claude; ln -s ../build/s.json .claude/settings.json; echo old > build/s.json", "build/s.json"),
    ("ln -s \"$PWD/build/m.json\" .mcp.json", "build/m.json"),
    ("mkdir .opencode; ln -s ../build/p .opencode/plugin; mkdir build/p", "build/p/x.js"),
    ("ln -s two .claude; ln -s build/c two; echo old > build/c/settings.json", "build/c/settings.json"),
    ("mkdir plain; ln -s plain .claude; echo old > plain/settings.json", "plain/settings.json"),
    ("mkdir plain; ln -s plain .codex", "plain/config.toml"),
];

#[test]
fn what_a_protected_name_leads_to_is_protected_too() {
    for (links, file) in LINKS {
        let world = with_links(links);
        let found = || fs::read_to_string(world.path(file)).ok();
        let old = found();
        for level in LEVELS {
            for script in [
                "mkdir -p $(dirname FILE); echo new > FILE",
                "mkdir -p $(dirname FILE); echo new > t; mv t FILE",
                "mkdir -p $(dirname FILE) && cd $(dirname FILE) && echo new > $(basename FILE)",
                "python3 -c 'import os; os.makedirs(os.path.dirname(\"FILE\"), exist_ok=True); open(\"FILE\", \"w\").write(\"new\")'",
                "rm -f FILE; mkdir -p t; echo new > t/$(basename FILE); rm -rf $(dirname FILE); mv t $(dirname FILE)",
            ] {
                let ran = run_as_agent(&world, level, &script.replace("FILE", file));
                assert_eq!(found(), old, "{level}: {links}: {script}: {ran}");
            }
        }
        Program::new(&world, "codex", "s1").writes(file, "new\n").refused("PROTECTED_PATH");
        world.tollgate(["write", file]).stdin("new\n").ends().is(1);
        assert_eq!(found(), old, "{links}");
    }
}

/// Without the link, the program would find other settings, or none.
#[test]
fn a_link_to_settings_stays() {
    let world = with_links("ln -s two .claude; ln -s build/c two; echo old > build/c/settings.json");
    let target = || fs::canonicalize(world.path(".claude")).ok();
    let old = target();
    for level in LEVELS {
        for script in [
            "rm .claude",
            "rm two",
            "ln -sfn build/d .claude",
            "ln -sfn build/d two",
            "mv two three",
            "rm two; mkdir two; echo new > two/settings.json",
            "python3 -c 'import os; os.symlink(\"build/d\", \"t\"); os.rename(\"t\", \"two\")'",
        ] {
            let ran = run_as_agent(&world, level, script);
            assert_eq!(target(), old, "{level}: {script}: {ran}");
        }
        // What else is behind the link are ordinary files.
        run_as_agent(&world, level, "mkdir -p .claude/skills; echo new > .claude/skills/x.md").is(0);
        world.holds("build/c/skills/x.md", "new\n");
    }
}

#[test]
fn a_git_directory_in_an_ignored_folder_is_guarded() {
    let names = ["hooks/pre-commit", "config"];
    for set_up in [
        "mkdir build; git init -q --separate-git-dir build/git .",
        "git init -q; mkdir build; mv .git build/git; ln -s build/git .git",
    ] {
        let world = World::new();
        world
            .script(&format!("{set_up}; echo build > .gitignore; echo build > build/git/info/exclude"))
            .ends()
            .is(0);
        for name in names {
            let path = format!("build/git/{name}");
            let old = fs::read(world.path(&path)).ok();
            let script = format!("printf '[core]\\n\\tfsmonitor = touch it\\n' >> {path}");
            let ran = run_as_agent(&world, "transaction", &script);
            assert_eq!(fs::read(world.path(&path)).ok(), old, "{set_up}: {name}: {ran}");
        }
        run_as_agent(
            &world,
            "transaction",
            "git add -A && git -c user.name=a -c user.email=a@b commit -qm one",
        )
        .is(0);
    }
}

/// A clone or a worktree in a folder that git ignores. An agent program that was started there reads the settings there.
const INNER: [(&str, &str); 4] = [
    ("build", "git init -q build"),
    ("build/x", "git init -q build/x"),
    ("build/deep/x", "git init -q build/deep/x"),
    ("build/x", "git commit -q --allow-empty -m one; git worktree add -q build/x"),
];

#[test]
fn a_checkout_in_an_ignored_folder_is_guarded_where_the_command_runs_in_it() {
    for (inner, set_up) in INNER {
        let world = World::with(SETTINGS);
        let prepare = "git init -q; git config user.name a; git config user.email a@b; echo build > .gitignore; mkdir build";
        let fill = format!(
            "mkdir -p {inner}/target {inner}/sub build/beside; echo target > {inner}/.gitignore; echo one > {inner}/f"
        );
        world.script(&format!("{prepare}; {set_up}; {fill}")).ends().is(0);
        let top = world.path(inner);
        let agent = Program::new(&world, "claude-code", "session-1");
        for folder in [top.clone(), top.join("sub")] {
            let runs = |script: &str| runs_in(&agent, &folder, &script.replace("TOP", top.to_str().unwrap()));
            for file in [".claude/settings.json", "opencode.json", ".codex/config.toml"] {
                let script = format!(
                    "python3 -c 'import os; p = \"TOP/{file}\"; \
                    os.makedirs(os.path.dirname(p), exist_ok=True); open(p, \"w\").write(\"new\")'"
                );
                let said = runs(&script).said();
                assert!(said.contains("PROTECTED_PATH"), "{set_up}: {file}: {said}");
                assert!(!top.join(file).exists(), "{set_up}: {file}: {said}");
            }
            // A build in there is not guarded, nor what is beside the checkout.
            let mutations = || world.json("ledger tail --type MUTATION").as_array().unwrap().len();
            let before = mutations();
            runs("python3 -c 'open(\"TOP/target/x\", \"w\").write(\"new\")'");
            world.holds(top.join("target/x"), "new");
            if inner != "build" {
                let beside = world.path("build/beside/x");
                runs(&format!("python3 -c 'open(\"{}\", \"w\").write(\"new\")'", beside.display()));
                world.holds(beside, "new");
            }
            assert_eq!(mutations(), before, "{set_up}");
            runs("python3 -c 'open(\"g\", \"w\").write(\"new\")'");
            world.holds(folder.join("g"), "new");
            assert_ne!(mutations(), before, "{set_up}: files of the checkout are guarded");
        }
    }
}

/// Elsewhere in an ignored folder, a protected name is a file like those outside the workspace: no program of this workspace
/// reads it.
#[test]
fn a_build_writes_what_it_likes_into_an_ignored_folder() {
    let world = with_links("true");
    for name in ["build/x/.claude/settings.json", "build/x/opencode.json", "build/.vscode/mcp.json"] {
        run_as_agent(&world, "transaction", &format!("mkdir -p $(dirname {name}); echo new > {name}")).is(0);
        world.holds(name, "new\n");
    }
}
