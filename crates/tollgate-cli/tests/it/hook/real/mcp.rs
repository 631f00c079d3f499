//! The real programs with the tools of the MCP server.

use std::fs;

use super::model::Act::{Edit, Overwrite, Read, Tool};
use super::model::Ends::{Done, Stale};
use super::model::{Door, Speaks};
use super::{Real, programs, step, step_after};
use crate::hook::change_in_secret;
use crate::world::{World, until};

fn sha256(text: &str) -> String {
    tollgate::digest::Digest::of(text.as_bytes()).to_string()
}

/// Each file is read, an outsider changes it, the write is refused, the agent reads again and its next write is made.
fn tell(speaks: Speaks) {
    let Some(bin) = programs() else { return };
    let world = World::new();
    world.run("init --vault").is(0);
    world.run("task add Water").is(0);
    let root = world.root();
    for file in ["whole", "edit", "secret", "deleted", "touched", "own"] {
        fs::write(root.join(file), "one\ntwo\n").unwrap();
    }
    let put = |file: &str, text: &'static str| {
        let path = root.join(file);
        move || fs::write(&path, text).unwrap()
    };
    let holds = |file: &str, text: &'static str| {
        let path = root.join(file);
        move || assert_eq!(fs::read_to_string(&path).unwrap(), text, "{}", path.display())
    };
    let (secret, deleted, touched) = (root.join("secret"), root.join("deleted"), root.join("touched"));
    let taken = root.join("vault/In_Progress");
    let script = vec![
        step(Read("whole"), Done),
        step_after(put("whole", "foreign\n"), Overwrite("whole", "mine\n"), Stale),
        step_after(holds("whole", "foreign\n"), Read("whole"), Done),
        step(Overwrite("whole", "foreign and mine\n"), Done),
        step_after(holds("whole", "foreign and mine\n"), Read("edit"), Done),
        step_after(put("edit", "one\nforeign\n"), Edit("edit", "one", "ONE"), Stale),
        step_after(holds("edit", "one\nforeign\n"), Read("edit"), Done),
        step(Edit("edit", "one", "ONE"), Done),
        // A change with the same size and mtime.
        step_after(holds("edit", "ONE\nforeign\n"), Read("secret"), Done),
        step_after(move || change_in_secret(&secret, "one\nTWO\n"), Overwrite("secret", "mine\n"), Stale),
        step_after(holds("secret", "one\nTWO\n"), Read("deleted"), Done),
        step_after(move || fs::remove_file(&deleted).unwrap(), Overwrite("deleted", "mine\n"), Stale),
        // Only touched.
        step(Read("touched"), Done),
        step_after(
            move || {
                let file = fs::File::options().write(true).open(&touched).unwrap();
                file.set_modified(std::time::SystemTime::now()).unwrap();
            },
            Overwrite("touched", "mine\n"),
            Done,
        ),
        // Its own writes do not make it stale.
        step(Read("own"), Done),
        step(Overwrite("own", "first\n"), Done),
        step(Edit("own", "first", "second"), Done),
        // A claimed task belongs to the agent as long as the program runs.
        step(Tool("claim_task", r#"{"task": "water"}"#), Done),
        step_after(
            move || {
                let agents: Vec<_> =
                    fs::read_dir(&taken).unwrap().map(|entry| entry.unwrap().path()).collect();
                assert!(agents.iter().any(|agent| agent.join("water.md").exists()), "{agents:?}");
            },
            Tool("list_tasks", "{}"),
            Done,
        ),
    ];
    let real = Real::through(Door::Mcp, &world, speaks, script);
    real.plays(bin);
    // The model was shown both hashes.
    let (_, _, shown) = real.model.ended();
    for text in ["one\ntwo\n", "foreign\n", "one\nforeign\n", "one\nTWO\n"] {
        assert!(shown.contains(&sha256(text)), "the model was not told of {text:?}: {shown}");
    }
    assert!(!root.join("deleted").exists());
    world.holds("own", "second\n");
    let refused = world.json("ledger tail --type MUTATION_CONFLICT");
    assert_eq!(refused.as_array().unwrap().len(), 4, "{refused}");
    // The program has ended, and with it its server.
    until("the task to be free", || {
        world.run("task reclaim").is(0);
        (world.json("task show water")["state"] == "Needs_Action").then_some(())
    });
}

#[test]
fn codex() {
    tell(Speaks::Codex);
}

#[test]
fn gemini() {
    tell(Speaks::Gemini);
}

#[test]
fn opencode() {
    tell(Speaks::Opencode);
}

#[test]
fn claude_code() {
    tell(Speaks::Claude);
}

#[test]
fn copilot() {
    tell(Speaks::Copilot);
}

#[test]
fn cline() {
    tell(Speaks::Cline);
}

#[test]
fn qwen() {
    tell(Speaks::Qwen);
}

#[test]
fn kilo() {
    tell(Speaks::Kilo);
}
