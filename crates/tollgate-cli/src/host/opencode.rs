//! opencode: hooks are functions of a plugin. tollgate's plugin in `.opencode/plugin/` passes the events to the command.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::event::{Call, FileEffect, HookCall, HookEvent, Shown, ToolEffects, ToolReport};
use super::fields::{
    call, changed, has, is, other, patched, path, print, read, replacement, says, shell, text, unknown, write,
};
use super::mcp::Registry;
use super::program::{Canary, Host, Traces};
use super::settings_files::SettingsFiles;
use super::setup::Setup;
use crate::replace::FileAccess;
use crate::surroundings::Surroundings;

pub(super) struct Opencode;

pub(super) const PLUGIN: &str = include_str!("opencode_plugin.js");

/// Tools that change no files of the workspace.
const HARMLESS: &[&str] = &[
    "glob",
    "grep",
    "list",
    "task",
    "todowrite",
    "todoread",
    "webfetch",
    "websearch",
    "codesearch",
    "question",
    "skill",
    "lsp",
    "invalid",
];

impl Host for Opencode {
    fn name(&self) -> &'static str {
        "opencode"
    }

    fn is_surely(&self, payload: &Value) -> bool {
        passed_on(payload) && text(payload, &["program"]).is_none_or(|program| program == self.name())
    }

    fn hear(&self, payload: &Value) -> Result<HookCall, String> {
        hear(payload, effects)
    }

    fn may_be_before_a_tool(&self, text: &str) -> bool {
        let others = ["tool.execute.after", "chat.message", "session.idle", "session.deleted"];
        text.contains("tool.execute.before") || !says(text, "hook", &others)
    }

    fn block(&self, reason: &str, _: Option<&Call>) -> Value {
        json!({"deny": reason})
    }

    fn change_input(&self, input: Value) -> Option<Value> {
        Some(json!({"args": input}))
    }

    fn runs_commands(&self) -> bool {
        true
    }

    fn tell(&self, words: &str, _: &ToolReport) -> Option<Value> {
        Some(json!({"note": words}))
    }

    fn setup(&self) -> Setup {
        Setup::Own(vec![(".opencode/plugin/tollgate.js", PLUGIN.into(), FileAccess::Normal)])
    }

    fn switches(&self) -> &'static [&'static str] {
        // The user's own files are in `~/.config/opencode`.
        &[
            "opencode.json",
            "opencode.jsonc",
            "opencode/config.json",
            // Plugins for its screen.
            "tui.json",
            "tui.jsonc",
            ".opencode/plugin/*",
            ".opencode/plugins/*",
            "opencode/plugin/*",
            "opencode/plugins/*",
            // Its tools are code, too, and so are the packages that plugins and tools import.
            ".opencode/tool/*",
            ".opencode/tools/*",
            "opencode/tool/*",
            "opencode/tools/*",
            ".opencode/package.json",
            ".opencode/node_modules/*",
        ]
    }

    fn server_off(&self, home: Option<&Path>, root: &Path) -> Option<String> {
        let own = own_folder(home, "opencode");
        let folders = [Some(root.join(".opencode")), Some(root.to_owned()), own.clone()];
        let files = |folder: PathBuf| ["opencode.jsonc", "opencode.json"].map(|name| folder.join(name));
        let files = folders.into_iter().flatten().flat_map(files);
        server_off(files.chain(own.map(|own| own.join("config.json"))))
    }

    fn own_settings(&self, home: Option<&Path>) -> Vec<PathBuf> {
        let own = own_folder(home, "opencode").into_iter();
        own.flat_map(|own| ["opencode.json", "opencode.jsonc", "config.json"].map(|name| own.join(name)))
            .collect()
    }

    fn mcp(&self) -> Registry {
        let base = json!({"$schema": "https://opencode.ai/config.json"});
        Registry::json(&["opencode.json", "opencode.jsonc"], "mcp", base, server, self.name())
    }

    fn traces(&self) -> Traces {
        Traces {
            program: "opencode",
            home: ".config/opencode",
            project: &[".opencode", "opencode.json", "opencode.jsonc"],
        }
    }

    fn shell_marks(&self) -> &'static [&'static str] {
        &["OPENCODE", "OPENCODE_CLIENT"]
    }

    fn canary(&self, session: &str, folder: &Path, event: Canary, file: &Path) -> Value {
        let (hook, tool, args) = match event {
            Canary::BeforeRead => ("tool.execute.before", "read", json!({"filePath": file})),
            Canary::AfterRead => ("tool.execute.after", "read", json!({"filePath": file})),
            Canary::BeforeWrite => {
                ("tool.execute.before", "write", json!({"filePath": file, "content": "canary"}))
            }
            Canary::BeforeCommand => ("tool.execute.before", "bash", json!({"command": print(file)})),
        };
        json!({"hook": hook, "directory": folder, "output": {"args": args},
            "input": {"tool": tool, "sessionID": session, "callID": tool, "args": args}})
    }
}

