//! The bytes that a hash names: in the file on disk, or kept.

use std::collections::HashMap;
use std::path::PathBuf;

use super::step::Step;
pub use crate::on_disk::OnDisk;
use crate::on_disk::on_disk;
use crate::path::FilePath;
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
