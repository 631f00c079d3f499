//! `serve --demo`: a temporary workspace in which four agents and an editor work at the pace of people.
//!
//! Nothing is faked: the agents claim, read, pause, write and release like any agent, each with its own gate and vault. The
//! editor saves the same file without tollgate, so some of the agents' writes are refused; they merge, or read and write
//! again. The fourth agent is a process of its own that is killed in the middle of its work, again and again.
//! Everything is in one temporary folder, including what is otherwise in the user's folders. It is deleted at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tollgate::error::{Fault, Result};
use tollgate::gate::Gate;
use tollgate::guard::{Expected, Outcome};
use tollgate::name::{Agent, TurnId};
use tollgate::part::Part;
use tollgate::shared_turn::Leaves;
use tollgate::turn::TurnState;
use tollgate::vault::claim::Mode;
use tollgate::vault::state::State;
use tollgate::vault::{ClaimKind, ClaimRequest, Claimed, Release, TaskName, Vault};
use tollgate::workspace::STATE_FOLDER;

use crate::invocation::Invocation;
use crate::surroundings::Surroundings;

const AGENTS: [&str; 3] = ["blue", "green", "violet"];

const CONFIG: &str = r#"# The demo of tollgate.
version = 1

[guard]
unread = "known"

# All three write plans. None sends an email before a person has approved it; then `violet` does.
[agent.blue]
allowed = ["plan"]
sensitive = ["send_email"]

[agent.green]
allowed = ["plan"]
sensitive = ["send_email"]

[agent.violet]
allowed = ["plan", "send_email"]
sensitive = ["send_email"]

# Killed in the middle of its work; the others then get its task.
[agent.amber]
allowed = ["plan"]
"#;

/// The files that all agents write to. The editor saves the first.
const TOPICS: [(&str, &str); 3] = [
    ("plan.md", "# Plan of the meeting\n\nBreaks: 0\n\n- begin at nine\n"),
    ("room.md", "# The room\n\n- second floor\n"),
    ("packing.md", "# What to bring\n\n- name tags\n"),
];
/// The file for approved emails.
const OUTBOX: &str = "outbox.md";
/// The number of tasks that wait.
const BACKLOG: usize = 5;
/// The number of lines that a file keeps, so that a demo that runs all day stays small.
const LINES: usize = 14;

const PLANS: [&str; 8] = [
    "Add the opening hours to the plan",
    "Write down what to bring",
    "Ask for a second projector",
    "List the questions from last time",
    "Plan the walk to the station",
    "Choose the room",
    "Sort the sessions by topic",
    "Write the packing list",
];

const EMAILS: [&str; 3] =
    ["Invite the speakers", "Tell everybody about the new room", "Ask the caterer for an offer"];

/// The demo, which runs until it is dropped.
pub(super) struct Demo {
    pace: Arc<Pace>,
    threads: Vec<JoinHandle<()>>,
    // The last field, so that the folder is deleted after all threads have ended.
    folder: TempDir,
}

impl Demo {
    /// Creates the workspace. Nobody works in it yet.
    pub(super) fn new() -> Result<Self> {
        let temporary = Surroundings::temporary();
        let folder = tempfile::Builder::new()
            .prefix("tollgate-demo-")
            .tempdir_in(&temporary)
            .map_err(|source| Fault::Io { doing: "make a folder in", path: temporary, source })?;
        let demo = Self { pace: Arc::default(), threads: Vec::new(), folder };
        let root = demo.root();
        let vault = root.join("vault");
        for folder in [demo.inside("run"), demo.inside("state"), root.join(STATE_FOLDER)] {
            made(&folder, fs::create_dir_all(&folder))?;
        }
        for state in State::ALL {
            let folder = vault.join(state.as_str());
            made(&folder, fs::create_dir_all(&folder))?;
        }
        for (name, text) in
            TOPICS.into_iter().chain([(".tollgate/config.toml", CONFIG), (OUTBOX, "# Sent\n")])
        {
            let path = root.join(name);
            made(&path, fs::write(&path, text))?;
        }
        Ok(demo)
    }

