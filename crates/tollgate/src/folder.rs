//! Folders: listing them, looking at what is in them, making and moving them.
//!
//! A folder has no bytes to lose, so nothing here is compared with a baseline. What holds is the border: every path is
//! located first and then opened below the root with links forbidden, and `.tollgate` and its like are not touched.
//! A folder that moves takes along what the turn knows of the files in it; who else knew them finds them missing.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType};
use serde_json::{Value, json};

use crate::commit::{Journal, JournalContent, remove_folder};
use crate::disk::Folder;
use crate::error::{At, Fault, Result};
use crate::gate::Gate;
use crate::guard::{Outcome, Refused, Request};
use crate::ledger::{ActionType, Entry};
use crate::path::FilePath;
use crate::place::{Located, Place};
use crate::refusal::{Reason, Refusal};
use crate::stage::ChangeId;
use crate::turn::{FileState, Sightings};
use crate::workspace::{STATE_FOLDER, Workspace};

/// What a name in a folder stands for. Links are not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A FIFO, a socket, a device.
    Other,
}

/// A name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The name.
    pub name: OsString,
    /// What it stands for.
    pub kind: Kind,
}

/// What is in a folder, in the order of the names' bytes. The state of tollgate itself is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The folder.
    pub path: FilePath,
    /// What is in it.
    pub entries: Vec<Named>,
}

/// What is known of a file or folder without reading it.
#[derive(Debug, Clone)]
pub struct Look {
    /// Where the path leads.
    pub path: FilePath,
    /// What the system says of it.
    pub metadata: Metadata,
}

impl Workspace {
    /// Lists a folder.
    pub fn list(&self, path: impl AsRef<Path>) -> Result<Outcome<Listing>> {
        let (path, below) = match self.locate(path.as_ref())? {
            Located::Inside(place) => (place.path, place.relative),
            Located::Root(path) => (path, PathBuf::new()),
            Located::Outside(path) => return Ok(outside(path)),
        };
        let entries = self.entries(&below)?;
        Ok(Outcome::Done(Listing { path, entries }))
    }

    /// Looks at a file or a folder. A link is followed, if it stays in the workspace.
    pub fn look_at(&self, path: impl AsRef<Path>) -> Result<Outcome<Look>> {
        let place = match self.locate(path.as_ref())? {
            Located::Inside(place) => place,
            Located::Root(path) => {
                let metadata = std::fs::metadata(&path).at("look at", &path)?;
                return Ok(Outcome::Done(Look { path, metadata }));
            }
            Located::Outside(path) => return Ok(outside(path)),
        };
        let missing = || Fault::Missing { what: format!("`{}`", place.path) };
        if !place.missing.is_empty() {
            return Err(missing());
        }
        let folder = self.root().open_below(place.relative.parent().unwrap_or(Path::new("")))?;
        match metadata_in(&folder, &place) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(missing()),
            answer => {
                let metadata = answer.at("look at", &place.path)?;
                Ok(Outcome::Done(Look { path: place.path, metadata }))
            }
        }
    }

    fn entries(&self, below: &Path) -> Result<Vec<Named>> {
        let folder = self.root().open_below(below)?;
        let read = || -> std::io::Result<Vec<Named>> {
            let mut entries = Vec::new();
            for entry in Dir::read_from(folder.as_fd())? {
                let entry = entry?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if name == "." || name == ".." || (name == STATE_FOLDER && below.as_os_str().is_empty()) {
                    continue;
                }
                let kind = match entry.file_type() {
                    // Some file systems do not say.
                    FileType::Unknown => {
                        match rustix::fs::statat(folder.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
                            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                            // Gone since.
                            Err(_) => continue,
                        }
                    }
                    known => known,
                };
                let kind = match kind {
                    FileType::RegularFile => Kind::File,
                    FileType::Directory => Kind::Folder,
                    FileType::Symlink => Kind::Link,
                    _ => Kind::Other,
                };
                entries.push(Named { name: name.to_owned(), kind });
            }
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(entries)
        };
        read().at("list the folder", folder.shown())
    }

    /// Everything below a folder but folders, relative to the workspace.
    fn files_below(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for Named { name, kind } in self.entries(&folder)? {
                let path = folder.join(name);
                if kind == Kind::Folder { folders.push(path) } else { found.push(path) }
            }
        }
        Ok(found)
    }

    /// Makes these folders, outermost first, each in one that exists.
    fn make_folders(&self, folders: &[PathBuf]) -> Result<()> {
        for relative in folders {
            let (Some(parent), Some(name)) = (relative.parent(), relative.file_name()) else { continue };
            let parent = self.root().open_below(parent)?;
            if parent.spot(name).make_folder()? {
                // Without it a power cut could take away a folder that was acknowledged, and what is put into it.
                parent.flush(self.settings().guard.durability)?;
            }
        }
        Ok(())
    }
}

fn outside<T>(path: FilePath) -> Outcome<T> {
    Outcome::Refused(Refused::unrecorded(Refusal::new(path, Reason::Outside)))
}

