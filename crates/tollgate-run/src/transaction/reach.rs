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
    /// The checkouts and workspaces inside this one in which it runs, absolute. They are guarded, also in a folder that git
    /// ignores: an agent program that was started there reads its settings there.
    pub(super) trees: Vec<PathBuf>,
}

impl Reach {
    /// What a command in this folder reaches in the trees around it: each has rules of its own about what git ignores, and perhaps
    /// a state of tollgate.
    pub(super) fn from(workspace: &Workspace, folder: &Path) -> Result<Self> {
        let root = workspace.path();
        let inside = folder.ancestors().take_while(|inner| *inner != root);
        let inside = inside.filter(|inner| inner.starts_with(root)).map(Path::to_owned);
        let (state, has_git) =
            (|tree: &Path| tree.join(STATE_FOLDER), |tree: &Path| tree.join(".git").exists());
        let trees: Vec<_> = inside.filter(|tree| state(tree).is_dir() || has_git(tree)).collect();
        let closed = trees.iter().map(|tree| state(tree)).filter(|state| state.is_dir()).collect();
        let mut pass = Vec::new();
        for checkout in trees.iter().filter(|tree| has_git(tree)) {
            pass_ignored(workspace, checkout, &trees, &IgnoreRules::of(checkout), &mut pass)?;
        }
        Ok(Self { pass, closed, open: Vec::new(), trees })
    }
}

/// The folders that the view shows as they are in the workspace: those that are closed, those that git ignores, and those that were
/// asked for. The command changes the others directly, so nothing in them may be protected that counts in this workspace.
pub(super) fn passed(workspace: &Workspace, reach: &Reach, rules: &IgnoreRules) -> Result<Vec<PathBuf>> {
    let root = workspace.path();
    let mut passed = reach.closed.clone();
    pass_ignored(workspace, root, &reach.trees, rules, &mut passed)?;
    let below = passed.iter().filter_map(|path| path.strip_prefix(root).ok());
    let mut passed: Vec<PathBuf> = below.map(Path::to_owned).collect();
    for given in &reach.pass {
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

/// Passes the folders in the root of a checkout through that git ignores.
fn pass_ignored(
    workspace: &Workspace,
    checkout: &Path,
    trees: &[PathBuf],
    rules: &IgnoreRules,
    passed: &mut Vec<PathBuf>,
) -> Result<()> {
    for folder in folders_in(checkout)? {
        let is_ignored = folder.file_name().is_some_and(|name| rules.ignore(name.as_bytes()));
        let may_pass = || folder.strip_prefix(workspace.path()).is_ok_and(|below| workspace.may_pass(below));
        if is_ignored && may_pass() {
            pass_around(trees, folder, passed)?;
        }
    }
    Ok(())
}

/// Passes a folder through, without the trees in it and the folders on the way to them.
fn pass_around(trees: &[PathBuf], folder: PathBuf, passed: &mut Vec<PathBuf>) -> Result<()> {
    if !trees.iter().any(|tree| tree.starts_with(&folder)) {
        passed.push(folder);
    } else if !trees.contains(&folder) {
        for inside in folders_in(&folder)? {
            pass_around(trees, inside, passed)?;
        }
    }
    Ok(())
}

/// The folders in a folder, without links to folders.
fn folders_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).at("list the folder", folder)? {
        let entry = entry.at("list the folder", folder)?;
        found.extend(entry.file_type().is_ok_and(|kind| kind.is_dir()).then(|| entry.path()));
    }
    Ok(found)
}
