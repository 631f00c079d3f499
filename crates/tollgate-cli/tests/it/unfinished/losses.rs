//! A table of commands that destroy, hide or take unfinished work which their agent has not seen. None of them may, through any
//! door. When the agent has read the files, the same command runs, except where it moves everybody to another branch.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Agent, Answer, Door, checkout, difference, shown};
use crate::world::{World, hash};

/// Whose work is at stake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// Another agent
    Blue,
    /// Somebody whose editor knows nothing of tollgate
    Person,
}

/// What a command does to the work of somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It deletes, hides, moves or overwrites the files.
    Destroys,
    /// It makes a commit with the files in it.
    Commits,
    /// It moves HEAD, and everybody in this tree with it. Other agents must be done first; a person may be carried along.
    Switches,
    /// Both: it moves HEAD, and overwrites the files.
    SwitchesAndDestroys,
}
use Kind::{Commits, Destroys, Switches, SwitchesAndDestroys};

/// Files and what is in them.
type Work = &'static [(&'static str, &'static str)];

struct Case {
    /// The doors at which the case is tried.
    doors: &'static [Door],
    kind: Kind,
    /// What a person has prepared.
    before: &'static str,
    work: Work,
    /// What the owner of the work does with it.
    owner: &'static str,
    /// What the other agent does.
    command: &'static str,
}

/// A file that git tracks, changed; and a new file, in the root and in a new folder.
const TRACKED: Work = &[("f", "one\ntwo\nunfinished\n")];
const INNER: Work = &[("d/f", "unfinished\n")];
const NEW: Work = &[("new", "unfinished\n")];
const DEEP: Work = &[("notes/deep/new", "unfinished\n")];
const BOTH: Work = &[("d/f", "unfinished\n"), ("f", "one\ntwo\nunfinished\n")];
const OLD_AND_NEW: Work = &[("f", "one\ntwo\nunfinished\n"), ("notes/deep/new", "unfinished\n")];
const IN_SUBMODULE: Work = &[("sub/l", "unfinished\n")];
const RESOLVED: Work = &[("f", "one and elsewhere\n")];
/// What the branch `other` has under the name of a new file.
const IN_THE_WAY: Work = &[("elsewhere", "unfinished\n")];

/// Where files are guarded.
const EVERY: &[Door] = &[Door::Transaction, Door::Gate, Door::Hooks, Door::Reader];
/// At the level of the gate, git goes on after a refused call.
const IN_VIEW: &[Door] = &[Door::Transaction, Door::Hooks, Door::Reader];
/// At the level of the gate, a command that switches has changed the files before git moves HEAD.
const IN_GIT: &[Door] = &[Door::Transaction, Door::Hooks, Door::Reader];
/// The text of the command does not say which files it changes.
const NOT_BY_TEXT: &[Door] = &[Door::Transaction, Door::Gate, Door::Hooks];

const SUBMODULE: &str = "git init -q ../lib && (cd ../lib && echo lib > l && git add l && git commit -q -m lib) \
                         && git submodule --quiet add ../lib sub && git commit -q -m sub";
const CONFLICT: &str = "git switch -q -c side HEAD~1 && echo elsewhere > f && git commit -q -a -m both && git switch -q main; \
                        git merge -q side; true";
const UNBORN: &str = "rm -rf .git && git init -q";

const fn destroys(doors: &'static [Door], work: Work, command: &'static str) -> Case {
    Case { doors, kind: Destroys, before: "", work, owner: "", command }
}

const fn commits(work: Work, owner: &'static str, command: &'static str) -> Case {
    Case { doors: EVERY, kind: Commits, before: "", work, owner, command }
}

const fn switches(kind: Kind, work: Work, command: &'static str) -> Case {
    Case { doors: IN_GIT, kind, before: "", work, owner: "", command }
}

