//! Cline: hooks are programs in `.cline/hooks/`, named after their event.
//!
//! An answer that cancels a call ends the whole run, and the model never learns why. So a refusal lets the call run with
//! another input, one that only fails, and gives the model the reason as context. Only the tools of Cline CLI are known to
//! fail so; calls of all other tools are cancelled.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::event::{Call, FileEffect, HookCall, HookEvent, Shown, ToolEffects, ToolReport};
use super::fields::{
    call, changed, has, other, patched, print, read, replacement, says, shell, text, unknown, write,
};
use super::mcp::Registry;
use super::program::{Canary, Host, Traces};
use super::settings_files::variable_for_hooks;
use super::setup::{Setup, command, command_or};
use crate::replace::FileAccess;

pub(super) struct Cline;

/// Tools that change no files of the workspace.
const HARMLESS: &[&str] = &[
    "search_files",
    "search_codebase",
    "list_files",
    "list_code_definition_names",
    "fetch_web_content",
    "web_fetch",
    "web_search",
    "ask_question",
    "ask_followup_question",
    "attempt_completion",
    "plan_mode_respond",
    "new_task",
    "skills",
    "use_skill",
    "spawn_agent",
    "access_mcp_resource",
];

const OTHERWISE: &str = "echo '{\"cancel\":true,\"errorMessage\":\"the tollgate hook crashed; this write was blocked; see: tollgate doctor\"}'";

/// The files with variables that the runtime of Cline loads in the folder in which Cline starts.
const ENVIRONMENTS: &[&str] = &[".env", ".env.local", ".env.development", ".env.production"];

impl Host for Cline {
    fn name(&self) -> &'static str {
        "cline"
    }

    fn is_surely(&self, payload: &Value) -> bool {
        has(payload, &["hookName"]) && has(payload, &["clineVersion", "taskId"])
    }

    fn hear(&self, payload: &Value) -> Result<HookCall, String> {
        let name = text(payload, &["hookName"]).ok_or("it has no `hookName`")?;
        let event = match name.as_str() {
            "prompt_submit" | "UserPromptSubmit" | "agent_start" | "TaskStart" | "TaskResume" => {
                HookEvent::Prompt
            }
            "tool_call" => HookEvent::Before(call(&payload["tool_call"], ["id", "name", "input"], effects)?),
            "PreToolUse" => {
                HookEvent::Before(call(&payload["preToolUse"], ["id", "toolName", "parameters"], effects)?)
            }
            "tool_result" => {
                let result = &payload["tool_result"];
                let call = call(result, ["id", "name", "input"], effects)?;
                let output = result.get("output").map(printed);
                HookEvent::After(call, aftermath(has(result, &["error"]), output))
            }
            "PostToolUse" => {
                let result = &payload["postToolUse"];
                let call = call(result, ["id", "toolName", "parameters"], effects)?;
                HookEvent::After(call, aftermath(result["success"] == false, text(result, &["result"])))
            }
            "agent_end" | "TaskComplete" | "TaskCancel" | "agent_abort" => HookEvent::Stopped,
            "session_shutdown" => HookEvent::Gone,
            _ => {
                let tool = [
                    ("tool_call", ["id", "name", "input"]),
                    ("preToolUse", ["id", "toolName", "parameters"]),
                ];
                let found =
                    tool.into_iter().find_map(|(part, names)| call(&payload[part], names, effects).ok());
                unknown(payload, found.ok_or_else(String::new))
            }
        };
        let folder = payload["workspaceRoots"]
            .get(0)
            .and_then(Value::as_str)
            .map_or(PathBuf::from("."), PathBuf::from);
        Ok(HookCall {
            session: text(payload, &["taskId"]).ok_or("it has no `taskId`")?,
            // Only a subagent has a parent.
            subagent: text(payload, &["agent_id"]).filter(|_| has(payload, &["parent_agent_id"])),
            turn: None,
            model: None,
            prompt: None,
            folder,
            event,
        })
    }

    fn may_be_before_a_tool(&self, text: &str) -> bool {
        let others = [
            "prompt_submit",
            "UserPromptSubmit",
            "agent_start",
            "TaskStart",
            "TaskResume",
            "tool_result",
            "PostToolUse",
            "agent_end",
            "TaskComplete",
            "TaskCancel",
            "agent_abort",
            "session_shutdown",
        ];
        text.contains("\"tool_call\"") || text.contains("PreToolUse") || !says(text, "hookName", &others)
    }

    fn block(&self, reason: &str, call: Option<&Call>) -> Value {
        match call.and_then(|call| failing_input(&call.tool)) {
            Some(input) => json!({"overrideInput": input, "context": reason}),
            None => json!({"cancel": true, "errorMessage": reason}),
        }
    }

    fn change_input(&self, input: Value) -> Option<Value> {
        Some(json!({"overrideInput": input}))
    }

    fn runs_commands(&self) -> bool {
        true
    }

    fn tell(&self, _: &str, _: &ToolReport) -> Option<Value> {
        None
    }

    fn setup(&self) -> Setup {
        let script = |command: String| format!("#!/bin/sh\n{command}\n");
        let file = |name, command| (name, script(command), FileAccess::Executable);
        Setup::Own(vec![
            file(".cline/hooks/UserPromptSubmit", command(self.name())),
            file(".cline/hooks/PreToolUse", command_or(self.name(), OTHERWISE)),
            file(".cline/hooks/PostToolUse", command(self.name())),
            file(".cline/hooks/TaskComplete", command(self.name())),
        ])
    }

    fn switches(&self) -> &'static [&'static str] {
        &[
            ".cline/hooks/*",
            ".clinerules/hooks/*",
            "Cline/Hooks/*",
            "cline_mcp_settings.json",
            ".cline/data/settings/*",
            ".cline/data/globalState.json",
            // Plugins are code.
            ".cline/plugins/*",
            "Cline/Plugins/*",
            ".agents/plugins/*",
            // The runtime that Cline is built with loads the code that these name, in the folder in which Cline starts.
            "bunfig.toml",
            ".bunfig.toml",
        ]
    }

    fn hooks_off(&self, _: Option<&Path>, root: &Path) -> Option<String> {
        ENVIRONMENTS.iter().find_map(|name| variable_for_hooks(&root.join(name)))
    }

    fn mcp(&self) -> Registry {
        Registry::by_hand(
            &[".cline/data/settings/cline_mcp_settings.json"],
            "add this to `~/.cline/data/settings/cline_mcp_settings.json`: {\"mcpServers\": {\"tollgate\": {\"command\": \"tollgate\", \"args\": \
             [\"mcp\", \"--agent\", \"cline\", WORKSPACE]}}}",
        )
    }

    fn traces(&self) -> Traces {
        Traces { program: "cline", home: ".cline", project: &[".cline", ".clinerules"] }
    }

    fn shell_marks(&self) -> &'static [&'static str] {
        &["CLINE_ACTIVE"]
    }

    fn canary(&self, session: &str, folder: &Path, event: Canary, file: &Path) -> Value {
        let (name, field, tool, input) = match event {
            Canary::BeforeRead => {
                ("tool_call", "tool_call", "read_files", json!({"files": [{"path": file}]}))
            }
            Canary::AfterRead => {
                ("tool_result", "tool_result", "read_files", json!({"files": [{"path": file}]}))
            }
            Canary::BeforeWrite => {
                ("tool_call", "tool_call", "editor", json!({"path": file, "new_text": "canary"}))
            }
            Canary::BeforeCommand => {
                ("tool_call", "tool_call", "run_commands", json!({"commands": [print(file)]}))
            }
        };
        json!({"hookName": name, "clineVersion": "0", "taskId": session, "workspaceRoots": [folder],
            field: {"id": tool, "name": tool, "input": input, "output": "one\n"}})
    }
}

