//! The real agent programs from npm, driven by a scripted model, with the hooks that `tollgate init --host` installs, or with
//! the MCP server that `tollgate init --mcp` registers.
//!
//! `scripts/agent-programs` installs them once into `target/agent-programs`. If that is not possible (no npm, no network),
//! these tests say so and pass; with `TOLLGATE_TEST_AGENT_PROGRAMS=required` they fail.

mod mcp;
mod model;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::{Duration, Instant};

use super::setup::approved;
use super::{change_in_secret, reserved};
use crate::world::World;
use model::{Act, Door, Ends, Model, Speaks, Step};

/// The programs start slowly on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// The folder of the programs; `None` if they cannot be installed.
fn programs() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let target = Path::new(env!("CARGO_BIN_EXE_tollgate")).ancestors().nth(2).unwrap();
        let folder = target.join("agent-programs");
        let ran = Command::new(top.join("scripts/agent-programs")).arg(&folder).stdin(Stdio::null()).output();
        let why = match ran {
            Ok(ran) if ran.status.success() => return Some(folder.join("node_modules/.bin")),
            Ok(ran) => String::from_utf8_lossy(&ran.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        assert!(
            std::env::var_os("TOLLGATE_TEST_AGENT_PROGRAMS").is_none_or(|word| word != "required"),
            "the agent programs cannot be installed: {why}"
        );
        #[allow(clippy::print_stderr, reason = "people who run the tests must see it")]
        {
        eprintln!(
            "SKIPPED: the hooks are not tested with the real agent programs, which cannot be installed: {why}"
        );
        }
        None
    });
    folder.as_deref()
}

/// A real program in a world, with its model.
struct Real<'w> {
    world: &'w World,
    speaks: Speaks,
    door: Door,
    model: Model,
    /// A person has approved its hooks. Otherwise the program runs with an option that needs no approval.
    approved: bool,
}

impl<'w> Real<'w> {
    fn new(world: &'w World, speaks: Speaks, script: Vec<Step>) -> Self {
        Self::through(Door::Hooks, world, speaks, script)
    }

    fn through(door: Door, world: &'w World, speaks: Speaks, script: Vec<Step>) -> Self {
        Self { world, speaks, door, model: Model::start(speaks, door, world.root(), script), approved: false }
    }

