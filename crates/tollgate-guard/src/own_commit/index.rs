//! The index of the working tree after a commit that was made beside it.
//!
//! To leave the index as it is must not mean that git shows the commit as staged for reversal, or that the next `git commit` of
//! somebody else reverts it. So an entry that was as the commit's parent has it becomes as the commit has it. An entry that somebody
//! has staged stays as it is, also if the commit has the same path.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use rustix::fs::OFlags;

use tollgate_base::error::{At, Result};
use tollgate_base::private;
use tollgate_base::working_tree::WorkingTree;

/// What a commit changed: paths with their new mode and object. Zeros: no file.
pub(super) struct Delta {
    entries: Vec<(Vec<u8>, String)>,
}

impl Delta {
    /// The change from one commit to another; from nothing, if there is no first.
    pub(super) fn between(tree: &WorkingTree, before: Option<&str>, after: &str) -> Result<Self> {
        let mut command = tree.git();
        command.args(["diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--no-commit-id"]);
        match before {
            Some(before) => command.args([before, after]),
            None => command.args(["--root", after]),
        };
        let output = tree.answer(&mut command, b"")?;
        let mut records = output.split(|byte| *byte == 0);
        let mut entries = Vec::new();
        // `:OLDMODE NEWMODE OLD NEW STATUS`, then the path.
        while let (Some(what), Some(path)) = (records.next(), records.next()) {
            let what = String::from_utf8_lossy(what);
            let words: Vec<&str> = what.split(' ').collect();
            if let [_, mode, _, id, _] = words[..] {
                entries.push((path.to_owned(), format!("{mode} {id}")));
            }
        }
        Ok(Self { entries })
    }

    /// The paths.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.entries.iter().map(|(path, _)| String::from_utf8_lossy(path).into_owned())
    }

    /// Makes a copy of an index that follows this change. `false` if there is no index, or nothing in it has to follow.
    pub(super) fn follow(
        &self,
        tree: &WorkingTree,
        before: Option<&str>,
        index: &Path,
        new: &Path,
    ) -> Result<bool> {
        if !index.exists() {
            return Ok(false);
        }
        copy(index, new)?;
        let staged = staged(tree, before, new)?;
        let mut lines = Vec::new();
        for (path, what) in self.entries.iter().filter(|(path, _)| !staged.contains(path)) {
            lines.extend(entry(what, path));
        }
        if !lines.is_empty() {
            update(tree, new, &lines)?;
        }
        Ok(!lines.is_empty())
    }
}

/// Copies an index with its time. From it, git knows which entries may be stale: a file that was changed in the same second as the index
/// can have the size and the times of its entry, and other bytes. With a later time, git would take them for the entry's.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    let copy = || {
        let mut file = File::open(from)?;
        let time = file.metadata()?.modified()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let mut new = private::open(to, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
        new.write_all(&bytes)?;
        new.set_modified(time)
    };
    copy().at("copy", from)
}

/// What [`update`] sets, for one path: its mode and object. Zeros: no file.
pub(super) fn entry(what: &str, path: &[u8]) -> Vec<u8> {
    [what.as_bytes(), b"\t", path, b"\0"].concat()
}

/// Sets entries of an index, see [`entry`].
pub(super) fn update(tree: &WorkingTree, index: &Path, lines: &[u8]) -> Result<()> {
    let mut command = tree.git();
    command.env("GIT_INDEX_FILE", index).args(["update-index", "-z", "--replace", "--index-info"]);
    tree.answer(&mut command, lines).map(drop)
}

/// The paths that are not in the index as this commit has them.
pub(super) fn staged(tree: &WorkingTree, commit: Option<&str>, index: &Path) -> Result<HashSet<Vec<u8>>> {
    let base = match commit {
        Some(commit) => commit.to_owned(),
        None => empty_tree(tree)?,
    };
    let mut command = tree.git();
    command.env("GIT_INDEX_FILE", index).args([
        "diff-index",
        "--cached",
        "-z",
        "--name-only",
        "--no-renames",
    ]);
    let output = tree.answer(command.arg(base), b"")?;
    let paths = output.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    Ok(paths.map(<[u8]>::to_owned).collect())
}

fn empty_tree(tree: &WorkingTree) -> Result<String> {
    let mut command = tree.git();
    let id = tree.answer(command.args(["hash-object", "-t", "tree", "--stdin"]), b"")?;
    Ok(String::from_utf8_lossy(id.trim_ascii()).into_owned())
}
