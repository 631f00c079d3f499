//! The bytes that a hash names: in the file on disk, or kept.

use std::collections::HashMap;
use std::path::PathBuf;

use super::step::Step;
use crate::disk::Found;
use crate::path::FilePath;
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
            if let Some(OnDisk { digest: found, bytes: Some(bytes) }) = self.on_disk(path)?
                && found == digest
            {
                return Ok(Some(bytes));
            }
        }
        Ok(self.workspace.content(digest)?.bytes())
    }

    /// The file that the ledger calls this, as it is now; `None` if there is none.
    pub fn on_disk(&self, name: &str) -> Result<Option<OnDisk>> {
        let path = FilePath::trusted(self.path(name));
        let Some(spot) = self.workspace.spot_anywhere(&path)? else { return Ok(None) };
        let Found::File(file) = spot.open_itself()? else { return Ok(None) };
        if file.is_link() {
            return Ok(Some(OnDisk { digest: file.hash()?, bytes: None }));
        }
        let (bytes, digest) = file.read()?;
        Ok(Some(OnDisk { digest, bytes: Some(bytes) }))
    }

    /// The absolute path of a file that the ledger calls this.
    pub fn path(&self, name: &str) -> PathBuf {
        self.workspace.path().join(name)
    }
}

/// A file on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnDisk {
    /// The hash of its bytes; of a symbolic link, that of the path in it.
    pub digest: Digest,
    /// Its bytes. `None` for a symbolic link.
    pub bytes: Option<Vec<u8>>,
}
