//! Cursor: hooks in `.cursor/hooks.json`. Follows its documentation; not tested with Cursor.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::event::{Call, FileEffect, HookCall, HookEvent, Shown, ToolEffects, ToolReport};
use super::fields::{
    call, changed, has, heard, other, path, print, read, replacement, says, shell, text, unknown, write,
};
use super::mcp::Registry;
use super::program::{Canary, Host, Traces};
use super::settings_files::{SettingsFiles, names};
use super::setup::{EXIT_2, Setup, command, command_or};

pub(super) struct CursorEditor;

/// Tools that change no files of the workspace.
const HARMLESS: &[&str] =
    &["Grep", "Glob", "LS", "Task", "WebSearch", "WebFetch", "SemanticSearch", "ReadLints", "TodoWrite"];

/// Events that are not about a tool that is about to run.
const OTHERS: &[&str] = &[
    "postToolUse",
    "postToolUseFailure",
    "beforeSubmitPrompt",
    "stop",
    "sessionStart",
    "sessionEnd",
    "afterFileEdit",
    "afterShellExecution",
    "afterMCPExecution",
    "afterAgentResponse",
    "afterAgentThought",
    "preCompact",
];

impl Host for CursorEditor {
    fn name(&self) -> &'static str {
        "cursor"
    }

    fn is_surely(&self, payload: &Value) -> bool {
        has(payload, &["cursor_version"])
    }

    fn hear(&self, payload: &Value) -> Result<HookCall, String> {
        let name = text(payload, &["hook_event_name"]).ok_or("it has no `hook_event_name`")?;
        let call = || call(payload, ["tool_use_id", "tool_name", "tool_input"], effects);
        let event = match name.as_str() {
            "beforeSubmitPrompt" => HookEvent::Prompt,
            "preToolUse" => HookEvent::Before(call()?),
            "postToolUse" => {
                let call = call()?;
                let shown = match (&call.effects, text(payload, &["tool_output"])) {
                    (ToolEffects::Shell { .. }, Some(output)) => Shown::Text(output),
                    _ => Shown::AsAsked,
                };
                HookEvent::After(call, ToolReport { shown, ..ToolReport::default() })
            }
            "postToolUseFailure" => {
                HookEvent::After(call()?, ToolReport { failed: true, ..ToolReport::default() })
            }
            "stop" => HookEvent::Stopped,
            "sessionEnd" => HookEvent::Gone,
            name if OTHERS.contains(&name) || has(payload, &["tool_output"]) => HookEvent::Other,
            _ => unknown(payload, call()),
        };
        let mut heard = heard(payload, &["conversation_id", "session_id"], event)?;
        heard.turn = text(payload, &["generation_id"]);
        let roots = payload["workspace_roots"].as_array();
        if let (None, Some(Value::String(root))) =
            (path(payload, &["cwd"]), roots.and_then(|roots| roots.first()))
        {
            heard.folder = root.into();
        }
        Ok(heard)
    }

    fn may_be_before_a_tool(&self, text: &str) -> bool {
        text.contains("preToolUse") || !says(text, "hook_event_name", OTHERS)
    }

    fn block(&self, reason: &str, _: Option<&Call>) -> Value {
        json!({"permission": "deny", "agent_message": reason, "user_message": reason})
    }

    fn tell(&self, _: &str, _: &ToolReport) -> Option<Value> {
        None
    }

    fn setup(&self) -> Setup {
        let entry =
            |event: &'static str, command: String| (event, json!({"command": command, "timeout": 10}));
        let say = || command(self.name());
        let mut before = entry("preToolUse", command_or(self.name(), EXIT_2));
        before.1["failClosed"] = true.into();
        let entries = vec![
            entry("beforeSubmitPrompt", say()),
            before,
            entry("postToolUse", say()),
            entry("postToolUseFailure", say()),
            entry("stop", say()),
            entry("sessionEnd", say()),
        ];
        Setup::Shared { file: ".cursor/hooks.json", base: json!({"version": 1}), entries, variable: None }
    }

    fn switches(&self) -> &'static [&'static str] {
        &[
            ".cursor/hooks.json",
            ".cursor/mcp.json",
            // Permissions can deny the tools of a server.
            ".cursor/cli.json",
            ".cursor/cli-config.json",
            "cursor/cli-config.json",
            ".cursor/permissions.json",
            ".cursor/sandbox.json",
            ".cursor/environment.json",
            ".cursor/plugins/*",
        ]
    }

    fn server_off(&self, home: Option<&Path>, root: &Path) -> Option<String> {
        let own = home.map(|home| home.join(".cursor/cli-config.json"));
        let settings = SettingsFiles::read([root.join(".cursor/cli.json")].into_iter().chain(own));
        let is_ours = |rule: &str| rule.starts_with("Mcp(tollgate") || rule.starts_with("Mcp(*");
        settings.any(&["permissions.deny"], |list| names(list, is_ours))
    }

    fn own_settings(&self, home: Option<&Path>) -> Vec<PathBuf> {
        let names = ["hooks.json", "mcp.json"];
        home.into_iter().flat_map(|home| names.map(|name| home.join(".cursor").join(name))).collect()
    }

    fn mcp(&self) -> Registry {
        // Cursor does not start servers in the workspace's folder.
        let entry = |words: Vec<&str>| {
            let args = [&words[1..], &["${workspaceFolder}"]].concat();
            json!({"command": words[0], "args": args})
        };
        Registry::json(&[".cursor/mcp.json"], "mcpServers", json!({}), entry, self.name())
            .then("enable the server `tollgate` in the settings of Cursor")
    }

    fn traces(&self) -> Traces {
        Traces { program: "cursor-agent", home: ".cursor", project: &[".cursor"] }
    }

    fn shell_marks(&self) -> &'static [&'static str] {
        &["CURSOR_AGENT"]
    }

    fn canary(&self, session: &str, folder: &Path, event: Canary, file: &Path) -> Value {
        let (name, tool, input) = match event {
            Canary::BeforeRead => ("preToolUse", "Read", json!({"file_path": file})),
            Canary::AfterRead => ("postToolUse", "Read", json!({"file_path": file})),
            Canary::BeforeWrite => ("preToolUse", "Write", json!({"file_path": file, "content": "canary"})),
            Canary::BeforeCommand => ("preToolUse", "Shell", json!({"command": print(file)})),
        };
        json!({"conversation_id": session, "generation_id": session, "cursor_version": "0", "cwd": folder,
            "hook_event_name": name, "tool_name": tool, "tool_input": input, "tool_use_id": tool, "tool_output": "one\n"})
    }
}

fn effects(tool: &str, input: &Value) -> ToolEffects {
    const PATH: &[&str] = &["file_path", "path", "target_file"];
    ToolEffects::Files(match tool {
        "Read" => read(input, PATH, &["offset", "limit", "start_line", "end_line"]),
        "Delete" => changed(input, PATH, FileEffect::Delete),
        "Write" | "Edit" | "StrReplace" if has(input, &["old_string"]) => {
            let edit = replacement(input, &["old_string"], &["new_string"], &["replace_all"]);
            changed(input, PATH, |path| FileEffect::Edit(path, edit.into_iter().collect()))
        }
        "Write" => write(input, PATH, &["content", "contents"]),
        "Edit" | "StrReplace" => changed(input, PATH, |path| FileEffect::Edit(path, Vec::new())),
        "Shell" => return shell(input, &["command"], &["working_directory", "cwd"]),
        _ => return other(tool, HARMLESS),
    })
}
