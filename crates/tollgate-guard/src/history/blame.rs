//! Who wrote each line of a file.

use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use similar::{DiffOp, capture_diff_slices_deadline};

use super::content::Contents;
use super::step::{Back, Step, Steps};
use super::trail::{By, State, Trail, states};
use crate::workspace::Workspace;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::working_tree::{BlamedCommit, WorkingTree};

/// The time that one comparison may take to find the smallest difference. After it, a larger one is taken.
const PATIENCE: Duration = Duration::from_secs(1);

/// Who wrote a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Writer {
    /// An agent, in this step.
    Step(Box<Step>),
    /// Somebody who does not use tollgate, between these times.
    SomebodyElse {
        /// The time of the guarded change before.
        after: Option<Timestamp>,
        /// The time of the guarded change that found the line; `None` if no change has come since.
        before: Option<Timestamp>,
    },
    /// One of these, because the bytes in between are no longer kept.
    OneOf {
        /// The steps.
        steps: Vec<Step>,
        /// Or somebody else.
        others: bool,
    },
    /// The line is older than the first guarded change.
    Older,
}

/// A line of a file, and who wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlamedLine {
    /// From 1.
    pub number: usize,
    /// Who.
    pub writer: Writer,
    /// The commit of a line that is older than the first guarded change.
    pub commit: Option<BlamedCommit>,
}

impl BlamedLine {
    /// The lines of a file without guarded changes.
    pub fn older(path: &Path, bytes: &[u8]) -> Result<Vec<Self>> {
        let number = bytes.split_inclusive(|byte| *byte == b'\n').count();
        Self::of(vec![Writer::Older; number], path, bytes)
    }

    fn of(writers: Vec<Writer>, path: &Path, bytes: &[u8]) -> Result<Vec<Self>> {
        let commits = match writers.contains(&Writer::Older).then(|| WorkingTree::around(path)).flatten() {
            Some(tree) => match path.strip_prefix(&tree.top) {
                Ok(below) => tree.blame(below, bytes)?,
                Err(_) => Vec::new(),
            },
            None => Vec::new(),
        };
        let line = |(index, writer): (usize, Writer)| Self {
            number: index + 1,
            commit: commits.get(index).cloned().flatten().filter(|_| writer == Writer::Older),
            writer,
        };
        Ok(writers.into_iter().enumerate().map(line).collect())
    }

    /// The line and who wrote it. `text` is without the end of the line.
    pub fn json_with(&self, text: &str) -> Value {
        let mut json = json!({"line": self.number, "text": text});
        if let (Value::Object(json), Value::Object(who)) = (&mut json, self.json()) {
            json.extend(who);
        }
        json
    }

    /// Who wrote it, without the line.
    pub fn json(&self) -> Value {
        let mut json = json!({"agent": null, "seq": null, "turn": null});
        match &self.writer {
            Writer::Step(step) => {
                json["by"] = "agent".into();
                json["agent"] = json!(step.agent);
                json["seq"] = step.seq.into();
                json["turn"] = json!(step.turn);
                json["time"] = json!(step.time);
                if let Some(task) = &step.task {
                    json["task"] = task.as_str().into();
                }
            }
            Writer::SomebodyElse { after, before } => {
                json["by"] = "somebody_else".into();
                json["between"] = json!([after, before]);
            }
            Writer::OneOf { steps, others } => {
                json["by"] = "not_kept".into();
                if let Some(first) = steps.first()
                    && !others
                    && steps.iter().all(|step| step.agent == first.agent)
                {
                    json["agent"] = json!(first.agent);
                }
                json["seqs"] = steps.iter().map(|step| step.seq).collect();
            }
            Writer::Older => match &self.commit {
                Some(BlamedCommit { commit, author, time }) => {
                    json["by"] = "commit".into();
                    json["commit"] = commit.as_str().into();
                    json["author"] = author.as_str().into();
                    json["time"] = json!(Timestamp::from_second(*time).ok());
                }
                None => json["by"] = "before".into(),
            },
        }
        json
    }
}

/// Who wrote each line of the file at this path, which has these bytes now. `name` is what the ledger calls it.
pub fn blame(workspace: &Workspace, name: &str, path: &Path, bytes: &[u8]) -> Result<Vec<BlamedLine>> {
    BlamedLine::of(writers(workspace, name, bytes)?, path, bytes)
}

