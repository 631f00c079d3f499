//! `strace`: which system calls a program makes, and what happens if one of them fails or is its last.

use std::collections::HashMap;
use std::path::Path;

/// One system call of a recorded run: the `nth` of its name in its process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The process that made it.
    pub process: String,
    /// Its name.
    pub name: String,
    /// Its number among the calls of this name, as `strace` counts them.
    pub nth: usize,
    /// The whole call, with its arguments and its result.
    pub line: String,
}

impl Call {
    /// Whether the call opens a file.
    pub fn opens(&self) -> bool {
        self.name.starts_with("open")
    }

    /// Whether the call does more than opening a file that is there.
    pub fn changes(&self) -> bool {
        !self.opens() || self.line.contains("O_CREAT")
    }

    /// What makes `strace` do this to the call: `signal=KILL`, `error=EIO`.
    pub fn inject(&self, what: &str) -> String {
        format!("inject={}:{what}:when={}", self.name, self.nth)
    }
}

/// The calls in a log that was written with `-f`.
pub fn calls(log: &str) -> Vec<Call> {
    let mut counts = HashMap::new();
    let mut calls = Vec::new();
    for line in log.lines() {
        let Some((process, line)) = line.split_once(' ') else { continue };
        let Some((name, _)) = line.trim_start().split_once('(') else { continue };
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            continue;
        }
        let (process, name) = (process.to_owned(), name.to_owned());
        let nth = counts.entry((process.clone(), name.clone())).and_modify(|nth| *nth += 1).or_insert(1);
        calls.push(Call { process, name, nth: *nth, line: line.trim_start().to_owned() });
    }
    calls
}

/// The arguments with which `strace` records these calls of a command in a file, and makes some of them fail. `strace` dies by
/// the same signal as the command.
pub fn arguments<'a>(
    names: &str,
    log: &Path,
    injections: &[String],
    command: impl IntoIterator<Item = &'a str>,
) -> Vec<String> {
    let mut arguments = ["-f", "-qq", "-o", log.to_str().unwrap(), "-e"].map(str::to_owned).to_vec();
    arguments.push(format!("trace={names}"));
    for injection in injections {
        arguments.extend(["-e".to_owned(), injection.clone()]);
    }
    arguments.push("--".to_owned());
    arguments.extend(command.into_iter().map(str::to_owned));
    arguments
}
