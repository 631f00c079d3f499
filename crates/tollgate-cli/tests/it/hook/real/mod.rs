//! The real agent programs from npm, driven by a scripted model, with the hooks that `tollgate init --host` installs, or with
//! the MCP server that `tollgate init --mcp` registers.
//!
//! `scripts/agent-programs` installs them once into `target/agent-programs`. If that is not possible (no npm, no network),
//! these tests say so and pass; with `TOLLGATE_TEST_AGENT_PROGRAMS=required` they fail.

mod mcp;
mod model;
mod program;
mod race;
mod run;
mod switched_off;
mod together;
mod unfinished;
mod wire;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{change_in_secret, reserved};
use crate::world::World;
use model::{Act, Ends, Speaks, Step};
use program::{Real, programs};
use tollgate_testing::until_true;

/// Where programs wait for each other, again and again. If one of them does not come, the others fail and do not wait for ever.
struct MeetingPoint {
    of: usize,
    arrivals: AtomicUsize,
}

impl MeetingPoint {
    fn new(of: usize) -> Arc<Self> {
        Arc::new(Self { of, arrivals: AtomicUsize::new(0) })
    }

    fn wait(&self) {
        let all = (self.arrivals.fetch_add(1, Ordering::SeqCst) / self.of + 1) * self.of;
        until_true("the other programs", || self.arrivals.load(Ordering::SeqCst) >= all);
    }
}

fn step(act: Act, ends: Ends) -> Step {
    Step { before: None, act, ends }
}

fn step_after(before: impl FnMut() + Send + 'static, act: Act, ends: Ends) -> Step {
    Step { before: Some(Box::new(before)), act, ends }
}

/// The script: several stories, each about one file.
fn stories(speaks: Speaks, root: &Path) -> Vec<Step> {
    use Act::{Edit, Overwrite, Read, Shell};
    use Ends::{Done, Stale};
    let put = |file: &str, text: &'static str| {
        let path = root.join(file);
        move || fs::write(&path, text).unwrap()
    };
    let holds = |file: &str, text: &'static str| {
        let path = root.join(file);
        move || assert_eq!(fs::read_to_string(&path).unwrap(), text, "{}", path.display())
    };
    let both = |mut first: Box<dyn FnMut() + Send>, mut second: Box<dyn FnMut() + Send>| {
        move || {
            first();
            second();
        }
    };
    for file in ["tool", "heredoc", "edit", "secret", "deleted", "touched", "same", "own"] {
        fs::write(root.join(file), "one\ntwo\n").unwrap();
    }
    let secret = root.join("secret");
    let deleted = root.join("deleted");
    let gone = root.join("deleted");
    let touched = root.join("touched");
    // Claude Code's own tools refuse some files with a new modification time before they call the hooks. So its model may get
    // either refusal. It must read a file again that its own shell command has changed, and so must Qwen Code.
    let by_tool = if speaks == Speaks::Claude { Ends::Either } else { Stale };
    let own_reread = matches!(speaks, Speaks::Claude | Speaks::Qwen).then(|| step(Read("own"), Done));
    // Qwen Code's own tools refuse a file with a new modification time after they call the hooks.
    let over_touched = match speaks {
        Speaks::Qwen => Shell("cat > touched <<'EOF'\nmine\nEOF"),
        _ => Overwrite("touched", "mine\n"),
    };
    let stories = vec![
        // Overwritten by a tool: blocked, read again, written.
        step(Read("tool"), Done),
        step_after(put("tool", "foreign\n"), Overwrite("tool", "mine\n"), by_tool),
        step_after(holds("tool", "foreign\n"), Read("tool"), Done),
        step(Overwrite("tool", "mine\n"), Done),
        // Overwritten by a shell command.
        step_after(holds("tool", "mine\n"), Read("heredoc"), Done),
        step_after(put("heredoc", "foreign\n"), Shell("cat > heredoc <<'EOF'\nmine\nEOF"), Stale),
        step_after(holds("heredoc", "foreign\n"), Shell("cat heredoc"), Done),
        step(Shell("cat > heredoc <<'EOF'\nmine\nEOF"), Done),
        // An edit.
        step_after(holds("heredoc", "mine\n"), Read("edit"), Done),
        step_after(put("edit", "one\nforeign\n"), Edit("edit", "one", "ONE"), by_tool),
        step_after(holds("edit", "one\nforeign\n"), Read("edit"), Done),
        step(Edit("edit", "one", "ONE"), Done),
        // A change with the same size and mtime.
        step_after(holds("edit", "ONE\nforeign\n"), Read("secret"), Done),
        step_after(move || change_in_secret(&secret, "one\nTWO\n"), Overwrite("secret", "mine\n"), Stale),
        // Deleted.
        step_after(holds("secret", "one\nTWO\n"), Read("deleted"), Done),
        step_after(move || fs::remove_file(&deleted).unwrap(), Overwrite("deleted", "mine\n"), Stale),
        // Only touched.
        step_after(move || assert!(!gone.exists()), Read("touched"), Done),
        step_after(
            move || {
                let file = fs::File::options().write(true).open(&touched).unwrap();
                file.set_modified(std::time::SystemTime::now()).unwrap();
            },
            over_touched,
            Done,
        ),
        // Not changed at all, and twice by the agent itself.
        step_after(holds("touched", "mine\n"), Read("own"), Done),
        step(Overwrite("own", "first\n"), Done),
        step(Edit("own", "first", "second"), Done),
        step(Shell("printf '%s\\n' third > own"), Done),
    ];
    let rest = vec![
        step(Overwrite("own", "fourth\n"), Done),
        // A file that was never read is not guarded here, and a new file can be created.
        step_after(
            both(Box::new(holds("own", "fourth\n")), Box::new(put("own", "foreign\n"))),
            Overwrite("new", "new\n"),
            Done,
        ),
        step(Overwrite("own", "fifth\n"), by_tool),
        step_after(
            both(Box::new(holds("own", "foreign\n")), Box::new(holds("new", "new\n"))),
            Read("own"),
            Done,
        ),
    ];
    stories.into_iter().chain(own_reread).chain(rest).collect()
}

