//! The mode `observe`: a command that would be refused for what it does to git makes its change, and the ledger says so.

use super::Door::{Gate, Hooks, Reader, Transaction};
use super::{Agent, Door, checkout, configure};
use crate::world::World;

struct Case {
    doors: &'static [Door],
    /// What the owner of the work does with it, and a person after that.
    owner: &'static str,
    person: &'static str,
    command: &'static str,
    /// The file of the ledger line, relative to the workspace.
    file: &'static str,
}

const IN_VIEW: &[Door] = &[Transaction, Hooks, Reader];
const EVERY: &[Door] = &[Transaction, Gate, Hooks, Reader];

const CASES: &[Case] = &[
    // A commit with work that its author has not seen.
    Case { doors: IN_VIEW, owner: "", person: "", command: "git commit -q -a -m x", file: "f" },
    Case { doors: IN_VIEW, owner: "", person: "", command: "git add -A && git commit -q -m x", file: "f" },
    Case { doors: IN_VIEW, owner: "git add f", person: "", command: "git commit -q -m x", file: "f" },
    // HEAD, beside work of somebody else, and after a switch of somebody else.
    Case { doors: EVERY, owner: "", person: "", command: "git checkout -q --detach", file: ".git/HEAD" },
    Case {
        doors: EVERY,
        owner: "git stash -q",
        person: "git switch -q -c topic",
        command: "git commit -q --allow-empty -m x",
        file: ".git/HEAD",
    },
    // A stash of somebody else.
    Case { doors: EVERY, owner: "git stash -q", person: "", command: "git stash drop -q", file: "stash" },
];

impl Case {
    /// Whether the command is refused, whether git shows that it did something, and the files of the ledger lines that only observe.
    fn comes(&self, door: Door, mode: &str) -> (bool, bool, Vec<String>) {
        let world = checkout(door);
        configure(&world, "# mode = \"enforce\"", &format!("mode = \"{mode}\""));
        world.script("git commit -q -a -m settings").ends().is(0);
        let (blue, red) = (Agent::new(&world, "blue", door), Agent::new(&world, "red", door));
        blue.writes("f", "one\ntwo\nunfinished\n");
        if !self.owner.is_empty() {
            blue.runs(self.owner);
        }
        world.script(self.person).ends().is(0);
        let before = shown(&world);
        let answer = red.runs(self.command);
        let lines = world.lines();
        let observed = lines.iter().filter(|line| line["result"]["status"] == "OBSERVED");
        let files = observed.filter_map(|line| line["payload"]["target_file"].as_str().map(str::to_owned));
        (answer.is_refused(), shown(&world) != before, files.collect())
    }
}

fn shown(world: &World) -> String {
    world.script("git symbolic-ref HEAD; git for-each-ref; git stash list").ends().stdout()
}

#[test]
fn what_would_be_refused_in_git_is_recorded_and_happens() {
    let mut wrong = Vec::new();
    for case in CASES {
        for door in case.doors {
            let what = format!("{door:?}: `{}`, `{}`, `{}`", case.owner, case.person, case.command);
            let enforced = case.comes(*door, "enforce");
            if enforced != (true, false, Vec::new()) {
                wrong.push(format!("{what}, enforced: {enforced:?}"));
            }
            let (refused, happens, files) = case.comes(*door, "observe");
            if refused || !happens || !files.iter().any(|file| file.ends_with(case.file)) {
                wrong.push(format!("{what}, observed: {refused}, {happens}, {files:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
