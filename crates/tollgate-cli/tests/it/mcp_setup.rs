//! `tollgate init --mcp`: how the entry of every program is written and removed, and that no program gets both hooks and the
//! MCP server by accident.

use std::fs;

use serde_json::{Value, json};

use crate::hook::{HOSTS, form};
use crate::world::World;

/// All programs except the one without a configuration file in the workspace.
fn hosts() -> impl Iterator<Item = &'static str> {
    HOSTS.into_iter().filter(|host| *host != "cline")
}

fn file(world: &World, host: &str) -> String {
    let set_up = world.json(&format!("init --mcp {host}"));
    assert_eq!(set_up["hosts"], json!([]), "no hooks were installed");
    set_up["mcp"][0]["files"][0].as_str().unwrap().to_owned()
}

#[test]
fn the_exact_configuration() {
    let mut words = String::new();
    for host in hosts() {
        let world = World::new();
        let file = file(&world, host);
        words += &format!("{file}\n{}", fs::read_to_string(world.path(&file)).unwrap());
    }
    insta::assert_snapshot!(words, @r#"
    .mcp.json
    {
      "mcpServers": {
        "tollgate": {
          "command": "tollgate",
          "args": [
            "mcp",
            "--agent",
            "claude-code"
          ]
        }
      }
    }
    .codex/config.toml
    [mcp_servers.tollgate]
    command = "tollgate"
    args = ["mcp", "--agent", "codex"]
    .gemini/settings.json
    {
      "mcpServers": {
        "tollgate": {
          "command": "tollgate",
          "args": [
            "mcp",
            "--agent",
            "gemini"
          ]
        }
      }
    }
    opencode.json
    {
      "$schema": "https://opencode.ai/config.json",
      "mcp": {
        "tollgate": {
          "type": "local",
          "command": [
            "tollgate",
            "mcp",
            "--agent",
            "opencode"
          ],
          "enabled": true
        }
      }
    }
    .cursor/mcp.json
    {
      "mcpServers": {
        "tollgate": {
          "command": "tollgate",
          "args": [
            "mcp",
            "--agent",
            "cursor",
            "${workspaceFolder}"
          ]
        }
      }
    }
    .github/mcp.json
    {
      "mcpServers": {
        "tollgate": {
          "type": "local",
          "command": "tollgate",
          "args": [
            "mcp",
            "--agent",
            "copilot"
          ],
          "tools": [
            "*"
          ]
        }
      }
    }
    .qwen/settings.json
    {
      "$version": 4,
      "mcpServers": {
        "tollgate": {
          "command": "tollgate",
          "args": [
            "mcp",
            "--agent",
            "qwen"
          ]
        }
      }
    }
    .kilo/kilo.json
    {
      "$schema": "https://app.kilo.ai/config.json",
      "mcp": {
        "tollgate": {
          "type": "local",
          "command": [
            "tollgate",
            "mcp",
            "--agent",
            "kilo"
          ],
          "enabled": true
        }
      }
    }
    "#);
}

#[test]
fn init_is_idempotent_and_remove_restores_the_workspace() {
    for host in hosts() {
        let world = World::new();
        let file = file(&world, host);
        let text = || fs::read_to_string(world.path(&file)).ok();
        let first = text();
        let done = |line: &str| world.json(line)["mcp"][0]["done"].clone();
        assert_eq!(done(&format!("init --mcp {host}")), "kept", "{host}");
        assert_eq!(text(), first);
        assert_eq!(done(&format!("init --mcp {host} --remove")), "removed", "{host}");
        assert_eq!(text(), None, "{host}");
        assert!(world.path(".tollgate/config.toml").exists(), "only the server was removed");
        assert_eq!(done(&format!("init --mcp {host} --remove")), "nothing_to_remove", "{host}");
    }
}

#[test]
fn a_program_gets_hooks_and_the_server_only_on_request() {
    for host in hosts() {
        let world = World::new();
        world.run(&format!("init --host {host}")).is(0);
        let refused = world.run(&format!("init --mcp {host}")).is(2);
        assert!(refused.stderr().contains(&format!("--host {host} --mcp {host}")), "{refused}");
        assert_eq!(world.json(&format!("init --host {host} --mcp {host}"))["mcp"][0]["done"], "written");
        // Each can be removed without the other.
        let removed = world.json(&format!("init --host {host} --remove"));
        assert_eq!(
            (&removed["hosts"][0]["done"], &removed["mcp"]),
            (&json!("removed"), &json!([])),
            "{host}"
        );
        world.run(&format!("init --host {host}")).is(2);
        let all = world.json("init --host all");
        let names: Vec<&Value> = all["hosts"].as_array().unwrap().iter().map(|one| &one["host"]).collect();
        assert!(!names.contains(&&json!(host)), "{host}: {all}");
        world.json("init --remove --host all");
        let removed = world.json("init --remove");
        assert_eq!(removed["mcp"][0]["done"], "removed", "{removed}");
        let left: Vec<_> =
            fs::read_dir(world.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.is_empty(), "{host}: {left:?}");
    }
}

#[test]
fn init_reports_what_it_did() {
    let world = World::bare();
    insta::assert_snapshot!(world.run("init --mcp codex --mcp gemini --mcp cline").filtered, @r#"
    exit 0
    --- stdout
    workspace `[W]` (current folder)
    wrote `.tollgate/config.toml`: agents stay in their working tree, and do not destroy or commit unfinished work that they have not seen
    registered the MCP server with `codex` in `.codex/config.toml`
    next: start `codex` here once and trust this folder; it ignores the file until then
    registered the MCP server with `gemini` in `.gemini/settings.json`
    `cline` keeps its MCP servers outside the workspace, so nothing was changed
    next: add this to `~/.cline/data/settings/cline_mcp_settings.json`: {"mcpServers": {"tollgate": {"command": "tollgate", "args": ["mcp", "--agent", "cline", "[W]"]}}}
    next: run `tollgate doctor` to check protection on this file system
    "#);
    insta::assert_snapshot!(world.run("init --host codex").filtered, @r#"
    exit 2
    --- stderr
    error: `codex` has the MCP server here; with hooks as well, tollgate would check each write of its agent twice
    hint: first remove the server with `tollgate init --mcp codex --remove`, or, if you want both, run `tollgate init --host codex --mcp codex`
    "#);
    insta::assert_snapshot!(world.run("init --remove").filtered, @r#"
    exit 0
    --- stdout
    workspace `[W]` (found `.tollgate`)
    removed `.tollgate/config.toml`
    removed the MCP server for `codex` from `.codex/config.toml`
    removed the MCP server for `gemini` from `.gemini/settings.json`
    "#);
    world.puts(".mcp.json", r#"{"mcpServers": {"tollgate": {"command": "other"}}}"#);
    insta::assert_snapshot!(world.run("init --mcp claude-code").filtered, @r#"
    exit 3
    --- stderr
    error: `.mcp.json` already has a different server named `tollgate`; rename it first; nothing was changed
    hint: fix the file, then try again
    "#);
}

#[test]
fn the_registered_command_serves_this_workspace() {
    let world = World::new();
    world.puts("deep/er/a", "hello");
    let file = file(&world, "claude-code");
    let config: Value = serde_json::from_str(&fs::read_to_string(world.path(file)).unwrap()).unwrap();
    let entry = &config["mcpServers"]["tollgate"];
    let words = entry["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
    assert_eq!(entry["command"], "tollgate");
    let ask = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
            "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list_allowed_directories"}}),
    ];
    let ask: String = ask.iter().map(|message| format!("{message}\n")).collect();
    // Also if the program was started in a folder below the workspace.
    let ran = world.tollgate(words).folder(world.path("deep/er")).stdin(ask).ends().is(0);
    let answer: Value = serde_json::from_str(ran.stdout().lines().last().unwrap()).unwrap();
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(text, format!("Allowed directories:\n{}", world.root().display()));
}

#[test]
fn the_doctor_checks_every_registration() {
    let servers = |world: &World| -> Vec<(String, String)> {
        let answer = world.tollgate(["doctor", "--json"]).ends().json();
        let found = answer["findings"].as_array().unwrap().iter().filter(|found| found["check"] == "mcp");
        let text = |found: &Value, key: &str| found[key].as_str().unwrap().to_owned();
        found.map(|found| (text(found, "level"), text(found, "message"))).collect()
    };
    for host in hosts() {
        let world = World::new();
        let file = file(&world, host);
        let message = format!("`{host}`: MCP server registered in `{file}` and responding");
        assert_eq!(servers(&world), [("ok".to_owned(), message)]);
        assert!(!world.path(".tollgate/version").exists(), "the check creates no state here");
        let text = fs::read_to_string(world.path(&file)).unwrap();
        for (entry, wrong) in [
            (
                text.replacen(
                    "\"tollgate\"",
                    "\"/no/such/tollgate\"",
                    if file.ends_with("toml") { 1 } else { 2 },
                ),
                "does not exist",
            ),
            (
                text.replacen("\"mcp\"", "\"serve\"", if form(host) == "opencode" { 2 } else { 1 }),
                "do not begin with `mcp`",
            ),
        ] {
            let entry = entry.replacen("\"/no/such/tollgate\": {", "\"tollgate\": {", 1).replacen(
                "\"serve\": {",
                "\"mcp\": {",
                1,
            );
            world.puts(&file, entry);
            let found = servers(&world);
            assert!(found[0].0 == "problem" && found[0].1.contains(wrong), "{host}: {found:?}");
        }
    }
    let world = World::new();
    world.puts(
        "opencode.jsonc",
        "{\"mcp\": {\"tollgate\": {\"command\": [\"tollgate\", \"mcp\"], \"enabled\": false}}, /* mine */}",
    );
    assert_eq!(servers(&world)[0].0, "warning");
    world.puts("opencode.jsonc", "{\"mcp\": {\"tollgate\": {\"command\": [\"other\"]}}}");
    assert!(servers(&world)[0].1.contains("a different server named `tollgate`"));
    // Another program of that name may come with the repository, so it is not started.
    let world = World::new();
    let started = world.tmp().join("started");
    world.puts("bin/tollgate", format!("#!/bin/sh\ntouch {}\n", started.display()));
    fs::set_permissions(world.path("bin/tollgate"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let entry = json!({"mcpServers": {"tollgate": {"command": world.path("bin/tollgate"), "args": ["mcp"]}}});
    world.puts(".mcp.json", entry.to_string());
    assert!(servers(&world)[0].1.contains("not tested") && !started.exists());
    // A program whose servers are in the user's home.
    let world = World::new();
    let home = world.tmp().join("home/.cline/data/settings");
    fs::create_dir_all(&home).unwrap();
    let entry = json!({"mcpServers": {"tollgate": {"command": "tollgate", "args": ["mcp", "--agent", "cline", world.root()]}}});
    fs::write(home.join("cline_mcp_settings.json"), entry.to_string()).unwrap();
    assert!(servers(&world)[0].1.contains("responding"));
}

#[test]
fn files_with_comments_are_edited_in_place_and_restored() {
    for (host, file) in
        [("gemini", ".gemini/settings.json"), ("cursor", ".cursor/mcp.json"), ("opencode", "opencode.jsonc")]
    {
        let world = World::new();
        let text = "// mine\n{\n    \"b\": 1, // one\n    /* two */\n    \"a\": [1,2],\n}\n";
        world.puts(file, text);
        let set_up = world.json(&format!("init --mcp {host}"));
        assert_eq!(set_up["mcp"][0]["files"], json!([file]));
        assert!(!world.path("opencode.json").exists());
        let with = fs::read_to_string(world.path(file)).unwrap();
        assert!(with.starts_with(text.strip_suffix("\n}\n").unwrap()), "{with}");
        assert!(with.contains("\n    \"mcp") && with.ends_with("\n    },\n}\n"), "{with}");
        world.run(&format!("init --mcp {host} --remove")).is(0);
        world.holds(file, text);
    }
}
