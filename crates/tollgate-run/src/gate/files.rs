//! The files of a command: whether it may make a call, and what to record.
//!
//! The baseline of a change is what the command itself has seen: what it read, or what it wrote. Where it has seen nothing,
//! it is what the agent knew before. Only the guard compares.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use libc::c_int;

use super::call::{PathArgument, SystemCall};
use super::remembered::{CommandMemory, by_command};
use super::tracee::{FinalLink, Tracee, kind_at};
use crate::level::RunLevel;
use crate::request::ReadsCount;
use crate::sys::seccomp::CallAnswer;
use crate::transaction::MOST_SHOWN;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_guard::change::Action;
use tollgate_guard::gate::Gate;
use tollgate_guard::refusal::{Reason, Refusal, Refused};
use tollgate_guard::supervised::{MadeChange, SupervisedProgram};
use tollgate_guard::turn::{Extent, FileState, TurnState};

/// The files of a command, and who judges changes of them.
pub(super) struct Files<'a> {
    pub(super) program: SupervisedProgram<'a>,
    pub(super) memory: &'a mut CommandMemory,
}

/// What a run has read and changed since the last report.
pub(super) struct LearnedFiles {
    pub(super) reads: Vec<(PathBuf, FileState)>,
    pub(super) changes: Vec<MadeChange>,
}

/// A path in the workspace, under guard.
pub(super) struct Guarded {
    pub(super) given: PathBuf,
    pub(super) path: PathBuf,
}

/// The file at a guarded path.
#[derive(PartialEq, Eq)]
pub(super) enum PathKind {
    Nothing,
    File,
    Link,
    Folder,
    Other,
}

/// Either the path that a call may go on with, or its answer.
pub(super) type Judged<T> = std::result::Result<T, CallAnswer>;

impl<'a> Files<'a> {
    pub(super) fn new(gate: &'a Gate, turn: &'a dyn TurnState, memory: &'a mut CommandMemory) -> Self {
        Self { program: SupervisedProgram::new(gate, turn, RunLevel::Gate.word()), memory }
    }

    /// The answer to a call.
    pub(super) fn answer(&mut self, tracee: &Tracee, call: &SystemCall) -> Result<CallAnswer> {
        self.learn()?;
        let answer = match call {
            SystemCall::NoPath => Ok(()),
            SystemCall::Restrict => {
                self.memory.may_act = false;
                Ok(())
            }
            SystemCall::Mount { kind } => self.mount(tracee, kind.as_deref()),
            SystemCall::Open { path, flags } => self.open(tracee, path, *flags)?,
            SystemCall::Truncate { path, length } => self.truncate(tracee, path, *length)?,
            SystemCall::Rename { from, to, flags } => self.rename(tracee, from, to, *flags)?,
            SystemCall::Unlink { path } => self.unlink(tracee, path)?,
            // git tries to remove its own folder, and fails.
            SystemCall::RemoveFolder { path } if self.is_filled(tracee, path) => Ok(()),
            SystemCall::RemoveFolder { path } => self.named(tracee, path, FinalLink::Keep)?.map(drop),
            SystemCall::Link { from, last, to } => self.link(tracee, (from, *last), to)?,
            SystemCall::Symlink { path } => self.symlink(tracee, path)?,
            // The kernel replaces nothing, and `mkdir -p` asks for every folder on the way.
            SystemCall::Create { path } if self.is_taken(tracee, path) => Ok(()),
            SystemCall::Create { path } => self.named(tracee, path, FinalLink::Keep)?.map(drop),
            SystemCall::Describe { path, last } => self.named(tracee, path, *last)?.map(drop),
        };
        Ok(answer.err().unwrap_or(CallAnswer::Continue))
    }

    /// Whether something is at this path already.
    fn is_taken(&self, tracee: &Tracee, path: &PathArgument) -> bool {
        let lead = self.lead(tracee, path, FinalLink::Keep);
        matches!(lead, Ok(Some(end)) if !matches!(there(&end.path), PathKind::Nothing))
    }

