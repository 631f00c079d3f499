//! What stands in for the abilities of Linux on systems that lack them: no leases, no descriptors that stand for a path, one folder
//! after the other. It compiles on Linux, too, where the suite tests it.
//!
//! Without leases nobody can be kept from opening a file. What can be found out is who has it open already: a file that a program
//! has open for writing counts as busy, and is waited for. A memory that is mapped and whose descriptor is closed is not seen.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::retry_on_intr;

use super::kernel::is_open_for_writing;

/// How a folder is opened to work on names in it, or to go on to a folder in it.
pub(crate) const WAY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// The access time cannot be left as it is.
pub(crate) const NO_ATIME: OFlags = OFlags::empty();

/// No file can be made quiet here.
pub const HAS_LEASES: bool = false;

/// Never a lease. The error `WouldBlock`: another process has the file open for writing.
pub fn take_read_lease(file: &File) -> io::Result<()> {
    Err(match is_open_for_writing(file) {
        true => io::ErrorKind::WouldBlock.into(),
        false => io::ErrorKind::Unsupported.into(),
    })
}

/// Never.
pub fn has_read_lease(_: &File) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Nothing to do.
pub fn drop_lease(_: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// There is no such call.
pub(crate) fn open_without_links(_: &Path, _: OFlags, _: Mode) -> Option<rustix::io::Result<OwnedFd>> {
    None
}

/// How often a folder is listed that changes all the time.
const LISTINGS: usize = 16;

/// What is in a folder that nobody has listed by this descriptor.
///
/// A listing takes several calls, and a file that is renamed between two of them can be missed under both names. So the folder is
/// listed until nothing has changed.
pub(crate) fn each_entry(folder: &OwnedFd, mut each: impl FnMut(&[u8], FileType)) -> io::Result<()> {
    let mut found = list(folder)?;
    for _ in 0..LISTINGS {
        let again = list(folder)?;
        let is_same = again == found;
        found = again;
        if is_same {
            break;
        }
    }
    found.iter().for_each(|(name, kind)| each(name, *kind));
    Ok(())
}

/// The names in a folder and what they are, in order.
fn list(folder: &OwnedFd) -> io::Result<Vec<(Vec<u8>, FileType)>> {
    let mut found = Vec::new();
    for entry in retry_on_intr(|| Dir::read_from(folder))? {
        let entry = entry?;
        found.push((entry.file_name().to_bytes().to_owned(), entry.file_type()));
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(found)
}

/// The path in a symbolic link that is open. `None` if that can no longer be found out, because the link was replaced.
pub fn link_text(link: &OwnedFd, folder: impl AsFd, name: &OsStr) -> rustix::io::Result<Option<Vec<u8>>> {
    let folder = folder.as_fd();
    // The open link keeps its number, so if the name still has it, the text was that of this link.
    let text = rustix::fs::readlinkat(folder, name, Vec::new())?;
    let (open, named) =
        (rustix::fs::fstat(link)?, rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?);
    Ok(((open.st_dev, open.st_ino) == (named.st_dev, named.st_ino)).then(|| text.into_bytes()))
}

/// The metadata of what has this name in a folder. Links are not followed.
pub fn metadata(_folder: impl AsFd, _name: &OsStr, shown: &Path) -> io::Result<Metadata> {
    std::fs::symlink_metadata(shown)
}
