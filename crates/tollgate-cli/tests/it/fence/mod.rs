//! A write under a claim that was lost: refused at every door, on every store, with one ledger line.

mod connection;
mod folder;
mod stores;

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::hook::Program;
use crate::mcp::Client;
use crate::world::{Ran, Run, World};

/// A claim under which a process works.
#[derive(Debug, Clone)]
struct Claim {
    task: String,
    id: String,
}

impl Claim {
    /// As `task claim --json` tells it.
    fn of(claimed: &Value) -> Self {
        let text = |key: &str| claimed[key].as_str().unwrap_or_else(|| panic!("{claimed}")).to_owned();
        Self { task: text("task"), id: text("claim_id") }
    }

    fn environment(claim: Option<&Self>) -> Vec<(&'static str, String)> {
        let named = |claim: &Self| {
            vec![("TOLLGATE_TASK_ID", claim.task.clone()), ("TOLLGATE_CLAIM_ID", claim.id.clone())]
        };
        claim.map(named).unwrap_or_default()
    }
}

/// The same run, by a process that works under this claim.
fn under<'w>(claim: Option<&Claim>, mut run: Run<'w>) -> Run<'w> {
    for (name, value) in Claim::environment(claim) {
        run = run.env(name, value);
    }
    run
}

/// A way to change the file `a`, which holds `one`, or `b`.
type Door = fn(&World, Option<&Claim>) -> Result<(), Value>;

const DOORS: [(&str, Door); 11] = [
    ("write", |world, claim| command(world, claim, "write a", "mine")),
    ("edit", |world, claim| command(world, claim, "edit a --old one --new mine", "")),
    ("apply", |world, claim| {
        let changes = json!([{"path": "b", "content": "mine"}, {"path": "a", "content": "mine"}]);
        command(world, claim, "apply", &changes.to_string())
    }),
    ("delete", |world, claim| command(world, claim, "delete a", "")),
    ("move", |world, claim| command(world, claim, "move a c", "")),
    ("hook of claude-code", |world, claim| hook(world, claim, "claude-code")),
    ("hook of codex", |world, claim| hook(world, claim, "codex")),
    ("hook of gemini", |world, claim| hook(world, claim, "gemini")),
    ("mcp", |world, claim| {
        let mut client = Client::start(under(claim, world.tollgate(["mcp", "--agent", "blue"])));
        let answer = client.call("write_file", json!({"path": "a", "content": "mine"}));
        match answer["isError"] == true {
            true => Err(answer["structuredContent"].clone()),
            false => Ok(()),
        }
    }),
    ("run as a transaction", |world, claim| run(world, claim, "transaction")),
    ("run call by call", |world, claim| run(world, claim, "gate")),
];

fn command(world: &World, claim: Option<&Claim>, line: &str, stdin: &str) -> Result<(), Value> {
    let words = line.split(' ').chain(["--json", "--agent", "blue"]);
    let ran = under(claim, world.tollgate(words)).stdin(stdin).ends();
    if ran.code() == Some(0) {
        return Ok(());
    }
    let mut payload = ran.is(1).json();
    // `apply` adds the payloads of all files.
    payload.as_object_mut().unwrap().shift_remove("all");
    Err(payload)
}

fn hook(world: &World, claim: Option<&Claim>, host: &'static str) -> Result<(), Value> {
    static SESSIONS: AtomicUsize = AtomicUsize::new(0);
    // An agent that has seen nothing yet.
    let session = format!("s{}", SESSIONS.fetch_add(1, Ordering::Relaxed));
    let program = Program::new(world, host, &session).started_with(Claim::environment(claim));
    match program.writes("a", "mine\n") {
        crate::hook::Came::Ran(_) => Ok(()),
        blocked @ crate::hook::Came::Blocked(_) => Err(blocked.refused("FENCED")),
    }
}

fn run(world: &World, claim: Option<&Claim>, mode: &str) -> Result<(), Value> {
    let words = ["run", "--agent", "blue", "--mode", mode, "--", "sh", "-c", "printf mine > a"];
    let ran: Ran = under(claim, world.tollgate(words)).ends();
    match ran.code() {
        Some(0) => Ok(()),
        _ => {
            let told = ran.is(75).stderr();
            let payload = told.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{told}"));
            Err(serde_json::from_str(payload).unwrap())
        }
    }
}

/// The ledger lines of fenced writes.
fn fenced_lines(world: &World) -> Vec<Value> {
    let text = fs::read_to_string(world.path(".tollgate/ledger.jsonl")).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["result"]["error_type"] == "FENCED").collect()
}

/// Tries a door with fresh files.
fn tries(world: &World, claim: Option<&Claim>, door: Door) -> Result<(), Value> {
    for file in ["a", "b"] {
        world.puts(file, "one");
    }
    let _ = fs::remove_file(world.path("c"));
    door(world, claim)
}

/// Whether a file is as it was, and the others.
fn is_unchanged(world: &World) -> bool {
    let read = |file: &str| fs::read_to_string(world.path(file)).unwrap_or_default();
    read("a") == "one" && read("b") == "one" && !world.path("c").exists()
}

/// Fails unless this door refuses a write under this claim, with one ledger line, and changes nothing.
#[track_caller]
fn refuses(world: &World, claim: &Claim, (name, door): (&str, Door)) {
    let before = fenced_lines(world).len();
    let payload = tries(world, Some(claim), door).expect_err(name);
    assert_eq!(payload["error_type"], "FENCED", "{name}");
    assert_eq!(payload["resolution"], "STOP_WORK", "{name}");
    assert_eq!(payload["file_path"], world.path("a").to_str().unwrap(), "{name}: the first in path order");
    assert_eq!(payload.as_object().unwrap().len(), 5, "{name}");
    assert!(is_unchanged(world), "{name}");
    let lines = fenced_lines(world);
    assert_eq!(lines.len(), before + 1, "{name}: one line");
    assert_eq!(lines[before]["action_type"], "MUTATION_REFUSED", "{name}");
    assert_eq!(lines[before]["result"]["status"], "DENIED", "{name}");
}

/// Fails unless this door lets a write through.
#[track_caller]
fn lets_through(world: &World, claim: Option<&Claim>, (name, door): (&str, Door)) {
    let answer = tries(world, claim, door);
    assert!(answer.is_ok(), "{name}: {answer:?}");
    assert!(!is_unchanged(world), "{name}");
}

/// Claims a task, as soon as it is free.
fn claims_when_free(world: &World, task: &str, agent: &str) -> Claim {
    let words = ["task", "claim", task, "--agent", agent, "--json"];
    crate::world::until("the task to be free", || {
        let ran = world.tollgate(words).ends();
        (ran.code() == Some(0)).then(|| Claim::of(&serde_json::from_str(&ran.stdout()).unwrap()))
    })
}
