//! One file of a commit, and how far its change has come.
//!
//! A step may be closed at any time after its look: whatever it needs later, it opens again by its path. While it is open, it
//! holds the lease on its file, so nobody can write the file unnoticed. A closed step looks at the replaced file once more.

use std::ffi::OsString;
use std::path::Path;

use super::current::Current;
use super::journal::{CommitJournal, JournalRecord};
use super::plan::{AppliedChange, Base, Guarantee, Looked, NewContent, Operation, Plan, file_changed};
use super::staging::{Staged, copy, fill};
use super::undo::Held;
use crate::disk::{
    Folder, Found, Linked, Model, Ownership, Quiet, Spot, Swap, Target, gone_is_none, no_folder_is_none,
};
use crate::path::EscapedPath;
use crate::recovery::{check_later, keep_copy};
use crate::refusal::{Reason, Refusal};
use crate::request::Request;
use crate::root::Root;
use crate::stage::{ChangeId, StageName, Standing, TargetName, is_beside, name_beside};
use crate::turn::FileState;
use tollgate_base::error::Result;
use tollgate_base::event::{Event, FileChanged, FileOwner, Mutation, MutationStatus};
use tollgate_base::ledger::Entry;

pub(super) struct FileStep {
    pub(super) plan: Plan,
    /// What this change is, for names in the stage.
    pub(super) stage: StageName,
    /// The path of the file, while its folder is open.
    spot: Option<Spot>,
    /// The new path of a moved file, while its folder is open.
    to: Option<Spot>,
    /// The name of the staged or deleted file: before the swap it has the new bytes, after it the replaced ones. It is in the
    /// stage, or beside the target.
    aside: Option<OsString>,
    /// The file with the new bytes, while it is open.
    staged: Option<Target>,
    /// Names a staged file beside the target, until the journal of the commit does.
    intent: Option<CommitJournal>,
    current: Current,
    /// The file that is replaced, moved or deleted, as it was when the new bytes were staged.
    model: Option<Model>,
    ownership: Ownership,
    stand: Stand,
    /// Files cannot have two names here. So a new file gets to its path by a rename, which leaves no name in the stage, and
    /// a journal is needed.
    without_links: bool,
}

/// How far the change has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    Before,
    Swapped(Option<Swap>),
    /// The file has the new bytes already, so there is nothing to do.
    Same,
}

impl FileStep {
    pub(super) fn new(request: &Request<'_>, plan: Plan) -> Result<Self> {
        let stage = StageName {
            standing: Standing::Open,
            id: ChangeId::new(request.root.now())?,
            base: FileState::Absent,
            new: plan.operation.after(),
            agent: request.turn.agent().clone(),
            target: TargetName::Path(plan.place.relative.clone()),
        };
        Ok(Self {
            plan,
            stage,
            spot: None,
            to: None,
            aside: None,
            staged: None,
            intent: None,
            current: Current { file: None, state: FileState::Absent, quiet: Quiet::Held },
            model: None,
            ownership: Ownership::Kept,
            stand: Stand::Before,
            without_links: false,
        })
    }

    pub(super) fn busy(&self) -> Refusal {
        Refusal::new(self.plan.place.path().clone(), Reason::Busy { holder: None })
    }

