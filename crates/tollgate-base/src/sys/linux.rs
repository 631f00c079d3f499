//! What only Linux can: leases on files, opening a path without following links in one call, and descriptors that stand for a
//! path.
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::{Errno, retry_on_intr};

use super::kernel::{F_GETLEASE, F_SETLEASE, F_SETSIG, lease};

/// How a folder is opened to work on names in it, or to go on to a folder in it. Others may own the folders above the state,
/// and let nobody list them.
pub(crate) const WAY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// Leaves the access time as it is. Only the owner of a file may.
pub(crate) const NO_ATIME: OFlags = OFlags::NOATIME;

/// A file can be made quiet here.
pub const HAS_LEASES: bool = true;

/// Takes a read lease. The kernel grants it only while nobody has the file open for writing or mapped writable. From then
/// on, a process that opens the file for writing must wait until we return the lease (at most 45 s by the kernel's
/// default). A file with such a lease is "quiet".
pub fn take_read_lease(file: &File) -> io::Result<()> {
    // By default, the kernel announces a broken lease with SIGIO, which would end the process. SIGURG is ignored.
    lease(file, F_SETSIG, libc::SIGURG)?;
    lease(file, F_SETLEASE, libc::F_RDLCK as libc::c_int)?;
    Ok(())
}

/// Whether the lease is still in force.
pub fn has_read_lease(file: &File) -> io::Result<bool> {
    Ok(lease(file, F_GETLEASE, 0)? == libc::F_RDLCK as libc::c_int)
}

/// Returns the lease.
pub fn drop_lease(file: &File) -> io::Result<()> {
    lease(file, F_SETLEASE, libc::F_UNLCK as libc::c_int).map(drop)
}

/// Opens a path on which no part is a link. `None` where the call is missing: an old kernel, or a sandbox that forbids it.
pub(crate) fn open_without_links(
    path: &Path,
    flags: OFlags,
    mode: Mode,
) -> Option<rustix::io::Result<OwnedFd>> {
    match retry_on_intr(|| rustix::fs::openat2(CWD, path, flags, mode, ResolveFlags::NO_SYMLINKS)) {
        Err(Errno::NOSYS | Errno::PERM) => None,
        opened => Some(opened),
    }
}

/// What is in a folder that nobody has listed by this descriptor.
///
/// The kernel fills a buffer as large as that of the C library. Others rename files at the same time, such as a full file of the
/// ledger, and between two calls a renamed file can be missed under both names. Most folders fit into one call.
pub(crate) fn each_entry(folder: &OwnedFd, mut each: impl FnMut(&[u8], FileType)) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(32 << 10);
    let mut entries = RawDir::new(folder, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        match entry {
            Ok(entry) => each(entry.file_name().to_bytes(), entry.file_type()),
            Err(Errno::INTR) => {}
            // The folder was deleted in the meantime.
            Err(Errno::NOENT) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The path in a symbolic link that is open. `None` if that can no longer be found out, because the link was replaced.
pub fn link_text(link: &OwnedFd, _folder: impl AsFd, _name: &OsStr) -> rustix::io::Result<Option<Vec<u8>>> {
    Ok(Some(rustix::fs::readlinkat(link, "", Vec::new())?.into_bytes()))
}

/// The metadata of what has this name in a folder. Links are not followed.
pub fn metadata(folder: impl AsFd, name: &OsStr, _shown: &Path) -> io::Result<Metadata> {
    // A handle that cannot read: it needs no permission on the file and does not wait for a FIFO.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(folder, name, flags, Mode::empty())?;
    File::from(fd).metadata()
}
