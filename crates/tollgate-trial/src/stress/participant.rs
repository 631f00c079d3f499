//! Agents that change files, each through another door of tollgate, until they are stopped or killed.
//!
//! Every text that an agent writes is new, so that a hash names one write. An agent records a write only after it was
//! acknowledged. The first line of a file says who wrote it last; four older lines make it long enough to be torn.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tollgate::digest::Digest;
use tollgate::error::{Fault, Result};
use tollgate::gate::Gate;
use tollgate::guard::{Action, Change, Expected, Outcome};
use tollgate::part::Part;
use tollgate::refusal::ErrorType;
use tollgate::turn::Turn;
use tollgate::workspace::{Options, Workspace};

use crate::arena::{GUARDED, PAIR, program};
use crate::chance::Chance;
use crate::tally::{Count, Notes};

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Door {
    /// The library, one file at a time
    Library,
    /// The library, two files together
    Together,
    /// `tollgate mcp`
    Mcp,
    /// `tollgate hook`, before and after a tool that writes the file itself
    Hook,
    /// `tollgate run`
    Run,
    /// `tollgate write`, with an error at a random system call
    Faulty,
    /// No door: check and rename, recorded as if tollgate had done it
    Rogue,
}

#[derive(clap::Args)]
pub(crate) struct AgentArgs {
    #[arg(long, value_enum)]
    door: Door,
    #[arg(long)]
    name: String,
    #[arg(long)]
    root: PathBuf,
    #[arg(long)]
    seed: u64,
    /// How often this agent was killed before
    #[arg(long)]
    life: u64,
}

struct Agent {
    door: Door,
    name: String,
    root: PathBuf,
    chance: Chance,
    notes: Notes,
    life: u64,
    written: u64,
}

/// What came of a write.
enum Came {
    Done,
    Refused,
    Fault,
}

impl AgentArgs {
    pub(crate) fn run(self) -> Result<()> {
        let beside = self.root.parent().unwrap_or(&self.root).to_owned();
        let stop = beside.join("stop");
        let chance = Chance::new(self.seed.wrapping_add(self.life), &self.name);
        let notes = Notes::open(&beside, &self.name)?;
        let Self { door, name, root, life, .. } = self;
        let mut agent = Agent { door, name, root, chance, notes, life, written: 0 };
        let mut session = Session::begin(&agent)?;
        while !stop.exists() {
            let own = [agent.own_file()];
            let files: &[&str] = match door {
                Door::Together => &PAIR,
                Door::Library if agent.chance.below(4) > 0 => &[own[0].as_str()],
                _ => agent.choose(),
            };
            let known: Vec<Vec<u8>> =
                files.iter().map(|file| session.read(&mut agent, file)).collect::<Result<_>>()?;
            agent.written += 1;
            let line = format!("{} {} {}\n", agent.name, agent.life, agent.written);
            let texts: Vec<Vec<u8>> = known.iter().map(|known| next_text(&line, known)).collect();
            agent.notes.count(Count::Operations);
            match session.write(&mut agent, files, &known, &texts)? {
                Came::Done => {
                    agent.notes.count(Count::Done);
                    for ((file, text), known) in files.iter().zip(&texts).zip(&known) {
                        let (read, done) = (Digest::of(known), Digest::of(text));
                        let record = json!({"by": agent.name, "file": file, "read": read, "done": done});
                        // A hook's agent has a name of its own in the ledger, made by the hook.
                        if door != Door::Hook {
                            agent.notes.record(&record);
                        }
                    }
                }
                Came::Refused => agent.notes.count(Count::Refused),
                Came::Fault => agent.notes.count(Count::Faults),
            }
        }
        Ok(())
    }
}

/// A new first line, and some of the old ones.
fn next_text(line: &str, known: &[u8]) -> Vec<u8> {
    let old = known.split_inclusive(|byte| *byte == b'\n').take(4).flatten().copied();
    line.bytes().chain(old).collect()
}

/// The connection of an agent to tollgate.
enum Session {
    Library(Box<(Gate, Turn)>),
    Mcp(Client),
    Hook { calls: u64 },
    Plain,
}

