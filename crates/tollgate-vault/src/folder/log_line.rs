//! The lines of a log, and what they say together.
//!
//! A log has one JSON value per line, then zeros. A line without its newline, or that is not JSON, was cut short and does not
//! count, because nothing is done before the line is complete. This file does no I/O.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::claim::{ClaimRecord, StepId};
use crate::state::{State, Verb};
use crate::step::Step;
use tollgate_base::error::{Fault, Result};
use tollgate_base::task::TaskName;

/// A step and everything that is needed to carry it out, finish it, or roll it back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct StepPlan {
    pub(super) step: Step,
    /// The inode of the task's file, by which it is recognised wherever it is.
    pub(super) ino: u64,
    /// The length of the file.
    pub(super) len: u64,
    /// The journal that the events belong to.
    pub(super) journal: String,
    /// What changes in the file.
    pub(super) change: Option<TextChange>,
}

impl StepPlan {
    /// Whether it is a claim of this task in this state.
    pub(super) fn claims(&self, task: &TaskName, state: State) -> bool {
        let step = &self.step;
        step.verb == Some(Verb::Claim) && step.task == *task && step.from.state() == state
    }
}

/// From byte `at` to the end, the file has the bytes `old` and gets the bytes `new`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TextChange {
    pub(super) at: u64,
    #[serde(with = "raw")]
    pub(super) old: Vec<u8>,
    #[serde(with = "raw")]
    pub(super) new: Vec<u8>,
}

/// What is known about a task, and the step that recorded it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct NotedTask {
    pub(super) step: StepId,
    #[serde(rename = "note")]
    pub(super) record: ClaimRecord,
}

/// Bytes as text, one character each, so that any byte survives JSON.
mod raw {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        match str::from_utf8(bytes) {
            Ok(text) if text.is_ascii() => serializer.serialize_str(text),
            _ => serializer.serialize_str(&bytes.iter().map(|byte| char::from(*byte)).collect::<String>()),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.chars().map(|c| u8::try_from(c).map_err(D::Error::custom)).collect()
    }
}

