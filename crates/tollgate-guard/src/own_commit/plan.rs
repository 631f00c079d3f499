//! What one agent may commit in a working tree: the files, and those that stay uncommitted, with the reason.

use std::path::{Path, PathBuf};

use super::fold::{Ends, Share, WhyLeft, share};
use super::head_files::{HeadFiles, Names, Reader, TreeStatus};
use super::history::{Head, Search, Trace};
use super::texts::{Texts, on_disk};
use crate::on_disk::OnDisk;
use crate::root::Root;
use crate::turn::TurnState;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::ledger::Line;
use tollgate_base::name::Agent;
use tollgate_base::working_tree::WorkingTree;

/// The number of ledger lines that are read at most: some hundred milliseconds. The search ends earlier, at the agent's last commit
/// or when all files are explained. A file that differs from HEAD and that nobody changed with tollgate is never explained.
const LINES: usize = 20_000;

/// The number of ledger lines that are read first, then twice as many, and so on: most searches end soon.
const FIRST_LINES: usize = 16;

/// A change of the agent that stays uncommitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The file, as the ledger names it: relative to the workspace.
    pub path: String,
    /// Who else has changed it; `None` if it was a program that does not use tollgate.
    pub agent: Option<Agent>,
    /// Why.
    pub why: WhyLeft,
}

impl Left {
    /// For programs.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({"path": self.path, "agent": self.agent, "reason": self.why.to_string()})
    }
}

/// What the commit takes from one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// The file as it is on disk, where it had this hash.
    Disk(Digest),
    /// No file.
    Gone,
    /// These bytes, with this mode.
    Bytes(Vec<u8>, String),
}

/// What the commit is made of.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// By their names in git, sorted.
    pub(super) entries: Vec<(String, Entry)>,
    pub(super) left: Vec<Left>,
}

impl Plan {
    /// Whether it has nothing but files of HEAD, as they are on disk. One that is gone may come back, with the bytes of somebody else.
    pub(super) fn is_of(&self, status: &TreeStatus) -> bool {
        self.entries.iter().all(|(name, entry)| {
            let in_head = status.files.get(name).is_some_and(|differing| differing.head.is_some());
            in_head && matches!(entry, Entry::Disk(_))
        })
    }
}

/// Where and for whom a plan is made.
pub(super) struct Planner<'a> {
    pub(super) root: &'a Root,
    pub(super) tree: &'a WorkingTree,
    pub(super) names: &'a Names,
    pub(super) agent: &'a Agent,
    pub(super) turn: &'a dyn TurnState,
    pub(super) turns: &'a [&'a dyn TurnState],
    /// Only these files, and those in these folders; all if there are none.
    pub(super) paths: &'a [PathBuf],
}

impl Planner<'_> {
    pub(super) fn plan(&self, status: &TreeStatus, reader: Reader) -> Result<Plan> {
        let mut head = HeadFiles::new(self.tree, self.names, status, reader);
        let turns: Vec<&dyn TurnState> = [self.turn].into_iter().chain(self.turns.iter().copied()).collect();
        let texts = Texts { root: self.root, turns: &turns };
        let mut plan = Plan::default();
        for trace in self.traces(status, &mut head)? {
            let name = self.names.in_git(&trace.name).unwrap_or_default();
            let (share, disk) = self.share(&trace, &mut head, &texts)?;
            match share {
                Share::None => {}
                Share::Left(agent, why) => plan.left.push(Left { path: trace.name, agent, why }),
                Share::Whole => {
                    let entry = disk.map_or(Entry::Gone, |disk| Entry::Disk(disk.digest));
                    plan.entries.push((name, entry));
                }
                Share::Part(None) => plan.entries.push((name, Entry::Gone)),
                Share::Part(Some(bytes)) => {
                    let blob = head.blob(&trace.origin)?;
                    let new = if disk.is_some_and(|disk| disk.is_executable) { "100755" } else { "100644" };
                    let mode = blob.map_or_else(|| new.to_owned(), |blob| blob.mode);
                    plan.entries.push((name, Entry::Bytes(bytes, mode)));
                }
            }
        }
        plan.entries.sort_by(|a, b| a.0.cmp(&b.0));
        plan.left.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(plan)
    }

    fn share(
        &self,
        trace: &Trace,
        head: &mut HeadFiles<'_>,
        texts: &Texts<'_>,
    ) -> Result<(Share, Option<OnDisk>)> {
        if trace.steps.iter().all(|step| step.agent.as_ref() != Some(self.agent)) {
            return Ok((Share::None, None));
        }
        let path = self.names.path(&trace.name);
        let disk = on_disk(self.root, &path)?;
        let is_link = disk.as_ref().is_some_and(|disk| disk.is_link)
            || head.blob(&trace.origin)?.is_some_and(|blob| blob.is_link());
        let ends =
            Ends { head: head.digest(&trace.origin)?, disk: disk.as_ref().map(|disk| disk.digest), is_link };
        let mut find = |digest| {
            if ends.head == Some(digest) {
                return head.text(&trace.origin);
            }
            texts.find(&path, digest)
        };
        let bytes = disk.as_ref().and_then(|disk| disk.bytes.as_deref());
        Ok((share(trace, self.agent, ends, bytes, &mut find)?, disk))
    }

    /// What the ledger says about the files that differ from HEAD and are wanted.
    fn traces(&self, status: &TreeStatus, head: &mut HeadFiles<'_>) -> Result<Vec<Trace>> {
        let wanted = status
            .files
            .iter()
            .filter(|(name, differing)| !differing.is_repository && self.wants(&self.names.top.join(name)));
        let files = wanted.map(|(name, differing)| (self.names.in_ledger(name), differing.changes_mode));
        let tree = self.names.tree();
        let mut search = Search::new(self.agent, &tree, files);
        // A damaged line is the business of `ledger verify`.
        let mut lines = self.root.ledger().newest_first()?.take(LINES).flatten();
        let mut count = FIRST_LINES;
        while !search.has_ended() {
            let next: Vec<Line> = lines.by_ref().take(count).collect();
            if next.is_empty() {
                break;
            }
            head.learn(next.iter().flat_map(Search::names))?;
            for line in &next {
                search.take(line, head)?;
                if search.has_ended() {
                    break;
                }
            }
            count *= 2;
        }
        Ok(search.traces())
    }

    fn wants(&self, path: &Path) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|wanted| path.starts_with(wanted))
    }
}
