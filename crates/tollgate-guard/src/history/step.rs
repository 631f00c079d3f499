//! The changes that the ledger has, one step for each line, with the task that the agent was working on.
//!
//! Lines are read from the newest to the oldest, so that what happened lately costs nothing on an old ledger. The lines of one change
//! of several files follow each other, and only the first of them says how long the change took. What a command did to git's own data,
//! such as the index, is left out: git undoes that.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{ControlFlow, Range};

use jiff::Timestamp;

use crate::protected::is_of_git;
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::event::{Event, FileChanged, FolderMoved, Guarantee, Mutation, MutationStatus};
use tollgate_base::ledger::{Ledger, Line};
use tollgate_base::name::{Agent, ClaimId, TurnId};
use tollgate_base::task::TaskName;

/// Lines are in the order in which they were written. Their times may differ from it a little, because processes look at the clock
/// before they wait for each other.
const OUT_OF_ORDER: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

/// The number of further lines in which to look for the claims under which the last steps were made.
const CLAIM_LINES: usize = 20_000;

/// What an agent did to one file, or to one folder with everything in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The number of its ledger line.
    pub seq: u64,
    /// The number of the first line of the change: steps that have the same were made as one.
    pub change: u64,
    /// When.
    pub time: Timestamp,
    /// The agent.
    pub agent: Option<Agent>,
    /// Its turn.
    pub turn: Option<TurnId>,
    /// The task that the agent had claimed. `None` also if it had claimed several: then nobody knows for which of them it was.
    pub task: Option<TaskName>,
    /// The tool; `run` for a command that tollgate ran.
    pub tool: String,
    /// The path before, as the ledger writes it: relative to the workspace if it is in it.
    pub path: String,
    /// The path after a move.
    pub moved_to: Option<String>,
    /// What happened to the bytes.
    pub what: What,
    /// It deleted a file that its user could execute.
    pub executable: bool,
}

/// What a step does to bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// One file had these bytes before, and has those after; `None` where there was no file.
    File {
        /// Before.
        before: Option<Digest>,
        /// After.
        after: Option<Digest>,
    },
    /// A folder was moved. No bytes changed.
    Folder,
}

impl Step {
    /// Its path after the step.
    pub fn landed(&self) -> &str {
        self.moved_to.as_deref().unwrap_or(&self.path)
    }

    /// What the step does to each path: the bytes before and after. A move does it to two. Empty for a folder, whose files the
    /// ledger does not name.
    pub fn effects(&self) -> Vec<(&str, Option<Digest>, Option<Digest>)> {
        match (&self.what, &self.moved_to) {
            (What::Folder, _) => Vec::new(),
            (What::File { before, after }, None) => vec![(&self.path, *before, *after)],
            (What::File { before, after }, Some(to)) => {
                vec![(&self.path, *before, None), (to, None, *after)]
            }
        }
    }

    /// Whether a line is a step, which a person can look at: not what a command did to git's own data.
    pub fn is_line(line: &Line) -> bool {
        Self::of(line).is_some_and(|step| !is_of_git(step.path.as_ref()))
    }

    fn of(line: &Line) -> Option<Self> {
        let Event::Mutation(mutation, MutationStatus::Applied) = &line.event else { return None };
        let executable = matches!(mutation, Mutation::File(file) if file.executable);
        let (tool, path, moved_to, what) = match mutation {
            Mutation::File(FileChanged {
                tool_name,
                target_file,
                moved_to,
                hash_before: before,
                hash_after: after,
                ..
            }) => {
                let what = What::File { before: *before, after: *after };
                (tool_name, target_file, moved_to.clone(), what)
            }
            Mutation::Folder(FolderMoved { tool_name, target_file, moved_to, .. }) => {
                (tool_name, target_file, Some(moved_to.clone()), What::Folder)
            }
        };
        Some(Self {
            seq: line.seq,
            change: line.seq,
            time: line.time,
            agent: line.agent.clone(),
            turn: line.turn.clone(),
            task: None,
            tool: tool.clone(),
            path: path.clone(),
            moved_to,
            what,
            executable,
        })
    }
}