/// A line of a log.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, on the stack")]
#[derive(Serialize, Deserialize)]
pub(super) enum LogLine<'a> {
    /// This is about to be done.
    Plan(Cow<'a, StepPlan>),
    /// It was done: what was known about the first name is void, and this is known about the task, if anything.
    Taken(Cow<'a, TaskName>, Option<(Cow<'a, TaskName>, Cow<'a, NotedTask>)>),
    /// It was rolled back.
    Undone,
    /// Nothing is known about any task, and no step is under way. What stands before it need not be read.
    Empty,
    /// This is known about a task.
    Noted(Cow<'a, TaskName>, Cow<'a, NotedTask>),
}

/// Most lines are shorter, so their bytes are not moved while they are written.
const ROOM_FOR_A_LINE: usize = 2048;

/// How the line of a plan begins. Only the last plan matters, and only if no mark follows it.
pub(super) const PLAN: &[u8] = br#"{"Plan""#;

/// The line [`LogLine::Empty`].
const EMPTY: &[u8] = b"\"Empty\"\n";

/// Whether what stands before these bytes of a log need not be read.
pub(super) fn stands_alone(end: &[u8]) -> bool {
    let mut lines = end.split_inclusive(|byte| *byte == b'\n').rev();
    lines.any(|line| line == EMPTY)
}

impl LogLine<'_> {
    pub(super) fn bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(ROOM_FOR_A_LINE);
        serde_json::to_writer(&mut bytes, self).map_err(|error| Fault::invalid(error.to_string()))?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// What a log says.
#[derive(Debug, Clone, Default)]
pub(super) struct LogState {
    /// What is known about each task of the stripe that is not final.
    pub(super) notes: BTreeMap<TaskName, NotedTask>,
    /// The step without a mark.
    pub(super) pending: Option<StepPlan>,
}

impl LogState {
    /// What these bytes say, and how many of them are complete lines. They are a whole log, or the end of one with a line
    /// [`LogLine::Empty`] in it.
    pub(super) fn parse(bytes: &[u8]) -> (Self, usize) {
        let bytes = without_zeros(bytes);
        // Whatever is known stands after the last line that says that nothing is known.
        let mut start = bytes.len();
        for line in bytes.split_inclusive(|byte| *byte == b'\n').rev() {
            if line == EMPTY {
                break;
            }
            start -= line.len();
        }
        let (mut state, mut plan, mut whole) = (Self::default(), None, start);
        let complete = |line: &&[u8]| line.ends_with(b"\n");
        for line in bytes[start..].split_inclusive(|byte| *byte == b'\n').take_while(complete) {
            if line.starts_with(PLAN) {
                plan = Some(line);
            } else {
                match serde_json::from_slice(line) {
                    Ok(LogLine::Taken(task, noted)) => {
                        state.notes.remove(&*task);
                        let noted = noted.map(|(task, noted)| (task.into_owned(), noted.into_owned()));
                        state.notes.extend(noted);
                    }
                    Ok(LogLine::Noted(task, noted)) => {
                        state.notes.insert(task.into_owned(), noted.into_owned());
                    }
                    Ok(LogLine::Undone | LogLine::Empty | LogLine::Plan(_)) => {}
                    // Cut short by a power cut.
                    Err(_) => break,
                }
                plan = None;
            }
            whole += line.len();
        }
        match plan.map(|line| (line, serde_json::from_slice(line))) {
            Some((_, Ok(LogLine::Plan(plan)))) => state.pending = Some(plan.into_owned()),
            Some((line, _)) => whole -= line.len(),
            None => {}
        }
        (state, whole)
    }

    /// A step was done: what was known about the old name is void, the step's record holds for the new one.
    pub(super) fn settle(&mut self, step: &Step, landed: &TaskName) {
        self.notes.remove(&step.task);
        if let Some(record) = step.record.clone() {
            self.notes.insert(landed.clone(), NotedTask { step: step.id.clone(), record });
        }
    }
}

pub(super) fn without_zeros(mut bytes: &[u8]) -> &[u8] {
    while let Some(rest) = bytes.strip_suffix(&[0; 64]) {
        bytes = rest;
    }
    let end = bytes.iter().rposition(|byte| *byte != 0);
    &bytes[..end.map_or(0, |last| last + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Slot;

    #[test]
    fn a_line_that_was_cut_short_does_not_count() {
        let noted = NotedTask { step: StepId::new().unwrap(), record: ClaimRecord::new(Slot::NEEDS_ACTION) };
        let mut bytes = Vec::new();
        for name in ["a", "b"] {
            bytes.extend(
                LogLine::Noted(Cow::Owned(name.parse().unwrap()), Cow::Borrowed(&noted)).bytes().unwrap(),
            );
        }
        let first = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for end in first..bytes.len() {
            for rest in [&b""[..], &[0; 64], b"garbage\n", b"\n\n\n"] {
                if end == bytes.len() - 1 && rest.starts_with(b"\n") {
                    continue;
                }
                let (state, whole) = LogState::parse(&[&bytes[..end], rest].concat());
                assert_eq!((state.notes.len(), whole), (1, first), "cut at {end}");
            }
        }
        assert_eq!(LogState::parse(&bytes).0.notes.len(), 2);
    }

    #[test]
    fn mutated_logs_are_read_without_a_panic() {
        let noted = NotedTask { step: StepId::new().unwrap(), record: ClaimRecord::new(Slot::NEEDS_ACTION) };
        let (task, noted) = (Cow::<TaskName>::Owned("a".parse().unwrap()), Cow::Borrowed(&noted));
        let lines = [
            LogLine::Noted(task.clone(), noted.clone()),
            LogLine::Taken(task.clone(), Some((task, noted))),
            LogLine::Undone,
            LogLine::Empty,
        ];
        let mut examples = lines.map(|line| line.bytes().unwrap()).to_vec();
        examples.push([&examples.concat()[..], &[0; 100]].concat());
        tollgate_fuzz::fuzz("vault log", &examples, |bytes| {
            let (_, whole) = LogState::parse(bytes);
            assert!(whole <= bytes.len());
        });
    }
}