fn tell(speaks: Speaks) {
    let Some(bin) = programs() else { return };
    let world = World::with("[guard]\nunread = \"known\"\n[run]\nshell = \"parse\"\n");
    let script = stories(speaks, &world.root());
    Real::new(&world, speaks, script).plays(bin);
    all_is_settled(&world);
}

fn all_is_settled(world: &World) {
    let verified = world.run("ledger verify");
    assert!(verified.filtered.starts_with("exit 0"), "{}", verified.filtered);
    assert_eq!(reserved(world), 0, "reservations are left");
}

#[test]
fn codex() {
    tell(Speaks::Codex);
}

/// Codex calls the hooks if its configuration has exactly the hashes that the doctor expects.
#[test]
fn codex_calls_hooks_that_the_doctor_calls_approved() {
    let Some(bin) = programs() else { return };
    let world = World::new();
    world.puts("plan.md", "1. Ship on Friday\n");
    let foreign = world.path("plan.md");
    let script = vec![
        step(Act::Read("plan.md"), Ends::Done),
        step_after(
            move || fs::write(&foreign, "1. Ship on Monday\n").unwrap(),
            Act::Overwrite("plan.md", "1. Ship on Friday\n2. Tell the team\n"),
            Ends::Stale,
        ),
        step(Act::Read("plan.md"), Ends::Done),
        step(Act::Overwrite("plan.md", "1. Ship on Monday\n2. Tell the team\n"), Ends::Done),
    ];
    let mut real = Real::new(&world, Speaks::Codex, script);
    real.approved = true;
    real.plays(bin);
    world.holds("plan.md", "1. Ship on Monday\n2. Tell the team\n");
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

/// A variable in `.env` reaches the hooks: here the agent's name.
fn hooks_get_the_variables_in_env(speaks: Speaks) {
    let Some(bin) = programs() else { return };
    let world = World::with("[guard]\nunread = \"known\"\n[run]\nshell = \"parse\"\n");
    world.puts("plan.md", "one\n");
    world.puts(".env", "TOLLGATE_AGENT=planted\n");
    let foreign = world.path("plan.md");
    let write = Act::Shell("printf '%s\\n' mine > plan.md");
    let put = move || fs::write(&foreign, "foreign\n").unwrap();
    let script = vec![step(Act::Read("plan.md"), Ends::Done), step_after(put, write, Ends::Stale)];
    Real::new(&world, speaks, script).plays(bin);
    let told = world.tollgate(["doctor"]).ends().is(1).stdout();
    assert!(told.contains("changed by `TOLLGATE_AGENT` in"), "{told}");
    let ledger = fs::read_to_string(world.path(".tollgate/ledger.jsonl")).unwrap();
    assert!(ledger.contains("\"planted\""), "{ledger}");
}

#[test]
fn gemini_gives_its_hooks_the_variables_that_the_doctor_names() {
    hooks_get_the_variables_in_env(Speaks::Gemini);
}

#[test]
fn cline_gives_its_hooks_the_variables_that_the_doctor_names() {
    hooks_get_the_variables_in_env(Speaks::Cline);
}

#[test]
fn qwen_gives_its_hooks_the_variables_that_the_doctor_names() {
    hooks_get_the_variables_in_env(Speaks::Qwen);
}

const PATCH: &str = "*** Begin Patch\n*** Update File: a\n@@\n-one\n+ONE\n*** Update File: b\n@@\n-one\n+ONE\n*** Delete File: c\n*** End Patch";

fn patch_over_three_files(speaks: Speaks, adjust: impl FnOnce(&mut Command)) {
    let Some(bin) = programs() else { return };
    let world = World::new();
    for file in ["a", "b", "c"] {
        world.puts(file, "one\n");
    }
    let root = world.root();
    let check = root.clone();
    let foreign = root.join("b");
    let script = vec![
        step(Act::Read("a"), Ends::Done),
        step(Act::Read("b"), Ends::Done),
        step(Act::Read("c"), Ends::Done),
        step_after(move || fs::write(&foreign, "one\nforeign\n").unwrap(), Act::Patch(PATCH), Ends::Stale),
        step_after(
            move || {
                assert_eq!(fs::read_to_string(check.join("a")).unwrap(), "one\n");
                assert_eq!(fs::read_to_string(check.join("b")).unwrap(), "one\nforeign\n");
                assert!(check.join("c").exists());
            },
            Act::Read("b"),
            Ends::Done,
        ),
        step(Act::Patch(PATCH), Ends::Done),
        step(Act::Read("a"), Ends::Done),
    ];
    Real::new(&world, speaks, script).plays_with(bin, adjust);
    world.holds("a", "ONE\n");
    world.holds("b", "ONE\nforeign\n");
    assert!(!world.path("c").exists());
}

#[test]
fn codex_patches_three_files_of_which_one_is_stale() {
    patch_over_three_files(Speaks::Codex, |_| {});
}

#[test]
fn opencode_patches_three_files_of_which_one_is_stale() {
    patch_over_three_files(Speaks::Opencode, |command| {
        // opencode offers patches only to models with this name.
        command.args(["--model", "m/gpt-5"]);
    });
}

#[test]
fn kilo_patches_three_files_of_which_one_is_stale() {
    patch_over_three_files(Speaks::Kilo, |command| {
        command.args(["--model", "m/gpt-5"]);
    });
}

#[test]
fn two_programs_race_for_one_file() {
    let Some(bin) = programs() else { return };
    let world = World::new();
    world.puts("a", "one\n");
    let meeting = MeetingPoint::new(2);
    let script = |text: &'static str| {
        let meeting = Arc::clone(&meeting);
        vec![
            step(Act::Read("a"), Ends::Done),
            // Both programs have read the file, and both write it now.
            step_after(
                move || {
                    meeting.wait();
                },
                Act::Overwrite("a", text),
                Ends::Either,
            ),
            step(Act::Read("a"), Ends::Done),
        ]
    };
    let first = Real::new(&world, Speaks::Codex, script("codex\n"));
    let second = Real::new(&world, Speaks::Gemini, script("gemini\n"));
    std::thread::scope(|scope| {
        scope.spawn(|| first.plays(bin));
        scope.spawn(|| second.plays(bin));
    });
    let text = fs::read_to_string(world.path(".tollgate/ledger.jsonl")).unwrap();
    assert_eq!(text.matches("\"action_type\":\"MUTATION\"").count(), 1, "one of them wrote: {text}");
    let refused = text.matches("MUTATION_CONFLICT").count() + text.matches("MUTATION_REFUSED").count();
    assert_eq!(refused, 1, "the other was told: {text}");
}
