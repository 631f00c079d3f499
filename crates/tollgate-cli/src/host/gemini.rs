//! Gemini CLI: hooks in `.gemini/settings.json`. Its calls and turns have no ids.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tollgate::turn::Extent;

use super::event::{Call, FileEffect, HookCall, HookEvent, Shown, ToolEffects, ToolReport};
use super::fields::{
    call, changed, has, heard, other, path, print, read, replacement, says, shell, text, unknown, write,
};
use super::mcp::{NAME as SERVER, Registry};
use super::program::{Canary, Host, ShellPrefix, Traces};
use super::settings_files::{SettingsFiles, leaves_out, names, variable_for_hooks};
use super::setup::{Setup, command, command_or, grouped};

pub(super) struct Gemini;

const TOOLS: &str = "read_file|read_many_files|write_file|replace|run_shell_command";

/// Tools that change no files of the workspace.
const HARMLESS: &[&str] = &[
    "list_directory",
    "glob",
    "grep_search",
    "search_file_content",
    "google_web_search",
    "web_fetch",
    "save_memory",
    "write_todos",
    "ask_user",
    "activate_skill",
    "get_internal_docs",
    "enter_plan_mode",
    "exit_plan_mode",
];

/// Events that are not about a tool that is about to run.
const OTHERS: &[&str] = &[
    "AfterTool",
    "BeforeAgent",
    "AfterAgent",
    "SessionStart",
    "SessionEnd",
    "PreCompress",
    "Notification",
    "BeforeModel",
    "AfterModel",
    "BeforeToolSelection",
];

/// Gemini ignores the exit code of a hook. Only an answer blocks.
const OTHERWISE: &str = "echo '{\"decision\":\"deny\",\"reason\":\"the tollgate hook crashed; this write was blocked; see: tollgate doctor\"}'";

impl Host for Gemini {
    fn name(&self) -> &'static str {
        "gemini"
    }

    fn is_surely(&self, payload: &Value) -> bool {
        let event = text(payload, &["hook_event_name"]).unwrap_or_default();
        let own =
            ["BeforeTool", "AfterTool", "BeforeAgent", "AfterAgent", "PreCompress"].contains(&event.as_str());
        own || has(payload, &["timestamp"])
            && has(payload, &["transcript_path"])
            && !has(payload, &["permission_mode"])
            && event.starts_with("Session")
    }

    fn hear(&self, payload: &Value) -> Result<HookCall, String> {
        let name = text(payload, &["hook_event_name"]).ok_or("it has no `hook_event_name`")?;
        let call = || call(payload, ["tool_use_id", "tool_name", "tool_input"], effects);
        let event = match name.as_str() {
            "SessionStart" => HookEvent::Started,
            "BeforeAgent" => HookEvent::Prompt,
            "BeforeTool" => HookEvent::Before(call()?),
            "AfterTool" => {
                let call = call()?;
                let aftermath = aftermath(&call, &payload["tool_response"]);
                HookEvent::After(call, aftermath)
            }
            "AfterAgent" => HookEvent::Stopped,
            "SessionEnd" => HookEvent::Gone,
            name if OTHERS.contains(&name) || has(payload, &["tool_response"]) => HookEvent::Other,
            _ => unknown(payload, call()),
        };
        heard(payload, &["session_id"], event)
    }

    fn may_be_before_a_tool(&self, text: &str) -> bool {
        text.contains("BeforeTool") || !says(text, "hook_event_name", OTHERS)
    }

    fn block(&self, reason: &str, _: Option<&Call>) -> Value {
        json!({"decision": "deny", "reason": reason})
    }

    fn change_input(&self, input: Value) -> Option<Value> {
        Some(json!({"hookSpecificOutput": {"hookEventName": "BeforeTool", "tool_input": input}}))
    }

    fn tell(&self, words: &str, _: &ToolReport) -> Option<Value> {
        Some(json!({"hookSpecificOutput": {"hookEventName": "AfterTool", "additionalContext": words}}))
    }

    fn tell_at_prompt(&self, words: &str) -> Option<Value> {
        Some(json!({"hookSpecificOutput": {"hookEventName": "BeforeAgent", "additionalContext": words}}))
    }

    fn greet(&self, words: &str) -> Option<Value> {
        Some(json!({"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": words}}))
    }

    fn setup(&self) -> Setup {
        let say = || command(self.name());
        let entries = grouped(
            &[
                ("SessionStart", None, say()),
                ("BeforeAgent", None, say()),
                ("BeforeTool", Some("*"), command_or(self.name(), OTHERWISE)),
                ("AfterTool", Some(TOOLS), say()),
                ("AfterAgent", None, say()),
                ("SessionEnd", None, say()),
            ],
            // In milliseconds.
            10_000,
        );
        Setup::Shared { file: ".gemini/settings.json", base: json!({}), entries, variable: None }
    }

    /// It runs commands with `bash -c`, and only a person can give it the variable: in a `.env` file, of which it loads one only.
    fn shell_prefix(&self) -> Option<ShellPrefix> {
        Some(ShellPrefix::StartFile("BASH_ENV"))
    }

    fn switches(&self) -> &'static [&'static str] {
        &[
            ".gemini/settings.json",
            ".gemini/trustedFolders.json",
            ".gemini/extensions/*",
            ".gemini/mcp-server-enablement.json",
            ".gemini/policies/*",
            // What its sandbox executes before the program.
            ".gemini/sandbox.bashrc",
            ".gemini/sandbox.Dockerfile",
            ".gemini/.env",
            ".gemini/tollgate.bash",
        ]
    }

    fn hooks_off(&self, home: Option<&Path>, root: &Path) -> Option<String> {
        let settings = SettingsFiles::read(settings(home, root));
        // A list of all files together.
        let is_ours = |name: &str| name.contains("tollgate hook");
        settings
            .first("hooksConfig.enabled", |enabled| *enabled == false)
            .or_else(|| settings.any(&["hooksConfig.disabled"], |list| names(list, is_ours)))
            .or_else(|| variable_for_hooks(&environment(home, root)?))
    }

    fn server_off(&self, home: Option<&Path>, root: &Path) -> Option<String> {
        let settings = SettingsFiles::read(settings(home, root));
        let chosen = home.map(|home| home.join(".gemini/mcp-server-enablement.json"));
        settings
            .first("admin.mcp.enabled", |enabled| *enabled == false)
            .or_else(|| settings.any(&["mcp.excluded"], |list| names(list, |name| name == SERVER)))
            .or_else(|| settings.first("mcp.allowed", |list| leaves_out(list, SERVER)))
            .or_else(|| SettingsFiles::read(chosen).first("tollgate.enabled", |enabled| *enabled == false))
    }

    fn own_settings(&self, home: Option<&Path>) -> Vec<PathBuf> {
        let names = ["settings.json", "mcp-server-enablement.json", ".env", "tollgate.bash"];
        home.into_iter().flat_map(|home| names.map(|name| home.join(".gemini").join(name))).collect()
    }

    fn mcp(&self) -> Registry {
        Registry::servers(&[".gemini/settings.json"], self.name())
    }

    fn traces(&self) -> Traces {
        Traces { program: "gemini", home: ".gemini", project: &[".gemini", "GEMINI.md"] }
    }

    fn shell_marks(&self) -> &'static [&'static str] {
        &["GEMINI_CLI"]
    }

    fn canary(&self, session: &str, folder: &Path, event: Canary, file: &Path) -> Value {
        let (name, tool, input) = match event {
            Canary::BeforeRead => ("BeforeTool", "read_file", json!({"file_path": file})),
            Canary::AfterRead => ("AfterTool", "read_file", json!({"file_path": file})),
            Canary::BeforeWrite => {
                ("BeforeTool", "write_file", json!({"file_path": file, "content": "canary"}))
            }
            Canary::BeforeCommand => ("BeforeTool", "run_shell_command", json!({"command": print(file)})),
        };
        json!({"session_id": session, "cwd": folder, "hook_event_name": name, "timestamp": "2026-01-01T00:00:00Z",
            "tool_name": tool, "tool_input": input, "tool_response": {"llmContent": "one\n"}})
    }
}