const CASES: &[Case] = &[
    // Into a stash.
    destroys(EVERY, TRACKED, "git stash -q"),
    destroys(EVERY, BOTH, "git stash"),
    destroys(EVERY, OLD_AND_NEW, "git stash -q -u"),
    destroys(IN_VIEW, TRACKED, "git stash push -q f"),
    destroys(IN_VIEW, DEEP, "git stash push -q -u -- notes"),
    // Back to a version that git has.
    destroys(EVERY, BOTH, "git reset -q --hard"),
    destroys(EVERY, TRACKED, "git reset -q --hard HEAD"),
    destroys(EVERY, BOTH, "git checkout -q -- ."),
    destroys(EVERY, TRACKED, "git checkout -q f"),
    destroys(EVERY, TRACKED, "git checkout -q -f"),
    destroys(EVERY, TRACKED, "git checkout -q HEAD~1 -- f"),
    destroys(EVERY, TRACKED, "git restore ."),
    destroys(EVERY, TRACKED, "git restore --source HEAD~1 f"),
    Case { owner: "git add f", ..destroys(EVERY, TRACKED, "git restore --staged --worktree f") },
    destroys(EVERY, TRACKED, "git read-tree -u --reset HEAD"),
    destroys(&[Door::Transaction, Door::Hooks], TRACKED, "git diff f > ../p && git apply -R ../p"),
    destroys(EVERY, TRACKED, "git show HEAD:f > f"),
    destroys(
        NOT_BY_TEXT,
        TRACKED,
        "git show HEAD:f > ../old && python3 -c \"import shutil; shutil.copy('../old', 'f')\"",
    ),
    // Deleted.
    destroys(EVERY, NEW, "git clean -q -fd"),
    destroys(EVERY, DEEP, "git clean -qfd"),
    destroys(EVERY, NEW, "git clean -qfdx -e .tollgate"),
    destroys(EVERY, INNER, "rm -rf d"),
    destroys(EVERY, DEEP, "rm -rf notes"),
    destroys(EVERY, TRACKED, "rm f"),
    destroys(EVERY, NEW, "rm new"),
    destroys(EVERY, TRACKED, "git rm -q -f f"),
    destroys(NOT_BY_TEXT, DEEP, "find notes -type f -delete"),
    destroys(NOT_BY_TEXT, NEW, "python3 -c \"import os; os.remove('new')\""),
    destroys(NOT_BY_TEXT, NEW, "git ls-files -o --exclude-standard -x .tollgate | xargs rm"),
    // Moved away.
    destroys(EVERY, TRACKED, "mv f moved"),
    destroys(EVERY, NEW, "mv new ../moved"),
    destroys(EVERY, INNER, "mv d moved"),
    destroys(EVERY, DEEP, "mv notes moved"),
    destroys(EVERY, TRACKED, "git mv f moved"),
    // Overwritten by somebody who has not looked.
    destroys(EVERY, TRACKED, "cat > f <<'END'\nred's\nEND"),
    destroys(EVERY, NEW, "echo \"red's\" > new"),
    destroys(EVERY, TRACKED, ": > f"),
    destroys(EVERY, TRACKED, "cp g f"),
    destroys(EVERY, TRACKED, "echo \"red's\" | tee f > ../out"),
    destroys(EVERY, TRACKED, "mv g f"),
    destroys(EVERY, TRACKED, "install -m 644 g f"),
    destroys(EVERY, TRACKED, "ln -sf g f"),
    destroys(IN_VIEW, TRACKED, "truncate -s 0 f"),
    destroys(EVERY, TRACKED, "dd if=g of=f 2> ../out"),
    destroys(NOT_BY_TEXT, TRACKED, "python3 -c \"open('f', 'w').write('mine')\""),
    // In a submodule, in a merge, and before the first commit.
    Case { before: SUBMODULE, ..destroys(EVERY, IN_SUBMODULE, "git -C sub reset -q --hard") },
    Case { before: SUBMODULE, ..destroys(EVERY, IN_SUBMODULE, "git -C sub checkout -q .") },
    Case { before: CONFLICT, ..destroys(EVERY, RESOLVED, "git merge --abort") },
    Case { before: UNBORN, ..destroys(EVERY, NEW, "rm new") },
    Case { before: UNBORN, ..destroys(EVERY, NEW, "git clean -qf new") },
    // Into a commit.
    commits(TRACKED, "", "git commit -q -a -m x"),
    commits(BOTH, "", "git commit -qam x"),
    commits(OLD_AND_NEW, "", "git add -A && git commit -q -m x"),
    commits(NEW, "", "git add . && git commit -q -m x"),
    commits(TRACKED, "", "git commit -q -m x f"),
    commits(INNER, "", "git commit -q -m x -- d"),
    commits(TRACKED, "git add f", "git commit -q -m x"),
    commits(NEW, "git add new", "echo more >> mine && git add mine && git commit -q -m x"),
    commits(TRACKED, "", "git commit -q --amend --no-edit -a"),
    commits(TRACKED, "git add f", "git commit -q --amend --no-edit"),
    commits(TRACKED, "", "git add -u; sh -c 'git commit -q -m x'"),
    Case { before: UNBORN, ..commits(NEW, "", "git add new && git commit -q -m x") },
    // To another branch or another commit.
    switches(Switches, TRACKED, "git switch -q -c topic"),
    switches(Switches, NEW, "git switch -q other"),
    switches(Switches, NEW, "git checkout -q other"),
    switches(Switches, TRACKED, "git checkout -q -b topic"),
    switches(Switches, NEW, "git checkout -q HEAD~1"),
    switches(Switches, NEW, "git rebase -q other"),
    switches(Switches, NEW, "git reset -q --soft HEAD~1"),
    switches(Switches, NEW, "git reset -q --hard other"),
    switches(SwitchesAndDestroys, TRACKED, "git reset -q --hard HEAD~1"),
    switches(SwitchesAndDestroys, TRACKED, "git checkout -q -f other"),
    // In a submodule.
    Case {
        doors: NOT_BY_TEXT,
        before: SUBMODULE,
        ..commits(IN_SUBMODULE, "", "git -C sub commit -q -a -m x")
    },
    Case {
        doors: NOT_BY_TEXT,
        before: SUBMODULE,
        ..commits(IN_SUBMODULE, "", "cd sub && git add -A && git commit -q -m x")
    },
    Case {
        doors: &[Door::Transaction, Door::Hooks],
        before: SUBMODULE,
        ..switches(Switches, IN_SUBMODULE, "git -C sub checkout -q -b topic")
    },
    Case {
        doors: &[Door::Transaction, Door::Hooks],
        before: SUBMODULE,
        ..switches(Switches, IN_SUBMODULE, "git -C sub checkout -q --detach")
    },
    Case {
        doors: &[Door::Transaction, Door::Hooks],
        before: SUBMODULE,
        ..switches(SwitchesAndDestroys, IN_SUBMODULE, "git submodule --quiet update --force")
    },
    switches(SwitchesAndDestroys, TRACKED, "git switch -q --discard-changes other"),
    // Which untracked files are in the way of another branch, the text of the command does not say.
    Case {
        doors: &[Door::Transaction, Door::Hooks],
        ..switches(SwitchesAndDestroys, IN_THE_WAY, "git checkout -q -f other")
    },
];

