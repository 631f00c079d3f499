//! Finding the root of the workspace.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tollgate::error::Fault;
use tollgate::workspace::{STATE_FOLDER, find_root};

/// Why a folder is the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoundBy {
    /// The user gave it with `-C`.
    Name,
    /// The current folder, or a folder above it, has tollgate's state.
    State,
    /// The current folder, or a folder above it, is the root of a git checkout.
    Git,
    /// Nothing was found, so it is the current folder.
    Here,
}

/// The root, canonical, and why it is the root. A folder that the user gave is the root itself.
pub(crate) fn find(base: &Path, named: bool) -> Result<(PathBuf, FoundBy), Fault> {
    let root = if named { base.to_owned() } else { find_root(base) };
    let found_by = if named {
        FoundBy::Name
    } else if root.join(STATE_FOLDER).exists() {
        FoundBy::State
    } else if root.join(".git").exists() {
        FoundBy::Git
    } else {
        FoundBy::Here
    };
    let fault = |source| Fault::Io { doing: "open the workspace", path: root.clone(), source };
    let canonical = fs::canonicalize(&root).map_err(fault)?;
    if !canonical.is_dir() {
        return Err(fault(io::ErrorKind::NotADirectory.into()));
    }
    Ok((canonical, found_by))
}
