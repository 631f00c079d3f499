//! Files that programs unaware of tollgate change, too: one such program against some writers, again and again.
//!
//! Each save of the program adds a line of its own. At the end the line is at the path, or in a file that was kept.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tollgate::error::{Fault, Result};
use tollgate::workspace::{Options, Workspace};
use tollgate_base::sys;

use crate::arena::{Arena, make, program, put};

/// What happened to the files of one kind of program.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenTally {
    /// Saves of the program.
    pub(crate) saves: u64,
    /// Saves that are not at the path but in a file that was kept.
    pub(crate) aside: u64,
    pub(crate) lost: u64,
    /// Writes by agents that were acknowledged.
    pub(crate) writes: u64,
    pub(crate) refused: u64,
    /// Refusals of writes to files whose bytes did not change.
    pub(crate) false_alarms: u64,
    /// What should not have happened.
    pub(crate) broken: Vec<String>,
}

/// How often a program saves before the file is checked. More would make the file long and each write slow.
const SAVES: u32 = 150;

/// The programs that save, by the words of the trial program; `sed` is the real one.
pub(crate) const PROGRAMS: [&str; 6] = ["rename", "in-place", "append", "mmap", "slow", "sed"];

/// The programs that change no byte.
pub(crate) const GENTLE: [&str; 3] = ["touch", "same-rename", "same-in-place"];

