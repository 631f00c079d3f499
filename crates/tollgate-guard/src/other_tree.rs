//! An agent stays in its tree: in a repository with several working trees, it changes files only in the one in which its session began.
//!
//! When the session begins, it remembers the other working trees that the repository has at that time. A tree that is added later may be
//! the agent's own, so it is not refused. The session remembers this as leads: the tree in which it began under [`BEGAN`], and under
//! the root of each other tree the same path.

use std::path::{Path, PathBuf};

use crate::explain::object;
use crate::path::FilePath;
use crate::place::canonical;
use crate::refusal::{Reason, Refusal};
use crate::request::Request;
use crate::root::Root;
use crate::session::Known;
use tollgate_base::error::Result;
use tollgate_base::settings::GuardMode;
use tollgate_base::working_tree::WorkingTree;

/// The name under which a session remembers where it began. There is no such file.
const BEGAN: &str = ".git/began";

/// Where a session began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beginning {
    /// The root of the working tree, or the folder if it is in none.
    pub tree: PathBuf,
    /// The roots of the other working trees that the repository had then.
    pub others: Vec<PathBuf>,
}

impl Beginning {
    /// A session begins in this folder now.
    pub fn now(folder: &Path) -> Result<Self> {
        let folder = canonical(folder)?;
        let tree = WorkingTree::around(&folder);
        let others = tree.as_ref().map_or(Ok(Vec::new()), WorkingTree::others)?;
        Ok(Self { tree: tree.map_or(folder, |tree| tree.top), others })
    }
}

/// The session remembers where it began.
pub(crate) fn session_began(root: &Root, session: &dyn Known, beginning: &Beginning) -> Result<()> {
    let (tree, mark) = (FilePath::trusted(beginning.tree.clone()), root.path().join(BEGAN));
    if session.led_to(&mark)?.as_ref() == Some(&tree) {
        return Ok(());
    }
    beginning.others.iter().try_for_each(|other| session.set_lead(other, &tree))?;
    session.set_lead(&mark, &tree)
}

/// A session begins in the root of its workspace, if nobody knows where it began.
pub(crate) fn session_goes_on(root: &Root, session: &dyn Known) -> Result<()> {
    match session.led_to(&root.path().join(BEGAN))? {
        None if root.settings().git.stay => session_began(root, session, &Beginning::now(root.path())?),
        _ => Ok(()),
    }
}

/// The other working tree that a folder is in, if it is in one. What git keeps for itself is in none.
pub(crate) fn tree_around(request: &Request<'_>, folder: &Path) -> Result<Option<PathBuf>> {
    if !request.root.settings().git.stay || folder.iter().any(|part| part == ".git") {
        return Ok(None);
    }
    for folder in folder.ancestors() {
        let Some(tree) = WorkingTree::at(folder) else { continue };
        if is_other(request, folder)? {
            return Ok(Some(tree.top));
        }
        if !tree.is_submodule() {
            break;
        }
    }
    Ok(None)
}

/// Whether this is the root of another working tree.
fn is_other(request: &Request<'_>, top: &Path) -> Result<bool> {
    let session = request.turn.session();
    session_goes_on(request.root, session)?;
    let other = session.led_to(top)?;
    Ok(other.is_some() && other == session.led_to(&request.root.path().join(BEGAN))?)
}

/// Whether this file says where HEAD of another working tree is.
pub(crate) fn is_head_of_other(request: &Request<'_>, path: &Path) -> Result<bool> {
    let Some(git_dir) = path.parent().filter(|_| path.ends_with("HEAD")) else { return Ok(false) };
    if !git_dir.ends_with(".git") && !git_dir.join("gitdir").exists() {
        return Ok(false);
    }
    WorkingTree::of(git_dir).map_or(Ok(false), |tree| is_other(request, &tree.top))
}

/// Whether the file at this path is in this other working tree, and git does not ignore it there.
pub(crate) fn is_file_of(tree: &Path, path: &FilePath) -> Result<bool> {
    match WorkingTree::at(tree) {
        Some(tree) => Ok(tree.ignored(&[path.as_path().to_owned()])?.is_empty()),
        None => Ok(false),
    }
}

/// The refusal of a change at this path, if it is in another working tree.
pub(crate) fn refusal(request: &Request<'_>, path: &FilePath) -> Result<Option<Refusal>> {
    let folder = path.as_path().parent().unwrap_or(path.as_path());
    match tree_around(request, folder)? {
        Some(tree) if is_file_of(&tree, path)? => object(request, path, Reason::OtherTree),
        _ => Ok(None),
    }
}

/// What a command in a view of its own could change of other working trees without anybody comparing it: these trees, and the folders in
/// them that it may change all the same.
#[derive(Debug, Default)]
pub struct TreesBeside {
    /// The roots of the trees.
    pub closed: Vec<PathBuf>,
    /// What all trees of the repository share, what git ignores, and where the agent's own trees are.
    pub open: Vec<PathBuf>,
}

/// The other working trees outside of the view of a command.
pub(crate) fn trees_beside(root: &Root, session: &dyn Known) -> Result<TreesBeside> {
    let mut beside = TreesBeside::default();
    let Some(tree) = WorkingTree::around(root.path()) else { return Ok(beside) };
    if !root.settings().git.stay || root.settings().guard.mode != GuardMode::Enforce {
        return Ok(beside);
    }
    session_goes_on(root, session)?;
    let began = session.led_to(&root.path().join(BEGAN))?;
    let (mut others, mut own) = (Vec::new(), vec![root.path().to_owned()]);
    for top in tree.others()? {
        let is_other = session.led_to(&top)? == began;
        if is_other { others.push(top) } else { own.push(top) }
    }
    for top in others {
        // What git does not ignore is in the view, and compared.
        if top.starts_with(root.path()) && tree.ignored(&[top.join("")])?.is_empty() {
            continue;
        }
        let Some(other) = WorkingTree::at(&top) else { continue };
        beside.open.extend(own.iter().filter(|own| own.starts_with(&top)).cloned());
        // The agent's next tree comes beside its own.
        beside.open.extend(
            root.path()
                .parent()
                .filter(|folder| folder.starts_with(&top) && **folder != top)
                .map(Path::to_owned),
        );
        beside.open.extend(other.common_dir().canonicalize().ok().filter(|common| common.starts_with(&top)));
        beside.open.extend(other.ignored_folders()?);
        beside.closed.push(top);
    }
    // Outer ones first: each is a mount in the one around it. The workspace itself is one already.
    beside.open.retain(|folder| folder != root.path());
    beside.open.sort();
    beside.open.dedup();
    beside.closed.sort();
    Ok(beside)
}
