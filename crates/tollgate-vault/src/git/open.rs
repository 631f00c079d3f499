//! Opening: which repository, which remote, which clone.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, RenameFlags};

use super::branch::Branch;
use super::clone::LocalClone;
use super::commit::{Maker, identity};
use super::edits::Edits;
use super::file::read;
use super::options::GitOptions;
use super::process::Given;
use super::remote::Remote;
use super::run::Git;
use super::tree::Tree;
use crate::folder::FolderStore;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::name::random_id;

/// Where tollgate keeps what belongs to its clone.
fn private(vault: &Path) -> PathBuf {
    vault.join(".tollgate").join("git")
}

/// Where people and agents see the tasks.
pub(super) fn folder_in(vault: &Path) -> PathBuf {
    private(vault).join("tree")
}

impl LocalClone {
    /// Opens the vault in this folder, which must be inside a repository that has the remote.
    pub(super) fn open(vault: &Path, options: GitOptions) -> Result<Self> {
        options.check()?;
        let git = Git::new(&options.program, vault, options.patience);
        git.check_version()?;
        let found = git.local(
            &["rev-parse", "--show-toplevel", "--absolute-git-dir", "--show-prefix"],
            &Given::Nothing,
        )?;
        let text = found.text();
        let mut lines = text.lines();
        let (Some(top), Some(repository), true) = (lines.next(), lines.next(), found.ok) else {
            return Err(Fault::invalid(format!(
                "`{}` is not in a git working tree, which `[vault] sync = \"git\"` needs: run `git init` or `git clone`",
                vault.display()
            )));
        };
        let (top, prefix) = (PathBuf::from(top), lines.next().unwrap_or_default().to_owned());
        let private = private(vault);
        let git = git.within(top, PathBuf::from(repository), private.join("talking"));
        let settings =
            git.local(&["config", "--get-regexp", r"^(user\.|core\.sshcommand|remote\.)"], &Given::Nothing)?;
        let settings = settings.text();
        let setting = |key: &str| {
            settings
                .lines()
                .rev()
                .find_map(|line| line.strip_prefix(key).and_then(|rest| rest.strip_prefix(' ')))
        };
        if setting(&format!("remote.{}.url", options.remote)).is_none() {
            return Err(Fault::invalid(format!(
                "the repository has no remote `{0}`: run `git remote add {0} URL`, or set another one in `[vault] remote`",
                options.remote
            )));
        }
        let may_set_ssh = options.plain_ssh && setting("core.sshcommand").is_none();
        let git = if may_set_ssh { git.with_batch_ssh() } else { git };
        for folder in ["tree", "aside", "edits"] {
            let path = private.join(folder);
            fs::create_dir_all(&path).at("make the folder", &path)?;
        }
        let ignore = private.join(".gitignore");
        if !ignore.exists() {
            fs::write(&ignore, "*\n").at("write", &ignore)?;
        }
        let id = clone_id(&private)?;
        let remote = Remote {
            git: git.clone(),
            name: options.remote.clone(),
            branch: options.branch.clone(),
            claim_refs: options.claim_refs.clone(),
        };
        let tree = Tree {
            branch: Branch { git: git.clone(), prefix },
            folder: FolderStore::open(&folder_in(vault), options.folder.clone())?,
            edits: Edits { folder: private.join("edits") },
            aside: private.join("aside"),
            clone: id.clone(),
        };
        let ident = identity(setting("user.name"), setting("user.email"));
        let maker = Maker { git, ident, marks: private.join("marks") };
        Ok(Self { id, options, remote, maker, tree, private, answers: Arc::default() })
    }
}

/// The id of this clone. A copy of the folder is another clone, because it does not have the locks of the first one.
fn clone_id(private: &Path) -> Result<String> {
    let path = private.join("clone");
    let ino = fs::metadata(private).at("look at", private)?.ino();
    loop {
        if let Some(text) = read(&path)? {
            match String::from_utf8_lossy(&text).trim().split_once(' ') {
                Some((id, of)) if of == ino.to_string() => return Ok(id.to_owned()),
                _ => fs::remove_file(&path).at("delete", &path)?,
            }
        }
        let id = random_id()?;
        let stage = private.join(format!("clone-{id}"));
        fs::write(&stage, format!("{id} {ino}\n")).at("write", &stage)?;
        // If several processes get here at the same time, one sets the id and the others read it.
        let named = rustix::fs::renameat_with(CWD, &stage, CWD, &path, RenameFlags::NOREPLACE);
        if named.is_err() {
            fs::remove_file(&stage).at("delete", &stage)?;
        }
        match named {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error).at("rename", &stage),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_clone_is_another_clone() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (folder.path().join("a"), folder.path().join("b"));
        for path in [&here, &there] {
            fs::create_dir(path).unwrap();
        }
        let id = clone_id(&here).unwrap();
        assert_eq!(clone_id(&here).unwrap(), id);
        fs::copy(here.join("clone"), there.join("clone")).unwrap();
        assert_ne!(clone_id(&there).unwrap(), id);
    }
}
