//! Qwen Code: hooks in `.qwen/settings.json`. Its events are those of Claude Code, its tools those of Gemini CLI.
//!
//! Its hooks cannot change a call, so of its shell commands only the text is judged (seen in its code and when run, 0.24.4).

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::claude_code;
use super::event::{Call, FileEffect, HookCall, HookEvent, Shown, ToolEffects, ToolReport};
use super::fields::{call, changed, has, heard, other, path, print, read, replacement, shell, text, write};
use super::mcp::{NAME as SERVER, Registry};
use super::program::{Canary, Host, Traces};
use super::settings_files::{
    SettingsFiles, disabling_variable, is_on, leaves_out, names, variable_for_hooks,
};
use super::setup::Setup;
use crate::surroundings::Surroundings;

pub(super) struct Qwen;

/// The settings of a project.
const FILE: &str = ".qwen/settings.json";

const TOOLS: &str = "read_file|write_file|edit|notebook_edit|run_shell_command|monitor";

/// Tools that change no files of the workspace.
const HARMLESS: &[&str] = &[
    "agent",
    "ask_user_question",
    "cron_create",
    "cron_delete",
    "cron_list",
    "display_image",
    "enter_plan_mode",
    "exit_plan_mode",
    "get_goal",
    "glob",
    "grep_search",
    "list_agents",
    "list_directory",
    "loop_wakeup",
    "lsp",
    "propose_goal",
    "read_mcp_resource",
    "report_findings",
    "save_memory",
    "send_message",
    "skill",
    "task_create",
    "task_list",
    "task_stop",
    "task_update",
    "todo_write",
    "tool_search",
    "update_goal",
    "web_fetch",
    "web_search",
    "zoom_image",
];

/// The variables of its modes without hooks.
const MODES: &[&str] = &["QWEN_CODE_SAFE_MODE", "QWEN_CODE_SIMPLE"];

impl Host for Qwen {
    fn name(&self) -> &'static str {
        "qwen"
    }

    fn is_surely(&self, payload: &Value) -> bool {
        ["hook_event_name", "timestamp", "permission_mode"].into_iter().all(|field| has(payload, &[field]))
    }

    fn hear(&self, payload: &Value) -> Result<HookCall, String> {
        let event = match text(payload, &["hook_event_name"]).as_deref() {
            Some("PostToolUse") => {
                let call = call(payload, ["tool_use_id", "tool_name", "tool_input"], effects)?;
                let aftermath = aftermath(&call, &payload["tool_response"]);
                HookEvent::After(call, aftermath)
            }
            _ => claude_code::event(payload, effects)?,
        };
        let mut heard = heard(payload, &["session_id"], event)?;
        heard.turn = text(payload, &["prompt_id"]);
        // The results of tools arrive as an empty prompt.
        heard.prompt = heard.prompt.filter(|prompt| !prompt.is_empty());
        heard.subagent = text(payload, &["agent_id"]);
        Ok(heard)
    }

    fn may_be_before_a_tool(&self, text: &str) -> bool {
        claude_code::may_be_before_a_tool(text)
    }

    fn block(&self, reason: &str, _: Option<&Call>) -> Value {
        claude_code::block(reason)
    }

    fn tell(&self, words: &str, report: &ToolReport) -> Option<Value> {
        Some(claude_code::tell(words, report))
    }

    fn tell_at_prompt(&self, words: &str) -> Option<Value> {
        Some(claude_code::tell_at_prompt(words))
    }

    fn greet(&self, words: &str) -> Option<Value> {
        Some(claude_code::greet(words))
    }

    fn setup(&self) -> Setup {
        let entries = claude_code::entries(self.name(), TOOLS);
        Setup::Shared { file: FILE, base: base(), entries, variable: None }
    }

    fn switches(&self) -> &'static [&'static str] {
        &[
            FILE,
            ".qwen/trustedFolders.json",
            ".qwen/mcpApprovals.json",
            ".qwen/extensions/*",
            ".qwen/.env",
            // What its sandbox executes before the program.
            ".qwen/sandbox.bashrc",
            ".qwen/sandbox.Dockerfile",
        ]
    }

    fn own_settings(&self, home: Option<&Path>) -> Vec<PathBuf> {
        let own = own_folder(home).into_iter();
        own.flat_map(|own| ["settings.json", ".env"].map(|name| own.join(name))).collect()
    }

    fn hooks_off(&self, home: Option<&Path>, root: &Path) -> Option<String> {
        let settings = SettingsFiles::read(settings(home, root));
        let keys = ["disableAllHooks", "env.QWEN_CODE_SAFE_MODE", "env.QWEN_CODE_SIMPLE"];
        let of_variables =
            |file: PathBuf| disabling_variable(&file, MODES).or_else(|| variable_for_hooks(&file));
        keys.into_iter()
            .find_map(|key| settings.first(key, is_on))
            .or_else(|| settings.any(&["tools.executionSandbox"], |sandbox| !sandbox.is_null()))
            .or_else(|| environment(home, root).find_map(of_variables))
    }

    fn server_off(&self, home: Option<&Path>, root: &Path) -> Option<String> {
        let settings = SettingsFiles::read(settings(home, root));
        settings
            .any(&["mcp.excluded"], |list| names(list, |name| name == SERVER))
            .or_else(|| settings.first("mcp.allowed", |list| leaves_out(list, SERVER)))
    }

    fn mcp(&self) -> Registry {
        let entry = |words: Vec<&str>| json!({"command": words[0], "args": words[1..]});
        Registry::json(&[FILE], "mcpServers", base(), entry, self.name())
            .then("run `qwen mcp approve tollgate` here once")
    }

    fn traces(&self) -> Traces {
        Traces { program: "qwen", home: ".qwen", project: &[".qwen", "QWEN.md"] }
    }

    fn shell_marks(&self) -> &'static [&'static str] {
        &["QWEN_CODE"]
    }

    fn canary(&self, session: &str, folder: &Path, event: Canary, file: &Path) -> Value {
        let (name, tool, input) = match event {
            Canary::BeforeRead => ("PreToolUse", "read_file", json!({"file_path": file})),
            Canary::AfterRead => ("PostToolUse", "read_file", json!({"file_path": file})),
            Canary::BeforeWrite => {
                ("PreToolUse", "write_file", json!({"file_path": file, "content": "canary"}))
            }
            Canary::BeforeCommand => ("PreToolUse", "run_shell_command", json!({"command": print(file)})),
        };
        json!({"session_id": session, "prompt_id": session, "cwd": folder, "hook_event_name": name,
            "timestamp": "2026-01-01T00:00:00Z", "permission_mode": "default", "tool_name": tool,
            "tool_input": input, "tool_use_id": tool, "tool_response": {"llmContent": "one\n"}})
    }
}

