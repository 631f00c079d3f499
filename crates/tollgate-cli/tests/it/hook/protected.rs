//! Paths that an agent must not change: not by its file tools, and not by shell commands that name them.

use std::fs;
use std::os::unix::fs::symlink;

use super::{HOSTS, Program, Tool};
use crate::world::World;

const FAST: &str = "[guard]\ndurability = \"fast\"\n[vault]\ndurability = \"fast\"\n";

/// A git repository with a worktree, a vault and a nested workspace.
fn world() -> World {
    let world = World::with(FAST);
    world.run("init --vault").is(0);
    world.script("git init -q -b main && git config user.email a@b && git config user.name a").ends().is(0);
    world.puts("a.txt", "one\n");
    world.puts("sub/b.txt", "one\n");
    world.script("git add a.txt sub && git commit -qm one && git worktree add -q ../tree").ends().is(0);
    world
        .script("git clone -q --bare . ../bare && git init -q --separate-git-dir=../apart nested")
        .ends()
        .is(0);
    world
}

#[test]
fn a_file_tool_cannot_write_them() {
    let world = world();
    world.puts("docs/.claude/settings.json", "{}\n");
    fs::create_dir(world.path(".opencode")).unwrap();
    symlink(world.path(".git"), world.path("link")).unwrap();
    world.puts("vault/Needs_Action/waiting.md", "---\naction: pay\n---\n");
    world.puts("evil/settings.json", "{}\n");
    symlink(world.path("evil"), world.path("evil-link")).unwrap();
    symlink(world.tmp(), world.path(".cursor")).unwrap();
    let outside = |name: &str| world.tmp().join(name).to_str().unwrap().to_owned();
    let mut files: Vec<String> = [
        ".git/config",
        ".git/hooks/pre-commit",
        ".git/worktrees/tree/config.worktree",
        "link/config",
        "sub/.git/config",
        "nested/.git",
        ".tollgate/config.toml",
        "sub/.tollgate/config.toml",
        "vault/.tollgate/x",
        "vault/Approved/x.md",
        "vault/Needs_Action/waiting.md",
        ".claude/settings.json",
        ".claude/settings.local.json",
        "docs/.claude/settings.json",
        ".mcp.json",
        ".codex/config.toml",
        ".codex/hooks.json",
        ".gemini/settings.json",
        "opencode.json",
        "opencode.jsonc",
        ".opencode/plugin/evil.js",
        ".opencode/plugins/evil.js",
        ".cursor/hooks.json",
        ".cursor/mcp.json",
        ".github/hooks/evil.json",
        ".github/mcp.json",
        ".cline/hooks/PreToolUse",
        ".clinerules/hooks/PreToolUse",
    ]
    .map(str::to_owned)
    .into();
    // The same files, on a disk that ignores case.
    files.extend([".GIT/config", "sub/.Claude/SETTINGS.json", ".TOLLGATE/config.toml"].map(str::to_owned));
    // The git directories that are elsewhere, and the user's own files.
    let others =
        ["tree/.git", "bare/config", "apart/config", "apart/hooks/pre-commit", "home/.claude/settings.json"];
    files.extend(others.map(outside));
    files.extend(
        ["state/tollgate/trusted/x", "run/tollgate/x", "home/.config/tollgate/config.toml"].map(outside),
    );
    for host in HOSTS {
        let agent = Program::new(&world, host, "s");
        for file in &files {
            agent.writes(file, "x\n").refused("PROTECTED_PATH");
        }
        // Names that only look like these.
        for file in [
            "vault/Needs_Action/new.md",
            ".gitignore",
            "claude/settings.json",
            ".github/workflows/x.yml",
            ".opencode/x",
        ] {
            assert_eq!(agent.asks(&agent.before(&Tool::Write(file, "x\n"), "c")), None, "{host}: {file}");
            agent.stops();
        }
    }
    // The gate itself, for MCP and the command line.
    for file in ["link/config", "sub/.git/config", ".mcp.json", "sub/.tollgate/x", "opencode.json"] {
        world
            .tollgate(["write", file, "--json"])
            .stdin("x")
            .ends()
            .payload("PROTECTED_PATH", "CHOOSE_ANOTHER_PATH");
    }
    for (from, to) in [
        ("a.txt", ".git/hooks/x"),
        (".git/config", "x"),
        ("vault/Needs_Action/waiting.md", "x"),
        ("evil-link", ".claude"),
    ] {
        let moved = world.tollgate(["move", from, to, "--json"]).ends();
        moved.payload("PROTECTED_PATH", "CHOOSE_ANOTHER_PATH");
    }
}

