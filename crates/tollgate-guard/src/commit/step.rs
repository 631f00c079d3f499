//! One file of a commit, and how far its change has come.

use std::ffi::OsString;

use super::current::Current;
use super::journal::{CommitJournal, JournalRecord};
use super::plan::{Applied, Base, Guarantee, Looked, NewContent, Operation, Plan, file_changed};
use super::staging::{NewFolders, Staged};
use super::undo::{give_back, put_back, take_back};
use crate::disk::{Folder, Found, Linked, Model, Ownership, Quiet, Spot, Swap, Target, gone_is_none};
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
use tollgate_base::settings::{HardLinks, ReadOnly};

pub(super) struct FileStep {
    pub(super) plan: Plan,
    /// What this change is, for names in the stage.
    pub(super) stage: StageName,
    /// The path of the file, once its folder is open.
    spot: Option<Spot>,
    /// Where the file goes: its new path, or a name in the stage if it is deleted.
    to: Option<Spot>,
    pub(super) folders: NewFolders,
    staged: Option<Staged>,
    pub(super) current: Current,
    /// The file that is replaced, moved or deleted, as it was when the new bytes were staged.
    pub(super) model: Option<Model>,
    ownership: Ownership,
    pub(super) stand: Stand,
    /// The name of the file that is set aside, if the step is closed.
    closed: Option<OsString>,
    /// Files cannot have two names here. So a new file gets to its path by a rename, which leaves no name in the stage, and
    /// a journal is needed.
    without_links: bool,
}

