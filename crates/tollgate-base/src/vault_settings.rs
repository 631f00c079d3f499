//! `[vault]`: where the tasks are, whose they are, and how long claims last.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};

use crate::durability::Durability;
use crate::store_choice::StoreChoice;
use crate::units::Wait;

/// `[vault]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VaultSettings {
    /// Where the tasks are, relative to the workspace, if the configuration says so.
    pub dir: Option<PathBuf>,
    /// In a git worktree: whose vault it uses.
    pub tree: VaultTree,
    /// How long a leased claim lasts.
    pub lease: Wait,
    /// A file that was not renamed into place counts as complete once it has not changed for this time.
    pub settle: Wait,
    /// The number of failed attempts after which a task is rejected.
    pub max_attempts: u32,
    /// The pauses between the attempts at a task; the last one also after all further attempts.
    pub retry: Vec<Wait>,
    /// Which agents may claim tasks.
    pub agents: Agents,
    /// Whether an acknowledged step survives a power failure.
    pub durability: Durability,
    /// Which store keeps the tasks.
    pub store: StoreChoice,
    /// How machines agree on who owns a task: the older way to choose git.
    pub sync: Sync,
    /// With git: the name of the remote.
    pub remote: String,
    /// With git: the branch that the tasks are on.
    pub branch: String,
    /// With git: the prefix of the refs that hold claims.
    pub claim_refs: String,
    /// How long the remote or the engine may take for one answer.
    #[serde(deserialize_with = "long_enough_for_an_answer")]
    pub remote_timeout: Wait,
    /// Removed: naming it is an error that says so.
    #[serde(deserialize_with = "offline_was_removed")]
    pub offline: (),
    /// With git: whether the working tree follows the branch.
    pub follow: bool,
    /// With an engine: whether the folders of this machine show its tasks.
    pub view: bool,
    /// Whether a move from `Pending_Approval` to `Approved` by hand approves the text that was offered there.
    pub approve_by_move: bool,
}

/// Whose vault a git worktree uses: `main`, `own`, or a path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "PathBuf")]
pub enum VaultTree {
    /// That of the repository's main tree.
    #[default]
    Main,
    /// Its own.
    Own,
    /// That of this folder, relative to the workspace.
    At(PathBuf),
}

impl From<PathBuf> for VaultTree {
    fn from(path: PathBuf) -> Self {
        match path.to_str() {
            Some("main") => Self::Main,
            Some("own") => Self::Own,
            _ => Self::At(path),
        }
    }
}

impl VaultSettings {
    /// Where the tasks are, relative to the workspace.
    pub fn dir(&self) -> &Path {
        self.dir.as_deref().unwrap_or(Path::new("vault"))
    }

    /// Whether other machines can change the tasks, too.
    pub fn is_shared(&self) -> bool {
        *self.chosen_store() != StoreChoice::Folder
    }

    /// Which store keeps the tasks, by `store` or by `sync`.
    pub fn chosen_store(&self) -> &StoreChoice {
        match self.sync {
            Sync::Git => &StoreChoice::Git,
            Sync::None => &self.store,
        }
    }
}

impl Default for VaultSettings {
    fn default() -> Self {
        Self {
            dir: None,
            tree: VaultTree::default(),
            // Longer than a slow model thinks, short enough that a person still waits for the task.
            lease: Wait(Duration::from_secs(30 * 60)),
            // Editors and `cp` write without a pause, so nobody is still writing a file that has been unchanged for
            // two seconds.
            settle: Wait(Duration::from_secs(2)),
            max_attempts: 3,
            // The third attempt comes 70 seconds after the first, so that an outage of a minute rejects nothing.
            retry: [10, 60, 300].map(|s| Wait(Duration::from_secs(s))).to_vec(),
            agents: Agents::default(),
            durability: Durability::default(),
            store: StoreChoice::default(),
            sync: Sync::default(),
            remote: "origin".into(),
            branch: "main".into(),
            claim_refs: "refs/tollgate/claims".into(),
            // Enough for a slow line and a slow hook on the server. Git that takes longer hangs.
            remote_timeout: Wait(Duration::from_secs(30)),
            offline: (),
            follow: true,
            view: false,
            // A program that an agent starts can move a file as a person can.
            approve_by_move: false,
        }
    }
}

/// Which agents may claim tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Agents {
    /// All. One without an `[agent.NAME]` may do everything.
    #[default]
    All,
    /// Only those with an `[agent.NAME]`. The others may do nothing.
    Listed,
}

/// How machines agree on who owns a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sync {
    /// There is one machine.
    #[default]
    None,
    /// Through a git remote.
    Git,
}

/// The shortest `remote_timeout`. A connection with TLS to another continent takes about as long.
const SHORTEST_ANSWER: Wait = Wait(Duration::from_millis(500));

fn long_enough_for_an_answer<'de, D: Deserializer<'de>>(value: D) -> Result<Wait, D::Error> {
    let wait = Wait::deserialize(value)?;
    if wait < SHORTEST_ANSWER {
        return Err(D::Error::custom("`remote_timeout` is too short for an answer: write at least `500ms`"));
    }
    Ok(wait)
}

fn offline_was_removed<'de, D: Deserializer<'de>>(_: D) -> Result<(), D::Error> {
    Err(D::Error::custom(
        "`offline` was removed, because two machines could work on the same task: delete this line",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_a_vault_is_a_word_or_a_path() {
        let tree = |text: &str| toml::from_str::<VaultSettings>(text).unwrap().tree;
        assert_eq!(tree(""), VaultTree::Main);
        assert_eq!(tree("tree = \"main\""), VaultTree::Main);
        assert_eq!(tree("tree = \"own\""), VaultTree::Own);
        assert_eq!(tree("tree = \"./own\""), VaultTree::At("./own".into()));
    }
}
