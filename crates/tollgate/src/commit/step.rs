//! One file of a commit, and how far it has come.

use std::ffi::OsString;
use std::path::Path;

use rustix::fs::Mode;

use crate::digest::Digest;
use crate::disk::{Folder, Found, Kept, Linked, Model, Quiet, Spot, Swap, Target};
use crate::error::{At, Fault, Result};
use crate::ledger::{ActionType, Entry};
use crate::lock::{Pauses, stripe};
use crate::name::Agent;
use crate::place::Place;
use crate::refusal::{Reason, Refusal};
use crate::settings::{HardLinks, ReadOnly};
use crate::stage::{ChangeId, StageName, Standing, TargetName, aside_name, unfinished_name};
use crate::turn::FileState;
use crate::workspace::Workspace;

use super::journal::{Journal, Record};
use super::{Applied, Author, Base, Deed, GAP, Guarantee, Plan, mutation_payload, nothing_there, stale};

/// A file that came out of the workspace and waits for its second look.
#[derive(Debug, Clone)]
pub(crate) struct Displaced {
    pub(crate) name: OsString,
    pub(crate) stage: StageName,
}

/// What a look at the target gave.
pub(crate) enum Looked {
    Ready,
    Refused(Reason),
    /// The place that a file should move to is taken.
    Taken(Reason),
    /// Somebody has it open for writing.
    Busy,
    /// It was changed while we looked.
    Disturbed,
}

/// New bytes, ready to take their place.
struct Staged {
    spot: Spot,
    file: Target,
    /// The file whose owner, mode and attributes it has; none if it is to be a new file.
    model: Option<Model>,
    /// It has stood at the path for a moment: somebody may have opened it there, so it is not used again.
    exposed: bool,
}

/// How far the file has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// The disk is untouched.
    Before,
    /// The change is made.
    Swapped(Option<Swap>),
    /// The bytes are the same: nothing to do.
    Same,
}

/// How a new file comes to its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Links {
    /// It gets a second name there. The first one tells, after a crash, whose it is.
    Usable,
    /// It is moved there and leaves no trace behind, so that a journal is needed.
    Impossible,
}

pub(crate) struct Step {
    id: ChangeId,
    agent: Agent,
    plan: Plan,
    spot: Option<Spot>,
    to: Option<Spot>,
    made: Vec<std::path::PathBuf>,
    /// Says which folders were made, until it is decided whether they stay.
    intent: Option<Journal>,
    new: Option<Digest>,
    staged: Option<Staged>,
    /// Where the removed file goes.
    kept: Option<Spot>,
    target: Option<Target>,
    before: FileState,
    quiet: Quiet,
    kept_owner: Kept,
    stand: Stand,
    links: Links,
}

impl Step {
    pub(crate) fn new(workspace: &Workspace, plan: Plan, author: Author<'_>) -> Result<Self> {
        let new = match &plan.deed {
            Deed::Put(bytes) => Some(Digest::of(bytes)),
            Deed::Remove | Deed::MoveTo(_) => None,
        };
        Ok(Self {
            id: ChangeId::new(workspace.now())?,
            agent: author.agent.clone(),
            plan,
            spot: None,
            to: None,
            made: Vec::new(),
            intent: None,
            new,
            staged: None,
            kept: None,
            target: None,
            before: FileState::Absent,
            quiet: Quiet::Held,
            kept_owner: Kept::All,
            stand: Stand::Before,
            links: Links::Usable,
        })
    }

    pub(crate) fn refusal(&self, reason: Reason) -> Refusal {
        Refusal::new(self.plan.place.path.clone(), reason)
    }

    /// The refusal of a place that a file should move to.
    pub(crate) fn refusal_of_target(&self, reason: Reason) -> Refusal {
        match &self.plan.deed {
            Deed::MoveTo(to) => Refusal::new(to.path.clone(), reason),
            Deed::Put(_) | Deed::Remove => self.refusal(reason),
        }
    }

