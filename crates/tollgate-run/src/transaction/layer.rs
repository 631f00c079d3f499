//! What a command changed: the private layer of its view, compared with the workspace.
//!
//! The layer has the files that the command wrote, a mark for each name that it deleted, and the folders on the way. This file
//! only looks; the guard makes the changes.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Result};
use tollgate_guard::change::{Action, Change, CommandLook, Expected, StartState};
use tollgate_guard::turn::FileState;
use tollgate_guard::workspace::Workspace;

use super::hash::{hash, hash_up_to};
use super::ignored::IgnoreRules;
use super::reads::{CommandReads, FileUse};
use super::start::{Names, changed};

/// The attributes in which the kernel keeps what it knows about the layer.
const OPAQUE: &str = "user.overlay.opaque";
const ORIGIN: &str = "user.overlay.origin";

/// The changes that were found in a layer.
#[derive(Default)]
pub(super) struct LayerChanges {
    pub(super) files: Vec<Change>,
    pub(super) folders: Vec<(PathBuf, Option<u32>)>,
    /// Files of which only the times changed.
    pub(super) times: Vec<(PathBuf, Metadata)>,
    /// New folders that git ignores.
    pub(super) ignored: Vec<PathBuf>,
    /// What cannot be brought to the workspace: sockets and pipes.
    pub(super) special: Vec<PathBuf>,
}

/// How to look at a layer.
pub(super) struct Layer<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) root: &'a Path,
    pub(super) upper: &'a Path,
    pub(super) start: i128,
    pub(super) names: Option<&'a Names>,
    pub(super) reads: &'a CommandReads,
    pub(super) rules: &'a IgnoreRules,
    pub(super) passed: &'a [PathBuf],
    /// Names that the command deleted, besides those that the layer marks.
    pub(super) gone: &'a [PathBuf],
    /// Files of which the command got a copy, with the hashes of these copies.
    pub(super) copied: Option<&'a HashMap<PathBuf, Option<Digest>>>,
    /// What a look of the command means: whether the agent knows what the command saw.
    pub(super) looked: CommandLook,
    /// What was committed from this layer before.
    pub(super) committed: &'a HashMap<PathBuf, FileState>,
}