#[test]
fn a_shell_command_cannot_name_them_as_a_target() {
    let world = world();
    world.puts("evil", "x\n");
    for host in HOSTS {
        let agent = Program::new(&world, host, "s");
        for command in [
            "echo x > .git/config",
            "echo x >> .git/hooks/pre-commit",
            "cat evil | tee sub/../.git/hooks/pre-commit",
            "cp evil .git/hooks/post-checkout",
            "cp --target-directory=.git/hooks evil",
            "install -t .git/hooks evil",
            "ln -s /tmp/x .git/hooks/pre-push",
            "sed -i s/x/y/ .git/config",
            "mv .git g",
            "rm -rf .git",
            "rm -rf sub/.git",
            "cd .git && echo x > config",
            "bash -c 'cd .git; dd if=/dev/null of=config'",
            "mkdir sub/.tollgate",
            "mkdir -p sub/.tollgate/x",
            "mkdir -m 700 -p .github/hooks/x",
            "touch .mcp.json",
            "touch sub/.tollgate/version",
            "chmod +x .git/hooks/pre-commit",
            "echo '{}' > .claude/settings.local.json",
            "echo '{}' > .mcp.json",
            "echo x > .opencode/plugin/x.js",
            "echo x > ../tree/.git",
            "echo x > ../bare/config",
            "git mv a.txt .claude/settings.json",
            "ln -s evil-folder .claude",
            "cp -r sub .claude",
            "mv sub .opencode/plugin",
            "mv vault/Needs_Action old",
            "mv vault old",
            "rm -rf vault",
            "rm -r vault/Needs_Action",
            "rmdir vault/Needs_Action",
            "mv .tollgate old",
            "rm -rf .",
            "ln .tollgate/config.toml notes.toml",
            "ln -f -T .git/config notes.cfg",
            "ln -t sub .git/config",
            "cp -l .tollgate/config.toml notes.toml",
            "cp -al . ../copy",
            "cp -r --link .git g",
            "x=$(echo '{}' > .mcp.json)",
            "echo '{}' > .mcp.json; ((",
            "mkdir -p e/.claude && echo '{}' > e/.claude/settings.json && cp -r e/. .",
            ". /dev/null; echo '{}' > .mcp.json; : /prologues/y || exit 74\ntrue",
        ] {
            agent.runs(command).refused("PROTECTED_PATH");
        }
    }
}

/// git executes the values of many keys, and it does so for people, too.
#[test]
fn a_shell_command_cannot_plant_a_command_for_git() {
    let world = world();
    let own = world.tmp().join("home/.gitconfig");
    for host in HOSTS {
        let agent = Program::new(&world, host, "s");
        for command in [
            "git config core.fsmonitor ./evil",
            "git config --local core.hooksPath hooks",
            "git config --add include.path ../evil",
            "git config set core.sshCommand evil",
            "git config set --all alias.st '!evil'",
            "git -C sub config filter.x.clean evil",
            "git config --global core.pager evil",
            "git config alias.st \"$x\"",
            "git config \"$key\" evil",
            "git config --edit",
            "git config --rename-section user core",
            "git config -f .git/config core.editor evil",
            "cd sub && git config diff.external evil",
            "bash -c 'git config gpg.program evil'",
            "git clone -q -c core.hooksPath=/tmp/x . ../clone",
            "git clone --config=core.fsmonitor=x . ../clone",
            "git init --template=/tmp/x new",
            "echo '[core] pager = evil' >> ~/.gitconfig",
            "echo '[core] pager = evil' > ~/.config/git/config",
        ] {
            agent.runs(command).refused("PROTECTED_PATH");
        }
        for file in ["home/.gitconfig", "home/.config/git/config", "home/.config/git/attributes"] {
            agent.writes(world.tmp().join(file).to_str().unwrap(), "x\n").refused("PROTECTED_PATH");
        }
    }
    assert!(!own.exists());
}

