//! The protocols in which the programs ask their models.

use serde_json::{Value, json};

use super::model::{Act, Door, Speaks, State};

/// The type and the body of the answer to a request.
pub(super) fn answer(head: &str, body: &str, state: &mut State) -> (&'static str, String) {
    const EVENTS: &str = "text/event-stream";
    let request: Value = serde_json::from_str(body).unwrap_or_default();
    let asks = request["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    match state.speaks {
        Speaks::Codex if head.contains("/responses") => (EVENTS, state.codex(body)),
        Speaks::Gemini if head.contains(":streamGenerateContent") && asks => (EVENTS, state.gemini(body)),
        Speaks::Opencode | Speaks::Copilot | Speaks::Cline | Speaks::Qwen | Speaks::Kilo
            if head.contains("/chat/completions") =>
        {
            // Without tools, it asks for the title of the session.
            let title = || chat(&json!({"role": "assistant", "content": "title"}), "stop");
            // In a long session, Copilot also asks for a summary of it, with tools and beside the session.
            let last = request["messages"].as_array().and_then(|messages| messages.last());
            let is_aside = state.has_begun() && last.is_some_and(|last| last["role"] == "user");
            (EVENTS, if asks && !is_aside { state.completion(body) } else { title() })
        }
        Speaks::Claude if head.contains("/count_tokens") => {
            ("application/json", json!({"input_tokens": 1}).to_string())
        }
        Speaks::Claude if head.contains("/v1/messages") => {
            let act = if asks { state.claude(body) } else { None };
            let is_stream = request["stream"] == true;
            (if is_stream { EVENTS } else { "application/json" }, message(act, is_stream))
        }
        // Questions about the choice of a model, loops and the like. Without a readable answer it asks again.
        Speaks::Gemini => {
            let part = json!({"text": "{\"reasoning\": \"none\", \"model_choice\": \"flash\"}"});
            let answer = json!({"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}]});
            ("application/json", answer.to_string())
        }
        _ => ("application/json", "{}".into()),
    }
}

/// What the last tool showed the model.
pub(super) fn last_result(speaks: Speaks, body: &str) -> String {
    let request: Value = serde_json::from_str(body).unwrap_or_default();
    let list = |name: &str| request[name].as_array().cloned().unwrap_or_default();
    let results: Vec<Value> = match speaks {
        Speaks::Codex => list("input").into_iter().filter(|item| item.get("output").is_some()).collect(),
        Speaks::Gemini => {
            let parts = list("contents").into_iter().flat_map(|content| content["parts"].as_array().cloned());
            parts.flatten().filter(|part| part.get("functionResponse").is_some()).collect()
        }
        Speaks::Claude => {
            let blocks =
                list("messages").into_iter().flat_map(|message| message["content"].as_array().cloned());
            blocks.flatten().filter(|block| block["type"] == "tool_result").collect()
        }
        // After the result, Cline adds what a hook said about the call.
        Speaks::Cline => {
            let messages = list("messages");
            let at = messages.iter().rposition(|message| message["role"] == "tool").unwrap_or(messages.len());
            vec![messages.into_iter().skip(at).map(|message| message["content"].clone()).collect()]
        }
        Speaks::Opencode | Speaks::Copilot | Speaks::Qwen | Speaks::Kilo => {
            list("messages").into_iter().filter(|message| message["role"] == "tool").collect()
        }
    };
    // Without the ids, which look like lines.
    match results.last() {
        Some(result) => {
            let parts =
                ["output", "functionResponse", "content"].into_iter().find_map(|name| result.get(name));
            parts.unwrap_or(result).to_string().replace("\\n", " ")
        }
        None => String::new(),
    }
}

impl State {
    fn codex(&mut self, body: &str) -> String {
        let act = self.step(body);
        let id = self.id("call");
        let shell = |command: &str| json!({"type": "function_call", "call_id": id, "name": "exec_command", "arguments": json!({"cmd": command, "yield_time_ms": 30_000}).to_string()});
        let patch = |text: &str| json!({"type": "custom_tool_call", "call_id": id, "name": "apply_patch", "input": text});
        let item = match act {
            Some(act) if self.door == Door::Mcp => {
                let (name, arguments) = act.over_mcp();
                json!({"type": "function_call", "call_id": id, "namespace": "mcp__tollgate", "name": name, "arguments": arguments.to_string()})
            }
            Some(Act::Read(file)) => shell(&format!("cat {file}")),
            Some(Act::Overwrite(file, text)) => {
                let lines: String = text.lines().map(|line| format!("+{line}\n")).collect();
                patch(&format!("*** Begin Patch\n*** Add File: {file}\n{lines}*** End Patch"))
            }
            Some(Act::Edit(file, old, new)) => {
                let lines = |sign: char, text: &str| -> String {
                    text.lines().map(|line| format!("{sign}{line}\n")).collect()
                };
                let (old, new) = (lines('-', old), lines('+', new));
                patch(&format!("*** Begin Patch\n*** Update File: {file}\n@@\n{old}{new}*** End Patch"))
            }
            Some(Act::Patch(text)) => patch(text),
            Some(Act::Shell(command)) => shell(command),
            Some(Act::Tool(..) | Act::AddLine(..)) => panic!("only over MCP"),
            None => {
                json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]})
            }
        };
        let usage = json!({"input_tokens": 1, "input_tokens_details": null, "output_tokens": 1, "output_tokens_details": null, "total_tokens": 2});
        let events = [
            json!({"type": "response.created", "response": {"id": "r"}}),
            json!({"type": "response.output_item.done", "item": item}),
            json!({"type": "response.completed", "response": {"id": "r", "usage": usage}}),
        ];
        sent(&events)
    }

    fn gemini(&mut self, body: &str) -> String {
        let call = |name: &str, args: Value| json!({"functionCall": {"name": name, "args": args}});
        let part = match self.step(body) {
            Some(act) if self.door == Door::Mcp => {
                let (name, arguments) = act.over_mcp();
                call(&format!("mcp_tollgate_{name}"), arguments)
            }
            Some(Act::Read(file)) => call("read_file", json!({"file_path": self.path(file)})),
            Some(Act::Overwrite(file, text)) => {
                call("write_file", json!({"file_path": self.path(file), "content": text}))
            }
            Some(Act::Edit(file, old, new)) => call(
                "replace",
                json!({"file_path": self.path(file), "instruction": "change it", "old_string": old, "new_string": new}),
            ),
            Some(Act::Shell(command)) => {
                call("run_shell_command", json!({"command": command, "description": "a command"}))
            }
            Some(Act::Patch(_) | Act::Tool(..) | Act::AddLine(..)) => panic!("it has no such tool"),
            None => json!({"text": "done"}),
        };
        let answer = json!({
            "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        });
        format!("data: {answer}\n\n")
    }

    fn completion(&mut self, body: &str) -> String {
        let act = self.step(body);
        let id = self.id("call");
        let call = |(name, args): (&str, Value)| {
            let function = json!({"name": name, "arguments": args.to_string()});
            let call = json!({"index": 0, "id": id, "type": "function", "function": function});
            chat(&json!({"role": "assistant", "tool_calls": [call]}), "tool_calls")
        };
        let server = match self.speaks {
            Speaks::Copilot => "tollgate-",
            Speaks::Cline => "tollgate__",
            Speaks::Qwen => "mcp__tollgate__",
            _ => "tollgate_",
        };
        let Some(act) = act else {
            return chat(&json!({"role": "assistant", "content": "done"}), "stop");
        };
        if self.door == Door::Mcp {
            let (name, arguments) = act.over_mcp();
            return call((&format!("{server}{name}"), arguments));
        }
        call(match self.speaks {
            Speaks::Copilot => self.copilot(&act),
            Speaks::Cline => self.cline(&act),
            Speaks::Qwen => self.qwen(&act),
            _ => self.opencode(&act),
        })
    }

    fn opencode(&self, act: &Act) -> (&'static str, Value) {
        match *act {
            Act::Read(file) => ("read", json!({"filePath": self.path(file)})),
            Act::Overwrite(file, text) => ("write", json!({"filePath": self.path(file), "content": text})),
            Act::Edit(file, old, new) => {
                ("edit", json!({"filePath": self.path(file), "oldString": old, "newString": new}))
            }
            Act::Shell(command) => ("bash", json!({"command": command, "description": "a command"})),
            Act::Patch(text) => ("apply_patch", json!({"patchText": text})),
            Act::Tool(..) | Act::AddLine(..) => panic!("only over MCP"),
        }
    }

    /// It has no tool that overwrites a file.
    fn copilot(&self, act: &Act) -> (&'static str, Value) {
        let bash = |command: &str| {
            (
                "bash",
                json!({"command": command, "description": "a command", "mode": "sync", "initial_wait": 60}),
            )
        };
        match *act {
            Act::Read(file) => ("view", json!({"path": self.path(file)})),
            Act::Overwrite(file, text) => bash(&heredoc(file, text)),
            Act::Edit(file, old, new) => {
                ("edit", json!({"path": self.path(file), "old_str": old, "new_str": new}))
            }
            Act::Shell(command) => bash(command),
            Act::Patch(_) | Act::Tool(..) | Act::AddLine(..) => panic!("it has no such tool"),
        }
    }

    /// Its tool for edits also creates files, but does not overwrite them.
    fn cline(&self, act: &Act) -> (&'static str, Value) {
        let run = |command: &str| ("run_commands", json!({"commands": [command]}));
        match *act {
            Act::Read(file) => ("read_files", json!({"files": [{"path": self.path(file)}]})),
            Act::Overwrite("new", text) => ("editor", json!({"path": self.path("new"), "new_text": text})),
            Act::Overwrite(file, text) => run(&heredoc(file, text)),
            Act::Edit(file, old, new) => {
                ("editor", json!({"path": self.path(file), "old_text": old, "new_text": new}))
            }
            Act::Shell(command) => run(command),
            Act::Patch(_) | Act::Tool(..) | Act::AddLine(..) => panic!("it has no such tool"),
        }
    }

    fn qwen(&self, act: &Act) -> (&'static str, Value) {
        match *act {
            Act::Read(file) => ("read_file", json!({"file_path": self.path(file)})),
            Act::Overwrite(file, text) => {
                ("write_file", json!({"file_path": self.path(file), "content": text}))
            }
            Act::Edit(file, old, new) => {
                ("edit", json!({"file_path": self.path(file), "old_string": old, "new_string": new}))
            }
            Act::Shell(command) => {
                ("run_shell_command", json!({"command": command, "description": "a command"}))
            }
            Act::Patch(_) | Act::Tool(..) | Act::AddLine(..) => panic!("it has no such tool"),
        }
    }

    /// The next tool call of Claude Code: id, name and arguments.
    fn claude(&mut self, body: &str) -> Option<(String, String, Value)> {
        if self.door == Door::Mcp && !body.contains("\"mcp__tollgate__") {
            // The program asks its model before the server is ready.
            let waits = body.matches("toolu_wait_").count();
            let wait = json!({"command": "sleep 0.1", "description": "wait for the server"});
            return Some((format!("toolu_wait_{waits}"), "Bash".into(), wait));
        }
        let act = self.step(body)?;
        let id = self.id("toolu");
        if self.door == Door::Mcp {
            let (name, arguments) = act.over_mcp();
            return Some((id, format!("mcp__tollgate__{name}"), arguments));
        }
        let (name, arguments) = match act {
            Act::Read(file) => ("Read", json!({"file_path": self.path(file)})),
            Act::Overwrite(file, text) => ("Write", json!({"file_path": self.path(file), "content": text})),
            Act::Edit(file, old, new) => {
                ("Edit", json!({"file_path": self.path(file), "old_string": old, "new_string": new}))
            }
            Act::Shell(command) => ("Bash", json!({"command": command, "description": "a command"})),
            Act::Patch(_) | Act::Tool(..) | Act::AddLine(..) => panic!("it has no such tool"),
        };
        Some((id, name.into(), arguments))
    }
}

fn heredoc(file: &str, text: &str) -> String {
    format!("cat > {file} <<'EOF'\n{text}EOF")
}

/// A message to Claude Code: this tool call, or a word to end with.
fn message(act: Option<(String, String, Value)>, is_stream: bool) -> String {
    let mut message = json!({"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 1, "output_tokens": 1}});
    if !is_stream {
        message["content"] = json!([{"type": "text", "text": "done"}]);
        message["stop_reason"] = "end_turn".into();
        return message.to_string();
    }
    let (block, delta, reason) = match act {
        None => {
            (json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": "done"}), "end_turn")
        }
        Some((id, name, arguments)) => (
            json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
            json!({"type": "input_json_delta", "partial_json": arguments.to_string()}),
            "tool_use",
        ),
    };
    let events = [
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": {"output_tokens": 1}}),
        json!({"type": "message_stop"}),
    ];
    sent(&events)
}

/// Events as a stream.
fn sent(events: &[Value]) -> String {
    events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
        .collect()
}

fn chat(delta: &Value, reason: &str) -> String {
    let chunk = |delta: &Value, reason: Value| {
        json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
    };
    format!(
        "data: {}\n\ndata: {}\n\ndata: [DONE]\n\n",
        chunk(delta, Value::Null),
        chunk(&json!({}), reason.into())
    )
}