    /// Whether a folder has something in it, so that the kernel does not remove it.
    fn is_filled(&self, tracee: &Tracee, path: &PathArgument) -> bool {
        let lead = self.lead(tracee, path, FinalLink::Keep);
        matches!(lead, Ok(Some(end)) if fs::read_dir(&end.path).is_ok_and(|mut entries| entries.next().is_some()))
    }

    fn open(&mut self, tracee: &Tracee, path: &PathArgument, flags: c_int) -> Result<Judged<()>> {
        let has = |flag: c_int| flags & flag == flag;
        let access = flags & libc::O_ACCMODE;
        let writes = access != libc::O_RDONLY || has(libc::O_TRUNC) || has(libc::O_CREAT);
        let new_only = has(libc::O_CREAT | libc::O_EXCL);
        let last = if new_only || has(libc::O_NOFOLLOW) { FinalLink::Keep } else { FinalLink::Follow };
        if !writes {
            return match self.lead(tracee, path, last) {
                Ok(Some(guarded)) if !self.memory.passes(&guarded.path) => self.read(&guarded).map(Ok),
                Ok(_) => Ok(Ok(())),
                Err(answer) => Ok(Err(answer)),
            };
        }
        let led = match self.led(tracee, path, last)? {
            Ok(led) => led,
            Err(answer) => return Ok(Err(answer)),
        };
        // git itself writes another file, and renames it.
        if let Err(answer) = self.must_plant_no_command(None, led.as_ref())? {
            return Ok(Err(answer));
        }
        let guarded = match self.under_guard(led)? {
            Ok(Some(guarded)) => guarded,
            Ok(None) => return Ok(Ok(())),
            Err(answer) => return Ok(Err(answer)),
        };
        match there(&guarded.path) {
            PathKind::Nothing if !has(libc::O_CREAT) => {
                self.memory.saw(&guarded.path, FileState::Absent);
                return Ok(Ok(()));
            }
            PathKind::Folder | PathKind::Other | PathKind::Link => return Ok(Ok(())),
            PathKind::File | PathKind::Nothing => {}
        }
        if new_only {
            // The kernel makes sure that nothing is replaced.
            let state = self.look(&guarded)?;
            if state == FileState::Absent {
                self.memory.opened(&guarded.path, state);
            }
            return Ok(Ok(()));
        }
        let whole = has(libc::O_TRUNC);
        let state = if !whole && access == libc::O_RDWR {
            // The command sees what it opens.
            self.read(&guarded)?;
            self.look(&guarded)?
        } else if !whole && has(libc::O_APPEND) {
            // The bytes that are there stay.
            self.look(&guarded)?
        } else if !whole && access == libc::O_RDONLY {
            // Creates a file, or reads the one that is there.
            self.read(&guarded)?;
            self.look(&guarded)?
        } else {
            match self.judge(&guarded, by_command(whole))? {
                Ok(state) => state,
                Err(answer) => return Ok(Err(answer)),
            }
        };
        if access != libc::O_RDONLY || state == FileState::Absent || whole {
            self.memory.opened(&guarded.path, state);
        }
        Ok(Ok(()))
    }

    fn truncate(&mut self, tracee: &Tracee, path: &PathArgument, length: u64) -> Result<Judged<()>> {
        let guarded = match self.named(tracee, path, FinalLink::Follow)? {
            Ok(Some(guarded)) if there(&guarded.path) == PathKind::File => guarded,
            other => return Ok(other.map(drop)),
        };
        match self.judge(&guarded, by_command(length == 0))? {
            Ok(state) => {
                let empty = FileState::Present(Digest::of(b""));
                let after = if length == 0 { empty } else { FileState::Unreadable };
                self.memory.becomes(&guarded.path, state, after);
                Ok(Ok(()))
            }
            Err(answer) => Ok(Err(answer)),
        }
    }

