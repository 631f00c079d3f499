//! Claude Code: hooks in `.claude/settings.json`. Several other programs copied its format.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::event::{Call, FileEffect, HookCall, HookEvent, Shown, ToolEffects, ToolReport};
use super::fields::{
    call, changed, has, heard, is, other, path, print, read, replacement, says, shell, text, unknown, write,
};
use super::mcp::{NAME as SERVER, Registry};
use super::program::{Canary, Host, ShellPrefix, Traces};
use super::settings_files::{SettingsFiles, is_on, leaves_out, names};
use super::setup::{EXIT_2, Setup, command, command_or, grouped};
use crate::surroundings::Surroundings;

pub(super) struct ClaudeCode;

const TOOLS: &str = "Read|Write|Edit|MultiEdit|NotebookEdit|Bash";

/// The variable with a prefix for everything that Claude Code starts: shell commands, hooks and MCP servers. It quotes what is
/// before the last ` -` in the value as one word, and appends the command as one more.
const SHELL_PREFIX: &str = "CLAUDE_CODE_SHELL_PREFIX";

/// Here `$0` is the command. Without tollgate it runs as it would without a prefix: shell commands in the user's shell, of which
/// they source a snapshot first, and everything else in `sh`.
const PREFIX: &str = concat!(
    r#"sh -c 'command "-v" tollgate >/dev/null 2>&1 && exec tollgate run "--prefixed" "--" "$0"; "#,
    r#"case $0 in "source "*) exec "${SHELL:=/bin/bash}" "-c" "$0";; esac; exec sh "-c" "$0"'"#
);

/// Tools that change no files of the workspace.
const HARMLESS: &[&str] = &[
    "Glob",
    "Grep",
    "LS",
    "NotebookRead",
    "LSP",
    "WebFetch",
    "WebSearch",
    "Task",
    "Agent",
    "TaskCreate",
    "TaskGet",
    "TaskList",
    "TaskUpdate",
    "TaskOutput",
    "TaskStop",
    "TodoWrite",
    "BashOutput",
    "KillShell",
    "KillBash",
    "AskUserQuestion",
    "EnterPlanMode",
    "ExitPlanMode",
    "Skill",
    "SlashCommand",
    "ToolSearch",
    "ListMcpResourcesTool",
    "ReadMcpResourceTool",
];

/// Events of this format that are not about a tool that is about to run.
const OTHERS: &[&str] = &[
    "PostToolUse",
    "PostToolUseFailure",
    "UserPromptSubmit",
    "Stop",
    "StopFailure",
    "SubagentStop",
    "SubagentStart",
    "SessionStart",
    "SessionEnd",
    "Notification",
    "PermissionRequest",
    "PermissionDenied",
    "PreCompact",
    "PostCompact",
    "PostToolBatch",
    "UserPromptExpansion",
    "MessageDisplay",
    "TaskCreated",
    "TaskCompleted",
    "TodoCreated",
    "TodoCompleted",
    "TeammateIdle",
    "FileChanged",
    "CwdChanged",
    "DirectoryAdded",
    "WorktreeCreate",
    "WorktreeRemove",
    "InstructionsLoaded",
    "ConfigChange",
    "PreModelSwitch",
    "PostModelSwitch",
    "Elicitation",
    "ElicitationResult",
    "Setup",
];

