//! Codex CLI: hooks in `.codex/hooks.json`. It has no tool that reads: it reads with a shell, and writes by patches.

use std::path::Path;

use serde_json::{Value, json};

use super::claude_code;
use super::fields::{has, heard, shell, text};
use super::setup::{EXIT_2, command, command_or, grouped};
use super::{Canary, Host, Registry, Setup, Traces, Trust};
use crate::hook::event::{Deeds, Heard};
use crate::hook::patch;

pub(super) struct Codex;

impl Host for Codex {
    fn name(&self) -> &'static str {
        "codex"
    }

    fn is_surely(&self, payload: &Value) -> bool {
        has(payload, &["hook_event_name"]) && has(payload, &["turn_id"]) && has(payload, &["model"])
    }

    fn hear(&self, payload: &Value) -> Result<Heard, String> {
        let event = claude_code::event(payload, deeds)?;
        let mut heard = heard(payload, &["session_id"], event)?;
        heard.turn = text(payload, &["turn_id"]);
        heard.helper = text(payload, &["agent_id"]);
        Ok(heard)
    }

    fn may_be_before_a_tool(&self, text: &str) -> bool {
        claude_code::may_be_before_a_tool(text)
    }

    fn block(&self, reason: &str) -> Value {
        claude_code::block(reason)
    }

    fn tell(&self, words: &str) -> Option<Value> {
        Some(claude_code::tell(words))
    }

    fn setup(&self) -> Setup {
        let say = || command(self.name());
        let entries = grouped(
            &[
                ("UserPromptSubmit", None, say()),
                ("PreToolUse", Some("*"), command_or(self.name(), EXIT_2)),
                ("PostToolUse", Some("*"), say()),
                ("Stop", None, say()),
                ("SubagentStop", None, say()),
                ("SessionEnd", None, say()),
            ],
            10,
        );
        Setup::Shared { file: ".codex/hooks.json", base: json!({}), entries }
    }

    fn mcp(&self) -> Registry {
        Registry::tables(".codex/config.toml", self.name())
            .then("start `codex` here once and trust this folder: it reads the file only then")
    }

    fn traces(&self) -> Traces {
        Traces { program: "codex", home: ".codex", project: &[".codex"] }
    }

    fn trust(&self, home: Option<&Path>, root: &Path) -> Trust {
        let how = "start `codex` here once and agree to the hooks with `/hooks`";
        let config = home.map(|home| std::fs::read_to_string(home.join(".codex/config.toml")));
        let Some(Ok(config)) = config else { return Trust::Missing(how) };
        // Trust is by file and hash, under `hooks.state`. The hash is the program's secret; the file is not.
        let file = root.join(".codex/hooks.json");
        let trusted = config.contains("[hooks.state") && config.contains(&*file.to_string_lossy());
        if trusted { Trust::Given } else { Trust::Missing(how) }
    }

    fn canary(&self, session: &str, folder: &Path, event: Canary, file: &Path) -> Value {
        let mut payload = claude_code::canary(session, folder, event, file);
        let path = file.display();
        let (tool, input) = match event {
            Canary::BeforeRead | Canary::AfterRead => ("Bash", format!("cat '{path}'")),
            Canary::BeforeWrite => (
                "apply_patch",
                format!("*** Begin Patch\n*** Update File: {path}\n@@\n-one\n+canary\n*** End Patch"),
            ),
        };
        payload["tool_name"] = tool.into();
        payload["tool_input"] = json!({"command": input});
        payload["tool_response"] = "one\n".into();
        payload["turn_id"] = session.into();
        payload["model"] = "canary".into();
        payload.as_object_mut().map(|payload| payload.shift_remove("prompt_id"));
        payload
    }
}

fn deeds(tool: &str, input: &Value) -> Deeds {
    match tool {
        "Bash" | "exec_command" | "shell" | "shell_command" | "local_shell" => {
            shell(input, &["command", "cmd"], &["workdir"])
        }
        "apply_patch" => Deeds::Files(
            text(input, &["command", "input", "patch"]).map(|text| patch::deeds(&text)).unwrap_or_default(),
        ),
        _ => Deeds::none(),
    }
}
