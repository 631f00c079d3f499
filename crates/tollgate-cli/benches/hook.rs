//! The cost of a hook, compared with the start of a bare process in the same run: `cargo bench -p tollgate-cli --bench hook`.
//!
//! The rounds of all kinds alternate, so that a busy machine slows all of them equally. The result is the median.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and may fail")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const ROUNDS: usize = 200;

/// The numbers of files in the turn.
const FEW: usize = 10;
const MANY: usize = 10_000;

/// The program as the linker wrote it.
const BUILT: &str = env!("CARGO_BIN_EXE_tollgate");

fn main() {
    let keep = tempfile::tempdir().unwrap();
    let root = keep.path().canonicalize().unwrap();
    // In memory, like a session's runtime folder.
    let memory = Path::new("/dev/shm");
    let run = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    // A copy, as every installation makes one: the pages that a linker leaves in the cache are mapped one by one, those of a
    // copied file many at once, and `/bin/true` is such a file.
    let program = root.join("tollgate");
    fs::copy(BUILT, &program).unwrap();
    let mut table = Vec::new();
    for files in [FEW, MANY] {
        let folder = root.join(files.to_string());
        fs::create_dir_all(&folder).unwrap();
        let run = run.path().join(files.to_string());
        fs::create_dir(&run).unwrap();
        let work = Work { program: &program, folder, run };
        let made = Command::new(&program).arg("init").current_dir(&work.folder).output().unwrap();
        assert!(made.status.success());
        work.fill(files);
        let mut times = Times::default();
        for round in 0..ROUNDS {
            let file = work.folder.join(format!("f{}", round % files));
            let write = work.payload("Write", json!({"file_path": file, "content": "new"}), round);
            let read = work.payload("Read", json!({"file_path": file}), round + 1_000_000);
            times.add("/bin/true", work.time("/bin/true", &[], b""));
            times.add("nothing to do", work.hook("Notification", &read));
            times.add("before a write", work.hook("PreToolUse", &write));
            times.add("before a read", work.hook("PreToolUse", &read));
            times.add("after a write", work.hook("PostToolUse", &write));
            times.add("after a read", work.hook("PostToolUse", &read));
            let command = work.payload("Bash", json!({"command": "ls -la"}), round + 2_000_000);
            times.add("before a command", work.hook("PreToolUse", &command));
            // Ends the command without looking at the files.
            work.hook("Stop", &command);
        }
        // Separate, because looking at ten thousand files would slow the other measurements down.
        for round in 0..ROUNDS / 4 {
            let command = work.payload("Bash", json!({"command": "ls -la"}), round + 3_000_000);
            work.hook("PreToolUse", &command);
            times.add("after a command", work.hook("PostToolUse", &command));
        }
        for _ in 0..ROUNDS / 4 {
            let started = Instant::now();
            for file in 0..files {
                assert!(fs::symlink_metadata(work.folder.join(format!("f{file}"))).is_ok());
            }
            times.add("a bare look", started.elapsed());
        }
        let bare = times.median("/bin/true");
        for kind in times.0.keys() {
            let median = times.median(kind);
            table.push((files, *kind, median, median.as_secs_f64() / bare.as_secs_f64()));
        }
    }
    let found = |files, kind| table.iter().find(|row| (row.0, row.1) == (files, kind)).unwrap();
    println!("| what | {FEW} files in the turn | {MANY} files | aim |");
    println!("|---|---|---|---|");
    for (kind, aim) in [
        ("nothing to do", ""),
        ("before a read", "2.0"),
        ("before a write", "2.0"),
        ("before a command", "2.0"),
        ("after a read", ""),
        ("after a write", ""),
    ] {
        println!("| {kind} | {:.2} | {:.2} | {aim} |", found(FEW, kind).3, found(MANY, kind).3);
    }
    for (look, aim) in [("after a command", "2 µs"), ("a bare look", "")] {
        let took = |files| found(files, look).2.as_secs_f64();
        let each = (took(MANY) - took(FEW)) * 1e6 / (MANY - FEW) as f64;
        println!("| {look}, per file of the turn | | {each:.2} µs | {aim} |");
    }
}

/// The measured times, by kind.
#[derive(Default)]
struct Times(BTreeMap<&'static str, Vec<Duration>>);

impl Times {
    fn add(&mut self, kind: &'static str, time: Duration) {
        self.0.entry(kind).or_default().push(time);
    }

    fn median(&self, kind: &str) -> Duration {
        let mut times = self.0[kind].clone();
        times.sort();
        times[times.len() / 2]
    }
}

struct Work<'a> {
    program: &'a Path,
    folder: std::path::PathBuf,
    run: std::path::PathBuf,
}

impl Work<'_> {
    /// Creates the files and reads all of them in one turn, with one command per hundred files.
    fn fill(&self, files: usize) {
        for file in 0..files {
            fs::write(self.folder.join(format!("f{file}")), format!("text of file {file}\n")).unwrap();
        }
        for (batch, first) in (0..files).step_by(100).enumerate() {
            let names: Vec<String> = (first..files.min(first + 100)).map(|file| format!("f{file}")).collect();
            let command = format!("cat {}", names.join(" "));
            let mut payload = self.payload("Bash", json!({"command": command}), batch + 9_000_000);
            self.hook("PreToolUse", &payload);
            let text = names
                .iter()
                .map(|name| fs::read_to_string(self.folder.join(name)).unwrap())
                .collect::<String>();
            payload["tool_response"] = json!({"stdout": text, "stderr": ""});
            self.hook("PostToolUse", &payload);
        }
    }

    fn payload(&self, tool: &str, input: Value, call: usize) -> Value {
        json!({"session_id": "s", "prompt_id": "p", "cwd": self.folder, "tool_name": tool, "tool_input": input,
            "tool_use_id": call.to_string(), "tool_response": {"stdout": "", "stderr": ""}})
    }

    fn hook(&self, event: &str, payload: &Value) -> Duration {
        let mut payload = payload.clone();
        payload["hook_event_name"] = event.into();
        self.time(self.program, &["hook", "claude-code"], payload.to_string().as_bytes())
    }

    fn time(&self, program: impl AsRef<Path>, words: &[&str], stdin: &[u8]) -> Duration {
        let mut command = Command::new(program.as_ref());
        command.args(words).env("XDG_RUNTIME_DIR", &self.run).current_dir(&self.folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let started = Instant::now();
        let mut child = command.spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(stdin);
        let output = child.wait_with_output().unwrap();
        let took = started.elapsed();
        assert!(
            output.status.success() && output.stdout.is_empty(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
        took
    }
}
