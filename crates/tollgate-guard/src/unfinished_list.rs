//! The unfinished files of a workspace, and whose work they are, for people. This file changes and records nothing, and needs no
//! state of tollgate.
//!
//! git is asked once for all files. Only files that the ledger names are read, to find out which of their versions this is.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{CWD, Mode, OFlags, openat, readlink};

use crate::authors::Authors;
use crate::disk::modified;
use tollgate_base::digest::{Digest, Hasher};
use tollgate_base::error::Result;
use tollgate_base::ledger::Ledger;
use tollgate_base::name::Agent;
use tollgate_base::working_tree::WorkingTree;

/// The largest new file whose lines are counted. A person does not count the lines of a larger one, and reading many of them takes
/// seconds.
const COUNTED: u64 = 8 * 1024 * 1024;

/// Where git looks for a zero byte, which makes a file binary.
const LOOKED_AT: usize = 8_000;

/// An unfinished file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedFile {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// Who wrote what the file holds, or deleted it. `None`: nobody who uses tollgate.
    pub agent: Option<Agent>,
    /// When the agent wrote it; without an agent, when the file was last written. `None` if that is not known.
    pub since: Option<Timestamp>,
    /// Whether HEAD has a version of the file.
    pub committed: bool,
}

/// How much of a file is unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeSize {
    /// The lines that were added to the version in HEAD, and those that were removed.
    Lines {
        /// Added.
        added: u64,
        /// Removed.
        removed: u64,
    },
    /// The size of a file on disk whose lines are not counted: it is binary or very large, or there is no repository.
    Bytes(u64),
}

/// The unfinished files of a workspace: those of agents first, by their names, then those of nobody known. Outside of a repository,
/// what agents have written in turns that go on.
pub fn list(workspace: &Path, ledger: &Ledger) -> Result<Vec<ListedFile>> {
    let mut files = match WorkingTree::around(workspace) {
        Some(tree) => in_repository(workspace, &tree, ledger)?,
        None => in_open_turns(workspace, &Authors::read(ledger)?),
    };
    files.sort_by(|a, b| {
        let order = |file: &ListedFile| (file.agent.is_none(), file.agent.clone());
        order(a).cmp(&order(b)).then_with(|| a.path.cmp(&b.path))
    });
    Ok(files)
}

/// The number of files of each agent in such a list.
pub fn counts(files: &[ListedFile]) -> Vec<(Option<Agent>, usize)> {
    let of_one = files.chunk_by(|a, b| a.agent == b.agent);
    of_one.map(|files| (files[0].agent.clone(), files.len())).collect()
}

/// How much of each of these files is unfinished.
pub fn sizes(workspace: &Path, files: &[ListedFile]) -> Result<Vec<ChangeSize>> {
    let tree = WorkingTree::around(workspace);
    // git compares nothing if something else, such as a pipe, is in the place of a file.
    let changed = tree.as_ref().and_then(|tree| {
        let committed = files.iter().filter(|file| file.committed);
        let below = committed.filter_map(|file| below(tree, &workspace.join(&file.path)));
        tree.line_counts(&below.collect::<Vec<_>>()).ok()
    });
    let size = |file: &ListedFile| {
        let path = workspace.join(&file.path);
        match &tree {
            Some(tree) if file.committed => {
                let counts = changed.as_ref().zip(below(tree, &path));
                let counted = counts.and_then(|(counts, below)| *counts.get(&below).unwrap_or(&Some([0, 0])));
                counted.map(|[added, removed]| ChangeSize::Lines { added, removed })
            }
            Some(_) => lines_in(&path).map(|added| ChangeSize::Lines { added, removed: 0 }),
            None => None,
        }
        .unwrap_or_else(|| ChangeSize::Bytes(path.symlink_metadata().map_or(0, |found| found.len())))
    };
    Ok(files.iter().map(size).collect())
}

fn in_repository(workspace: &Path, tree: &WorkingTree, ledger: &Ledger) -> Result<Vec<ListedFile>> {
    let only = below(tree, workspace).filter(|below| !below.as_os_str().is_empty());
    let found = tree.unfinished(only.as_ref().as_slice())?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let authors = Authors::read(ledger)?;
    let listed = found.into_iter().filter_map(|(below, head)| {
        let path = tree.top.join(&below);
        let key = path.strip_prefix(workspace).ok()?;
        // Another repository in this one: its files are its own.
        if below.as_os_str().as_bytes().ends_with(b"/") {
            return None;
        }
        let line = if authors.know(key) { authors.of(key, digest(&path)) } else { None };
        Some(ListedFile {
            path: key.to_owned(),
            agent: line.and_then(|line| line.agent.clone()),
            since: line.map(|line| line.time).or_else(|| modified(&path)),
            committed: head.is_some(),
        })
    });
    Ok(listed.collect())
}

fn in_open_turns(workspace: &Path, authors: &Authors) -> Vec<ListedFile> {
    let listed = authors.known().filter_map(|key| {
        let work = authors.open_work(Path::new(key), digest(&workspace.join(key))?)?;
        Some(ListedFile { path: key.into(), agent: work.agent, since: work.since, committed: false })
    });
    listed.collect()
}

/// The hash of a file, or of the path in a symbolic link. `None` if there is neither.
fn digest(path: &Path) -> Option<Digest> {
    if let Ok(link) = readlink(path, Vec::new()) {
        return Some(Digest::of(link.as_bytes()));
    }
    let (mut file, mut hasher) = (open(path)?, Hasher::default());
    let mut part = vec![0; 64 * 1024];
    loop {
        match file.read(&mut part) {
            Ok(0) => return Some(hasher.finish()),
            Ok(read) => hasher.update(&part[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// The number of lines in a new file, as git counts them. `None` if it is binary or too large.
fn lines_in(path: &Path) -> Option<u64> {
    if let Ok(found) = path.symlink_metadata()
        && !found.is_file()
    {
        return found.is_symlink().then_some(1);
    }
    // It is in the index, but no longer on disk.
    let Some(file) = open(path) else { return Some(0) };
    let mut bytes = Vec::new();
    let read = file.take(COUNTED + 1).read_to_end(&mut bytes).ok()? as u64;
    let is_text = read <= COUNTED && !bytes.iter().take(LOOKED_AT).any(|byte| *byte == 0);
    is_text.then(|| bytes.split_inclusive(|byte| *byte == b'\n').count() as u64)
}

/// A regular file. Does not follow a link, and does not wait for the writer of a pipe.
fn open(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file: File = openat(CWD, path, flags, Mode::empty()).ok()?.into();
    file.metadata().ok()?.is_file().then_some(file)
}

fn below(tree: &WorkingTree, path: &Path) -> Option<PathBuf> {
    path.strip_prefix(&tree.top).ok().map(Path::to_owned)
}
