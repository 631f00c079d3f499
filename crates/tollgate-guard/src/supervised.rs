//! A program whose system calls on files are supervised one by one: may it make this change now, and what did it change?
//!
//! The rules are those of every other change: the same locks and reservations, the same baselines, the same refusals and
//! ledger lines. Only the baseline can come from the program itself: what it has read, it may overwrite.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;

use crate::change::{Action, Change, Expected};
use crate::commit::{file_changed, put_back};
use crate::disk::{Found, Linked, Quiet};
use crate::explain::{object, refuse};
use crate::gate::Gate;
use crate::git_config::comes_with_command;
use crate::git_rules;
use crate::guard::lock;
use crate::judge::judge_now;
pub use crate::look::Look;
use crate::look::READ_WAIT;
use crate::lost_claim::fenced_by_now;
use crate::open_turn;
use crate::other_tree;
use crate::path::FilePath;
use crate::place::Way;
use crate::protected::{OfGit, normalise};
use crate::recovery::check_later;
use crate::refusal::{Outcome, Reason, Refusal};
pub use crate::repository::MovedBranch;
use crate::request::Request;
use crate::stage::{ChangeId, StageName, Standing, TargetName};
use crate::tool_use::append;
use crate::turn::{Extent, FileState, TurnState};
use crate::unfinished::UnfinishedFiles;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::event::{Event, FileChanged, Mutation, MutationStatus};
use tollgate_base::ledger::Entry;
use tollgate_base::settings::{GuardMode, Unfinished};
use tollgate_base::working_tree::WorkingTree;

/// The number of times that a replacement starts again because of a foreign save, before it is left to the kernel.
const ROUNDS: usize = 20;

/// A program that is supervised, with the turn in which it runs.
pub struct SupervisedProgram<'a> {
    request: Request<'a>,
}

/// A change that a program has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeChange {
    /// The file.
    pub path: FilePath,
    /// The file before the program changed it.
    pub before: FileState,
    /// The file as the program left it.
    pub after: FileState,
}

impl<'a> SupervisedProgram<'a> {
    /// A command that runs in this turn, guarded at this level.
    pub fn new(gate: &'a Gate, turn: &'a dyn TurnState, level: &'a str) -> Self {
        Self { request: Request { level: Some(level), ..gate.request(turn, "run") } }
    }

    /// The file to which a path leads.
    pub fn file(&self, path: &Path) -> Result<FilePath> {
        self.request.root.canonical(path)
    }

    /// The file to which a path leads. A link at the end of the path is not followed.
    pub fn file_itself(&self, path: &Path) -> Result<FilePath> {
        self.request.root.canonical_link(path)
    }

    /// Looks at a file. Waits a moment if a program is writing it, unless the supervised program has it open itself.
    pub fn look(&self, path: &FilePath, open: bool) -> Result<Look> {
        Look::within(self.request.root, path, patience(open))
    }

    /// Whether commands must not change a path: as it is given, and as it is after all links are resolved.
    pub fn is_protected(&self, given: &Path, path: &Path) -> bool {
        let root = self.request.root;
        let protects = |path: &Path| root.protects_from_commands(path, OfGit::HooksClosed);
        protects(&normalise(given)) || protects(path)
    }

    /// Whether commands must not change a path outside of the workspace: tollgate's own folders of the user, and what configures
    /// git and agent programs.
    pub fn is_closed(&self, path: &Path) -> bool {
        self.request.root.is_closed(path)
    }

    /// Whether such a path is below this one: a folder or a link that leaves or comes takes it away, or brings it.
    pub fn holds_closed(&self, path: &Path) -> bool {
        self.request.root.holds_closed(path)
    }

    /// Whether the file `from`, when it comes to the path `to`, plants a command in git's configuration. `None`: nobody knows
    /// what will be in the file.
    pub fn plants_command(&self, from: Option<&Path>, to: &Path) -> bool {
        comes_with_command(from, to)
    }

    /// The refusal of a change of a protected path.
    pub fn protected(&self, path: &Path) -> Refusal {
        Refusal::new(FilePath::trusted(path.to_owned()), Reason::Protected)
    }

    /// The refusal of any change, if the agent has lost its claim. [`Self::judge`] looks for itself, and also if the settings
    /// only observe.
    pub fn fenced(&self, path: &Path) -> Result<Option<Refusal>> {
        fenced_by_now(&self.request, &FilePath::trusted(path.to_owned()))
    }

    /// Whether a folder is in another working tree.
    pub fn is_in_other_tree(&self, folder: &Path) -> Result<bool> {
        Ok(other_tree::tree_around(&self.request, folder)?.is_some())
    }