/// Where the user's file is a link, and where a variable names it.
#[test]
fn the_users_configuration_of_git_is_protected_wherever_it_is() {
    let world = world();
    let (dotfiles, named) = (world.tmp().join("dotfiles"), world.tmp().join("named"));
    fs::create_dir(&dotfiles).unwrap();
    fs::write(dotfiles.join("gitconfig"), "").unwrap();
    symlink(dotfiles.join("gitconfig"), world.tmp().join("home/.gitconfig")).unwrap();
    let agent = Program::new(&world, "codex", "s")
        .started_with(vec![("GIT_CONFIG_GLOBAL", named.to_str().unwrap().to_owned())]);
    for file in [dotfiles.join("gitconfig"), named] {
        agent.writes(file.to_str().unwrap(), "x\n").refused("PROTECTED_PATH");
    }
    let agent =
        Program::new(&world, "codex", "s").started_with(vec![("GIT_CONFIG_GLOBAL", "/dev/null".to_owned())]);
    agent.runs("echo x > /dev/null").ran();
}

/// A program that the parser does not know may have made the link.
#[test]
fn a_hard_link_is_protected_as_the_file_is() {
    let world = world();
    for (file, link) in [(".tollgate/config.toml", "notes.toml"), (".git/config", "sub/notes.cfg")] {
        fs::hard_link(world.path(file), world.path(link)).unwrap();
    }
    fs::hard_link(world.path("a.txt"), world.path("other.txt")).unwrap();
    for host in HOSTS {
        let agent = Program::new(&world, host, "s");
        for link in ["notes.toml", "sub/notes.cfg"] {
            agent.writes(link, "x\n").refused("PROTECTED_PATH");
            agent.runs(&format!("echo x > {link}")).refused("PROTECTED_PATH");
        }
        agent.writes("other.txt", "one\n").ran();
    }
}

#[test]
fn ordinary_work_with_git_and_folders_continues() {
    let world = world();
    let agent = Program::new(&world, "codex", "s");
    for command in [
        "git status --short",
        "echo two > a.txt && git add a.txt && git commit -qm two",
        "git checkout -q -b topic && git checkout -q main",
        "echo three > a.txt && git checkout -- a.txt",
        "git checkout -- .",
        "git restore .",
        "git stash list; git log --oneline; git diff",
        "git config user.name b && git config set user.email b@c && git config --get user.name",
        "git config alias.st status; git config core.fsmonitor false; git config --unset alias.st",
        "git config core.hooksPath; git config --get core.hooksPath; git config --list",
        "git remote add other . && git remote rename other more && git remote remove more",
        "git branch -q topic2 && git branch -q -u main topic2 && git -c core.pager=cat log -1",
        "git config -f other.cfg core.editor vi && rm other.cfg",
        "git rm -q --cached sub/b.txt && git reset -q",
        "mkdir -p new/deep && touch new/deep/x && chmod +x new/deep/x",
        "git clone -q . ../clone && rm -rf ../clone",
        "mkdir temporary && git init -q temporary && rm -rf temporary",
        "echo '# New' > vault/Needs_Action/new.md",
        "cat .git/config .tollgate/config.toml",
        "mv new old && rm -rf old",
    ] {
        agent.runs(command).ran();
    }
    assert!(world.script("git log --oneline").ends().is(0).stdout().contains("two"));
}
