//! What an audit finds: which line contradicts which rule, and why.

use std::path::PathBuf;

use serde::Serialize;

use crate::digest::Digest;
use crate::ledger::{LineDefect, Problem};
use crate::words::words;

/// How many flaws, and how many doubts, are listed: more than anybody reads, and little memory.
const LISTED: usize = 1000;

words! {
    /// The rules that an audit checks.
    Rule {
        /// Every line is as it was written.
        DamagedLedger = "damaged_ledger",
        /// A change finds the file as the change before has left it, unless an outside change is recorded.
        BrokenChain = "broken_chain",
        /// No two changes replace the same bytes.
        LostUpdate = "lost_update",
        /// A change is recorded once.
        RepeatedChange = "repeated_change",
        /// Only the last change of a file is rolled back, to what it replaced.
        UnfoundedUndo = "unfounded_undo",
        /// A file is called stale, or a late write reported, only if its bytes have changed.
        FalseAlarm = "false_alarm",
        /// A task has at most one owner.
        TwoOwners = "two_owners",
        /// Only the owner renews and releases its claim, and only once.
        NotTheOwner = "not_the_owner",
        /// Each claim of a task has a larger fencing number than the one before.
        OldEpoch = "old_epoch",
        /// A task goes only where its state and the verb allow.
        IllegalStep = "illegal_step",
        /// An approved task was approved by a person.
        NeverApproved = "never_approved",
        /// A step is recorded once.
        RepeatedStep = "repeated_step",
        /// What was acknowledged to a participant has its line.
        MissingLine = "missing_line",
    }
}

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditSubject {
    /// A file, by its path.
    File(String),
    /// A task, by its name.
    Task(String),
    /// The ledger itself.
    Ledger(String),
}

/// A line in a file of records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordPlace {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: u64,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Flaw {
    /// The line of the ledger, if there is one.
    pub seq: Option<u64>,
    /// The record that contradicts the ledger or another record, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<RecordPlace>,
    /// The rule.
    pub rule: Rule,
    /// The file or the task.
    #[serde(flatten)]
    pub about: AuditSubject,
    /// What is wrong, as one sentence.
    pub reason: String,
}

/// All findings so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) flaws: Vec<Flaw>,
    pub(super) doubts: Vec<Flaw>,
    pub(super) left_off: u64,
}

impl Findings {
    pub(super) fn file(&mut self, seq: u64, rule: Rule, file: &str, reason: String) {
        self.flaw(Some(seq), None, rule, AuditSubject::File(file.to_owned()), reason);
    }

    pub(super) fn task(&mut self, seq: u64, rule: Rule, task: &str, reason: String) {
        self.flaw(Some(seq), None, rule, AuditSubject::Task(task.to_owned()), reason);
    }

    pub(super) fn record(&mut self, record: RecordPlace, rule: Rule, about: AuditSubject, reason: String) {
        self.flaw(None, Some(record), rule, about, reason);
    }

    pub(super) fn doubt(&mut self, seq: u64, rule: Rule, file: &str, reason: String) {
        let about = AuditSubject::File(file.to_owned());
        self.left_off += keep(&mut self.doubts, Flaw { seq: Some(seq), record: None, rule, about, reason });
    }

    pub(super) fn damaged(&mut self, problem: &Problem) {
        let reason = match problem.wrong {
            LineDefect::Edited => "the line was edited",
            LineDefect::Removed => "a line was removed here",
            LineDefect::Reordered => "the line is not in its place",
            LineDefect::NotALine => "this is not a ledger line",
            LineDefect::Torn => "the line is incomplete",
            LineDefect::CutTail => "the end was cut off",
            LineDefect::Rewritten => "the line differs from the remembered one",
        };
        let about = AuditSubject::Ledger(problem.file.display().to_string());
        self.flaw(Some(problem.seq), None, Rule::DamagedLedger, about, reason.to_owned());
    }

    fn flaw(
        &mut self,
        seq: Option<u64>,
        record: Option<RecordPlace>,
        rule: Rule,
        about: AuditSubject,
        reason: String,
    ) {
        self.left_off += keep(&mut self.flaws, Flaw { seq, record, rule, about, reason });
    }
}

fn keep(list: &mut Vec<Flaw>, flaw: Flaw) -> u64 {
    if list.len() < LISTED {
        list.push(flaw);
        return 0;
    }
    1
}

/// The bytes of a file, for a sentence.
pub(super) fn shown(hash: Option<Digest>) -> String {
    hash.map_or_else(|| "no file".to_owned(), |hash| hash.short())
}
