//! What participants have written down themselves, beside the ledger: one JSON object per line.
//!
//! | record | says |
//! |---|---|
//! | `{"by","file","done":HASH}` | tollgate told me that my change of the file, to these bytes, is done |
//! | `{"by","file","read":HASH,"done":HASH}` | the same, and I had made it from these bytes |
//! | `{"by","file","before":HASH,"after":HASH}` | I changed the file without tollgate |
//! | `{"by","file","outside":true}` | I change the file without tollgate, and do not know the bytes |
//! | `{"by","task","claim_id","began":N,"ended":N}` | I worked on the task under this claim, from then to then; may be repeated |
//!
//! A hash is null for a missing file. Times are nanoseconds of one clock. The last line may be half written, because
//! participants are killed; it says nothing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use serde::{Deserialize, Deserializer};

use crate::digest::Digest;
use crate::error::{At, Fault, Result};
use crate::name::{Agent, ClaimId};

use super::finding::{AuditSubject, Findings, RecordPlace, Rule, shown};

/// A file of records, by its number, and the line in it.
type NumberedLine = (usize, u64);

/// What a program found in a file, and left in it.
type OutsideChange = (Option<Digest>, Option<Digest>);

/// One record, with the keys of all kinds.
#[derive(Deserialize)]
struct RawRecord {
    by: Agent,
    file: Option<String>,
    #[serde(default, deserialize_with = "present")]
    done: Option<Option<Digest>>,
    #[serde(default, deserialize_with = "present")]
    read: Option<Option<Digest>>,
    #[serde(default, deserialize_with = "present")]
    before: Option<Option<Digest>>,
    #[serde(default, deserialize_with = "present")]
    after: Option<Option<Digest>>,
    #[serde(default)]
    outside: bool,
    task: Option<String>,
    claim_id: Option<ClaimId>,
    began: Option<u64>,
    ended: Option<u64>,
}

/// Tells a null from a key that is not there.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<Digest>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// An acknowledged change.
struct AcknowledgedChange {
    /// How many lines it still needs.
    lines: u32,
    place: NumberedLine,
    /// The bytes from which it was made, if its author says so.
    read: Option<Option<Digest>>,
}

/// A stretch of work.
struct WorkPeriod {
    began: u64,
    ended: u64,
    by: Agent,
    claim: ClaimId,
    place: NumberedLine,
}

impl WorkPeriod {
    /// Whether both are about the same work: a participant records it when it begins, and again when it has ended.
    fn is_same_work(&self, other: &Self) -> bool {
        self.claim == other.claim && self.by == other.by
    }
}

#[derive(Default)]
pub(super) struct Records {
    paths: Vec<PathBuf>,
    count: u64,
    /// The acknowledged changes, by a digest of agent, file and bytes.
    due: HashMap<[u8; 16], AcknowledgedChange>,
    outside: HashSet<String>,
    changes: HashMap<String, Vec<OutsideChange>>,
    work: BTreeMap<String, Vec<WorkPeriod>>,
    /// The claims under which somebody worked, and whether the ledger has them.
    claims: HashMap<ClaimId, bool>,
}

impl Records {
    pub(super) fn read(paths: &[PathBuf]) -> Result<Self> {
        let mut records = Self { paths: paths.to_vec(), ..Self::default() };
        for number in 0..paths.len() {
            records.each_line(number, |records, line, text| {
                let record = serde_json::from_str(text).ok();
                record.and_then(|record| records.add((number, line), record)).ok_or_else(|| {
                    let path = &records.paths[number];
                    Fault::invalid(format!("line {line} of `{}` is not a record", path.display()))
                })
            })?;
        }
        Ok(records)
    }

    fn each_line(
        &mut self,
        number: usize,
        mut each: impl FnMut(&mut Self, u64, &str) -> Result<()>,
    ) -> Result<()> {
        let path = self.paths[number].clone();
        let mut reader = BufReader::new(File::open(&path).at("open", &path)?);
        let mut text = String::new();
        for line in 1.. {
            text.clear();
            reader.read_line(&mut text).at("read", &path)?;
            let Some(whole) = text.strip_suffix('\n') else { break };
            each(self, line, whole)?;
        }
        Ok(())
    }

