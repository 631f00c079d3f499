//! A real agent program: installed from npm, set up in a home of its own, run to its end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::model::{Door, Model, Script, Speaks};
use crate::hook::prefix::start_file;
use crate::hook::setup::approved;
use crate::world::World;

/// The programs start slowly on a busy machine, and some play a story of twenty calls.
const PATIENCE: Duration = Duration::from_secs(900);

/// The folder in which the programs are installed; `None` if they cannot be installed.
pub(super) fn programs() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        // `scripts/newest-programs` has installed other versions.
        if let Some(folder) = std::env::var_os("TOLLGATE_AGENT_PROGRAMS") {
            return Some(folder.into());
        }
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let target = Path::new(env!("CARGO_BIN_EXE_tollgate")).ancestors().nth(2).unwrap();
        let folder = target.join("agent-programs");
        let ran = Command::new(top.join("scripts/agent-programs")).arg(&folder).stdin(Stdio::null()).output();
        let why = match ran {
            Ok(ran) if ran.status.success() => return Some(folder),
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
pub(super) struct Real<'w> {
    world: &'w World,
    speaks: Speaks,
    door: Door,
    pub(super) model: Model,
    /// A person has approved its hooks. Otherwise the program runs with an option that needs no approval.
    pub(super) approved: bool,
    /// Without tollgate, for comparison.
    pub(super) bare: bool,
    /// In Codex's own sandbox, which allows writes in the workspace only.
    pub(super) sandboxed: bool,
    /// Rules of Codex or Gemini for commands. With rules, Gemini's shells read tollgate's file first.
    pub(super) rules: &'static str,
    /// The tools that Claude Code may use without asking.
    pub(super) allowed: &'static str,
}

impl<'w> Real<'w> {
    pub(super) fn new(world: &'w World, speaks: Speaks, script: impl Into<Script>) -> Self {
        Self::through(Door::Hooks, world, speaks, script)
    }