#[cfg(target_os = "linux")]
fn metadata_in(folder: &Folder, place: &Place) -> std::io::Result<Metadata> {
    use rustix::fs::{Mode, OFlags};
    // A handle that reads nothing: permissions of the file do not matter, and no FIFO is waited for.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(folder.as_fd(), &place.name, flags, Mode::empty())?;
    std::fs::File::from(fd).metadata()
}

#[cfg(not(target_os = "linux"))]
fn metadata_in(_: &Folder, place: &Place) -> std::io::Result<Metadata> {
    std::fs::symlink_metadata(place.path.as_path())
}

impl Gate {
    /// Makes a folder and those on the way to it. Nothing happens if it is there.
    pub fn create_folder(&self, turn: &dyn Sightings, path: impl AsRef<Path>) -> Result<Outcome<FilePath>> {
        let workspace = self.workspace();
        let request = Request { workspace, turn, tool: "create_directory" };
        let located = workspace.locate(path.as_ref())?;
        if let Located::Root(path) = located {
            return Ok(Outcome::Done(path));
        }
        let mut refusals = Vec::new();
        let Some(place) = free(workspace, located, &mut refusals) else {
            return request.refuse(refusals).map(Outcome::Refused);
        };
        let mut folders = place.missing.clone();
        folders.push(place.relative.clone());
        workspace.make_folders(&folders)?;
        match workspace.root().open_below(&place.relative) {
            Ok(_) => Ok(Outcome::Done(place.path)),
            Err(_) => Err(Fault::invalid(format!("`{}` exists and is not a folder", place.path))),
        }
    }

    /// Gives a folder another path, which must be free. What the turn knows of the files in it goes along.
    pub fn move_folder(
        &self,
        turn: &dyn Sightings,
        path: impl AsRef<Path>,
        to: impl AsRef<Path>,
    ) -> Result<Outcome<FilePath>> {
        let workspace = self.workspace();
        let request = Request { workspace, turn, tool: "move_file" };
        let mut refusals = Vec::new();
        let from = free(workspace, workspace.locate(path.as_ref())?, &mut refusals);
        let to = free(workspace, workspace.locate(to.as_ref())?, &mut refusals);
        let (Some(from), Some(to)) = (from, to) else {
            return request.refuse(refusals).map(Outcome::Refused);
        };
        if to.relative.starts_with(&from.relative) {
            return Err(Fault::invalid(format!("`{}` cannot be moved into itself", from.path)));
        }
        let files = workspace.files_below(&from.relative)?;
        if files.iter().any(|file| workspace.is_protected(file)) {
            let refusal = Refusal::new(from.path, Reason::Protected);
            return request.refuse(vec![refusal]).map(Outcome::Refused);
        }
        // Whoever is writing one of these files finishes first; who comes later finds them missing here.
        let mut paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
        paths.extend([from.relative.as_path(), to.relative.as_path()]);
        let locks = match request.lock(&paths, None)? {
            Ok(locks) => locks,
            Err((index, reason)) => {
                let busy = workspace.canonical(paths[index])?;
                return request.refuse(vec![Refusal::new(busy, reason)]).map(Outcome::Refused);
            }
        };
        // From here on the next process finishes or undoes what this one leaves half done.
        locks.mark()?;
        let id = ChangeId::new(workspace.now())?;
        let both = (from.relative.as_path(), to.relative.as_path());
        let journal = Journal::of_move(workspace, request.author(), &id, both, to.missing.clone())?;
        workspace.make_folders(&to.missing)?;
        let (source, target) = (from.spot(workspace.root())?, to.spot(workspace.root())?);
        if !source.rename_new(&target)? {
            for folder in to.missing.iter().rev() {
                remove_folder(workspace, folder)?;
            }
            journal.remove_for_good()?;
            locks.clear()?;
            return Err(Fault::invalid(format!("`{}` exists already", to.path)));
        }
        // Without these a power cut could bring the old name back, or lose both.
        let durability = workspace.settings().guard.durability;
        target.folder().flush(durability)?;
        source.folder().flush(durability)?;
        for file in &files {
            let Ok(rest) = file.strip_prefix(&from.relative) else { continue };
            let old = FilePath::trusted(workspace.path().join(file));
            let new = FilePath::trusted(to.path.as_path().join(rest));
            if let Some(sighting) = turn.get(&old)? {
                turn.update(&new, &mut |_| sighting)?;
                turn.wrote(&old, FileState::Absent)?;
            }
        }
        let payload = payload(id.as_str(), request.tool, both, files.len());
        let entry = request.author().entry(workspace, ActionType::Mutation, payload, applied());
        workspace.ledger().append(&[entry], workspace.ledger_flush())?;
        // It stands. An intent that stays is removed by the next process, which finds the line.
        let _ = journal.remove().and_then(|()| locks.clear());
        Ok(Outcome::Done(to.path))
    }
}