/// How far the change has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stand {
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
            new: plan.deed.after(),
            agent: request.turn.agent().clone(),
            target: TargetName::Path(plan.place.relative.clone()),
        };
        Ok(Self {
            plan,
            stage,
            spot: None,
            to: None,
            folders: NewFolders::default(),
            staged: None,
            current: Current { file: None, state: FileState::Absent, quiet: Quiet::Held },
            model: None,
            ownership: Ownership::Kept,
            stand: Stand::Before,
            closed: None,
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
        let Plan { place, deed, base, command } = &self.plan;
        if self.plan.is_after_others() {
            self.model = None;
            // Its folder may not exist yet. The stage itself stands for it.
            self.stage_content(root, &root.staged(""))?;
            return Ok(Looked::Ready);
        }
        let spot = match &self.spot {
            Some(spot) => spot.clone(),
            None => {
                match (base, deed) {
                    _ if place.missing.is_empty() => {}
                    (Base::Exactly(expected @ FileState::Present(_)), _) => {
                        return Ok(self.plan.stale(*expected, FileState::Absent));
                    }
                    (Base::Since(since), _) if since.was_present() => {
                        return Ok(self.plan.stale(since.expected(), FileState::Absent));
                    }
                    (_, Operation::Put { .. }) => {}
                    _ => return Err(place.path().missing()),
                }
                self.folders.make(root, &self.stage, &deed.moved_to().unwrap_or(place).missing)?;
                self.to = deed.moved_to().map(|to| root.spot(&to.relative)).transpose()?;
                self.spot.insert(root.spot(&place.relative)?).clone()
            }
        };
        let found = match deed {
            Operation::Put { .. } if command.is_none() => spot.open()?,
            _ => spot.open_itself()?,
        };
        match found {
            Found::NotAFile => return Ok(self.plan.not_a_file()),
            Found::Unreadable => return Ok(self.plan.refuse(Reason::Unreadable)),
            Found::Nothing => {}
            Found::File(file) => {
                if let Some(reason) = self.unfit(root, &spot, &file)? {
                    return Ok(self.plan.refuse(reason));
                }
                self.current.file = Some(file);
            }
        }
        self.model = self.current.file.as_ref().map(Target::as_model);
        self.stage_content(root, &spot)?;
        Ok(Looked::Ready)
    }

    /// Why this file cannot be replaced, regardless of its bytes.
    fn unfit(&self, root: &Root, spot: &Spot, file: &Target) -> Result<Option<Reason>> {
        let settings = &root.settings().guard;
        if file.is_link() {
            return Ok(None);
        }
        let command = self.plan.command.as_ref();
        // A command that replaces a file breaks its hard links itself.
        let replaced =
            matches!(self.plan.deed, Operation::Put { .. }) && command.is_none_or(|command| command.in_place);
        if replaced && settings.hard_links == HardLinks::Refuse && file.links()? > 1 {
            return Ok(Some(Reason::HardLinked));
        }
        if command.is_some() {
            // The kernel has decided what the command may write.
            return Ok(None);
        }
        let read_only = file.has_no_write_bit() || !spot.may_write();
        Ok((settings.read_only == ReadOnly::Refuse && read_only).then_some(Reason::ReadOnly))
    }

    fn stage_content(&mut self, root: &Root, spot: &Spot) -> Result<()> {
        let Operation::Put { content, digest } = &mut self.plan.deed else { return Ok(()) };
        match self.staged.take() {
            Some(staged) if !staged.exposed && staged.model == self.model => {
                self.staged = Some(staged);
                return Ok(());
            }
            Some(staged) if !staged.exposed => staged.discard(root)?,
            // An exposed file stays under its name for the late-write check, so the next one needs another id.
            Some(_) => self.stage.id = ChangeId::new(root.now())?,
            None => {}
        }
        let staged = self.staged.insert(Staged::create(root, &self.stage, spot, self.model, content)?);
        self.ownership = match content {
            NewContent::Bytes(bytes) => staged.fill(root, bytes, self.current.file.as_ref())?,
            NewContent::Copy(from) => {
                // A process that the command left behind may still write this file.
                *digest = staged.copy(root, from)?;
                self.stage.new = FileState::Present(*digest);
                Ownership::Kept
            }
            NewContent::Link(_) => Ownership::Kept,
        };
        Ok(())
    }

    /// The journal of the commit names the staged file now.
    pub(super) fn forget_intent(&mut self, root: &Root) -> Result<()> {
        self.staged.as_mut().map_or(Ok(()), |staged| staged.forget_intent(root))
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
        if let (Looked::Ready, Operation::MoveTo(place), Some(to)) = (&looked, &self.plan.deed, &self.to)
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
        if let Operation::SetMode(_) = self.plan.deed {
            self.stage.new = self.stage.base;
            return Ok(());
        }
        if matches!(self.plan.deed, Operation::Put { .. }) && self.stage.new == self.stage.base {
            self.stand = Stand::Same;
            return Ok(());
        }
        let name = root.stage_file_name(&self.stage)?;
        match (&mut self.staged, &self.plan.deed) {
            (Some(staged), _) if staged.spot.folder().shown() == root.stage.shown() => {
                let named = staged.spot.beside(name);
                if named.name() != staged.spot.name() {
                    staged.spot.rename(&named)?;
                    staged.spot = named;
                }
            }
            (None, Operation::Remove) => {
                self.to = Some(match &self.spot {
                    Some(spot) if !spot.folder().same_device(&root.stage) => {
                        spot.beside(name_beside(&self.stage.id))
                    }
                    _ => root.staged(name),
                });
            }
            _ => {}
        }
        Ok(())
    }

    /// The file under a name that tollgate chose: before the swap the new bytes, after it the replaced ones.
    fn aside(&self) -> Option<&Spot> {
        match (&self.staged, &self.plan.deed) {
            (Some(staged), _) => Some(&staged.spot),
            (None, Operation::Remove) => self.to.as_ref(),
            (None, _) => None,
        }
    }

    fn is_aside_beside(&self) -> bool {
        self.aside().map(Spot::name).or(self.closed.as_deref()).is_some_and(is_beside)
    }

    /// Closes all files of the step, which stay where they are. Returns the intent that names the staged file.
    pub(super) fn close(&mut self) -> Option<CommitJournal> {
        self.closed = self.aside().map(|spot| spot.name().to_owned());
        self.current.file = None;
        self.spot = None;
        self.to = None;
        self.staged.take().and_then(Staged::close)
    }

    /// Whether more than one name changes, or a name that does not say what its file is.
    pub(super) fn needs_journal(&self) -> bool {
        !self.folders.made.is_empty()
            || self.without_links
            || matches!(self.plan.deed, Operation::MoveTo(_))
            || self.is_aside_beside()
    }

    /// Whether nothing is left from which a lost ledger line could be restored.
    pub(super) fn leaves_no_trace(&self) -> bool {
        self.current.file.is_none() || matches!(self.plan.deed, Operation::MoveTo(_))
    }

    pub(super) fn record(&self) -> JournalRecord {
        let later = self.plan.place.missing.iter().filter(|_| self.plan.is_after_others());
        let made = self.folders.made.iter().map(|(path, _)| path).chain(later);
        let clears = self.plan.command.iter().flat_map(|command| &command.clears);
        JournalRecord {
            mode: match (&self.plan.deed, &self.model) {
                (Operation::SetMode(mode), Some(model)) => Some([model.mode(), *mode]),
                _ => None,
            },
            clears: clears.map(|(path, mode)| (EscapedPath(path.clone()), *mode)).collect(),
            to: self.plan.deed.moved_to().map(|to| EscapedPath(to.relative.clone())),
            base: self.stage.base.digest(),
            new: self.stage.new.digest(),
            ..JournalRecord::new(
                &self.stage.id,
                &self.plan.place.relative,
                self.aside().map(Spot::name),
                made,
            )
        }
    }

    /// Makes the change visible. False if the file is no longer the one that was hashed.
    pub(super) fn swap(&mut self) -> Result<bool> {
        if self.stand == Stand::Same {
            return Ok(true);
        }
        let Some(spot) = &self.spot else { return Ok(false) };
        match (&mut self.staged, &self.to, &self.current.file) {
            (Some(staged), _, Some(file)) => {
                let Some(swap) = gone_is_none(staged.spot.swap(spot))? else { return Ok(false) };
                staged.exposed = true;
                self.stand = Stand::Swapped(Some(swap));
                staged.spot.holds(file)
            }
            (Some(staged), _, None) => {
                let made = if self.without_links {
                    staged.spot.rename_new(spot)?
                } else {
                    let linked = staged.spot.link_new(spot)?;
                    // The next round has a journal.
                    self.without_links = linked == Linked::Impossible;
                    linked == Linked::Done
                };
                if !made {
                    return Ok(false);
                }
                staged.exposed = true;
                self.stand = Stand::Swapped(None);
                Ok(true)
            }
            (None, Some(to), Some(file)) => {
                let Some(true) = gone_is_none(spot.rename_new(to))? else { return Ok(false) };
                self.stand = Stand::Swapped(None);
                to.holds(file)
            }
            _ => Ok(false),
        }
    }

    pub(super) fn verify(&mut self) -> Result<bool> {
        let swapped = matches!(self.stand, Stand::Swapped(_));
        let by_tool = self.plan.command.is_none();
        self.current.verify(self.staged.as_mut().filter(|_| swapped && by_tool))
    }

    /// Undoes [`Self::swap`]. A file that another program has put at the path in the meantime stays there.
    pub(super) fn undo(&mut self, root: &Root) -> Result<()> {
        let Stand::Swapped(_) = self.stand else { return Ok(()) };
        self.stand = Stand::Before;
        self.swap_back(root)?;
        // No sweep looks beside the target.
        let Some(left) = self.aside().filter(|spot| is_beside(spot.name())) else { return Ok(()) };
        match &self.staged {
            Some(staged) if left.holds(&staged.file)? => left.remove(),
            _ => keep_copy(root, left, &self.stage),
        }
    }

    fn swap_back(&self, root: &Root) -> Result<()> {
        let Some(spot) = &self.spot else { return Ok(()) };
        match (&self.plan.deed, &self.staged, &self.to, &self.current.file) {
            (_, Some(staged), _, replaced) => {
                let undo = if replaced.is_some() { put_back } else { take_back };
                undo(root, spot, &staged.spot, &|spot| spot.holds(&staged.file))
            }
            (Operation::Remove, _, Some(kept), _) => give_back(root, spot, kept),
            // Not if another program has saved another file there.
            (_, _, Some(to), Some(file)) if to.holds(file)? => to.rename_new(spot).map(drop),
            _ => Ok(()),
        }
    }

    pub(super) fn release_quiet(&mut self) {
        self.current.file = None;
    }

    /// Deletes the staged file of a change that was not made, unless it was exposed.
    pub(super) fn discard_hidden(&mut self, root: &Root) {
        self.release_quiet();
        if let Some(staged) = self.staged.take()
            && !staged.exposed
        {
            // If this fails, the next sweep deletes it.
            let _ = staged.discard(root);
        }
    }

    /// The folders in which names have changed.
    pub(super) fn changed_folders(&self) -> impl Iterator<Item = Folder> {
        let staged = self.staged.as_ref().map(|staged| &staged.spot);
        let spots = [self.spot.as_ref(), self.to.as_ref(), staged].into_iter().flatten().map(Spot::folder);
        let parents = self.folders.made.iter().map(|(_, parent)| parent);
        let changed = self.stand != Stand::Same;
        parents.chain(spots).filter(move |_| changed).cloned()
    }

    pub(super) fn applied(&self) -> Applied {
        Applied {
            id: self.stage.id.as_str().to_owned(),
            path: self.plan.place.path().clone(),
            moved_to: self.plan.deed.moved_to().map(|to| to.path().clone()),
            before: self.current.state,
            after: self.after(),
            link: self.plan.place.way.is_link,
            guarantee: self.guarantee(),
        }
    }

    /// What the file holds now. A moved file holds what it held before.
    fn after(&self) -> FileState {
        match self.plan.deed {
            Operation::MoveTo(_) | Operation::SetMode(_) => self.current.state,
            Operation::Put { .. } | Operation::Remove => self.plan.deed.after(),
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

    pub(super) fn line(&self, request: &Request<'_>, took_us: Option<u64>) -> Entry {
        let Plan { place, deed, .. } = &self.plan;
        let lost_owner = self.ownership == Ownership::Lost;
        let change = FileChanged {
            moved_to: deed.moved_to().map(|to| to.relative.display().to_string()),
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
        self.folders.keep()?;
        if self.stand == Stand::Same {
            self.discard_hidden(root);
            return Ok(());
        }
        let replaced = self.current.file.is_some();
        self.release_quiet();
        let Some(spot) = self.aside() else { return Ok(()) };
        if !replaced {
            // A new file has a second name at its path, so it does not need the one in the stage.
            return spot.remove();
        }
        if is_beside(spot.name()) {
            return keep_copy(root, spot, &self.stage);
        }
        check_later(root, self.stage.clone());
        Ok(())
    }
}
