//! The tasks on the branch: which paths of a commit are tasks, and their bytes; and new commits and cards, which one run of
//! `git fast-import` makes, without an index or a working tree.
//!
//! Invariants: a commit for the branch has one parent, the tip it was made for, and changes the given paths and nothing
//! else; its message is one line. Nothing here touches what a person has checked out, staged or edited.

use std::collections::{BTreeMap, BTreeSet};

use super::card::{Card, is_oid};
use super::run::Git;
use crate::state::{Slot, State};
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::Agent;
use tollgate_base::task::TaskName;

/// Refs of the user's repository that keep new objects until they are pushed.
const MADE: &str = "refs/tollgate/made";

/// The tree without files, which git knows without having it.
const NOTHING: [&str; 2] = [
    "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
];

/// The part of the repository that the vault is in.
#[derive(Debug, Clone)]
pub(super) struct Branch {
    pub(super) git: Git,
    /// Where the vault is in the repository: empty, or ending in a slash.
    pub(super) prefix: String,
    /// The author of new commits.
    pub(super) author: String,
}

/// How the file of a task differs between two commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Delta {
    pub(super) task: TaskName,
    pub(super) slot: Slot,
    pub(super) old: Option<String>,
    pub(super) new: Option<String>,
}

/// A commit that is to be made for the branch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NewCommit {
    /// One line.
    pub(super) message: String,
    /// The files that change, by their paths; `None` deletes one.
    pub(super) changes: Vec<(String, Option<Vec<u8>>)>,
}

impl Branch {
    /// The path of a task in the repository.
    pub(super) fn path_of(&self, task: &TaskName, slot: &Slot) -> String {
        format!("{}{slot}/{task}", self.prefix)
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

    /// The tasks that differ between two commits; without the first, all tasks of the second.
    pub(super) fn diff(&self, from: Option<&str>, to: &str) -> Result<Vec<Delta>> {
        let from = from.unwrap_or(NOTHING[usize::from(to.len() > 40)]);
        let folders = State::ALL.map(|state| format!(":(literal){}{state}", self.prefix));
        let mut arguments =
            vec!["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", from, to, "--"];
        arguments.extend(folders.iter().map(String::as_str));
        let ran = self.git.must(&arguments, &[])?;
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

    /// The names in one folder of the vault, in a commit. Empty if there is no such commit.
    pub(super) fn names_in(&self, commit: &str, slot: &Slot) -> Result<BTreeSet<String>> {
        let folder = format!("{}{slot}/", self.prefix);
        let found = self.git.local(&["ls-tree", "-z", "--name-only", commit, "--", &folder], &[])?;
        let paths = found.out.split(|byte| *byte == 0).filter_map(|path| str::from_utf8(path).ok());
        Ok(paths.filter_map(|path| path.strip_prefix(&folder)).map(str::to_owned).collect())
    }

    /// The bytes of a task in a commit; `None` if it is not there.
    pub(super) fn text(&self, commit: &str, task: &TaskName, slot: &Slot) -> Result<Option<Vec<u8>>> {
        let name = format!("{commit}:{}", self.path_of(task, slot));
        let found = self.git.local(&["cat-file", "blob", &name], &[])?;
        Ok(found.ok.then_some(found.out))
    }

    /// The bytes of these objects, which must be there.
    pub(super) fn blobs<'a>(
        &self,
        wanted: impl IntoIterator<Item = &'a String>,
    ) -> Result<BTreeMap<String, Vec<u8>>> {
        let wanted: BTreeSet<&String> = wanted.into_iter().collect();
        let found = self.blobs_left(&wanted)?;
        if found.len() != wanted.len() {
            return Err(Fault::invalid("`git cat-file` failed: an object of the branch is missing"));
        }
        Ok(found)
    }

    /// The bytes of those of these objects that are there. After somebody has rewritten the branch, the user's git deletes
    /// what nothing refers to.
    pub(super) fn blobs_left(&self, wanted: &BTreeSet<&String>) -> Result<BTreeMap<String, Vec<u8>>> {
        let mut found = BTreeMap::new();
        if wanted.is_empty() {
            return Ok(found);
        }
        let names: String = wanted.iter().flat_map(|oid| [oid.as_str(), "\n"]).collect();
        let ran = self.git.must(&["cat-file", "--batch"], names.as_bytes())?;
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
        Ok(found)
    }

    /// Whether one commit is an ancestor of another.
    pub(super) fn is_ancestor(&self, old: &str, new: &str) -> Result<bool> {
        Ok(self.git.local(&["merge-base", "--is-ancestor", old, new], &[])?.ok)
    }

    /// Makes one card.
    pub(super) fn make_card(&self, card: &Card) -> Result<String> {
        Ok(self.make(Some(card), None)?.remove(0))
    }

    /// Makes a card, and a commit on top of a tip. The answer is the objects that were made, in this order.
    pub(super) fn make(
        &self,
        card: Option<&Card>,
        commit: Option<(&NewCommit, &str)>,
    ) -> Result<Vec<String>> {
        const END: &[u8] = b"\nget-mark :1\n";
        let mut stream = Vec::new();
        let begin = |stream: &mut Vec<u8>, kind: &str, message: &str| {
            let (author, len) = (&self.author, message.len());
            let head =
                format!("reset {MADE}/{kind}\n\ncommit {MADE}/{kind}\nmark :1\ncommitter {author} now\n");
            stream.extend(format!("{head}data {len}\n{message}\n").bytes());
        };
        if let Some(card) = card {
            begin(&mut stream, "card", &card.to_line()?);
            stream.extend(END);
        }
        if let Some((NewCommit { message, changes }, tip)) = commit {
            begin(&mut stream, "commit", message);
            stream.extend(format!("from {tip}\n").bytes());
            for (path, bytes) in changes {
                let path = quoted(path);
                match bytes {
                    None => stream.extend(format!("D {path}\n").bytes()),
                    Some(bytes) => {
                        stream.extend(format!("M 100644 inline {path}\ndata {}\n", bytes.len()).bytes());
                        stream.extend(bytes);
                        stream.push(b'\n');
                    }
                }
            }
            stream.extend(END);
        }
        // Without it git could not tell a stream that was cut short from a short one.
        stream.extend(b"done\n");
        let ran =
            self.git.must(&["fast-import", "--quiet", "--force", "--done", "--date-format=now"], &stream)?;
        let made: Vec<String> = ran.text().lines().map(str::to_owned).collect();
        let all = usize::from(card.is_some()) + usize::from(commit.is_some());
        if made.len() != all || !made.iter().all(|oid| is_oid(oid)) {
            return Err(Fault::invalid("`git fast-import` did not report what it made"));
        }
        Ok(made)
    }
}

/// The object of a plain file; links and submodules are not tasks.
fn plain_file(mode: &str, oid: &str) -> Option<String> {
    (mode.starts_with("100") && is_oid(oid)).then(|| oid.to_owned())
}

/// A path as fast-import reads it. Nothing in a name can end the line or begin another command.
fn quoted(path: &str) -> String {
    let mut text = String::from('"');
    for c in path.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            c if c.is_ascii_control() => text += &format!("\\{:03o}", u32::from(c)),
            c => text.push(c),
        }
    }
    text + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted() {
        assert_eq!(quoted("a \"b\"\\\nD x"), r#""a \"b\"\\\012D x""#);
    }
}
