//! A workspace in its own environment, and the command run in it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use jsonschema::Validator;
use rustix::process::{Pid, Signal};
use serde_json::Value;
pub(crate) use tollgate_testing::until;

/// The longest time for a command. Only a command that hangs takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) struct World {
    keep: tempfile::TempDir,
    tmp: PathBuf,
}

impl World {
    /// An empty folder in which nothing is set up.
    pub(crate) fn bare() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let tmp = keep.path().canonicalize().unwrap();
        for folder in ["w", "home", "run", "state"] {
            fs::create_dir(tmp.join(folder)).unwrap();
        }
        Self { keep, tmp }
    }

    /// An empty workspace.
    pub(crate) fn new() -> Self {
        let world = Self::bare();
        fs::DirBuilder::new().mode(0o700).create(world.path(".tollgate")).unwrap();
        world
    }

    /// A workspace with these settings.
    pub(crate) fn with(settings: &str) -> Self {
        let world = Self::new();
        world.puts(".tollgate/config.toml", settings);
        world
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.tmp.join("w")
    }

    pub(crate) fn tmp(&self) -> &Path {
        &self.tmp
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root().join(name)
    }

    /// Writes a file without tollgate.
    pub(crate) fn puts(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    #[track_caller]
    pub(crate) fn holds(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        let found = fs::read(self.path(name)).unwrap();
        assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(bytes.as_ref()));
    }

    /// `tollgate` with these arguments, in the workspace.
    pub(crate) fn tollgate<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Run<'_> {
        self.program(env!("CARGO_BIN_EXE_tollgate"), words)
    }

    /// Runs `tollgate` with the words of a line as arguments, which must not contain spaces.
    pub(crate) fn run(&self, line: &str) -> Ran {
        self.tollgate(line.split_whitespace()).ends()
    }

    pub(crate) fn json(&self, line: &str) -> Value {
        let ran = self.tollgate(line.split_whitespace().chain(["--json"])).ends();
        ran.is(0).json()
    }

    /// A shell script with `tollgate` in its `PATH`.
    pub(crate) fn script(&self, text: &str) -> Run<'_> {
        self.program("bash", ["-c", text])
    }

    pub(crate) fn program<S: AsRef<OsStr>>(
        &self,
        program: &str,
        words: impl IntoIterator<Item = S>,
    ) -> Run<'_> {
        let mut command = Command::new(program);
        let bin = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap();
        let mut path = OsString::from(bin);
        path.push(":/usr/bin:/bin");
        command
            .args(words)
            .current_dir(self.root())
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.tmp.join("home"))
            .env("USER", "ada")
            .env("XDG_RUNTIME_DIR", self.tmp.join("run"))
            .env("XDG_STATE_HOME", self.tmp.join("state"));
        Run { world: self, command, stdin: Vec::new() }
    }

    /// Starts a turn and returns its id.
    pub(crate) fn turn(&self, agent: &str) -> String {
        self.run(&format!("turn begin --agent {agent}")).is(0).stdout().trim().to_owned()
    }

    /// The text, with a name for everything that differs from run to run.
    pub(crate) fn filtered(&self, text: &str) -> String {
        let text =
            text.replace(self.root().to_str().unwrap(), "[W]").replace(self.tmp.to_str().unwrap(), "[TMP]");
        let mut filtered = String::new();
        let mut word = String::new();
        for c in text.chars().chain(['\n']) {
            if c.is_ascii_alphanumeric() || "-_.:".contains(c) {
                word.push(c);
            } else {
                filtered.push_str(name_of(&word).unwrap_or(&word));
                word.clear();
                filtered.push(c);
            }
        }
        filtered.pop();
        let mut parts = filtered.split(" s ago");
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            text.truncate(text.trim_end_matches(|c: char| c.is_ascii_digit()).len());
            text += &format!("[N] s ago{part}");
        }
        text
    }

    pub(crate) fn close(self) {
        self.keep.close().unwrap();
    }
}

/// The name of a word that differs from run to run.
pub(crate) fn name_of(word: &str) -> Option<&'static str> {
    let hex = |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if word.strip_prefix("t-").is_some_and(|id| hex(id, 16)) {
        Some("[TURN]")
    } else if word.strip_prefix("c-").is_some_and(|id| hex(id, 16)) {
        Some("[CLAIM]")
    } else if hex(word.strip_prefix("sha256:").unwrap_or(word), 64) {
        Some("[HASH]")
    } else if hex(word, 22) {
        Some("[ID]")
    } else if hex(word, 16) {
        Some("[WORKSPACE]")
    } else if word.len() >= 20 && word.ends_with('Z') && word.parse::<jiff::Timestamp>().is_ok() {
        Some("[TIME]")
    } else {
        None
    }
}

