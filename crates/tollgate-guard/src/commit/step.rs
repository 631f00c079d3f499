//! One file of a commit, and how far its change has come.

use super::current::{Current, Looked};
use super::journal::{Intent, JournalRecord};
use super::new_folders::NewFolders;
use super::plan::{Applied, Author, Base, Deed, Guarantee, Plan, file_changed, nothing_there, stale};
use super::staging::{Exposure, Staged, is_beside, name_beside};
use super::undo::{give_back, gone_is_none, put_back, take_back};
use crate::disk::{Folder, Found, Linked, Ownership, Quiet, Spot, Swap, Target};
use crate::late_write::check_later;
use crate::long_path::stage_file_name;
use crate::recovery::keep_copy;
use crate::refusal::{Reason, Refusal};
use crate::root::Root;
use crate::stage::{ChangeId, Displaced, StageName, Standing, TargetName};
use crate::turn::FileState;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::event::{Event, FileChanged, FileOwner, Mutation, MutationStatus};
use tollgate_base::ledger::Entry;
use tollgate_base::name::Agent;
use tollgate_base::settings::{HardLinks, ReadOnly};

/// One file of a commit.
pub(super) struct Step {
    id: ChangeId,
    agent: Agent,
    plan: Plan,
    ends: Option<Ends>,
    folders: NewFolders,
    staged: Option<Staged>,
    /// Where a deleted file goes.
    kept: Option<Spot>,
    current: Current,
    stand: Stand,
    links: Links,
}

/// The path of the file and, if it is moved, its new path.
#[derive(Clone)]
struct Ends {
    spot: Spot,
    to: Option<Spot>,
}

/// How far the change has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// The disk is untouched.
    Before,
    /// The change is made.
    Swapped(Option<Swap>),
    /// The file has the new bytes already, so there is nothing to do.
    Same,
}

/// How a new file gets to its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Links {
    /// As a second name. After a crash, the first name in the stage says what the file is.
    Usable,
    /// By a rename, which leaves no name in the stage. So a journal is needed.
    Impossible,
}

impl Step {
    pub(super) fn new(root: &Root, plan: Plan, author: Author<'_>) -> Result<Self> {
        Ok(Self {
            id: ChangeId::new(root.now())?,
            agent: author.agent.clone(),
            plan,
            ends: None,
            folders: NewFolders::default(),
            staged: None,
            kept: None,
            current: Current::default(),
            stand: Stand::Before,
            links: Links::Usable,
        })
    }

    pub(super) fn refusal(&self, reason: Reason) -> Refusal {
        Refusal::new(self.plan.place.path.clone(), reason)
    }

    /// The refusal of the path that the file should move to.
    pub(super) fn refusal_of_target(&self, reason: Reason) -> Refusal {
        match self.plan.deed.moved_to() {
            Some(to) => Refusal::new(to.path.clone(), reason),
            None => self.refusal(reason),
        }
    }

    /// Opens the file and stages the new bytes. Does not look at the old bytes yet.
    pub(super) fn stage(&mut self, root: &Root) -> Result<Looked> {
        self.stand = Stand::Before;
        self.current.file = None;
        if !self.plan.place.missing.is_empty() && self.ends.is_none() {
            return self.stage_in_missing_folder(root);
        }
        let spot = self.open_ends(root)?.spot;
        match spot.open()? {
            Found::NotAFile => return Ok(Looked::Refused(Reason::NotAFile)),
            Found::Unreadable => return Ok(Looked::Refused(Reason::Unreadable)),
            Found::Nothing => {}
            Found::File(file) => {
                if let Some(reason) = self.unfit(root, &spot, &file)? {
                    return Ok(Looked::Refused(reason));
                }
                self.current.file = Some(file);
            }
        }
        self.stage_bytes(root, &spot)?;
        Ok(Looked::Ready)
    }

    fn stage_in_missing_folder(&mut self, root: &Root) -> Result<Looked> {
        match (&self.plan.deed, self.plan.base) {
            (_, Base::Exactly(expected @ FileState::Present(_))) => {
                Ok(Looked::Refused(stale(expected, FileState::Absent)))
            }
            (Deed::Put { .. }, _) => {
                let change = Intent { id: &self.id, agent: &self.agent, path: &self.plan.place.relative };
                self.folders.make(root, change, &self.plan.place.missing)?;
                let spot = self.open_ends(root)?.spot;
                self.stage_bytes(root, &spot)?;
                Ok(Looked::Ready)
            }
            _ => Err(nothing_there(&self.plan.place)),
        }
    }

