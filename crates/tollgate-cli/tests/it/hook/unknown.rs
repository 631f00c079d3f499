//! Formats that tollgate does not know: renamed fields, tools and events.

use std::fs;

use serde_json::{Value, json};

use super::{HOSTS, Program, Tool, form};
use crate::world::World;

/// The place of the tool's name and of its input in a payload before a tool.
fn places(host: &str) -> [&'static [&'static str]; 2] {
    match form(host) {
        "opencode" => [&["input", "tool"], &["output", "args"]],
        "copilot" => [&["toolName"], &["toolArgs"]],
        "cline" => [&["tool_call", "name"], &["tool_call", "input"]],
        _ => [&["tool_name"], &["tool_input"]],
    }
}

fn at<'p>(payload: &'p mut Value, place: &[&str]) -> &'p mut Value {
    place.iter().fold(payload, |value, key| &mut value[*key])
}

/// Every program, with an agent that has read a file which somebody else has changed since.
fn everywhere(mut story: impl FnMut(&World, &'static str, &Program<'_>)) {
    for host in HOSTS {
        let world = World::with("[guard]\ndurability = \"fast\"\n");
        world.puts("a.txt", "one\n");
        let agent = Program::new(&world, host, "s");
        agent.reads("a.txt");
        world.puts("a.txt", "foreign\n");
        story(&world, host, &agent);
    }
}

/// The tools that change files, by program.
fn writers(host: &str) -> &'static [&'static str] {
    match host {
        "claude-code" => &["Write", "Edit", "MultiEdit", "NotebookEdit", "Bash"],
        "codex" => &["apply_patch", "Bash", "exec_command"],
        "gemini" => &["write_file", "replace", "run_shell_command"],
        "opencode" => &["write", "edit", "multiedit", "apply_patch", "patch", "bash"],
        "kilo" => &["write", "edit", "apply_patch", "bash"],
        "cursor" => &["Write", "Edit", "StrReplace", "Delete", "Shell"],
        "copilot" => &["create", "edit", "Write", "Edit", "apply_patch", "bash"],
        "qwen" => &["write_file", "edit", "notebook_edit", "run_shell_command", "monitor"],
        _ => {
            &["editor", "write_to_file", "replace_in_file", "apply_patch", "run_commands", "execute_command"]
        }
    }
}

#[test]
fn a_known_tool_whose_target_cannot_be_read_is_blocked() {
    everywhere(|world, host, agent| {
        let [name, input] = places(host);
        let file = world.path("a.txt");
        for tool in writers(host) {
            for odd in [
                json!({"target": file, "content": "mine\n"}),
                json!({"file": {"name": file}, "text": "mine\n"}),
                json!({"path": [file], "file_path": [file], "filePath": [file], "command": 7, "patch": [], "input": {}}),
                json!({"path": "", "commands": "echo", "patch": "+++ a.txt"}),
                json!({}),
                Value::Null,
            ] {
                let mut payload = agent.before(&Tool::Write("a.txt", "mine\n"), "c");
                *at(&mut payload, name) = json!(tool);
                *at(&mut payload, input) = odd.clone();
                let reason = agent.asks(&payload).unwrap_or_else(|| panic!("{host} {tool} {odd}"));
                assert!(
                    reason.contains("names no file that tollgate can read"),
                    "{host} {tool} {odd}: {reason}"
                );
            }
            let mut payload = agent.before(&Tool::Write("a.txt", "mine\n"), "c");
            *at(&mut payload, name) = json!(tool);
            let (last, above) = input.split_last().unwrap();
            at(&mut payload, above).as_object_mut().unwrap().remove(*last);
            assert!(agent.asks(&payload).is_some(), "{host} {tool} without an input");
        }
    });
}