/// What the first of these steps that changed a path found there.
pub fn found(steps: &[Step]) -> BTreeMap<&str, Option<Digest>> {
    let mut found = BTreeMap::new();
    for (path, before, _) in steps.iter().flat_map(Step::effects) {
        found.entry(path).or_insert(before);
    }
    found
}

/// How far back to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Back {
    /// To the first line.
    ToTheStart,
    /// To this time.
    To(Timestamp),
    /// To this line.
    ToLine(u64),
}

impl Back {
    fn reaches(self, line: &Line) -> bool {
        match self {
            Self::ToTheStart => true,
            Self::To(since) => line.time >= since.saturating_sub(OUT_OF_ORDER).unwrap_or(since),
            Self::ToLine(seq) => line.seq >= seq,
        }
    }

    fn has(self, step: &Step) -> bool {
        match self {
            Self::To(since) => step.time >= since,
            Self::ToTheStart | Self::ToLine(_) => true,
        }
    }
}

/// Steps of the ledger, the oldest first.
#[derive(Debug, Default)]
pub struct Steps {
    /// The steps.
    pub steps: Vec<Step>,
    /// The number of ledger lines that cannot be read.
    pub damaged: usize,
}

impl Steps {
    /// Reads the ledger from its end. Keeps the steps that are wanted, which is asked of each step, the newest first. `Break` ends the
    /// search with the change before.
    pub fn read(
        ledger: &Ledger,
        back: Back,
        wanted: impl FnMut(&Step) -> ControlFlow<(), bool>,
    ) -> Result<Self> {
        Self::of_lines(ledger.newest_first()?, Some(CLAIM_LINES), back, wanted)
    }

    /// Reads a part of the ledger, before this line, which must be the first of a change or beyond the end. Leaves out the tasks, whose
    /// claims may be in other parts.
    pub fn read_part(
        ledger: &Ledger,
        before: u64,
        back: Back,
        wanted: impl FnMut(&Step) -> ControlFlow<(), bool>,
    ) -> Result<Self> {
        Self::of_lines(ledger.newest_before(before)?, None, back, wanted)
    }

    fn of_lines(
        mut lines: impl Iterator<Item = Result<Line>>,
        claim_lines: Option<usize>,
        back: Back,
        mut wanted: impl FnMut(&Step) -> ControlFlow<(), bool>,
    ) -> Result<Self> {
        let mut read = Self::default();
        let mut claims = Claims::default();
        let mut undone = HashSet::new();
        // The lines of a change whose first line was not read yet.
        let mut change: Vec<Step> = Vec::new();
        let mut keep = |change: &mut Vec<Step>, steps: &mut Vec<Step>| {
            let first = change.last().map_or(0, |step| step.seq);
            for step in change.drain(..) {
                let step = Step { change: first, ..step };
                if back.has(&step) && !is_of_git(step.path.as_ref()) {
                    match wanted(&step) {
                        ControlFlow::Continue(true) => steps.push(step),
                        ControlFlow::Continue(false) => {}
                        ControlFlow::Break(()) => return ControlFlow::Break(()),
                    }
                }
            }
            ControlFlow::Continue(())
        };
        for line in &mut lines {
            let line = match line {
                Ok(line) => line,
                Err(Fault::Damaged { .. }) => {
                    read.damaged += 1;
                    continue;
                }
                Err(fault) => return Err(fault),
            };
            claims.take(&line);
            if !back.reaches(&line) && change.last().is_none_or(|step| !goes_on(step, &line)) {
                break;
            }
            let Event::Mutation(mutation, status) = &line.event else { continue };
            if change.last().is_some_and(|newer| !goes_on(newer, &line))
                && keep(&mut change, &mut read.steps).is_break()
            {
                break;
            }
            if let Mutation::File(file) = mutation {
                if *status == MutationStatus::Undone {
                    undone.insert(file.id.clone());
                }
                if *status == MutationStatus::Undone || undone.remove(&file.id) {
                    continue;
                }
            }
            change.extend(Step::of(&line));
            if is_first(&line) && keep(&mut change, &mut read.steps).is_break() {
                break;
            }
        }
        let _ = keep(&mut change, &mut read.steps);
        read.steps.reverse();
        if let Some(claim_lines) = claim_lines {
            // A task that was claimed long ago may not be released yet.
            lines.take(claim_lines).flatten().for_each(|line| claims.take(&line));
            claims.name_tasks(&mut read.steps);
        }
        Ok(read)
    }
}