    /// Opens the target and stages the new bytes after its model. Nothing is decided about its content yet.
    pub(crate) fn stage(&mut self, workspace: &Workspace) -> Result<Looked> {
        self.stand = Stand::Before;
        self.target = None;
        if !self.plan.place.missing.is_empty() && self.spot.is_none() {
            return self.stage_in_missing_folder(workspace);
        }
        let spot = match &self.spot {
            Some(spot) => spot.clone(),
            None => self.spot.insert(self.plan.place.spot(workspace.root())?).clone(),
        };
        if let (Deed::MoveTo(to), None) = (&self.plan.deed, &self.to) {
            let to = to.clone();
            self.make_folders(workspace, to.missing.clone())?;
            self.to = Some(to.spot(workspace.root())?);
        }
        match spot.open()? {
            Found::NotAFile => return Ok(Looked::Refused(Reason::NotAFile)),
            Found::Unreadable => return Ok(Looked::Refused(Reason::Unreadable)),
            Found::Nothing => {}
            Found::File(target) => {
                if let Some(reason) = self.unfit(workspace, &spot, &target)? {
                    return Ok(Looked::Refused(reason));
                }
                self.target = Some(target);
            }
        }
        self.stage_bytes(workspace, &spot)?;
        Ok(Looked::Ready)
    }

    fn stage_in_missing_folder(&mut self, workspace: &Workspace) -> Result<Looked> {
        match (&self.plan.deed, self.plan.base) {
            (_, Base::Exactly(expected @ FileState::Present(_))) => {
                Ok(Looked::Refused(stale(expected, FileState::Absent)))
            }
            (Deed::Put(_), _) => {
                self.make_folders(workspace, self.plan.place.missing.clone())?;
                let spot = self.spot.insert(self.plan.place.spot(workspace.root())?).clone();
                self.stage_bytes(workspace, &spot)?;
                Ok(Looked::Ready)
            }
            _ => Err(nothing_there(&self.plan.place)),
        }
    }

    fn make_folders(&mut self, workspace: &Workspace, missing: Vec<std::path::PathBuf>) -> Result<()> {
        if missing.is_empty() {
            return Ok(());
        }
        if self.intent.is_none() {
            let author = Author { agent: &self.agent, turn: None, tool: "" };
            let path = &self.plan.place.relative;
            self.intent = Some(Journal::of_folders(workspace, author, &self.id, path, missing.clone())?);
        }
        for folder in missing {
            let parent = workspace.root().open_below(folder.parent().unwrap_or(Path::new("")))?;
            let name = folder.file_name().ok_or_else(|| nothing_there(&self.plan.place))?;
            if parent.spot(name).make_folder()? {
                self.made.push(folder);
                // Otherwise a power cut could take away the folder of a file that was acknowledged.
                parent.flush(workspace.settings().guard.durability)?;
            }
        }
        Ok(())
    }

    /// Takes away, if they are empty, the folders that were made for a change that did not come about.
    pub(crate) fn remove_made_folders(&mut self, workspace: &Workspace) -> Result<()> {
        for folder in self.made.iter().rev() {
            remove_folder(workspace, folder)?;
        }
        self.intent.take().map_or(Ok(()), Journal::remove)
    }

    /// Why this file cannot be replaced, whatever is in it.
    fn unfit(&self, workspace: &Workspace, spot: &Spot, target: &Target) -> Result<Option<Reason>> {
        let settings = &workspace.settings().guard;
        let replaced = matches!(self.plan.deed, Deed::Put(_));
        if replaced && settings.hard_links == HardLinks::Refuse && target.links()? > 1 {
            return Ok(Some(Reason::HardLinked));
        }
        let read_only = target.has_no_write_bit() || !spot.may_write();
        Ok((settings.read_only == ReadOnly::Refuse && read_only).then_some(Reason::ReadOnly))
    }