#[test]
fn an_unknown_tool_that_names_a_stale_file_is_blocked() {
    everywhere(|world, host, agent| {
        let [name, input] = places(host);
        let file = world.path("a.txt");
        let inputs = [
            json!({"file_path": file, "content": "mine\n"}),
            json!({"edits": [{"where": [file], "what": "mine"}]}),
            json!({"target": "a.txt"}),
            json!({"uri": format!("file://{}", file.display())}),
            json!({"diff": "*** Begin Patch\n*** Update File: a.txt\n@@\n-foreign\n+mine\n*** End Patch"}),
            json!({"script": "cd . && echo mine > a.txt"}),
        ];
        let payload = |tool: &str, odd: &Value| {
            let mut payload = agent.before(&Tool::Write("a.txt", "mine\n"), "c");
            *at(&mut payload, name) = json!(tool);
            *at(&mut payload, input) = odd.clone();
            payload
        };
        for odd in &inputs {
            let reason = agent.asks(&payload("NewWrite", odd)).unwrap_or_else(|| panic!("{host} {odd}"));
            assert!(reason.contains("STALE_FILE"), "{host} {odd}: {reason}");
        }
        // Our own MCP tools guard themselves. A word in a sentence is not the name of a file.
        for (tool, odd) in [
            ("mcp__tollgate__read_text_file", json!({"path": file})),
            ("tollgate_write_file", json!({"path": file, "content": "x"})),
            ("Ask", json!({"question": "may I change a.txt?"})),
            ("Ask", json!({"a.txt": true, "n": 7})),
            ("Other", json!({"path": world.path("b.txt")})),
        ] {
            assert_eq!(agent.asks(&payload(tool, &odd)), None, "{host} {tool} {odd}");
        }
        // A fresh file is not stale, and nothing stays reserved.
        agent.reads("a.txt");
        for odd in &inputs {
            assert_eq!(agent.asks(&payload("NewWrite", odd)), None, "{host} {odd}");
        }
        assert_eq!(super::reserved(world), 0, "{host}");
    });
}

/// The payload in which a program that reports failures says that a tool has failed.
fn failed(host: &str, mut payload: Value) -> Option<Value> {
    match host {
        "claude-code" | "qwen" => payload["hook_event_name"] = "PostToolUseFailure".into(),
        "cursor" => payload["hook_event_name"] = "postToolUseFailure".into(),
        "gemini" => payload["tool_response"]["error"] = "it failed".into(),
        "copilot" => payload["toolResult"]["resultType"] = "failure".into(),
        "cline" => payload["tool_result"]["error"] = "it failed".into(),
        _ => return None,
    }
    Some(payload)
}

#[test]
fn a_save_during_a_tool_call_that_failed_is_foreign() {
    let mut hosts = 0;
    everywhere(|world, host, agent| {
        agent.reads("a.txt");
        let tool = Tool::Write("a.txt", "mine\n");
        let Some(after) = failed(host, agent.after(&tool, "call-f", "it failed")) else { return };
        assert_eq!(agent.asks(&agent.before(&tool, "call-f")), None, "{host}");
        world.puts("a.txt", "saved by somebody else\n");
        agent.ends(&after);
        agent.writes("a.txt", "mine\n").refused("STALE_FILE");
        hosts += 1;
    });
    assert_eq!(hosts, 6);
}

/// The command may change the file, but what somebody else saved before it is not the agent's own.
#[test]
fn a_stale_file_stays_stale_after_a_command_of_an_unknown_program_that_names_and_changes_it() {
    everywhere(|world, _, agent| {
        world.puts("tool", "#!/bin/sh\necho more >> \"$1\"\n");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(world.path("tool"), mode).unwrap();
        agent.runs("./tool a.txt").ran();
        world.holds("a.txt", "foreign\nmore\n");
        agent.writes("a.txt", "mine\n").refused("STALE_FILE");
    });
}

#[test]
fn a_command_whose_target_is_not_known_is_blocked_if_it_names_a_stale_file() {
    everywhere(|world, _, agent| {
        for command in [
            "rm \"$(echo a.txt)\"",
            "find . -name a.txt -exec rm {} +",
            "echo a.txt | xargs rm",
            "cd \"$NOWHERE\"; echo mine > a.txt",
            "bash <<E\n\\$(echo mine > a.txt)\nE",
        ] {
            agent.runs(command).refused("STALE_FILE");
            world.holds("a.txt", "foreign\n");
        }
        // It names another file.
        agent.runs("rm -f \"$(echo b.txt)\"").ran();
        assert_eq!(super::reserved(world), 0);
    });
}

#[test]
fn a_file_that_was_saved_just_before_a_command_that_mentions_it_is_stale() {
    everywhere(|world, _, agent| {
        for round in 0..5 {
            agent.reads("a.txt");
            world.puts("a.txt", format!("foreign {round}\n"));
            agent.runs("echo 'a.txt is the file'").ran();
            agent.writes("a.txt", "mine\n").refused("STALE_FILE");
        }
    });
}