    /// Opens the folders of both ends, once. Creates missing folders of the new path.
    fn open_ends(&mut self, root: &Root) -> Result<Ends> {
        if let Some(ends) = &self.ends {
            return Ok(ends.clone());
        }
        let spot = self.plan.place.spot(root.folder())?;
        let to = match self.plan.deed.moved_to() {
            Some(to) => {
                let change = Intent { id: &self.id, agent: &self.agent, path: &self.plan.place.relative };
                self.folders.make(root, change, &to.missing)?;
                Some(to.spot(root.folder())?)
            }
            None => None,
        };
        Ok(self.ends.insert(Ends { spot, to }).clone())
    }

    /// Deletes the folders that were created for a change that was not made.
    pub(super) fn remove_new_folders(&mut self, root: &Root) -> Result<()> {
        self.folders.remove(root)
    }

    /// Why this file cannot be replaced, regardless of its bytes.
    fn unfit(&self, root: &Root, spot: &Spot, file: &Target) -> Result<Option<Reason>> {
        let settings = &root.settings().guard;
        let replaced = matches!(self.plan.deed, Deed::Put { .. });
        if replaced && settings.hard_links == HardLinks::Refuse && file.links()? > 1 {
            return Ok(Some(Reason::HardLinked));
        }
        let read_only = file.has_no_write_bit() || !spot.may_write();
        Ok((settings.read_only == ReadOnly::Refuse && read_only).then_some(Reason::ReadOnly))
    }

    fn stage_bytes(&mut self, root: &Root, spot: &Spot) -> Result<()> {
        let Deed::Put { bytes, .. } = &self.plan.deed else { return Ok(()) };
        let model = self.current.file.as_ref().map(Target::as_model);
        match self.staged.take() {
            Some(staged) if staged.exposure == Exposure::Hidden && staged.model == model => {
                self.staged = Some(staged);
                return Ok(());
            }
            Some(staged) if staged.exposure == Exposure::Hidden => staged.discard(root)?,
            // An exposed file stays under its name for the late-write check, so the next one needs another id.
            Some(_) => self.id = ChangeId::new(root.now())?,
            None => {}
        }
        let change = Intent { id: &self.id, agent: &self.agent, path: &self.plan.place.relative };
        let staged = self.staged.insert(Staged::create(root, change, spot, model)?);
        staged.fill(root, bytes, self.current.file.as_ref())
    }

    /// The journal of the commit names the staged file now.
    pub(super) fn forget_intent(&mut self, root: &Root) -> Result<()> {
        self.staged.as_mut().map_or(Ok(()), |staged| staged.forget_intent(root))
    }

    /// Makes the file quiet, hashes it and compares. Checks that the path of a move is free.
    pub(super) fn look(&mut self) -> Result<Looked> {
        let Some(Ends { spot, to }) = &self.ends else { return Ok(Looked::Disturbed) };
        let looked = self.current.look(spot, &self.plan)?;
        if let (Looked::Ready, Some(to)) = (&looked, to)
            && to.inode()?.is_some()
        {
            return Ok(Looked::Taken(match hash_at(to)? {
                Some(actual) => stale(FileState::Absent, FileState::Present(actual)),
                None => Reason::NotAFile,
            }));
        }
        Ok(looked)
    }

    /// The refusal that was only observed.
    pub(super) fn observed(&self) -> Option<Refusal> {
        match self.plan.base {
            Base::Observed(expected) if expected != self.current.state => {
                Some(self.refusal(stale(expected, self.current.state)))
            }
            _ => None,
        }
    }

