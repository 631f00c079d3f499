//! One attempt to make the commit: look, plan, fill the private index, let git commit, let the index of the working tree follow.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::thread::{self, ScopedJoinHandle};

use rustix::io::{FdFlags, fcntl_setfd};

use super::answer::{CannotCommit, CommitAnswer, CommitRequest, HookOutput, OwnCommit, TRAILER};
use super::branch_hook::BranchHook;
use super::head::{foreign_switch, head_path};
use super::head_files::{Names, Reader, TreeStatus, is_ancestor};
use super::index::{self, Delta};
use super::plan::{Entry, Plan, Planner};
use super::texts::on_disk;
use super::workshop::{Hooks, IndexStamp, Note, Obstacle, Workshop};
use crate::explain::object;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::root::Root;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::event::{Event, OwnChangesCommitted};
use tollgate_base::working_tree::WorkingTree;

/// The most of git's output that an answer shows: its end, where the reason is.
const SHOWN: u64 = 4 * 1024;

/// How an attempt ended.
pub(super) enum Attempt {
    Ended(CommitAnswer),
    /// Somebody else was faster. Everything must be looked at again.
    Again,
    /// Somebody else has switched the branch.
    Refused(Refusal),
}

/// The index of the working tree after the commit, if nobody has changed it in the meantime.
struct Follows {
    /// The index from which it was made.
    stamp: IndexStamp,
    index: PathBuf,
    /// What somebody has staged in it.
    staged: HashSet<Vec<u8>>,
}

impl Follows {
    /// Whether it differs from this commit in nothing but what somebody has staged.
    fn agrees_with(&self, tree: &WorkingTree, commit: &str) -> Result<bool> {
        Ok(index::staged(tree, Some(commit), &self.index)? == self.staged)
    }
}

/// What makes the commit.
pub(super) struct Maker<'a> {
    pub(super) root: &'a Root,
    pub(super) tree: &'a WorkingTree,
    pub(super) names: &'a Names,
    pub(super) request: &'a CommitRequest<'a>,
    /// The call, as the ledger records it if it is refused.
    pub(super) asked: &'a Request<'a>,
}

