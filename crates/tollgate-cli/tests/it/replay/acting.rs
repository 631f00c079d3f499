//! Four agents and an outsider: what they do to the files, in this process and as processes that may be killed at any moment.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tollgate::guard::{Action, Change, Expected};
use tollgate::turn::Turn;
use tollgate::{Digest, TurnId};

use super::Story;
use crate::world::{PATIENCE, Run, until};

const AGENTS: [&str; 4] = ["blue", "green", "red", "violet"];
pub(super) const NAMES: [&str; 7] = ["a", "b", "c", "d/a", "d/b", "e/a", "l"];

impl Story {
    pub(super) fn below(&mut self, below: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % below
    }

    pub(super) fn agent(&mut self) -> &'static str {
        AGENTS[self.below(AGENTS.len())]
    }

    pub(super) fn turn(&mut self) -> Turn {
        Turn::begin(TurnId::new().unwrap(), self.agent().parse().unwrap())
    }

    fn name(&mut self) -> String {
        NAMES[self.below(NAMES.len())].to_owned()
    }

    /// The name of a file, if there is one that is no link.
    fn file(&mut self) -> Option<String> {
        let files: Vec<String> =
            self.files.iter().filter(|(_, file)| !file.is_link).map(|(name, _)| name.clone()).collect();
        if files.is_empty() { None } else { Some(files[self.below(files.len())].clone()) }
    }

    fn free_name(&mut self) -> Option<String> {
        let name = self.name();
        (!self.files.contains_key(&name)).then_some(name)
    }

    fn is_link(&self, name: &str) -> bool {
        self.files.get(name).is_some_and(|file| file.is_link)
    }

    fn new_line(&mut self) -> String {
        self.lines += 1;
        format!("line {}", self.lines)
    }

    /// A new version of a text: some lines are removed, some are new.
    fn edited(&mut self, name: &str) -> String {
        let now = self.files.get(name).map_or(String::new(), |file| self.seen.text(&file.hash));
        let mut lines: Vec<String> = now.lines().map(str::to_owned).collect();
        for _ in 0..1 + self.below(3) {
            let at = self.below(lines.len() + 1);
            if self.below(3) == 0 && !lines.is_empty() {
                lines.remove(at.min(lines.len() - 1));
            } else {
                let line = self.new_line();
                lines.insert(at, line);
            }
        }
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// What must be on disk for a change of this path.
    fn expected(&self, name: &str) -> Expected {
        self.files.get(name).map_or(Expected::Absent, |file| Expected::Hash(file.hash.parse().unwrap()))
    }

    /// New texts for one to three files; `None` deletes the file.
    fn new_texts(&mut self) -> Vec<(String, Option<String>)> {
        let mut texts: Vec<(String, Option<String>)> = Vec::new();
        for _ in 0..1 + self.below(3) {
            let name = self.name();
            if texts.iter().any(|(named, _)| *named == name) || self.is_link(&name) {
                continue;
            }
            let deletes = self.files.contains_key(&name) && self.below(6) == 0;
            let text = if deletes { None } else { Some(self.edited(&name)) };
            texts.push((name, text));
        }
        for text in texts.iter().filter_map(|(_, text)| text.as_ref()) {
            self.seen.knows(text.clone().into_bytes());
        }
        texts
    }

    pub(super) fn agent_changes_files(&mut self) {
        let texts = self.new_texts();
        if texts.is_empty() {
            return;
        }
        let change = |(name, text): &(String, Option<String>)| {
            let action = text.as_ref().map_or(Action::Delete, |text| Action::Write(text.clone().into()));
            Change::new(name, action).expecting(self.expected(name))
        };
        let changes = texts.iter().map(change).collect();
        let turn = self.turn();
        self.gate.apply(&turn, changes).unwrap().into_result().unwrap();
        let wanted = texts
            .into_iter()
            .map(|(name, text)| (name, text.map(|text| Digest::of(text.as_bytes()).to_string())));
        self.all_was_done(&wanted.collect::<Vec<_>>());
    }

    pub(super) fn agent_moves_a_file(&mut self) {
        let (Some(from), Some(to)) = (self.file(), self.free_name()) else { return };
        let (turn, expected) = (self.turn(), self.expected(&from));
        self.gate.move_file(&turn, &from, &to, expected).unwrap().into_result().unwrap();
        let hash = self.files[&from].hash.clone();
        self.all_was_done(&[(from, None), (to, Some(hash))]);
    }

    pub(super) fn agent_moves_a_folder(&mut self) {
        let [from, to] = if self.below(2) == 0 { ["d", "e"] } else { ["e", "d"] };
        let root = self.world.root();
        if !root.join(from).exists() || fs::remove_dir(root.join(to)).is_err() && root.join(to).exists() {
            return;
        }
        let turn = self.turn();
        self.gate.move_folder(&turn, from, to).unwrap().into_result().unwrap();
        self.folder_was_moved(from, to);
    }

    /// Somebody without tollgate saves, deletes, links, or changes a mode.
    pub(super) fn outsider_acts(&mut self) {
        let name = self.name();
        let path = self.world.path(&name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match self.below(10) {
            0 => drop(fs::remove_file(&path)),
            1 => {
                let _ = fs::remove_file(&path);
                let to = self.name();
                symlink(to, &path).unwrap();
            }
            2 if !self.is_link(&name) && path.exists() => {
                let mode = if self.files[&name].may_execute { 0o644 } else { 0o755 };
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
            kind => {
                if self.is_link(&name) {
                    fs::remove_file(&path).unwrap();
                    self.files.remove(&name);
                }
                let text = self.edited(&name);
                if kind < 6 {
                    fs::write(&path, text).unwrap();
                } else {
                    fs::write(self.world.tmp().join("new"), text).unwrap();
                    fs::rename(self.world.tmp().join("new"), &path).unwrap();
                }
            }
        }
        self.look();
    }

    /// An agent runs a command that changes several files, which may be killed.
    pub(super) fn agent_runs_a_command(&mut self) {
        let mut script = String::from("mkdir -p d e\n");
        for _ in 0..1 + self.below(3) {
            let (name, other, line) = (self.name(), self.name(), self.new_line());
            script += &match self.below(8) {
                0..=2 => format!("[ -L {name} ] || echo '{line}' >> {name}\n"),
                3 => format!("[ -L {name} ] || [ ! -e {name} ] || sed -i 1d {name}\n"),
                4 => format!("rm -f {name}\n"),
                5 => format!(
                    "[ -L {name} ] || [ ! -e {name} ] || [ -e {other} ] || [ -L {other} ] || mv {name} {other}\n"
                ),
                6 => format!("[ -d {name} ] || ln -sfn {other} {name}\n"),
                _ => format!("[ -L {name} ] || [ ! -e {name} ] || chmod +x {name}\n"),
            };
        }
        // A step that a folder or a link is in the way of does nothing.
        script += "true\n";
        let agent = self.agent();
        let run = ["run", "--mode", "transaction", "--agent", agent, "--", "sh", "-c", &script];
        let ended = self.process(&run, None);
        assert!(matches!(ended, None | Some(0)), "{ended:?}: {script}");
        self.all_or_nothing_was_done(ended.is_some());
    }

    /// A process changes files, which may be killed.
    pub(super) fn process_changes_files(&mut self) {
        let texts = self.new_texts();
        if texts.is_empty() {
            return;
        }
        let change = |(name, text): &(String, Option<String>)| match text {
            Some(text) => json!({"path": name, "content": text}),
            None => json!({"path": name, "delete": true}),
        };
        let changes: Vec<Value> = texts.iter().map(change).collect();
        let agent = self.agent();
        let ended = self.process(&["apply", "--agent", agent], Some(json!(changes).to_string()));
        assert!(matches!(ended, None | Some(0)), "{ended:?}: {changes:?}");
        self.all_or_nothing_was_done(ended.is_some());
    }

    /// Runs `tollgate` as a process, and may kill it, half of the time. Returns the exit code, if it was not killed.
    pub(super) fn process(&mut self, words: &[&str], stdin: Option<String>) -> Option<i32> {
        self.processes += 1;
        let input = self.world.tmp().join("input");
        fs::write(&input, stdin.unwrap_or_default()).unwrap();
        let mut run: Run<'_> = self.world.tollgate(words);
        run.command.stdin(fs::File::open(&input).unwrap()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = run.command.process_group(0).spawn().unwrap();
        let group = Pid::from_child(&child);
        let began = Instant::now();
        if self.below(2) == 0 || !self.kills {
            let ended = until("the end of a command", || child.try_wait().unwrap());
            assert!(began.elapsed() < PATIENCE);
            self.usual = began.elapsed();
            return ended.code();
        }
        // At any moment of its life.
        let after = self.usual.mul_f64(self.below(1000) as f64 / 800.0);
        let killed = kill_after(&mut child, group, after);
        self.killed += usize::from(killed);
        (!killed).then(|| child.wait().unwrap().code()).flatten()
    }
}

/// Kills a process with all its children after this time, unless it has ended. Whether it was killed.
fn kill_after(child: &mut Child, group: Pid, after: Duration) -> bool {
    let end = Instant::now() + after;
    while Instant::now() < end {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::yield_now();
    }
    let _ = kill_process_group(group, Signal::KILL);
    child.wait().unwrap().signal().is_some()
}