    /// Opens the file and stages the new bytes. Does not look at the old bytes yet.
    pub(super) fn stage(&mut self, root: &Root) -> Result<Looked> {
        self.stand = Stand::Before;
        self.current.file = None;
        if self.plan.is_after_others() {
            // Its folder may not exist yet. The stage itself stands for it.
            self.stage_content(root, &root.staged(""), None)?;
            return Ok(Looked::Ready);
        }
        let Plan { place, operation, command, .. } = &self.plan;
        let spot = match &self.spot {
            Some(spot) => spot.clone(),
            // The folders of a file that is created exist by now.
            None if !place.missing.is_empty() => {
                return match self.plan.file_expected() {
                    Some(expected) => Ok(self.plan.stale(expected, FileState::Absent)),
                    None => Err(place.path().missing()),
                };
            }
            None => {
                self.to = operation.moved_to().map(|to| root.spot(&to.relative)).transpose()?;
                self.spot.insert(root.spot(&place.relative)?).clone()
            }
        };
        let found = match operation {
            Operation::Put { .. } if command.is_none() => spot.open()?,
            _ => spot.open_itself()?,
        };
        match found {
            Found::NotAFile => return Ok(self.plan.not_a_file()),
            Found::Unreadable => return Ok(self.plan.refuse(Reason::Unreadable)),
            Found::Nothing => {}
            Found::File(file) => {
                if let Some(reason) = self.plan.unfit(root, &spot, &file)? {
                    return Ok(self.plan.refuse(reason));
                }
                self.current.file = Some(file);
            }
        }
        let model = self.current.file.as_ref().map(Target::as_model);
        self.stage_content(root, &spot, model)?;
        Ok(Looked::Ready)
    }

    fn stage_content(&mut self, root: &Root, spot: &Spot, model: Option<Model>) -> Result<()> {
        // What an earlier round has staged may be used again.
        if self.staged.is_none() || self.model != model {
            self.discard(root)?;
        }
        self.model = model;
        let Operation::Put { content, digest } = &mut self.plan.operation else { return Ok(()) };
        if self.staged.is_some() {
            return Ok(());
        }
        let Staged { name, file, intent } = Staged::create(root, &self.stage, spot, model, content)?;
        (self.aside, self.intent) = (Some(name), intent);
        let staged = self.staged.insert(file);
        self.ownership = match content {
            NewContent::Bytes(bytes) | NewContent::Program(bytes) => {
                fill(root, staged, bytes, self.current.file.as_ref())?
            }
            NewContent::Copy(from) => {
                // A process that the command left behind may still write this file.
                *digest = copy(root, staged, from)?;
                self.stage.new = FileState::Present(*digest);
                Ownership::Kept
            }
            NewContent::Link(_) => Ownership::Kept,
        };
        Ok(())
    }

    /// Deletes the intent, because the journal of the commit names the staged file now.
    ///
    /// The deletion must be durable before the swap. If a power failure brought the intent back, healing would delete the
    /// file that it names, which by then is the replaced one.
    pub(super) fn forget_intent(&mut self, root: &Root) -> Result<()> {
        self.intent.take().map_or(Ok(()), |intent| intent.remove_for_good(root))
    }

    /// Makes the file quiet, hashes it and compares. Checks that the path of a move is free.
    pub(super) fn look(&mut self) -> Result<Looked> {
        if self.plan.is_after_others() {
            return Ok(Looked::Ready);
        }
        let Some(spot) = &self.spot else { return Ok(Looked::Busy) };
        let looked = self.current.look(spot, &self.plan)?;
        if let (Looked::Ready, Base::Since(_)) = (&looked, self.plan.base) {
            // A swap that is undone changes the time, so the next round compares the bytes.
            self.plan.base = Base::Exactly(self.current.state);
        }
        if let (Looked::Ready, Operation::MoveTo(place), Some(to)) = (&looked, &self.plan.operation, &self.to)
            && to.inode()?.is_some()
        {
            let reason = match to.hash()? {
                Some(actual) => Reason::stale(FileState::Absent, FileState::Present(actual)),
                None => Reason::NotAFile,
            };
            return Ok(Looked::Refused(Refusal::new(place.path().clone(), reason)));
        }
        Ok(looked)
    }

    pub(super) fn observed(&self) -> Option<Refusal> {
        match self.plan.base {
            Base::Observed(expected) if expected != self.current.state => Some(Refusal::new(
                self.plan.place.path().clone(),
                Reason::stale(expected, self.current.state),
            )),
            _ => None,
        }
    }

