//! Kilo Code (`kilo`): made from opencode, so its events, its tools and its plugins are those of opencode, in other folders.
//!
//! It does not read opencode's folders, but it reads `opencode.json` (seen in its code and when run, 7.7.7).

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::event::{Call, HookCall, ToolEffects, ToolReport};
use super::fields::{has, shell, text};
use super::mcp::Registry;
use super::opencode::{self, Opencode};
use super::program::{Canary, Host, Traces};
use super::setup::Setup;
use crate::replace::FileAccess;

pub(super) struct Kilo;

/// Tools that change no files of the workspace, and that opencode does not have.
const HARMLESS: &[&str] = &[
    "board_post",
    "board_read",
    "browser_open",
    "cancel_wakeup",
    "kilo_local_recall",
    "notify_user",
    "schedule_wakeup",
    "semantic_search",
    "suggest",
];

/// Its settings, and those of opencode that it reads, the strongest first.
const FILES: [&str; 4] = ["opencode.json", "opencode.jsonc", "kilo.json", "kilo.jsonc"];

impl Host for Kilo {
    fn name(&self) -> &'static str {
        "kilo"
    }

    fn is_surely(&self, payload: &Value) -> bool {
        opencode::passed_on(payload) && text(payload, &["program"]).as_deref() == Some(self.name())
    }

    fn hear(&self, payload: &Value) -> Result<HookCall, String> {
        opencode::hear(payload, effects)
    }

    fn may_be_before_a_tool(&self, text: &str) -> bool {
        Opencode.may_be_before_a_tool(text)
    }

    fn block(&self, reason: &str, call: Option<&Call>) -> Value {
        Opencode.block(reason, call)
    }

    fn change_input(&self, input: Value) -> Option<Value> {
        Opencode.change_input(input)
    }

    fn runs_commands(&self) -> bool {
        true
    }

    fn tell(&self, words: &str, report: &ToolReport) -> Option<Value> {
        Opencode.tell(words, report)
    }

    fn setup(&self) -> Setup {
        let plugin = opencode::PLUGIN.replace("opencode", self.name());
        Setup::Own(vec![(".kilo/plugin/tollgate.js", plugin, FileAccess::Normal)])
    }

    fn switches(&self) -> &'static [&'static str] {
        // The user's own files are in `~/.config/kilo`, `.kilocode` is the older name of `.kilo`.
        &[
            "kilo.json",
            "kilo.jsonc",
            "opencode.json",
            "opencode.jsonc",
            "kilo/config.json",
            "tui.json",
            "tui.jsonc",
            ".kilo/plugin/*",
            ".kilo/plugins/*",
            ".kilocode/plugin/*",
            ".kilocode/plugins/*",
            "kilo/plugin/*",
            "kilo/plugins/*",
            // Its tools are code, too, and so are the packages that plugins and tools import.
            ".kilo/tool/*",
            ".kilo/tools/*",
            ".kilocode/tool/*",
            ".kilocode/tools/*",
            "kilo/tool/*",
            "kilo/tools/*",
            ".kilo/package.json",
            ".kilo/node_modules/*",
            ".kilocode/package.json",
            ".kilocode/node_modules/*",
            // MCP servers, in the form of older versions.
            ".kilo/mcp.json",
            ".kilocode/mcp.json",
        ]
    }

    fn own_settings(&self, home: Option<&Path>) -> Vec<PathBuf> {
        let own = opencode::own_folder(home, self.name()).into_iter();
        own.flat_map(|own| FILES.into_iter().chain(["config.json"]).map(move |name| own.join(name))).collect()
    }

    fn server_off(&self, home: Option<&Path>, root: &Path) -> Option<String> {
        let folders = [root.join(".kilo"), root.join(".kilocode"), root.to_owned()];
        let files = folders.into_iter().flat_map(|folder| FILES.map(|name| folder.join(name)));
        opencode::server_off(files.chain(self.own_settings(home)))
    }

    fn mcp(&self) -> Registry {
        let base = json!({"$schema": "https://app.kilo.ai/config.json"});
        let files = &[".kilo/kilo.json", ".kilo/kilo.jsonc", "kilo.json", "kilo.jsonc"];
        Registry::json(files, "mcp", base, opencode::server, self.name())
    }

    fn traces(&self) -> Traces {
        Traces {
            program: "kilo",
            home: ".config/kilo",
            project: &[".kilo", ".kilocode", "kilo.json", "kilo.jsonc"],
        }
    }

    fn shell_marks(&self) -> &'static [&'static str] {
        &["KILO"]
    }

    fn canary(&self, session: &str, folder: &Path, event: Canary, file: &Path) -> Value {
        let mut payload = Opencode.canary(session, folder, event, file);
        payload["program"] = self.name().into();
        payload
    }
}

fn effects(tool: &str, input: &Value) -> ToolEffects {
    match tool {
        // Its other actions look at a process or end it.
        "background_process" if has(input, &["command"]) => match shell(input, &["command"], &["workdir"]) {
            ToolEffects::Shell { commands, folder, .. } => {
                ToolEffects::Shell { commands, folder, keep_running: true }
            }
            unreadable => unreadable,
        },
        "background_process" => ToolEffects::none(),
        tool if HARMLESS.contains(&tool) => ToolEffects::none(),
        tool => opencode::effects(tool, input),
    }
}