#[test]
fn an_unknown_event_that_names_a_stale_file_is_blocked() {
    everywhere(|world, host, agent| {
        let key = match form(host) {
            "opencode" => "hook",
            "cline" => "hookName",
            _ => "hook_event_name",
        };
        let mut payload = agent.before(&Tool::Write("a.txt", "mine\n"), "c");
        payload[key] = json!("beforeAnyTool");
        assert!(
            agent.asks(&payload).is_some_and(|reason| reason.contains("STALE_FILE")),
            "{host}: {payload}"
        );
        // Another name for the tool, too.
        let [name, _] = places(host);
        let (last, above) = name.split_last().unwrap();
        at(&mut payload, above).as_object_mut().unwrap().remove(*last);
        at(&mut payload, above)["instrument"] = json!("Write");
        assert!(
            agent.asks(&payload).is_some_and(|reason| reason.contains("STALE_FILE")),
            "{host}: {payload}"
        );
        agent.reads("a.txt");
        assert_eq!(agent.asks(&payload), None, "{host}");
        assert_eq!(super::reserved(world), 0, "{host}");
    });
}

/// The events of these programs that are about no tool name files, too.
#[test]
fn an_event_that_is_about_no_tool_passes_whatever_it_names() {
    for (host, names) in [
        ("claude-code", ["FileChanged", "TaskCreated", "WorktreeCreate", "PostToolBatch"]),
        ("qwen", ["PostToolBatch", "TodoCreated", "TodoCompleted", "InstructionsLoaded"]),
    ] {
        let world = World::new();
        world.puts("a.txt", "one\n");
        let agent = Program::new(&world, host, "s");
        agent.reads("a.txt");
        world.puts("a.txt", "foreign\n");
        let mut payload = agent.before(&Tool::Write("a.txt", "mine\n"), "c");
        let call = payload.as_object_mut().unwrap();
        let tool = json!({"tool_name": call.remove("tool_name"), "tool_input": call.remove("tool_input")});
        payload["tool_calls"] = json!([tool]);
        payload["file_path"] = json!(world.path("a.txt"));
        for name in names {
            payload["hook_event_name"] = json!(name);
            agent.says(&payload);
        }
        agent.writes("a.txt", "mine\n").refused("STALE_FILE");
    }
}

#[test]
fn a_payload_that_cannot_be_parsed_passes_only_if_it_is_certainly_another_event() {
    let world = World::with("");
    // The name of another event in the text of a file, and our own after a mebibyte.
    for (host, key, before, other) in [
        ("claude-code", "hook_event_name", "PreToolUse", "Notification"),
        ("codex", "hook_event_name", "PreToolUse", "PostToolUse"),
        ("gemini", "hook_event_name", "BeforeTool", "AfterTool"),
        ("opencode", "hook", "tool.execute.before", "chat.message"),
        ("cursor", "hook_event_name", "preToolUse", "sessionEnd"),
        ("copilot", "toolName", "create", "prompt"),
        ("cline", "hookName", "PreToolUse", "PostToolUse"),
        ("qwen", "hook_event_name", "PreToolUse", "PostToolBatch"),
        ("kilo", "hook", "tool.execute.before", "chat.message"),
    ] {
        let filler = "x".repeat(2 << 20);
        for payload in [
            format!("{{\"text\":\"{other} {filler}\",\"{key}\":\"{before}\", "),
            format!(
                "{{\"tool_input\":{{\"{key}\":\"{other}\"}}, \"text\":\"{filler}\",\"{key}\":\"{before}\" "
            ),
            format!("{{\"text\":\"\\\"{key}\\\":\\\"{other}\\\"\", "),
            format!("{{\"text\":\"{other}\", "),
        ] {
            let ran = world.tollgate(["hook", host]).stdin(&payload).ends().is(0);
            let start: String = payload.chars().take(80).collect();
            assert!(ran.stdout().contains("cannot understand"), "{host}: {start}: {ran}");
        }
    }
    // A field of the tool's input is not a field of the event.
    for host in HOSTS {
        let agent = Program::new(&world, host, "s");
        let mut payload = agent.before(&Tool::Write("a.txt", "x"), "c");
        for key in ["hook_event_name", "hook", "hookName", "toolName"] {
            payload.as_object_mut().unwrap().remove(key);
        }
        let odd = json!({"hook_event_name": "Stop", "hook": "session.idle", "hookName": "agent_end", "prompt": "x"});
        payload["renamed"] = odd;
        payload.as_object_mut().unwrap().remove(if host == "copilot" { "sessionId" } else { "" });
        let ran = world.tollgate(["hook", host]).stdin(payload.to_string()).ends().is(0);
        assert!(!ran.stdout().is_empty(), "{host}");
    }
    assert!(!fs::exists(world.path("a.txt")).unwrap());
}