/// A command that has not run yet.
pub(crate) struct Run<'w> {
    world: &'w World,
    pub(crate) command: Command,
    stdin: Vec<u8>,
}

impl<'w> Run<'w> {
    pub(crate) fn stdin(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.stdin = bytes.as_ref().to_vec();
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    pub(crate) fn folder(mut self, folder: impl AsRef<Path>) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Runs the command in the background. Dropping the process kills it.
    pub(crate) fn starts(mut self) -> Process {
        self.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Process(self.command.spawn().unwrap())
    }

    /// Runs the command to its end. Fails if it hangs.
    #[track_caller]
    pub(crate) fn ends(mut self) -> Ran {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap();
        let id = Pid::from_child(&child);
        let mut stdin = child.stdin.take().unwrap();
        let bytes = std::mem::take(&mut self.stdin);
        thread::spawn(move || {
            // The command may close its stdin without reading it.
            let _ = stdin.write_all(&bytes);
        });
        let (send, receive) = mpsc::channel();
        thread::spawn(move || send.send(child.wait_with_output()));
        let Ok(output) = receive.recv_timeout(PATIENCE) else {
            let _ = rustix::process::kill_process(id, Signal::KILL);
            panic!("{:?} hangs", self.command);
        };
        let ran = Ran { output: output.unwrap(), filtered: String::new() };
        assert!(!ran.stderr().contains("panicked"), "{}", ran.stderr());
        let text = format!("{ran}");
        Ran { filtered: self.world.filtered(&text), ..ran }
    }
}

/// A command that runs in the background.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn signal(&self, signal: Signal) {
        // The process is not reaped yet, so its id cannot belong to another process.
        rustix::process::kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// The exit status, if the process has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().unwrap()
    }

    #[track_caller]
    pub(crate) fn ends(&mut self) -> ExitStatus {
        until("the end of a command", || self.ended())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The output and the exit status of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    output: Output,
    /// All of it, with names for what differs from run to run.
    pub(crate) filtered: String,
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.output.status.code() {
            Some(code) => write!(f, "exit {code}")?,
            None => write!(f, "{}", self.output.status)?,
        }
        for (name, text) in [("stdout", self.stdout()), ("stderr", self.stderr())] {
            if !text.is_empty() {
                write!(f, "\n--- {name}\n{}", text.trim_end())?;
            }
        }
        Ok(())
    }
}

impl Ran {
    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    pub(crate) fn stdout_bytes(&self) -> &[u8] {
        &self.output.stdout
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// Fails unless the exit code is this.
    #[track_caller]
    pub(crate) fn is(self, code: i32) -> Self {
        assert_eq!(self.output.status.code(), Some(code), "{self}");
        self
    }

    /// The exit code, unless a signal ended it.
    pub(crate) fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    /// The one JSON document on stdout. Fails if there is other output.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.stderr(), "", "{self}");
        assert_eq!(self.stdout().matches('\n').count(), 1, "{self}");
        serde_json::from_str(&self.stdout()).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// The payload of a refusal, checked against the schema.
    #[track_caller]
    pub(crate) fn payload(self, error_type: &str, resolution: &str) -> Value {
        let ran = self.is(1);
        let payload = ran.json();
        PAYLOAD.validate(&payload).unwrap_or_else(|error| panic!("{error}: {payload}"));
        assert_eq!(
            (&payload["error_type"], &payload["resolution"]),
            (&error_type.into(), &resolution.into())
        );
        payload
    }

    /// The reports of a refusal, checked against the schema.
    #[track_caller]
    pub(crate) fn reports(&self) -> Vec<Value> {
        let reports: Vec<Value> =
            self.stdout().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for report in &reports {
            REPORT.validate(report).unwrap_or_else(|error| panic!("{error}: {report}"));
        }
        reports
    }

    /// A fault in JSON.
    #[track_caller]
    pub(crate) fn fault(self, error: &str) -> Value {
        let fault = self.json();
        assert_eq!(fault["error"], error, "{self}");
        for key in ["message", "hint"] {
            assert!(fault[key].as_str().is_some_and(|text| !text.is_empty()), "{self}");
        }
        assert_eq!(fault.as_object().unwrap().len(), 3, "{self}");
        fault
    }
}

static PAYLOAD: LazyLock<Validator> =
    LazyLock::new(|| validator(tollgate::refusal::payload_schema().to_value()));
static REPORT: LazyLock<Validator> =
    LazyLock::new(|| validator(tollgate::refusal::report_schema().to_value()));

#[allow(clippy::needless_pass_by_value, reason = "it was made for this")]
fn validator(schema: Value) -> Validator {
    jsonschema::validator_for(&schema).unwrap()
}

/// The SHA-256 of these bytes, as in JSON.
pub(crate) fn hash(bytes: impl AsRef<[u8]>) -> String {
    tollgate::digest::Digest::of(bytes.as_ref()).to_string()
}