/// Whether the plugin of this program, or of one made from it, has passed the payload on.
pub(super) fn passed_on(payload: &Value) -> bool {
    has(payload, &["hook"]) && has(payload, &["directory"])
}

/// The event that the plugin passes on, with these effects of tools.
pub(super) fn hear(
    payload: &Value,
    effects: impl Fn(&str, &Value) -> ToolEffects + Copy,
) -> Result<HookCall, String> {
    let name = text(payload, &["hook"]).ok_or("it has no `hook`")?;
    let (input, output) = (&payload["input"], &payload["output"]);
    let tool = |args: &Value| {
        let call_of = json!({"tool": input.get("tool"), "callID": input.get("callID"), "args": args});
        call(&call_of, ["callID", "tool", "args"], effects)
    };
    let event = match name.as_str() {
        "chat.message" => HookEvent::Prompt,
        "tool.execute.before" => HookEvent::Before(tool(&output["args"])?),
        "tool.execute.after" => {
            let call = tool(&input["args"])?;
            let shown = match (&call.effects, text(output, &["output"])) {
                (ToolEffects::Shell { .. }, Some(output)) => Shown::Text(output),
                _ if is(&output["metadata"], &["truncated"]) => Shown::InPart,
                _ => Shown::AsAsked,
            };
            HookEvent::After(call, ToolReport { shown, ..ToolReport::default() })
        }
        "session.idle" => HookEvent::Stopped,
        "session.deleted" => HookEvent::Gone,
        _ => unknown(payload, tool(&output["args"])),
    };
    Ok(HookCall {
        session: text(input, &["sessionID"]).ok_or("it has no `sessionID`")?,
        // A subagent has its own session.
        subagent: None,
        turn: None,
        model: None,
        prompt: None,
        folder: path(payload, &["directory"]).ok_or("it has no `directory`")?,
        event,
    })
}

/// By which of these settings, from the nearest to the farthest, our server is disabled.
pub(super) fn server_off(files: impl IntoIterator<Item = PathBuf>) -> Option<String> {
    let settings = SettingsFiles::read(files);
    let off = |value: &Value| *value == false;
    let patterns = ["tools.tollgate*", "tools.tollgate_*", "tools.*"];
    settings
        .first("mcp.tollgate.enabled", off)
        .or_else(|| patterns.into_iter().find_map(|pattern| settings.first(pattern, off)))
}

/// Our entry among the MCP servers, which starts this command.
pub(super) fn server(words: Vec<&str>) -> Value {
    json!({"type": "local", "command": words, "enabled": true})
}

/// The user's own folder of the program with this name.
pub(super) fn own_folder(home: Option<&Path>, program: &str) -> Option<PathBuf> {
    let own = Surroundings::folder_in("XDG_CONFIG_HOME").or_else(|| Some(home?.join(".config")));
    own.map(|own| own.join(program))
}

pub(super) fn effects(tool: &str, input: &Value) -> ToolEffects {
    const PATH: &[&str] = &["filePath", "path"];
    ToolEffects::Files(match tool {
        "read" => read(input, PATH, &["offset", "limit"]),
        "write" => write(input, PATH, &["content"]),
        "edit" | "multiedit" => {
            let one = |edit: &Value| replacement(edit, &["oldString"], &["newString"], &["replaceAll"]);
            let edits = match input.get("edits").and_then(Value::as_array) {
                Some(edits) => edits.iter().filter_map(one).collect(),
                None => one(input).into_iter().collect(),
            };
            changed(input, PATH, |path| FileEffect::Edit(path, edits))
        }
        "apply_patch" | "patch" => patched(input, &["patchText", "patch"]),
        "bash" => return shell(input, &["command"], &["workdir"]),
        _ => return other(tool, HARMLESS),
    })
}