/// The content of a new file. Without the version, the program adds it.
fn base() -> Value {
    json!({"$version": 4})
}

/// The settings. The first file that has a key decides.
fn settings(home: Option<&Path>, root: &Path) -> impl Iterator<Item = PathBuf> {
    let system = Path::new("/etc/qwen-code");
    let own = own_folder(home).map(|own| own.join("settings.json"));
    let project = [system.join("settings.json"), root.join(".qwen/settings.json")];
    project.into_iter().chain(own).chain([system.join("system-defaults.json")])
}

fn own_folder(home: Option<&Path>) -> Option<PathBuf> {
    Surroundings::folder_in("QWEN_HOME").or_else(|| home.map(|home| home.join(".qwen")))
}

/// The `.env` files that Qwen loads in this folder: the nearest one, and those of the user.
fn environment(home: Option<&Path>, root: &Path) -> impl Iterator<Item = PathBuf> {
    let files = |folder: &Path| [folder.join(".qwen/.env"), folder.join(".env")];
    let nearest = root.ancestors().find_map(|folder| files(folder).into_iter().find(|file| file.exists()));
    nearest.into_iter().chain(home.into_iter().flat_map(files))
}

fn effects(tool: &str, input: &Value) -> ToolEffects {
    const PATH: &[&str] = &["file_path", "notebook_path", "path"];
    ToolEffects::Files(match tool {
        "read_file" => read(input, PATH, &["offset", "limit", "pages"]),
        "write_file" => write(input, PATH, &["content"]),
        "edit" => {
            let edit = replacement(input, &["old_string"], &["new_string"], &["replace_all"]);
            changed(input, PATH, |path| FileEffect::Edit(path, edit.into_iter().collect()))
        }
        "notebook_edit" => changed(input, PATH, |path| FileEffect::Edit(path, Vec::new())),
        "run_shell_command" | "monitor" => return shell(input, &["command"], &["directory"]),
        _ => return other(tool, HARMLESS),
    })
}

fn aftermath(call: &Call, response: &Value) -> ToolReport {
    let output = text(response, &["llmContent"]);
    let shown = match (&call.effects, output) {
        (ToolEffects::Shell { .. }, Some(output)) => Shown::Text(output),
        // It found the same mtime and size as before, so it showed nothing.
        (_, Some(output))
            if output.starts_with("[File ") && output.contains(" unchanged since last read") =>
        {
            Shown::Nothing
        }
        (_, Some(output)) if output.starts_with("Showing lines ") => Shown::InPart,
        _ => Shown::AsAsked,
    };
    // A new file is reported like an empty one.
    let display = &response["returnDisplay"];
    let replaced = || Some((path(display, &["filePath"])?, text(display, &["originalContent"])?));
    let replaced = replaced().filter(|(_, text)| !text.is_empty());
    ToolReport { failed: has(response, &["error"]), by_event: false, shown, replaced }
}