pub(super) fn writers(workspace: &Workspace, name: &str, bytes: &[u8]) -> Result<Vec<Writer>> {
    let mut trail = Trail::of(name);
    let read =
        Steps::read(workspace.ledger(), Back::ToTheStart, |step| ControlFlow::Continue(trail.takes(step)))?;
    let now = Digest::of(bytes);
    let states = states(name, &read.steps, Some(now));
    let contents = Contents::of(workspace).left_by(&read.steps);
    let version = |state: &State| {
        let found = match state.digest {
            None => Some(Vec::new()),
            Some(digest) if digest == now => Some(bytes.to_vec()),
            Some(digest) => contents.find(digest)?,
        };
        Ok(found.map_or(Version::Lost, Version::Known))
    };
    let versions = states.iter().map(version).collect::<Result<Vec<_>>>()?;
    let writer = |origin| match origin {
        Origin::Oldest => Writer::Older,
        Origin::Came(range) => writer(&states, &read.steps, range),
    };
    Ok(origins(&versions).into_iter().map(writer).collect())
}

/// Who wrote a line that came with one of these states.
fn writer(states: &[State], steps: &[Step], range: Range<usize>) -> Writer {
    let may: Vec<Option<By>> = states[range].iter().map(|state| state.by).collect();
    match &may[..] {
        [Some(By::Step(index))] => Writer::Step(Box::new(steps[*index].clone())),
        [Some(By::SomebodyBefore(index))] => Writer::SomebodyElse {
            after: index.checked_sub(1).map(|before| steps[before].time),
            before: steps.get(*index).map(|step| step.time),
        },
        _ => Writer::OneOf {
            steps: may
                .iter()
                .filter_map(|by| match by {
                    Some(By::Step(index)) => Some(steps[*index].clone()),
                    _ => None,
                })
                .collect(),
            // The first state of all is what others left, too.
            others: may.iter().any(|by| !matches!(by, Some(By::Step(_)))),
        },
    }
}

/// A version of a file, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Version {
    /// Its bytes; none, if there was no file.
    Known(Vec<u8>),
    /// Its bytes are no longer kept.
    Lost,
}

/// The version with which the line came into the file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    /// The oldest version has it.
    Oldest,
    /// It came with one of these versions, by their indices. More than one: the bytes of those before the last are no longer kept.
    Came(Range<usize>),
}

/// The last version whose bytes are known, with the origin of each of its lines.
struct LastKnown<'v> {
    index: usize,
    lines: Vec<&'v [u8]>,
    origins: Vec<Origin>,
}

/// For each line of the last version, where it comes from. The versions are the oldest first.
///
/// Each version is compared with the one before it. A line that stays keeps its origin, every other line came with the version. If the
/// bytes of a version are lost, the version after it is compared with the last known one.
fn origins(versions: &[Version]) -> Vec<Origin> {
    let mut known: Option<LastKnown<'_>> = None;
    for (index, version) in versions.iter().enumerate() {
        let Version::Known(bytes) = version else { continue };
        let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        let origins = match &known {
            // What the lines of the first known version were before, nobody knows.
            None if index == 0 => vec![Origin::Oldest; lines.len()],
            None => vec![Origin::Came(0..index + 1); lines.len()],
            Some(LastKnown { index: last, lines: before, origins }) => {
                let mut now = vec![Origin::Came(last + 1..index + 1); lines.len()];
                let until = Instant::now().checked_add(PATIENCE);
                for op in capture_diff_slices_deadline(similar::Algorithm::Myers, before, &lines, until) {
                    if let DiffOp::Equal { old_index, new_index, len } = op {
                        now[new_index..new_index + len]
                            .clone_from_slice(&origins[old_index..old_index + len]);
                    }
                }
                now
            }
        };
        known = Some(LastKnown { index, lines, origins });
    }
    known.map(|known| known.origins).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        match text {
            "?" => Version::Lost,
            text => Version::Known(text.as_bytes().to_vec()),
        }
    }

    #[test]
    fn a_line_comes_from_the_version_that_brought_it() {
        let came = |index| Origin::Came(index..index + 1);
        for (versions, expected) in [
            (vec!["a\nb\n", "a\nx\nb\n"], vec![Origin::Oldest, came(1), Origin::Oldest]),
            (vec!["a\n", "a\nb\n", "b\n"], vec![came(1)]),
            (vec!["", "a\n", "a\nb"], vec![came(1), came(2)]),
            // Brought back.
            (vec!["a\n", "", "a\n"], vec![came(2)]),
            (vec!["a\n", "?", "a\nb\n"], vec![Origin::Oldest, Origin::Came(1..3)]),
            (vec!["?", "a\n", "a\nb\n"], vec![Origin::Came(0..2), came(2)]),
            (vec!["a\n", ""], vec![]),
            (vec![], vec![]),
        ] {
            let versions: Vec<_> = versions.into_iter().map(version).collect();
            assert_eq!(origins(&versions), expected, "{versions:?}");
        }
    }
}
