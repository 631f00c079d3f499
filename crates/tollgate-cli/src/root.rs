//! Finding the root of the workspace.

use std::io;
use std::path::{Path, PathBuf};

use tollgate::error::Fault;
use tollgate::workspace::{canonical_root, has_state, is_checkout};

/// Why a folder is the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RootReason {
    /// The user gave it with `-C`.
    Name,
    /// The current folder, or a folder above it, has tollgate's state.
    State,
    /// The current folder, or a folder above it, is the root of a git checkout.
    Git,
    /// Nothing was found, so it is the current folder.
    Here,
}

/// The root, canonical, and why it is the root. A folder that the user gave is the root itself. States that are not accepted
/// are ignored.
pub(crate) fn find(
    base: &Path,
    named: bool,
    mut accepts: impl FnMut(&Path) -> bool,
) -> Result<(PathBuf, RootReason), Fault> {
    let fault =
        |path: &Path, source| Fault::Io { doing: "open the workspace", path: path.to_owned(), source };
    // Canonical first: the folders above a link are not those above its target.
    let base = canonical_root(base)?;
    let mut found = |folder: &Path| match folder {
        folder if has_state(folder) && accepts(folder) => Some(RootReason::State),
        folder if is_checkout(folder) => Some(RootReason::Git),
        _ => None,
    };
    let (root, found_by) = match named {
        true => (base.as_path(), RootReason::Name),
        // The nearest decides: a state in a folder above a checkout was not made for it.
        false => {
            let nearest =
                base.ancestors().find_map(|folder| found(folder).map(|found_by| (folder, found_by)));
            nearest.unwrap_or((&base, RootReason::Here))
        }
    };
    if !root.is_dir() {
        return Err(fault(root, io::ErrorKind::NotADirectory.into()));
    }
    Ok((root.to_owned(), found_by))
}