    fn inside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The workspace.
    pub(super) fn root(&self) -> PathBuf {
        self.inside("workspace")
    }

    /// A call inside the demo.
    pub(super) fn invocation(&self, agent: Option<Agent>) -> Invocation {
        Invocation::apart(&self.root(), &self.inside("run"), &self.inside("state"), agent)
    }

    /// Starts all threads.
    pub(super) fn starts(&mut self) -> Result<()> {
        let mut feeder = Feeder { tasks: self.invocation(None).tasks_or_fault()?.vault.clone(), added: 0 };
        // One email first, so that a draft soon waits for approval.
        feeder.adds(TaskKind::Email)?;
        for _ in 0..BACKLOG {
            feeder.adds(TaskKind::Plan)?;
        }
        self.spawns(move |pace| feeder.feeds(pace));
        let plan = self.root().join(TOPICS[0].0);
        self.spawns(move |pace| editor(&plan, pace));
        let (program, root) = (Surroundings::executable(), self.root());
        let folders = [("XDG_RUNTIME_DIR", self.inside("run")), ("XDG_STATE_HOME", self.inside("state"))];
        self.spawns(move |pace| dying_worker(&program, &root, &folders, pace));
        for name in AGENTS {
            let agent: Agent = name.parse()?;
            let worker = Worker::new(self.invocation(Some(agent.clone())), agent)?;
            self.spawns(move |pace| worker.works(pace));
        }
        Ok(())
    }

    fn spawns(&mut self, work: impl FnOnce(&Pace) + Send + 'static) {
        let pace = self.pace.clone();
        self.threads.push(thread::spawn(move || work(&pace)));
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        self.pace.stop();
        for thread in self.threads.drain(..) {
            // Errors of the demo's threads do not matter at its end.
            let _ = thread.join();
        }
    }
}

fn made(path: &Path, made: std::io::Result<()>) -> Result<()> {
    made.map_err(|source| Fault::Io { doing: "make", path: path.to_owned(), source })
}

/// The pace of the demo, and the signal that it is over.
#[derive(Default)]
struct Pace {
    over: Mutex<bool>,
    changed: Condvar,
}