/// A writer of the trial program, and its arguments.
pub(crate) type Writer = (&'static str, &'static [&'static str]);

pub(crate) const GUARDED_WRITER: Writer = ("agent", &["--keep", "foreign"]);
pub(crate) const CHECK_AND_RENAME: Writer = ("naive", &[]);
pub(crate) const TIME_AND_SIZE: Writer = ("naive", &["--check", "stamp"]);

/// Rounds of one program against two writers, until the time is over.
pub(crate) fn rounds(arena: &Arena, kind: &str, writer: Writer, end: Instant) -> Result<OpenTally> {
    let mut tally = OpenTally::default();
    let mut number = 0;
    while Instant::now() < end {
        number += 1;
        let top = arena.beside(&format!("open-{}-{}-{kind}-{number}", writer.0, writer.1.len()));
        make(&top.join("pile"))?;
        put(&top.join("w/file"), "start\n")?;
        put(&top.join("w/.tollgate/config.toml"), "[guard]\ndurability = \"fast\"\n")?;
        let round = OpenRound { arena, top: &top, kind, writer };
        if GENTLE.contains(&kind) {
            round.gentle(&mut tally)?;
        } else {
            round.saving(end, &mut tally)?;
        }
        let _ = fs::remove_dir_all(&top);
    }
    Ok(tally)
}

struct OpenRound<'a> {
    arena: &'a Arena,
    top: &'a Path,
    kind: &'a str,
    writer: Writer,
}

impl OpenRound<'_> {
    fn start(&self, actor: &str, arguments: &[&str]) -> Result<Child> {
        let mut command = self.arena.command(program("trial"));
        command.arg(actor).current_dir(self.top).args(arguments).stdout(Stdio::piped());
        let path = program("trial");
        command.spawn().map_err(|source| Fault::Io { doing: "run", path, source })
    }

    fn writer(&self, name: &str, more: &[&str]) -> Result<Child> {
        let arguments = ["--root", "w", "--file", "file", "--name", name, "--until", "done"];
        self.start(self.writer.0, &[&arguments, self.writer.1, more].concat())
    }

    fn outsider(&self, more: &[&str]) -> Result<Child> {
        let own = ["--kind", self.kind, "--path", "w/file", "--log", "log", "--pile", "pile"];
        self.start("outsider", &[&own, more].concat())
    }

    fn saving(&self, end: Instant, tally: &mut OpenTally) -> Result<()> {
        let mut victim = self.writer("one", &[])?;
        let second = self.writer("two", &[])?;
        // Some saves are slow; the time for all of them is limited.
        let saves = if self.kind == "sed" {
            self.sed(end, &mut victim)?
        } else {
            let outsider = self.outsider(&["--saves", &SAVES.to_string()])?;
            if self.writer.0 == "agent" {
                std::thread::sleep(Duration::from_millis(20));
                let _ = victim.kill();
            }
            ends(outsider, "outsider", tally)["saves"].as_u64().unwrap_or(0)
        };
        put(&self.top.join("done"), "")?;
        tally.saves += saves;
        let _ = victim.wait();
        let answer = ends(second, "writer", tally);
        tally.writes += answer["written"].as_u64().unwrap_or(0);
        tally.refused += answer["stale"].as_u64().unwrap_or(0);
        let text = fs::read_to_string(self.top.join("w/file")).unwrap_or_default();
        let at_path: HashSet<&str> = text.lines().collect();
        let log = fs::read_to_string(self.top.join("log")).unwrap_or_default();
        let missing: Vec<&str> = log.lines().filter(|save| !at_path.contains(save)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut kept: HashSet<String> = HashSet::new();
        for folder in ["pile", "w/.tollgate/stage", "w/.tollgate/history"] {
            lines_in(&self.top.join(folder), &mut kept);
        }
        // What recovery gives out, also if it is compressed.
        if let Ok(workspace) = Workspace::open(self.top.join("w"), Options::default()) {
            for entry in workspace.recovery().unwrap_or_default() {
                if let Ok((_, bytes)) = workspace.recovered(&entry.id) {
                    kept.extend(lines_of(&bytes));
                }
            }
        }
        for save in missing {
            if kept.contains(save) { tally.aside += 1 } else { tally.lost += 1 }
        }
        Ok(())
    }

    /// The real `sed -i`, as a formatter that runs on save.
    fn sed(&self, end: Instant, victim: &mut Child) -> Result<u64> {
        let mut log = String::new();
        for number in 0..SAVES / 3 {
            if number == 5 && self.writer.0 == "agent" {
                let _ = victim.kill();
            }
            let line = format!("foreign {number}");
            let mut sed = self.arena.command("sed");
            let done = sed.current_dir(self.top).args(["-i", &format!("$ a {line}"), "w/file"]).status();
            if done.is_ok_and(|status| status.success()) {
                log += &format!("{line}\n");
            }
            if Instant::now() > end + Duration::from_secs(2) {
                break;
            }
        }
        put(&self.top.join("log"), &log)?;
        Ok(log.lines().count() as u64)
    }

    /// Nothing changes, so no write may be refused.
    fn gentle(&self, tally: &mut OpenTally) -> Result<()> {
        let how = ["--lines", "150", "--reads", "when-refused", "--ready", "ready"];
        let agent = self.writer("one", &how)?;
        let patience = Instant::now() + Duration::from_secs(20);
        while !self.top.join("ready").exists() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
        // More would only take time from the agents.
        let outsider = self.outsider(&["--until", "done", "--saves", "20000"])?;
        let answer = ends(agent, "writer", tally);
        put(&self.top.join("done"), "")?;
        tally.saves += ends(outsider, "outsider", tally)["saves"].as_u64().unwrap_or(0);
        tally.writes += answer["written"].as_u64().unwrap_or(0);
        let refused = answer["stale"].as_u64().unwrap_or(0);
        if self.kind == "same-rename" && !sys::HAS_LEASES {
            // Only a lease keeps this program from undoing a guarded write between its read and its rename. That is a change.
            tally.refused += refused;
        } else {
            tally.false_alarms += refused;
        }
        Ok(())
    }
}

/// Waits until a process ends, and returns its answer.
fn ends(child: Child, who: &str, tally: &mut OpenTally) -> Value {
    match child.wait_with_output() {
        Ok(output) if output.status.success() => serde_json::from_slice(&output.stdout).unwrap_or_default(),
        Ok(output) => {
            tally.broken.push(format!("the {who} ended with {}", output.status));
            Value::Null
        }
        Err(error) => {
            tally.broken.push(format!("the {who} is gone: {error}"));
            Value::Null
        }
    }
}

fn lines_in(folder: &Path, lines: &mut HashSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            lines_in(&path, lines);
        } else if let Ok(bytes) = fs::read(&path) {
            lines.extend(lines_of(&bytes));
        }
    }
}

fn lines_of(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
}
