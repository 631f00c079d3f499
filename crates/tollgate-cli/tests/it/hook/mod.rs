//! Hooks: a simulated agent program that sends payloads in each program's format.

mod answers;
mod came;
mod faults;
mod links;
mod names;
mod payloads;
mod places;
mod prefix;
mod protected;
mod real;
mod reservations;
pub(crate) mod run;
mod run_settings;
mod saves;
mod setup;
mod shared;
mod stories;
pub(crate) mod switched_off;
mod tidy;
mod unknown;

use std::cell::Cell;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

pub(crate) use came::Came;

use crate::world::{Ran, World};

/// The names of the programs on the command line.
pub(crate) const HOSTS: [&str; 9] =
    ["claude-code", "codex", "gemini", "opencode", "cursor", "copilot", "cline", "qwen", "kilo"];

/// The program whose payloads, tools and answers this one has.
pub(crate) fn form(host: &str) -> &str {
    if host == "kilo" { "opencode" } else { host }
}

/// A tool and its arguments.
pub(crate) enum Tool<'a> {
    Read(&'a str),
    ReadPart(&'a str),
    Write(&'a str, &'a str),
    Edit(&'a str, &'a str, &'a str),
    Shell(&'a str),
    Patch(&'a str),
}

/// One session of one agent program.
pub(crate) struct Program<'w> {
    world: &'w World,
    host: &'static str,
    session: String,
    subagent: Option<String>,
    turn: Cell<u32>,
    calls: Cell<u32>,
    environment: Vec<(&'static str, String)>,
}

impl<'w> Program<'w> {
    pub(crate) fn new(world: &'w World, host: &'static str, session: &str) -> Self {
        let (turn, calls) = (Cell::new(1), Cell::new(0));
        Self { world, host, session: session.into(), subagent: None, turn, calls, environment: Vec::new() }
    }

    /// The same program, started with these variables.
    pub(crate) fn started_with(self, environment: Vec<(&'static str, String)>) -> Self {
        Self { environment, ..self }
    }

    pub(crate) fn subagent(&self, name: &str) -> Self {
        Self {
            subagent: Some(name.into()),
            session: self.session.clone(),
            ..Self::new(self.world, self.host, "")
        }
    }

    fn hook(&self, payload: &Value) -> Ran {
        let mut run = self.world.tollgate(["hook", self.host]).stdin(payload.to_string());
        for (name, value) in &self.environment {
            run = run.env(name, value);
        }
        run.ends().is(0)
    }

    /// Sends a payload that must not be answered.
    #[track_caller]
    pub(crate) fn says(&self, payload: &Value) {
        let ran = self.hook(payload);
        assert_eq!((ran.stdout(), ran.stderr()), (String::new(), String::new()), "{payload}");
    }

    fn base(&self) -> Value {
        let (session, folder, turn) = (&self.session, self.world.root(), self.turn.get());
        let mut payload = match form(self.host) {
            "claude-code" => {
                json!({"session_id": session, "prompt_id": format!("p{turn}"), "transcript_path": "/t", "cwd": folder})
            }
            "codex" => {
                json!({"session_id": session, "turn_id": format!("t{turn}"), "model": "m", "transcript_path": null, "cwd": folder})
            }
            "gemini" => {
                json!({"session_id": session, "transcript_path": "/t", "cwd": folder, "timestamp": "2026-11-15T00:00:07.581Z"})
            }
            "opencode" => json!({"directory": folder, "input": {"sessionID": session}, "output": {}}),
            "cursor" => {
                json!({"conversation_id": session, "generation_id": format!("g{turn}"), "cursor_version": "3", "workspace_roots": [folder]})
            }
            "copilot" => json!({"sessionId": session, "timestamp": 1, "cwd": folder}),
            "cline" => json!({"taskId": session, "clineVersion": "4", "workspaceRoots": [folder]}),
            "qwen" => {
                json!({"session_id": session, "prompt_id": format!("{session}########{turn}"), "transcript_path": "/t", "cwd": folder, "timestamp": "2026-11-15T00:00:07.581Z", "permission_mode": "default"})
            }
            other => panic!("{other}"),
        };
        if let Some(subagent) = &self.subagent {
            payload["agent_id"] = subagent.as_str().into();
            payload["parent_agent_id"] = "main".into();
        }
        payload
    }

    fn event(&self, names: [&str; 8]) -> Value {
        let at = HOSTS.iter().position(|host| *host == form(self.host)).unwrap();
        let key = match form(self.host) {
            "opencode" => "hook",
            "cline" => "hookName",
            _ => "hook_event_name",
        };
        let mut payload = self.base();
        if self.host == "kilo" {
            payload["program"] = self.host.into();
        }
        if self.host != "copilot" {
            payload[key] = names[at].into();
        }
        payload
    }

    pub(crate) fn prompts(&self) {
        let told = self.hears_at_prompt();
        assert!(told.is_empty() || told.starts_with("note: "), "{told}");
    }

    /// A person sends a prompt. Returns what the agent is told beside it.
    pub(crate) fn hears_at_prompt(&self) -> String {
        self.turn.set(self.turn.get() + 1);
        let mut payload = self.event([
            "UserPromptSubmit",
            "UserPromptSubmit",
            "BeforeAgent",
            "chat.message",
            "beforeSubmitPrompt",
            "",
            "prompt_submit",
            "UserPromptSubmit",
        ]);
        payload["prompt"] = "please".into();
        self.told(&payload)
    }

    pub(crate) fn stops(&self) {
        let mut payload =
            self.event(["Stop", "Stop", "AfterAgent", "session.idle", "stop", "", "agent_end", "Stop"]);
        payload["stopReason"] = "end_turn".into();
        self.says(&payload);
    }

    pub(crate) fn leaves(&self) {
        let mut payload = self.event([
            "SessionEnd",
            "SessionEnd",
            "SessionEnd",
            "session.deleted",
            "sessionEnd",
            "",
            "session_shutdown",
            "SessionEnd",
        ]);
        payload["reason"] = "complete".into();
        self.says(&payload);
    }

    /// The program's name of a tool, and its arguments.
    fn spelled(&self, tool: &Tool<'_>) -> (&'static str, Value) {
        let path = |name: &str| self.world.path(name);
        let cat = |name: &str, text: &str| format!("cat > {name} <<'END_OF_FILE'\n{text}END_OF_FILE\n");
        match (form(self.host), tool) {
            ("claude-code", Tool::Read(file)) => ("Read", json!({"file_path": path(file)})),
            ("claude-code", Tool::ReadPart(file)) => {
                ("Read", json!({"file_path": path(file), "offset": 1, "limit": 1}))
            }
            ("claude-code", Tool::Write(file, text)) => {
                ("Write", json!({"file_path": path(file), "content": text}))
            }
            ("claude-code", Tool::Edit(file, old, new)) => {
                ("Edit", json!({"file_path": path(file), "old_string": old, "new_string": new}))
            }
            ("codex", Tool::Read(file)) => ("Bash", json!({"command": format!("cat {file}")})),
            ("codex", Tool::ReadPart(file)) => ("Bash", json!({"command": format!("sed -n 1,1p {file}")})),
            ("codex", Tool::Write(file, text)) => ("Bash", json!({"command": cat(file, text)})),
            ("codex", Tool::Edit(file, old, new)) => (
                "apply_patch",
                json!({"command": format!("*** Begin Patch\n*** Update File: {file}\n@@\n-{old}\n+{new}\n*** End Patch")}),
            ),
            ("codex", Tool::Patch(text)) => ("apply_patch", json!({"command": text})),
            ("gemini" | "qwen", Tool::Read(file)) => ("read_file", json!({"file_path": path(file)})),
            ("gemini", Tool::ReadPart(file)) => {
                ("read_file", json!({"file_path": path(file), "start_line": 1, "end_line": 1}))
            }
            ("qwen", Tool::ReadPart(file)) => {
                ("read_file", json!({"file_path": path(file), "offset": 0, "limit": 1}))
            }
            ("gemini" | "qwen", Tool::Write(file, text)) => {
                ("write_file", json!({"file_path": path(file), "content": text}))
            }
            ("gemini", Tool::Edit(file, old, new)) => (
                "replace",
                json!({"file_path": path(file), "instruction": "i", "old_string": old, "new_string": new}),
            ),
            ("qwen", Tool::Edit(file, old, new)) => {
                ("edit", json!({"file_path": path(file), "old_string": old, "new_string": new}))
            }
            ("opencode", Tool::Read(file)) => ("read", json!({"filePath": path(file)})),
            ("opencode", Tool::ReadPart(file)) => {
                ("read", json!({"filePath": path(file), "offset": 0, "limit": 1}))
            }
            ("opencode", Tool::Write(file, text)) => {
                ("write", json!({"filePath": path(file), "content": text}))
            }
            ("opencode", Tool::Edit(file, old, new)) => {
                ("edit", json!({"filePath": path(file), "oldString": old, "newString": new}))
            }
            ("opencode", Tool::Patch(text)) => ("apply_patch", json!({"patchText": text})),
            ("cursor", Tool::Read(file)) => ("Read", json!({"file_path": path(file)})),
            ("cursor", Tool::ReadPart(file)) => ("Read", json!({"file_path": path(file), "limit": 1})),
            ("cursor", Tool::Write(file, text)) => {
                ("Write", json!({"file_path": path(file), "content": text}))
            }
            ("cursor", Tool::Edit(file, old, new)) => {
                ("Write", json!({"file_path": path(file), "old_string": old, "new_string": new}))
            }
            ("copilot", Tool::Read(file)) => ("view", json!({"path": path(file)})),
            ("copilot", Tool::ReadPart(file)) => ("view", json!({"path": path(file), "view_range": [1, 1]})),
            ("copilot", Tool::Write(file, text)) => {
                ("create", json!({"path": path(file), "file_text": text}))
            }
            ("copilot", Tool::Edit(file, old, new)) => {
                ("edit", json!({"path": path(file), "old_str": old, "new_str": new}))
            }
            ("cline", Tool::Read(file)) => ("read_files", json!({"files": [{"path": path(file)}]})),
            ("cline", Tool::ReadPart(file)) => {
                ("read_files", json!({"files": [{"path": path(file), "start_line": 1, "end_line": 1}]}))
            }
            ("cline", Tool::Write(file, text)) => ("editor", json!({"path": path(file), "new_text": text})),
            ("cline", Tool::Edit(file, old, new)) => {
                ("editor", json!({"path": path(file), "old_text": old, "new_text": new}))
            }
            ("cline", Tool::Shell(text)) => ("run_commands", json!({"commands": [text]})),
            ("gemini" | "qwen", Tool::Shell(text)) => ("run_shell_command", json!({"command": text})),
            ("cursor", Tool::Shell(text)) => ("Shell", json!({"command": text})),
            ("opencode" | "copilot", Tool::Shell(text)) => ("bash", json!({"command": text})),
            (_, Tool::Shell(text)) => ("Bash", json!({"command": text})),
            (_, Tool::Patch(text)) => ("apply_patch", json!({"patch": text, "input": text})),
            (host, _) => panic!("{host}"),
        }
    }

    /// The payload before a tool.
    pub(crate) fn before(&self, tool: &Tool<'_>, call: &str) -> Value {
        let (name, input) = self.spelled(tool);
        let mut payload = self.event([
            "PreToolUse",
            "PreToolUse",
            "BeforeTool",
            "tool.execute.before",
            "preToolUse",
            "",
            "tool_call",
            "PreToolUse",
        ]);
        match form(self.host) {
            "opencode" => {
                payload["input"]["tool"] = name.into();
                payload["input"]["callID"] = call.into();
                payload["output"] = json!({"args": input});
            }
            "copilot" => {
                payload["toolName"] = name.into();
                payload["toolArgs"] = input;
            }
            "cline" => payload["tool_call"] = json!({"id": call, "name": name, "input": input}),
            "gemini" => {
                payload["tool_name"] = name.into();
                payload["tool_input"] = input;
            }
            _ => {
                payload["tool_name"] = name.into();
                payload["tool_input"] = input;
                payload["tool_use_id"] = call.into();
            }
        }
        payload
    }

    pub(crate) fn after(&self, tool: &Tool<'_>, call: &str, output: &str) -> Value {
        let mut payload = self.before(tool, call);
        let (name, input) = self.spelled(tool);
        let at = HOSTS.iter().position(|host| *host == form(self.host)).unwrap();
        let names = [
            "PostToolUse",
            "PostToolUse",
            "AfterTool",
            "tool.execute.after",
            "postToolUse",
            "",
            "tool_result",
            "PostToolUse",
        ];
        let shell = matches!(tool, Tool::Shell(_));
        match form(self.host) {
            "claude-code" if shell => payload["tool_response"] = json!({"stdout": output, "stderr": ""}),
            "claude-code" => payload["tool_response"] = json!({}),
            "codex" => payload["tool_response"] = output.into(),
            "gemini" | "qwen" => {
                payload["tool_response"] = json!({"llmContent": output, "returnDisplay": ""});
            }
            "opencode" => {
                payload["input"]["args"] = input;
                payload["output"] = json!({"title": "t", "output": output, "metadata": {"truncated": false}});
            }
            "cursor" => payload["tool_output"] = output.into(),
            "copilot" => payload["toolResult"] = json!({"resultType": "success", "textResultForLlm": output}),
            "cline" => {
                payload["tool_result"] = json!({"id": call, "name": name, "input": input, "output": output});
            }
            _ => {}
        }
        match form(self.host) {
            "copilot" => {}
            "opencode" => payload["hook"] = names[at].into(),
            "cline" => payload["hookName"] = names[at].into(),
            _ => payload["hook_event_name"] = names[at].into(),
        }
        payload
    }

    /// The reason for which the answer to this payload blocks the tool, if it does.
    pub(crate) fn asks(&self, payload: &Value) -> Option<String> {
        self.blocks(&self.hook(payload))
    }

    /// The reason for which this answer blocks the tool, if it does.
    fn blocks(&self, ran: &Ran) -> Option<String> {
        if ran.stdout().is_empty() {
            return None;
        }
        let answer = ran.json();
        if run::changed(self.host, &answer).is_some() {
            // It may run, through `tollgate run`.
            return None;
        }
        assert!(!answer.to_string().contains("allow"), "{answer}");
        let reason = match form(self.host) {
            "claude-code" | "codex" | "qwen" => {
                let answer = &answer["hookSpecificOutput"];
                assert_eq!(
                    (&answer["hookEventName"], &answer["permissionDecision"]),
                    (&"PreToolUse".into(), &"deny".into())
                );
                &answer["permissionDecisionReason"]
            }
            "gemini" => {
                assert_eq!(answer["decision"], "deny");
                &answer["reason"]
            }
            "opencode" => &answer["deny"],
            "cursor" => {
                assert_eq!(answer["permission"], "deny");
                &answer["agent_message"]
            }
            "copilot" => {
                assert_eq!(answer["permissionDecision"], "deny");
                &answer["permissionDecisionReason"]
            }
            _ if answer["cancel"] == true => &answer["errorMessage"],
            _ => {
                assert!(answer["overrideInput"].is_object(), "{answer}");
                &answer["context"]
            }
        };
        Some(reason.as_str().unwrap_or_else(|| panic!("{answer}")).to_owned())
    }

    /// Uses a tool, as the program does.
    #[track_caller]
    pub(crate) fn uses(&self, tool: &Tool<'_>) -> Came {
        self.uses_while(tool, || {})
    }

    /// Uses a tool, and does something between the hook and the tool.
    #[track_caller]
    pub(crate) fn uses_while(&self, tool: &Tool<'_>, in_between: impl FnOnce()) -> Came {
        self.calls.set(self.calls.get() + 1);
        let call = format!("call-{}", self.calls.get());
        if let Some(reason) = self.asks(&self.before(tool, &call)) {
            return Came::Blocked(reason);
        }
        in_between();
        let output = self.does(tool);
        self.ends(&self.after(tool, &call, &output));
        Came::Ran(output)
    }

    /// Uses a tool, and returns what the agent is told after it.
    #[track_caller]
    pub(crate) fn hears(&self, tool: &Tool<'_>) -> String {
        self.calls.set(self.calls.get() + 1);
        let call = format!("call-{}", self.calls.get());
        assert_eq!(self.asks(&self.before(tool, &call)), None);
        let output = self.does(tool);
        self.told(&self.after(tool, &call, &output))
    }

    /// Sends the payload after a tool. The answer may only have notes: others may have changed files, or work on the same ones.
    #[track_caller]
    pub(crate) fn ends(&self, payload: &Value) {
        let told = self.told(payload);
        assert!(told.is_empty() || told.starts_with("note: "), "{told}");
    }

    /// What a payload makes tollgate tell the agent.
    fn told(&self, payload: &Value) -> String {
        let ran = self.hook(payload);
        let answer = if ran.stdout().is_empty() { return String::new() } else { ran.json() };
        let told = match form(self.host) {
            "opencode" => &answer["note"],
            _ => &answer["hookSpecificOutput"]["additionalContext"],
        };
        told.as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Runs the program's own tool, without tollgate.
    fn does(&self, tool: &Tool<'_>) -> String {
        let world = self.world;
        match tool {
            Tool::Read(file) => fs::read_to_string(world.path(file)).unwrap_or_default(),
            Tool::ReadPart(file) => {
                let text = fs::read_to_string(world.path(file)).unwrap_or_default();
                text.lines().next().unwrap_or_default().to_owned() + "\n"
            }
            Tool::Write(file, text) => {
                world.puts(file, text);
                "written".into()
            }
            Tool::Edit(file, old, new) => {
                let text = fs::read_to_string(world.path(file)).unwrap();
                world.puts(file, text.replacen(old, new, 1));
                "edited".into()
            }
            Tool::Shell(text) => {
                let ran = world.script(text).ends();
                ran.stdout() + &ran.stderr()
            }
            Tool::Patch(text) => {
                for (file, new) in patched(text) {
                    match new {
                        Some(new) => world.puts(file, new),
                        None => fs::remove_file(world.path(file)).unwrap(),
                    }
                }
                "Success".into()
            }
        }
    }

    #[track_caller]
    pub(crate) fn reads(&self, file: &str) -> &Self {
        self.uses(&Tool::Read(file)).ran();
        self
    }

    #[track_caller]
    pub(crate) fn writes(&self, file: &str, text: &str) -> Came {
        self.uses(&Tool::Write(file, text))
    }

    #[track_caller]
    pub(crate) fn edits(&self, file: &str, old: &str, new: &str) -> Came {
        self.uses(&Tool::Edit(file, old, new))
    }

    #[track_caller]
    pub(crate) fn runs(&self, command: &str) -> Came {
        self.uses(&Tool::Shell(command))
    }
}

/// The new text of each file in a patch of whole files.
fn patched(text: &str) -> Vec<(&str, Option<String>)> {
    let mut files: Vec<(&str, Option<String>)> = Vec::new();
    for line in text.lines() {
        if let Some(file) = line.strip_prefix("*** Update File: ").or(line.strip_prefix("*** Add File: ")) {
            files.push((file, Some(String::new())));
        } else if let Some(file) = line.strip_prefix("*** Delete File: ") {
            files.push((file, None));
        } else if let (Some(line), Some((_, Some(new)))) = (line.strip_prefix('+'), files.last_mut()) {
            new.push_str(line);
            new.push('\n');
        }
    }
    files
}

/// The number of reserved files.
pub(crate) fn reserved(world: &World) -> usize {
    tollgate_guard::doctor::leftovers(&world.path(".tollgate")).unwrap().reservations.len()
}

/// Changes a file without changing its size or its mtime.
pub(crate) fn change_in_secret(path: &Path, text: &str) {
    let before = fs::metadata(path).unwrap();
    assert_eq!(before.len(), text.len() as u64);
    fs::write(path, text).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
}
