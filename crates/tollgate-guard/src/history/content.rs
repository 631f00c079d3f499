//! The bytes that a hash names: in the file on disk, or kept.

use std::collections::HashMap;
use std::path::PathBuf;

use super::step::Step;
use crate::disk::Found;
use crate::path::FilePath;
use crate::root::Root;
use crate::turn::TEXT_PER_FILE;
use crate::workspace::Workspace;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;

/// Finds bytes by their hash.
pub struct Contents<'a> {
    workspace: &'a Workspace,
    /// The paths at which steps have left these bytes.
    left: HashMap<Digest, Vec<String>>,
}

impl<'a> Contents<'a> {
    /// Looks in this workspace.
    pub fn of(workspace: &'a Workspace) -> Self {
        Self { workspace, left: HashMap::new() }
    }

    /// Also looks at the files in which these steps have left bytes, as far as they are still there.
    #[must_use]
    pub fn left_by<'s>(mut self, steps: impl IntoIterator<Item = &'s Step>) -> Self {
        for step in steps {
            for (path, _, after) in step.effects() {
                if let Some(digest) = after {
                    self.left.entry(digest).or_default().push(path.to_owned());
                }
            }
        }
        self
    }

    /// The bytes with this hash; `None` if they are no longer kept.
    pub fn find(&self, digest: Digest) -> Result<Option<Vec<u8>>> {
        for path in self.left.get(&digest).into_iter().flatten() {
            let has_it = |found: &OnDisk| found.digest == digest;
            let Some(found) = self.text_on_disk(path)?.filter(has_it) else { continue };
            // A large file is only read if it has these bytes.
            let found = if found.bytes.is_none() { self.on_disk(path)?.filter(has_it) } else { Some(found) };
            if let Some(bytes) = found.and_then(|found| found.bytes) {
                return Ok(Some(bytes));
            }
        }
        Ok(self.workspace.content(digest)?.bytes())
    }

    /// The file that the ledger calls this, as it is now; `None` if there is none.
    pub fn on_disk(&self, name: &str) -> Result<Option<OnDisk>> {
        self.look(name, u64::MAX)
    }

    /// The same, without its bytes if they are too many for a diff.
    pub fn text_on_disk(&self, name: &str) -> Result<Option<OnDisk>> {
        self.look(name, TEXT_PER_FILE as u64)
    }

    fn look(&self, name: &str, most: u64) -> Result<Option<OnDisk>> {
        let mut found = on_disk(self.workspace, &FilePath::trusted(self.path(name)), most)?;
        if let Some(link) = found.as_mut().filter(|found| found.is_link) {
            link.bytes = None;
        }
        Ok(found)
    }

    /// The absolute path of a file that the ledger calls this.
    pub fn path(&self, name: &str) -> PathBuf {
        self.workspace.path().join(name)
    }
}

/// A file on disk, or a symbolic link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnDisk {
    /// The hash of its bytes; of a symbolic link, that of the path in it.
    pub digest: Digest,
    /// Its bytes, unless they are more than was asked for.
    pub bytes: Option<Vec<u8>>,
    /// Whether it is a symbolic link. [`Contents`] gives no bytes of these.
    pub is_link: bool,
    /// Whether its user may execute it.
    pub is_executable: bool,
}

/// The file at a path, with its bytes if they are at most so many. `None` if there is none.
pub(crate) fn on_disk(root: &Root, path: &FilePath, most: u64) -> Result<Option<OnDisk>> {
    let Some(spot) = root.spot_anywhere(path)? else { return Ok(None) };
    let Found::File(file) = spot.open_itself()? else { return Ok(None) };
    let (is_link, is_executable) = (file.is_link(), file.as_model().mode() & 0o100 != 0);
    let (digest, bytes) = if file.len() <= most {
        let (bytes, digest) = file.read()?;
        (digest, Some(bytes))
    } else {
        (file.hash()?, None)
    };
    Ok(Some(OnDisk { digest, bytes, is_link, is_executable }))
}