    /// Gives the staged file the name that says what it is. From now on, a crash can be healed from the name.
    pub(super) fn name_stage(&mut self, root: &Root) -> Result<()> {
        self.stage.base = self.current.state;
        if let Operation::SetMode(_) = self.plan.operation {
            self.stage.new = self.stage.base;
            return Ok(());
        }
        if matches!(self.plan.operation, Operation::Put { .. }) && self.stage.new == self.stage.base {
            self.stand = Stand::Same;
            return Ok(());
        }
        let name = root.stage_file_name(&self.stage)?;
        match (&self.aside, &self.plan.operation) {
            (Some(unnamed), Operation::Put { .. }) if !is_beside(unnamed) && *unnamed != name => {
                root.staged(unnamed).rename(&root.staged(&name))?;
                self.aside = Some(name);
            }
            (_, Operation::Remove) => {
                self.aside = Some(match &self.spot {
                    Some(spot) if !spot.folder().same_device(&root.stage) => name_beside(&self.stage.id),
                    _ => name,
                });
            }
            _ => {}
        }
        Ok(())
    }

    /// Closes all files, which stay where they are.
    pub(super) fn close(&mut self) {
        (self.spot, self.to, self.staged, self.current.file) = (None, None, None, None);
    }

    /// The path of the file. `None` if its folder is gone.
    fn path_spot(&self, root: &Root) -> Result<Option<Spot>> {
        match &self.spot {
            Some(spot) => Ok(Some(spot.clone())),
            None => no_folder_is_none(root.spot(&self.plan.place.relative)),
        }
    }

    fn aside_spot(&self, root: &Root) -> Result<Option<Spot>> {
        match &self.aside {
            Some(name) if is_beside(name) => Ok(self.path_spot(root)?.map(|spot| spot.beside(name))),
            // The folder of the path may have become a file.
            Some(name) => Ok(Some(root.staged(name))),
            None => Ok(None),
        }
    }

    /// Where the file is after the swap that was at the path before.
    fn old_spot(&self, root: &Root) -> Result<Option<Spot>> {
        match (&self.plan.operation, &self.to) {
            (Operation::MoveTo(_), Some(to)) => Ok(Some(to.clone())),
            (Operation::MoveTo(to), None) => no_folder_is_none(root.spot(&to.relative)),
            (Operation::SetMode(_), _) => self.path_spot(root),
            (Operation::Put { .. } | Operation::Remove, _) => self.aside_spot(root),
        }
    }

    fn is_aside_beside(&self) -> bool {
        self.aside.as_deref().is_some_and(is_beside)
    }

    /// Whether more than one name changes, or a name that does not say what its file is.
    pub(super) fn needs_journal(&self) -> bool {
        self.without_links
            || matches!(self.plan.operation, Operation::MoveTo(_) | Operation::SetMode(_))
            || self.plan.is_after_others()
            || self.is_aside_beside()
    }

    /// Whether nothing is left from which a lost ledger line could be restored.
    pub(super) fn leaves_no_trace(&self) -> bool {
        self.model.is_none() || matches!(self.plan.operation, Operation::MoveTo(_))
    }

    /// Whether the file has the new bytes already, so that there is nothing to do.
    pub(super) fn is_done_already(&self) -> bool {
        self.stand == Stand::Same
    }

    /// `None` if there is nothing to do.
    pub(super) fn record(&self) -> Option<JournalRecord> {
        let made = self.plan.place.missing.iter().filter(|_| self.plan.is_after_others());
        let clears = self.plan.command.iter().flat_map(|command| &command.clears);
        (!self.is_done_already()).then(|| JournalRecord {
            mode: match (&self.plan.operation, &self.model) {
                (Operation::SetMode(mode), Some(model)) => Some([model.mode(), *mode]),
                _ => None,
            },
            clears: clears.map(|(path, mode)| (EscapedPath(path.clone()), *mode)).collect(),
            to: self.plan.operation.moved_to().map(|to| EscapedPath(to.relative.clone())),
            base: self.stage.base.digest(),
            new: self.stage.new.digest(),
            ..JournalRecord::new(&self.stage.id, &self.plan.place.relative, self.aside.as_deref(), made)
        })
    }