impl Workspace {
    /// The line of a folder that was moved by somebody who died before writing it. The locks of both paths are held by the
    /// caller.
    pub(crate) fn missing_line_of_folder(&self, content: &JournalContent) -> Result<Option<Entry>> {
        let [record] = content.records.as_slice() else { return Ok(None) };
        let Some(to) = record.folder_to() else { return Ok(None) };
        let there = |path: &Path| self.root().open_below(path).is_ok();
        if there(&record.path) || !there(to) {
            return Ok(None);
        }
        let files = self.files_below(to)?.len();
        let mut payload = payload(&record.id, "recovered", (&record.path, to), files);
        payload["recovered"] = true.into();
        Ok(Some(Entry {
            time: self.now(),
            agent: Some(content.agent.clone()),
            turn: content.turn.clone(),
            action_type: ActionType::Mutation,
            payload,
            result: applied(),
        }))
    }
}

/// What the ledger says of a folder that was moved.
fn payload(id: &str, tool: &str, (from, to): (&Path, &Path), files: usize) -> Value {
    json!({
        "id": id,
        "tool_name": tool,
        "target_file": from.display().to_string(),
        "moved_to": to.display().to_string(),
        "folder": true,
        "files": files,
    })
}

fn applied() -> Value {
    json!({"status": "APPLIED"})
}

/// The place, if agents may change something there.
fn free(workspace: &Workspace, located: Located, refusals: &mut Vec<Refusal>) -> Option<Place> {
    let (path, reason) = match located {
        Located::Inside(place) if workspace.is_protected(&place.relative) => (place.path, Reason::Protected),
        Located::Inside(place) => return Some(place),
        Located::Outside(path) => (path, Reason::Outside),
        Located::Root(path) => (path, Reason::Protected),
    };
    refusals.push(Refusal::new(path, reason));
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edit::Edit;
    use crate::guard::Expected;
    use crate::part::Part;
    use crate::turn::Turn;
    use crate::workspace::Options;

    fn world() -> (tempfile::TempDir, Gate, Turn) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("d/sub")).unwrap();
        std::fs::write(folder.path().join("d/sub/a"), "one").unwrap();
        std::os::unix::fs::symlink("/etc", folder.path().join("out")).unwrap();
        let gate = Gate::new(Workspace::open(folder.path(), Options::default()).unwrap());
        let turn = gate.begin_turn("blue".parse().unwrap()).unwrap();
        (folder, gate, turn)
    }

    fn done<T>(outcome: Result<Outcome<T>>) -> T {
        match outcome.unwrap() {
            Outcome::Done(done) => done,
            Outcome::Refused(refused) => panic!("{refused:?}"),
        }
    }

    #[test]
    fn the_state_is_not_listed_and_nothing_outside_is_looked_at() {
        let (_keep, gate, _turn) = world();
        let workspace = gate.workspace();
        let names: Vec<(OsString, Kind)> =
            done(workspace.list("")).entries.into_iter().map(|entry| (entry.name, entry.kind)).collect();
        assert_eq!(names, [("d".into(), Kind::Folder), ("out".into(), Kind::Link)]);
        assert!(matches!(workspace.list("out"), Ok(Outcome::Refused(_))));
        assert!(matches!(workspace.look_at("out/passwd"), Ok(Outcome::Refused(_))));
        assert_eq!(done(workspace.look_at("d/sub/a")).metadata.len(), 3);
        assert!(matches!(workspace.look_at("d/gone"), Err(Fault::Missing { .. })));
    }

    #[test]
    fn a_moved_folder_takes_along_what_the_turn_knows() {
        let (keep, gate, turn) = world();
        done(gate.read(&turn, "d/sub/a", Part::Whole));
        std::fs::write(keep.path().join("d/sub/a"), "foreign").unwrap();
        done(gate.move_folder(&turn, "d", "x/y"));
        let refused = gate.write(&turn, "x/y/sub/a", "mine", Expected::Baseline).unwrap();
        assert!(matches!(refused, Outcome::Refused(_)), "the foreign change is still not known");
        done(gate.create_folder(&turn, "d"));
        assert!(gate.move_folder(&turn, "d", "x/y").is_err(), "nothing is moved over something else");
        assert!(gate.move_folder(&turn, "x", "x/y/z").is_err());
        assert!(matches!(gate.move_folder(&turn, ".tollgate", "t"), Ok(Outcome::Refused(_))));
    }

    #[test]
    fn a_preview_is_not_a_read() {
        let (keep, gate, turn) = world();
        done(gate.read(&turn, "d/sub/a", Part::Whole));
        std::fs::write(keep.path().join("d/sub/a"), "one two").unwrap();
        let preview = done(gate.preview("d/sub/a", &[Edit::once("one", "1")]));
        assert_eq!((preview.before.as_slice(), preview.after.as_slice()), (&b"one two"[..], &b"1 two"[..]));
        let refused = gate.write(&turn, "d/sub/a", "1", Expected::Baseline).unwrap();
        assert!(matches!(refused, Outcome::Refused(_)));
    }
}
