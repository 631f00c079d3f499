//! From the store to the disk: what the store has of one task gets its file.
//!
//! A file gets its bytes by a rename of a complete file. It replaces only a file that has the bytes that the view last wrote:
//! the two are exchanged, and the replaced one is looked at again before it is deleted. If a person was faster, their bytes
//! are kept.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::folder_view::{FolderView, ViewTrouble};
use super::notes::{BegunWrite, ShownTask};
use super::notice::Notice;
use super::view_files::{LONGEST_FILE, too_long};
use crate::folder::disk::{ExchangeResult, Moved};
use crate::state::{Slot, State};
use crate::store::Task;
use crate::vault::{TRIES, restless};
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::name::random_id;
use tollgate_base::private;
use tollgate_base::task::TaskName;

/// The pause before a task is looked at again that somebody changed at this moment.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// For how long a person who saves a file may have opened it before the view replaced it. Longer than most people edit a task;
/// somebody who did see the new text gets a copy that they do not need.
const OPEN: Duration = Duration::from_secs(600);

/// A task of the store with its text.
pub(super) struct FetchedTask {
    pub(super) task: Task,
    pub(super) text: Vec<u8>,
    pub(super) sha256: Digest,
}

impl FetchedTask {
    /// Whether this is what a person saw here.
    pub(super) fn is(&self, slot: &Slot, sha256: Digest) -> bool {
        self.task.slot == *slot && self.sha256 == sha256
    }
}

impl FolderView {
    /// What the store has of a task in one state.
    pub(super) fn fetch(&self, task: &TaskName, state: State) -> Result<Option<FetchedTask>, ViewTrouble> {
        for _ in 0..TRIES {
            let store = self.vault.store();
            let found = store.get(task, Some(state), self.now()).map_err(ViewTrouble::ByStore)?;
            let Some(found) = found else { return Ok(None) };
            if let Some(text) = store.read(&found, LONGEST_FILE + 1).map_err(ViewTrouble::ByStore)? {
                if text.len() as u64 > LONGEST_FILE {
                    return Err(too_long("its text in the store", "shorten it there").into());
                }
                let sha256 = Digest::of(&text);
                return Ok(Some(FetchedTask { task: found, text, sha256 }));
            }
        }
        Err(restless(task).into())
    }

    /// Shows what the store has of a task in one state. Files that are missing stay missing if nothing is new: `people`
    /// decides what that means.
    pub(super) fn show(&mut self, task: &TaskName, state: State) -> Result<(), ViewTrouble> {
        let found = self.fetch(task, state)?;
        let known = self.notes.get(task, state).cloned();
        let is_elsewhere =
            |known: &ShownTask| found.as_ref().is_none_or(|found| found.task.slot != known.slot);
        if let Some(known) = known.as_ref().filter(|known| is_elsewhere(known)) {
            self.take_away(known)?;
        }
        match found {
            Some(found) => Ok(self.put(task, &found)?),
            None => Ok(()),
        }
    }

    /// Writes the file of a task.
    pub(super) fn put(&mut self, task: &TaskName, found: &FetchedTask) -> Result<()> {
        let FetchedTask { task: Task { slot, modified, .. }, text, sha256 } = found;
        let known = self.notes.get(task, slot.state()).filter(|known| known.slot == *slot).cloned();
        let here = self.files.look(task, slot, self.now())?.map(|file| file.sha256);
        let was = match (here, &known) {
            (Some(here), _) if here == *sha256 => return self.note(task, slot, here.into(), *modified),
            (Some(here), Some(known)) if here == known.sha256 => {
                self.may_be_open(task, slot.state());
                Some(here)
            }
            // Nothing is in it that could be lost. If somebody is about to write to it, that file is kept.
            (Some(here), _) if here == Digest::of(b"") => Some(here),
            // A person was faster.
            (Some(_), _) => {
                self.look_again(task, slot.state());
                return Ok(());
            }
            (None, Some(known)) if known.sha256 == *sha256 => return Ok(()),
            (None, _) => None,
        };
        self.write(task, slot, was, text, *modified)
    }

