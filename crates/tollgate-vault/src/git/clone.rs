//! This clone of the repository: its tree, what it has seen of the remote, and the lock of its conversation.
//!
//! Invariants: one process of a clone talks to the remote at a time, under the lock of the [`Conversation`]. The tree and
//! the state files of the clone change only under that lock. What comes from the settings and is passed to git is a plain
//! name; git cannot read it as an option.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::RenameFlags;

use super::branch::Branch;
use super::card::Card;
use super::remote::{PushResult, Remote, Update};
use super::repository::{GitSettings, Repository};
use super::run::Git;
use super::seen::{LastSeen, SeenRemote};
use super::tree::{Tree, read};
use crate::claim::{ClaimId, ClaimRecord};
use crate::folder::{FolderOptions, FolderStore, make_private_folder};
use crate::recent::Recent;
use crate::store::TaskAfterStep;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::file::replace_file;
use tollgate_base::lock::Lock;
use tollgate_base::name::random_id;
use tollgate_base::private;
use tollgate_base::settings::Durability;
use tollgate_base::task::TaskName;

/// How the git store is used.
#[derive(Clone)]
pub struct GitOptions {
    /// The program.
    pub program: PathBuf,
    /// The name of the remote.
    pub remote: String,
    /// The branch that the tasks are on.
    pub branch: String,
    /// Where on the remote the cards are: the beginning of the names of their refs.
    pub claim_refs: String,
    /// How long an owner may be silent before another machine may take its task.
    pub lease: Duration,
    /// How long the remote may take for one answer.
    pub patience: Duration,
    /// Whether the person's working tree is brought up to date.
    pub follow: bool,
    /// Whether the environment leaves it to tollgate how ssh is run.
    pub plain_ssh: bool,
    /// How the folders of the tree are used.
    pub folder: FolderOptions,
}

impl GitOptions {
    pub(super) fn check(&self) -> Result<()> {
        for (what, name) in
            [("remote", &self.remote), ("branch", &self.branch), ("claim_refs", &self.claim_refs)]
        {
            if !is_ref_name(name) {
                return Err(Fault::invalid(format!("`[vault] {what}` cannot be `{}`", name.escape_debug())));
            }
        }
        if !self.claim_refs.starts_with("refs/") {
            return Err(Fault::invalid("`[vault] claim_refs` must start with `refs/`"));
        }
        Ok(())
    }
}

/// Whether git reads this as a ref or a remote and as nothing else: not an option, a pattern or a path.
fn is_ref_name(name: &str) -> bool {
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || "-_./@".contains(c) || !c.is_ascii() && !c.is_control();
    let is_part = |part: &str| {
        !part.is_empty() && !part.starts_with(['.', '-']) && !part.ends_with('.') && !part.ends_with(".lock")
    };
    name.len() < 200
        && name.chars().all(is_plain)
        && !name.contains("..")
        && !name.contains("@{")
        && name.split('/').all(is_part)
}

/// Tasks over git.
#[derive(Clone)]
pub struct GitStore {
    /// The id of this clone.
    pub(super) id: String,
    pub(super) options: GitOptions,
    pub(super) repository: Repository,
    pub(super) remote: Remote,
    pub(super) tree: Tree,
    /// The folder of the state files.
    pub(super) private: PathBuf,
    seen: LastSeen,
    /// The steps that were pushed, and where those that were taken have landed.
    pub(super) answers: Recent<Option<TaskAfterStep>>,
    /// The commits that were made for new tasks.
    pub(super) additions: Recent<Vec<String>>,
}

/// The lock of the conversation with the remote.
pub(super) struct Conversation(pub(super) Lock);

impl GitStore {
    /// The folder in which people and agents see the tasks of the vault in `vault`.
    pub fn folder_in(vault: &Path) -> PathBuf {
        private_folder(vault).join("tree")
    }

