//! What a command reaches besides its view: folders that it changes directly, and what it sees and cannot change.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tollgate_base::error::{At, Fault, Result};
use tollgate_guard::workspace::{STATE_FOLDER, Workspace};

use super::composite::mounts_below;
use super::ignored::IgnoreRules;

/// What a command reaches besides its view.
#[derive(Default)]
pub(super) struct Reach {
    /// Folders that it changes directly, relative to the workspace or absolute.
    pub(super) pass: Vec<PathBuf>,
    /// What it sees and cannot change, absolute.
    pub(super) closed: Vec<PathBuf>,
    /// Folders in these that it changes directly, absolute.
    pub(super) open: Vec<PathBuf>,
}

/// The folders that the view shows as they are in the workspace: those that are closed, those that git ignores, and those that were
/// asked for. The command changes the others directly, so nothing in them may be protected.
pub(super) fn passed(
    workspace: &Workspace,
    pass: &[PathBuf],
    closed: &[PathBuf],
    rules: &IgnoreRules,
) -> Result<Vec<PathBuf>> {
    let root = workspace.path();
    let below = closed.iter().filter_map(|path| path.strip_prefix(root).ok());
    let mut passed: Vec<PathBuf> = below.map(Path::to_owned).collect();
    for entry in fs::read_dir(root).at("list the folder", root)? {
        let entry = entry.at("list the folder", root)?;
        let name = entry.file_name();
        let is_ignored = entry.file_type().is_ok_and(|kind| kind.is_dir()) && rules.ignore(name.as_bytes());
        if is_ignored && workspace.may_pass(Path::new(&name)) {
            passed.push(name.into());
        }
    }
    for given in pass {
        let folder = root.join(given);
        let folder = folder.canonicalize().at("find", &folder)?;
        match folder.strip_prefix(root) {
            Ok(below) if !workspace.may_pass(below) => {
                let what = format!(
                    "`{}` cannot be passed through: it is protected, or something in it is",
                    given.display()
                );
                return Err(Fault::invalid(what));
            }
            Ok(below) if folder.is_dir() && !below.as_os_str().is_empty() => passed.push(below.to_owned()),
            _ => {
                let what = format!("`{}` is not a folder in the workspace", given.display());
                let hint = "give `--pass` a folder below the root of the workspace";
                return Err(Fault::invalid_with_hint(what, hint));
            }
        }
    }
    // An overlay does not show what is mounted in the workspace.
    passed.extend(mounts_below(root));
    passed.sort();
    passed.dedup();
    Ok(passed)
}

/// The folders between the workspace and the folder of the command that are passed through, and those that are closed: a checkout
/// inside the workspace has rules of its own about what git ignores, and perhaps a state of tollgate.
pub(super) fn passed_in_checkouts(
    workspace: &Workspace,
    folder: &Path,
) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let root = workspace.path();
    let (mut passed, mut states) = (Vec::new(), Vec::new());
    let inside = folder.ancestors().take_while(|inner| *inner != root);
    for checkout in inside.filter(|inner| inner.starts_with(root)) {
        states.extend(Some(checkout.join(STATE_FOLDER)).filter(|state| state.is_dir()));
        if checkout.join(".git").exists() {
            let rules = IgnoreRules::of(checkout);
            for entry in fs::read_dir(checkout).at("list the folder", checkout)? {
                let entry = entry.at("list the folder", checkout)?;
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let is_ignored = is_folder && rules.ignore(entry.file_name().as_bytes());
                let may_pass =
                    || entry.path().strip_prefix(root).is_ok_and(|below| workspace.may_pass(below));
                passed.extend((is_ignored && may_pass()).then(|| entry.path()));
            }
        }
    }
    Ok((passed, states))
}
