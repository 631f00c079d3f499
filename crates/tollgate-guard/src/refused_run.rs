//! What a refused command wanted to change in the workspace, so that its work is not lost.
//!
//! The layer of a refused command is deleted, so its files go to the store of contents. A command that also changed git's own data is
//! left out as a whole: git has to make such a change itself. Links, modes and large files are left out one by one.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::commit::{NewContent, Operation, Plan};
use crate::conflict::{WantedChange, WantedRun, keep_run};
use crate::content;
use crate::disk::Found;
use crate::on_disk::{OnDisk, on_disk};
use crate::path::FilePath;
use crate::protected::is_of_git;
use crate::refusal::{Reason, Refused};
use crate::request::Request;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::settings::Durability;

/// The number of bytes that are kept of one run: as many as the store may have by default, divided by four.
const MOST: u64 = 64 << 20;

/// The number of files that are kept of one run. A command that changes more is a checkout or a build.
const FILES: usize = 1_000;

/// The changes of a command before it is known whether they are made.
pub(crate) struct RunWork {
    /// Each file, with what the command has written, and its hash.
    files: Vec<(FilePath, Option<(PathBuf, Digest)>)>,
    left_out: usize,
}

impl RunWork {
    /// `None` if nothing of it can be kept.
    pub(crate) fn of<'p>(plans: impl Iterator<Item = &'p Plan>) -> Option<Self> {
        let mut work = Self { files: Vec::new(), left_out: 0 };
        for plan in plans {
            if is_of_git(&plan.place.relative) {
                return None;
            }
            let wrote = match &plan.operation {
                Operation::Put { content: NewContent::Copy(from), digest } => Some((from.clone(), *digest)),
                Operation::Remove => None,
                _ => {
                    work.left_out += 1;
                    continue;
                }
            };
            work.files.push((plan.place.path().clone(), wrote));
        }
        (!work.files.is_empty() && work.files.len() <= FILES).then_some(work)
    }

    /// Keeps the bytes. Nothing if the command was refused for something else than a stale file that it changed: then its other changes
    /// may be wrong, too.
    pub(crate) fn keep(self, request: &Request<'_>, refused: &Refused) -> Result<()> {
        let is_ours = |path: &FilePath| self.files.iter().any(|(file, _)| file == path);
        let refusals = refused.refusals();
        if !refusals
            .iter()
            .all(|refusal| matches!(refusal.reason, Reason::Stale(_)) && is_ours(&refusal.path))
        {
            return Ok(());
        }
        let mut run = WantedRun { files: Vec::new(), left_out: self.left_out };
        let mut room = MOST;
        for (path, wrote) in self.files {
            let disk = on_disk(request.root, &path, 0)?;
            let stale = refusals.iter().find(|refusal| refusal.path == path);
            let from = match stale {
                Some(refusal) => refusal.hashes().0,
                None => disk.as_ref().map(|disk| disk.digest),
            };
            let to = match wrote {
                Some((file, digest)) if keeps(request, &file, disk.as_ref(), &mut room)? => Some(digest),
                Some(_) => {
                    run.left_out += 1;
                    continue;
                }
                None => None,
            };
            match str::from_utf8(request.key(&path).as_os_str().as_bytes()) {
                Ok(name) => run.files.push(WantedChange { path: name.to_owned(), from, to }),
                Err(_) => run.left_out += 1,
            }
        }
        run.files.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        keep_run(request, refused, run)
    }
}

/// Keeps the bytes of a file that a command has written. `false` if they are too many, or the file would get another mode.
fn keeps(request: &Request<'_>, file: &Path, disk: Option<&OnDisk>, room: &mut u64) -> Result<bool> {
    let Found::File(found) = request.root.spot_of_command(file)?.open()? else { return Ok(false) };
    let may_execute = found.as_model().mode() & 0o100 != 0;
    let is_link = disk.is_some_and(|disk| disk.is_link);
    if is_link || may_execute != disk.is_some_and(|disk| disk.is_executable) {
        return Ok(false);
    }
    let Some(left) = room.checked_sub(found.len()) else { return Ok(false) };
    *room = left;
    let (bytes, _) = found.read()?;
    content::put(request.root, &bytes, None, Durability::Fast)?;
    Ok(true)
}