impl Case {
    /// A checkout with the work in it, and the agents. The first one is its owner.
    fn world(&self, door: Door) -> World {
        let world = checkout(door);
        world.script(self.before).ends().is(0);
        world
    }

    /// What HEAD has at this path, in the repository of the file.
    fn committed(&self, world: &World, file: &str) -> Value {
        let (repository, name) = match file.strip_prefix("sub/") {
            Some(name) => ("sub", name),
            None => (".", file),
        };
        let show = ["-C", repository, "cat-file", "blob", &format!("HEAD:{name}")];
        let ran = world.program("git", show).ends();
        if ran.code() == Some(0) { hash(ran.stdout_bytes()).into() } else { Value::Null }
    }

    /// What the command does without tollgate.
    fn native(&self, door: Door) -> BTreeMap<String, String> {
        let world = self.world(door);
        for (file, text) in self.work {
            world.puts(file, text);
        }
        world.script(self.owner).ends().is(0);
        let before = shown(&world);
        world.script(self.command).ends().is(0);
        let after = shown(&world);
        assert_ne!(before, after, "`{}` does nothing", self.command);
        after
    }

    /// What is wrong with this case at this door.
    fn wrong(&self, door: Door, owner: Owner) -> Vec<String> {
        let mut wrong = Vec::new();
        let native = self.native(door);
        let world = self.world(door);
        let red = Agent::new(&world, "red", door);
        let blue = (owner == Owner::Blue).then(|| Agent::new(&world, "blue", door));
        for (file, text) in self.work {
            match &blue {
                Some(blue) => {
                    if world.path(file).exists() {
                        blue.reads(file);
                    }
                    let wrote = blue.writes(file, text);
                    assert_eq!(wrote.code, Some(0), "{}", wrote.said);
                }
                None => world.puts(file, text),
            }
        }
        match &blue {
            Some(blue) if !self.owner.is_empty() => {
                let ran = blue.runs(self.owner);
                assert_eq!(ran.code, Some(0), "{}", ran.said);
            }
            _ => drop(world.script(self.owner).ends().is(0)),
        }
        let before = shown(&world);
        let answer = red.runs(self.command);
        let switches = self.kind == Switches || self.kind == SwitchesAndDestroys && owner == Owner::Blue;
        wrong.extend(self.unlike_a_refusal(&answer, door, owner));
        if !switches {
            wrong.extend(self.without_details(&world, &answer, door, owner));
        }
        for (file, text) in self.work {
            let found = std::fs::read_to_string(world.path(file)).ok();
            if found.as_deref() != Some(text) {
                wrong.push(format!("`{file}` has {found:?} now"));
            }
        }
        let after = shown(&world);
        // At the level of the gate, what the command did before the refused call stands.
        if door != Door::Gate && before != after {
            wrong.push(format!("something has changed: {}", difference(&before, &after)));
        }
        if wrong.is_empty() {
            for (file, _) in self.work {
                red.reads(file);
            }
            let answer = red.runs(self.command);
            if answer.is_refused() != switches {
                let verb = if switches { "runs" } else { "is refused" };
                wrong.push(format!("it {verb} when the agent has read the files: {}", answer.said));
            } else if !switches && door != Door::Gate && shown(&world) != native {
                let difference = difference(&native, &shown(&world));
                let said = answer.said;
                wrong.push(format!("it does not do what it does without tollgate: {difference}: {said}"));
            }
        }
        wrong
    }

