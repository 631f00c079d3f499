//! Which workspace has the vault that an agent uses, and which of its folders that is.
//!
//! The worktrees of a git repository share the vault of one of them, with its settings and its ledger: two agents in two
//! trees cannot own the same task, and the figures of all trees are the same.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::settings::{Settings, StoreChoice, VaultSettings, VaultTree};
use tollgate_base::task::State;
use tollgate_guard::workspace::{STATE_FOLDER, read_settings};
use tollgate_vault::{ClaimDeadlines, GitStore};

use crate::trust::{outside, resolved};
use crate::worktree::in_main_tree;

/// The workspace that a vault belongs to. In a git worktree, this may be another workspace.
#[derive(Debug, Clone)]
pub struct VaultHome {
    /// The workspace, canonical.
    pub root: PathBuf,
    /// Its settings.
    pub settings: Settings,
}

impl VaultHome {
    /// The workspace whose vault this one uses. A fault if that workspace is unknown or has no vault, and this one has: then
    /// agents in two worktrees could own the same task.
    pub fn of(root: &Path, settings: &Settings) -> Result<Self> {
        let own = Self { root: root.to_owned(), settings: settings.clone() };
        let shared = match shared_with(root, settings) {
            Ok(None) => return own.under_the_rules_of_its_vault(),
            Ok(Some(root)) => {
                let home = Self::at(root)?;
                match home.has_vault() {
                    true => return home.under_the_rules_of_its_vault(),
                    false => Err(not_shared(&format!("`{}` has no vault", home.root.display()))),
                }
            }
            Err(fault) => Err(fault),
        };
        if own.has_vault() { shared } else { Ok(own) }
    }

    /// This home; but if its vault is that of another workspace, the roles and terms of that workspace hold: the configuration of
    /// a clone must not give its agents other rights there.
    fn under_the_rules_of_its_vault(mut self) -> Result<Self> {
        let Some(folder) = outside(&self.root, &self.folder()) else { return Ok(self) };
        for root in folder.ancestors().filter(|root| root.join(STATE_FOLDER).join("config.toml").exists()) {
            let other = Self::at(root.to_owned())?;
            if resolved(&other.folder()) == folder {
                let VaultSettings { lease, settle, max_attempts, retry, agents, approve_by_move, .. } =
                    other.settings.vault;
                let vault = self.settings.vault;
                self.settings.agent = other.settings.agent;
                self.settings.vault =
                    VaultSettings { lease, settle, max_attempts, retry, agents, approve_by_move, ..vault };
                return Ok(self);
            }
        }
        Ok(self)
    }

    /// This workspace, with the settings in its configuration.
    pub fn at(root: PathBuf) -> Result<Self> {
        let settings = read_settings(&root.join(STATE_FOLDER).join("config.toml"))?;
        Ok(Self { root, settings })
    }

    /// Where the vault is, whether or not it exists. Canonical if it does: nothing below it is opened through a link.
    pub fn folder(&self) -> PathBuf {
        let folder = vault_folder(&self.root, &self.settings);
        fs::canonicalize(&folder).unwrap_or(folder)
    }

    /// Where the files of the tasks are: in the vault, or in the store's own view of it.
    pub fn tasks_folder(&self) -> PathBuf {
        files_in(&self.folder(), &self.settings)
    }

    /// Whether the tasks are in an engine, so that nothing on this machine shows whether there are any.
    pub fn is_in_engine(&self) -> bool {
        matches!(self.settings.vault.chosen_store(), StoreChoice::Engine(_))
    }

    /// Whether this is the same vault in the same store. A server that has begun with one vault cannot go on with another: its
    /// heartbeats, its claims and its folder view belong to the first.
    pub fn is_same_vault(&self, other: &Self) -> bool {
        let store = |home: &Self| home.settings.vault.chosen_store().clone();
        self.folder() == other.folder() && store(self) == store(other)
    }

    /// The fault of a configuration that names another vault than the one with which a server has begun.
    pub fn another_vault(&self) -> Fault {
        let path = self.root.join(STATE_FOLDER).join("config.toml");
        Fault::Config { path, what: "it names another vault than before; start this server again".into() }
    }

    /// Whether there is a vault. A store that keeps the tasks elsewhere may show none of them.
    pub fn has_vault(&self) -> bool {
        is_vault(&self.folder()) || self.settings.vault.is_shared()
    }

