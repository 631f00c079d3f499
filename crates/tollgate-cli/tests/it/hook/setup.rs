//! `tollgate init --host`, `--remove`: how the configuration of every program is written, tested and removed.

use std::fs;

use serde_json::{Value, json};

use super::{HOSTS, Program, Tool, form};
use crate::world::World;

/// The shell commands in a configuration, and the event of each.
fn commands(value: &Value, event: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Array(list) => list.iter().for_each(|value| commands(value, event, found)),
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text) if text.contains("tollgate hook ") => {
                        found.push((event.into(), text.clone()));
                    }
                    value => commands(value, if key == "hooks" { event } else { key }, found),
                }
            }
        }
        _ => {}
    }
}

fn hooks(world: &World, file: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let text = fs::read_to_string(world.path(file)).unwrap();
    match serde_json::from_str::<Value>(&text) {
        Ok(config) => commands(&config, "", &mut found),
        // A separate program.
        Err(_) => found.push((file.rsplit('/').next().unwrap().into(), text)),
    }
    found
}

fn files(world: &World, host: &str) -> Vec<String> {
    let set_up = world.json(&format!("init --host {host}"));
    let files = set_up["hosts"][0]["files"].as_array().unwrap().clone();
    files.iter().map(|file| file.as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_written_configuration_blocks_a_stale_write() {
    for host in HOSTS.into_iter().filter(|host| form(host) != "opencode") {
        let world = World::new();
        let files = files(&world, host);
        let all: Vec<(String, String)> = files.iter().flat_map(|file| hooks(&world, file)).collect();
        let before = |(event, _): &&(String, String)| {
            ["PreToolUse", "BeforeTool", "preToolUse"].contains(&event.as_str())
        };
        let (_, command) = all.iter().find(before).unwrap_or_else(|| panic!("{host}: {all:?}"));
        world.puts("a.txt", "one\n");
        let agent = Program::new(&world, host, "s");
        agent.reads("a.txt");
        world.puts("a.txt", "foreign\n");
        let payload = agent.before(&Tool::Write("a.txt", "mine\n"), "c").to_string();
        let ran = world.program("sh", ["-c", command]).stdin(&payload).ends().is(0);
        assert!(ran.json().to_string().contains("STALE_FILE"), "{host}");
        // Nothing is blocked on a machine without tollgate.
        for (_, command) in &all {
            let ran =
                world.program("sh", ["-c", command]).env("PATH", "/usr/bin:/bin").stdin(&payload).ends();
            assert_eq!(ran.filtered, "exit 0", "{host}: {command}");
        }
        // A hook that crashes blocks, in the way of each program.
        let bin = world.tmp().join("bin");
        fs::create_dir(&bin).unwrap();
        fs::write(bin.join("tollgate"), "#!/bin/sh\nkill -9 $$\n").unwrap();
        fs::set_permissions(bin.join("tollgate"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let path = format!("{}:/usr/bin:/bin", bin.display());
        let ran = world.program("sh", ["-c", command]).env("PATH", path).stdin(&payload).ends();
        assert!(format!("{ran}").contains("the tollgate hook crashed"), "{host}: {ran}");
    }
}

#[test]
fn init_is_idempotent_and_remove_restores_the_workspace() {
    for host in HOSTS {
        let world = World::new();
        let files = files(&world, host);
        let texts = || files.iter().map(|file| fs::read_to_string(world.path(file)).ok()).collect::<Vec<_>>();
        let first = texts();
        assert_eq!(world.json(&format!("init --host {host}"))["hosts"][0]["done"], "kept", "{host}");
        assert_eq!(texts(), first);
        assert_eq!(
            world.json(&format!("init --host {host} --remove"))["hosts"][0]["done"],
            "removed",
            "{host}"
        );
        assert!(texts().iter().all(Option::is_none), "{host}");
        assert!(world.path(".tollgate/config.toml").exists(), "only the hooks were removed");
        assert_eq!(
            world.json(&format!("init --host {host} --remove"))["hosts"][0]["done"],
            "nothing_to_remove"
        );
    }
}

#[test]
fn all_means_the_programs_found_here() {
    let world = World::new();
    assert_eq!(world.json("init --host all")["hosts"], json!([]));
    fs::create_dir(world.path(".gemini")).unwrap();
    world.puts("CLAUDE.md", "");
    let set_up = world.json("init --host all");
    let names: Vec<&str> =
        set_up["hosts"].as_array().unwrap().iter().map(|host| host["host"].as_str().unwrap()).collect();
    assert_eq!(names, ["claude-code", "gemini"]);
    // Without a name, everything that init added is removed.
    let removed = world.json("init --remove");
    assert_eq!(removed["hosts"].as_array().unwrap().len(), 2, "{removed}");
    assert!(!world.path(".tollgate/config.toml").exists() && !world.path(".claude").exists());
}

#[test]
fn init_reports_what_it_did() {
    let world = World::bare();
    insta::assert_snapshot!(world.run("init --host codex --host gemini").filtered, @r"
    exit 0
    --- stdout
    workspace `[W]` (current folder)
    wrote `.tollgate/config.toml`: agents stay in their working tree, and do not destroy or commit unfinished work that they have not seen
    installed hooks for `codex` in `.codex/hooks.json`
    next: start `codex` here once and approve the hooks with `/hooks`
    installed hooks for `gemini` in `.gemini/settings.json`
    of shell commands of `gemini` only the text is judged, so what scripts do to files is not guarded
    next: tell the agents of `codex` about it, with these lines in `AGENTS.md`:
        tollgate guards the files in this folder: other agents and people work here too, and a write is refused if the file was changed after you read it. Then read it again, redo your change and write, or run the `tollgate merge` command that the refusal offers.
        If `tollgate task list` shows tasks, claim one before you work on it (`tollgate task claim --next --agent NAME`) and release it when you are done (`tollgate task release TASK --claim-id ID`).
        To commit, use `tollgate commit -m MESSAGE --agent NAME`: it takes your own changes and nobody else's.
        `tollgate status` shows who works here, `tollgate ledger tail` what happened; `tollgate --help` lists all commands.
    next: run `tollgate doctor` to test the hooks and to check protection on this file system
    ");
    insta::assert_snapshot!(world.run("init --host gemini").filtered, @r#"
    exit 0
    --- stdout
    workspace `[W]` (found `.tollgate`)
    found `.tollgate/config.toml`, not changed
    found hooks for `gemini` in `.gemini/settings.json`, not changed
    of shell commands of `gemini` only the text is judged, so what scripts do to files is not guarded
    next: run `tollgate doctor` to test the hooks and to check protection on this file system
    "#);
    insta::assert_snapshot!(world.run("init --remove").filtered, @r#"
    exit 0
    --- stdout
    workspace `[W]` (found `.tollgate`)
    removed `.tollgate/config.toml`
    removed the hooks for `codex` from `.codex/hooks.json`
    removed the hooks for `gemini` from `.gemini/settings.json`
    "#);
    world.puts(".gemini/settings.json", "{\n  mine\n}");
    insta::assert_snapshot!(world.run("init --host gemini").filtered, @r#"
    exit 3
    --- stderr
    error: `.gemini/settings.json` is not valid: not JSON (line 2: Expected string for object property); nothing was changed
    hint: fix the file, then try again
    "#);
}

#[test]
fn the_exact_configuration() {
    let world = World::new();
    world.run("init --host codex").is(0);
    insta::assert_snapshot!(fs::read_to_string(world.path(".codex/hooks.json")).unwrap(), @r#"
    {
      "hooks": {
        "UserPromptSubmit": [
          {
            "hooks": [
              {
                "type": "command",
                "command": "command -v tollgate >/dev/null 2>&1 || exit 0; tollgate hook codex",
                "timeout": 10
              }
            ]
          }
        ],
        "PreToolUse": [
          {
            "matcher": "*",
            "hooks": [
              {
                "type": "command",
                "command": "command -v tollgate >/dev/null 2>&1 || exit 0; tollgate hook codex || { echo 'the tollgate hook crashed; this write was blocked; see: tollgate doctor' >&2; exit 2; }",
                "timeout": 10
              }
            ]
          }
        ],
        "PostToolUse": [
          {
            "matcher": "*",
            "hooks": [
              {
                "type": "command",
                "command": "command -v tollgate >/dev/null 2>&1 || exit 0; tollgate hook codex",
                "timeout": 10
              }
            ]
          }
        ],
        "Stop": [
          {
            "hooks": [
              {
                "type": "command",
                "command": "command -v tollgate >/dev/null 2>&1 || exit 0; tollgate hook codex",
                "timeout": 10
              }
            ]
          }
        ],
        "SubagentStop": [
          {
            "hooks": [
              {
                "type": "command",
                "command": "command -v tollgate >/dev/null 2>&1 || exit 0; tollgate hook codex",
                "timeout": 10
              }
            ]
          }
        ],
        "SessionEnd": [
          {
            "hooks": [
              {
                "type": "command",
                "command": "command -v tollgate >/dev/null 2>&1 || exit 0; tollgate hook codex",
                "timeout": 10
              }
            ]
          }
        ]
      }
    }
    "#);
}

/// The doctor's findings about hooks.
fn doctor(world: &World) -> Vec<Value> {
    let answer = world.tollgate(["doctor", "--json"]).ends().json();
    answer["findings"].as_array().unwrap().iter().filter(|found| found["check"] == "hooks").cloned().collect()
}

#[test]
fn the_doctor_tests_every_programs_hooks() {
    for host in HOSTS {
        let world = World::new();
        assert_eq!(doctor(&world), Vec::<Value>::new());
        world.run(&format!("init --host {host}")).is(0);
        let found = doctor(&world);
        let message = found[0]["message"].as_str().unwrap();
        assert!(message.contains(host) && message.contains("installed and responding"), "{message}");
        assert!(message.contains("not used yet") && message.contains("is not on PATH"), "{message}");
        // Of these, init lets no commands run as transactions, and it says what follows from that.
        let is_parsed = ["gemini", "cursor", "qwen"].contains(&host);
        assert_eq!(message.contains("what scripts do to files is not guarded"), is_parsed, "{message}");
        let hint = found[0]["hint"].as_str().unwrap_or_default();
        assert_eq!(
            hint.contains("start scripts with `tollgate run --agent NAME -- COMMAND`"),
            is_parsed,
            "{hint}"
        );
        let is_ok = host != "codex" && !is_parsed;
        assert_eq!(found[0]["level"], if is_ok { "ok" } else { "warning" }, "{message}");
        let status = world.run("status --json").json();
        // Codex calls no hooks yet.
        let shell = if host == "codex" {
            Value::Null
        } else {
            if is_parsed { "parse" } else { "transaction" }.into()
        };
        assert_eq!(status["hosts"][0]["shell"], shell, "{status}");
        let words = world.run("status").to_string();
        assert_eq!(words.contains("scripts in its shell not guarded"), is_parsed, "{words}");
        world.puts("a.txt", "one\n");
        Program::new(&world, host, "s").reads("a.txt");
        let found = doctor(&world);
        let message = found[0]["message"].as_str().unwrap();
        assert!(message.contains("last used ") && message.contains(" s ago"), "{found:?}");
        let left: Vec<_> = fs::read_dir(world.tmp().join("run/tollgate")).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "the canary leaves nothing behind");
    }
}

/// A program of this name in a folder of its own, and the `PATH` with it.
fn on_path(world: &World, name: &str) -> String {
    let bin = world.tmp().join("programs");
    fs::create_dir_all(&bin).unwrap();
    fs::write(bin.join(name), "#!/bin/sh\n").unwrap();
    let tollgate = std::path::Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap();
    format!("{}:{}:/usr/bin:/bin", bin.display(), tollgate.display())
}

#[test]
fn init_for_all_reports_which_programs_it_found() {
    let world = World::bare();
    insta::assert_snapshot!(world.run("init --host all").filtered, @r#"
    exit 0
    --- stdout
    workspace `[W]` (current folder)
    wrote `.tollgate/config.toml`: agents stay in their working tree, and do not destroy or commit unfinished work that they have not seen
    found no agent program: none on PATH, and no files of one here or in your home
    next: name the program that you use with `tollgate init --host HOST`: claude-code, codex, gemini, kilo, opencode, cursor, copilot, cline, qwen
    next: run `tollgate doctor` to check protection on this file system
    next: run `tollgate turn begin` to start a turn for `read` and `write`
    "#);
    world.puts("GEMINI.md", "");
    fs::create_dir(world.tmp().join("home/.cursor")).unwrap();
    world.run("init --mcp cursor").is(0);
    let path = on_path(&world, "codex");
    let ran = world.tollgate(["init", "--host", "all"]).env("PATH", path).ends().is(0);
    let words = ran.stdout();
    assert!(words.contains("found `codex` (on PATH), `gemini` (`GEMINI.md` in this folder), `cursor` (`.cursor` in this folder)\n"), "{words}");
    assert!(
        words.contains("installed hooks for `codex`") && !words.contains("hooks for `cursor`"),
        "{words}"
    );
}

#[test]
fn the_doctor_warns_about_every_program_that_is_used_here_and_not_guarded() {
    let world = World::new();
    let path = on_path(&world, "codex");
    let warnings = |world: &World| {
        let answer = world.tollgate(["doctor", "--json"]).env("PATH", &path).ends().json();
        let hooks = |found: &&Value| found["check"] == "hooks" && found["level"] == "warning";
        let found = answer["findings"].as_array().unwrap();
        found
            .iter()
            .filter(hooks)
            .map(|found| found["message"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(warnings(&world), ["`codex` is not guarded: no hooks installed"]);
    world.puts("CLAUDE.md", "");
    assert_eq!(warnings(&world).len(), 2);
    // A folder in the home alone does not mean that the program is used here.
    fs::create_dir(world.tmp().join("home/.gemini")).unwrap();
    assert_eq!(warnings(&world).len(), 2);
    // Another server of our name guards nothing.
    world.puts(".codex/config.toml", "[mcp_servers.tollgate]\ncommand = \"other\"\n");
    assert_eq!(warnings(&world).len(), 2);
    fs::remove_file(world.path(".codex/config.toml")).unwrap();
    // Hooks and the MCP server guard, and so do hooks in the user's own settings.
    world.run("init --host claude-code --mcp codex").is(0);
    assert_eq!(warnings(&world), Vec::<String>::new());
    let other = World::bare();
    fs::create_dir(other.path(".git")).unwrap();
    other.puts("GEMINI.md", "");
    assert_eq!(warnings(&other).len(), 2);
    let home = other.tmp().join("home");
    other.tollgate(["init", "--host", "gemini", "-C", home.to_str().unwrap()]).ends().is(0);
    let found = warnings(&other);
    assert_eq!((found.len(), &*found[0]), (2, "`codex` is not guarded: no hooks installed"));
    assert!(found[1].starts_with("`gemini`: hooks installed and responding"), "{found:?}");
}

#[test]
fn the_doctor_runs_no_command_that_came_with_the_repository() {
    let world = World::new();
    world.run("init --host claude-code").is(0);
    let started = world.tmp().join("started");
    let command = format!("touch {}; tollgate hook claude-code || true", started.display());
    let theirs = json!({"matcher": "*", "hooks": [{"type": "command", "command": command}]});
    let text = fs::read_to_string(world.path(".claude/settings.json")).unwrap();
    let mut settings: Value = serde_json::from_str(&text).unwrap();
    settings["hooks"]["PreToolUse"].as_array_mut().unwrap().insert(0, theirs);
    world.puts(".claude/settings.json", settings.to_string());
    assert!(doctor(&world)[0]["message"].as_str().unwrap().contains("installed and responding"));
    assert!(!started.exists());
}

#[test]
fn the_doctor_notices_hooks_that_do_not_work() {
    let world = World::new();
    world.run("init --host codex --host claude-code").is(0);
    // Another program of that name is found first.
    let bin = world.tmp().join("bin");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("tollgate"), "#!/bin/sh\nexit 0\n").unwrap();
    fs::set_permissions(bin.join("tollgate"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let ran = world.tollgate(["doctor"]).env("PATH", path).ends().is(1);
    assert!(ran.stdout().contains("not responding correctly: the answer to a stale write was ``"), "{ran}");
    let home = world.tmp().join("home");
    fs::create_dir_all(home.join(".codex")).unwrap();
    fs::write(home.join(".codex/config.toml"), approved(&world)).unwrap();
    fs::create_dir_all(home.join(".claude")).unwrap();
    fs::write(home.join(".claude/settings.json"), "{\"disableAllHooks\": true}").unwrap();
    let found = doctor(&world);
    assert!(found[0]["message"].as_str().unwrap().contains("disabled by `disableAllHooks`"), "{found:?}");
    assert!(found[1]["message"].as_str().unwrap().contains("installed, approved"), "{found:?}");
    // Somebody has changed an entry.
    let file = world.path(".codex/hooks.json");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("\"timeout\": 10", "\"timeout\": 1")).unwrap();
    assert!(doctor(&world)[1]["message"].as_str().unwrap().contains("another version"));
}

/// The configuration of Codex CLI 0.166.0 after a person has approved the hooks, with the hashes that it reported.
pub(crate) fn approved(world: &World) -> String {
    let mut state = format!("[projects.\"{}\"]\ntrust_level = \"trusted\"\n", world.root().display());
    for (event, hash) in [
        ("pre_tool_use", "6433e760c5566bd130f65d07de348e7adbecba3792d0cd38de8bfa18da9edb4d"),
        ("post_tool_use", "8a626a8b37e35d0cf4a87cf9728845a8bf11f569b6c5a2de45436d8c240fd670"),
        ("session_end", "218e278d8580c2a81fd224cb27d3b2bba1fdde17fe8de520ed0e79aea2be422e"),
        ("user_prompt_submit", "4f654f41cd0e7a5bef97d28b96e41dc217987a66e7a986ef1f4bec118d4098b5"),
        ("subagent_stop", "a8937a1613a4f106981ae91e21cb402652c4fcbf698fd2b6a9e495b655660612"),
        ("stop", "6c93c90fb96f91f2a6edd10b22f19bf3e0561b0641dd45ff0880e91feaa24294"),
    ] {
        let file = world.path(".codex/hooks.json");
        state +=
            &format!("[hooks.state.\"{}:{event}:0:0\"]\ntrusted_hash = \"sha256:{hash}\"\n", file.display());
    }
    state
}

#[test]
fn the_doctor_knows_whether_a_person_has_approved_exactly_these_hooks() {
    let world = World::new();
    world.run("init --host codex").is(0);
    let config = world.tmp().join("home/.codex/config.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    let all = approved(&world);
    let pre = all.find("[hooks.state").unwrap();
    for (text, expected) in [
        (all.clone(), "installed, approved"),
        (String::new(), "approve the hooks with `/hooks`"),
        ("not [ toml".into(), "approve the hooks with `/hooks`"),
        (all.replacen("6433e", "0433e", 1), "the hooks have changed"),
        (all.replacen("trusted_hash", "enabled = false\ntrusted_hash", 1), "disabled by `enabled = false`"),
        (all.replacen("stop:0:0", "stop:1:0", 2), "approve the hooks with `/hooks`"),
        (all[pre..].to_owned(), "trust this folder"),
        (all.replacen("\"trusted\"", "\"untrusted\"", 1), "trust this folder"),
    ] {
        fs::write(&config, &text).unwrap();
        let found = doctor(&world);
        assert!(found[0].to_string().contains(expected), "{expected}: {found:?}\n{text}");
    }
    // A variable can tell Codex to keep its configuration elsewhere.
    let elsewhere = world.tmp().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("config.toml"), &all).unwrap();
    fs::remove_file(&config).unwrap();
    let ran = world.tollgate(["doctor", "--json"]).env("CODEX_HOME", &elsewhere).ends();
    assert!(ran.stdout().contains("installed, approved"), "{ran}");
}
