//! The history of each file: a chain of changes, each of which finds the bytes that the one before has left.
//!
//! A change that finds other bytes proves an outside change: a program unaware of tollgate has written the file in between.
//! Whether that is the truth, or the bytes in between were lost, only records can tell.

use std::collections::{BTreeMap, HashSet};

use crate::digest::Digest;
use crate::event::{ErrorType, FileChanged, FolderMoved, LateWrite, WriteRefused};
use crate::name::Agent;

use super::finding::{Findings, Rule, shown};
use super::record::Records;

/// How many ids of changes are remembered in each of two generations. A change is recorded twice only by the process that
/// heals after its author died, so the second line comes soon.
const REMEMBERED: usize = 500_000;

/// The last change of a file.
struct ChainEnd {
    seq: u64,
    id: u64,
    before: Option<Digest>,
    after: Option<Digest>,
    agent: Option<Agent>,
}

#[derive(Default)]
pub(super) struct FileHistories {
    last: BTreeMap<String, ChainEnd>,
    ids: HashSet<u64>,
    older_ids: HashSet<u64>,
    pub(super) changes: u64,
    pub(super) outside_changes: u64,
}

impl FileHistories {
    pub(super) fn count(&self) -> u64 {
        self.last.len() as u64
    }

    pub(super) fn applied(
        &mut self,
        seq: u64,
        agent: Option<&Agent>,
        change: &FileChanged,
        records: &mut Records,
        findings: &mut Findings,
    ) {
        let (file, id) = (change.target_file.as_str(), short(&change.id));
        if !self.is_new(id) {
            let reason = format!("the change {} has a line already", change.id);
            findings.file(seq, Rule::RepeatedChange, file, reason);
            return;
        }
        self.changes += 1;
        let landed = change.moved_to.as_deref().unwrap_or(file);
        if let Some(read) = records.acknowledged(agent, landed, change.hash_after)
            && read != change.hash_before
        {
            let (read, found) = (shown(read), shown(change.hash_before));
            let reason = format!("its author had read {read}, but the change replaced {found}");
            findings.file(seq, Rule::LostUpdate, file, reason);
        }
        self.must_hold(seq, file, change.hash_before, change.hash_after, records, findings);
        let last = |before, after| ChainEnd { seq, id, before, after, agent: agent.cloned() };
        if let Some(to) = &change.moved_to {
            // A move replaces nothing.
            self.must_hold(seq, to, None, change.hash_after, records, findings);
            self.last.insert(to.clone(), last(None, change.hash_after));
            self.last.insert(file.to_owned(), last(change.hash_before, None));
        } else {
            self.last.insert(file.to_owned(), last(change.hash_before, change.hash_after));
        }
    }

    /// A change that found `before` and leaves `after`.
    fn must_hold(
        &mut self,
        seq: u64,
        file: &str,
        before: Option<Digest>,
        after: Option<Digest>,
        records: &Records,
        findings: &mut Findings,
    ) {
        let Some(last) = self.last.get(file).filter(|last| last.after != before) else { return };
        self.outside_changes += 1;
        let is_rewound = before.is_some() && last.before == before && last.after != after;
        let by = last.agent.as_ref().map_or("somebody", Agent::as_str);
        if records.is_given() {
            if records.explain(file, last.after, before) {
                return;
            }
            let (rule, what) = match is_rewound {
                true => (Rule::LostUpdate, "it replaced the same bytes as that line"),
                false => {
                    (Rule::BrokenChain, "no record has an outside change that leads from one to the other")
                }
            };
            let reason = format!(
                "found {}, but line {} (`{by}`) had left {}; {what}",
                shown(before),
                last.seq,
                shown(last.after)
            );
            findings.file(seq, rule, file, reason);
        } else if is_rewound {
            let reason = format!(
                "found {}, which line {} (`{by}`) had replaced by {}: another program has restored the old bytes, or that \
                 change was lost",
                shown(before),
                last.seq,
                shown(last.after)
            );
            findings.doubt(seq, Rule::LostUpdate, file, reason);
        }
    }

    pub(super) fn undone(
        &mut self,
        seq: u64,
        agent: Option<&Agent>,
        change: &FileChanged,
        records: &mut Records,
        findings: &mut Findings,
    ) {
        let (file, id) = (change.target_file.as_str(), short(&change.id));
        if let Some(last) = self.last.get(file) {
            let is_last =
                last.id == id && (last.before, last.after) == (change.hash_after, change.hash_before);
            if !is_last {
                let reason = format!(
                    "rolls back the change {}, but the last change of the file is line {}",
                    change.id, last.seq
                );
                findings.file(seq, Rule::UnfoundedUndo, file, reason);
            }
        }
        records.retracted(agent, file, change.hash_before);
        let (before, after) = (change.hash_after, change.hash_after);
        let last = ChainEnd { seq, id, before, after, agent: agent.cloned() };
        self.last.insert(file.to_owned(), last);
    }

    /// A folder was moved, with everything in it.
    pub(super) fn moved(&mut self, moved: &FolderMoved) {
        self.changes += 1;
        let inside = format!("{}/", moved.target_file);
        let below: Vec<String> = self
            .last
            .range(inside.clone()..)
            .map(|(file, _)| file.clone())
            .take_while(|file| file.starts_with(&inside))
            .collect();
        for file in below {
            if let Some(last) = self.last.remove(&file) {
                self.last.insert(format!("{}/{}", moved.moved_to, &file[inside.len()..]), last);
            }
        }
    }

    pub(super) fn called_stale(&mut self, seq: u64, refused: &WriteRefused, findings: &mut Findings) {
        if refused.baseline_hash.is_some() && refused.baseline_hash == refused.current_hash {
            let reason = format!(
                "was refused as {}, but the agent knew {} and that was on disk",
                ErrorType::StaleFile,
                shown(refused.current_hash)
            );
            findings.file(seq, Rule::FalseAlarm, &refused.target_file, reason);
        }
    }

    pub(super) fn late_write(&mut self, seq: u64, late: &LateWrite, findings: &mut Findings) {
        if late.found_hash.is_some() && late.baseline_hash == late.found_hash {
            let reason = format!("reports a late write, but the file still held {}", shown(late.found_hash));
            findings.file(seq, Rule::FalseAlarm, &late.target_file, reason);
        }
    }

    /// Whether this id was not seen lately.
    fn is_new(&mut self, id: u64) -> bool {
        if self.ids.len() == REMEMBERED {
            self.older_ids = std::mem::take(&mut self.ids);
        }
        !self.older_ids.contains(&id) && self.ids.insert(id)
    }
}

/// Enough of an id to tell a million of them apart.
fn short(id: &str) -> u64 {
    Digest::of(id.as_bytes()).as_bytes()[..8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}
