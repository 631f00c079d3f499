//! What is never refused beside unfinished work of somebody else: the agent's own work, what it has seen, what is committed or
//! ignored, and what destroys nothing. And the settings that refuse nothing at all.

use std::collections::BTreeMap;

use super::{Agent, Door, checkout, configure, difference, shown};
use crate::world::World;

/// Files and what is in them.
type Work = &'static [(&'static str, &'static str)];

struct Case {
    /// What the other agent has written.
    blue: Work,
    /// What happens then: a person does this.
    person: &'static str,
    /// What the agent itself has written.
    red: Work,
    command: &'static str,
}

const TRACKED: Work = &[("f", "one\ntwo\nunfinished\n")];
const NEW: Work = &[("notes/new", "unfinished\n")];
const MINE: Work = &[("mine", "more\n"), ("my/new", "mine\n")];

const fn case(blue: Work, red: Work, command: &'static str) -> Case {
    Case { blue, person: "", red, command }
}

const CASES: &[Case] = &[
    // Its own work, beside that of another agent.
    case(NEW, TRACKED, "git checkout -q f"),
    case(NEW, TRACKED, "git stash -q"),
    case(NEW, TRACKED, "git stash -q && git stash pop -q"),
    case(NEW, TRACKED, "git reset -q --hard"),
    case(NEW, TRACKED, "git commit -q -a -m x"),
    case(NEW, TRACKED, "git add f && git commit -q --amend --no-edit"),
    case(TRACKED, MINE, "git stash push -q mine"),
    case(TRACKED, MINE, "git commit -q -m x mine"),
    case(TRACKED, MINE, "git add mine my && git commit -q -m x"),
    case(TRACKED, MINE, "git checkout -q mine && git clean -q -fd my"),
    case(TRACKED, MINE, "rm mine && rm -rf my"),
    case(TRACKED, MINE, "mv my moved && cp g mine"),
    case(TRACKED, MINE, "git add mine my && git reset -q && git add mine && git restore --staged mine"),
    case(TRACKED, MINE, "find my -delete; python3 -c \"open('mine', 'w').write('again')\""),
    case(NEW, MINE, "git clean -q -fd my"),
    case(&[], MINE, "git add -A . && git commit -q -m x && git switch -q other && git rebase -q main"),
    // Committed in the meantime.
    Case { person: "git commit -q -a -m x", ..case(TRACKED, &[], "rm f") },
    Case { person: "git commit -q -a -m x", ..case(TRACKED, &[], "git checkout -q HEAD~1 -- f") },
    Case { person: "git commit -q -a -m x", ..case(TRACKED, &[], "echo mine > f") },
    Case { person: "git commit -q -a -m x", ..case(TRACKED, &[], "git stash -q -u; git checkout -q -- .") },
    Case { person: "git add -A . && git commit -q -m x", ..case(NEW, &[], "rm -rf notes") },
    Case { person: "git add -A . && git commit -q -m x", ..case(NEW, &[], "mv notes moved") },
    // As it was when it was committed: somebody has taken the change back.
    Case { person: "git checkout -q f", ..case(TRACKED, &[], "rm f") },
    Case { person: "git checkout -q f", ..case(TRACKED, &[], "echo more >> g && git commit -q -a -m x") },
    // Ignored.
    case(&[("debug.log", "x\n")], &[], "rm debug.log"),
    case(&[("debug.log", "x\n")], &[], "echo y > debug.log"),
    case(&[("debug.log", "x\n"), ("d/x.log", "x\n")], &[], "git clean -q -fdx -e .tollgate"),
    case(&[("out/deep/x", "x\n")], &[], "rm -rf out/deep"),
    case(&[("d/debug.log", "x\n")], &[], "rm -rf d"),
    case(&[("d/debug.log", "x\n")], &[], "git add -A . && echo more >> g && git commit -q -a -m x"),
    // A program that looks, and writes something new.
    case(TRACKED, &[], "sed -i s/one/1/ f"),
    case(NEW, &[], "sed -i 's/$/ and more/' notes/new"),
    case(TRACKED, &[], "echo more >> f"),
    case(TRACKED, &[], "python3 -c \"t = open('f').read(); open('f', 'w').write(t.upper())\""),
    // Looking, and what destroys nothing.
    case(
        TRACKED,
        &[],
        "git status; git diff; git log -p; git stash list; git show; git blame f; cat f; grep -r one .",
    ),
    case(
        TRACKED,
        &[],
        "git branch topic && git tag v1 && git branch -m topic subject && git branch -D subject",
    ),
    case(TRACKED, &[], "git worktree add -q ../tree -b topic && git worktree remove ../tree"),
    case(NEW, &[], "git stash list; git stash -q; git checkout -q .; git restore .; git reset -q --hard"),
    case(TRACKED, &[], "git clean -q -fd; rm -rf nothing; git stash push -q g; git checkout -q g"),
    case(TRACKED, &[], "cp f ../copy; ln -s f link; mkdir new; touch new/x; chmod +x g"),
    case(TRACKED, &[], "git archive HEAD | tar -t; git gc -q; git fsck; git fetch -q . main"),
];