    fn unlink(&mut self, tracee: &Tracee, path: &PathArgument) -> Result<Judged<()>> {
        let led = match self.led_by_name(tracee, path)? {
            Ok(led) => led,
            Err(answer) => return Ok(Err(answer)),
        };
        if let Some(led) = &led
            && let Err(answer) = self.judge_file_of_git(tracee, &led.path, None)?
        {
            return Ok(Err(answer));
        }
        let guarded = match self.under_guard(led)? {
            Ok(Some(guarded)) if there(&guarded.path) == PathKind::File => guarded,
            other => return Ok(other.map(drop)),
        };
        // What the command has made itself it may delete like everything else that it changes.
        let is_own = self.memory.known.get(&guarded.path).is_some_and(|known| known.before.is_some());
        let action = if is_own { by_command(true) } else { Action::Delete };
        match self.judge(&guarded, action)? {
            Ok(state) => {
                self.memory.becomes(&guarded.path, state, FileState::Absent);
                Ok(Ok(()))
            }
            Err(answer) => Ok(Err(answer)),
        }
    }

    fn link(
        &mut self,
        tracee: &Tracee,
        (from, last): (&PathArgument, FinalLink),
        to: &PathArgument,
    ) -> Result<Judged<()>> {
        // A second name of a protected file would be a way to change it.
        let state = match self.named(tracee, from, last)? {
            Ok(Some(from)) if there(&from.path) == PathKind::File => self.look(&from)?,
            Ok(_) => FileState::Unreadable,
            Err(answer) => return Ok(Err(answer)),
        };
        let to = match self.led_by_name(tracee, to)? {
            Ok(to) => to,
            Err(answer) => return Ok(Err(answer)),
        };
        if let Err(answer) = self.must_plant_no_command(None, to.as_ref())? {
            return Ok(Err(answer));
        }
        match self.under_guard(to)? {
            // The kernel makes sure that nothing is replaced.
            Ok(Some(to)) if there(&to.path) == PathKind::Nothing => {
                self.memory.becomes(&to.path, FileState::Absent, state);
                Ok(Ok(()))
            }
            other => Ok(other.map(drop)),
        }
    }

    fn symlink(&mut self, tracee: &Tracee, path: &PathArgument) -> Result<Judged<()>> {
        if let Err(answer) = self.must_bring_nothing_protected(tracee, &[path])? {
            return Ok(Err(answer));
        }
        let led = match self.led_by_name(tracee, path)? {
            Ok(led) => led,
            Err(answer) => return Ok(Err(answer)),
        };
        if let Err(answer) = self.must_plant_no_command(None, led.as_ref())? {
            return Ok(Err(answer));
        }
        Ok(self.under_guard(led)?.map(drop))
    }

    /// The command is about to read a file.
    fn read(&mut self, guarded: &Guarded) -> Result<()> {
        match there(&guarded.path) {
            PathKind::File => {
                let state = self.look(guarded)?;
                self.memory.saw(&guarded.path, state);
            }
            PathKind::Nothing => self.memory.saw(&guarded.path, FileState::Absent),
            PathKind::Link | PathKind::Folder | PathKind::Other => {}
        }
        Ok(())
    }

    /// What a file is now. Keeps its text for diffs.
    pub(super) fn look(&mut self, guarded: &Guarded) -> Result<FileState> {
        let open = self.memory.known.get(&guarded.path).is_some_and(|known| known.open > 0);
        let look = self.program.look(&self.program.file(&guarded.path)?, open)?;
        if let (Some(digest), Some(text)) = (look.state.digest(), look.text) {
            self.memory.keep_text(digest, text);
        }
        Ok(look.state)
    }

    /// Whether the command may change a file that exists, or create it.
    pub(super) fn judge(&mut self, guarded: &Guarded, action: Action) -> Result<Judged<FileState>> {
        if self.memory.known.get(&guarded.path).is_some_and(|known| known.anything) {
            let state = self.look(guarded)?;
            let known = self.memory.known.entry(guarded.path.clone()).or_default();
            (known.states, known.anything) = (vec![state], false);
        }
        let known = self.memory.known.get(&guarded.path);
        let states = known.map_or(&[][..], |known| known.states.as_slice());
        let open = known.is_some_and(|known| known.open > 0);
        match self.program.judge(&guarded.given, action, states, open)? {
            Ok(state) => {
                // The command has read the file again since.
                self.memory.refused.remove(&guarded.path);
                Ok(Ok(state))
            }
            Err(refusal) => self.refuse(refusal).map(Err),
        }
    }

