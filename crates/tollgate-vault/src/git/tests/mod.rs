//! The git store with real repositories: a bare remote over `file://`, clones, and people in clones of their own.

mod conform;
mod fate;
mod lost_answers;
mod people;
mod power_cut;
mod race;
mod safe;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::event::{Journal, MemoryJournal};
use crate::folder::tests::{Died, Fate};
use crate::{ClaimKind, ClaimRequest, Claimed, Denial, FolderOptions, Release, Terms, Vault};
use tollgate_base::lock::Pauses;
use tollgate_base::settings::Durability;

/// A remote, and room for clones.
pub(super) struct World {
    folder: tempfile::TempDir,
}

/// A clone with a store in it.
pub(super) struct Machine {
    pub(super) path: PathBuf,
    pub(super) store: GitStore,
    pub(super) vault: Vault,
    pub(super) journal: Arc<MemoryJournal>,
}

/// Runs git as a person does. The test fails if git does. The answer is its output.
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

pub(super) fn request(who: &str) -> ClaimRequest {
    ClaimRequest { agent: who.parse().unwrap(), kind: ClaimKind::Held, renamed_in: true }
}

pub(super) fn options(journal: &Arc<MemoryJournal>) -> GitOptions {
    GitOptions {
        program: "git".into(),
        remote: "origin".into(),
        branch: "main".into(),
        claim_refs: "refs/tollgate/claims".into(),
        lease: Duration::from_secs(600),
        patience: Duration::from_secs(60),
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

impl World {
    pub(super) fn new() -> Self {
        let world = Self { folder: tempfile::tempdir().unwrap() };
        git(world.folder.path(), &["init", "--quiet", "--bare", "-b", "main", "r.git"]);
        git(&world.remote(), &["config", "receive.autogc", "false"]);
        let person = world.person("first");
        fs::write(person.join("notes.md"), "# Notes\n").unwrap();
        git(&person, &["add", "-A"]);
        git(&person, &["commit", "--quiet", "-m", "first"]);
        git(&person, &["push", "--quiet", "origin", "HEAD:main"]);
        world
    }

    pub(super) fn remote(&self) -> PathBuf {
        self.folder.path().join("r.git")
    }

    /// A clone without tollgate.
    pub(super) fn person(&self, name: &str) -> PathBuf {
        let url = format!("file://{}", self.remote().display());
        git(self.folder.path(), &["clone", "--quiet", &url, name]);
        let path = self.folder.path().join(name);
        if !try_git(&path, &["rev-parse", "HEAD"]).0 {
            git(&path, &["symbolic-ref", "HEAD", "refs/heads/main"]);
        }
        path
    }

    pub(super) fn machine(&self, name: &str) -> Machine {
        self.machine_with(name, |_| ())
    }

    pub(super) fn machine_with(&self, name: &str, change: impl FnOnce(&mut GitOptions)) -> Machine {
        Machine::open(self.person(name), change)
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

    /// Whether every commit of the branch has one parent: it was never merged.
    pub(super) fn is_linear(&self) -> bool {
        git(&self.remote(), &["rev-list", "--min-parents=2", "main"]).is_empty()
    }
}

impl Machine {
    pub(super) fn open(path: PathBuf, change: impl FnOnce(&mut GitOptions)) -> Self {
        let journal = Arc::new(MemoryJournal::default());
        let mut options = options(&journal);
        change(&mut options);
        let terms = Terms { lease: options.lease, max_attempts: 100, retry: Vec::new(), ..Terms::default() };
        fs::create_dir_all(path.join("vault")).unwrap();
        let store = GitStore::open(&path.join("vault"), options).unwrap();
        let vault = Vault::new(Arc::new(store.clone()), terms);
        Self { path, store, vault, journal }
    }

    pub(super) fn add(&self, task: &str, text: &str) {
        self.vault.add(&name(task), text.as_bytes(), now()).unwrap();
    }

    pub(super) fn claim(&self, task: &str, who: &str) -> Claimed {
        match self.vault.claim(&name(task), &request(who), now()).unwrap() {
            Ok(claimed) => claimed,
            Err(denied) => panic!("`{who}` should have got `{task}`: {denied:?}"),
        }
    }

    pub(super) fn denied(&self, task: &str, who: &str) -> Denial {
        match self.vault.claim(&name(task), &request(who), now()).unwrap() {
            Ok(_) => panic!("`{who}` should not have got `{task}`"),
            Err(denied) => denied,
        }
    }

    pub(super) fn release(&self, claimed: &Claimed) -> State {
        match self.vault.release(&claimed.task, &claimed.claim.id, &Release::success(), now()).unwrap() {
            Ok(landed) => landed.slot.state(),
            Err(not_owner) => panic!("`{}` should have been released: {not_owner}", claimed.task),
        }
    }

    pub(super) fn slot(&self, task: &str) -> Option<Slot> {
        self.store.get(&name(task), None, now()).unwrap().map(|task| task.slot)
    }

    pub(super) fn sync(&self) -> SyncRound {
        self.store.sync().unwrap().unwrap()
    }

    /// What became of the person's working tree in one round.
    pub(super) fn followed(&self) -> &'static str {
        self.sync().followed.unwrap().word
    }

    pub(super) fn kept_aside(&self) -> Vec<PathBuf> {
        self.store.tree.kept_aside()
    }

    /// Settles interrupted pushes. Unlike `heal`, it waits for the lock, of which a process that another test is just
    /// starting has a copy for an instant.
    pub(super) fn settle(&self) -> usize {
        let store = &self.store;
        store.settle(&store.converse().unwrap()).unwrap()
    }

    /// Reclaims the task of an owner that is gone. The lock of a claim may be copied for an instant, too.
    pub(super) fn reclaim(&self, task: &str) {
        self.settle();
        let mut pauses = Pauses::lasting(Duration::from_secs(10));
        while {
            self.vault.reclaim(now()).unwrap();
            matches!(self.slot(task), Some(Slot::InProgress(_))) && pauses.pause()
        } {}
    }

    /// The kinds of all events of this machine.
    pub(super) fn kinds(&self) -> Vec<String> {
        self.journal.all().iter().map(|entry| entry.event.action_type().to_owned()).collect()
    }

    /// The number of events of this kind about a task.
    pub(super) fn events(&self, kind: &str, task: &str) -> usize {
        let about = Some(name(task));
        let is_it = |entry: &&Entry| {
            entry.event.action_type() == kind
                && entry.event.keys().task == about.as_ref().map(TaskName::as_str)
        };
        self.journal.all().iter().filter(is_it).count()
    }

    pub(super) fn tree(&self) -> PathBuf {
        GitStore::folder_in(&self.path.join("vault"))
    }

    /// What the agent writes to its file.
    pub(super) fn work(&self, claimed: &Claimed, result: &str) {
        let path = claimed.path.as_ref().unwrap();
        fs::write(path, [fs::read(path).unwrap().as_slice(), result.as_bytes()].concat()).unwrap();
    }
}

/// Another process in the same clone, which dies before this act on its own disk.
pub(super) fn doomed(vault: &Path, journal: &Arc<MemoryJournal>, act: usize) -> GitStore {
    let mut store = GitStore::open(vault, options(journal)).unwrap();
    let acts = AtomicUsize::new(0);
    store.tree.folder.set_fates(Arc::new(move |_| match acts.fetch_add(1, Ordering::SeqCst) {
        number if number == act => Fate::Die,
        _ => Fate::Go,
    }));
    store
}

/// Whether the process dies while it does this.
pub(super) fn dies(act: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(()) => false,
        Err(thrown) if thrown.is::<Died>() => true,
        Err(thrown) => resume_unwind(thrown),
    }
}
