//! Extended attributes: `user.*`, ACLs, SELinux labels.
//!
//! Capabilities are not copied, because the kernel itself removes them from a file that is written.

use std::fs::File;

use rustix::fs::XattrFlags;
use rustix::io::{Errno, retry_on_intr};

/// Copies the attributes of one file to another, and removes `user.*` attributes that the first one lacks.
pub(super) fn copy(from: &File, to: &File) -> rustix::io::Result<()> {
    let list = |file: &File| -> rustix::io::Result<Vec<u8>> {
        let mut names = vec![0; 4096];
        loop {
            match rustix::fs::flistxattr(file, &mut names) {
                Ok(length) => {
                    names.truncate(length);
                    return Ok(names);
                }
                Err(Errno::RANGE) => names.resize(names.len() * 4, 0),
                // The file system has no attributes.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
                Err(error) => return Err(error),
            }
        }
    };
    let names = list(from)?;
    let split = |names: &[u8]| -> Vec<Vec<u8>> {
        names.split(|&byte| byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
    };
    let theirs = split(&names);
    for name in &theirs {
        if name == b"security.capability" {
            continue;
        }
        let mut value = vec![0; 64 * 1024];
        let length = match rustix::fs::fgetxattr(from, name.as_slice(), &mut value) {
            Ok(length) => length,
            Err(Errno::NODATA) => continue,
            Err(error) => return Err(error),
        };
        let copied = retry_on_intr(|| {
            rustix::fs::fsetxattr(to, name.as_slice(), &value[..length], XattrFlags::empty())
        });
        match copied {
            // Only root or the security module may set the other attributes.
            Err(_) if !name.starts_with(b"user.") && !name.starts_with(b"system.posix_acl") => {}
            answer => answer?,
        }
    }
    for extra in split(&list(to)?) {
        if extra.starts_with(b"user.") && !theirs.contains(&extra) {
            rustix::fs::fremovexattr(to, extra.as_slice())?;
        }
    }
    Ok(())
}