impl Host for ClaudeCode {
    fn name(&self) -> &'static str {
        "claude-code"
    }

    fn is_surely(&self, payload: &Value) -> bool {
        // Older versions have no `prompt_id`, but all other programs with this format send one of these fields with a tool.
        let of_others = ["turn_id", "timestamp", "cursor_version", "model"];
        let has_id = has(payload, &["prompt_id"]) && !has(payload, &["timestamp"]);
        has(payload, &["hook_event_name"])
            && (has_id || has(payload, &["tool_name"]) && !has(payload, &of_others))
    }

    fn hear(&self, payload: &Value) -> Result<HookCall, String> {
        let event = event(payload, effects)?;
        let mut heard = heard(payload, &["session_id"], event)?;
        heard.turn = text(payload, &["prompt_id"]);
        heard.subagent = text(payload, &["agent_id"]);
        Ok(heard)
    }

    fn may_be_before_a_tool(&self, text: &str) -> bool {
        may_be_before_a_tool(text)
    }

    fn block(&self, reason: &str, _: Option<&Call>) -> Value {
        block(reason)
    }

    fn change_input(&self, input: Value) -> Option<Value> {
        Some(json!({"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": input}}))
    }

    fn tell(&self, words: &str, report: &ToolReport) -> Option<Value> {
        Some(tell(words, report))
    }

    fn tell_at_prompt(&self, words: &str) -> Option<Value> {
        Some(tell_at_prompt(words))
    }

    fn greet(&self, words: &str) -> Option<Value> {
        Some(greet(words))
    }

    fn setup(&self) -> Setup {
        let entries = entries(self.name(), TOOLS);
        let variable = Some((SHELL_PREFIX, PREFIX));
        Setup::Shared { file: ".claude/settings.json", base: json!({}), entries, variable }
    }

    fn runs_commands(&self) -> bool {
        true
    }

    fn shell_prefix(&self) -> Option<ShellPrefix> {
        Some(ShellPrefix::Words(SHELL_PREFIX))
    }

    fn switches(&self) -> &'static [&'static str] {
        &[
            ".claude/settings.json",
            ".claude/settings.local.json",
            // What an administrator has set, as the program has last received it.
            ".claude/remote-settings.json",
            // Plugins bring hooks, servers and commands.
            ".claude/plugins/*",
            ".mcp.json",
            ".claude.json",
        ]
    }

    fn own_settings(&self, home: Option<&Path>) -> Vec<PathBuf> {
        own_folder(home).map(|own| own.join("settings.json")).into_iter().collect()
    }

    fn mcp(&self) -> Registry {
        Registry::servers(&[".mcp.json"], self.name())
            .then("start `claude` here once and approve the server `tollgate`")
    }

    fn traces(&self) -> Traces {
        Traces { program: "claude", home: ".claude", project: &[".claude", "CLAUDE.md"] }
    }

    fn hooks_off(&self, home: Option<&Path>, root: &Path) -> Option<String> {
        let settings = SettingsFiles::read(settings(home, root));
        let managed = SettingsFiles::read(managed());
        managed.any(&["disableAllHooks", "allowManagedHooksOnly"], is_on).or_else(|| {
            let keys = ["disableAllHooks", "env.CLAUDE_CODE_SIMPLE"];
            keys.into_iter().find_map(|key| settings.first(key, is_on))
        })
    }

    fn server_off(&self, home: Option<&Path>, root: &Path) -> Option<String> {
        let lists = ["disabledMcpjsonServers", "disabledMcpServers", "deniedMcpServers"];
        let all = SettingsFiles::read(managed().into_iter().chain(settings(home, root)));
        let is_ours = |list: &Value| names(list, |name| name == SERVER);
        // What a person has chosen for this folder.
        let folder = match Surroundings::folder_in("CLAUDE_CONFIG_DIR") {
            Some(folder) => Some(folder),
            None => home.map(Path::to_owned),
        };
        let choices = SettingsFiles::read(folder.map(|folder| folder.join(".claude.json")));
        all.any(&lists, is_ours)
            .or_else(|| all.any(&["allowedMcpServers"], |list| leaves_out(list, SERVER)))
            .or_else(|| {
                choices.any(&["projects"], |projects| {
                    let project = root.to_str().map_or(&Value::Null, |root| &projects[root]);
                    lists.iter().any(|list| is_ours(&project[list]))
                })
            })
    }

    fn shell_marks(&self) -> &'static [&'static str] {
        &["CLAUDECODE"]
    }

    fn canary(&self, session: &str, folder: &Path, event: Canary, file: &Path) -> Value {
        canary(session, folder, event, file)
    }
}

/// The settings of a person and of a project. The first file that has a key decides.
fn settings(home: Option<&Path>, root: &Path) -> impl Iterator<Item = PathBuf> {
    let project = ["settings.local.json", "settings.json"].map(|name| root.join(".claude").join(name));
    project.into_iter().chain(own_folder(home).map(|own| own.join("settings.json")))
}

fn own_folder(home: Option<&Path>) -> Option<PathBuf> {
    Surroundings::folder_in("CLAUDE_CONFIG_DIR").or_else(|| home.map(|home| home.join(".claude")))
}

/// The settings of an administrator.
fn managed() -> Vec<PathBuf> {
    let folder = Path::new("/etc/claude-code");
    let parts = std::fs::read_dir(folder.join("managed-settings.d")).into_iter().flatten().flatten();
    parts.map(|part| part.path()).chain([folder.join("managed-settings.json")]).collect()
}

/// The hooks of a program with these events. `tools` are those that change or show files.
pub(super) fn entries(host: &'static str, tools: &'static str) -> Vec<(&'static str, Value)> {
    let say = || command(host);
    grouped(
        &[
            ("SessionStart", None, say()),
            ("UserPromptSubmit", None, say()),
            ("PreToolUse", Some("*"), command_or(host, EXIT_2)),
            ("PostToolUse", Some(tools), say()),
            ("PostToolUseFailure", Some(tools), say()),
            ("Stop", None, say()),
            ("SubagentStop", None, say()),
            ("SessionEnd", None, say()),
        ],
        10,
    )
}

