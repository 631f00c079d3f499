//! Past changes with their sizes and diffs, and their JSON, which is the same on the command line, over MCP and in the packages.

use std::ops::ControlFlow;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::content::Contents;
use super::step::{Back, Step, Steps};
use super::trail::Trail;
use crate::merge::{changed_lines, diff_texts};
use crate::workspace::Workspace;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::name::Agent;
use tollgate_base::task::TaskName;

/// Which changes to list.
#[derive(Debug, Clone, Copy, Default)]
pub struct Selection<'a> {
    /// Only those of this file, as the ledger names it, also under its earlier names.
    pub file: Option<&'a str>,
    /// Only those of this agent.
    pub agent: Option<&'a Agent>,
    /// Only those that were made for this task.
    pub task: Option<&'a TaskName>,
    /// Only those since this time.
    pub since: Option<Timestamp>,
    /// The number of changes at most.
    pub most: Option<usize>,
}

/// Past changes, the newest first.
#[derive(Debug, Default)]
pub struct PastChanges {
    /// The changes.
    pub changes: Vec<PastChange>,
    /// The number of ledger lines that cannot be read.
    pub damaged: usize,
}

/// The selected steps that were made as one.
#[derive(Debug, Clone)]
pub struct PastChange {
    /// At least one.
    pub steps: Vec<Step>,
    /// The lines that were added and removed in all files.
    pub size: Size,
}

impl PastChanges {
    /// Lists them.
    pub fn list(workspace: &Workspace, selection: &Selection<'_>) -> Result<Self> {
        let most = selection.most.unwrap_or(usize::MAX);
        let mut trail = selection.file.map(Trail::of);
        let back = selection.since.map_or(Back::ToTheStart, Back::To);
        let (mut count, mut last) = (0, None);
        let Steps { mut steps, damaged } = Steps::read(workspace.ledger(), back, |step| {
            let is_of_file = trail.as_mut().is_none_or(|trail| trail.takes(step));
            let is_of_agent = selection.agent.is_none_or(|agent| step.agent.as_ref() == Some(agent));
            let wanted = is_of_file && is_of_agent;
            // The task is known only once its claim was read.
            if wanted && selection.task.is_none() && last != Some(step.change) {
                (count, last) = (count + 1, Some(step.change));
            }
            if count > most { ControlFlow::Break(()) } else { ControlFlow::Continue(wanted) }
        })?;
        if let Some(task) = selection.task {
            steps.retain(|step| step.task.as_ref() == Some(task));
        }
        Ok(Self { changes: changes(workspace, &steps, most)?, damaged })
    }

    /// The bytes before and after these changes.
    pub fn contents<'a>(&self, workspace: &'a Workspace) -> Contents<'a> {
        Contents::of(workspace).left_by(self.changes.iter().flat_map(|change| &change.steps))
    }
}

/// The number of ledger lines that are read for one part: about a tenth of a second.
const LINES: u64 = 20_000;

/// A part of the past, the newest first, as a page shows it, without the tasks. The cost does not grow with the ledger: a search that finds too little ends
/// after a bounded number of lines.
#[derive(Debug, Default)]
pub struct PastPart {
    /// The changes.
    pub changes: Vec<PastChange>,
    /// The next part is that before this ledger line; `None` if there is none.
    pub older: Option<u64>,
}

impl PastPart {
    /// The newest wanted changes, at most `most`; of those before a ledger line, if one is given. It is asked of each step, the newest
    /// first; `Break` says that nothing older is wanted.
    pub fn read(
        workspace: &Workspace,
        before: Option<u64>,
        most: usize,
        mut wanted: impl FnMut(&Step) -> ControlFlow<(), bool>,
    ) -> Result<Self> {
        let ledger = workspace.ledger();
        let before = before.unwrap_or(u64::MAX);
        let newest = ledger.newest_before(before)?.find_map(|line| Some(line.ok()?.seq)).unwrap_or(0);
        let floor = newest.saturating_sub(LINES).max(1);
        let (mut count, mut last, mut lowest, mut is_all) = (0, None, floor, floor == 1);
        let mut older = None;
        let steps = Steps::read_part(ledger, before, Back::ToLine(floor), |step| {
            let wants = match wanted(step) {
                ControlFlow::Continue(wants) => wants,
                ControlFlow::Break(()) => {
                    is_all = true;
                    return ControlFlow::Break(());
                }
            };
            if wants && last != Some(step.change) {
                if count == most {
                    older = last;
                    return ControlFlow::Break(());
                }
                (count, last) = (count + 1, Some(step.change));
            }
            lowest = lowest.min(step.change);
            ControlFlow::Continue(wants)
        })?
        .steps;
        Ok(Self {
            changes: changes(workspace, &steps, most)?,
            older: older.or((!is_all).then_some(lowest)).filter(|older| *older > 1),
        })
    }

    /// The bytes before and after these changes.
    pub fn contents<'a>(&self, workspace: &'a Workspace) -> Contents<'a> {
        Contents::of(workspace).left_by(self.changes.iter().flat_map(|change| &change.steps))
    }
}