    /// How the answer differs from that to a refused command.
    fn unlike_a_refusal(&self, answer: &Answer, door: Door, owner: Owner) -> Vec<String> {
        let payloads = answer.payloads();
        if payloads.is_empty() {
            return vec![format!("it is not refused: {answer:?}")];
        }
        let mut wrong = Vec::new();
        // Hooks may block a command before it runs. Then it has no exit code.
        let is_run = matches!(door, Door::Transaction | Door::Gate);
        if answer.code != Some(75) && (is_run || answer.code.is_some()) {
            wrong.push(format!("it ends with {:?}: {}", answer.code, answer.said));
        }
        for payload in &payloads {
            if payload.as_object().unwrap().len() != 5
                || payload["error_type"] != "STALE_FILE"
                || payload["resolution"] != "RE_READ_REQUIRED"
            {
                wrong.push(format!("another payload: {payload}"));
            }
        }
        let name = match owner {
            Owner::Blue => "blue",
            Owner::Person => "does not use tollgate",
        };
        if !answer.said.contains(name) {
            wrong.push(format!("it does not say whose work it is: {}", answer.said));
        }
        if self.kind == Commits && !answer.said.contains("tollgate commit") {
            wrong.push(format!("it does not name `tollgate commit`: {}", answer.said));
        }
        wrong
    }

