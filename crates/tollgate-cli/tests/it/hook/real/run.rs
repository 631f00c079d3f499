//! The real programs whose shell commands run through `tollgate run`.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::model::Act::{Read, Shell};
use super::model::Ends::{Done, Stale};
use super::model::{Act, Ends, Speaks, Step};
use super::program::{Real, programs};
use super::{all_is_settled, step, step_after, stories};
use crate::world::World;

const SETTINGS: &str = "[guard]\nunread = \"known\"\n[run]\nshell = \"transaction\"\n";

/// Any user but root.
const NORMAL_USER: u32 = 1000;

const PYTHON: &str = "python3 -c \"open('python', 'w').write('mine\\n')\"";

/// Commands that no parser sees through, each over a stale file, and again after the file was read.
fn more_stories(root: &Path, files: &[&str]) -> Vec<Step> {
    for file in ["python", "script", "stashed"] {
        fs::write(root.join(file), "one\n").unwrap();
    }
    fs::write(root.join("fix.sh"), "echo mine > script\n").unwrap();
    let mut script = Vec::new();
    let stories: [(&str, &str, Act); 3] = [
        ("python", "mine\n", Shell(PYTHON)),
        ("script", "mine\n", Shell("sh fix.sh")),
        ("stashed", "one\n", Shell("git stash -q -- stashed")),
    ];
    for (file, after, act) in stories.into_iter().filter(|(file, ..)| files.contains(file)) {
        let (foreign, unchanged, written) = (root.join(file), root.join(file), root.join(file));
        let cat: &'static str = Box::leak(format!("cat {file}").into_boxed_str());
        script.extend([
            step(Read(file), Done),
            step_after(move || fs::write(&foreign, "foreign\n").unwrap(), act.clone(), Stale),
            step_after(
                move || assert_eq!(fs::read_to_string(&unchanged).unwrap(), "foreign\n"),
                Shell(cat),
                Done,
            ),
            step(act, Done),
            step_after(
                move || assert_eq!(fs::read_to_string(&written).unwrap(), after, "{}", written.display()),
                Shell(cat),
                Done,
            ),
        ]);
    }
    script
}

fn repository() -> World {
    let world = World::with(SETTINGS);
    world.puts("stashed", "one\n");
    let set_up = "git init -q . && git config user.name a && git config user.email a@b && git add stashed && git commit -qm one";
    world.script(set_up).ends().is(0);
    world
}

fn tell(speaks: Speaks) {
    let Some(bin) = programs() else { return };
    let world = repository();
    let mut script = stories(speaks, &world.root());
    script.extend(more_stories(&world.root(), &["python", "script", "stashed"]));
    Real::new(&world, speaks, script).plays(bin);
    commands_ran(&world);
}

