//! The tasks on the branch: which paths of a commit are tasks, and their bytes. Reads only.

use std::collections::{BTreeMap, BTreeSet};

use super::card::is_oid;
use super::process::Given;
use super::run::{Git, failed};
use crate::state::{Slot, State};
use tollgate_base::error::Result;
use tollgate_base::name::Agent;
use tollgate_base::task::TaskName;

/// The part of the repository that the vault is in.
#[derive(Debug, Clone)]
pub(super) struct Branch {
    pub(super) git: Git,
    /// Where the vault is in the repository: empty, or ending in a slash.
    pub(super) prefix: String,
}

/// How the file of a task differs between two commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Delta {
    pub(super) task: TaskName,
    pub(super) slot: Slot,
    pub(super) old: Option<String>,
    pub(super) new: Option<String>,
}

impl Branch {
    /// The path of a task in the repository.
    pub(super) fn path_of(&self, task: &TaskName, slot: &Slot) -> Vec<u8> {
        format!("{}{slot}/{task}", self.prefix).into_bytes()
    }

    /// The task at a path of the repository, if it is one.
    fn task_at(&self, path: &[u8]) -> Option<(TaskName, Slot)> {
        let path = str::from_utf8(path).ok()?.strip_prefix(&self.prefix)?;
        let (folder, rest) = path.split_once('/')?;
        let state = State::ALL.into_iter().find(|state| state.as_str() == folder)?;
        let (slot, name) = match state {
            State::InProgress => {
                let (agent, name) = rest.split_once('/')?;
                (Slot::InProgress(agent.parse::<Agent>().ok()?), name)
            }
            state => (Slot::Free(state), rest),
        };
        Some((TaskName::of_file(name).ok()?, slot))
    }

    /// The tasks that differ between two commits.
    pub(super) fn diff(&self, from: &str, to: &str) -> Result<Vec<Delta>> {
        let folders: Vec<String> = State::ALL.iter().map(|state| format!("{}{state}", self.prefix)).collect();
        let mut arguments = vec![
            "--literal-pathspecs",
            "diff-tree",
            "-r",
            "-z",
            "--raw",
            "--no-renames",
            "--no-abbrev",
            from,
            to,
            "--",
        ];
        arguments.extend(folders.iter().map(String::as_str));
        let ran = self.git.local(&arguments, &Given::Nothing)?;
        if !ran.ok {
            return Err(failed("diff-tree", &ran));
        }
        let mut parts = ran.out.split(|byte| *byte == 0);
        let mut deltas = Vec::new();
        while let (Some(head), Some(path)) = (parts.next(), parts.next()) {
            let head = String::from_utf8_lossy(head);
            let words: Vec<&str> = head.trim_start_matches(':').split(' ').collect();
            let [old_mode, new_mode, old, new, ..] = words[..] else { continue };
            let Some((task, slot)) = self.task_at(path) else { continue };
            let (old, new) = (plain_file(old_mode, old), plain_file(new_mode, new));
            deltas.push(Delta { task, slot, old, new });
        }
        Ok(deltas)
    }

    /// All tasks of a commit, with the objects of their files.
    pub(super) fn listed(&self, commit: &str) -> Result<Vec<(TaskName, Slot, String)>> {
        let ran = self.git.local(&["ls-tree", "-r", "-z", "--full-tree", commit], &Given::Nothing)?;
        if !ran.ok {
            return Err(failed("ls-tree", &ran));
        }
        let mut found = Vec::new();
        for entry in ran.out.split(|byte| *byte == 0) {
            let Some(tab) = entry.iter().position(|byte| *byte == b'\t') else { continue };
            let head = String::from_utf8_lossy(&entry[..tab]);
            let words: Vec<&str> = head.split(' ').collect();
            let [mode, _, oid] = words[..] else { continue };
            if let (Some((task, slot)), Some(oid)) = (self.task_at(&entry[tab + 1..]), plain_file(mode, oid))
            {
                found.push((task, slot, oid));
            }
        }
        Ok(found)
    }

    /// The bytes of a task in a commit; `None` if it is not there.
    pub(super) fn text(&self, commit: &str, task: &TaskName, slot: &Slot) -> Result<Option<Vec<u8>>> {
        let name = format!("{commit}:{}", String::from_utf8_lossy(&self.path_of(task, slot)));
        let found = self.git.local(&["cat-file", "blob", &name], &Given::Nothing)?;
        Ok(found.ok.then_some(found.out))
    }

    /// The bytes of these objects.
    pub(super) fn blobs<'a>(
        &self,
        wanted: impl IntoIterator<Item = &'a str>,
    ) -> Result<BTreeMap<String, Vec<u8>>> {
        let wanted: BTreeSet<&str> = wanted.into_iter().collect();
        let mut found = BTreeMap::new();
        if wanted.is_empty() {
            return Ok(found);
        }
        let names: String = wanted.iter().flat_map(|oid| [*oid, "\n"]).collect();
        let ran = self.git.local(&["cat-file", "--batch"], &Given::Bytes(names.as_bytes()))?;
        let mut rest = ran.out.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let head = String::from_utf8_lossy(&rest[..end]).into_owned();
            rest = &rest[end + 1..];
            let mut words = head.split(' ');
            let (Some(oid), Some("blob"), Some(len)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let len = len.parse::<usize>().unwrap_or(usize::MAX);
            let Some(bytes) = rest.get(..len) else { break };
            found.insert(oid.to_owned(), bytes.to_vec());
            rest = rest.get(len + 1..).unwrap_or_default();
        }
        if found.len() != wanted.len() {
            return Err(failed("cat-file", &ran));
        }
        Ok(found)
    }

    /// Whether one of these tasks is missing in a commit.
    pub(super) fn lacks<'a>(
        &self,
        commit: &str,
        places: impl IntoIterator<Item = (&'a TaskName, &'a Slot)>,
    ) -> Result<bool> {
        let mut names = Vec::new();
        for (task, slot) in places {
            names.extend(commit.bytes().chain([b':']));
            names.extend(self.path_of(task, slot));
            names.push(b'\n');
        }
        let ran = self.git.local(&["cat-file", "--batch-check=%(objecttype)"], &Given::Bytes(&names))?;
        if !ran.ok {
            return Err(failed("cat-file", &ran));
        }
        Ok(ran.text().lines().any(|line| line != "blob"))
    }

    /// Whether one commit is an ancestor of another.
    pub(super) fn is_ancestor(&self, old: &str, new: &str) -> Result<bool> {
        Ok(self.git.local(&["merge-base", "--is-ancestor", old, new], &Given::Nothing)?.ok)
    }
}

/// The object of a plain file; links and submodules are not tasks.
fn plain_file(mode: &str, oid: &str) -> Option<String> {
    (mode.starts_with("100") && is_oid(oid)).then(|| oid.to_owned())
}
