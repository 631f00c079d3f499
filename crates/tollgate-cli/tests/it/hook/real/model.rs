//! A scripted model: a small server on loopback.
//!
//! The server answers each request with the next act of the script, in the protocol of the program (`wire.rs`). Before it
//! answers, it may change files: it also plays another actor that writes while the agent thinks.

use std::any::Any;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use super::wire;

/// The program that sends requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    Codex,
    Gemini,
    Opencode,
    Claude,
    Copilot,
    Cline,
    Qwen,
    Kilo,
}

impl Speaks {
    /// The name of the program on tollgate's command line.
    pub(super) fn host(self) -> &'static str {
        match self {
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::Claude => "claude-code",
            Self::Copilot => "copilot",
            Self::Cline => "cline",
            Self::Qwen => "qwen",
            Self::Kilo => "kilo",
        }
    }
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
    /// Writes the shared file: what the last tool showed of it, and this line more.
    AddLine(Style, String),
    /// A tool of the MCP server, whose arguments are this JSON.
    Tool(&'static str, &'static str),
}

impl Act {
    /// The tool of the MCP server for this act, and its arguments.
    pub(super) fn over_mcp(&self) -> (&'static str, Value) {
        match *self {
            Self::Read(file) => ("read_text_file", json!({"path": file})),
            Self::Overwrite(file, text) => ("write_file", json!({"path": file, "content": text})),
            Self::Edit(file, old, new) => {
                ("edit_file", json!({"path": file, "edits": [{"oldText": old, "newText": new}]}))
            }
            Self::Tool(name, arguments) => (name, serde_json::from_str(arguments).unwrap()),
            Self::Shell(_) | Self::Patch(_) | Self::AddLine(..) => panic!("it has no such tool"),
        }
    }
}

/// How a shell command writes a whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Heredoc,
    Python,
}

/// The file of a race. Its lines are words like `codex-3`.
pub(super) const SHARED: &str = "shared";

/// The command that writes these lines.
fn write_lines(style: Style, lines: &[String]) -> String {
    match style {
        Style::Heredoc => format!("cat > {SHARED} <<'EOF'\n{}\nEOF", lines.join("\n")),
        Style::Python => {
            let lines = lines.join("\\n");
            format!("python3 -c \"open('{SHARED}', 'w').write('{lines}\\n')\"")
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

/// What a model does next, given what the last tool showed it. `None` ends the session.
pub(super) type Mind = Box<dyn FnMut(&str) -> Option<Act> + Send>;

/// What a model does.
pub(super) enum Script {
    /// These acts, one after the other
    Steps(Vec<Step>),
    /// What it decides when it has seen how the last act ended
    Mind(Mind),
}

impl From<Vec<Step>> for Script {
    fn from(steps: Vec<Step>) -> Self {
        Self::Steps(steps)
    }
}

impl From<Mind> for Script {
    fn from(mind: Mind) -> Self {
        Self::Mind(mind)
    }
}

/// The running server.
pub(super) struct Model {
    pub(super) port: u16,
    state: Arc<Mutex<State>>,
}

pub(super) struct State {
    pub(super) speaks: Speaks,
    pub(super) door: Door,
    root: PathBuf,
    script: Script,
    next: usize,
    /// The last act of a mind.
    answered: Option<Act>,
    blocked: usize,
    /// The acts that did not end as the script says.
    wrong: Vec<String>,
    /// The lines of which the model was told that they are written.
    told: Vec<String>,
    last: String,
}

impl Model {
    pub(super) fn start(speaks: Speaks, door: Door, root: PathBuf, script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = State {
            speaks,
            door,
            root,
            script,
            next: 0,
            answered: None,
            blocked: 0,
            wrong: Vec::new(),
            told: Vec::new(),
            last: String::new(),
        };
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

    /// Whether every act of the script was played.
    pub(super) fn is_at_the_end(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match &state.script {
            Script::Steps(steps) => state.next == steps.len(),
            Script::Mind(_) => true,
        }
    }

    /// The lines of which the model was told that they are written.
    pub(super) fn told(&self) -> Vec<String> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner).told.clone()
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
    let mut state = state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (kind, answer) = wire::answer(&head, &body, &mut state);
    drop(state);
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
        answer.len()
    )
    .ok()
}

impl State {
    /// Checks how the last act ended, and returns the next one.
    pub(super) fn step(&mut self, body: &str) -> Option<Act> {
        self.last = body.to_owned();
        let shown = wire::last_result(self.speaks, body);
        let script = match &mut self.script {
            Script::Steps(script) => script,
            // Some programs ask twice. The same question gets the same answer.
            Script::Mind(_) if self.next > 0 && !body.contains(&format!("_{}\"", self.next - 1)) => {
                return self.answered.clone();
            }
            Script::Mind(mind) => {
                let act = catch_unwind(AssertUnwindSafe(|| mind(&shown)));
                self.next += 1;
                self.answered = act.unwrap_or_else(|why| {
                    self.wrong.push(reason(&*why));
                    None
                });
                return self.answered.clone();
            }
        };
        // The text after the payload does not repeat this word, so it occurs once per blocked act.
        let blocked = body.matches("STALE_FILE").count();
        if let Some(last) = self.next.checked_sub(1).and_then(|at| script.get(at)) {
            let was = blocked > self.blocked;
            if last.ends != Ends::Either && was != (last.ends == Ends::Stale) {
                let tail: String =
                    body.chars().rev().take(1500).collect::<Vec<_>>().into_iter().rev().collect();
                self.wrong.push(format!("act {} {:?}: blocked {was}; {tail}", self.next - 1, last.act));
            }
        }
        self.blocked = blocked;
        if let Some(Act::AddLine(_, line)) = self.next.checked_sub(1).map(|at| &script[at].act)
            && !shown.contains("error_type")
        {
            self.told.push(line.clone());
        }
        let step = script.get_mut(self.next)?;
        self.next += 1;
        // A panic would only end this thread, and the program asks again.
        if let Some(before) = &mut step.before
            && let Err(why) = catch_unwind(AssertUnwindSafe(before))
        {
            self.wrong.push(format!("before act {} {:?}: {}", self.next - 1, step.act, reason(&*why)));
        }
        Some(match &step.act {
            Act::AddLine(style, line) => {
                let is_line =
                    |word: &&str| word.split_once('-').is_some_and(|(_, at)| at.parse::<u32>().is_ok());
                let words = shown.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(is_line);
                let lines: Vec<String> = words.map(str::to_owned).chain([line.clone()]).collect();
                // All other commands are written in the script itself.
                Act::Shell(Box::leak(write_lines(*style, &lines).into_boxed_str()))
            }
            act => act.clone(),
        })
    }

    /// Whether a mind has acted already.
    pub(super) fn has_begun(&self) -> bool {
        self.answered.is_some()
    }

    /// The id of the last act.
    pub(super) fn id(&self, prefix: &str) -> String {
        format!("{prefix}_{}", self.next.saturating_sub(1))
    }

    pub(super) fn path(&self, file: &str) -> String {
        self.root.join(file).display().to_string()
    }
}

/// What a panic said.
fn reason(panic: &dyn Any) -> String {
    panic.downcast_ref::<String>().map_or("a check failed", String::as_str).to_owned()
}
