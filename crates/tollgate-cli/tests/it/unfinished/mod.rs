//! Unfinished work in a shared checkout: what no agent may destroy, hide or take, and what every agent may do all the same.
//!
//! The checkout is a git repository as a user has it after `tollgate init`. Agents work in it through the doors that people use:
//! `tollgate run`, and the hooks of an agent program, which let a command run as a transaction or only read its text.

mod allowed;
mod listed;
mod losses;
mod observed;
mod stories;
mod trees;
mod workflows;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::sync::LazyLock;

use serde_json::Value;

use crate::hook::run::{Command, runs_in};
use crate::hook::{Came, Program};
use crate::world::{Ran, World};

/// The way of an agent's commands to the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    /// `tollgate run --mode transaction`
    Transaction,
    /// `tollgate run --mode gate`
    Gate,
    /// The hooks of an agent program. They let each command run as a transaction
    Hooks,
    /// The hooks of an agent program. They only read the text of a command before it runs
    Reader,
}

/// A user's git. Commits in clones and submodules need a name, too.
const GIT_CONFIG: &str = "[user]\n\tname = ada\n\temail = ada@example.org\n[init]\n\tdefaultBranch = main\n\
                          [protocol \"file\"]\n\tallow = always\n[advice]\n\tdetachedHead = false\n";

/// The history of the repository: two commits on `main`, and a branch `other` that started at the first.
const HISTORY: &str =
    "printf 'zero\\n' > f; printf 'inner\\n' > d/f; printf 'other\\n' > g; printf 'mine\\n' > mine
    printf '*.log\\nout/\\nnode_modules/\\n.venv/\\n' > .gitignore
    git add -A && git commit -q -m zero
    printf 'one\\ntwo\\n' > f; git commit -q -a -m one
    git branch other HEAD~1; git switch -q other; echo elsewhere > elsewhere; git add elsewhere
    git commit -q -m elsewhere; git switch -q main";

/// A repository in which `tollgate init` has set up the hooks of an agent program, everything committed. It is made once for each
/// of the two settings for commands, and copied.
fn checkout(door: Door) -> World {
    static TRANSACTION: LazyLock<World> = LazyLock::new(|| make_checkout("transaction"));
    static PARSE: LazyLock<World> = LazyLock::new(|| make_checkout("parse"));
    let from = if door == Door::Reader { PARSE.root() } else { TRANSACTION.root() };
    let world = World::new();
    fs::write(world.tmp().join("home/.gitconfig"), GIT_CONFIG).unwrap();
    // git compares its index with the copies, so that it need not write unchanged files again.
    let copy = "cd \"$FROM\" && cp -a --parents -t \"$OLDPWD\" -- \
        * .git .gitignore .claude .tollgate/config.toml .tollgate/.gitignore && git -C \"$OLDPWD\" status > /dev/null";
    world.script(copy).env("FROM", from).ends().is(0);
    world
}

fn make_checkout(shell: &str) -> World {
    let world = World::bare();
    fs::write(world.tmp().join("home/.gitconfig"), GIT_CONFIG).unwrap();
    fs::create_dir(world.path("d")).unwrap();
    // The first guarded write makes `.tollgate/.gitignore`, which belongs into a commit.
    let init = "git init -q . && tollgate init --host claude-code && tollgate create x < /dev/null && rm x";
    world.script(init).ends().is(0);
    configure(&world, "# durability = \"durable\"", "durability = \"fast\"");
    configure(&world, "shell = \"transaction\"", &format!("shell = \"{shell}\""));
    world.script(HISTORY).ends().is(0);
    world
}

/// Changes a line that `init` has written into the configuration.
#[track_caller]
fn configure(world: &World, old: &str, new: &str) {
    let text = fs::read_to_string(world.path(".tollgate/config.toml")).unwrap();
    assert!(text.contains(old), "`init` does not write `{old}`:\n{text}");
    world.puts(".tollgate/config.toml", text.replacen(old, new, 1));
}

/// One agent at one door.
struct Agent<'w> {
    world: &'w World,
    name: &'static str,
    door: Door,
    turn: RefCell<String>,
    program: Program<'w>,
}

/// What came of a command.
#[derive(Debug)]
struct Answer {
    /// The exit code. A command that its hook blocked has none.
    code: Option<i32>,
    /// What the agent was told.
    said: String,
}

