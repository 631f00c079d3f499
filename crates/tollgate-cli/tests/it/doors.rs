//! One table of cases, and every door: an agent gets the same answer, whatever the way on which its change comes.

use std::fs;

use serde_json::{Value, json};

use crate::hook::{Came, Program};
use crate::mcp::Client;
use crate::world::{World, hash};

/// A way on which an agent reads and writes files.
pub(crate) trait Door {
    fn reads(&mut self, file: &str);
    /// Overwrites a file without looking at it. Returns the payload of the refusal.
    fn writes(&mut self, file: &str, text: &str) -> Option<Value>;
    /// The agent's next turn begins.
    fn turns(&mut self);
}

/// `tollgate write`.
struct CommandLine<'w>(&'w World, String);

impl Door for CommandLine<'_> {
    fn reads(&mut self, file: &str) {
        self.0.run(&format!("read {file} --turn {}", self.1));
    }

    fn writes(&mut self, file: &str, text: &str) -> Option<Value> {
        payload(&self.0.tollgate(["write", file, "--json", "--turn", &self.1]).stdin(text).ends().stdout())
    }

    fn turns(&mut self) {
        self.0.run(&format!("turn end --turn {}", self.1)).is(0);
        self.1 = self.0.turn("blue");
    }
}

/// The tools of the MCP server.
struct Mcp<'w>(&'w World, Client);

impl Door for Mcp<'_> {
    fn reads(&mut self, file: &str) {
        self.1.call("read_file", json!({"path": file}));
    }

    fn writes(&mut self, file: &str, text: &str) -> Option<Value> {
        let answer = self.1.call("write_file", json!({"path": file, "content": text}));
        answer.get("isError").map(|_| answer["structuredContent"].clone())
    }

    fn turns(&mut self) {
        self.1 = Client::of(self.0, "blue");
    }
}

/// A tool of an agent program, under its hooks.
struct Tool<'w>(Program<'w>);

impl Door for Tool<'_> {
    fn reads(&mut self, file: &str) {
        self.0.reads(file);
    }

    fn writes(&mut self, file: &str, text: &str) -> Option<Value> {
        blocked(self.0.writes(file, text))
    }

    fn turns(&mut self) {
        self.0.prompts();
    }
}

/// A shell command of an agent program that does not let its hooks change commands: only its text is read.
struct Shell<'w>(Program<'w>);

impl Door for Shell<'_> {
    fn reads(&mut self, file: &str) {
        self.0.reads(file);
    }

    fn writes(&mut self, file: &str, text: &str) -> Option<Value> {
        blocked(self.0.runs(&format!("printf %s '{text}' > {file}")))
    }

    fn turns(&mut self) {
        self.0.prompts();
    }
}

/// A command that tollgate runs, at this level.
struct Run<'w>(CommandLine<'w>, &'static str);

impl Door for Run<'_> {
    fn reads(&mut self, file: &str) {
        self.0.reads(file);
    }

    fn writes(&mut self, file: &str, text: &str) -> Option<Value> {
        let (world, script) = (self.0.0, format!("printf %s '{text}' > {file}"));
        let line = ["run", "--mode", self.1, "--turn", &self.0.1, "--", "sh", "-c", &script];
        payload(&world.tollgate(line).everywhere().ends().stderr())
    }

    fn turns(&mut self) {
        self.0.turns();
    }
}

/// The payload among the lines of an output.
fn payload(text: &str) -> Option<Value> {
    let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.find(|line| line.get("error_type").is_some())
}

fn blocked(came: Came) -> Option<Value> {
    match came {
        Came::Ran(_) => None,
        Came::Blocked(reason) => Some(payload(&reason).unwrap_or_else(|| panic!("no payload: {reason}"))),
    }
}

pub(crate) fn doors(world: &World) -> Vec<(&'static str, Box<dyn Door + '_>)> {
    let line = || CommandLine(world, world.turn("blue"));
    vec![
        ("command line", Box::new(line())),
        ("MCP", Box::new(Mcp(world, Client::of(world, "blue")))),
        ("tool", Box::new(Tool(Program::new(world, "claude-code", "tool")))),
        ("shell", Box::new(Shell(Program::new(world, "cursor", "shell")))),
        ("transaction", Box::new(Run(line(), "transaction"))),
        ("gate", Box::new(Run(line(), "gate"))),
    ]
}

