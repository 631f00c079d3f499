//! Copilot CLI: hooks in `.github/hooks/`.
//!
//! Copilot has two spellings of its format, camel case and snake case. The spelling of the event's name in the configuration
//! decides. `init` uses camel case. This file understands both, because Copilot also calls the hooks in
//! `.claude/settings.json`, after its own, and then uses snake case (seen with 1.0.102).

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::event::{Call, FileEffect, HookCall, HookEvent, Shown, ToolEffects, ToolReport};
use super::fields::{
    call, changed, has, heard, mentions, other, patched, print, read, replacement, shell, text, unknown,
    write,
};
use super::mcp::{NAME as SERVER, Registry};
use super::program::{Canary, Host, Traces};
use super::settings_files::{SettingsFiles, is_on, names};
use super::setup::{EXIT_2, Setup, command, command_or};
use crate::replace::FileAccess;
use crate::surroundings::Surroundings;

pub(super) struct Copilot;

/// Tools that change no files of the workspace.
const HARMLESS: &[&str] = &[
    "glob",
    "grep",
    "rg",
    "web_fetch",
    "web_search",
    "task",
    "update_todo",
    "report_intent",
    "read_bash",
    "stop_bash",
    "list_bash",
    "ask_user",
    "store_memory",
    "skill",
    "fetch_copilot_cli_documentation",
];

/// Events that are not about a tool that is about to run.
const OTHERS: &[&str] =
    &["SessionStart", "Notification", "PermissionRequest", "PreCompact", "SubagentStart", "ErrorOccurred"];

impl Host for Copilot {
    fn name(&self) -> &'static str {
        "copilot"
    }

    fn is_surely(&self, payload: &Value) -> bool {
        let camel =
            has(payload, &["sessionId"]) && has(payload, &["timestamp"]) && !has(payload, &["hookName"]);
        let pascal = has(payload, &["hook_event_name"])
            && has(payload, &["timestamp"])
            && (!has(payload, &["transcript_path"])
                || text(payload, &["hook_event_name"]).as_deref() == Some("Stop"))
            && !has(payload, &["cursor_version", "permission_mode"])
            && !text(payload, &["hook_event_name"]).is_some_and(|name| {
                name.starts_with("Before") || name.starts_with("After") || name == "PreCompress"
            });
        camel || pascal
    }

    fn hear(&self, payload: &Value) -> Result<HookCall, String> {
        let call = || match payload.get("toolName") {
            Some(_) => call(payload, ["toolCallId", "toolName", "toolArgs"], effects),
            None => call(payload, ["tool_use_id", "tool_name", "tool_input"], effects),
        };
        let result = payload.get("toolResult").or(payload.get("tool_result"));
        // The camel case format does not name the event, so the fields tell.
        let event = match (text(payload, &["hook_event_name"]).as_deref(), result) {
            (Some("UserPromptSubmit"), _) => HookEvent::Prompt,
            (Some("PreToolUse"), _) => HookEvent::Before(call()?),
            (Some("PostToolUse" | "PostToolUseFailure"), _) => after(call()?, result),
            (Some("Stop" | "AgentStop"), _) => HookEvent::Stopped,
            (Some("SessionEnd" | "SubagentStop"), _) => HookEvent::Gone,
            (Some(name), None) if !OTHERS.contains(&name) => unknown(payload, call()),
            (Some(_), _) => HookEvent::Other,
            (None, Some(_)) => after(call()?, result),
            (None, None) if has(payload, &["toolName"]) => HookEvent::Before(call()?),
            (None, None) if has(payload, &["prompt"]) => HookEvent::Prompt,
            (None, None) if has(payload, &["stopReason"]) => HookEvent::Stopped,
            (None, None) if has(payload, &["reason"]) => HookEvent::Gone,
            (None, None) => unknown(payload, call()),
        };
        heard(payload, &["sessionId", "session_id"], event)
    }

    fn may_be_before_a_tool(&self, text: &str) -> bool {
        // The camel case format does not name the event: only the event before a tool, and the one after it, have a tool.
        let has = |fields: &[&str]| fields.iter().any(|field| mentions(text, field));
        text.contains("PreToolUse")
            || has(&["toolName", "tool_name"])
            || !has(&["prompt", "stopReason", "reason"])
    }

    fn block(&self, reason: &str, _: Option<&Call>) -> Value {
        json!({"permissionDecision": "deny", "permissionDecisionReason": reason})
    }

    fn change_input(&self, input: Value) -> Option<Value> {
        Some(json!({"modifiedArgs": input}))
    }

    fn runs_commands(&self) -> bool {
        true
    }

    fn tell(&self, _: &str, _: &ToolReport) -> Option<Value> {
        None
    }

    fn setup(&self) -> Setup {
        let entry = |command: String| json!([{"type": "command", "bash": command, "timeoutSec": 10}]);
        let say = || entry(command(self.name()));
        let hooks = json!({"version": 1, "hooks": {
            "userPromptSubmitted": say(),
            "preToolUse": entry(command_or(self.name(), EXIT_2)),
            "postToolUse": say(),
            "agentStop": say(),
            "sessionEnd": say(),
        }});
        let text = serde_json::to_string_pretty(&hooks).unwrap_or_default() + "\n";
        Setup::Own(vec![(".github/hooks/tollgate.json", text, FileAccess::Normal)])
    }

    fn switches(&self) -> &'static [&'static str] {
        &[
            ".github/hooks/*",
            ".github/copilot/*",
            ".github/mcp.json",
            ".github/lsp.json",
            // Extensions are code.
            ".github/extensions/*",
            ".vscode/mcp.json",
            ".copilot/config.json",
            ".copilot/settings.json",
            ".copilot/mcp-config.json",
            ".copilot/lsp-config.json",
            ".copilot/permissions-config.json",
            ".copilot/hooks/*",
            ".copilot/extensions/*",
            ".copilot/installed-plugins/*",
        ]
    }

    fn hooks_off(&self, home: Option<&Path>, root: &Path) -> Option<String> {
        let settings = SettingsFiles::read(settings(home, root));
        // The second is a list of hashes, and we do not know the hashes of our hooks.
        let disables = |value: &Value| is_on(value) || value.as_array().is_some_and(|list| !list.is_empty());
        settings.any(&["disableAllHooks", "disabledHooks"], disables)
    }

    fn server_off(&self, home: Option<&Path>, root: &Path) -> Option<String> {
        let settings = SettingsFiles::read(settings(home, root));
        settings.any(&["disabledMcpServers"], |list| names(list, |name| name == SERVER))
    }

    fn own_settings(&self, home: Option<&Path>) -> Vec<PathBuf> {
        let own = own_folder(home).into_iter();
        own.flat_map(|own| ["settings.json", "mcp-config.json"].map(|name| own.join(name))).collect()
    }

    fn mcp(&self) -> Registry {
        let entry = |words: Vec<&str>| json!({"type": "local", "command": words[0], "args": words[1..], "tools": ["*"]});
        Registry::json(&[".github/mcp.json"], "mcpServers", json!({}), entry, self.name())
    }

    fn traces(&self) -> Traces {
        Traces { program: "copilot", home: ".copilot", project: &[".github/hooks", ".github/copilot"] }
    }

    fn also_calls(&self) -> &'static [&'static str] {
        &["claude-code"]
    }

    fn shell_marks(&self) -> &'static [&'static str] {
        &["COPILOT_CLI"]
    }

    fn canary(&self, session: &str, folder: &Path, event: Canary, file: &Path) -> Value {
        let (tool, args) = match event {
            Canary::BeforeRead | Canary::AfterRead => ("view", json!({"path": file})),
            Canary::BeforeWrite => ("create", json!({"path": file, "file_text": "canary"})),
            Canary::BeforeCommand => ("bash", json!({"command": print(file)})),
        };
        let mut payload =
            json!({"sessionId": session, "timestamp": 0, "cwd": folder, "toolName": tool, "toolArgs": args});
        if event == Canary::AfterRead {
            payload["toolResult"] = json!({"resultType": "success", "textResultForLlm": "one\n"});
        }
        payload
    }
}