    pub(super) fn through(door: Door, world: &'w World, speaks: Speaks, script: impl Into<Script>) -> Self {
        Self {
            world,
            speaks,
            door,
            model: Model::start(speaks, door, world.root(), script.into()),
            approved: false,
            bare: false,
            sandboxed: false,
            rules: "",
            allowed: match door {
                Door::Hooks => "Bash,Read,Write,Edit",
                Door::Mcp => "mcp__tollgate",
            },
        }
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
        let (port, root) = (self.model.port, self.world.root());
        let put = |name: &str, text: String| {
            let path = home.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let tollgate = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap();
        let (program, words): (&str, &[&str]) = match self.speaks {
            Speaks::Codex => {
                let (trust, words) = self.trusts();
                let sandbox = if self.sandboxed { "workspace-write" } else { "danger-full-access" };
                put(".codex/rules/default.rules", self.rules.into());
                // Its login shells find `tollgate` where a user has it: in their `PATH`.
                put(".profile", format!("PATH='{}':$PATH\n", tollgate.display()));
                // Otherwise the sandbox makes a folder `.git` in the temporary folder, above the worlds of other tests.
                put(
                    ".codex/config.toml",
                    format!(
                        "model = \"gpt-5.5\"\nmodel_provider = \"m\"\napproval_policy = \"never\"\nsandbox_mode = \"{sandbox}\"\n\
                         [sandbox_workspace_write]\nexclude_slash_tmp = true\n[model_providers.m]\nname = \"m\"\nbase_url = \"http://127.0.0.1:{port}/v1\"\nwire_api = \"responses\"\nenv_key = \"K\"\n{trust}"
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
                if self.rules.is_empty() {
                    ("gemini", &["--yolo", "--model", "gemini-2.5-flash", "-p", "go"])
                } else {
                    put(".gemini/policies/rules.toml", self.rules.into());
                    put(".gemini/tollgate.bash", start_file().into());
                    let file = home.join(".gemini/tollgate.bash");
                    put(".gemini/.env", format!("BASH_ENV={}\n", file.display()));
                    ("gemini", &["--model", "gemini-2.5-flash", "-p", "go"])
                }
            }
            Speaks::Opencode | Speaks::Kilo => {
                let (own, project, settings, package, words): (_, _, _, _, &[&str]) = match self.speaks {
                    Speaks::Kilo => {
                        (".config/kilo", ".kilo", "kilo.json", "@kilocode/plugin", &["run", "--auto", "go"])
                    }
                    _ => (
                        ".config/opencode",
                        ".opencode",
                        "opencode.json",
                        "@opencode-ai/plugin",
                        &["run", "go"],
                    ),
                };
                put(
                    &format!("{own}/{settings}"),
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
                // Otherwise it installs the types for its plugins from npm, for up to a minute, before it asks its model.
                for folder in [home.join(own), self.world.root().join(project)] {
                    fs::create_dir_all(folder.join("node_modules")).unwrap();
                    let lock = format!(r#"{{"packages": {{"": {{"dependencies": {{"{package}": "*"}}}}}}}}"#);
                    fs::write(folder.join("package-lock.json"), lock).unwrap();
                }
                (self.speaks.host(), words)
            }
            Speaks::Claude => {
                // A person has approved the server.
                put(".claude/settings.json", r#"{"enabledMcpjsonServers": ["tollgate"]}"#.into());
                ("claude", &["-p", "go", "--permission-mode", "acceptEdits"])
            }
            Speaks::Copilot => ("copilot", &["-p", "go", "--allow-all-tools", "--allow-all-paths"]),
            Speaks::Cline => {
                put(
                    ".cline/data/settings/providers.json",
                    serde_json::json!({
                        "version": 1, "lastUsedProvider": "openai-compatible",
                        "providers": {"openai-compatible": {
                            "settings": {
                                "provider": "openai-compatible", "apiKey": "x", "model": "m",
                                "baseUrl": format!("http://127.0.0.1:{port}/v1"),
                            },
                            "updatedAt": "2026-11-16T00:00:00.000Z", "tokenSource": "manual",
                        }},
                    })
                    .to_string(),
                );
                if self.door == Door::Mcp {
                    // Its servers are not in the workspace, so a person adds them.
                    let words = ["mcp", "--agent", "cline", root.to_str().unwrap()];
                    let server = serde_json::json!({"command": "tollgate", "args": words});
                    put(
                        ".cline/data/settings/cline_mcp_settings.json",
                        serde_json::json!({"mcpServers": {"tollgate": server}}).to_string(),
                    );
                }
                // A refused call counts as a mistake.
                ("cline", &["--json", "-P", "openai-compatible", "-m", "m", "--retries", "99", "do it"])
            }
            Speaks::Qwen => {
                // Otherwise it waits for the network at its end.
                put(
                    ".qwen/settings.json",
                    r#"{"privacy": {"usageStatisticsEnabled": false}, "$version": 4}"#.into(),
                );
                ("qwen", &["--yolo", "--auth-type", "openai", "-p", "go"])
            }
        };
        let bins = ["", "cline", "qwen"].map(|folder| bin.join(folder).join("node_modules/.bin"));
        let mut command =
            Command::new(bins.iter().map(|bin| bin.join(program)).find(|path| path.exists()).unwrap());
        command
            .args(words)
            .current_dir(&root)
            .env_clear()
            .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", tollgate.display()))
            .env("HOME", home)
            .env("CODEX_HOME", home.join(".codex"))
            .env("XDG_RUNTIME_DIR", self.world.tmp().join("run"))
            .env("K", "x")
            .env("GEMINI_API_KEY", "x")
            .env("GOOGLE_GEMINI_BASE_URL", format!("http://127.0.0.1:{port}"))
            .env("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}"))
            .env("ANTHROPIC_API_KEY", "x")
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            .env("DISABLE_TELEMETRY", "1")
            .env("DISABLE_AUTOUPDATER", "1")
            // Otherwise its model must search for the tools of a server.
            .env("ENABLE_TOOL_SEARCH", "false")
            .env("COPILOT_OFFLINE", "true")
            .env("COPILOT_PROVIDER_BASE_URL", format!("http://127.0.0.1:{port}/v1"))
            .env("COPILOT_PROVIDER_API_KEY", "x")
            .env("COPILOT_MODEL", "gpt-4.1")
            .env("COPILOT_PROVIDER_MAX_PROMPT_TOKENS", "1000000")
            .env("COPILOT_ALLOW_ALL", "true")
            .env("COPILOT_AUTO_UPDATE", "false")
            // Otherwise it leaves a process behind.
            .env("CLINE_SESSION_BACKEND_MODE", "local")
            .env("OPENCODE_DISABLE_AUTOUPDATE", "1")
            .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
            .env("OPENCODE_DISABLE_LSP_DOWNLOAD", "1")
            .env("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1")
            .env("KILO_DISABLE_AUTOUPDATE", "1")
            .env("KILO_DISABLE_MODELS_FETCH", "1")
            .env("KILO_DISABLE_LSP_DOWNLOAD", "1")
            .env("KILO_DISABLE_DEFAULT_PLUGINS", "1")
            .env("KILO_DISABLE_SESSION_INGEST", "1")
            .stdin(Stdio::null());
        match self.speaks {
            Speaks::Claude => {
                command.args(["--allowedTools", self.allowed]);
            }
            Speaks::Qwen => {
                // It needs a newer Node.js than the others, which is installed beside it.
                let path =
                    format!("{}:{}:/usr/local/bin:/usr/bin:/bin", tollgate.display(), bins[2].display());
                command
                    .env("PATH", path)
                    .env("OPENAI_API_KEY", "x")
                    .env("OPENAI_BASE_URL", format!("http://127.0.0.1:{port}/v1"))
                    .env("OPENAI_MODEL", "m");
            }
            _ => {}
        }
        command
    }

    /// Runs the program to its end, and checks that it followed the script.
    pub(super) fn plays(&self, bin: &Path) {
        self.plays_with(bin, |_| {});
    }

    pub(super) fn plays_with(&self, bin: &Path, adjust: impl FnOnce(&mut Command)) {
        let host = self.speaks.host();
        let door = match self.door {
            Door::Hooks => "--host",
            Door::Mcp => "--mcp",
        };
        if !self.bare {
            // Of two at the same time, one would find the settings changed, and say so.
            static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
            let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
            self.world.run(&format!("init {door} {host}")).is(0);
        }
        let home = self.world.tmp().join(format!("home-{host}"));
        let mut command = self.command(bin, &home);
        if (self.speaks, self.door) == (Speaks::Qwen, Door::Mcp) {
            // A person approves the server.
            let mut approve = Command::new(command.get_program());
            approve.args(["mcp", "approve", "tollgate"]).current_dir(self.world.root()).env_clear();
            approve.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            let approved = approve.stdin(Stdio::null()).output().unwrap();
            assert!(approved.status.success(), "{}", String::from_utf8_lossy(&approved.stderr));
        }
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
        let is_at_the_end = self.model.is_at_the_end();
        assert!(is_at_the_end, "{host} stopped after {played} acts: {}\n{}", tail(&said), tail(&last));
    }
}