/// The same without tollgate.
fn native(case: &Case, door: Door) -> BTreeMap<String, String> {
    let world = checkout(door);
    case.blue.iter().for_each(|(file, text)| world.puts(file, text));
    world.script(case.person).ends().is(0);
    case.red.iter().for_each(|(file, text)| world.puts(file, text));
    world.script(case.command).ends();
    shown(&world)
}

fn nothing_is_refused(door: Door) {
    let mut wrong = Vec::new();
    for case in CASES {
        let world = checkout(door);
        let (blue, red) = (Agent::new(&world, "blue", door), Agent::new(&world, "red", door));
        for (agent, work) in [(&blue, case.blue), (&red, case.red)] {
            for (file, text) in work {
                let wrote = agent.writes(file, text);
                assert_eq!(wrote.code, Some(0), "{}", wrote.said);
            }
            if agent.name == "blue" {
                world.script(case.person).ends().is(0);
                // A person waits until an agent is done before HEAD moves.
                blue.leaves();
            }
        }
        let answer = red.runs(case.command);
        if answer.is_refused() {
            wrong.push(format!("`{}` is refused: {}", case.command, answer.said));
        } else {
            let (native, guarded) = (native(case, door), shown(&world));
            let difference = difference(&native, &guarded);
            if !difference.is_empty() {
                wrong.push(format!("`{}`: {difference}{}", case.command, answer.said));
            }
        }
    }
    assert!(wrong.is_empty(), "{door:?}:\n{}", wrong.join("\n"));
}

#[test]
fn a_run_is_not_refused_for_what_destroys_nothing() {
    nothing_is_refused(Door::Transaction);
}

#[test]
fn a_run_at_the_gate_is_not_refused_for_what_destroys_nothing() {
    nothing_is_refused(Door::Gate);
}

#[test]
fn a_command_under_hooks_is_not_refused_for_what_destroys_nothing() {
    nothing_is_refused(Door::Hooks);
}

#[test]
fn a_command_whose_text_is_read_is_not_refused_for_what_destroys_nothing() {
    nothing_is_refused(Door::Reader);
}

/// Commands that are refused with the settings that `init` writes.
const REFUSED: &[&str] =
    &["rm f", "git stash -q", "git reset -q --hard", "echo mine > f", "git commit -q -a -m x", "mv f moved"];

/// What the ledger says about `f`.
fn observed(world: &World) -> usize {
    let lines = world.lines();
    let observed = lines.iter().filter(|line| line["result"]["status"] == "OBSERVED");
    observed.filter(|line| line["payload"]["target_file"] == "f").count()
}

#[test]
fn settings_that_do_not_refuse_record_or_say_nothing() {
    let mut wrong = Vec::new();
    for (old, new, lines) in [
        ("unfinished = \"refuse\"", "unfinished = \"allow\"", 0),
        ("unfinished = \"refuse\"", "unfinished = \"note\"", 1),
        ("# mode = \"enforce\"", "mode = \"observe\"", 1),
        ("# mode = \"enforce\"", "mode = \"off\"", 0),
    ] {
        for door in [Door::Transaction, Door::Gate] {
            for command in REFUSED {
                // Another setting decides about commits.
                if command.contains("commit") {
                    continue;
                }
                // Hooks of a guard that is off change no command.
                if door == Door::Hooks && new.contains("off") {
                    continue;
                }
                let world = checkout(door);
                configure(&world, old, new);
                world.script("git commit -q -a -m settings").ends().is(0);
                let (blue, red) = (Agent::new(&world, "blue", door), Agent::new(&world, "red", door));
                for (file, text) in TRACKED {
                    blue.writes(file, text);
                }
                let before = shown(&world);
                let answer = red.runs(command);
                if answer.is_refused() || shown(&world) == before {
                    wrong.push(format!("{door:?}, {new}: `{command}` is refused: {}", answer.said));
                }
                if observed(&world) != lines {
                    wrong.push(format!("{door:?}, {new}: `{command}`: {} lines", observed(&world)));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