/// The settings of a project and of a person. Any of them can disable hooks.
fn settings(home: Option<&Path>, root: &Path) -> impl Iterator<Item = PathBuf> {
    let project =
        ["settings.local.json", "settings.json"].map(|name| root.join(".github/copilot").join(name));
    let own = own_folder(home).into_iter();
    let own = own.flat_map(|own| ["settings.json", "config.json"].map(|name| own.join(name)));
    project.into_iter().chain(own)
}

fn own_folder(home: Option<&Path>) -> Option<PathBuf> {
    Surroundings::folder_in("COPILOT_HOME").or_else(|| home.map(|home| home.join(".copilot")))
}

fn after(call: Call, result: Option<&Value>) -> HookEvent {
    let result = result.unwrap_or(&Value::Null);
    let kind = text(result, &["resultType", "result_type"]);
    let shown = match (&call.effects, text(result, &["textResultForLlm", "text_result_for_llm"])) {
        (ToolEffects::Shell { .. }, Some(output)) => Shown::Text(output),
        _ => Shown::AsAsked,
    };
    let failed = kind.is_some_and(|kind| kind != "success");
    HookEvent::After(call, ToolReport { failed, shown, ..ToolReport::default() })
}

/// The effects of a tool, by its own name or by its name in the snake case format.
fn effects(tool: &str, input: &Value) -> ToolEffects {
    const PATH: &[&str] = &["path", "file_path", "filePath"];
    const TEXT: &[&str] = &["file_text", "content"];
    let command = text(input, &["command"]).unwrap_or_default();
    const PATCH: &[&str] = &["patch", "input", "command"];
    let edit = || {
        let edit =
            replacement(input, &["old_str", "old_string"], &["new_str", "new_string"], &["replace_all"]);
        changed(input, PATH, |path| FileEffect::Edit(path, edit.into_iter().collect()))
    };
    let is_patch = || text(input, PATCH).is_some_and(|text| text.contains("*** Begin Patch"));
    ToolEffects::Files(match (tool, command.as_str()) {
        ("view" | "Read", _) | ("str_replace_editor", "view") => {
            read(input, PATH, &["view_range", "offset", "limit"])
        }
        ("create" | "Write", _) | ("str_replace_editor", "create") => write(input, PATH, TEXT),
        ("apply_patch", _) => patched(input, PATCH),
        ("Edit", _) if is_patch() => patched(input, PATCH),
        ("edit" | "Edit" | "str_replace_editor", _) => edit(),
        ("bash" | "Bash", _) => return shell(input, &["command"], &["cwd"]),
        _ => return other(tool, HARMLESS),
    })
}