    /// Whether the configuration names a vault that is not there.
    pub fn misses_its_vault(&self) -> bool {
        self.settings.vault.dir.is_some() && !self.has_vault()
    }

    /// Whether other ledgers can have lines about the same tasks: other machines use the store, or other workspaces the folder.
    pub fn has_other_ledgers(&self) -> bool {
        self.settings.vault.is_shared() || !self.folder().starts_with(&self.root)
    }
}

/// The other workspace whose vault this one uses, if it is in a git worktree, or if its settings name one.
pub fn shared_with(root: &Path, settings: &Settings) -> Result<Option<PathBuf>> {
    let other = match &settings.vault.tree {
        VaultTree::Own => None,
        VaultTree::At(path) => {
            Some(fs::canonicalize(root.join(path)).at("open the workspace", root.join(path))?)
        }
        VaultTree::Main => in_main_tree(root).map_err(|why| not_shared(&why))?,
    };
    Ok(other.filter(|other| other != root))
}

/// The vault outside a workspace that its settings, or a link in it, name; and the workspace that names it. The main tree of a
/// git worktree is not outside: the repository knows the worktree.
pub fn named_outside(root: &Path, settings: &Settings) -> Result<Option<(PathBuf, PathBuf)>> {
    let own = VaultHome { root: root.to_owned(), settings: settings.clone() };
    let home = shared_with(root, settings)?.map_or(Ok(own), VaultHome::at)?;
    let names = if matches!(settings.vault.tree, VaultTree::At(_)) { root } else { &home.root };
    Ok(outside(names, &home.folder()).map(|folder| (names.to_owned(), folder)))
}

fn not_shared(why: &str) -> Fault {
    Fault::invalid_with_hint(
        format!("this git worktree shares the vault of the repository's main tree, but {why}"),
        "run `tollgate init --vault` in the main tree, or set `tree` under `[vault]` in `.tollgate/config.toml`: to the path of \
         the tree that has the vault, or to `own`",
    )
}

fn vault_folder(root: &Path, settings: &Settings) -> PathBuf {
    let named = root.join(settings.vault.dir());
    // A vault on its own, without a workspace around it.
    // Any project may have a folder `Done`, so the first folder must be there.
    let is_bare = || root.join(State::NeedsAction.as_str()).is_dir();
    let itself = settings.vault.dir() == Settings::default().vault.dir() && is_bare() && !is_vault(&named);
    if itself { root.to_owned() } else { named }
}

pub(crate) fn files_in(vault: &Path, settings: &Settings) -> PathBuf {
    match settings.vault.chosen_store() {
        StoreChoice::Git => GitStore::folder_in(vault),
        StoreChoice::Folder | StoreChoice::Engine(_) => vault.to_owned(),
    }
}

/// Where a machine that shares its store with others keeps the deadlines of its claims.
pub(crate) fn deadlines_in(vault: &Path) -> ClaimDeadlines {
    ClaimDeadlines::new(vault.join(STATE_FOLDER).join("deadlines"))
}

/// Whether this folder is a vault: one of its folders is enough, the others are made when they are needed. Git does not keep
/// empty folders, so a clone has only those with tasks.
pub fn is_vault(folder: &Path) -> bool {
    State::ALL.iter().any(|state| folder.join(state.as_str()).is_dir())
}

/// What identifies a workspace outside of it: the same for all its processes, different for a new folder at the same path.
pub fn workspace_id(root: &Path) -> Result<String> {
    let metadata = fs::metadata(root).at("look at", root)?;
    let mut known = root.as_os_str().as_bytes().to_vec();
    known.push(0);
    known.extend(metadata.ino().to_le_bytes());
    // The inode of a deleted folder may be given to the next one; not every file system tells the time of birth.
    let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    known.extend(born.map_or(0, |born| born.as_nanos()).to_le_bytes());
    Ok(Digest::of(&known).to_string()[..16].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_folder_at_the_same_path_is_another_workspace() {
        let keep = tempfile::tempdir().unwrap();
        let path = keep.path().join("w");
        fs::create_dir(&path).unwrap();
        let first = workspace_id(&path).unwrap();
        assert_eq!(workspace_id(&path).unwrap(), first);
        fs::remove_dir(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_ne!(workspace_id(&path).unwrap(), first);
    }
}
