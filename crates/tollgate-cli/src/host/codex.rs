//! Codex CLI: hooks in `.codex/hooks.json`. It has no tool for reading: it reads with shell commands and writes with patches.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tollgate::digest::Digest;

use super::claude_code;
use super::event::{Call, HookCall, ToolEffects, ToolReport};
use super::fields::{has, heard, other, patched, print, shell, text};
use super::mcp::{NAME as SERVER, Registry};
use super::program::{Canary, Host, Traces};
use super::settings_files::{SettingsFiles, is_on};
use super::setup::{EXIT_2, Setup, Trust, command, command_or, grouped, is_ours};
use crate::surroundings::Surroundings;

pub(super) struct Codex;

const FILE: &str = ".codex/hooks.json";

/// The longest time in seconds that Codex waits for a hook at the end of a session, even if the configuration says more.
const LONGEST_END: u64 = 3;

/// Our hooks: the place of each in Codex's notation, and the hash under which Codex stores a person's approval.
///
/// The hash is that of the event, the matcher and the hook, with all defaults filled in, as JSON with sorted keys. It was
/// compared with the answer of Codex CLI 0.166.0 (`hooks/list` of its `app-server`).
fn identities(hooks: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (event, groups) in hooks["hooks"].as_object().into_iter().flatten() {
        let event = snake(event);
        for (group_at, group) in groups.as_array().into_iter().flatten().enumerate() {
            for (at, hook) in group["hooks"].as_array().into_iter().flatten().enumerate() {
                let Some(command) = hook["command"].as_str().filter(|_| is_ours(hook)) else { continue };
                let timeout = hook["timeout"].as_u64().unwrap_or(600).max(1);
                let timeout = if event == "session_end" { timeout.min(LONGEST_END) } else { timeout };
                let mut identity = json!({
                    "event_name": event,
                    "hooks": [{"async": false, "command": command, "timeout": timeout, "type": "command"}],
                });
                if let Some(matcher) = group["matcher"].as_str() {
                    identity["matcher"] = matcher.into();
                }
                let hash = Digest::of(identity.to_string().as_bytes());
                found.push((format!("{event}:{group_at}:{at}"), format!("sha256:{hash}")));
            }
        }
    }
    found
}

/// The user's folder, where Codex looks for it.
fn own_folder(home: Option<&Path>) -> Option<PathBuf> {
    Surroundings::folder_in("CODEX_HOME").or_else(|| home.map(|home| home.join(".codex")))
}

/// `PreToolUse` as `pre_tool_use`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

