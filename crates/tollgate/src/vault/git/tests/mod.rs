//! The git store with real repositories: a bare remote over `file://`, clones, and people in clones of their own.

mod conform;
mod fate;
mod people;
mod race;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::open::{clone_id, is_ref_name};
use super::*;
use crate::settings::Durability;
use crate::vault::event::{Journal, MemoryJournal};
use crate::vault::{Asked, Claimed, Claiming, Not, Owned, Release, Terms, Vault, Wish};

/// A remote, and room for clones.
pub(super) struct Ground {
    folder: tempfile::TempDir,
}

/// A clone with a store in it.
pub(super) struct Clone {
    pub(super) path: PathBuf,
    pub(super) store: GitStore,
    pub(super) vault: Vault,
    pub(super) journal: Arc<MemoryJournal>,
}

/// Runs git as a person does. Its output; a failure is the test's.
pub(super) fn git(folder: &Path, arguments: &[&str]) -> String {
    let (ok, text) = try_git(folder, arguments);
    assert!(ok, "git {arguments:?} in {}: {text}", folder.display());
    text
}

pub(super) fn try_git(folder: &Path, arguments: &[&str]) -> (bool, String) {
    let out = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(["-c", "user.name=ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"])
        .args(arguments)
        .output()
        .unwrap();
    let text = [out.stdout, out.stderr].concat();
    (out.status.success(), String::from_utf8_lossy(&text).trim_end().to_owned())
}

pub(super) fn now() -> Timestamp {
    Timestamp::now()
}

pub(super) fn name(text: &str) -> TaskName {
    text.parse().unwrap()
}

pub(super) fn asked(who: &str) -> Asked {
    Asked { agent: who.parse().unwrap(), wish: Wish::Held, renamed_in: true }
}

impl Ground {
    pub(super) fn new() -> Self {
        let ground = Self { folder: tempfile::tempdir().unwrap() };
        git(ground.folder.path(), &["init", "--quiet", "--bare", "-b", "main", "r.git"]);
        git(&ground.remote(), &["config", "receive.autogc", "false"]);
        let person = ground.person("first");
        fs::write(person.join("notes.md"), "# Notes\n").unwrap();
        git(&person, &["add", "-A"]);
        git(&person, &["commit", "--quiet", "-m", "first"]);
        git(&person, &["push", "--quiet", "origin", "HEAD:main"]);
        ground
    }

    pub(super) fn remote(&self) -> PathBuf {
        self.folder.path().join("r.git")
    }

    /// A clone that knows nothing of tollgate.
    pub(super) fn person(&self, name: &str) -> PathBuf {
        let url = format!("file://{}", self.remote().display());
        git(self.folder.path(), &["clone", "--quiet", &url, name]);
        let path = self.folder.path().join(name);
        if !try_git(&path, &["rev-parse", "HEAD"]).0 {
            git(&path, &["symbolic-ref", "HEAD", "refs/heads/main"]);
        }
        path
    }

    pub(super) fn options(&self, journal: &Arc<MemoryJournal>) -> GitOptions {
        GitOptions {
            program: "git".into(),
            remote: "origin".into(),
            branch: "main".into(),
            claim_refs: "refs/tollgate/claims".into(),
            lease: Duration::from_secs(600),
            patience: Duration::from_secs(60),
            offline: Offline::Refuse,
            follow: true,
            plain_ssh: true,
            folder: FolderOptions {
                durability: Durability::Fast,
                settle: Duration::from_secs(2),
                journal: Arc::clone(journal) as Arc<dyn Journal>,
                quiet: None,
            },
        }
    }

    pub(super) fn clone(&self, name: &str) -> Clone {
        self.clone_with(name, |_| ())
    }

    pub(super) fn clone_with(&self, name: &str, change: impl FnOnce(&mut GitOptions)) -> Clone {
        let path = self.person(name);
        self.open(path, change)
    }

    pub(super) fn open(&self, path: PathBuf, change: impl FnOnce(&mut GitOptions)) -> Clone {
        let journal = Arc::new(MemoryJournal::default());
        let mut options = self.options(&journal);
        change(&mut options);
        let terms = Terms { lease: options.lease, max_attempts: 100, ..Terms::default() };
        fs::create_dir_all(path.join("vault")).unwrap();
        let store = GitStore::open(&path.join("vault"), options).unwrap();
        let vault = Vault::new(Arc::new(store.clone()), terms);
        Clone { path, store, vault, journal }
    }

    /// All files on the branch, below the vault.
    pub(super) fn on_branch(&self) -> Vec<String> {
        let listed = git(&self.remote(), &["ls-tree", "-r", "--name-only", "main", "vault/"]);
        listed.lines().map(|line| line.trim_start_matches("vault/").to_owned()).collect()
    }

    pub(super) fn show(&self, path: &str) -> String {
        git(&self.remote(), &["show", &format!("main:{path}")])
    }

    pub(super) fn cards(&self) -> usize {
        git(&self.remote(), &["for-each-ref", "refs/tollgate/claims"]).lines().count()
    }

    /// The branch never went back and was never merged: one parent each, down to the first.
    pub(super) fn is_linear(&self) -> bool {
        git(&self.remote(), &["rev-list", "--min-parents=2", "main"]).is_empty()
    }
}

impl Clone {
    pub(super) fn claim(&self, task: &str, who: &str) -> Claimed {
        match self.vault.claim(&name(task), &asked(who), now()).unwrap() {
            Claiming::Claimed(claimed) => *claimed,
            Claiming::Not(not) => panic!("`{who}` should have got `{task}`: {not:?}"),
        }
    }

    pub(super) fn refused(&self, task: &str, who: &str) -> Not {
        match self.vault.claim(&name(task), &asked(who), now()).unwrap() {
            Claiming::Claimed(_) => panic!("`{who}` should not have got `{task}`"),
            Claiming::Not(not) => not,
        }
    }

    pub(super) fn release(&self, claimed: &Claimed) -> State {
        match self.vault.release(&claimed.task, &claimed.claim.id, &Release::success(), now()).unwrap() {
            Owned::Yes(landed) => landed.slot.state(),
            Owned::No(why) => panic!("`{}` should have been released: {why}", claimed.task),
        }
    }

    pub(super) fn slot(&self, task: &str) -> Option<Slot> {
        self.store.get(&name(task), None, now()).unwrap().map(|stored| stored.placed.slot)
    }
}

#[test]
fn names_that_git_would_misread_are_refused() {
    for good in ["origin", "main", "feature/x", "refs/tollgate/claims", "zweig-ä"] {
        assert!(is_ref_name(good), "{good}");
    }
    let bad = [
        "", "-d", "--mirror", "a b", "a..b", "a//b", "/a", "a/", ".a", "a/.b", "a.lock", "a\n", "a:b", "+a",
        "*",
    ];
    for bad in bad {
        assert!(!is_ref_name(bad), "{bad}");
    }
}

#[test]
fn a_copied_clone_is_another_clone() {
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
