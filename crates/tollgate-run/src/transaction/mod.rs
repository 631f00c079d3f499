//! A transaction: the command runs in a private view of the workspace, and its changes are committed when it ends.
//!
//! 1. Take the time from the file system and list the names ([`start`]).
//! 2. Start the command in its view ([`view`]) and note what it reads ([`reads`]).
//! 3. When it has ended, look at its layer ([`layer`]) and let the guard commit all changes, or none.
//!
//! If anything dies, only the folder of the run is left, which the next run or sweep removes.

mod children;
mod composite;
mod hash;
pub(crate) mod ignored;
mod layer;
mod named;
mod reach;
mod reads;
mod start;
mod view;
mod why_not;

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::rc::Rc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{CreateFlags, init};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, WaitOptions, getegid, geteuid, pidfd_open};

use tollgate_base::error::{At, Fault, Result};
use tollgate_guard::change::{Action, Change, CommandLook, StartState};
use tollgate_guard::gate::Gate;
use tollgate_guard::guard::{Outcome, Refused};
use tollgate_guard::run_folder::RunFolder;
use tollgate_guard::turn::{Extent, FileState, TurnState};
use tollgate_guard::view::ViewChanges;
use tollgate_guard::workspace::{STATE_FOLDER, Workspace};

use self::children::{children_are_left, status_of, wait_for_any};
use self::composite::Composite;
use self::ignored::IgnoreRules;
use self::layer::{Layer, LayerChanges};
use self::named::named_folders;
use self::reach::{Reach, passed};
use self::reads::{CommandReads, FileUse};
use self::start::{Names, changed, now_on_disk};
use self::view::{CommandView, ENTERED, WATCHED, layer_folders};
use self::why_not::reason;
use crate::door::{self, FOLDER_VARIABLE};
use crate::level::{LEVEL_VARIABLE, RunLevel};
use crate::outcome::{AfterRun, ChangedFile, LevelAttempt, ReadFile, RunEnd, RunNote, RunOutcome, SetAside};
use crate::request::{ChangedRead, NewSettings, ReadsCount, RunRequest};
use crate::supervisor::Supervisor;
use crate::sys;
use crate::sys::seccomp::Filter;

/// The number of files up to which a command shows what it reads to the agent. A command that reads more searches.
pub(crate) const MOST_SHOWN: usize = 16;

/// How long reports about reads are collected before they are taken. The kernel keeps 16,384 of them, and the fastest search
/// makes some 500 in a millisecond.
const BATCH: Timespec = Timespec { tv_sec: 0, tv_nsec: 4_000_000 };

/// A run, from its start to its end.
pub(crate) struct Transaction {
    workspace: Workspace,
    root: PathBuf,
    folder: RunFolder,
    start: i128,
    names: Option<Names>,
    reads: CommandReads,
    rules: IgnoreRules,
    passed: Vec<PathBuf>,
    closed: Vec<PathBuf>,
    open: Vec<PathBuf>,
    composite: Option<Composite>,
    committed: HashMap<PathBuf, FileState>,
    looked: CommandLook,
    new_settings: NewSettings,
    /// The mounts of the view. The kernel needs time to forget what a command has looked up in them, so they stay until the
    /// caller knows the result.
    mounts: Option<File>,
}

/// Why transactions are not possible here.
pub(crate) fn why_not(gate: &Gate) -> Result<Option<String>> {
    let closed = vec![gate.workspace().path().join(STATE_FOLDER)];
    let mut transaction = Transaction::begin(gate, Reach { closed, ..Reach::default() }, None)?;
    // A program that does not exist: how far its start comes is all that is asked.
    let command = [transaction.folder.path().join("nothing").into_os_string()];
    let (started, progress) = transaction.start(&command, Path::new("/"), None)?;
    transaction.folder.remove()?;
    Ok(started.err().filter(|_| !progress.contains(&ENTERED)).map(|error| reason(&error)))
}