impl Host for Codex {
    fn name(&self) -> &'static str {
        "codex"
    }

    fn is_surely(&self, payload: &Value) -> bool {
        has(payload, &["hook_event_name"]) && has(payload, &["turn_id"]) && has(payload, &["model"])
    }

    fn hear(&self, payload: &Value) -> Result<HookCall, String> {
        let event = claude_code::event(payload, effects)?;
        let mut heard = heard(payload, &["session_id"], event)?;
        heard.turn = text(payload, &["turn_id"]);
        heard.subagent = text(payload, &["agent_id"]);
        Ok(heard)
    }

    fn may_be_before_a_tool(&self, text: &str) -> bool {
        claude_code::may_be_before_a_tool(text)
    }

    fn block(&self, reason: &str, _: Option<&Call>) -> Value {
        claude_code::block(reason)
    }

    /// Codex ignores a changed input without this decision. Its own rules still judge the changed command.
    fn change_input(&self, input: Value) -> Option<Value> {
        let changed =
            json!({"hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": input});
        Some(json!({"hookSpecificOutput": changed}))
    }

    fn runs_commands(&self) -> bool {
        true
    }

    fn tell(&self, words: &str, report: &ToolReport) -> Option<Value> {
        Some(claude_code::tell(words, report))
    }

    fn tell_at_prompt(&self, words: &str) -> Option<Value> {
        Some(claude_code::tell_at_prompt(words))
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
        Setup::Shared { file: FILE, base: json!({}), entries, variable: None }
    }

    fn switches(&self) -> &'static [&'static str] {
        // Profiles, plugins and rules have any names. Its own sandbox closes the folder of a project, too.
        &[".codex/*"]
    }

    fn own_settings(&self, home: Option<&Path>) -> Vec<PathBuf> {
        let own = own_folder(home).into_iter();
        own.flat_map(|own| ["config.toml", "hooks.json"].map(|name| own.join(name))).collect()
    }

    fn mcp(&self) -> Registry {
        Registry::tables(&[".codex/config.toml"], self.name())
            .then("start `codex` here once and trust this folder; it ignores the file until then")
    }

    fn traces(&self) -> Traces {
        Traces { program: "codex", home: ".codex", project: &[".codex"] }
    }

    fn hooks_off(&self, home: Option<&Path>, root: &Path) -> Option<String> {
        let managed = SettingsFiles::read(["/etc/codex/requirements.toml".into()]);
        let own = [Some(root.join(".codex")), own_folder(home), Some("/etc/codex".into())];
        let layers = SettingsFiles::read(own.into_iter().flatten().map(|folder| folder.join("config.toml")));
        let features = ["features.hooks", "features.codex_hooks"];
        managed.any(&["allow_managed_hooks_only"], is_on).or_else(|| {
            let off = |value: &Value| *value == false;
            features.into_iter().find_map(|key| managed.first(key, off).or_else(|| layers.first(key, off)))
        })
    }

    fn server_off(&self, _: Option<&Path>, _: &Path) -> Option<String> {
        let managed = SettingsFiles::read(["/etc/codex/requirements.toml".into()]);
        managed.any(&["mcp_servers"], |allowed| allowed.is_object() && allowed.get(SERVER).is_none())
    }

    fn trust(&self, home: Option<&Path>, root: &Path) -> Trust {
        if let Some(by) = self.hooks_off(home, root) {
            return Trust::SwitchedOff(by);
        }
        let read = |path: &Path| std::fs::read_to_string(path).ok();
        let file = root.join(FILE);
        let config = own_folder(home).and_then(|folder| read(&folder.join("config.toml")));
        let config = config.and_then(|text| text.parse::<toml::Table>().ok()).unwrap_or_default();
        let hooks = read(&file).and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let state = |key: &str| config.get("hooks")?.get("state")?.get(key);
        for (place, hash) in identities(&hooks) {
            let state = state(&format!("{}:{place}", file.display()));
            if state.and_then(|state| state.get("enabled")?.as_bool()) == Some(false) {
                return Trust::SwitchedOff("disabled by `enabled = false` in Codex's `config.toml`".into());
            }
            match state.and_then(|state| state.get("trusted_hash")?.as_str()) {
                Some(trusted) if trusted == hash => {}
                Some(_) => {
                    return Trust::Missing(
                        "the hooks have changed: approve them again with `/hooks` in `codex`",
                    );
                }
                None => {
                    return Trust::Missing("start `codex` here once and approve the hooks with `/hooks`");
                }
            }
        }
        let projects = config.get("projects");
        let level = |folder: &Path| projects?.get(folder.to_str()?)?.get("trust_level")?.as_str();
        match root.ancestors().find_map(level) {
            Some("trusted") => Trust::Given,
            _ => Trust::Missing("start `codex` here once and trust this folder"),
        }
    }

    fn shell_marks(&self) -> &'static [&'static str] {
        &["CODEX_THREAD_ID", "CODEX_SANDBOX", "CODEX_CI"]
    }

    fn canary(&self, session: &str, folder: &Path, event: Canary, file: &Path) -> Value {
        let mut payload = claude_code::canary(session, folder, event, file);
        let path = file.display();
        let (tool, input) = match event {
            Canary::BeforeRead | Canary::AfterRead | Canary::BeforeCommand => ("Bash", print(file)),
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

fn effects(tool: &str, input: &Value) -> ToolEffects {
    match tool {
        "Bash" | "exec_command" | "shell" | "shell_command" | "local_shell" => {
            shell(input, &["command", "cmd"], &["workdir"])
        }
        "apply_patch" => ToolEffects::Files(patched(input, &["command", "input", "patch"])),
        _ => other(
            tool,
            &["update_plan", "view_image", "web_search", "request_user_input", "spawn_agent", "wait"],
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hashes that Codex CLI 0.166.0 reported for the hooks that `init` writes.
    #[test]
    fn the_hashes_are_those_of_codex() {
        let Setup::Shared { entries, .. } = Codex.setup() else { panic!("it shares its file") };
        let mut hooks = json!({"hooks": {}});
        for (event, entry) in entries {
            hooks["hooks"][event] = json!([entry]);
        }
        let told = [
            ("user_prompt_submit", "4f654f41cd0e7a5bef97d28b96e41dc217987a66e7a986ef1f4bec118d4098b5"),
            ("pre_tool_use", "6433e760c5566bd130f65d07de348e7adbecba3792d0cd38de8bfa18da9edb4d"),
            ("post_tool_use", "8a626a8b37e35d0cf4a87cf9728845a8bf11f569b6c5a2de45436d8c240fd670"),
            ("stop", "6c93c90fb96f91f2a6edd10b22f19bf3e0561b0641dd45ff0880e91feaa24294"),
            ("subagent_stop", "a8937a1613a4f106981ae91e21cb402652c4fcbf698fd2b6a9e495b655660612"),
            ("session_end", "218e278d8580c2a81fd224cb27d3b2bba1fdde17fe8de520ed0e79aea2be422e"),
        ];
        let told = told.map(|(event, hash)| (format!("{event}:0:0"), format!("sha256:{hash}")));
        assert_eq!(identities(&hooks), told);
    }
}
