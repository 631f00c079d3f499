//! Auditing: whether the history in the ledger keeps both promises.
//!
//! The audit states the rules a second time. It shares the event types and the ledger reader with the rest of tollgate, and no
//! rule: a bug in the guard or in the vault is not a bug here, too. It reads the ledger and the records that participants have
//! written themselves, and never looks at a file of the workspace.
//!
//! A **flaw** contradicts a promise. A **doubt** may be a lost update or the work of a program that is unaware of tollgate; the
//! ledger alone cannot tell which, because such a program leaves no line. Records of all participants turn every doubt into
//! either a flaw or nothing.
//!
//! Invariants: memory grows with the number of files and tasks and with the records, not with the lines; every flaw names its
//! line; after a flaw the audit goes on with what the line says, so that one flaw is reported once.

mod file_history;
mod finding;
mod record;
mod task_history;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use crate::error::Result;
use crate::event::{Event, Mutation, MutationStatus};
use crate::ledger::{Followed, Ledger, Line};

use file_history::FileHistories;
use finding::Findings;
use record::Records;
use task_history::TaskHistories;

pub use finding::{AuditSubject, Flaw, RecordPlace, Rule};

/// How many lines are read between two looks at the ledger's files.
const AT_ONCE: usize = 10_000;

/// What an audit takes into account.
#[derive(Debug, Clone, Default)]
pub struct AuditScope {
    /// Files with the records of participants. With them, every change of a file must be in the ledger or in a record.
    pub records: Vec<PathBuf>,
    /// Other machines change the tasks too, and their lines are in other ledgers.
    pub shared: bool,
}

/// What an audit found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditReport {
    /// The number of lines.
    pub lines: u64,
    /// The number of the first line.
    pub first_seq: Option<u64>,
    /// The number of files that were changed.
    pub files: u64,
    /// The number of changes of files.
    pub changes: u64,
    /// The number of changes that found the file in another state than the change before had left it.
    pub outside_changes: u64,
    /// The number of tasks that were claimed or decided.
    pub tasks: u64,
    /// The number of claims.
    pub claims: u64,
    /// The number of records of participants.
    pub records: u64,
    /// What contradicts a promise, the first ones.
    pub flaws: Vec<Flaw>,
    /// What may be a lost update, or an outside change, the first ones.
    pub doubts: Vec<Flaw>,
    /// The number of flaws and doubts that are not listed.
    pub left_off: u64,
}

impl AuditReport {
    /// Whether the history keeps both promises, as far as the ledger and the records can prove it.
    pub fn is_sound(&self) -> bool {
        self.flaws.is_empty()
    }
}

/// Audits a ledger, to its end. Takes no lock.
pub fn audit(ledger: &Ledger, scope: &AuditScope) -> Result<AuditReport> {
    // Before the lines: whatever a participant has written down by now has its line already.
    let records = Records::read(&scope.records)?;
    let mut audit = Audit {
        files: FileHistories::default(),
        tasks: TaskHistories::new(scope.shared),
        shared: scope.shared,
        report: AuditReport { records: records.count(), ..AuditReport::default() },
        findings: Findings::default(),
        records,
    };
    let mut follower = ledger.follow();
    loop {
        match follower.advance(AT_ONCE, |line| audit.line(&line))? {
            Followed::Further => {}
            Followed::ToTheEnd => break,
            Followed::Doubtful | Followed::Lost(_) => {
                if let Some(problem) = ledger.verify()?.problem {
                    audit.findings.damaged(&problem);
                }
                break;
            }
        }
    }
    Ok(audit.finish())
}

struct Audit {
    files: FileHistories,
    tasks: TaskHistories,
    records: Records,
    findings: Findings,
    report: AuditReport,
    shared: bool,
}

impl Audit {
    fn line(&mut self, line: &Line) {
        self.report.first_seq.get_or_insert(line.seq);
        self.report.lines += 1;
        self.tasks.began(line.time);
        let (seq, agent) = (line.seq, line.agent.as_ref());
        let Self { files, tasks, records, findings, .. } = self;
        match &line.event {
            Event::Mutation(Mutation::File(change), MutationStatus::Applied) => {
                files.applied(seq, agent, change, records, findings);
            }
            Event::Mutation(Mutation::File(change), MutationStatus::Undone) => {
                files.undone(seq, agent, change, records, findings);
            }
            Event::Mutation(Mutation::Folder(moved), _) => files.moved(moved),
            Event::MutationConflict(refused, ..) => files.called_stale(seq, refused, findings),
            Event::LateExternalWrite(late) => files.late_write(seq, late, findings),
            Event::Claim(claimed) => tasks.claimed(line, claimed, records, findings),
            Event::Renew(renewed) => tasks.renewed(line, renewed, findings),
            Event::Release(released, to) => tasks.released(line, released, *to, findings),
            Event::Reclaim(reclaimed, to) => tasks.reclaimed(line, reclaimed, *to, findings),
            Event::Approval(decided) => tasks.decided(line, decided, findings),
            _ => {}
        }
    }

    fn finish(mut self) -> AuditReport {
        self.records.finish(self.shared, &mut self.findings);
        let Findings { flaws, doubts, left_off } = self.findings;
        AuditReport {
            files: self.files.count(),
            changes: self.files.changes,
            outside_changes: self.files.outside_changes,
            tasks: self.tasks.count(),
            claims: self.tasks.claims,
            flaws,
            doubts,
            left_off,
            ..self.report
        }
    }
}