impl Answer {
    /// The payloads of the refusal.
    fn payloads(&self) -> Vec<Value> {
        let lines = self.said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line.get("error_type").is_some() && line.get("resolution").is_some()).collect()
    }

    fn is_refused(&self) -> bool {
        !self.payloads().is_empty()
    }
}

impl From<Ran> for Answer {
    fn from(ran: Ran) -> Self {
        Self { code: ran.code(), said: ran.stdout() + &ran.stderr() }
    }
}

impl<'w> Agent<'w> {
    fn new(world: &'w World, name: &'static str, door: Door) -> Self {
        let program = Program::new(world, "claude-code", &format!("session-of-{name}"));
        let agent = Self {
            world,
            name,
            door,
            turn: RefCell::default(),
            program: program.started_with(vec![("TOLLGATE_AGENT", name.to_owned())]),
        };
        agent.begins();
        agent
    }

    fn is_hooked(&self) -> bool {
        matches!(self.door, Door::Hooks | Door::Reader)
    }

    /// Its next turn.
    fn begins(&self) {
        if self.is_hooked() {
            return self.program.prompts();
        }
        let turn = self.world.turn(self.name);
        let ended = self.turn.replace(turn);
        if !ended.is_empty() {
            self.world.run(&format!("turn end --turn {ended}")).is(0);
        }
    }

    /// It is done for today.
    fn leaves(&self) {
        if self.is_hooked() {
            return self.program.leaves();
        }
        self.world.run(&format!("turn end --turn {}", self.turn.borrow())).is(0);
    }

    #[track_caller]
    fn reads(&self, file: &str) {
        if self.is_hooked() {
            self.program.reads(file);
        } else {
            self.world.tollgate(["read", file, "--turn", &self.turn.borrow()]).ends().is(0);
        }
    }

    #[track_caller]
    fn writes(&self, file: &str, text: &str) -> Answer {
        if self.is_hooked() {
            return match self.program.writes(file, text) {
                Came::Ran(said) => Answer { code: Some(0), said },
                Came::Blocked(said) => Answer { code: None, said },
            };
        }
        let write = self.world.tollgate(["write", file, "--turn", &self.turn.borrow(), "--json"]);
        write.stdin(text).ends().into()
    }

    fn runs(&self, command: &str) -> Answer {
        let mode = match self.door {
            Door::Transaction => "transaction",
            Door::Gate => "gate",
            Door::Hooks | Door::Reader => {
                return match runs_in(&self.program, &self.world.root(), command) {
                    Command::Blocked(said) => Answer { code: None, said },
                    Command::Ran(ran) => ran.into(),
                };
            }
        };
        let turn = self.turn.borrow();
        self.world
            .tollgate(["run", "--mode", mode, "--turn", &turn, "--", "bash", "-c", command])
            .ends()
            .into()
    }
}

/// What a repository shows: the commits by their subjects, branches, stashes, the index, and what git says of each file.
const REPOSITORY: &str = "git symbolic-ref -q HEAD || echo detached
    (git for-each-ref --format='%(refname) %(subject)'; git log -g --format='stash %s' refs/stash -- 2> /dev/null) |
    sed -E 's/[0-9a-f]{7,40}/ID/'; git ls-files -s -- . ':!.tollgate/config.toml' | sed -E 's/^160000 [0-9a-f]+/160000 ID/'; git status --porcelain --untracked-files=all -- . ':!.tollgate'";

/// The checkout: every file, and what git shows of it. Commits are shown by their subjects, because their ids have the time.
fn shown(world: &World) -> BTreeMap<String, String> {
    let root = world.root().display().to_string();
    let mut tree = world.tree();
    tree.values_mut().for_each(|text| *text = text.replace(&root, "[W]"));
    let folders = fs::read_dir(world.root()).unwrap().map(|entry| entry.unwrap().path());
    for folder in folders.chain([world.root()]).filter(|folder| folder.join(".git").exists()) {
        let git = world.script(REPOSITORY).folder(&folder).env("GIT_OPTIONAL_LOCKS", "0").ends();
        let name = folder.strip_prefix(world.root()).unwrap();
        tree.insert(format!("git in `{}`", name.display()), git.stdout());
    }
    tree
}

/// What is in only one of these.
fn difference(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> String {
    let names = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name)));
    let changed = names.filter(|name| one.get(*name) != other.get(*name));
    changed.map(|name| format!("{name}: {:?} -> {:?}; ", one.get(name), other.get(name))).collect()
}