    /// The configuration and the arguments, with a person's approval or without asking for it.
    fn trusts(&self) -> (String, &'static [&'static str]) {
        if self.approved {
            return (approved(self.world), &["exec", "--skip-git-repo-check", "go"]);
        }
        let root = self.world.root();
        let project = format!("[projects.\"{}\"]\ntrust_level = \"trusted\"\n", root.display());
        (project, &["exec", "--dangerously-bypass-hook-trust", "--skip-git-repo-check", "go"])
    }

    fn command(&self, bin: &Path, home: &Path) -> Command {
        let port = self.model.port;
        let put = |name: &str, text: String| {
            let path = home.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let (program, words): (&str, &[&str]) = match self.speaks {
            Speaks::Codex => {
                let (trust, words) = self.trusts();
                put(
                    ".codex/config.toml",
                    format!(
                        "model = \"gpt-5.5\"\nmodel_provider = \"m\"\napproval_policy = \"never\"\nsandbox_mode = \"danger-full-access\"\n\
                         [model_providers.m]\nname = \"m\"\nbase_url = \"http://127.0.0.1:{port}/v1\"\nwire_api = \"responses\"\nenv_key = \"K\"\n{trust}"
                    ),
                );
                ("codex", words)
            }
            Speaks::Gemini => {
                put(
                    ".gemini/settings.json",
                    serde_json::json!({
                        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": false}},
                        "privacy": {"usageStatisticsEnabled": false}, "telemetry": {"enabled": false},
                    })
                    .to_string(),
                );
                ("gemini", &["--yolo", "--model", "gemini-2.5-flash", "-p", "go"])
            }
            Speaks::Opencode => {
                put(
                    ".config/opencode/opencode.json",
                    serde_json::json!({
                        "model": "m/gpt-4", "share": "disabled", "autoupdate": false,
                        "provider": {"m": {
                            "npm": "@ai-sdk/openai-compatible", "name": "m",
                            "options": {"baseURL": format!("http://127.0.0.1:{port}/v1"), "apiKey": "x"},
                            "models": {"gpt-4": {"name": "gpt-4"}, "gpt-5": {"name": "gpt-5"}},
                        }},
                    })
                    .to_string(),
                );
                ("opencode", &["run", "go"])
            }
        };
        let tollgate = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap();
        let mut command = Command::new(bin.join(program));
        command
            .args(words)
            .current_dir(self.world.root())
            .env_clear()
            .env("PATH", format!("{}:{}:/usr/local/bin:/usr/bin:/bin", tollgate.display(), bin.display()))
            .env("HOME", home)
            .env("CODEX_HOME", home.join(".codex"))
            .env("XDG_RUNTIME_DIR", self.world.tmp().join("run"))
            .env("K", "x")
            .env("GEMINI_API_KEY", "x")
            .env("GOOGLE_GEMINI_BASE_URL", format!("http://127.0.0.1:{port}"))
            .env("OPENCODE_DISABLE_AUTOUPDATE", "1")
            .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
            .env("OPENCODE_DISABLE_LSP_DOWNLOAD", "1")
            .env("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1")
            .stdin(Stdio::null());
        command
    }

    /// Runs the program to its end, and checks that it followed the script.
    fn plays(&self, bin: &Path) {
        self.plays_with(bin, |_| {});
    }

    fn plays_with(&self, bin: &Path, adjust: impl FnOnce(&mut Command)) {
        let host = match self.speaks {
            Speaks::Codex => "codex",
            Speaks::Gemini => "gemini",
            Speaks::Opencode => "opencode",
        };
        let door = match self.door {
            Door::Hooks => "--host",
            Door::Mcp => "--mcp",
        };
        self.world.run(&format!("init {door} {host}")).is(0);
        let home = self.world.tmp().join(format!("home-{host}"));
        let mut command = self.command(bin, &home);
        adjust(&mut command);
        let log = self.world.tmp().join(format!("{host}.log"));
        let output = fs::File::create(&log).unwrap();
        let mut child = command.stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap();
        let started = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if started.elapsed() > PATIENCE {
                child.kill().unwrap();
                child.wait().unwrap();
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let (played, wrong, last) = self.model.ended();
        let said = fs::read_to_string(&log).unwrap_or_default();
        let tail = |text: &str| {
            text.chars().rev().take(4000).collect::<Vec<_>>().into_iter().rev().collect::<String>()
        };
        assert!(played > 0, "{host} never asked its model: {}", tail(&said));
        assert!(wrong.is_empty(), "{host}: {wrong:#?}\n{}", tail(&said));
        assert_eq!(played, self.model.length(), "{host} stopped early: {}\n{}", tail(&said), tail(&last));
    }
}

fn step(act: Act, ends: Ends) -> Step {
    Step { before: None, act, ends }
}

fn step_after(before: impl FnMut() + Send + 'static, act: Act, ends: Ends) -> Step {
    Step { before: Some(Box::new(before)), act, ends }
}

/// The script: several stories, each about one file.
fn stories(root: &Path) -> Vec<Step> {
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
    vec![
        // Overwritten by a tool: blocked, read again, written.
        step(Read("tool"), Done),
        step_after(put("tool", "foreign\n"), Overwrite("tool", "mine\n"), Stale),
        step_after(holds("tool", "foreign\n"), Read("tool"), Done),
        step(Overwrite("tool", "mine\n"), Done),
        // Overwritten by a shell command.
        step_after(holds("tool", "mine\n"), Read("heredoc"), Done),
        step_after(put("heredoc", "foreign\n"), Shell("cat > heredoc <<'EOF'\nmine\nEOF"), Stale),
        step_after(holds("heredoc", "foreign\n"), Shell("cat heredoc"), Done),
        step(Shell("cat > heredoc <<'EOF'\nmine\nEOF"), Done),
        // An edit.
        step_after(holds("heredoc", "mine\n"), Read("edit"), Done),
        step_after(put("edit", "one\nforeign\n"), Edit("edit", "one", "ONE"), Stale),
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
            Overwrite("touched", "mine\n"),
            Done,
        ),
        // Not changed at all, and twice by the agent itself.
        step_after(holds("touched", "mine\n"), Read("own"), Done),
        step(Overwrite("own", "first\n"), Done),
        step(Edit("own", "first", "second"), Done),
        step(Shell("printf '%s\\n' third > own"), Done),
        step(Overwrite("own", "fourth\n"), Done),
        // A file that was never read is not guarded here, and a new file can be created.
        step_after(
            both(Box::new(holds("own", "fourth\n")), Box::new(put("own", "foreign\n"))),
            Overwrite("new", "new\n"),
            Done,
        ),
        step(Overwrite("own", "fifth\n"), Stale),
        step_after(
            both(Box::new(holds("own", "foreign\n")), Box::new(holds("new", "new\n"))),
            Read("own"),
            Done,
        ),
    ]
}

fn tell(speaks: Speaks) {
    let Some(bin) = programs() else { return };
    let world = World::new();
    let script = stories(&world.root());
    Real::new(&world, speaks, script).plays(bin);
    let verified = world.run("ledger verify");
    assert!(verified.filtered.starts_with("exit 0"), "{}", verified.filtered);
    assert_eq!(reserved(&world), 0, "reservations are left");
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
    world.puts("a", "one\n");
    let foreign = world.path("a");
    let script = vec![
        step(Act::Read("a"), Ends::Done),
        step_after(
            move || fs::write(&foreign, "foreign\n").unwrap(),
            Act::Overwrite("a", "mine\n"),
            Ends::Stale,
        ),
        step(Act::Read("a"), Ends::Done),
    ];
    let real = Real { approved: true, ..Real::new(&world, Speaks::Codex, script) };
    real.plays(bin);
    world.holds("a", "foreign\n");
}

#[test]
fn gemini() {
    tell(Speaks::Gemini);
}

#[test]
fn opencode() {
    tell(Speaks::Opencode);
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
fn two_programs_race_for_one_file() {
    let Some(bin) = programs() else { return };
    let world = World::new();
    world.puts("a", "one\n");
    let barrier = Arc::new(Barrier::new(2));
    let script = |text: &'static str| {
        let barrier = Arc::clone(&barrier);
        vec![
            step(Act::Read("a"), Ends::Done),
            // Both programs have read the file, and both write it now.
            step_after(
                move || {
                    barrier.wait();
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
