//! A file as it is on disk, with its bytes.

use crate::disk::Found;
use crate::path::FilePath;
use crate::root::Root;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;

/// A file on disk, or a symbolic link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnDisk {
    /// The hash of its bytes; of a symbolic link, that of the path in it.
    pub digest: Digest,
    /// Its bytes, unless they are more than was asked for.
    pub bytes: Option<Vec<u8>>,
    /// Whether it is a symbolic link. [`Contents`](crate::history::content::Contents) gives no bytes of these.
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