/// Runs a command as a transaction.
pub(crate) fn run(gate: &Gate, request: &RunRequest<'_>) -> Result<LevelAttempt> {
    let root = gate.workspace().path();
    let mut reach = Reach::from(gate.workspace(), &request.folder)?;
    reach.pass.extend(request.pass.iter().cloned());
    reach.closed.push(root.join(STATE_FOLDER));
    reach.closed.extend(request.closed.iter().cloned());
    reach.open.clone_from(&request.open);
    let mut transaction = Transaction::begin(gate, reach, Some(request))?;
    let door = door::socket::open(transaction.folder.path()).ok();
    transaction.new_settings = request.new_settings.clone();
    if request.reads_count == ReadsCount::Later {
        transaction.looked = CommandLook::ForItself;
    }
    let (child, progress) = match transaction.start(&request.command, &request.folder, request.supervisor)? {
        (Ok(child), progress) => (child, progress),
        (Err(error), progress) => {
            transaction.folder.remove()?;
            return Ok(match progress.contains(&ENTERED) {
                true => LevelAttempt::Ran(RunOutcome::not_started(
                    RunLevel::Transaction,
                    &request.command[0],
                    &error,
                )),
                false => LevelAttempt::NotPossible(reason(&error)),
            });
        }
    };
    if !progress.contains(&WATCHED) {
        transaction.reads.give_up();
    }
    if let Some(supervisor) = request.supervisor {
        supervisor.started(child.id(), door.as_ref());
    }
    // If the command has ended already, there is nothing to keep.
    transaction.mounts = File::open(format!("/proc/{}/ns/mnt", child.id())).ok();
    // A serial run is refused for any file that changed after it was read, so every read must be known.
    if request.changed_read == ChangedRead::Note {
        transaction.reads.may_search(child.id());
    }
    let end = transaction.wait(child.id())?;
    transaction.end(gate, request, end).map(LevelAttempt::Ran)
}

/// Runs a command in a view that is thrown away, and waits for all its processes. `Err`: why that is not possible.
pub(crate) fn trial(
    gate: &Gate,
    command: &[OsString],
    folder: &Path,
) -> Result<std::result::Result<RunEnd, String>> {
    let mut reach = Reach::from(gate.workspace(), folder)?;
    reach.closed.push(gate.workspace().path().join(STATE_FOLDER));
    let mut transaction = Transaction::begin(gate, reach, None)?;
    let end = match transaction.start(command, folder, None)? {
        (Ok(child), _) => Ok(transaction.wait(child.id())?),
        (Err(error), progress) if progress.contains(&ENTERED) => Err(error.to_string()),
        (Err(error), _) => Err(reason(&error)),
    };
    // A process that goes on keeps its view.
    while wait_for_any(WaitOptions::empty())?.is_some() {}
    transaction.folder.remove()?;
    Ok(end)
}

/// What the child has reported.
fn progress(mut report: File) -> Result<Vec<u8>> {
    let mut progress = Vec::new();
    report.read_to_end(&mut progress).at("read", "a pipe")?;
    Ok(progress)
}

