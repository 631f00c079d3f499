//! Everyday work of a single agent in a checkout of its own: git, builds, formatters, editors. Nothing of it is refused, and
//! everything does what it does without tollgate. The files in `workflows/` have the steps.

use std::collections::BTreeMap;
use std::fs;

use super::{Agent, Answer, Door, checkout, difference, shown};
use crate::world::World;

const COMMITS: &str = include_str!("workflows/commits.txt");
const BRANCHES: &str = include_str!("workflows/branches.txt");
const TREES: &str = include_str!("workflows/trees.txt");
const FILES: &str = include_str!("workflows/files.txt");
const TURNS: &str = include_str!("workflows/turns.txt");

/// What an agent does.
#[derive(Debug)]
enum Step {
    /// A shell command
    Runs(String),
    /// The file tool of its program, or `tollgate read` and `tollgate write`
    Reads(&'static str),
    Writes(&'static str, String),
    /// A person asks for something new.
    NextTurn,
}
use Step::{NextTurn, Reads, Runs, Writes};

#[derive(Debug)]
struct Workflow {
    name: &'static str,
    /// What is there before. A person has committed it.
    given: &'static str,
    steps: Vec<Step>,
}

/// A branch `topic` with one commit that changes the same line as `main` does.
const CONFLICT: &str = "git switch -q -c topic && sed -i s/two/topic/ f && git commit -q -a -m topic
    git switch -q main && sed -i s/two/main/ f && git commit -q -a -m main";
/// A branch `topic` with two commits that conflict with nothing.
const TOPIC: &str = "git switch -q -c topic && echo a > a && git add a && git commit -q -m a
    echo b > b && git add b && git commit -q -m b && git switch -q main && echo more >> g && git commit -q -a -m g";
/// Five commits. The fourth has the bug.
const LONG: &str = "for n in 1 2 3 4 5; do echo $n >> n; [ $n -lt 4 ] || echo bug > state; git add -A .
    git commit -q -m $n; done";
const REMOTE: &str =
    "git clone -q --bare . ../remote.git && git remote add origin ../remote.git && git fetch -q
    git branch -q -u origin/main";
const LIBRARY: &str = "git init -q ../lib && cd ../lib && echo lib > l && git add l && git commit -q -m lib";
const BUILD: &str = r#"printf '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n' > main.c
    printf 'prog: main.o\n\tcc -o prog main.o\nmain.o: main.c\n\tcc -c main.c\nclean:\n\trm -f prog main.o\n' > Makefile
    git add -A . && git commit -q -m build"#;
const TEXTS: &str = "for n in 1 2 3 4 5 6 7 8 9; do echo \"text $n  \" > t$n.txt; done; git add -A . && git commit -q -m texts";
const HOOKS: &str = r#"printf '#!/bin/sh\nsed -i "s/ *$//" mine && git add mine\n' > .git/hooks/pre-commit
    printf '#!/bin/sh\necho "Signed-off-by: ada" >> "$1"\n' > .git/hooks/commit-msg; chmod +x .git/hooks/*"#;

/// What a workflow may be given, by its name in the text. Everything else is a script.
const GIVEN: &[(&str, &str)] = &[
    ("a conflict", CONFLICT),
    ("a topic", TOPIC),
    ("five commits", LONG),
    ("a remote", REMOTE),
    ("a library", LIBRARY),
    ("a build", BUILD),
    ("texts", TEXTS),
    ("commit hooks", HOOKS),
];

/// The workflows of a text.
fn workflows(text: &'static str) -> Vec<Workflow> {
    let mut found: Vec<Workflow> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let (word, rest) = line.split_once(' ').unwrap();
        if word == "#" {
            found.push(Workflow { name: rest, given: "", steps: Vec::new() });
            continue;
        }
        let workflow = found.last_mut().unwrap();
        let step = match (word, workflow.steps.last_mut()) {
            ("given", _) => {
                let known = GIVEN.iter().find(|(name, _)| *name == rest);
                workflow.given = known.map_or(rest, |(_, script)| script);
                continue;
            }
            // A command goes on.
            (">", Some(Runs(command))) => {
                command.push('\n');
                command.push_str(rest);
                continue;
            }
            ("$", _) => Runs(rest.to_owned()),
            ("reads", _) => Reads(rest),
            ("writes", _) => {
                let (file, text) = rest.split_once(' ').unwrap();
                Writes(file, text.replace("\\n", "\n"))
            }
            _ if line == "next turn" => NextTurn,
            _ => panic!("{line}"),
        };
        workflow.steps.push(step);
    }
    found
}

/// The same steps without tollgate.
fn native(workflow: &Workflow) -> (World, Vec<Option<i32>>) {
    let world = checkout(Door::Hooks);
    world.script(workflow.given).ends().is(0);
    let mut codes = Vec::new();
    for step in &workflow.steps {
        match step {
            Runs(command) => codes.push(world.script(command).ends().code()),
            Writes(file, text) => world.puts(file, text),
            Reads(_) | NextTurn => {}
        }
    }
    (world, codes)
}

/// Why a workflow does not go as it goes without tollgate.
fn wrong(
    workflow: &Workflow,
    door: Door,
    codes: &[Option<i32>],
    native: &BTreeMap<String, String>,
) -> Option<String> {
    let world = checkout(door);
    world.script(workflow.given).ends().is(0);
    let agent = Agent::new(&world, "blue", door);
    let mut codes = codes.iter();
    for step in &workflow.steps {
        let (answer, code): (Answer, Option<i32>) = match step {
            Runs(command) => (agent.runs(command), *codes.next().unwrap()),
            Writes(file, text) => (agent.writes(file, text), Some(0)),
            Reads(file) => {
                agent.reads(file);
                continue;
            }
            NextTurn => {
                agent.begins();
                continue;
            }
        };
        if answer.is_refused() || answer.code != code {
            return Some(format!("{step:?}: {:?} instead of {code:?}: {}", answer.code, answer.said));
        }
    }
    let refusals = ["MUTATION_CONFLICT", "MUTATION_REFUSED"];
    if let Some(line) =
        world.lines().iter().find(|line| refusals.iter().any(|kind| line["action_type"] == *kind))
    {
        return Some(format!("the ledger has a refusal: {line}"));
    }
    let difference = difference(native, &shown(&world));
    (!difference.is_empty()).then_some(difference)
}

/// Nothing in this text is refused: not under hooks, and not by `tollgate run`.
fn all_go_on(text: &'static str) {
    let mut failed = Vec::new();
    for workflow in &workflows(text) {
        let (world, codes) = native(workflow);
        let native = shown(&world);
        for door in [Door::Hooks, Door::Transaction] {
            if let Some(why) = wrong(workflow, door, &codes, &native) {
                failed.push(format!("{}, {door:?}: {why}", workflow.name));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn commits_and_stashes_of_one_agent_go_on() {
    all_go_on(COMMITS);
}

#[test]
fn branches_merges_and_rebases_of_one_agent_go_on() {
    all_go_on(BRANCHES);
}

#[test]
fn worktrees_remotes_and_patches_of_one_agent_go_on() {
    all_go_on(TREES);
}

#[test]
fn builds_formatters_and_editors_of_one_agent_go_on() {
    all_go_on(FILES);
}

#[test]
fn what_one_turn_made_another_turn_of_the_same_session_may_destroy() {
    all_go_on(TURNS);
}

#[test]
fn there_are_at_least_sixty_workflows() {
    let workflows: Vec<_> =
        [COMMITS, BRANCHES, TREES, FILES, TURNS].into_iter().flat_map(workflows).collect();
    assert!(workflows.len() >= 60, "{}", workflows.len());
    for workflow in &workflows {
        assert!(workflow.steps.iter().any(|step| matches!(step, Runs(_))), "{workflow:?}");
    }
    // The configuration is the one that people have.
    let config = fs::read_to_string(checkout(Door::Hooks).path(".tollgate/config.toml")).unwrap();
    assert!(config.contains("unread = \"known\"") && config.contains("shell = \"transaction\""), "{config}");
}