    /// Records a refusal once, however often the command tries.
    pub(super) fn refuse(&mut self, refusal: Refusal) -> Result<CallAnswer> {
        let answer = CallAnswer::Fails(match refusal.reason {
            Reason::Stale(_) | Reason::Unread { .. } | Reason::Unreadable => libc::ESTALE,
            Reason::Busy { .. } => libc::EBUSY,
            _ => libc::EACCES,
        });
        let path = refusal.path.as_path().to_owned();
        let again =
            self.memory.refused.get(&path).is_some_and(|before| before.payload() == refusal.payload());
        if !again {
            let text = refusal.payload().expected_hash;
            let text = text.and_then(|digest| Some((digest, self.memory.texts.get(&digest)?.as_slice())));
            let recorded = self.program.refuse(refusal, text)?;
            self.memory.refused.extend(recorded.into_iter().map(|refusal| (path.clone(), refusal)));
        }
        Ok(answer)
    }

    /// Learns which files the command has closed, and what it wrote into them.
    pub(super) fn learn(&mut self) -> Result<()> {
        for path in self.memory.closed.take() {
            let Some(known) = self.memory.known.get_mut(&path).filter(|known| known.open > 0) else {
                continue;
            };
            known.open -= 1;
            if known.open == 0 {
                let look = self.program.look(&self.program.file(&path)?, true)?;
                known.states = vec![look.state];
                known.anything = false;
            }
        }
        Ok(())
    }

    /// Refusals that the command has not overcome.
    pub(super) fn refused(&self) -> Option<Refused> {
        Refused::all(self.memory.refused.values().cloned().collect())
    }

    /// Records what the command has read and changed since the last time. `last`: all its processes have ended. Otherwise a
    /// change that may still be under way is left for later.
    pub(super) fn settle(
        &mut self,
        last: bool,
        (reads_count, named): (ReadsCount, &HashSet<PathBuf>),
    ) -> Result<LearnedFiles> {
        self.learn()?;
        let (mut reads, mut changes, mut seen) = (Vec::new(), Vec::new(), Vec::new());
        for (path, known) in &mut self.memory.known {
            let file = self.program.file(path)?;
            let mut changed = false;
            if let Some(before) = known.before
                && (last || known.open == 0)
            {
                let look = self.program.look(&file, false)?;
                // If another program has changed it since, the agent knows only what its own command wrote.
                let after = match known.states.as_slice() {
                    [first, ..]
                        if known.open == 0 && !known.anything && !known.states.contains(&look.state) =>
                    {
                        *first
                    }
                    _ => look.state,
                };
                known.open = 0;
                changed = after != before && after != FileState::Unreadable;
                if changed {
                    known.before = None;
                    known.states = vec![after];
                    changes.push(MadeChange { path: file.clone(), before, after });
                }
            }
            if let Some(state) = known.read.take()
                && !changed
            {
                seen.push((file, state));
                reads.push((path.clone(), state));
            }
        }
        reads.sort_by(|a, b| a.0.cmp(&b.0));
        if reads_count == ReadsCount::Seen {
            // A command that reads many files searches them: the agent has seen little of each.
            let shown = if seen.len() <= MOST_SHOWN { Extent::Whole } else { Extent::Part };
            self.program.record_reads(&seen, shown, named)?;
        }
        self.program.record_changes(&changes)?;
        changes.append(&mut self.memory.made);
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(LearnedFiles { reads, changes })
    }
}

pub(super) fn there(path: &Path) -> PathKind {
    match kind_at(path) {
        None => PathKind::Nothing,
        Some(kind) if kind.is_file() => PathKind::File,
        Some(kind) if kind.is_symlink() => PathKind::Link,
        Some(kind) if kind.is_dir() => PathKind::Folder,
        Some(_) => PathKind::Other,
    }
}