/// An event of this format, with the tools of the program that sent it.
pub(super) fn event(payload: &Value, effects: fn(&str, &Value) -> ToolEffects) -> Result<HookEvent, String> {
    let name = text(payload, &["hook_event_name"]).ok_or("it has no `hook_event_name`")?;
    let call = || call(payload, ["tool_use_id", "tool_name", "tool_input"], effects);
    Ok(match name.as_str() {
        "SessionStart" => HookEvent::Started,
        "UserPromptSubmit" => HookEvent::Prompt,
        "PreToolUse" => HookEvent::Before(call()?),
        "PostToolUse" => {
            let call = call()?;
            let aftermath = aftermath(&call, &payload["tool_response"]);
            HookEvent::After(call, aftermath)
        }
        "PostToolUseFailure" => {
            let call = call()?;
            // The error of a command has its output.
            let shown = match (&call.effects, text(payload, &["error"])) {
                (ToolEffects::Shell { .. }, Some(output)) => Shown::Text(output),
                _ => Shown::default(),
            };
            HookEvent::After(
                call,
                ToolReport { failed: true, by_event: true, shown, ..ToolReport::default() },
            )
        }
        "Stop" => HookEvent::Stopped,
        "SessionEnd" => HookEvent::Gone,
        // Without an id it would look like the end of the main agent.
        "SubagentStop" if has(payload, &["agent_id"]) => HookEvent::Gone,
        name if OTHERS.contains(&name) || has(payload, &["tool_response", "tool_result", "error"]) => {
            HookEvent::Other
        }
        _ => unknown(payload, call()),
    })
}

pub(super) fn block(reason: &str) -> Value {
    // No other key: some programs with this format ignore an answer with unknown keys, and then do not block.
    json!({"hookSpecificOutput": {
        "hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": reason,
    }})
}

pub(super) fn tell(words: &str, report: &ToolReport) -> Value {
    // An answer that names another event than the one it answers is discarded.
    let event = if report.by_event { "PostToolUseFailure" } else { "PostToolUse" };
    json!({"hookSpecificOutput": {"hookEventName": event, "additionalContext": words}})
}

pub(super) fn tell_at_prompt(words: &str) -> Value {
    json!({"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": words}})
}

pub(super) fn greet(words: &str) -> Value {
    json!({"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": words}})
}

/// Any text may be the event before a tool, unless it names another event.
pub(super) fn may_be_before_a_tool(text: &str) -> bool {
    text.contains("PreToolUse") || !says(text, "hook_event_name", OTHERS)
}

pub(super) fn canary(session: &str, folder: &Path, event: Canary, file: &Path) -> Value {
    let (name, tool, input) = match event {
        Canary::BeforeRead => ("PreToolUse", "Read", json!({"file_path": file})),
        Canary::AfterRead => ("PostToolUse", "Read", json!({"file_path": file})),
        Canary::BeforeWrite => ("PreToolUse", "Write", json!({"file_path": file, "content": "canary"})),
        Canary::BeforeCommand => ("PreToolUse", "Bash", json!({"command": print(file)})),
    };
    json!({"session_id": session, "prompt_id": session, "cwd": folder, "hook_event_name": name,
        "tool_name": tool, "tool_input": input, "tool_use_id": tool, "tool_response": {}})
}

fn effects(tool: &str, input: &Value) -> ToolEffects {
    const PATH: &[&str] = &["file_path", "notebook_path", "path"];
    ToolEffects::Files(match tool {
        "Read" => read(input, PATH, &["offset", "limit", "pages"]),
        "Write" => write(input, PATH, &["content"]),
        "Edit" | "MultiEdit" => {
            let one = |edit: &Value| replacement(edit, &["old_string"], &["new_string"], &["replace_all"]);
            let edits = match input.get("edits").and_then(Value::as_array) {
                Some(edits) => edits.iter().filter_map(one).collect(),
                None => one(input).into_iter().collect(),
            };
            changed(input, PATH, |path| FileEffect::Edit(path, edits))
        }
        "NotebookEdit" => changed(input, PATH, |path| FileEffect::Edit(path, Vec::new())),
        "Bash" => return shell(input, &["command"], &[]),
        _ => return other(tool, HARMLESS),
    })
}

fn aftermath(call: &Call, response: &Value) -> ToolReport {
    let number = |name: &str| response["file"].get(name).and_then(Value::as_u64);
    let shown = match (&call.effects, response) {
        (ToolEffects::Shell { .. }, Value::String(output)) => Shown::Text(output.clone()),
        (ToolEffects::Shell { .. }, response) => {
            let output = |name: &str| text(response, &[name]).unwrap_or_default();
            Shown::Text(output("stdout") + &output("stderr"))
        }
        // Claude Code found the same mtime as before, so it showed nothing.
        _ if response["type"] == "file_unchanged" => Shown::Nothing,
        _ if is(&response["file"], &["truncatedByTokenCap"]) || number("numLines") < number("totalLines") => {
            Shown::InPart
        }
        _ => Shown::AsAsked,
    };
    let replaced = || {
        let file = path(response, &["filePath", "notebook_path"])?;
        Some((file, text(response, &["originalFile", "original_file"])?))
    };
    ToolReport { failed: has(response, &["error"]), by_event: false, shown, replaced: replaced() }
}
