//! Settings that disable hooks or our MCP server: agents cannot write them, and the doctor names them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::setup::approved;
use super::{HOSTS, Program};
use crate::world::World;

/// What the doctor says about one check: the level and the message of each finding.
fn doctor(world: &World, check: &str) -> Vec<(String, String)> {
    let answer = world.tollgate(["doctor", "--json"]).ends().json();
    let found = answer["findings"].as_array().unwrap().iter().filter(|found| found["check"] == check);
    let text = |found: &Value, key: &str| found[key].as_str().unwrap().to_owned();
    found.map(|found| (text(found, "level"), text(found, "message"))).collect()
}

/// A file of the workspace, or of the user's home if its name begins with `~/`.
fn place(world: &World, file: &str) -> PathBuf {
    match file.strip_prefix("~/") {
        Some(name) => world.tmp().join("home").join(name),
        None => world.path(file),
    }
}

fn put(world: &World, file: &str, text: &str) {
    let path = place(world, file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Adds a setting to the file that `init` has written, if it has written one.
fn add(world: &World, file: &str, text: &str) {
    add_to(&place(world, file), text);
}

/// Adds a setting to a file of settings, which need not exist.
pub(super) fn add_to(file: &Path, text: &str) {
    let there = fs::read_to_string(file).unwrap_or_default();
    let text = match (there.as_str(), text.strip_prefix('{')) {
        ("", _) => text.to_owned(),
        (there, Some(rest)) => format!("{},{rest}", there.trim_end().strip_suffix('}').unwrap()),
        (there, None) => format!("{text}\n{there}"),
    };
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

/// The hooks of a program, as they are after a person has approved them.
fn hooked(host: &str) -> World {
    let world = World::new();
    world.run(&format!("init --host {host}")).is(0);
    if host == "codex" {
        put(&world, "~/.codex/config.toml", &approved(&world));
    }
    let found = doctor(&world, "hooks");
    assert!(found[0].0 == best(host), "{found:?}");
    world
}

/// The level at which nothing is wrong. Of the commands of Gemini CLI, Cursor and Qwen Code only the text is judged.
fn best(host: &str) -> &'static str {
    if ["gemini", "cursor", "qwen"].contains(&host) { "warning" } else { "ok" }
}

#[test]
fn the_doctor_names_the_key_and_the_file_that_disable_hooks() {
    for (host, file, text, key) in [
        ("claude-code", ".claude/settings.local.json", "{\"disableAllHooks\": true}", "disableAllHooks"),
        ("claude-code", ".claude/settings.json", "{\"disableAllHooks\": true}", "disableAllHooks"),
        ("claude-code", "~/.claude/settings.json", "{\"disableAllHooks\": true}", "disableAllHooks"),
        (
            "claude-code",
            ".claude/settings.local.json",
            "{\"env\": {\"CLAUDE_CODE_SIMPLE\": \"1\"}}",
            "env.CLAUDE_CODE_SIMPLE",
        ),
        ("codex", "~/.codex/config.toml", "features.hooks = false # no", "features.hooks"),
        ("codex", ".codex/config.toml", "[features]\ncodex_hooks = false", "features.codex_hooks"),
        ("gemini", ".gemini/settings.json", "{\"hooksConfig\": {\"enabled\": false}}", "hooksConfig.enabled"),
        (
            "gemini",
            "~/.gemini/settings.json",
            "{\"hooksConfig\": {\"enabled\": false}}",
            "hooksConfig.enabled",
        ),
        (
            "gemini",
            "~/.gemini/settings.json",
            "{\"hooksConfig\": {\"disabled\": [\"command -v tollgate; tollgate hook gemini\"]}}",
            "hooksConfig.disabled",
        ),
        (
            "copilot",
            ".github/copilot/settings.json",
            "{ // no\n\"disableAllHooks\": true}",
            "disableAllHooks",
        ),
        ("copilot", ".github/copilot/settings.local.json", "{\"disableAllHooks\": true}", "disableAllHooks"),
        ("copilot", "~/.copilot/settings.json", "{\"disableAllHooks\": true,}", "disableAllHooks"),
        ("copilot", "~/.copilot/settings.json", "{\"disabledHooks\": [\"3f2a\"]}", "disabledHooks"),
        ("qwen", ".qwen/settings.json", "{\"disableAllHooks\": true}", "disableAllHooks"),
        ("qwen", "~/.qwen/settings.json", "{\"disableAllHooks\": true}", "disableAllHooks"),
        (
            "qwen",
            ".qwen/settings.json",
            "{\"env\": {\"QWEN_CODE_SAFE_MODE\": \"1\"}}",
            "env.QWEN_CODE_SAFE_MODE",
        ),
        (
            "qwen",
            "~/.qwen/settings.json",
            "{\"tools\": {\"executionSandbox\": {\"filesystem\": \"read-only\", \"network\": \"open\"}}}",
            "tools.executionSandbox",
        ),
        ("qwen", ".env", "QWEN_CODE_SAFE_MODE=1\n", "QWEN_CODE_SAFE_MODE"),
        ("qwen", "~/.qwen/.env", "QWEN_CODE_SIMPLE=1\n", "QWEN_CODE_SIMPLE"),
    ] {
        let world = hooked(host);
        add(&world, file, text);
        let found = doctor(&world, "hooks");
        let expected = format!("disabled by `{key}` in `{}`", place(&world, file).display());
        assert!(found[0].0 == "problem" && found[0].1.contains(&expected), "{expected}: {found:?}");
        world.tollgate(["doctor"]).ends().is(1);
        let status = world.tollgate(["status", "--json"]).ends().json();
        assert_eq!(status["hosts"][0]["guarded"], false, "{status}");
    }
}

/// Programs that load `.env` give its variables to their hooks.
#[test]
fn the_doctor_names_the_variable_that_changes_hooks() {
    for (host, file, text, name) in [
        ("gemini", ".env", "# mine\nTOLLGATE_AGENT=x\n", "TOLLGATE_AGENT"),
        ("gemini", ".gemini/.env", "LD_PRELOAD=/tmp/x.so\n", "LD_PRELOAD"),
        ("cline", ".env", "export XDG_CONFIG_HOME=/tmp/x\n", "XDG_CONFIG_HOME"),
        ("cline", ".env.local", "XDG_STATE_HOME=/tmp/x\n", "XDG_STATE_HOME"),
        ("qwen", ".env", "TOLLGATE_AGENT=x\n", "TOLLGATE_AGENT"),
        ("qwen", "~/.qwen/.env", "TOLLGATE_AGENT=x\n", "TOLLGATE_AGENT"),
    ] {
        let world = hooked(host);
        put(&world, file, text);
        let found = doctor(&world, "hooks");
        let expected = format!("changed by `{name}` in `{}`", place(&world, file).display());
        assert!(found[0].0 == "problem" && found[0].1.contains(&expected), "{expected}: {found:?}");
    }
    let world = hooked("codex");
    put(&world, ".env", "TOLLGATE_AGENT=x\n");
    assert_eq!(doctor(&world, "hooks")[0].0, "ok", "Codex CLI does not load it");
}

#[test]
fn other_settings_disable_nothing() {
    for (host, file, text) in [
        ("claude-code", ".claude/settings.local.json", "{\"disableAllHooks\": false}"),
        ("codex", "~/.codex/config.toml", "features.hooks = true"),
        (
            "gemini",
            ".gemini/settings.json",
            "{\"hooksConfig\": {\"enabled\": true, \"disabled\": [\"lint\"]}}",
        ),
        ("gemini", ".env", "GEMINI_API_KEY=x\nBASH_ENV=/home/u/.gemini/tollgate.bash\n"),
        ("copilot", "~/.copilot/settings.json", "{\"disableAllHooks\": false, \"disabledHooks\": []}"),
        ("cline", ".env", "CLINE_API_KEY=x\n"),
        ("qwen", ".env", "QWEN_CODE_SAFE_MODE=0\nOPENAI_API_KEY=x\n"),
        ("qwen", "~/.qwen/settings.json", "{\"disableAllHooks\": false, \"tools\": {}}"),
    ] {
        let world = hooked(host);
        add(&world, file, text);
        let found = doctor(&world, "hooks");
        assert!(found[0].0 == best(host), "{found:?}");
    }
    // A file that is nearer decides.
    let world = hooked("claude-code");
    put(&world, "~/.claude/settings.json", "{\"disableAllHooks\": true}");
    assert_eq!(doctor(&world, "hooks")[0].0, "problem");
    put(&world, ".claude/settings.local.json", "{\"disableAllHooks\": false}");
    assert_eq!(doctor(&world, "hooks")[0].0, "ok");
}

/// Copilot CLI calls the hooks of Claude Code, but not if its own settings disable hooks.
#[test]
fn hooks_of_another_program_can_be_disabled_too() {
    let world = hooked("claude-code");
    let of_copilot =
        |world: &World| doctor(world, "hooks").into_iter().find(|(_, words)| words.contains("`copilot`"));
    put(&world, ".github/copilot/settings.json", "{}");
    assert!(of_copilot(&world).unwrap().1.contains("guarded by the hooks of `claude-code`"));
    put(&world, ".github/copilot/settings.json", "{\"disableAllHooks\": true}");
    let (level, words) = of_copilot(&world).unwrap();
    assert!(level == "problem" && words.contains("disabled by `disableAllHooks`"), "{words}");
}

#[test]
fn the_doctor_names_the_key_and_the_file_that_disable_the_server() {
    let root = |world: &World| world.root().to_str().unwrap().to_owned();
    for (host, file, text, key) in [
        (
            "claude-code",
            ".claude/settings.local.json",
            json!({"disabledMcpjsonServers": ["tollgate"]}),
            "disabledMcpjsonServers",
        ),
        (
            "claude-code",
            "~/.claude/settings.json",
            json!({"deniedMcpServers": [{"serverName": "tollgate"}]}),
            "deniedMcpServers",
        ),
        ("claude-code", ".claude/settings.json", json!({"allowedMcpServers": []}), "allowedMcpServers"),
        (
            "claude-code",
            "~/.claude.json",
            json!({"projects": {"ROOT": {"disabledMcpServers": ["tollgate"]}}}),
            "projects",
        ),
        ("gemini", ".gemini/settings.json", json!({"mcp": {"excluded": ["tollgate"]}}), "mcp.excluded"),
        ("gemini", "~/.gemini/settings.json", json!({"mcp": {"allowed": ["other"]}}), "mcp.allowed"),
        (
            "gemini",
            "~/.gemini/mcp-server-enablement.json",
            json!({"tollgate": {"enabled": false}}),
            "tollgate.enabled",
        ),
        (
            "opencode",
            ".opencode/opencode.json",
            json!({"mcp": {"tollgate": {"enabled": false}}}),
            "mcp.tollgate.enabled",
        ),
        (
            "opencode",
            "~/.config/opencode/opencode.json",
            json!({"tools": {"tollgate*": false}}),
            "tools.tollgate*",
        ),
        (
            "kilo",
            ".kilo/opencode.json",
            json!({"mcp": {"tollgate": {"enabled": false}}}),
            "mcp.tollgate.enabled",
        ),
        ("kilo", "opencode.json", json!({"tools": {"*": false}}), "tools.*"),
        ("kilo", "~/.config/kilo/config.json", json!({"tools": {"tollgate*": false}}), "tools.tollgate*"),
        (
            "cursor",
            ".cursor/cli.json",
            json!({"permissions": {"deny": ["Mcp(tollgate:*)"]}}),
            "permissions.deny",
        ),
        (
            "copilot",
            "~/.copilot/settings.json",
            json!({"disabledMcpServers": ["tollgate"]}),
            "disabledMcpServers",
        ),
        ("qwen", ".qwen/settings.json", json!({"mcp": {"excluded": ["tollgate"]}}), "mcp.excluded"),
        ("qwen", "~/.qwen/settings.json", json!({"mcp": {"allowed": ["other"]}}), "mcp.allowed"),
    ] {
        let world = World::new();
        world.run(&format!("init --mcp {host}")).is(0);
        assert_eq!(doctor(&world, "mcp")[0].0, "ok", "{host}");
        add(&world, file, &text.to_string().replace("ROOT", &root(&world)));
        let found = doctor(&world, "mcp");
        let expected = format!("disabled by `{key}` in `{}`", place(&world, file).display());
        assert!(found[0].0 == "problem" && found[0].1.contains(&expected), "{expected}: {found:?}");
    }
}

/// The files that disable hooks, and those whose code the programs load.
#[test]
fn agents_cannot_write_them() {
    let world = World::with("[guard]\ndurability = \"fast\"\n");
    let files = [
        ".github/copilot/settings.json",
        ".github/copilot/settings.local.json",
        ".github/extensions/x/extension.mjs",
        ".github/lsp.json",
        "~/.copilot/settings.json",
        "~/.copilot/extensions/x/extension.mjs",
        "~/.copilot/installed-plugins/x/plugin.json",
        ".claude/settings.local.json",
        "~/.claude.json",
        "~/.claude/plugins/installed_plugins.json",
        ".codex/config.toml",
        ".codex/work.config.toml",
        "~/.codex/.env",
        "~/.codex/plugins/x/hooks.json",
        ".gemini/.env",
        "~/.gemini/mcp-server-enablement.json",
        "~/.gemini/extensions/extension-enablement.json",
        "~/.gemini/policies/x.toml",
        ".gemini/sandbox.bashrc",
        ".opencode/tool/write.js",
        ".opencode/tools/write.ts",
        ".opencode/opencode.json",
        ".opencode/package.json",
        ".opencode/node_modules/x/index.js",
        "~/.config/opencode/tool/write.js",
        "~/.config/opencode/config.json",
        ".kilo/plugin/x.js",
        ".kilocode/plugins/x.ts",
        ".kilo/tool/write.js",
        ".kilo/package.json",
        ".kilo/node_modules/x/index.js",
        ".kilo/mcp.json",
        "kilo.jsonc",
        "~/.config/kilo/kilo.json",
        "~/.config/kilo/config.json",
        "~/.config/kilo/plugin/x.js",
        ".cursor/cli.json",
        ".cursor/permissions.json",
        "~/.cursor/cli-config.json",
        ".cline/plugins/x.js",
        "~/.cline/data/settings/global-settings.json",
        ".agents/plugins/x/plugin.json",
        "bunfig.toml",
        ".qwen/settings.json",
        "~/.qwen/.env",
        "~/.qwen/mcpApprovals.json",
        "~/.qwen/extensions/x/qwen-extension.json",
    ];
    for host in HOSTS {
        let agent = Program::new(&world, host, "s");
        for file in files {
            let path = place(&world, file);
            let path = path.strip_prefix(world.root()).unwrap_or(&path).to_str().unwrap().to_owned();
            agent.writes(&path, "x\n").refused("PROTECTED_PATH");
            agent.runs(&format!("echo x > {path}")).refused("PROTECTED_PATH");
        }
        // Instructions, and files that only look like these.
        for file in
            [".env", ".opencode/agent/x.md", ".claude/skills/x/SKILL.md", ".github/copilot-instructions.md"]
        {
            agent.writes(file, "x\n").ran();
        }
    }
}
