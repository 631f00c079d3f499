//! A scripted model: a small server on loopback that speaks the protocols of the three programs.
//!
//! The server answers each request with the next act of the script. Before it answers, it may change files: it also plays
//! another actor that writes while the agent thinks.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

/// The program that sends requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    Codex,
    Gemini,
    Opencode,
}

/// The tools that the model uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// The tools of the program, which calls the hooks.
    Hooks,
    /// The tools of the MCP server.
    Mcp,
}

/// An act of the model.
#[derive(Debug, Clone)]
pub(super) enum Act {
    Read(&'static str),
    Overwrite(&'static str, &'static str),
    Edit(&'static str, &'static str, &'static str),
    Shell(&'static str),
    Patch(&'static str),
    /// A tool of the MCP server, whose arguments are this JSON.
    Tool(&'static str, &'static str),
}

impl Act {
    /// The tool of the MCP server for this act, and its arguments.
    fn over_mcp(&self) -> (&'static str, Value) {
        match *self {
            Self::Read(file) => ("read_text_file", json!({"path": file})),
            Self::Overwrite(file, text) => ("write_file", json!({"path": file, "content": text})),
            Self::Edit(file, old, new) => {
                ("edit_file", json!({"path": file, "edits": [{"oldText": old, "newText": new}]}))
            }
            Self::Tool(name, arguments) => (name, serde_json::from_str(arguments).unwrap()),
            Self::Shell(_) | Self::Patch(_) => panic!("it has no such tool"),
        }
    }
}

/// How an act must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// The tool ran.
    Done,
    /// The tool was blocked, and the model was told so with the payload.
    Stale,
    /// One or the other, because another program races.
    Either,
}

/// One act of the script.
pub(super) struct Step {
    /// What another actor does before the act.
    pub(super) before: Option<Box<dyn FnMut() + Send>>,
    pub(super) act: Act,
    pub(super) ends: Ends,
}

/// The running server.
pub(super) struct Model {
    pub(super) port: u16,
    state: Arc<Mutex<State>>,
}

struct State {
    speaks: Speaks,
    door: Door,
    root: PathBuf,
    script: Vec<Step>,
    next: usize,
    blocked: usize,
    /// The acts that did not end as the script says.
    wrong: Vec<String>,
    last: String,
}

impl Model {
    pub(super) fn start(speaks: Speaks, door: Door, root: PathBuf, script: Vec<Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state =
            State { speaks, door, root, script, next: 0, blocked: 0, wrong: Vec::new(), last: String::new() };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { port, state }
    }

    pub(super) fn length(&self) -> usize {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner).script.len()
    }

    /// The number of played acts, the failures, and the last request.
    pub(super) fn ended(&self) -> (usize, Vec<String>, String) {
        let state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        (state.next, state.wrong.clone(), state.last.clone())
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut head = String::new();
    reader.read_line(&mut head).ok()?;
    let (mut length, mut chunked) = (0, false);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(number) = line.strip_prefix("content-length:") {
            length = number.trim().parse().ok()?;
        }
        chunked |= line.starts_with("transfer-encoding:") && line.contains("chunked");
    }
    let mut body = Vec::new();
    if chunked {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).ok()?;
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    } else {
        body.resize(length, 0);
        reader.read_exact(&mut body).ok()?;
    }
    let body = String::from_utf8_lossy(&body).into_owned();
    let (kind, answer) = answer(&head, &body, state);
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
        answer.len()
    )
    .ok()
}

fn answer(head: &str, body: &str, state: &Mutex<State>) -> (&'static str, String) {
    let request: Value = serde_json::from_str(body).unwrap_or_default();
    let asks = request["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    let mut state = state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    match state.speaks {
        Speaks::Codex if head.contains("/responses") => ("text/event-stream", state.codex(body)),
        Speaks::Gemini if head.contains(":streamGenerateContent") && asks => {
            ("text/event-stream", state.gemini(body))
        }
        Speaks::Opencode if head.contains("/chat/completions") && asks => {
            ("text/event-stream", state.opencode(body))
        }
        // The title of the session.
        Speaks::Opencode if head.contains("/chat/completions") => {
            ("text/event-stream", chat(&json!({"role": "assistant", "content": "title"}), "stop"))
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

impl State {
    /// Checks how the last act ended, and returns the next one.
    fn step(&mut self, body: &str) -> Option<Act> {
        self.last = body.to_owned();
        // The text after the payload does not repeat this word, so it occurs once per blocked act.
        let blocked = body.matches("STALE_FILE").count();
        if let Some(last) = self.next.checked_sub(1).and_then(|at| self.script.get(at)) {
            let was = blocked > self.blocked;
            if last.ends != Ends::Either && was != (last.ends == Ends::Stale) {
                let tail: String =
                    body.chars().rev().take(1500).collect::<Vec<_>>().into_iter().rev().collect();
                self.wrong.push(format!("act {} {:?}: blocked {was}; {tail}", self.next - 1, last.act));
            }
        }
        self.blocked = blocked;
        let step = self.script.get_mut(self.next)?;
        self.next += 1;
        if let Some(before) = &mut step.before {
            before();
        }
        Some(step.act.clone())
    }

    fn path(&self, file: &str) -> String {
        self.root.join(file).display().to_string()
    }

    fn codex(&mut self, body: &str) -> String {
        let id = format!("call_{}", self.next);
        let shell = |command: &str| json!({"type": "function_call", "call_id": id, "name": "exec_command", "arguments": json!({"cmd": command}).to_string()});
        let patch = |text: &str| json!({"type": "custom_tool_call", "call_id": id, "name": "apply_patch", "input": text});
        let item = match self.step(body) {
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
                patch(&format!("*** Begin Patch\n*** Update File: {file}\n@@\n-{old}\n+{new}\n*** End Patch"))
            }
            Some(Act::Patch(text)) => patch(text),
            Some(Act::Shell(command)) => shell(command),
            Some(Act::Tool(..)) => panic!("only over MCP"),
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
        events
            .iter()
            .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
            .collect()
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
            Some(Act::Patch(_) | Act::Tool(..)) => panic!("it has no such tool"),
            None => json!({"text": "done"}),
        };
        let answer = json!({
            "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        });
        format!("data: {answer}\n\n")
    }

    fn opencode(&mut self, body: &str) -> String {
        let id = format!("call_{}", self.next);
        let call = |name: &str, args: Value| {
            let function = json!({"name": name, "arguments": args.to_string()});
            json!({"role": "assistant", "tool_calls": [{"index": 0, "id": id, "type": "function", "function": function}]})
        };
        let delta = match self.step(body) {
            Some(act) if self.door == Door::Mcp => {
                let (name, arguments) = act.over_mcp();
                call(&format!("tollgate_{name}"), arguments)
            }
            Some(Act::Read(file)) => call("read", json!({"filePath": self.path(file)})),
            Some(Act::Overwrite(file, text)) => {
                call("write", json!({"filePath": self.path(file), "content": text}))
            }
            Some(Act::Edit(file, old, new)) => {
                call("edit", json!({"filePath": self.path(file), "oldString": old, "newString": new}))
            }
            Some(Act::Shell(command)) => {
                call("bash", json!({"command": command, "description": "a command"}))
            }
            Some(Act::Patch(text)) => call("apply_patch", json!({"patchText": text})),
            Some(Act::Tool(..)) => panic!("only over MCP"),
            None => return chat(&json!({"role": "assistant", "content": "done"}), "stop"),
        };
        chat(&delta, "tool_calls")
    }
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