impl Maker<'_> {
    pub(super) fn attempt(&self) -> Result<Attempt> {
        let workshop = Workshop::open(self.root, self.tree)?;
        let attempt = self.attempt_in(&workshop);
        // A commit that the index does not follow yet is completed by the next command.
        if attempt.is_ok() || workshop.made().is_none() {
            workshop.remove()?;
        }
        attempt
    }

    fn attempt_in(&self, workshop: &Workshop) -> Result<Attempt> {
        let copied = workshop.copy_index()?;
        if copied.is_none() {
            self.reset_index(workshop, "HEAD")?;
        }
        // Processes of git take longer to start than to answer, so they start together, the slowest first.
        let (status, reader, hooks) = thread::scope(|scope| {
            let (tree, hooks) = (self.tree, self.request.hooks);
            let status = scope.spawn(|| TreeStatus::of(tree, &workshop.private_index()));
            let hooks = scope.spawn(move || workshop.prepare_hooks(tree, hooks));
            let reader = Reader::start(tree);
            (joined(status), reader, joined(hooks))
        });
        let (status, reader, hooks) = (status?, reader?, hooks?);
        // Not before: from here on, git only commits if the branch is still the one that was looked at.
        if let Some(reason) = foreign_switch(self.tree, self.request.turn)?
            && let Some(refusal) = object(self.asked, &head_path(self.tree), reason)?
        {
            return Ok(Attempt::Refused(refusal));
        }
        let agent = self.request.turn.agent();
        let planner = Planner {
            root: self.root,
            tree: self.tree,
            names: self.names,
            agent,
            turn: self.request.turn,
            turns: self.request.turns,
            paths: self.request.paths,
        };
        let plan = planner.plan(&status, reader)?;
        if plan.entries.is_empty() {
            return Ok(Attempt::Ended(CommitAnswer::Nothing(plan.left)));
        }
        let paths = plan.entries.iter().map(|(name, _)| self.names.in_ledger(name)).collect();
        let commit =
            OwnCommit { commit: None, branch: status.branch.clone(), paths, left: plan.left.clone() };
        if self.request.dry_run {
            return Ok(Attempt::Ended(CommitAnswer::Commit(commit)));
        }
        // With the agent's changes, the copy is what the index has to be after the commit, unless somebody has staged the same files.
        let names = plan.entries.iter().map(|(name, _)| name.as_str());
        let stamp = copied.filter(|_| !status.is_unmerged && status.staged_is_apart_from(names));
        if stamp.is_none() {
            self.reset_index(workshop, status.head.as_deref().unwrap_or("--empty"))?;
        }
        let mut index = workshop.private_index();
        // git reads the files itself, and leaves what is staged: no other call of it is needed. A hook could change them first.
        let by_name = stamp.is_some() && !hooks.has_some && plan.is_of(&status);
        if by_name {
            workshop.write_names(plan.entries.iter().map(|(name, _)| name.as_str()))?;
        } else {
            self.fill(&index, &plan)?;
            if !self.is_on_disk(&plan)? {
                return Ok(Attempt::Again);
            }
            if stamp.is_some() && !status.staged.is_empty() {
                index = workshop.keep_index()?;
                status.unstage(self.tree, &workshop.private_index())?;
            }
        }
        let follows =
            stamp.map(|stamp| Follows { stamp, index, staged: status.staged.keys().cloned().collect() });
        self.make(workshop, &status, hooks, commit, follows, by_name.then_some(&plan))
    }

    /// Makes the private index as this commit is. Keeps what git knows of the files on disk, so that it need not read them all.
    fn reset_index(&self, workshop: &Workshop, to: &str) -> Result<()> {
        let mut command = self.tree.git();
        command.env("GIT_INDEX_FILE", workshop.private_index()).arg("read-tree");
        match to {
            "--empty" => command.arg(to),
            commit => command.args(["--reset", commit]),
        };
        match self.tree.answer(&mut command, b"") {
            // Before the first commit there is nothing to be as.
            Err(_) if to == "HEAD" => Ok(()),
            reset => reset.map(drop),
        }
    }

    /// Puts the agent's changes into the private index.
    fn fill(&self, index: &Path, plan: &Plan) -> Result<()> {
        let (mut given, mut read) = (Vec::new(), Vec::new());
        for (name, entry) in &plan.entries {
            match entry {
                Entry::Disk(_) => read.extend(name.bytes().chain([0])),
                Entry::Gone => given.extend(format!("0 {}\t{name}\0", "0".repeat(40)).bytes()),
                Entry::Bytes(bytes, mode) => {
                    let mut command = self.tree.git();
                    command.args(["hash-object", "-w", "--stdin", &format!("--path={name}")]);
                    let id = self.tree.answer(&mut command, bytes)?;
                    let id = String::from_utf8_lossy(id.trim_ascii());
                    given.extend(format!("{mode} {id}\t{name}\0").bytes());
                }
            }
        }
        // What is gone first: a folder may have taken the name of a file.
        if !given.is_empty() {
            index::update(self.tree, index, &given)?;
        }
        if !read.is_empty() {
            let mut command = self.tree.git();
            command.env("GIT_INDEX_FILE", index).args(["update-index", "-z", "--add", "--stdin"]);
            self.tree.answer(&mut command, &read)?;
        }
        Ok(())
    }

    /// Whether the files are still what was planned, after git has read them. `false` if one was saved in the meantime.
    fn is_on_disk(&self, plan: &Plan) -> Result<bool> {
        for (name, entry) in &plan.entries {
            let path = self.names.path(&self.names.in_ledger(name));
            let now = on_disk(self.root, &path)?.map(|disk| disk.digest);
            match entry {
                Entry::Disk(digest) if now != Some(*digest) => return Ok(false),
                _ => {}
            }
        }
        Ok(true)
    }

    /// Lets git make the commit, of the private index, or of the files of `by_name` as it finds them.
    fn make(
        &self,
        workshop: &Workshop,
        status: &TreeStatus,
        hooks: Hooks,
        commit: OwnCommit,
        mut follows: Option<Follows>,
        by_name: Option<&Plan>,
    ) -> Result<Attempt> {
        let turn = self.request.turn;
        let whole = self.request.paths.is_empty() && commit.left.is_empty();
        let (head, branch) = (status.head.clone(), status.branch.clone());
        let note = Note::new(self.tree, head, branch, turn, whole);
        workshop.begin(&note, &hooks)?;
        if let Some(follows) = follows.as_mut().filter(|follows| hooks.has_some && follows.staged.is_empty())
        {
            follows.index = workshop.keep_index()?;
        }
        let mut obstacle = None;
        let mut allows = |lines: &[String]| {
            let is_as_planned = by_name.map_or(Ok(true), |plan| self.is_on_disk(plan))?;
            obstacle = match is_as_planned {
                true => workshop.allows(&note, lines)?.err(),
                false => Some(Obstacle::Moved),
            };
            // Without one of the repository's own, it has nothing more to do.
            if workshop.made().is_some() && !hooks.has_branch_hook {
                workshop.remove_branch_hook()?;
            }
            Ok(obstacle.is_none())
        };
        let (ended, said) =
            self.git_commit(workshop, &hooks.folder, hooks.branch, by_name.is_some(), &mut allows)?;
        let made = workshop.made().filter(|made| ended.success() || is_ancestor(self.tree, made, "HEAD"));
        let Some(made) = made else {
            return match obstacle {
                Some(Obstacle::Moved) => Ok(Attempt::Again),
                Some(Obstacle::IndexLocked) => {
                    let lock = self.tree.git_dir.join("index.lock");
                    Ok(Attempt::Ended(CommitAnswer::Cannot(CannotCommit::IndexLocked(lock))))
                }
                None if ended.success() => Err(Fault::invalid(
                    "git has made the commit without the hook `reference-transaction`: use git 2.29 or later",
                )),
                None if self.head_is(&note)? => {
                    Ok(Attempt::Ended(CommitAnswer::Cannot(CannotCommit::Git(said))))
                }
                None => Ok(Attempt::Again),
            };
        };
        // A hook may have changed what is committed, and a git that was killed has not written its index.
        let follows = match follows.filter(|_| ended.success()) {
            Some(follows) if hooks.has_some && !follows.agrees_with(self.tree, &made)? => None,
            follows => follows,
        };
        let paths = self.follow(workshop, &note, &made, follows, commit.paths)?;
        let line = OwnChangesCommitted {
            commit: made.clone(),
            branch: note.branch.clone(),
            tree: self.names.tree(),
            paths: paths.clone(),
            whole,
            recovered: false,
        };
        self.root.record(Some(turn.agent()), Some(turn.id()), Event::Commit(line))?;
        Ok(Attempt::Ended(CommitAnswer::Commit(OwnCommit { commit: Some(made), paths, ..commit })))
    }

    /// Whether HEAD is still what the commit was to replace.
    fn head_is(&self, note: &Note) -> Result<bool> {
        let mut command = self.tree.git();
        command.args(["rev-parse", "--verify", "-q", "HEAD"]);
        let head = self.tree.answer(&mut command, b"").ok();
        let head = head.map(|id| String::from_utf8_lossy(id.trim_ascii()).into_owned());
        Ok(head == note.head)
    }

    /// Starts git's commit. Returns how it ended, and what it said if that was kept.
    fn git_commit(
        &self,
        workshop: &Workshop,
        hooks: &Path,
        branch_hook: BranchHook,
        by_name: bool,
        allows: &mut dyn FnMut(&[String]) -> Result<bool>,
    ) -> Result<(ExitStatus, String)> {
        let mut command = self.tree.users_git();
        command.env("GIT_INDEX_FILE", workshop.private_index());
        let mut hooks_path = OsString::from("core.hooksPath=");
        hooks_path.push(hooks);
        command.arg("-c").arg(hooks_path);
        // Its processes would inherit our lock, and outlive us.
        command.args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"]);
        if by_name {
            // Hooks would inherit it, and there are none.
            command.arg("--literal-pathspecs");
        }
        command.args(["commit", "-q"]);
        if self.root.settings().git.commit_trailers {
            command.arg("--trailer").arg(format!("{TRAILER}: {}", self.request.turn.agent()));
        }
        if by_name {
            let mut names = OsString::from("--pathspec-from-file=");
            names.push(workshop.names());
            command.args(["--only", "--pathspec-file-nul"]).arg(names);
        }
        let lock = workshop.lock_for_git()?;
        match self.request.message {
            Some(message) => {
                command.arg("-m").arg(message);
                // git does not read it, and hands it on to no hook.
                command.stdin(Stdio::from(lock.try_clone().at("share", &self.tree.top)?));
            }
            // An editor needs the terminal. Nobody else starts processes in this one.
            None => fcntl_setfd(&lock, FdFlags::empty())
                .map_err(std::io::Error::from)
                .at("share", &self.tree.top)?,
        }
        let mut output = None;
        match self.request.output {
            HookOutput::Stderr => {
                let stderr = std::io::stderr().as_fd().try_clone_to_owned().at("share", "standard error")?;
                command.stdout(stderr);
            }
            HookOutput::Answer => {
                let file = workshop.output()?;
                command.stdout(file.try_clone().at("share", &self.tree.top)?);
                command.stderr(file.try_clone().at("share", &self.tree.top)?);
                output = Some(file);
            }
        }
        let status = branch_hook.serve(&mut command, allows)?;
        drop(lock);
        Ok((status, output.map(end_of).unwrap_or_default()))
    }

    /// Lets the index of the working tree follow the commit. Returns what the commit has changed: a hook may have added files.
    fn follow(
        &self,
        workshop: &Workshop,
        note: &Note,
        made: &str,
        follows: Option<Follows>,
        planned: Vec<String>,
    ) -> Result<Vec<String>> {
        if let Some(Follows { stamp, index, .. }) = follows
            && workshop.index_is(stamp)?
        {
            workshop.replace_index(&index)?;
            return Ok(planned);
        }
        let delta = Delta::between(self.tree, note.head.as_deref(), made)?;
        let new = workshop.new_index();
        if delta.follow(self.tree, note.head.as_deref(), &self.tree.git_dir.join("index"), &new)? {
            workshop.replace_index(&new)?;
        }
        Ok(delta.names().map(|name| self.names.in_ledger(&name)).collect())
    }
}

/// The result of a thread of ours.
fn joined<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(Fault::invalid("a look at the repository has failed")))
}

/// The end of what git has printed.
fn end_of(mut output: File) -> String {
    let length = output.metadata().map_or(0, |metadata| metadata.len());
    let mut bytes = Vec::new();
    let read = output
        .seek(SeekFrom::Start(length.saturating_sub(SHOWN)))
        .and_then(|_| output.read_to_end(&mut bytes));
    match read {
        Ok(_) => String::from_utf8_lossy(&bytes).trim_end().to_owned(),
        Err(_) => String::new(),
    }
}