    fn stage_bytes(&mut self, workspace: &Workspace, spot: &Spot) -> Result<()> {
        let Deed::Put(bytes) = &self.plan.deed else { return Ok(()) };
        let model = self.target.as_ref().map(Target::as_model);
        match &self.staged {
            Some(staged) if !staged.exposed && staged.model == model => return Ok(()),
            Some(staged) if !staged.exposed => staged.spot.remove()?,
            // An exposed one waits under its name for the second look; a new id keeps the two apart.
            Some(_) => self.id = ChangeId::new(workspace.now())?,
            None => {}
        }
        self.staged = None;
        // A new file gets from its folder what only the folder can give, so it is made there.
        let beside = !spot.folder().same_device(workspace.stage())
            || (model.is_none() && spot.folder().marks_new_files()?);
        let staged_at = if beside {
            spot.beside(format!(".tollgate-{}", self.id.as_str()))
        } else {
            workspace.stage().spot(unfinished_name(stripe(&self.plan.place.relative), &self.id))
        };
        // Private until it has the mode of its model; a new file gets what the umask leaves.
        let mode = if model.is_some() { Mode::RUSR | Mode::WUSR } else { Mode::from_raw_mode(0o666) };
        let file = staged_at.create(mode)?;
        let staged = self.staged.insert(Staged { spot: staged_at, file, model, exposed: false });
        staged.file.write(bytes)?;
        if let Some(target) = &self.target {
            self.kept_owner = staged.file.take_after(target)?;
        }
        staged.file.flush(workspace.settings().guard.durability)
    }

    /// Makes the target quiet, hashes it and compares.
    pub(crate) fn look(&mut self) -> Result<Looked> {
        let Some(spot) = &self.spot else { return Ok(Looked::Disturbed) };
        let Some(target) = &mut self.target else { return self.look_at_nothing(&spot.clone()) };
        if self.plan.base == Base::Exactly(FileState::Absent) {
            // Whatever it is, it should not be there. To wait for quiet would only delay the answer.
            return Ok(Looked::Refused(stale(FileState::Absent, FileState::Present(target.hash()?))));
        }
        self.quiet = target.quiet();
        if self.quiet == Quiet::Busy {
            return Ok(Looked::Busy);
        }
        // Only now does its length stand still.
        target.refresh()?;
        let digest = target.hash()?;
        if !target.undisturbed() || !target.is_at(spot)? {
            return Ok(Looked::Disturbed);
        }
        self.before = FileState::Present(digest);
        if let Base::Exactly(expected) = self.plan.base
            && expected != self.before
        {
            if self.quiet == Quiet::Unavailable && !settled(target, digest)? {
                return Ok(Looked::Disturbed);
            }
            return Ok(Looked::Refused(stale(expected, self.before)));
        }
        if let Some(to) = &self.to
            && to.inode()?.is_some()
        {
            return Ok(Looked::Taken(match present_at(to)? {
                Some(actual) => stale(FileState::Absent, FileState::Present(actual)),
                None => Reason::NotAFile,
            }));
        }
        Ok(Looked::Ready)
    }

    fn look_at_nothing(&mut self, spot: &Spot) -> Result<Looked> {
        self.before = FileState::Absent;
        self.quiet = Quiet::Held;
        match (self.plan.base, &self.plan.deed) {
            (Base::Exactly(expected @ FileState::Present(_)), _) => {
                // Some editors move the old file away before they write the new one.
                let mut pauses = Pauses::lasting(GAP);
                while spot.inode()?.is_none() {
                    if !pauses.pause() {
                        return Ok(Looked::Refused(stale(expected, FileState::Absent)));
                    }
                }
                Ok(Looked::Disturbed)
            }
            (_, Deed::Put(_)) if spot.inode()?.is_some() => Ok(Looked::Disturbed),
            (_, Deed::Put(_)) => Ok(Looked::Ready),
            (_, Deed::Remove | Deed::MoveTo(_)) => Err(nothing_there(&self.plan.place)),
        }
    }

    /// What would have been refused, had it not only been observed.
    pub(crate) fn observed(&self) -> Option<Refusal> {
        match self.plan.base {
            Base::Observed(expected) if expected != self.before => {
                Some(self.refusal(stale(expected, self.before)))
            }
            _ => None,
        }
    }