impl Layer<'_> {
    pub(super) fn changes(&self) -> Result<LayerChanges> {
        let mut found = LayerChanges::default();
        self.folder(Path::new(""), &mut found)?;
        for path in self.gone {
            self.gone(path, self.real(path)?.as_ref(), &mut found)?;
        }
        Ok(found)
    }

    fn folder(&self, folder: &Path, found: &mut LayerChanges) -> Result<()> {
        let layer = self.upper.join(folder);
        for entry in fs::read_dir(&layer).at("list the folder", &layer)? {
            let path = folder.join(entry.at("list the folder", &layer)?.file_name());
            if self.passed.contains(&path) {
                continue;
            }
            let new = fs::symlink_metadata(self.upper.join(&path)).at("look at", self.upper.join(&path))?;
            let real = self.real(&path)?;
            let kind = new.file_type();
            if kind.is_char_device() && new.rdev() == 0 {
                self.gone(&path, real.as_ref(), found)?;
            } else if kind.is_dir() {
                self.new_folder(&path, &new, real.as_ref(), found)?;
            } else if kind.is_file() {
                self.file(&path, &new, real.as_ref(), found)?;
            } else if kind.is_symlink() {
                self.link(&path, real.as_ref(), found)?;
            } else {
                found.special.push(path);
            }
        }
        Ok(())
    }

    /// What is in the workspace at this path.
    fn real(&self, path: &Path) -> Result<Option<Metadata>> {
        let path = self.root.join(path);
        match fs::symlink_metadata(&path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            found => found.at("look at", &path).map(Some),
        }
    }

    /// The command deleted this name.
    fn gone(&self, path: &Path, real: Option<&Metadata>, found: &mut LayerChanges) -> Result<()> {
        match real {
            None => Ok(()),
            Some(real) if real.is_dir() => self.gone_folder(path, found),
            Some(_) => {
                self.push(path, Action::Delete, CommandLook::None, found);
                Ok(())
            }
        }
    }

    fn gone_folder(&self, folder: &Path, found: &mut LayerChanges) -> Result<()> {
        self.gone_below(folder, &|_| false, found)?;
        found.folders.push((folder.to_owned(), None));
        Ok(())
    }

    /// The command deleted everything in this folder, except what is kept.
    fn gone_below(
        &self,
        folder: &Path,
        is_kept: &dyn Fn(&Path) -> bool,
        found: &mut LayerChanges,
    ) -> Result<()> {
        let real = self.root.join(folder);
        for entry in fs::read_dir(&real).at("list the folder", &real)? {
            let path = folder.join(entry.at("list the folder", &real)?.file_name());
            if !is_kept(&path) {
                self.gone(&path, self.real(&path)?.as_ref(), found)?;
            }
        }
        Ok(())
    }

    fn new_folder(
        &self,
        path: &Path,
        new: &Metadata,
        real: Option<&Metadata>,
        found: &mut LayerChanges,
    ) -> Result<()> {
        let mode = new.mode() & 0o7777;
        match real {
            Some(real) if real.is_dir() => {
                if has_attribute(&self.upper.join(path), OPAQUE) {
                    // The command deleted the folder and made it again.
                    let is_kept = |path: &Path| fs::symlink_metadata(self.upper.join(path)).is_ok();
                    self.gone_below(path, &is_kept, found)?;
                }
                if real.mode() & 0o7777 != mode {
                    found.folders.push((path.to_owned(), Some(mode)));
                }
            }
            None if is_in_root(path) && self.is_passed_if_new(path) => {
                found.ignored.push(path.to_owned());
                return Ok(());
            }
            other => {
                self.gone(path, other, found)?;
                found.folders.push((path.to_owned(), Some(mode)));
            }
        }
        self.folder(path, found)
    }

    /// Whether a new folder in the root would be passed through if it had been there.
    fn is_passed_if_new(&self, folder: &Path) -> bool {
        self.rules.ignore(folder.as_os_str().as_bytes()) && self.workspace.may_pass(folder)
    }

    fn file(
        &self,
        path: &Path,
        new: &Metadata,
        real: Option<&Metadata>,
        found: &mut LayerChanges,
    ) -> Result<()> {
        let from = self.upper.join(path);
        let digest = hash(&from)?;
        if self.committed.get(path) == Some(&FileState::Present(digest)) {
            return Ok(());
        }
        if let Some(real) = real {
            if is_object_of_git(path) {
                // Its name is the hash of its content, so it is the same file.
                return Ok(());
            }
            if real.is_dir() {
                self.gone_below(path, &|_| false, found)?;
            } else if self.is_unchanged(path, real, new, digest)? {
                self.metadata(path, new, real, found);
                return Ok(());
            }
        }
        let in_place = has_attribute(&from, ORIGIN);
        let look = match self.look_of(path) {
            CommandLook::None | CommandLook::Unknown if self.is_longer(path, real, new)? => self.looked,
            look => look,
        };
        self.push(path, Action::CopyOf { file: from, digest, in_place }, look, found);
        Ok(())
    }

    /// Whether the file has the bytes that it had when the command started.
    fn is_unchanged(&self, path: &Path, real: &Metadata, new: &Metadata, digest: Digest) -> Result<bool> {
        if let Some(FileState::Present(was)) = self.was(path) {
            return Ok(was == digest);
        }
        let is_old = real.is_file() && changed(real) < self.start;
        Ok(is_old && real.len() == new.len() && hash(&self.root.join(path))? == digest)
    }

    /// The bytes did not change, but the mode or the times may have.
    fn metadata(&self, path: &Path, new: &Metadata, real: &Metadata, found: &mut LayerChanges) {
        let mode = new.mode() & 0o7777;
        if real.mode() & 0o7777 != mode {
            self.push(path, Action::SetMode(mode), self.looked, found);
        } else if (real.mtime(), real.mtime_nsec()) != (new.mtime(), new.mtime_nsec()) {
            found.times.push((path.to_owned(), new.clone()));
        }
    }

    /// Whether the command only added to the end of the file: what was there stays.
    fn is_longer(&self, path: &Path, real: Option<&Metadata>, new: &Metadata) -> Result<bool> {
        let Some(real) = real.filter(|real| real.is_file() && changed(real) < self.start) else {
            return Ok(false);
        };
        if new.len() < real.len() {
            return Ok(false);
        }
        let old = self.root.join(path);
        let open = |path: &Path| File::open(path).at("open", path);
        let hash_of = |file: File| hash_up_to(&file, real.len()).at("read", &old);
        Ok(hash_of(open(&old)?)? == hash_of(open(&self.upper.join(path))?)?)
    }

    fn link(&self, path: &Path, real: Option<&Metadata>, found: &mut LayerChanges) -> Result<()> {
        let read = |path: &Path| fs::read_link(path).at("read", path);
        let text = read(&self.upper.join(path))?;
        let digest = Digest::of(text.as_os_str().as_bytes());
        if self.committed.get(path) == Some(&FileState::Present(digest)) {
            return Ok(());
        }
        match real {
            Some(real) if real.is_dir() => self.gone_below(path, &|_| false, found)?,
            Some(real) if real.is_symlink() && read(&self.root.join(path))? == text => return Ok(()),
            _ => {}
        }
        let text = text.into_os_string().into_encoded_bytes();
        self.push(path, Action::Link(text), self.look_of(path), found);
        Ok(())
    }

    fn push(&self, path: &Path, action: Action, look: CommandLook, found: &mut LayerChanges) {
        let expected = match self.committed.get(path) {
            Some(FileState::Absent) if action == Action::Delete => return,
            // The command wrote it before.
            Some(state) => Expected::state(*state),
            None => {
                // An agent does not look at files of git, and git compares them itself.
                let look = if is_of_git(path) { self.looked } else { look };
                Expected::AtStart(StartState { start: self.start, was: self.was(path) }, look)
            }
        };
        found.files.push(Change::new(path, action).expecting(expected));
    }

    /// Whether the command looked at this file. One that did not look does not know what it replaces.
    fn look_of(&self, path: &Path) -> CommandLook {
        match self.use_of(path) {
            Some(touched) if touched.looked => self.looked,
            Some(touched) if touched.unsure => CommandLook::Unknown,
            _ => CommandLook::None,
        }
    }

    /// What the command did to this file. `None` if nobody knows.
    fn use_of(&self, path: &Path) -> Option<FileUse> {
        self.names.and_then(|names| self.reads.of(names, path))
    }

    /// What was at this path when the command started: see [`StartState::was`].
    fn was(&self, path: &Path) -> Option<FileState> {
        let copied = self.copied.and_then(|copied| copied.get(path).copied().flatten());
        let at_start = copied.or_else(|| self.use_of(path).and_then(|touched| touched.at_start));
        match (at_start, self.names.and_then(|names| names.has(path))) {
            (Some(digest), _) => Some(FileState::Present(digest)),
            (None, Some(true)) => Some(FileState::Unreadable),
            (None, Some(false)) => Some(FileState::Absent),
            (None, None) => None,
        }
    }
}

fn is_in_root(path: &Path) -> bool {
    path.components().count() == 1
}

fn is_of_git(path: &Path) -> bool {
    path.iter().any(|part| part == ".git")
}

fn is_object_of_git(path: &Path) -> bool {
    let mut parts = path.iter().skip_while(|part| *part != ".git");
    parts.any(|part| part == "objects")
}

fn has_attribute(path: &Path, name: &str) -> bool {
    let mut value = [0; 512];
    rustix::fs::lgetxattr(path, name, &mut value).is_ok_and(|length| length > 0)
}