/// The steps as changes, the newest first.
fn changes(workspace: &Workspace, steps: &[Step], most: usize) -> Result<Vec<PastChange>> {
    let contents = Contents::of(workspace).left_by(steps);
    let change = |steps: &[Step]| {
        let none = Size::Lines { added: 0, removed: 0 };
        let size = file_diffs(&contents, steps)?.iter().fold(none, |sum, file| sum.sum(file.size));
        Ok(PastChange { steps: steps.to_vec(), size })
    };
    steps.chunk_by(|one, other| one.change == other.change).rev().take(most).map(change).collect()
}

/// What steps did to each file. A move alone does nothing.
fn file_diffs(contents: &Contents<'_>, steps: &[Step]) -> Result<Vec<FileDiff>> {
    let effects = steps.iter().filter(|step| step.moved_to.is_none()).flat_map(Step::effects);
    let changed = effects.filter(|(_, before, after)| before != after);
    changed.map(|(path, before, after)| FileDiff::of(contents, path, [before, after])).collect()
}

impl PastChange {
    /// The diffs of all its files. `None` if one of them has none.
    pub fn diff(&self, contents: &Contents<'_>) -> Result<Option<String>> {
        Ok(file_diffs(contents, &self.steps)?.into_iter().map(|file| file.diff).collect())
    }

    /// What it did to each file. A move alone does nothing.
    pub fn files(&self, contents: &Contents<'_>) -> Result<Vec<FileDiff>> {
        file_diffs(contents, &self.steps)
    }

    /// Without diffs.
    pub fn json(&self) -> Value {
        let first = &self.steps[0];
        let mut json = json!({
            "seq": first.change,
            "time": first.time,
            "agent": first.agent,
            "turn": first.turn,
            "via": first.tool,
            "paths": self.steps.iter().map(Step::landed).collect::<Vec<_>>(),
        });
        if let Some(task) = &first.task {
            json["task"] = task.as_str().into();
        }
        let moved: Vec<Value> = self
            .steps
            .iter()
            .filter_map(|step| Some(json!({"from": step.path, "to": step.moved_to.as_ref()?})))
            .collect();
        if !moved.is_empty() {
            json["moved"] = moved.into();
        }
        self.size.put(&mut json);
        json
    }
}

/// What there is to say of the difference between two contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// The lines.
    Lines {
        /// The number of lines that only the second has.
        added: usize,
        /// The number of lines that only the first has.
        removed: usize,
    },
    /// One of them is not text, or too large.
    NotText,
    /// One of them is a symbolic link, which has no text.
    Link,
    /// The bytes of one of them are no longer kept.
    NotKept,
}

impl Size {
    fn sum(self, other: Self) -> Self {
        match (self, other) {
            (Self::Lines { added: a, removed: r }, Self::Lines { added, removed }) => {
                Self::Lines { added: a + added, removed: r + removed }
            }
            (Self::Lines { .. }, unknown) | (unknown, _) => unknown,
        }
    }

    fn put(self, json: &mut Value) {
        let (added, removed, why) = match self {
            Self::Lines { added, removed } => (Some(added), Some(removed), None),
            Self::NotText => (None, None, Some("not_text")),
            Self::Link => (None, None, Some("link")),
            Self::NotKept => (None, None, Some("not_kept")),
        };
        json["added"] = added.into();
        json["removed"] = removed.into();
        if let Some(why) = why {
            json["unknown"] = why.into();
        }
    }
}

/// The difference of two contents of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDiff {
    /// As the ledger names it.
    pub path: String,
    /// The hash before; `None`: there was no file.
    pub before: Option<Digest>,
    /// The hash after.
    pub after: Option<Digest>,
    /// How large it is.
    pub size: Size,
    /// `None` if the size is not known.
    pub diff: Option<String>,
}

impl FileDiff {
    /// From the bytes with the first hash to those with the second.
    pub fn of(contents: &Contents<'_>, path: &str, [before, after]: [Option<Digest>; 2]) -> Result<Self> {
        let disk = contents.text_on_disk(path)?;
        let bytes = |digest: Option<Digest>| -> Result<std::result::Result<Vec<u8>, Size>> {
            let Some(digest) = digest else { return Ok(Ok(Vec::new())) };
            Ok(match disk.as_ref().filter(|disk| disk.digest == digest) {
                Some(disk) if disk.is_link => Err(Size::Link),
                Some(disk) => disk.bytes.clone().ok_or(Size::NotText),
                None => contents.find(digest)?.ok_or(Size::NotKept),
            })
        };
        let (size, diff) = match (bytes(before)?, bytes(after)?) {
            (Ok(one), Ok(other)) => match changed_lines(&one, &other) {
                None => (Size::NotText, None),
                Some([added, removed]) => {
                    (Size::Lines { added, removed }, diff_texts(&one, &other, ["before", "after"]))
                }
            },
            (Err(why), _) | (_, Err(why)) => (why, None),
        };
        Ok(Self { path: path.to_owned(), before, after, size, diff })
    }

    /// With the diff.
    pub fn json(&self) -> Value {
        let mut json =
            json!({"path": self.path, "before": self.before, "after": self.after, "diff": self.diff});
        self.size.put(&mut json);
        json
    }
}