impl Pace {
    /// Waits for this time. Returns whether the demo continues.
    fn rest(&self, milliseconds: u64) -> bool {
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        let time = Duration::from_millis(milliseconds);
        let waited = self.changed.wait_timeout_while(over, time, |over| !*over);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn stop(&self) {
        *self.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

/// An editor without tollgate. It counts breaks above the list that the agents add to.
fn editor(plan: &Path, pace: &Pace) {
    let mut breaks = 0;
    while pace.rest(if breaks < 3 { 1_100 } else { 4_300 }) {
        if let Ok(text) = fs::read_to_string(plan) {
            let _ = fs::write(
                plan,
                text.replace(&format!("Breaks: {breaks}\n"), &format!("Breaks: {}\n", breaks + 1)),
            );
            breaks += 1;
        }
    }
}

/// A worker in a process of its own, whose command kills it. Again and again.
fn dying_worker(program: &Path, root: &Path, folders: &[(&str, PathBuf)], pace: &Pace) {
    while pace.rest(3_000) {
        let mut worker = Command::new(program);
        worker.arg("-C").arg(root).args(["work", "--agent", "amber", "--grace", "0", "--"]);
        worker.args(["sh", "-c", "sleep 2; kill -9 $PPID"]);
        worker.envs(folders.iter().map(|(name, folder)| (name, folder)));
        worker.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(mut worker) = worker.spawn() else { return };
        while matches!(worker.try_wait(), Ok(None)) {
            if !pace.rest(200) {
                if let Some(pid) = Pid::from_raw(worker.id().cast_signed()) {
                    let _ = kill_process(pid, Signal::TERM);
                }
                let _ = worker.wait();
                return;
            }
        }
        if !pace.rest(12_000) {
            return;
        }
    }
}

/// The text with one more line at the end of its list, and without the oldest lines if there are too many.
fn with_line(text: &str, line: &str) -> String {
    let (head, list) = text.find("\n- ").map_or((text, ""), |at| text.split_at(at + 1));
    let lines: Vec<&str> = list.lines().chain([line]).collect();
    let newest = &lines[lines.len().saturating_sub(LINES)..];
    format!("{}\n\n{}\n", head.trim_end(), newest.join("\n"))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TaskKind {
    Plan,
    Email,
}

/// Adds new tasks.
struct Feeder {
    tasks: Vault,
    added: usize,
}

impl Feeder {
    fn adds(&mut self, kind: TaskKind) -> Result<()> {
        let (titles, action, priority) = match kind {
            TaskKind::Plan => (&PLANS[..], "plan", "normal"),
            TaskKind::Email => (&EMAILS[..], "send_email", "high"),
        };
        let title = titles[self.added % titles.len()];
        self.added += 1;
        let name: TaskName =
            format!("{:03}-{}", self.added, title.to_lowercase().replace(' ', "-")).parse()?;
        let body = match kind {
            TaskKind::Plan => "Put it into the file of its topic, below what is there.",
            TaskKind::Email => "Short and friendly. A person reads it before it goes out.",
        };
        let text = format!("---\naction: {action}\npriority: {priority}\n---\n# {title}\n\n{body}\n");
        self.tasks.add(&name, text.as_bytes(), jiff::Timestamp::now()).map(drop)
    }

    fn feeds(mut self, pace: &Pace) {
        for round in 1.. {
            if !pace.rest(1_700) {
                return;
            }
            // Few enough for a person to read.
            if round % 9 == 0 && self.count(State::PendingApproval) < 3 {
                let _ = self.adds(TaskKind::Email);
            }
            while self.count(State::NeedsAction) < BACKLOG && self.adds(TaskKind::Plan).is_ok() {}
        }
    }

    fn count(&self, state: State) -> usize {
        let scan = self.tasks.store().scan(state, jiff::Timestamp::now());
        scan.map_or(usize::MAX, |scan| scan.tasks.len())
    }
}

/// One agent.
struct Worker {
    invocation: Invocation,
    gate: Gate,
    vault: Vault,
    agent: Agent,
}

impl Worker {
    fn new(invocation: Invocation, agent: Agent) -> Result<Self> {
        Ok(Self {
            gate: invocation.gate()?,
            vault: invocation.tasks_or_fault()?.vault.clone(),
            invocation,
            agent,
        })
    }

    fn works(self, pace: &Pace) {
        let asked = ClaimRequest { agent: self.agent.clone(), kind: ClaimKind::Held, renamed_in: false };
        // Not all at the same moment.
        let mut wait = 150 * AGENTS.iter().position(|name| *name == self.agent.as_str()).unwrap_or(0) as u64;
        for round in 0_u32.. {
            if !pace.rest(wait) {
                return;
            }
            wait = 600;
            // Also the tasks of those who died.
            let _ = self.vault.reclaim(self.invocation.now());
            let claimed = if round % 3 == 2 {
                self.chooses(&asked, pace)
            } else {
                self.vault.claim_next(&asked, self.invocation.now()).map(|(claimed, _)| claimed)
            };
            // An error affects one task only, and another agent reclaims it.
            if let Ok(Some(claimed)) = claimed
                && self.does(&claimed, pace).is_ok()
            {
                wait = 1_400;
            }
        }
    }

    /// Looks at the list, chooses the first task, and claims it a moment later. Another agent may be faster.
    fn chooses(&self, asked: &ClaimRequest, pace: &Pace) -> Result<Option<Claimed>> {
        let listed = self.vault.store().scan(State::NeedsAction, self.invocation.now())?.tasks;
        let Some(first) = listed.into_iter().map(|task| task.name).min() else { return Ok(None) };
        if !pace.rest(900) {
            return Ok(None);
        }
        Ok(self.vault.claim(&first, asked, self.invocation.now())?.ok())
    }

    fn does(&self, claimed: &Claimed, pace: &Pace) -> Result<()> {
        let title = claimed.task.stem().get(4..).unwrap_or_default().replace('-', " ");
        let id = &claimed.claim.id;
        let note = match (claimed.claim.mode, claimed.claim.action.as_deref()) {
            (Mode::Draft, _) => {
                let draft = format!("Hello,\n\nthis is to {title}. Please answer by Friday.\n");
                if !pace.rest(1_600) {
                    None
                } else {
                    let drafted = self.vault.draft(&claimed.task, id, &draft, self.invocation.now())?;
                    drafted.is_ok().then(|| "drafted".to_owned())
                }
            }
            (Mode::Execute, Some("send_email")) => {
                self.writes(Path::new(OUTBOX), pace, |text| with_line(text, &format!("- sent: {title}")))?
            }
            _ => {
                let line = format!("- {title} ({})", self.agent);
                let number: usize =
                    claimed.task.stem().get(..3).and_then(|digits| digits.parse().ok()).unwrap_or(0);
                let (topic, _) = TOPICS[number % TOPICS.len()];
                self.writes(Path::new(topic), pace, |text| with_line(text, &line))?
            }
        };
        let now = self.invocation.now();
        let release = match note {
            // The demo is over.
            None => Release::give_back("stopped"),
            Some(note) => Release { note: Some(note), ..Release::success() },
        };
        self.vault.release(&claimed.task, id, &release, now).map(drop)
    }

    /// Reads, pauses, writes. If the write is refused, merges; starts again if that is not possible. `None` if the demo is over
    /// first.
    fn writes(&self, path: &Path, pace: &Pace, change: impl Fn(&str) -> String) -> Result<Option<String>> {
        let turns = self.invocation.new_turns()?;
        let turn = turns.begin(TurnId::new()?, self.agent.clone(), self.invocation.now(), Leaves::Known)?;
        self.gate.record_turn_start(&turn)?;
        let written = self.writes_in(&turn, path, pace, change);
        self.gate.record_turn_end(&turn)?;
        turns.end(turn)?;
        let _ = self.gate.workspace().sweep();
        written
    }

    fn writes_in(
        &self,
        turn: &dyn TurnState,
        path: &Path,
        pace: &Pace,
        change: impl Fn(&str) -> String,
    ) -> Result<Option<String>> {
        let mut refused = 0;
        // Each attempt pauses for a shorter time.
        for thinks in [1_600, 700, 300, 100, 0, 0, 0] {
            let Outcome::Done(read) = self.gate.read(turn, path, Part::Whole)? else { break };
            if !pace.rest(thinks) {
                return Ok(None);
            }
            let text = change(&String::from_utf8_lossy(&read.bytes));
            match self.gate.write(turn, path, text, Expected::Baseline)? {
                Outcome::Done(_) if refused == 0 => return Ok(Some("written at once".into())),
                Outcome::Done(_) => {
                    return Ok(Some(format!("refused {refused} times, then read again and written")));
                }
                Outcome::Refused(_) => refused += 1,
            }
            if let Ok(merge) = self.gate.merge(turn, path, Some(&self.agent))?
                && merge.clean
                && let Outcome::Done(_) = self.gate.write_merge(turn, merge)?
            {
                return Ok(Some("refused, then merged with what the editor or another agent wrote".into()));
            }
        }
        Err(Fault::invalid(format!("`{}` changes all the time", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_heading_and_its_newest_lines() {
        let mut text = "# Plan\n\nBreaks: 0\n\n- begin\n".to_owned();
        for number in 0..50 {
            text = with_line(&text, &format!("- {number}"));
        }
        assert!(text.starts_with("# Plan\n\nBreaks: 0\n\n- 36\n") && text.ends_with("- 49\n"), "{text}");
        assert_eq!(with_line("# Sent\n", "- one"), "# Sent\n\n- one\n");
    }
}