    /// Gives the staged file the name that says what it is. From here on a crash is healed from the name.
    pub(crate) fn name_stage(&mut self, workspace: &Workspace) -> Result<()> {
        if self.new.is_some_and(|new| FileState::Present(new) == self.before) {
            self.stand = Stand::Same;
            return Ok(());
        }
        let name = stage_file_name(workspace, &self.stage_name())?;
        match (&mut self.staged, &self.plan.deed) {
            (Some(staged), _) if staged.spot.folder().shown() == workspace.stage().shown() => {
                let named = staged.spot.beside(name);
                if named.name() != staged.spot.name() {
                    staged.spot.rename(&named)?;
                    staged.spot = named;
                }
            }
            (None, Deed::Remove) => {
                let same_device =
                    self.spot.as_ref().is_some_and(|spot| spot.folder().same_device(workspace.stage()));
                self.kept = Some(match &self.spot {
                    Some(spot) if !same_device => spot.beside(format!(".tollgate-{}", self.id.as_str())),
                    _ => workspace.stage().spot(name),
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
            base: self.before,
            new: self.after(),
            agent: self.agent.clone(),
            target: TargetName::Path(self.plan.place.relative.clone()),
        }
    }

    fn after(&self) -> FileState {
        match (&self.plan.deed, self.new) {
            (Deed::Put(_), Some(new)) => FileState::Present(new),
            _ => FileState::Absent,
        }
    }

    /// Whether more than one name changes, or a name that does not tell what it is.
    pub(crate) fn needs_journal(&self) -> bool {
        let beside = |spot: &Spot| spot.name().as_encoded_bytes().starts_with(b".tollgate-");
        !self.made.is_empty()
            || self.links == Links::Impossible
            || matches!(self.plan.deed, Deed::MoveTo(_))
            || self.staged.as_ref().is_some_and(|staged| beside(&staged.spot))
            || self.kept.as_ref().is_some_and(beside)
    }

    /// Whether nothing is left from which a lost ledger line could be made again.
    pub(crate) fn leaves_no_trace(&self) -> bool {
        self.target.is_none() || matches!(self.plan.deed, Deed::MoveTo(_))
    }

    pub(crate) fn record(&self) -> Record {
        Record {
            id: self.id.as_str().to_owned(),
            path: self.plan.place.relative.clone(),
            to: match &self.plan.deed {
                Deed::MoveTo(to) => Some(to.relative.clone()),
                Deed::Put(_) | Deed::Remove => None,
            },
            base: self.before.digest(),
            new: self.after().digest(),
            staged: self
                .staged
                .as_ref()
                .map(|staged| &staged.spot)
                .or(self.kept.as_ref())
                .map(|spot| spot.name().into()),
            made: self.made.clone(),
        }
    }

    /// The step that others see. False if the file is not where or what it was a moment ago.
    pub(crate) fn swap(&mut self) -> Result<bool> {
        if self.stand == Stand::Same {
            return Ok(true);
        }
        let Some(spot) = &self.spot else { return Ok(false) };
        match (&self.plan.deed, &mut self.staged, &self.target) {
            (Deed::Put(_), Some(staged), Some(target)) => {
                let Some(swap) = gone_is_none(staged.spot.swap(spot))? else { return Ok(false) };
                staged.exposed = true;
                self.stand = Stand::Swapped(Some(swap));
                target.is_at(&staged.spot)
            }
            (Deed::Put(_), Some(staged), None) => {
                let made = match self.links {
                    Links::Usable => match staged.spot.link_new(spot)? {
                        Linked::Done => true,
                        Linked::Taken => false,
                        Linked::Impossible => {
                            // Begin again, with a journal.
                            self.links = Links::Impossible;
                            false
                        }
                    },
                    Links::Impossible => staged.spot.rename_new(spot)?,
                };
                if !made {
                    return Ok(false);
                }
                staged.exposed = true;
                self.stand = Stand::Swapped(None);
                Ok(true)
            }
            (Deed::Remove, _, Some(target)) => {
                let Some(kept) = &self.kept else { return Ok(false) };
                let Some(true) = gone_is_none(spot.rename_new(kept))? else { return Ok(false) };
                self.stand = Stand::Swapped(None);
                target.is_at(kept)
            }
            (Deed::MoveTo(_), _, Some(target)) => {
                let Some(to) = &self.to else { return Ok(false) };
                let Some(true) = gone_is_none(spot.rename_new(to))? else { return Ok(false) };
                self.stand = Stand::Swapped(None);
                target.is_at(to)
            }
            _ => Ok(false),
        }
    }

    /// Whether nobody has touched what came out, or asked to.
    pub(crate) fn verify(&mut self) -> Result<bool> {
        let Some(target) = &mut self.target else { return Ok(true) };
        if !target.undisturbed() {
            return Ok(false);
        }
        if self.quiet == Quiet::Unavailable {
            // Without a lease only the bytes can tell.
            target.refresh()?;
            if FileState::Present(target.hash()?) != self.before {
                return Ok(false);
            }
        }
        // Somebody may have changed owner or mode since they were copied.
        if let (Stand::Swapped(_), Some(staged)) = (self.stand, &mut self.staged)
            && !target.same_owner_and_mode(&target.stat_now()?)
        {
            staged.file.take_after(target)?;
        }
        Ok(true)
    }

    /// Everything as it was before [`Self::swap`]. Whatever else has come to the path meanwhile stays there.
    pub(crate) fn undo(&mut self, workspace: &Workspace) -> Result<()> {
        let Stand::Swapped(_) = self.stand else { return Ok(()) };
        self.stand = Stand::Before;
        let Some(spot) = &self.spot else { return Ok(()) };
        match (&self.plan.deed, &self.staged, &self.target) {
            (Deed::Put(_), Some(staged), Some(_)) => {
                let ours = |spot: &Spot| staged.file.is_at(spot);
                put_back(workspace, spot, &staged.spot, &ours)
            }
            (Deed::Put(_), Some(staged), None) => {
                let ours = |spot: &Spot| staged.file.is_at(spot);
                take_back(workspace, spot, &staged.spot, &ours)
            }
            (Deed::Remove, _, _) => match &self.kept {
                Some(kept) => give_back(workspace, spot, kept),
                None => Ok(()),
            },
            (Deed::MoveTo(_), _, Some(target)) => match &self.to {
                // Unless somebody has saved another file there meanwhile.
                Some(to) if target.is_at(to)? => to.rename_new(spot).map(drop),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    pub(crate) fn let_go(&mut self) {
        self.target = None;
    }

    /// The staged bytes of a change that did not come about. What was exposed stays for the second look.
    pub(crate) fn discard_unexposed(&mut self) {
        self.target = None;
        if let Some(staged) = self.staged.take()
            && !staged.exposed
        {
            // If it cannot be removed now, the next sweep does it.
            let _ = staged.spot.remove();
        }
    }

    pub(crate) fn folders(&self) -> impl Iterator<Item = Folder> {
        let spots =
            [self.spot.as_ref(), self.to.as_ref(), self.kept.as_ref(), self.staged.as_ref().map(|s| &s.spot)];
        let changed = self.stand != Stand::Same;
        spots.into_iter().flatten().filter(move |_| changed).map(|spot| spot.folder().clone())
    }

    pub(crate) fn applied(&self) -> Applied {
        let moved = match &self.plan.deed {
            Deed::MoveTo(to) => Some(to.path.clone()),
            Deed::Put(_) | Deed::Remove => None,
        };
        Applied {
            id: self.id.as_str().to_owned(),
            path: self.plan.place.path.clone(),
            after: if moved.is_some() { self.before } else { self.after() },
            moved_to: moved,
            before: self.before,
            guarantee: self.guarantee(),
        }
    }

    fn guarantee(&self) -> Guarantee {
        let swap = match self.stand {
            Stand::Swapped(swap) => swap,
            Stand::Before | Stand::Same => None,
        };
        let second_look = self.target.is_none() || !self.needs_journal() || self.kept_in_stage();
        Guarantee::of(swap, self.quiet == Quiet::Held, second_look)
    }

    fn kept_in_stage(&self) -> bool {
        let at = self.staged.as_ref().map(|staged| &staged.spot).or(self.kept.as_ref());
        at.is_none_or(|spot| !spot.name().as_encoded_bytes().starts_with(b".tollgate-"))
    }

    pub(crate) fn line(&self, workspace: &Workspace, author: Author<'_>) -> Entry {
        let Plan { place, deed, .. } = &self.plan;
        let after = if matches!(deed, Deed::MoveTo(_)) { self.before } else { self.after() };
        let mut payload = mutation_payload(&self.id, author.tool, &place.relative, self.before, after);
        if let Deed::MoveTo(to) = deed {
            payload["moved_to"] = to.relative.display().to_string().into();
        }
        payload["guarantee"] = serde_json::json!(self.guarantee());
        if self.kept_owner == Kept::NotOwner {
            payload["owner"] = "changed".into();
        }
        author.entry(workspace, ActionType::Mutation, payload, serde_json::json!({"status": "APPLIED"}))
    }

    /// After the commit point: what came out is left for its second look.
    pub(crate) fn finish(&mut self, workspace: &Workspace) -> Result<()> {
        if let Some(intent) = self.intent.take() {
            intent.remove()?;
        }
        if self.stand == Stand::Same {
            self.discard_unexposed();
            return Ok(());
        }
        let displaced = self.target.is_some();
        self.target = None;
        let Some(spot) = self.staged.as_ref().map(|staged| &staged.spot).or(self.kept.as_ref()) else {
            return Ok(());
        };
        if !displaced {
            // A new file has been linked to its place; the name in the stage is not needed any more.
            return spot.remove();
        }
        if self.kept_in_stage() {
            workspace.await_second_look(Displaced { name: spot.name().to_owned(), stage: self.stage_name() });
            return Ok(());
        }
        workspace.keep_copy(spot, &self.stage_name())
    }
}

/// Without a lease a hash may be of a file that is just being written. It counts if it is still the same a little later.
fn settled(target: &mut Target, digest: Digest) -> Result<bool> {
    std::thread::sleep(std::time::Duration::from_millis(20));
    target.refresh()?;
    Ok(target.hash()? == digest)
}

fn present_at(spot: &Spot) -> Result<Option<Digest>> {
    match spot.open()? {
        Found::File(target) => target.hash().map(Some),
        Found::Nothing | Found::Unreadable | Found::NotAFile => Ok(None),
    }
}

fn gone_is_none<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Fault::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// The name of a staged file. A path that is too long for a name is written to `.tollgate/paths/`, once and for good.
fn stage_file_name(workspace: &Workspace, stage: &StageName) -> Result<OsString> {
    if let Some(name) = stage.file_name() {
        return Ok(name);
    }
    let TargetName::Path(path) = &stage.target else {
        return Err(Fault::invalid("the name of a staged file is too long"));
    };
    let hash = workspace.remember_path(path)?;
    let stage = StageName { target: TargetName::Hashed(hash), ..stage.clone() };
    stage.file_name().ok_or_else(|| Fault::invalid("the name of a staged file is too long"))
}

/// Undoes a swap: what came out goes back to the path, unless somebody has saved over our bytes meanwhile: then theirs
/// is the newest and stays, and what came out is kept in recovery. What is left in the stage is settled.
pub(crate) fn put_back(
    workspace: &Workspace,
    spot: &Spot,
    staged: &Spot,
    ours: &dyn Fn(&Spot) -> Result<bool>,
) -> Result<()> {
    // What the previous swap put at the path. Open, so that its inode number stays its own.
    let mut put_before: Option<Target> = None;
    // Each round ends it unless another foreign save comes in within microseconds.
    for _ in 0..64 {
        let Found::File(put) = staged.open()? else { break };
        match gone_is_none(staged.swap(spot))? {
            // Our bytes were deleted at the path. Whoever did that wanted no file there.
            None => break,
            Some(_) if ours(staged)? => return workspace.settle(staged),
            Some(_) => {}
        }
        // Not ours but a foreign save, newer than what we have just put in its place: swap again. When what we put in
        // comes out again, nobody has saved in between, and the newest save is at the path.
        if put_before.as_ref().is_some_and(|before| before.is_at(staged).unwrap_or(false)) {
            break;
        }
        put_before = Some(put);
    }
    workspace.keep_foreign(staged)
}

/// Does the last step of a swap in steps, if a crash has left it out: what was set aside is what came out. Says whether it did.
pub(crate) fn finish_swap(staged: &Spot) -> Result<bool> {
    let replaces = StageName::parse(staged.name()).is_none_or(|stage| stage.base != FileState::Absent);
    if !replaces || staged.inode()?.is_some() {
        return Ok(false);
    }
    Ok(gone_is_none(staged.beside(aside_name(staged.name())).rename(staged))?.is_some())
}

/// Undoes a creation: takes our file away from the path, unless it is another file by now.
pub(crate) fn take_back(
    workspace: &Workspace,
    spot: &Spot,
    staged: &Spot,
    ours: &dyn Fn(&Spot) -> Result<bool>,
) -> Result<()> {
    // First away, then look: between a look and a removal a foreign save could slip in and be removed.
    let aside = staged.beside(aside_name(staged.name()));
    if gone_is_none(spot.rename_new(&aside))? == Some(true) {
        if ours(&aside)? {
            if staged.is_same_file(&aside)? {
                // Two names of one file; the other one stays for the second look.
                aside.remove()?;
            } else {
                aside.rename(staged)?;
            }
        } else {
            if staged.is_same_file(&aside)? {
                // Somebody has written into our file. It is theirs now, and a second name would make it hard-linked.
                staged.remove()?;
            }
            if !aside.rename_new(spot)? {
                workspace.keep_foreign(&aside)?;
            }
        }
    }
    workspace.settle(staged)
}

/// Undoes a removal, unless there is a new file by now.
pub(crate) fn give_back(workspace: &Workspace, spot: &Spot, kept: &Spot) -> Result<()> {
    if kept.rename_new(spot)? { Ok(()) } else { workspace.keep_foreign(kept) }
}

pub(crate) fn remove_folder(workspace: &Workspace, folder: &Path) -> Result<()> {
    let Some(name) = folder.file_name() else { return Ok(()) };
    let parent = folder.parent().unwrap_or(Path::new(""));
    match gone_is_none(workspace.root().open_below(parent))? {
        Some(parent) => parent.spot(name).remove_empty_folder(),
        None => Ok(()),
    }
}

impl Workspace {
    /// Writes down a path that is too long for a name. The same path always gets the same hash.
    fn remember_path(&self, path: &Path) -> Result<Digest> {
        use std::os::unix::ffi::OsStrExt;
        let hash = Digest::of(path.as_os_str().as_bytes());
        let folder = self.state().open_below(Path::new("paths"))?;
        let spot = folder.spot(hash.to_string());
        if spot.inode()?.is_none() {
            let unfinished = folder.spot(format!("tmp-{}", crate::name::random_id()?));
            let durability = self.settings().guard.durability;
            let file = unfinished.create(Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP)?;
            file.write(path.as_os_str().as_bytes())?;
            file.flush(durability)?;
            unfinished.rename(&spot)?;
            folder.flush(durability)?;
        }
        Ok(hash)
    }

    /// The path behind a name.
    pub(crate) fn target_path(&self, target: &TargetName) -> Result<std::path::PathBuf> {
        use std::os::unix::ffi::OsStringExt;
        match target {
            TargetName::Path(path) => Ok(path.clone()),
            TargetName::Hashed(hash) => {
                let file = self.state_path().join("paths").join(hash.to_string());
                Ok(OsString::from_vec(std::fs::read(&file).at("read", &file)?).into())
            }
        }
    }

    /// The place behind a relative path that was written down earlier.
    pub(crate) fn place_of(&self, relative: &Path) -> Place {
        Place {
            path: crate::path::FilePath::trusted(self.path().join(relative)),
            relative: relative.to_owned(),
            name: relative.file_name().unwrap_or_default().to_owned(),
            missing: Vec::new(),
        }
    }
}