/// Whether this older line may be of the same change as the step.
fn goes_on(newer: &Step, line: &Line) -> bool {
    let tool = match &line.event {
        Event::Mutation(Mutation::File(file), MutationStatus::Applied) => &file.tool_name,
        _ => return false,
    };
    line.seq + 1 == newer.seq && line.agent == newer.agent && line.turn == newer.turn && *tool == newer.tool
}

/// Whether a line begins a change: all but the later lines of a change of several files.
fn is_first(line: &Line) -> bool {
    match &line.event {
        // A tool of the agent's own program, or a process that finished the change of a dead one, writes a line for each file.
        Event::Mutation(Mutation::File(file), _) => {
            file.took_us.is_some() || file.recovered || file.guarantee == Some(Guarantee::Reserved)
        }
        _ => true,
    }
}

/// When which agent had claimed which task.
#[derive(Default)]
pub(crate) struct Claims {
    claims: Vec<Claim>,
    /// Claims whose beginning was not read yet.
    ended: HashMap<ClaimId, Claim>,
}

struct Claim {
    agent: Option<Agent>,
    task: TaskName,
    from: u64,
    to: u64,
}

impl Claims {
    /// Takes the next older line.
    pub(crate) fn take(&mut self, line: &Line) {
        match &line.event {
            Event::Release(released, _) => {
                let (agent, task) = (line.agent.clone(), released.task.clone());
                let claim = Claim { agent, task, from: 0, to: line.seq };
                self.ended.insert(released.attempt.claim_id.clone(), claim);
            }
            Event::Reclaim(reclaimed, _) => {
                if let Some(attempt) = &reclaimed.attempt {
                    // Not the agent of this line: it took the task from the owner.
                    let claim = Claim { agent: None, task: reclaimed.task.clone(), from: 0, to: line.seq };
                    self.ended.insert(attempt.claim_id.clone(), claim);
                }
            }
            Event::Claim(claimed) => {
                let to = self.ended.remove(&claimed.claim_id).map_or(u64::MAX, |ended| ended.to);
                let (agent, task) = (line.agent.clone(), claimed.task.clone());
                self.claims.push(Claim { agent, task, from: line.seq, to });
            }
            _ => {}
        }
    }

    /// The one task that an agent had claimed at some time between these lines. `None` also if there were several.
    pub(crate) fn task_of(mut self, agent: &Agent, lines: Range<u64>) -> Option<TaskName> {
        self.claims.extend(self.ended.into_values());
        let mut of_agent = self.claims.iter().filter(|claim| {
            claim.agent.as_ref() == Some(agent) && claim.from < lines.end && lines.start < claim.to
        });
        let first = of_agent.next()?;
        of_agent.all(|other| other.task == first.task).then(|| first.task.clone())
    }

    fn name_tasks(mut self, steps: &mut [Step]) {
        self.claims.extend(self.ended.into_values());
        self.claims.retain(|claim| claim.agent.is_some());
        for step in steps {
            let mut of_agent = self
                .claims
                .iter()
                .filter(|claim| claim.agent == step.agent && (claim.from..claim.to).contains(&step.seq));
            if let (Some(claim), None) = (of_agent.next(), of_agent.next()) {
                step.task = Some(claim.task.clone());
            }
        }
    }
}