    /// The refusal of any change of a file in another working tree. [`Self::judge`] looks for itself.
    pub fn other_tree(&self, path: &Path) -> Result<Option<Refusal>> {
        other_tree::refusal(&self.request, &FilePath::trusted(path.to_owned()))
    }

    /// Whether the settings only observe.
    pub fn observes(&self) -> bool {
        self.request.root.settings().guard.mode == GuardMode::Observe
    }

    /// Judges a change of a file, and says what the file is before it. Records nothing, except that a change was observed
    /// if the settings only observe. A deletion is one of a file that the program has not made itself. `states` are those in which the program may know the file to be: if there are none, what
    /// the turn knows decides. `open`: the program has the file open for writing itself, so a busy file is its own.
    pub fn judge(
        &self,
        path: &Path,
        action: Action,
        states: &[FileState],
        open: bool,
    ) -> Result<std::result::Result<FileState, Refusal>> {
        let root = self.request.root;
        let way = root.follow(path)?;
        let key = self.request.key(&way.path);
        let _locks = match lock(&self.request, &[&key], None)? {
            Ok(locks) => locks,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let look = Look::within(root, &way.path, patience(open))?;
        if open && look.quiet != Quiet::Held {
            return Ok(Ok(look.state));
        }
        Ok(match self.refusal(&way, path, action, states, &look)? {
            Some(refusal) => Err(refusal),
            None => Ok(look.state),
        })
    }

    /// The refusal of a change of a file that looks like this.
    fn refusal(
        &self,
        way: &Way,
        path: &Path,
        action: Action,
        states: &[FileState],
        look: &Look,
    ) -> Result<Option<Refusal>> {
        let mut unfinished = UnfinishedFiles::default();
        let deletes = action == Action::Delete;
        let change = Change::new(path, action);
        let reason = match states {
            // What the program has read, its agent has not seen.
            states if states.contains(&look.state) => {
                let harm =
                    if deletes { unfinished.judge(&self.request, &way.path, &change)?.1 } else { None };
                let premises = unfinished.changed_premises(&self.request, &way.path)?;
                harm.or_else(|| (!premises.is_empty()).then_some(Reason::PremiseChanged(premises)))
            }
            states => {
                let expected = states.first().map_or(Expected::Baseline, |first| Expected::state(*first));
                self.request.turn.about_to_change(&way.names, &way.path)?;
                judge_now(&self.request, way, &change.expecting(expected), look, &mut unfinished)?
            }
        };
        unfinished.record_noted(&self.request)?;
        reason.map_or(Ok(None), |reason| object(&self.request, &way.path, reason))
    }

    /// Renames a file over another one for the program, but only if the other one is what the program knows: a compare and
    /// swap. The replaced file goes to recovery. `None` if it must be left to the kernel; then nothing was changed.
    pub fn replace(
        &self,
        from: &Path,
        to: &Path,
        states: &[FileState],
    ) -> Result<std::result::Result<Option<MadeChange>, Refusal>> {
        let root = self.request.root;
        let (way, from) = (root.follow(to)?, root.canonical(from)?);
        let (key, from_key) = (self.request.key(&way.path), self.request.key(&from));
        let _locks = match lock(&self.request, &[&key, &from_key], None)? {
            Ok(locks) => locks,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let (spot, from) = (root.spot(&key)?, root.spot(&from_key)?);
        if [&spot, &from].iter().any(|spot| !spot.folder().same_device(&root.stage)) {
            return Ok(Ok(None));
        }
        for _ in 0..ROUNDS {
            let (Found::File(old), quiet) = spot.steady(READ_WAIT)? else { break };
            let Found::File(new) = from.open()? else { break };
            if old.inode() == new.inode() {
                break;
            }
            let (before, after) = (FileState::Present(old.hash()?), FileState::Present(new.hash()?));
            let (mode, changed) = (old.as_model().mode(), old.changed());
            let look = Look { state: before, text: None, quiet, mode, changed };
            let whole = Action::by_program(Extent::Whole);
            if let Some(refusal) = self.refusal(&way, to, whole, states, &look)? {
                return Ok(Err(refusal));
            }
            if before == after {
                break;
            }
            let stage = StageName {
                standing: Standing::Open,
                id: ChangeId::new(root.now())?,
                base: before,
                new: after,
                agent: self.request.turn.agent().clone(),
                target: TargetName::Path(key.clone()),
            };
            // A second name: if this process dies, the file still has its first one, and healing does the rest.
            let staged = root.staged(root.stage_file_name(&stage)?);
            // A sandbox may forbid it: then the kernel says what the program may do.
            if !matches!(from.link_new(&staged), Ok(Linked::Done)) {
                break;
            }
            if !staged.exchange(&spot) {
                staged.remove()?;
                break;
            }
            // What a program writes into a file that it had open before goes to recovery with the file.
            if !staged.holds(&old)? || !old.undisturbed() {
                // A foreign save came in between.
                put_back(root, &spot, &staged, &|spot| spot.holds(&new))?;
                continue;
            }
            if from.holds(&new)? {
                from.remove()?;
            }
            let made = MadeChange { path: way.path.clone(), before, after };
            append(root, &[self.line(&stage.id, &made)])?;
            self.request.turn.wrote(&way.path, after)?;
            open_turn::changed(root, self.request.turn.id(), &[(&way.path, before, after)]);
            drop(old);
            check_later(root, stage);
            return Ok(Ok(Some(made)));
        }
        Ok(Ok(None))
    }

    /// Whether the commits of a program, its stashes or HEAD depend on this file.
    pub fn judges_file_of_git(&self, file: &Path) -> bool {
        git_rules::judges_file(self.request.root, file)
    }

    /// The refusals, if the program must not put a new file in the place of one of git's, or delete it. Otherwise the turn learns of it.
    pub fn judge_file_of_git(&self, file: &Path, new: Option<&Path>) -> Result<Vec<Refusal>> {
        git_rules::judge_file(&self.request, file, new)
    }

    /// The branch of git that gets this new file, if it is one on which HEAD is not.
    pub fn moved_branch(&self, file: &Path, new: &Path) -> Option<MovedBranch> {
        MovedBranch::of(self.request.root, file, new)
    }

    /// Whether a folder can have files that are in no commit.
    pub fn judges_folder(&self, folder: &Path) -> bool {
        self.request.root.settings().guard.unfinished != Unfinished::Allow
            && WorkingTree::around(folder).is_some()
    }

    /// The refusals, if a folder that gets another name would take unfinished work away.
    pub fn judge_folder(&self, folder: &Path) -> Result<Vec<Refusal>> {
        let mut unfinished = UnfinishedFiles::default();
        let mut refusals = Vec::new();
        for (path, reason) in unfinished.judge_folder(&self.request, folder)? {
            refusals.extend(object(&self.request, &path, reason)?);
        }
        unfinished.record_noted(&self.request)?;
        Ok(refusals)
    }

    /// The ledger line of a change.
    fn line(&self, id: &ChangeId, MadeChange { path, before, after }: &MadeChange) -> Entry {
        let change = FileChanged {
            via: Some("run".to_owned()),
            level: self.request.level.map(str::to_owned),
            ..file_changed(id, self.request.tool, &self.request.key(path), *before, *after)
        };
        self.request.entry(Event::Mutation(Mutation::File(change), MutationStatus::Applied))
    }

    /// Records a refusal and adds what is known about the conflicting change. `text` are the bytes that the program knew.
    pub fn refuse(&self, refusal: Refusal, text: Option<(Digest, &[u8])>) -> Result<Vec<Refusal>> {
        if let Some((digest, bytes)) = text {
            self.request.turn.keep_text(digest, bytes)?;
        }
        match refuse::<()>(&self.request, vec![refusal])? {
            Outcome::Refused(refused) => Ok(refused.refusals),
            Outcome::Done(()) => Ok(Vec::new()),
        }
    }

    /// Records what the program read, and how much of it the agent got to see. The agent asked for the files that are named.
    pub fn record_reads(
        &self,
        reads: &[(FilePath, FileState)],
        shown: Extent,
        named: &HashSet<PathBuf>,
    ) -> Result<()> {
        let Request { root, turn, .. } = self.request;
        let now = root.now();
        for (path, state) in reads {
            turn.was_shown(path, *state, shown, now)?;
            if named.contains(path.as_path()) {
                open_turn::read(root, turn.id(), path, (*state, shown), Timestamp::UNIX_EPOCH);
            }
        }
        Ok(())
    }

    /// Records what the program changed: one ledger line for each file, and the agent's new baselines.
    pub fn record_changes(&self, changes: &[MadeChange]) -> Result<()> {
        let mut lines = Vec::with_capacity(changes.len());
        for made in changes {
            self.request.turn.wrote(&made.path, made.after)?;
            lines.push(self.line(&ChangeId::new(self.request.root.now())?, made));
        }
        let made: Vec<_> = changes.iter().map(|made| (&made.path, made.before, made.after)).collect();
        open_turn::changed(self.request.root, self.request.turn.id(), &made);
        append(self.request.root, &lines)
    }

    /// The protected paths that a folder at this path would bring or take away.
    pub fn protected_around(&self, path: &FilePath) -> Vec<PathBuf> {
        let root = self.request.root;
        root.protected_within(path).into_iter().chain(root.protected_names_below(path)).collect()
    }
}

/// How long to wait for a file that is being written. A program that writes it itself would wait in vain.
fn patience(open: bool) -> Duration {
    if open { Duration::ZERO } else { READ_WAIT }
}