impl Transaction {
    /// Takes the time, and lists what there is if the reads of a command are of interest.
    fn begin(gate: &Gate, mut reach: Reach, reads: Option<&RunRequest<'_>>) -> Result<Self> {
        let root = gate.workspace().path().to_owned();
        let folder = RunFolder::create(gate.workspace())?;
        for folder in layer_folders(folder.path()) {
            fs::create_dir(&folder).at("make the folder", &folder)?;
        }
        let start = now_on_disk(folder.path())?;
        let rules = IgnoreRules::of(&root);
        reach.closed.retain(|path| path.symlink_metadata().is_ok_and(|found| !found.is_symlink()));
        let passed = passed(gate.workspace(), &reach, &rules)?;
        let Reach { closed, open, .. } = reach;
        let list = |request: &RunRequest<'_>| {
            Names::list(&root, &passed, || named_folders(&root, &request.folder, &request.command))
        };
        let names = reads.map(list).transpose()?;
        // Without a watcher, nobody knows what the command reads, and the outcome says so.
        let watcher = names.as_ref().and_then(|_| init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok());
        let reads = CommandReads::new(&root, start, watcher);
        let (composite, committed, mounts) = Default::default();
        Ok(Self {
            workspace: gate.workspace().clone(),
            root,
            folder,
            start,
            names,
            reads,
            rules,
            passed,
            closed,
            open,
            composite,
            committed,
            looked: CommandLook::ForAgent,
            new_settings: Rc::new(Vec::new),
            mounts,
        })
    }

    /// Starts a command in its view. Returns how far it came, too.
    fn start(
        &mut self,
        command: &[OsString],
        folder: &Path,
        supervisor: Option<&Supervisor>,
    ) -> Result<(io::Result<Child>, Vec<u8>)> {
        loop {
            let (view, report) = self.view(folder, supervisor)?;
            let mut attempt = Command::new(&command[0]);
            attempt.args(&command[1..]).env(LEVEL_VARIABLE, RunLevel::Transaction.word());
            attempt.env(FOLDER_VARIABLE, self.folder.path());
            sys::before_exec(&mut attempt, move || view.enter());
            let spawned = attempt.spawn();
            // Closes the descriptors of the child's view in this process.
            drop(attempt);
            let progress = progress(report)?;
            let may_be_in_the_way = self.composite.is_none() && !progress.contains(&ENTERED);
            match spawned {
                // Something is mounted in the workspace that an overlay must not hide.
                Err(error) if may_be_in_the_way && error.raw_os_error() == Some(libc::EINVAL) => {
                    let (root, run) = (self.root.clone(), self.folder.path().to_owned());
                    self.composite = Some(Composite::prepare(&root, &run, &mut self.passed)?);
                }
                spawned => return Ok((spawned, progress)),
            }
        }
    }

    /// What the child needs to make its view, and where it reports.
    fn view(&mut self, folder: &Path, supervisor: Option<&Supervisor>) -> Result<(CommandView, File)> {
        let (report, to) = pipe_with(PipeFlags::CLOEXEC).at("open", "a pipe")?;
        let run = self
            .folder
            .path()
            .strip_prefix(&self.root)
            .map_err(|_| Fault::invalid("not in the workspace"))?;
        let watcher =
            self.reads.watcher().map(|watcher| watcher.try_clone().at("copy", "a descriptor")).transpose()?;
        let watched = self.names.iter().flat_map(Names::folders).map(Path::to_owned).collect();
        let view = CommandView {
            root: self.root.clone(),
            run: run.to_owned(),
            folder: folder.to_owned(),
            passed: self.passed.clone(),
            closed: self.closed.clone(),
            open: self.open.clone(),
            watched,
            composite: self.composite.as_ref().map(|parts| parts.covered.clone()),
            watcher,
            report: to.into(),
            user: (geteuid(), getegid()),
            mask: supervisor.map(Supervisor::mask),
            mark: Filter::of_transaction(),
        };
        Ok((view, report.into()))
    }

    /// Waits for the end of the command, and takes the reports about its reads.
    fn wait(&mut self, pid: u32) -> Result<RunEnd> {
        let pid =
            i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| Fault::invalid("no process"))?;
        let ended = pidfd_open(pid, PidfdFlags::empty()).at("watch", "the command")?;
        loop {
            let names = self.names.as_ref();
            let mut ready = vec![PollFd::new(&ended, PollFlags::IN)];
            ready.extend(self.reads.watcher().map(|watcher| PollFd::new(watcher, PollFlags::IN)));
            match poll(&mut ready, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).at("wait for", "the command"),
            }
            let has_ended = !ready[0].revents().is_empty();
            drop(ready);
            if !has_ended && self.reads.may_wait() {
                // Each report that wakes this process up costs the command time.
                let _ = poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&BATCH));
            }
            if let Some(names) = names {
                self.reads.take(names);
                if !has_ended {
                    self.reads.adapt(names);
                }
            }
            if has_ended {
                return status_of(pid);
            }
        }
    }

    /// Commits what the command has changed.
    fn end(mut self, gate: &Gate, request: &RunRequest<'_>, end: RunEnd) -> Result<RunOutcome> {
        let mut notes = Vec::new();
        let left_behind = children_are_left()?;
        if left_behind {
            notes.push(RunNote::LeftBehind);
        }
        let mut found = self.look()?;
        if left_behind {
            // They may be at work in these folders, which are moved as a whole.
            found.ignored.clear();
        }
        // Nothing depends on what a search has found that changed no file, and it may have read thousands.
        let only_searched = found.files.is_empty() && self.reads.count() > MOST_SHOWN;
        let is_listed = !only_searched || request.list_reads || request.changed_read == ChangedRead::Refuse;
        let reads = self.only_read(&found, is_listed);
        // A command that reads many files searches them: the agent has seen little of each.
        let is_search = only_searched || reads.len() > MOST_SHOWN;
        let shown = if is_search { Extent::Part } else { Extent::Whole };
        if !only_searched {
            notes.extend(self.reads.changed_by_others(&reads).into_iter().map(RunNote::ReadChanged));
        }
        notes.extend(found.special.iter().cloned().map(RunNote::NotKept));
        let serial = match request.changed_read {
            ChangedRead::Refuse => {
                let start = |touched: &FileUse| StartState {
                    start: self.start,
                    was: Some(touched.at_start.map_or(FileState::Unreadable, FileState::Present)),
                };
                reads.iter().map(|(path, touched)| (path.clone(), start(touched))).collect()
            }
            ChangedRead::Note => Vec::new(),
        };
        let outside = (self.new_settings)();
        notes.extend(outside.iter().cloned().map(RunNote::SetAside));
        let (refused, writes) = self.commit(gate, request.turn, found, serial, outside)?;
        // Otherwise the answer is the same as if they were known.
        let reads_count =
            refused.is_some() || request.list_reads || request.changed_read == ChangedRead::Refuse;
        let known =
            self.reads.watcher().is_some() && self.names.as_ref().is_some_and(|names| !names.is_partial());
        if reads_count && !known {
            notes.push(RunNote::ReadsUnknown);
        }
        let reads = self.count_reads(gate, request, reads, shown)?;
        let after = match (left_behind, &refused) {
            (true, None) => AfterRun::of(|gate, turn| self.finish(gate, turn)),
            (false, _) => AfterRun::of(|_, _| self.clean_up()),
            // They keep their view. What they change goes nowhere.
            (true, Some(_)) => AfterRun::of(|_, _| {
                let new_settings = self.new_settings.clone();
                self.clean_up()?;
                while wait_for_any(WaitOptions::empty())?.is_some() {}
                new_settings();
                Ok(())
            }),
        };
        Ok(RunOutcome { level: RunLevel::Transaction, end, refused, reads, writes, notes, after })
    }

    fn look(&self) -> Result<LayerChanges> {
        let upper = self.folder.path().join("upper");
        let gone = match &self.composite {
            Some(parts) => parts.collect(self.folder.path(), &self.passed)?,
            None => Vec::new(),
        };
        let layer = Layer {
            workspace: &self.workspace,
            root: &self.root,
            upper: &upper,
            start: self.start,
            names: self.names.as_ref(),
            reads: &self.reads,
            rules: &self.rules,
            passed: &self.passed,
            gone: &gone,
            looked: self.looked,
            copied: self.composite.as_ref().map(|parts| &parts.copied),
            committed: &self.committed,
        };
        layer.changes()
    }

    fn commit(
        &mut self,
        gate: &Gate,
        turn: &dyn TurnState,
        found: LayerChanges,
        reads: Vec<(PathBuf, StartState)>,
        outside: Vec<SetAside>,
    ) -> Result<(Option<Refused>, Vec<ChangedFile>)> {
        let LayerChanges { files, folders, times, ignored, .. } = found;
        let is_link = |change: &&Change| matches!(change.action, Action::Link(_));
        let links: HashSet<PathBuf> =
            files.iter().filter(is_link).map(|change| change.path.clone()).collect();
        let outside = outside.into_iter().map(|set_aside| set_aside.file).collect();
        if let Some(names) = &self.names {
            // With these, a refusal can show what has changed, and what the command made of them can be merged.
            for (digest, text) in
                files.iter().filter_map(|change| self.reads.text_at_start(names, &change.path))
            {
                turn.keep_text(digest, text)?;
            }
        }
        let changes = ViewChanges { level: RunLevel::Transaction.word(), files, folders, reads, outside };
        let applied = match gate.commit_view(turn, changes)? {
            Outcome::Done(applied) => applied,
            Outcome::Refused(refused) => return Ok((Some(refused), Vec::new())),
        };
        let mut writes = Vec::with_capacity(applied.len());
        for change in applied {
            let path =
                change.path.as_path().strip_prefix(&self.root).unwrap_or(change.path.as_path()).to_owned();
            self.committed.insert(path.clone(), change.after);
            if change.before != change.after {
                let (before, after) = (change.before.digest(), change.after.digest());
                writes.push(ChangedFile { link: links.contains(&path), path, before, after });
            }
        }
        writes.sort_by(|a, b| a.path.cmp(&b.path));
        for (path, new) in times {
            self.set_times(&path, &new);
        }
        for path in ignored {
            // If another process has made the folder in the meantime, what is there is as good.
            let _ = fs::rename(self.folder.path().join("upper").join(&path), self.root.join(&path));
        }
        Ok((None, writes))
    }

    /// Gives an unchanged file the times that the command gave it. If that fails, nothing is lost.
    fn set_times(&self, path: &Path, new: &fs::Metadata) {
        use std::os::unix::fs::MetadataExt;
        let path = self.root.join(path);
        if !fs::symlink_metadata(&path).is_ok_and(|found| changed(&found) < self.start) {
            return;
        }
        let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        let times = Timestamps {
            last_access: time(new.atime(), new.atime_nsec()),
            last_modification: time(new.mtime(), new.mtime_nsec()),
        };
        let _ = utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW);
    }

    /// The files that the command looked at and did not change: all of them, or those whose hashes are known.
    fn only_read(&self, found: &LayerChanges, is_listed: bool) -> Vec<(PathBuf, FileUse)> {
        let written: HashSet<&Path> = found.files.iter().map(|change| change.path.as_path()).collect();
        let Some(names) = &self.names else { return Vec::new() };
        let mut files = if is_listed { self.reads.looked_at(names) } else { self.reads.hashed(names) };
        files.retain(|(path, _)| written.is_empty() || !written.contains(path.as_path()));
        files
    }

    /// The turn learns what the command read, unless the caller decides that by itself.
    fn count_reads(
        &self,
        gate: &Gate,
        request: &RunRequest<'_>,
        reads: Vec<(PathBuf, FileUse)>,
        shown: Extent,
    ) -> Result<Vec<ReadFile>> {
        // git compares files, and shows little of them.
        let by_git = reads.iter().any(|(path, _)| path.ends_with(".git/index"));
        let shown = if by_git { Extent::Part } else { shown };
        let named = request.named_files();
        let mut counted = Vec::with_capacity(reads.len());
        for (path, touched) in reads {
            if let (Some(digest), ReadsCount::Seen) = (touched.at_start, request.reads_count) {
                let file = gate.workspace().canonical(&path)?;
                // Before it wrote anything.
                let then = gate.workspace().time_of(self.start);
                request.turn.was_shown(&file, FileState::Present(digest), shown, then)?;
                if shown == Extent::Whole && named.contains(&self.root.join(&path)) {
                    gate.workspace().was_shown(request.turn, &file, digest, self.start);
                }
            }
            counted.push(ReadFile { path, sha256: touched.at_start });
        }
        Ok(counted)
    }

    /// Waits for the processes that the command has left behind, then commits what they have changed.
    pub(crate) fn finish(mut self, gate: &Gate, turn: &dyn TurnState) -> Result<()> {
        while wait_for_any(WaitOptions::empty())?.is_some() {}
        if let Some(names) = &self.names {
            self.reads.take(names);
        }
        let found = self.look()?;
        let outside = (self.new_settings)();
        self.commit(gate, turn, found, Vec::new(), outside)?;
        self.clean_up()
    }

    /// Removes the mounts and files of the run. The caller knows its result, so this may take time.
    fn clean_up(self) -> Result<()> {
        drop((self.mounts, self.reads));
        self.folder.remove()
    }
}