    /// What is missing in the payloads and in the ledger. Hooks that block a command have one payload, that of the first file.
    fn without_details(&self, world: &World, answer: &Answer, door: Door, owner: Owner) -> Vec<String> {
        let expected: Vec<Value> = self
            .work
            .iter()
            .map(|(file, text)| {
                json!({"error_type": "STALE_FILE", "file_path": world.path(file), "resolution": "RE_READ_REQUIRED",
                    "expected_hash": self.committed(world, file), "actual_hash": hash(text)})
            })
            .collect();
        let mut wrong = Vec::new();
        let payloads = answer.payloads();
        let shown = if answer.code.is_none() { &expected[..1] } else { &expected[..] };
        // At the level of the gate, many programs give up at the first refused call.
        let is_part = |found: &[Value], all: &[Value]| {
            door == Door::Gate && !found.is_empty() && found.iter().all(|value| all.contains(value))
        };
        if payloads != shown && !is_part(&payloads, shown) {
            wrong.push(format!("the payloads are {}, not {}", json!(payloads), json!(shown)));
        }
        let lines = world.lines();
        let lines: Vec<Value> = lines.iter().filter(|line| line["agent"] == "red").map(recorded).collect();
        let mut lines: Vec<Value> = lines.into_iter().filter(|line| line[0] == "MUTATION_CONFLICT").collect();
        if answer.code.is_none() {
            // The agent tries a call again that hooks have blocked.
            lines.dedup();
        }
        let agent = match owner {
            Owner::Blue => json!("blue"),
            Owner::Person => Value::Null,
        };
        let in_ledger =
            |hash: &Value| hash.as_str().map_or(Value::Null, |hash| format!("sha256:{hash}").into());
        let expected: Vec<Value> = self
            .work
            .iter()
            .zip(&expected)
            .map(|((file, _), payload)| {
                let (baseline, current) =
                    (in_ledger(&payload["expected_hash"]), in_ledger(&payload["actual_hash"]));
                json!(["MUTATION_CONFLICT", file, baseline, current, "DENIED", "STALE_FILE", agent, true])
            })
            .collect();
        if lines != expected && !is_part(&lines, &expected) {
            wrong.push(format!("the ledger has {}, not {}", json!(lines), json!(expected)));
        }
        wrong
    }
}

/// What matters of a line in the ledger.
fn recorded(line: &Value) -> Value {
    let (payload, result) = (&line["payload"], &line["result"]);
    let since = payload["unfinished"]["since"].as_str().is_some_and(|since| since.ends_with('Z'));
    json!([
        line["action_type"],
        payload["target_file"],
        payload["baseline_hash"],
        payload["current_hash"],
        result["status"],
        result["error_type"],
        payload["unfinished"]["agent"],
        since
    ])
}

/// Tries the cases at this door.
fn nothing_is_lost(door: Door, owner: Owner) {
    let mut wrong = Vec::new();
    let mut tried = 0;
    for case in CASES.iter().filter(|case| case.doors.contains(&door)) {
        // A person may be carried along to another branch.
        if case.kind == Switches && owner == Owner::Person {
            continue;
        }
        tried += 1;
        let found = case.wrong(door, owner);
        if !found.is_empty() {
            wrong.push(format!("`{}`{}: {}", case.command, label(case), found.join("\n    ")));
        }
    }
    assert!(wrong.is_empty(), "{} of {tried} at {door:?}, {owner:?}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Tells cases with the same command apart.
fn label(case: &Case) -> String {
    format!(" with {:?}", case.work.iter().map(|(file, _)| *file).collect::<Vec<_>>())
}

#[test]
fn a_run_loses_nothing_of_another_agent() {
    nothing_is_lost(Door::Transaction, Owner::Blue);
}

#[test]
fn a_run_at_the_gate_loses_nothing_of_a_person() {
    nothing_is_lost(Door::Gate, Owner::Person);
}

#[test]
fn a_command_whose_text_is_read_loses_nothing_of_another_agent() {
    nothing_is_lost(Door::Reader, Owner::Blue);
}

#[test]
fn a_command_whose_text_is_read_loses_nothing_of_a_person() {
    nothing_is_lost(Door::Reader, Owner::Person);
}

#[test]
fn a_command_under_hooks_loses_nothing_of_another_agent() {
    nothing_is_lost(Door::Hooks, Owner::Blue);
}