impl Session {
    fn begin(agent: &Agent) -> Result<Self> {
        Ok(match agent.door {
            Door::Library | Door::Together => {
                let gate = Gate::new(Workspace::open(&agent.root, Options::default())?);
                let turn = gate.begin_turn(agent.name.parse()?)?;
                Self::Library(Box::new((gate, turn)))
            }
            Door::Mcp => Self::Mcp(Client::start(agent)?),
            Door::Hook => Self::Hook { calls: 0 },
            Door::Run | Door::Faulty | Door::Rogue => Self::Plain,
        })
    }

    fn read(&mut self, agent: &mut Agent, file: &str) -> Result<Vec<u8>> {
        agent.notes.count(Count::Operations);
        match self {
            Self::Library(held) => match held.0.read(&held.1, file, Part::Whole)? {
                Outcome::Done(read) => Ok(read.bytes),
                Outcome::Refused(refused) => Err(Fault::invalid(format!("{refused:?}"))),
            },
            Self::Mcp(client) => {
                let path = agent.root.join(file);
                let answer = client.call("read_text_file", &json!({"path": path}))?;
                let text = answer["content"][0]["text"].as_str().unwrap_or_default();
                Ok(text.as_bytes().to_vec())
            }
            Self::Hook { calls } => {
                *calls += 1;
                let input = json!({"file_path": agent.root.join(file)});
                agent.hook("PreToolUse", "Read", &input, *calls)?;
                let bytes = read_file(agent, file)?;
                agent.hook("PostToolUse", "Read", &input, *calls)?;
                Ok(bytes)
            }
            Self::Plain => read_file(agent, file),
        }
    }

    fn write(
        &mut self,
        agent: &mut Agent,
        files: &[&str],
        known: &[Vec<u8>],
        texts: &[Vec<u8>],
    ) -> Result<Came> {
        match self {
            Self::Library(held) => {
                let (gate, turn) = &**held;
                let changes = files.iter().zip(texts).map(|(file, text)| {
                    Change::new(*file, Action::Write(text.clone())).expecting(Expected::Baseline)
                });
                match gate.apply(turn, changes.collect())? {
                    Outcome::Done(_) => Ok(Came::Done),
                    Outcome::Refused(refused) => match refused.refusals()[0].error_type() {
                        ErrorType::StaleFile | ErrorType::FileBusy => Ok(Came::Refused),
                        other => Err(Fault::invalid(format!("refused: {other}"))),
                    },
                }
            }
            Self::Mcp(client) => {
                let text = String::from_utf8_lossy(&texts[0]);
                let arguments = json!({"path": agent.root.join(files[0]), "content": text});
                let answer = client.call("write_file", &arguments)?;
                Ok(if answer["isError"] == true { Came::Refused } else { Came::Done })
            }
            Self::Hook { calls } => {
                *calls += 1;
                let path = agent.root.join(files[0]);
                let input = json!({"file_path": path, "content": String::from_utf8_lossy(&texts[0])});
                if !agent.hook("PreToolUse", "Write", &input, *calls)? {
                    return Ok(Came::Refused);
                }
                fs::write(&path, &texts[0]).map_err(|source| Fault::Io { doing: "write", path, source })?;
                agent.hook("PostToolUse", "Write", &input, *calls)?;
                Ok(Came::Done)
            }
            Self::Plain => agent.write_plainly(files[0], &known[0], &texts[0]),
        }
    }
}

fn read_file(agent: &Agent, file: &str) -> Result<Vec<u8>> {
    let path = agent.root.join(file);
    fs::read(&path).map_err(|source| Fault::Io { doing: "read", path, source })
}

/// Calls whose failure a disk can cause.
const FAILING: [&str; 6] = ["write", "pwrite64", "fsync", "renameat2", "linkat", "openat"];

impl Agent {
    /// A file that nobody else changes, so that the agent need not wait for others.
    fn own_file(&self) -> String {
        format!("own-{}", self.name)
    }