    /// Gives the staged file the name that says what it is. From now on, a crash can be healed from the name.
    pub(super) fn name_stage(&mut self, root: &Root) -> Result<()> {
        if matches!(self.plan.deed, Deed::Put { .. }) && self.plan.deed.after() == self.current.state {
            self.stand = Stand::Same;
            return Ok(());
        }
        let name = stage_file_name(root, &self.stage_name())?;
        match (&mut self.staged, &self.plan.deed) {
            (Some(staged), _) if staged.spot.folder().shown() == root.stage().shown() => {
                let named = staged.spot.beside(name);
                if named.name() != staged.spot.name() {
                    staged.spot.rename(&named)?;
                    staged.spot = named;
                }
            }
            (None, Deed::Remove) => {
                self.kept = Some(match &self.ends {
                    Some(Ends { spot, .. }) if !spot.folder().same_device(root.stage()) => {
                        spot.beside(name_beside(&self.id))
                    }
                    _ => root.staged(name),
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn stage_name(&self) -> StageName {
        StageName {
            standing: Standing::Open,
            id: self.id.clone(),
            base: self.current.state,
            new: self.plan.deed.after(),
            agent: self.agent.clone(),
            target: TargetName::Path(self.plan.place.relative.clone()),
        }
    }

    /// The file under a name that tollgate chose: before the swap the new bytes, after it the replaced ones.
    fn aside(&self) -> Option<&Spot> {
        self.staged.as_ref().map(|staged| &staged.spot).or(self.kept.as_ref())
    }

    /// Whether more than one name changes, or a name that does not say what its file is.
    pub(super) fn needs_journal(&self) -> bool {
        !self.folders.paths().is_empty()
            || self.links == Links::Impossible
            || matches!(self.plan.deed, Deed::MoveTo(_))
            || self.aside().is_some_and(is_beside)
    }

    /// Whether nothing is left from which a lost ledger line could be restored.
    pub(super) fn leaves_no_trace(&self) -> bool {
        self.current.file.is_none() || matches!(self.plan.deed, Deed::MoveTo(_))
    }

    pub(super) fn record(&self) -> JournalRecord {
        JournalRecord {
            id: self.id.as_str().to_owned(),
            path: self.plan.place.relative.clone(),
            to: self.plan.deed.moved_to().map(|to| to.relative.clone()),
            base: self.current.state.digest(),
            new: self.plan.deed.after().digest(),
            staged: self.aside().map(|spot| spot.name().into()),
            made: self.folders.paths().to_vec(),
        }
    }

    /// Makes the change visible. False if the file is no longer the one that was hashed.
    pub(super) fn swap(&mut self) -> Result<bool> {
        if self.stand == Stand::Same {
            return Ok(true);
        }
        let Some(Ends { spot, to }) = &self.ends else { return Ok(false) };
        match (&self.plan.deed, &mut self.staged, &self.current.file) {
            (Deed::Put { .. }, Some(staged), Some(file)) => {
                let Some(swap) = gone_is_none(staged.spot.swap(spot))? else { return Ok(false) };
                staged.exposure = Exposure::Exposed;
                self.stand = Stand::Swapped(Some(swap));
                staged.spot.holds(file)
            }
            (Deed::Put { .. }, Some(staged), None) => {
                let made = match self.links {
                    Links::Usable => match staged.spot.link_new(spot)? {
                        Linked::Done => true,
                        Linked::Taken => false,
                        Linked::Impossible => {
                            // The next round has a journal.
                            self.links = Links::Impossible;
                            false
                        }
                    },
                    Links::Impossible => staged.spot.rename_new(spot)?,
                };
                if !made {
                    return Ok(false);
                }
                staged.exposure = Exposure::Exposed;
                self.stand = Stand::Swapped(None);
                Ok(true)
            }
            (Deed::Remove, _, Some(file)) => self.kept.as_ref().map_or(Ok(false), |kept| {
                let Some(true) = gone_is_none(spot.rename_new(kept))? else { return Ok(false) };
                self.stand = Stand::Swapped(None);
                kept.holds(file)
            }),
            (Deed::MoveTo(_), _, Some(file)) => to.as_ref().map_or(Ok(false), |to| {
                let Some(true) = gone_is_none(spot.rename_new(to))? else { return Ok(false) };
                self.stand = Stand::Swapped(None);
                to.holds(file)
            }),
            _ => Ok(false),
        }
    }

    /// Whether no other process has written the replaced file, or tried to.
    pub(super) fn verify(&mut self) -> Result<bool> {
        let swapped = matches!(self.stand, Stand::Swapped(_));
        self.current.verify(self.staged.as_mut().filter(|_| swapped))
    }

    /// Undoes [`Self::swap`]. A file that another program has put at the path in the meantime stays there.
    pub(super) fn undo(&mut self, root: &Root) -> Result<()> {
        let Stand::Swapped(_) = self.stand else { return Ok(()) };
        self.stand = Stand::Before;
        self.swap_back(root)?;
        // No sweep looks beside the target.
        let Some(left) = self.aside().filter(|spot| is_beside(spot)) else { return Ok(()) };
        match &self.staged {
            Some(staged) if left.holds(&staged.file)? => left.remove(),
            _ => keep_copy(root, left, &self.stage_name()),
        }
    }

    fn swap_back(&self, root: &Root) -> Result<()> {
        let Some(Ends { spot, to }) = &self.ends else { return Ok(()) };
        match (&self.plan.deed, &self.staged, &self.current.file) {
            (Deed::Put { .. }, Some(staged), Some(_)) => {
                put_back(root, spot, &staged.spot, &|spot| spot.holds(&staged.file))
            }
            (Deed::Put { .. }, Some(staged), None) => {
                take_back(root, spot, &staged.spot, &|spot| spot.holds(&staged.file))
            }
            (Deed::Remove, _, _) => self.kept.as_ref().map_or(Ok(()), |kept| give_back(root, spot, kept)),
            (Deed::MoveTo(_), _, Some(file)) => match to {
                // Not if another program has saved another file there.
                Some(to) if to.holds(file)? => to.rename_new(spot).map(drop),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    pub(super) fn release_quiet(&mut self) {
        self.current.release();
    }

    /// Deletes the staged file of a change that was not made, unless it was exposed.
    pub(super) fn discard_hidden(&mut self, root: &Root) {
        self.release_quiet();
        if let Some(staged) = self.staged.take()
            && staged.exposure == Exposure::Hidden
        {
            // If this fails, the next sweep deletes it.
            let _ = staged.discard(root);
        }
    }

    /// The folders in which names have changed.
    pub(super) fn changed_folders(&self) -> impl Iterator<Item = Folder> {
        let ends = self.ends.iter().flat_map(|ends| [Some(&ends.spot), ends.to.as_ref()]).flatten();
        let spots = ends.chain(&self.kept).chain(self.staged.iter().map(|staged| &staged.spot));
        let changed = self.stand != Stand::Same;
        let folders = spots.map(|spot| spot.folder().clone());
        self.folders.parents().iter().cloned().chain(folders).filter(move |_| changed)
    }

    pub(super) fn applied(&self) -> Applied {
        Applied {
            id: self.id.as_str().to_owned(),
            path: self.plan.place.path.clone(),
            moved_to: self.plan.deed.moved_to().map(|to| to.path.clone()),
            before: self.current.state,
            after: self.after(),
            guarantee: self.guarantee(),
        }
    }

    /// What the file holds now. A moved file holds what it held before.
    fn after(&self) -> FileState {
        match self.plan.deed {
            Deed::MoveTo(_) => self.current.state,
            Deed::Put { .. } | Deed::Remove => self.plan.deed.after(),
        }
    }

    fn guarantee(&self) -> Guarantee {
        let late_write_check =
            self.current.file.is_none() || !self.needs_journal() || !self.aside().is_some_and(is_beside);
        if self.stand == Stand::Swapped(Some(Swap::Renamed)) {
            Guarantee::NoExchange
        } else if !late_write_check {
            Guarantee::NoSecondLook
        } else if self.current.quiet != Quiet::Held {
            Guarantee::NoQuiet
        } else {
            Guarantee::Full
        }
    }

    pub(super) fn line(&self, root: &Root, author: Author<'_>, took_us: Option<u64>) -> Entry {
        let Plan { place, deed, .. } = &self.plan;
        let lost_owner = self.staged.as_ref().is_some_and(|staged| staged.ownership == Ownership::Lost);
        let change = FileChanged {
            moved_to: deed.moved_to().map(|to| to.relative.display().to_string()),
            guarantee: Some(self.guarantee()),
            owner: lost_owner.then_some(FileOwner::Changed),
            took_us,
            ..file_changed(&self.id, author.tool, &place.relative, self.current.state, self.after())
        };
        author.entry(root, Event::Mutation(Mutation::File(change), MutationStatus::Applied))
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
        if is_beside(spot) {
            return keep_copy(root, spot, &self.stage_name());
        }
        check_later(root, Displaced { name: spot.name().to_owned(), stage: self.stage_name() });
        Ok(())
    }
}

fn hash_at(spot: &Spot) -> Result<Option<Digest>> {
    match spot.open()? {
        Found::File(file) => file.hash().map(Some),
        Found::Nothing | Found::Unreadable | Found::NotAFile => Ok(None),
    }
}