/// What an agent does with a file, and what somebody else does in between.
#[derive(Clone, Copy)]
enum Step {
    Reads,
    Writes(&'static str),
    NextTurn,
    SomebodySaves(&'static str),
    SomebodyDeletes,
    /// The same with another file, on which the agent's work rests.
    ReadsOther,
    SomebodySavesOther(&'static str),
    /// Refused, with these texts as the expected one and as the one on disk.
    IsRefused(&'static str, Option<&'static str>, Option<&'static str>),
}
use Step::{
    IsRefused, NextTurn, Reads, ReadsOther, SomebodyDeletes, SomebodySaves, SomebodySavesOther, Writes,
};

const STALE: &str = "STALE_FILE";

/// Each case: the settings of the guard, the file, and what happens. A write succeeds unless the next step says otherwise.
const CASES: &[(&str, &str, &[Step])] = &[
    ("", "a", &[SomebodySaves("one"), Reads, Writes("mine"), Writes("again")]),
    (
        "",
        "a",
        &[
            SomebodySaves("one"),
            Reads,
            SomebodySaves("two"),
            Writes("mine"),
            IsRefused(STALE, Some("one"), Some("two")),
            Reads,
            Writes("mine"),
        ],
    ),
    ("", "a", &[SomebodySaves("one"), Reads, SomebodySaves("two"), SomebodySaves("one"), Writes("mine")]),
    (
        "",
        "a",
        &[SomebodySaves("one"), Reads, SomebodyDeletes, Writes("mine"), IsRefused(STALE, Some("one"), None)],
    ),
    ("", "a", &[Reads, SomebodySaves("one"), Writes("mine"), IsRefused(STALE, None, Some("one"))]),
    (
        "",
        "a",
        &[Writes("mine"), SomebodySaves("two"), Writes("more"), IsRefused(STALE, Some("mine"), Some("two"))],
    ),
    ("", "new", &[Writes("mine"), Writes("more")]),
    // A file that the agent does not know.
    ("unread = \"allow\"", "a", &[SomebodySaves("one"), Writes("mine")]),
    (
        "unread = \"refuse\"",
        "a",
        &[SomebodySaves("one"), Writes("mine"), IsRefused("UNREAD_FILE", None, Some("one"))],
    ),
    ("unread = \"refuse\"", "a", &[Writes("mine")]),
    (
        "unread = \"allow\"",
        "a",
        &[SomebodySaves("one"), Reads, NextTurn, SomebodySaves("two"), Writes("mine")],
    ),
    (
        "unread = \"known\"",
        "a",
        &[
            SomebodySaves("one"),
            Reads,
            NextTurn,
            SomebodySaves("two"),
            Writes("mine"),
            IsRefused(STALE, Some("one"), Some("two")),
        ],
    ),
    ("unread = \"known\"", "a", &[SomebodySaves("one"), Reads, NextTurn, Writes("mine")]),
    (
        "unread = \"known\"",
        "a",
        &[Reads, NextTurn, SomebodySaves("one"), Writes("mine"), IsRefused(STALE, None, Some("one"))],
    ),
    // What the agent's work rests on was changed.
    (
        "premises = \"refuse\"",
        "a",
        &[
            SomebodySavesOther("one"),
            ReadsOther,
            Writes("mine"),
            SomebodySavesOther("two"),
            Writes("more"),
            IsRefused("PREMISE_CHANGED", Some("one"), Some("two")),
            ReadsOther,
            Writes("more"),
        ],
    ),
    (
        "premises = \"refuse\"",
        "a",
        &[
            SomebodySavesOther("one"),
            ReadsOther,
            SomebodySavesOther("two"),
            SomebodySavesOther("one"),
            Writes("mine"),
        ],
    ),
    (
        "premises = \"refuse\"",
        "a",
        &[SomebodySavesOther("one"), ReadsOther, NextTurn, SomebodySavesOther("two"), Writes("mine")],
    ),
    // Nobody may change these.
    (
        "protected = [\"locked\"]",
        "locked/a",
        &[SomebodySaves("one"), Writes("mine"), IsRefused("PROTECTED_PATH", None, None)],
    ),
    // Nothing is enforced.
    ("mode = \"observe\"", "a", &[SomebodySaves("one"), Reads, SomebodySaves("two"), Writes("mine")]),
    ("mode = \"off\"", "a", &[SomebodySaves("one"), Reads, SomebodySaves("two"), Writes("mine")]),
];

#[test]
fn every_door_gives_the_same_answer() {
    let quick = "[guard]\ndurability = \"fast\"\ngrace = \"1ms\"\n";
    for (settings, file, steps) in CASES {
        for door in 0..6 {
            let world = World::with(&format!("{quick}{settings}\n"));
            let (name, mut door) = doors(&world).swap_remove(door);
            let what = format!("{name}, {settings}");
            let (mut answer, mut before) = (None, None);
            for step in *steps {
                if let (Some(refused), false) = (&answer, matches!(step, IsRefused(..))) {
                    panic!("{what}: refused: {refused}");
                }
                match *step {
                    Reads => door.reads(file),
                    Writes(text) => {
                        before = fs::read(world.path(file)).ok();
                        answer = door.writes(file, text);
                        if answer.is_none() {
                            world.holds(file, text);
                        }
                    }
                    NextTurn => door.turns(),
                    SomebodySaves(text) => world.puts(file, text),
                    ReadsOther => door.reads("other"),
                    SomebodySavesOther(text) => world.puts("other", text),
                    SomebodyDeletes => fs::remove_file(world.path(file)).unwrap(),
                    IsRefused(kind, expected, actual) => {
                        let refused = answer.take().unwrap_or_else(|| panic!("{what}: not refused"));
                        let hash = |text: Option<&str>| text.map(hash);
                        assert_eq!(
                            json!([refused["error_type"], refused["expected_hash"], refused["actual_hash"]]),
                            json!([kind, hash(expected), hash(actual)]),
                            "{what}: {refused}"
                        );
                        assert_eq!(refused.as_object().unwrap().len(), 5, "{what}: {refused}");
                        assert_eq!(fs::read(world.path(file)).ok(), before, "{what}");
                    }
                }
            }
            assert_eq!(answer, None, "{what}");
        }
    }
}