    /// Makes the change visible. False if the file is no longer the one that was hashed.
    pub(super) fn swap(&mut self, root: &Root, has_journal: bool) -> Result<bool> {
        if self.is_done_already() {
            return Ok(true);
        }
        if self.plan.is_after_others() {
            self.make_room(root)?;
        }
        let (Some(spot), Some(old)) = (self.path_spot(root)?, self.old_spot(root)?) else {
            return Ok(false);
        };
        let swap = match (&self.plan.operation, &self.model) {
            (Operation::Put { .. }, Some(_)) => gone_is_none(old.swap(&spot))?.map(Some),
            (Operation::Put { .. }, None) => self.create(&old, &spot, has_journal)?.then_some(None),
            (Operation::SetMode(mode), Some(model)) if spot.mode()? == Some(model.mode()) => {
                spot.set_mode(*mode)?;
                Some(None)
            }
            (Operation::SetMode(_), _) => None,
            (Operation::Remove | Operation::MoveTo(_), _) => {
                (gone_is_none(spot.rename_new(&old))? == Some(true)).then_some(None)
            }
        };
        let Some(swap) = swap else { return Ok(false) };
        self.stand = Stand::Swapped(swap);
        self.current.file.as_ref().map_or(Ok(true), |file| old.holds(file))
    }

    /// The changes before this one have emptied what was in the way.
    fn make_room(&self, root: &Root) -> Result<()> {
        for (folder, _) in self.plan.command.iter().flat_map(|command| &command.clears) {
            root.spot(folder)?.remove_empty_folder()?;
        }
        for folder in &self.plan.place.missing {
            root.spot(folder)?.make_folder()?;
        }
        Ok(())
    }

    /// Gives the staged file its path, unless another file has it.
    fn create(&mut self, staged: &Spot, spot: &Spot, has_journal: bool) -> Result<bool> {
        if !self.without_links {
            match staged.link_new(spot)? {
                Linked::Done => return Ok(true),
                Linked::Taken => return Ok(false),
                Linked::Impossible => self.without_links = true,
            }
        }
        // Without a journal, the next round has one.
        if has_journal { staged.rename_new(spot) } else { Ok(false) }
    }

    /// After the swap: whether no other process has written the replaced file, or tried to.
    pub(super) fn verify(&mut self, root: &Root) -> Result<bool> {
        let swapped = matches!(self.stand, Stand::Swapped(_));
        if self.current.file.is_some() {
            let by_tool = self.plan.command.is_none();
            return self.current.verify(self.staged.as_mut().filter(|_| swapped && by_tool), self.model);
        }
        let Some(model) = self.model.filter(|_| swapped) else { return Ok(true) };
        let Some(old) = self.old_spot(root)? else { return Ok(false) };
        let keeps_model = !matches!(self.plan.operation, Operation::SetMode(_));
        self.current.verify_again(&old, keeps_model.then_some(model))
    }