/// The commands ran through `tollgate run`, and nothing is left of them.
fn commands_ran(world: &World) {
    all_is_settled(world);
    let lines = world.json("ledger tail --type MUTATION");
    let by_run = lines.as_array().unwrap().iter().filter(|line| line["payload"]["via"] == "run").count();
    assert!(by_run >= 4, "the commands ran without a transaction: {lines}");
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
fn kilo() {
    tell(Speaks::Kilo);
}

/// In its own sandbox, Codex mounts parts of the workspace read-only, among them `.git`. As a normal user, like most people.
#[test]
fn codex_in_its_own_sandbox() {
    let Some(bin) = programs() else { return };
    let world = repository();
    let mut script = stories(Speaks::Codex, &world.root());
    script.extend(more_stories(&world.root(), &["python", "script"]));
    let mut real = Real::new(&world, Speaks::Codex, script);
    real.sandboxed = true;
    let is_root = rustix::process::geteuid().is_root();
    let give_to = |user: u32| {
        let owner = format!("{user}:{user}");
        let given = Command::new("chown").args(["-R", &owner]).arg(world.tmp()).status().unwrap();
        assert!(given.success());
    };
    real.plays_with(bin, |command| {
        if is_root {
            give_to(NORMAL_USER);
            command.uid(NORMAL_USER).gid(NORMAL_USER);
        }
    });
    if is_root {
        give_to(0);
    }
    commands_ran(&world);
}

/// As root, Codex's own sandbox allows no private view of the workspace. What cannot be guarded does not run.
#[test]
fn a_stale_file_survives_a_command_in_the_sandbox_of_codex() {
    let Some(bin) = programs() else { return };
    let world = repository();
    world.puts("python", "one\n");
    let foreign = world.path("python");
    let script = vec![
        step(Shell("cat python"), Done),
        step_after(move || fs::write(&foreign, "foreign\n").unwrap(), Shell(PYTHON), Ends::Either),
        step(Shell("cat python"), Ends::Either),
    ];
    let mut real = Real::new(&world, Speaks::Codex, script);
    real.sandboxed = true;
    real.plays(bin);
    world.holds("python", "foreign\n");
    let (_, _, shown) = real.model.ended();
    assert!(shown.contains("STALE_FILE") || shown.contains("cannot be guarded here"), "{shown}");
}

/// The rules of Codex judge the command that tollgate has changed, and still see the original command in it.
#[test]
fn a_command_that_codex_forbids_does_not_run() {
    let Some(bin) = programs() else { return };
    let world = repository();
    let script = vec![
        step(Shell("touch forbidden"), Done),
        step(Shell("echo one && touch forbidden"), Done),
        step(Shell("echo one > allowed"), Done),
    ];
    let mut real = Real::new(&world, Speaks::Codex, script);
    real.rules = "prefix_rule(pattern=[\"touch\"], decision=\"forbidden\")\n";
    real.plays(bin);
    assert!(!world.path("forbidden").exists(), "the rule did not fire");
    world.holds("allowed", "one\n");
    let (_, _, shown) = real.model.ended();
    assert_eq!(shown.matches("policy forbids").count(), 2, "{shown}");
}

/// The rules of Claude Code judge the command of the model, and not the comment and the prefix that guard it.
#[test]
fn a_command_that_claude_code_does_not_allow_does_not_run() {
    let Some(bin) = programs() else { return };
    let world = repository();
    world.puts("fix.sh", "echo mine > allowed\n");
    world.puts("allowed", "one\n");
    let script = vec![
        step(Shell("touch forbidden"), Done),
        step(Shell("echo one && touch forbidden"), Done),
        step(Shell("python3 -c \"open('asked', 'w')\""), Done),
        step(Shell("sh fix.sh"), Done),
    ];
    let mut real = Real::new(&world, Speaks::Claude, script);
    real.allowed = "Bash(sh fix.sh)";
    real.plays_with(bin, |command| {
        command.args(["--disallowedTools", "Bash(touch:*)"]);
    });
    assert!(!world.path("forbidden").exists(), "the rule did not fire");
    assert!(!world.path("asked").exists(), "nobody has allowed this command");
    world.holds("allowed", "mine\n");
    let lines = world.json("ledger tail --type MUTATION");
    let line = lines.as_array().unwrap().iter().find(|line| line["payload"]["target_file"] == "allowed");
    assert!(line.is_some_and(|line| line["payload"]["via"] == "run"), "{lines}");
}

/// The rules of Gemini judge the command of the model, and not the comment that guards it. Without a rule for a command, nobody
/// could be asked, so it does not run.
#[test]
fn a_command_that_gemini_does_not_allow_does_not_run_and_the_others_are_transactions() {
    let Some(bin) = programs() else { return };
    let world = repository();
    let mut script = vec![
        step(Shell("touch forbidden"), Done),
        step(Shell("cat stashed && touch forbidden"), Done),
        step(Shell("mkdir asked"), Done),
    ];
    script.extend(more_stories(&world.root(), &["python", "script", "stashed"]));
    let mut real = Real::new(&world, Speaks::Gemini, script);
    real.rules = r#"
        [[rule]]
        toolName = "run_shell_command"
        commandPrefix = ["cat", "python3", "sh fix.sh", "git stash"]
        decision = "allow"
        priority = 100

        [[rule]]
        toolName = "run_shell_command"
        commandPrefix = "touch"
        decision = "deny"
        priority = 200
        denyMessage = "the rule says no"
    "#;
    real.plays(bin);
    assert!(!world.path("forbidden").exists(), "the rule did not fire");
    assert!(!world.path("asked").exists(), "nobody has allowed this command");
    let (_, _, shown) = real.model.ended();
    assert_eq!(shown.matches("the rule says no").count(), 2, "{shown}");
    commands_ran(&world);
}

/// As `init` sets these programs up, the text of a command is judged and no more: a script gets through. The program is told so at
/// the start, with the command that guards its scripts.
fn is_told_that_its_scripts_are_not_guarded(speaks: Speaks, guarded: &'static str) {
    let Some(bin) = programs() else { return };
    let host = speaks.host();
    let world = World::bare();
    let foreign = |file: &str| {
        world.puts(file, "one\n");
        let path = world.path(file);
        move || fs::write(&path, "foreign\n").unwrap()
    };
    let script = vec![
        step(Read("python"), Done),
        step(Read("guarded"), Done),
        step_after(foreign("python"), Shell(PYTHON), Done),
        step_after(foreign("guarded"), Shell(guarded), Ends::Either),
        step(Shell("cat guarded"), Done),
        step(Shell(guarded), Done),
    ];
    let real = Real::new(&world, speaks, script);
    real.plays(bin);
    let (_, _, shown) = real.model.ended();
    let way = format!("tollgate run --agent {host}-1 -- COMMAND");
    assert!(shown.contains(&way), "it was not told: {shown}");
    assert!(shown.contains("STALE_FILE"), "the foreign change was overwritten: {shown}");
    assert_eq!(world.json("ledger tail --type MUTATION_CONFLICT").as_array().unwrap().len(), 1);
    // This is what `doctor` and `status` say.
    world.holds("python", "mine\n");
    world.holds("guarded", "mine\n");
    let said = world.run("doctor").to_string() + &world.run("status").to_string();
    assert!(said.contains(&format!("`{host}`: hooks installed and responding")), "{said}");
    assert!(said.contains("what scripts do to files is not guarded"), "{said}");
    assert!(said.contains("scripts in its shell not guarded"), "{said}");
}

#[test]
fn gemini_is_told_that_its_scripts_are_not_guarded_and_what_guards_them() {
    let guarded = "tollgate run --agent gemini-1 -- python3 -c \"open('guarded', 'w').write('mine\\n')\"";
    is_told_that_its_scripts_are_not_guarded(Speaks::Gemini, guarded);
}

#[test]
fn qwen_is_told_that_its_scripts_are_not_guarded_and_what_guards_them() {
    let guarded = "tollgate run --agent qwen-1 -- python3 -c \"open('guarded', 'w').write('mine\\n')\"";
    is_told_that_its_scripts_are_not_guarded(Speaks::Qwen, guarded);
}

/// Without hooks, the whole program runs in the gate: also its own sandbox.
#[test]
fn codex_inside_the_gate_overwrites_no_unseen_change() {
    let Some(bin) = programs() else { return };
    for sandboxed in [false, true] {
        let world = repository();
        world.puts("python", "one\n");
        let foreign = world.path("python");
        let script = vec![
            step(Shell("cat python"), Done),
            step_after(move || fs::write(&foreign, "foreign\n").unwrap(), Shell(PYTHON), Ends::Either),
            step(Shell("echo new > new"), Done),
        ];
        let mut real = Real::new(&world, Speaks::Codex, script);
        (real.bare, real.sandboxed) = (true, sandboxed);
        real.plays_with(bin, |command| {
            let mut gate = Command::new(env!("CARGO_BIN_EXE_tollgate"));
            gate.args(["run", "--mode", "gate", "--agent", "blue", "--"]).arg(command.get_program());
            gate.args(command.get_args()).current_dir(world.root()).env_clear().stdin(Stdio::null());
            gate.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            *command = gate;
        });
        let (_, _, shown) = real.model.ended();
        assert!(shown.contains("Stale file handle"), "sandboxed: {sandboxed}: {shown}");
        assert!(world.path("new").exists(), "sandboxed: {sandboxed}: {shown}");
        world.holds("python", "foreign\n");
        world.holds("new", "new\n");
    }
}