    /// The file to change next.
    fn choose(&mut self) -> &'static [&'static str] {
        let is_slow = !matches!(self.door, Door::Library | Door::Rogue);
        let half = GUARDED.len() / 2;
        // A fast agent among slow ones would make each of their writes stale.
        let visits = self.chance.below(if is_slow { 8 } else { 64 }) == 0;
        let at = usize::try_from(self.chance.below(half as u64)).unwrap_or(0);
        &GUARDED[if is_slow == visits { at } else { half + at }..][..1]
    }

    /// Whether the hook lets the tool run.
    fn hook(&self, event: &str, tool: &str, input: &Value, call: u64) -> Result<bool> {
        let session = format!("{}-{}", self.name, self.life);
        let mut payload = json!({
            "session_id": session, "prompt_id": "p", "transcript_path": "/t", "cwd": self.root,
            "hook_event_name": event, "tool_name": tool, "tool_input": input,
            "tool_use_id": format!("{session}-{call}"),
        });
        if event == "PostToolUse" {
            payload["tool_response"] = json!({});
        }
        let mut command = Command::new(program("tollgate"));
        command.args(["hook", "claude-code"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (status, said) = feed(command.current_dir(&self.root), payload.to_string().as_bytes())?;
        Ok(status == 0 && !said.contains("\"deny\""))
    }

    fn write_plainly(&mut self, file: &str, known: &[u8], text: &[u8]) -> Result<Came> {
        let path = self.root.join(file);
        let expected = Digest::of(known).to_string();
        let tollgate = program("tollgate");
        let status = match self.door {
            Door::Run => {
                // The command looks at the file itself, and writes what it makes of it.
                let script = format!(
                    "[ \"$(sha256sum < {file} | cut -c1-64)\" = {expected} ] || exit 9; cat > {file}"
                );
                let mut command = Command::new(tollgate);
                command.args(["run", "--agent", &self.name, "--", "sh", "-c", &script]);
                feed(command.current_dir(&self.root).stdout(Stdio::null()).stderr(Stdio::null()), text)?.0
            }
            Door::Faulty => {
                let call = FAILING[usize::try_from(self.chance.below(FAILING.len() as u64)).unwrap_or(0)];
                let inject = format!("inject={call}:error=ENOSPC:when={}", 1 + self.chance.below(40));
                let mut command = Command::new("strace");
                command.args(["-f", "-qq", "-o", "/dev/null", "-e", &inject]).arg(tollgate);
                command.args(["write", file, "--expect", &expected, "--agent", &self.name]);
                feed(command.current_dir(&self.root).stdout(Stdio::null()).stderr(Stdio::null()), text)?.0
            }
            _ => {
                if fs::read(&path).ok().as_deref() != Some(known) {
                    return Ok(Came::Refused);
                }
                let temporary = self.root.join(".rogue.tmp");
                let written = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, &path));
                i32::from(written.is_err())
            }
        };
        Ok(match status {
            0 => Came::Done,
            1 | 9 | 75 => Came::Refused,
            _ => Came::Fault,
        })
    }
}

/// Runs a command with this input. Returns its exit code and what it said.
fn feed(command: &mut Command, input: &[u8]) -> Result<(i32, String)> {
    let fault = |source| Fault::Io { doing: "run", path: program("tollgate"), source };
    let mut child = command.stdin(Stdio::piped()).spawn().map_err(fault)?;
    if let Some(mut stdin) = child.stdin.take() {
        // It may end before it has read everything.
        let _ = stdin.write_all(input);
    }
    let output = child.wait_with_output().map_err(fault)?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned()))
}

/// A client of `tollgate mcp`.
pub(crate) struct Client {
    child: Child,
    input: BufReader<ChildStdout>,
    output: ChildStdin,
}

impl Client {
    fn start(agent: &Agent) -> Result<Self> {
        let mut command = Command::new(program("tollgate"));
        command.args(["mcp", "--agent", &agent.name]).current_dir(&agent.root);
        let fault = |source| Fault::Io { doing: "run", path: program("tollgate"), source };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(fault)?;
        let (Some(output), Some(input)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Fault::invalid("the MCP server has no pipes"));
        };
        let mut client = Self { child, input: BufReader::new(input), output };
        let who = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "stress", "version": "1"},
        });
        client.ask("initialize", &who)?;
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        client.say(&ready)?;
        Ok(client)
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value> {
        self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.say(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))?;
        let mut line = String::new();
        self.input.read_line(&mut line).map_err(broken)?;
        let answer: Value = serde_json::from_str(&line).map_err(|error| Fault::invalid(error.to_string()))?;
        Ok(answer["result"].clone())
    }

    fn say(&mut self, message: &Value) -> Result<()> {
        writeln!(self.output, "{message}").map_err(broken)
    }
}

fn broken(error: std::io::Error) -> Fault {
    Fault::Io { doing: "talk to", path: program("tollgate"), source: error }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