/// The settings. The first file that has a key decides.
fn settings(home: Option<&Path>, root: &Path) -> impl Iterator<Item = PathBuf> {
    let system = Path::new("/etc/gemini-cli");
    let own = home.map(|home| home.join(".gemini/settings.json"));
    let project = [system.join("settings.json"), root.join(".gemini/settings.json")];
    project.into_iter().chain(own).chain([system.join("system-defaults.json")])
}

/// The only `.env` file that Gemini loads in this folder.
fn environment(home: Option<&Path>, root: &Path) -> Option<PathBuf> {
    let mut folders = root.ancestors().chain(home);
    let files = |folder: &Path| [folder.join(".gemini/.env"), folder.join(".env")];
    folders.find_map(|folder| files(folder).into_iter().find(|file| file.exists()))
}

fn effects(tool: &str, input: &Value) -> ToolEffects {
    const PATH: &[&str] = &["file_path", "absolute_path", "path"];
    ToolEffects::Files(match tool {
        "read_file" => read(input, PATH, &["start_line", "end_line", "offset", "limit"]),
        "read_many_files" => {
            // Patterns are not files, and a missing file is not shown.
            let lists = ["paths", "include"].iter().filter_map(|name| input.get(name)?.as_array());
            let words =
                lists.flatten().filter_map(Value::as_str).filter(|word| !word.contains(['*', '?', '[']));
            words.map(|word| FileEffect::Read(word.into(), Extent::Whole)).collect()
        }
        "write_file" => write(input, PATH, &["content"]),
        "replace" => {
            let edit =
                replacement(input, &["old_string"], &["new_string"], &["allow_multiple", "replace_all"]);
            changed(input, PATH, |path| FileEffect::Edit(path, edit.into_iter().collect()))
        }
        "run_shell_command" => return shell(input, &["command"], &["dir_path", "directory"]),
        _ => return other(tool, HARMLESS),
    })
}

fn aftermath(call: &Call, response: &Value) -> ToolReport {
    let output = text(response, &["llmContent"]);
    let shown = match (&call.effects, output) {
        (ToolEffects::Shell { .. }, Some(output)) => Shown::Text(output),
        (_, Some(output)) if output.starts_with("IMPORTANT: The file content has been truncated") => {
            Shown::InPart
        }
        _ if call.tool == "read_many_files" => Shown::InPart,
        _ => Shown::AsAsked,
    };
    let display = &response["returnDisplay"];
    let is_new = display["isNewFile"] == true;
    let replaced = || Some((path(display, &["filePath"])?, text(display, &["originalContent"])?));
    let replaced = replaced().filter(|_| !is_new);
    ToolReport { failed: has(response, &["error"]), by_event: false, shown, replaced }
}