    fn add(&mut self, place: NumberedLine, record: RawRecord) -> Option<()> {
        self.count += 1;
        let by = record.by;
        match (record.file, record.task) {
            (Some(file), None) => match (record.done, record.before, record.after) {
                (Some(done), None, None) => {
                    let due = self.due.entry(key(by.as_str(), &file, done));
                    due.or_insert(AcknowledgedChange { lines: 0, place, read: record.read }).lines += 1;
                }
                (None, Some(before), Some(after)) => {
                    self.changes.entry(file).or_default().push((before, after));
                }
                (None, None, None) if record.outside => drop(self.outside.insert(file)),
                _ => return None,
            },
            (None, Some(task)) => {
                let (claim, began, ended) = (record.claim_id?, record.began?, record.ended?);
                self.claims.insert(claim.clone(), false);
                self.work.entry(task).or_default().push(WorkPeriod { began, ended, by, claim, place });
            }
            _ => return None,
        }
        Some(())
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn is_given(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Whether recorded outside changes lead from these bytes to those.
    pub(super) fn explain(&self, file: &str, from: Option<Digest>, to: Option<Digest>) -> bool {
        if self.outside.contains(file) {
            return true;
        }
        let Some(changes) = self.changes.get(file) else { return false };
        let mut reached = vec![from];
        let mut next = 0;
        while let Some(from) = reached.get(next).copied() {
            next += 1;
            for (before, after) in changes {
                if *before == from && !reached.contains(after) {
                    reached.push(*after);
                }
            }
        }
        reached.contains(&to)
    }

    /// The ledger has this change. Returns the bytes from which its author says to have made it.
    pub(super) fn acknowledged(
        &mut self,
        agent: Option<&Agent>,
        file: &str,
        after: Option<Digest>,
    ) -> Option<Option<Digest>> {
        let due = self.due.get_mut(&key(agent?.as_str(), file, after))?;
        due.lines = due.lines.saturating_sub(1);
        due.read
    }

    /// The ledger says that this change was rolled back.
    pub(super) fn retracted(&mut self, agent: Option<&Agent>, file: &str, after: Option<Digest>) {
        if let Some(due) = agent.and_then(|agent| self.due.get_mut(&key(agent.as_str(), file, after))) {
            due.lines += 1;
        }
    }

    /// The ledger has this claim.
    pub(super) fn claimed(&mut self, claim: &ClaimId) {
        if let Some(found) = self.claims.get_mut(claim) {
            *found = true;
        }
    }

    /// Compares the records with each other, and reports what the ledger does not have.
    /// If other machines share the tasks, the ledger need not have every claim.
    pub(super) fn finish(mut self, shared: bool, findings: &mut Findings) {
        let mut missing: Vec<NumberedLine> =
            self.due.values().filter(|due| due.lines > 0).map(|due| due.place).collect();
        missing.sort_unstable();
        for number in 0..self.paths.len() {
            if missing.iter().any(|place| place.0 == number) {
                // If the file is gone by now, there is nothing to name.
                let _ = self.each_line(number, |records, line, text| {
                    if missing.binary_search(&(number, line)).is_ok()
                        && let Ok(RawRecord { by, file: Some(file), done, .. }) = serde_json::from_str(text)
                    {
                        let to = shown(done.flatten());
                        let reason =
                            format!("`{by}` was told that its change to {to} is done, but no line says so");
                        let place = records.place((number, line));
                        findings.record(place, Rule::MissingLine, AuditSubject::File(file), reason);
                    }
                    Ok(())
                });
            }
        }
        for (task, mut work) in std::mem::take(&mut self.work) {
            work.sort_by_key(|stretch| (stretch.began, stretch.ended));
            let mut latest: Option<&WorkPeriod> = None;
            for stretch in &work {
                let about = || AuditSubject::Task(task.clone());
                if !shared && self.claims.get(&stretch.claim) == Some(&false) {
                    let reason =
                        format!("`{}` worked under {}, which no line has", stretch.by, stretch.claim);
                    findings.record(self.place(stretch.place), Rule::MissingLine, about(), reason);
                }
                if let Some(other) =
                    latest.filter(|other| stretch.began < other.ended && !stretch.is_same_work(other))
                {
                    let reason = format!("`{}` and `{}` worked on it at the same time", other.by, stretch.by);
                    findings.record(self.place(stretch.place), Rule::TwoOwners, about(), reason);
                }
                if latest.is_none_or(|latest| latest.ended < stretch.ended) {
                    latest = Some(stretch);
                }
            }
        }
    }

    fn place(&self, (number, line): NumberedLine) -> RecordPlace {
        RecordPlace { file: self.paths[number].clone(), line }
    }
}

fn key(by: &str, file: &str, hash: Option<Digest>) -> [u8; 16] {
    let digest = Digest::of(
        format!("{by}\0{file}\0{}", hash.map_or(String::new(), |hash| hash.to_string())).as_bytes(),
    );
    let mut key = [0; 16];
    key.copy_from_slice(&digest.as_bytes()[..16]);
    key
}