/// An input with which this tool changes nothing and fails.
fn failing_input(tool: &str) -> Option<Value> {
    match tool {
        // Nothing can be created below a device.
        "editor" => Some(json!({"path": "/dev/null/refused", "old_text": "refused", "new_text": "refused"})),
        "run_commands" => Some(json!({"commands": ["echo 'tollgate refused this command' >&2; exit 1"]})),
        _ => None,
    }
}

/// The text of a result: one text, or one for each file or command.
fn printed(output: &Value) -> String {
    match output {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(printed).collect(),
        part => text(part, &["result"]).unwrap_or_default(),
    }
}

fn aftermath(failed: bool, output: Option<String>) -> ToolReport {
    let shown = output.map_or(Shown::AsAsked, Shown::Text);
    ToolReport { failed, shown, ..ToolReport::default() }
}

fn effects(tool: &str, input: &Value) -> ToolEffects {
    const PATH: &[&str] = &["path"];
    ToolEffects::Files(match tool {
        "read_files" => {
            let files = input["files"].as_array().into_iter().flatten();
            files.flat_map(|file| read(file, PATH, &["start_line", "end_line"])).collect()
        }
        "read_file" => read(input, PATH, &["start_line", "end_line"]),
        "write_to_file" => write(input, PATH, &["content"]),
        "editor" if has(input, &["insert_line"]) => edited(input, Vec::new()),
        "editor" if has(input, &["old_text"]) => {
            edited(input, replacement(input, &["old_text"], &["new_text"], &[]).into_iter().collect())
        }
        "editor" => write(input, PATH, &["new_text"]),
        "replace_in_file" => edited(input, Vec::new()),
        "apply_patch" => patched(input, &["input", "patch"]),
        "execute_command" => return shell(input, &["command"], &[]),
        "run_commands" => {
            let command = |command: &Value| match command {
                Value::String(text) => Some(text.clone()),
                command => text(command, &["command"]),
            };
            let commands = input["commands"].as_array().map(|all| all.iter().map(command).collect());
            return match commands {
                Some(Some(commands)) => ToolEffects::Shell { commands, folder: None, keep_running: false },
                _ => ToolEffects::Files(vec![FileEffect::Unreadable]),
            };
        }
        "use_mcp_tool" if input["server_name"] == "tollgate" => Vec::new(),
        _ => return other(tool, HARMLESS),
    })
}

fn edited(input: &Value, edits: Vec<tollgate::edit::Edit>) -> Vec<FileEffect> {
    changed(input, &["path"], |path| FileEffect::Edit(path, edits))
}