    /// What is open of a change that was made, for its undo.
    pub(super) fn held(&self) -> Option<Held<'_>> {
        let Stand::Swapped(_) = self.stand else { return None };
        let file = self.staged.as_ref().or(self.current.file.as_ref());
        Some(Held { spot: self.spot.as_ref()?, to: self.to.as_ref(), file: file? })
    }

    /// Prepares the step for another round, after its change was undone.
    pub(super) fn start_again(&mut self, root: &Root) -> Result<()> {
        self.close();
        self.discard(root)?;
        if matches!(self.stand, Stand::Swapped(_)) {
            // The exposed file stays under its name for the late-write check, so the next one needs another id.
            self.stage.id = ChangeId::new(root.now())?;
        }
        self.stand = Stand::Before;
        Ok(())
    }

    /// Lets other processes open the file.
    pub(super) fn release_quiet(&mut self) {
        self.current.file = None;
    }

    /// Deletes the staged file of a change that was not made. If it was visible at the path for a moment, a program may have
    /// opened it there: then it stays for the late-write check.
    pub(super) fn discard(&mut self, root: &Root) -> Result<()> {
        self.staged = None;
        let is_put = matches!(self.plan.operation, Operation::Put { .. });
        if is_put
            && !matches!(self.stand, Stand::Swapped(_))
            && let Some(staged) = self.aside_spot(root)?
        {
            staged.remove()?;
        }
        self.aside = None;
        // The name may be used again, so the intent must not come back either.
        self.forget_intent(root)
    }

    /// The folders outside the stage in which names have changed, each with its path. The one that was changed last comes first.
    pub(super) fn changed_folders(&self) -> impl Iterator<Item = (&Path, Option<&Folder>)> {
        let Plan { place, operation, .. } = &self.plan;
        let to = operation.moved_to().map(|to| (parent(&to.relative), self.to.as_ref()));
        let names = [Some((parent(&place.relative), self.spot.as_ref())), to].into_iter().flatten();
        let made = place.missing.iter().rev().map(|made| (parent(made), None));
        let changes_names = !self.is_done_already() && !matches!(operation, Operation::SetMode(_));
        let folders = names.chain(made).filter(move |_| changes_names);
        folders.map(|(path, spot)| (path, spot.map(Spot::folder)))
    }

    pub(super) fn applied(&self) -> AppliedChange {
        AppliedChange {
            id: self.stage.id.as_str().to_owned(),
            path: self.plan.place.path().clone(),
            moved_to: self.plan.operation.moved_to().map(|to| to.path().clone()),
            before: self.current.state,
            after: self.after(),
            link: self.plan.place.way.is_link,
            guarantee: self.guarantee(),
        }
    }

    /// What the file holds now. A moved file holds what it held before.
    fn after(&self) -> FileState {
        match self.plan.operation {
            Operation::MoveTo(_) | Operation::SetMode(_) => self.current.state,
            Operation::Put { .. } | Operation::Remove => self.plan.operation.after(),
        }
    }

    fn guarantee(&self) -> Guarantee {
        if self.stand == Stand::Swapped(Some(Swap::Renamed)) {
            Guarantee::NoExchange
        } else if self.model.is_some() && self.is_aside_beside() {
            Guarantee::NoLateWriteCheck
        } else if self.current.quiet != Quiet::Held {
            Guarantee::NoQuiet
        } else {
            Guarantee::Full
        }
    }

    fn deletes_a_program(&self) -> bool {
        matches!(self.plan.operation, Operation::Remove)
            && !self.plan.place.way.is_link
            && self.model.is_some_and(|model| model.mode() & 0o100 != 0)
    }

    pub(super) fn line(&self, request: &Request<'_>, took_us: Option<u64>) -> Entry {
        let Plan { place, operation, .. } = &self.plan;
        let lost_owner = self.ownership == Ownership::Lost;
        let change = FileChanged {
            moved_to: operation.moved_to().map(|to| to.relative.display().to_string()),
            executable: self.deletes_a_program(),
            guarantee: Some(self.guarantee()),
            owner: lost_owner.then_some(FileOwner::Changed),
            took_us,
            via: request.level.map(|_| "run".to_owned()),
            level: request.level.map(str::to_owned),
            ..file_changed(&self.stage.id, request.tool, &place.relative, self.current.state, self.after())
        };
        request.entry(Event::Mutation(Mutation::File(change), MutationStatus::Applied))
    }

    /// After the commit point: leaves the replaced file for the late-write check.
    pub(super) fn finish(&mut self, root: &Root) -> Result<()> {
        if self.is_done_already() {
            self.release_quiet();
            return self.discard(root);
        }
        let aside = self.aside_spot(root)?;
        self.release_quiet();
        let Some(spot) = aside else { return Ok(()) };
        if self.model.is_none() {
            // A new file has a second name at its path, so it does not need the one in the stage.
            return spot.remove();
        }
        if is_beside(spot.name()) {
            return keep_copy(root, &spot, &self.stage);
        }
        check_later(root, self.stage.clone());
        Ok(())
    }
}

pub(super) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}