    /// Opens the vault in this folder, which must be inside a repository that has the remote.
    pub fn open(vault: &Path, options: GitOptions) -> Result<Self> {
        options.check()?;
        let private = private_folder(vault);
        let git = Git {
            program: options.program.clone(),
            folder: vault.to_owned(),
            repository: None,
            talking: private.join("talking"),
            patience: options.patience,
            batch_ssh: false,
        };
        git.check_version()?;
        let repository = Repository::find(git, vault, private.join("repository"))?;
        make_private_folder(vault)?;
        for folder in ["tree", "aside", "edits", "repository"] {
            let path = private.join(folder);
            private::create_folders(&path, 0o777).at("make the folder", &path)?;
        }
        let ignore = private.join(".gitignore");
        // A power cut can leave it empty.
        if read(&ignore)?.is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0)) {
            private::write(&ignore, "*\n").at("write", &ignore)?;
        }
        let durability = options.folder.durability;
        let GitSettings { author, has_ssh } =
            repository.refresh(&options.remote, &options.branch, durability)?;
        let batch_ssh = options.plain_ssh && !has_ssh;
        let (folder, own) = (repository.top.clone(), Some((repository.own.clone(), repository.index())));
        let git = Git { folder, repository: own, batch_ssh, ..repository.git.clone() };
        let id = clone_id(&private, durability)?;
        let remote = Remote {
            git: git.clone(),
            name: options.remote.clone(),
            branch: options.branch.clone(),
            claim_refs: options.claim_refs.clone(),
        };
        let tree = Tree {
            branch: Branch { git, prefix: repository.prefix.clone(), author },
            folder: FolderStore::open(&Self::folder_in(vault), options.folder.clone())?,
            edits: private.join("edits"),
            aside: private.join("aside"),
            clone: id.clone(),
        };
        let (answers, additions) = (Recent::default(), Recent::default());
        let seen = LastSeen::new(private.join("seen.json"));
        Ok(Self { id, options, repository, remote, tree, private, seen, answers, additions })
    }

    /// The tasks in the tree.
    pub(super) fn tasks(&self) -> &FolderStore {
        &self.tree.folder
    }

    /// Waits until no other process of this clone talks to the remote.
    pub(super) fn converse(&self) -> Result<Conversation> {
        // The other process may be waiting for an answer of the remote, and may then look once more.
        let wait = 3 * self.options.patience + Duration::from_secs(10);
        let deadline = Instant::now() + wait;
        loop {
            if let Some(talk) = self.try_converse(Duration::from_millis(500))? {
                return Ok(talk);
            }
            self.remote.git.kill_orphan();
            if Instant::now() > deadline {
                return Err(Fault::Locked { path: self.private.join("lock"), waited_s: wait.as_secs() });
            }
        }
    }

    /// `None` if another process of this clone talks to the remote all this time.
    pub(super) fn try_converse(&self, wait: Duration) -> Result<Option<Conversation>> {
        let lock = Lock::acquire(&self.private.join("lock"), wait)?;
        lock.map(|lock| {
            let durability = self.options.folder.durability;
            self.repository.refresh(&self.remote.name, &self.remote.branch, durability)?;
            self.repository.remove_left_locks()?;
            Ok(Conversation(lock))
        })
        .transpose()
    }

    pub(super) fn seen(&self) -> Result<Arc<SeenRemote>> {
        self.seen.read()
    }

    /// What this clone last saw, to change it and [keep](Self::keep) it.
    pub(super) fn seen_to_change(&self) -> Result<SeenRemote> {
        self.seen.read().map(Arc::unwrap_or_clone)
    }

    pub(super) fn keep(&self, seen: &SeenRemote) -> Result<()> {
        self.seen.write(self.tasks().disk(), seen)
    }

    /// Looks at the remote and brings the tree up to date.
    pub(super) fn look(&self, talk: &Conversation) -> Result<()> {
        self.glance(talk)?;
        self.catch_up()
    }

    /// Looks at the remote and leaves the tree as it is.
    pub(super) fn glance(&self, talk: &Conversation) -> Result<()> {
        let view = self.remote.look(talk.0.file())?;
        let mut seen = self.seen_to_change()?;
        seen.learn(view);
        self.keep(&seen)
    }

    /// Brings the tree up to date with what was seen.
    pub(super) fn catch_up(&self) -> Result<()> {
        let mut seen = self.seen_to_change()?;
        if seen.tip.is_empty() || seen.imported.as_ref() == Some(&seen.tip) {
            return Ok(());
        }
        self.tree.import(seen.imported.as_deref(), &seen.tip)?;
        seen.imported = Some(seen.tip.clone());
        self.keep(&seen)
    }

    /// Pushes, and answers whether the remote took it. If it did not, or perhaps did, there is a new glance at it.
    pub(super) fn push(&self, talk: &Conversation, updates: &[Update]) -> Result<bool> {
        match self.remote.push(updates, talk.0.file())? {
            PushResult::Taken => return Ok(true),
            PushResult::Refused(what) => return Err(self.remote.refused(&what)),
            PushResult::Moved(_) => self.glance(talk)?,
            PushResult::Unclear(what) => self.glance(talk).map_err(|_| self.remote.unreachable(&what))?,
        }
        Ok(false)
    }

    /// A new card of this clone.
    pub(super) fn new_card(&self, task: &TaskName, record: ClaimRecord) -> Result<Card> {
        let lease_ms = u64::try_from(self.options.lease.as_millis()).unwrap_or(u64::MAX);
        Card::new(task, &self.id, lease_ms, record)
    }

    /// The card of a task and its object, if it is still the card of this claim of this clone.
    pub(super) fn own_card<'a>(
        &self,
        seen: &'a SeenRemote,
        task: &TaskName,
        claim: &ClaimId,
    ) -> Option<(&'a String, &'a Card)> {
        let found = seen.card(task)?;
        let card = found.card.as_ref().filter(|card| card.clone == self.id)?;
        card.record.claim.as_ref().filter(|found| found.id == *claim).map(|_| (&found.oid, card))
    }
}