    /// Gives a place these bytes, if it still has those with the digest `was`.
    pub(super) fn write(
        &mut self,
        task: &TaskName,
        slot: &Slot,
        was: Option<Digest>,
        text: &[u8],
        modified: Timestamp,
    ) -> Result<()> {
        let (path, id, sha256) = (self.files.path(task, slot), random_id()?, Digest::of(text));
        let stage = self.files.stage(&id);
        let file = self.files.disk.create(&stage, text)?;
        if slot.agent().is_some() {
            // Its agent works on it; what people write here cannot become a change.
            self.files.disk.make_read_only(&file, &stage)?;
        }
        let begun = BegunWrite { task: task.clone(), slot: slot.clone(), was, new: Some(sha256), stage: id };
        self.notes.begin(begun)?;
        let exchanged = match was {
            Some(_) => self.files.disk.exchange(&stage, &path)?,
            None => match self.files.disk.transfer(&stage, &path, 0)? {
                Moved::Done => ExchangeResult::Done,
                Moved::Taken | Moved::Missing => ExchangeResult::Missing,
            },
        };
        match (exchanged, was) {
            (ExchangeResult::Done, Some(_)) => {
                // Without it, a power failure could bring the old bytes back, and they would look like a person's edit.
                self.files.disk.sync_folder(&self.files.slot_folder(slot))?;
                self.clear(&stage, task, slot, was)?;
                self.note(task, slot, Some(sha256), modified)
            }
            (ExchangeResult::Done, None) => self.note(task, slot, Some(sha256), modified),
            (ExchangeResult::Missing, _) => {
                // First, because without a stage the change counts as made.
                self.note(task, slot, was, Timestamp::UNIX_EPOCH)?;
                self.files.disk.remove(&stage)?;
                self.look_again(task, slot.state());
                Ok(())
            }
            (ExchangeResult::Unsupported, _) => {
                self.note(task, slot, was, Timestamp::UNIX_EPOCH)?;
                self.files.disk.remove(&stage)?;
                if let Some(known) = self.notes.get(task, slot.state()).cloned() {
                    self.take_away(&known)?;
                }
                // This place is empty now, or has a person's bytes.
                if self.notes.get(task, slot.state()).is_none() {
                    self.write(task, slot, None, text, modified)?;
                }
                Ok(())
            }
        }
    }

    /// Removes the file of a task that is not there any more.
    pub(super) fn take_away(&mut self, known: &ShownTask) -> Result<()> {
        let ShownTask { task, slot, sha256, .. } = known;
        match self.files.look(task, slot, self.now())?.map(|file| file.sha256) {
            None => return self.notes.gone(task, slot.state()),
            Some(here) if here != *sha256 => {
                self.look_again(task, slot.state());
                return Ok(());
            }
            Some(_) => self.may_be_open(task, slot.state()),
        }
        self.remove(task, slot, *sha256)
    }

    /// Remembers that a person may have this file open in an editor and does not see what is there from now on.
    fn may_be_open(&mut self, task: &TaskName, state: State) {
        self.replaced.retain(|_, since| since.elapsed() < OPEN);
        self.replaced.insert((task.clone(), state), Instant::now());
    }

    /// Keeps a text that a person is about to replace, if they may not have seen it. Returns where it is kept.
    pub(super) fn keep_unseen(&self, replaced: &FetchedTask) -> Result<Option<PathBuf>> {
        let FetchedTask { task: Task { name, slot, .. }, text, .. } = replaced;
        let since = self.replaced.get(&(name.clone(), slot.state()));
        let is_unseen = since.is_some_and(|since| since.elapsed() < OPEN);
        is_unseen.then(|| self.files.keep_text(text, name)).transpose()
    }

    /// Tells the person where the text is that they have replaced; or deletes it if they have not.
    pub(super) fn unseen_was_kept(
        &mut self,
        replaced: &FetchedTask,
        kept: Option<PathBuf>,
        is_refused: bool,
    ) {
        let Task { name, slot, .. } = &replaced.task;
        match kept {
            // If this fails, there is one more copy than needed.
            Some(path) if is_refused => _ = private::remove_file(&path),
            Some(path) => {
                self.replaced.remove(&(name.clone(), slot.state()));
                self.tell(&Notice::Unseen { task: name.clone(), slot: slot.clone(), path });
            }
            None => {}
        }
    }

    /// Removes a file that should have these bytes; if it has others, they are kept.
    pub(super) fn remove(&mut self, task: &TaskName, slot: &Slot, sha256: Digest) -> Result<()> {
        let (path, id) = (self.files.path(task, slot), random_id()?);
        let stage = self.files.stage(&id);
        let begun =
            BegunWrite { task: task.clone(), slot: slot.clone(), was: Some(sha256), new: None, stage: id };
        self.notes.begin(begun)?;
        self.files.disk.transfer(&path, &stage, 0)?;
        // Without it, a power failure could bring the file back, and it would look like a new task.
        self.files.disk.sync_folder(&self.files.slot_folder(slot))?;
        self.clear(&stage, task, slot, Some(sha256))?;
        self.notes.gone(task, slot.state())
    }

    /// A person did something at this moment: looks at the task again.
    pub(super) fn look_again(&mut self, task: &TaskName, state: State) {
        self.to_do.postpone(task, [state], LOOK_AGAIN);
    }
}
