//! Opening: which repository, which remote, which clone.
//!
//! Invariant: what comes from the configuration and is handed to git is a plain name; nothing of it can pass for an option.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, RenameFlags};

use super::record::{Maker, identity};
use super::run::{Git, Given};
use super::talk::Remote;
use super::tree::{self, Tree};
use super::{GitOptions, GitStore};
use crate::error::{At, Fault, Result};
use crate::name::random_id;
use crate::vault::folder::FolderStore;

impl GitStore {
    /// Opens the vault in this folder, which must be inside a repository that has the remote.
    pub fn open(vault: &Path, options: GitOptions) -> Result<Self> {
        for (what, name) in
            [("remote", &options.remote), ("branch", &options.branch), ("claim_refs", &options.claim_refs)]
        {
            if !is_ref_name(name) {
                return Err(Fault::invalid(format!("`[vault] {what}` cannot be `{}`", name.escape_debug())));
            }
        }
        if !options.claim_refs.starts_with("refs/") {
            return Err(Fault::invalid("`[vault] claim_refs` must start with `refs/`"));
        }
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
                "`{}` is not in a git working tree, which `[vault] sync = \"git\"` needs: run `git init`, or `git clone` it",
                vault.display()
            )));
        };
        let (top, prefix) = (PathBuf::from(top), lines.next().unwrap_or_default().to_owned());
        let private = vault.join(".tollgate").join("git");
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
                "the repository has no remote `{0}`: `git remote add {0} URL`, or name another in `[vault] remote`",
                options.remote
            )));
        }
        let ours = options.plain_ssh && setting("core.sshcommand").is_none();
        let git = if ours { git.with_batch_ssh() } else { git };
        for folder in ["tree", "aside", "edits"] {
            let path = private.join(folder);
            fs::create_dir_all(&path).at("make the folder", &path)?;
        }
        let ignore = private.join(".gitignore");
        if !ignore.exists() {
            fs::write(&ignore, "*\n").at("write", &ignore)?;
        }
        let folder = FolderStore::open(&private.join("tree"), options.folder.clone())?;
        let ident = identity(setting("user.name"), setting("user.email"));
        let remote = Remote {
            git: git.clone(),
            name: options.remote.clone(),
            branch: options.branch.clone(),
            refs: options.claim_refs.clone(),
        };
        let clone = clone_id(&private)?;
        let tree = Tree {
            git: git.clone(),
            folder: folder.clone(),
            prefix,
            aside: private.join("aside"),
            edits: private.join("edits"),
            clone: clone.clone(),
        };
        let maker = Maker { git, ident, marks: private.join("marks") };
        Ok(Self { folder, remote, maker, tree, private, clone, options, turns: Arc::default() })
    }
}

/// What git would take for a ref or a remote and for nothing else: no option, no pattern, no way out.
pub(super) fn is_ref_name(name: &str) -> bool {
    let plain =
        |c: char| c.is_ascii_alphanumeric() || "-_./@".contains(c) || !c.is_ascii() && !c.is_control();
    let part = |part: &str| {
        !part.is_empty() && !part.starts_with(['.', '-']) && !part.ends_with('.') && !part.ends_with(".lock")
    };
    name.len() < 200
        && name.chars().all(plain)
        && !name.contains("..")
        && !name.contains("@{")
        && name.split('/').all(part)
}

/// Which clone this is. A copy of the folder is another clone: the locks of the first are not there.
pub(super) fn clone_id(private: &Path) -> Result<String> {
    let path = private.join("clone");
    let ino = fs::metadata(private).at("look at", private)?.ino();
    loop {
        if let Some(text) = tree::read(&path)? {
            match String::from_utf8_lossy(&text).trim().split_once(' ') {
                Some((id, of)) if of == ino.to_string() => return Ok(id.to_owned()),
                _ => fs::remove_file(&path).at("remove", &path)?,
            }
        }
        let id = random_id()?;
        let stage = private.join(format!("clone-{id}"));
        fs::write(&stage, format!("{id} {ino}\n")).at("write", &stage)?;
        // Of several that come first at once, one gives the name, and all of them take it.
        let named = rustix::fs::renameat_with(CWD, &stage, CWD, &path, RenameFlags::NOREPLACE);
        if named.is_err() {
            fs::remove_file(&stage).at("remove", &stage)?;
        }
        match named {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error).at("rename", &stage),
        }
    }
}