/// Where tollgate keeps what belongs to its clone.
fn private_folder(vault: &Path) -> PathBuf {
    vault.join(".tollgate").join("git")
}

/// The id of this clone. A copy of the folder is another clone, because it does not have the locks of the first one.
fn clone_id(private: &Path, durability: Durability) -> Result<String> {
    let path = private.join("clone");
    let ino = fs::metadata(private).at("look at", private)?.ino();
    loop {
        if let Some(text) = read(&path)? {
            match String::from_utf8_lossy(&text).trim().split_once(' ') {
                Some((id, of)) if of == ino.to_string() => return Ok(id.to_owned()),
                _ => private::remove_file(&path).at("delete", &path)?,
            }
        }
        let id = random_id()?;
        let stage = private.join(format!("clone-{id}"));
        // Flushed: with another id after a power cut, this clone would not know its claims. What is pushed later flushes the
        // name.
        replace_file(&stage, format!("{id} {ino}\n").as_bytes(), durability)?;
        // If several processes get here at the same time, one sets the id and the others read it.
        match private::rename_with(&stage, &path, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                private::remove_file(&stage).at("delete", &stage)?;
            }
            Err(error) => return Err(error).at("rename", &stage),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_git_would_misread_are_refused() {
        for good in ["origin", "main", "feature/x", "refs/tollgate/claims", "zweig-ä"] {
            assert!(is_ref_name(good), "{good}");
        }
        let bad = [
            "", "-d", "--mirror", "a b", "a..b", "a//b", "/a", "a/", ".a", "a/.b", "a.lock", "a\n", "a:b",
            "+a", "*",
        ];
        for bad in bad {
            assert!(!is_ref_name(bad), "{bad}");
        }
    }

    #[test]
    fn a_copy_of_a_clone_is_another_clone() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (folder.path().join("a"), folder.path().join("b"));
        for path in [&here, &there] {
            fs::create_dir(path).unwrap();
        }
        let id = clone_id(&here, Durability::Fast).unwrap();
        assert_eq!(clone_id(&here, Durability::Fast).unwrap(), id);
        fs::copy(here.join("clone"), there.join("clone")).unwrap();
        assert_ne!(clone_id(&there, Durability::Fast).unwrap(), id);
    }
}
