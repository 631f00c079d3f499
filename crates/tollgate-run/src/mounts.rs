//! The mounts of a process. A file has a place in its file system, whatever paths lead to it in which mount namespace.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A mount, as the kernel lists it.
pub(crate) struct Mount {
    /// The number that no other mount has, in any namespace.
    pub(crate) id: u64,
    /// Its file system.
    pub(crate) device: Vec<u8>,
    /// The folder or file of the file system that it shows.
    pub(crate) shown: PathBuf,
    /// Where it shows that.
    pub(crate) at: PathBuf,
}

/// The mounts that a process can reach, in its own words. `process`: its folder in `/proc`.
pub(crate) fn mounts_of(process: &Path) -> io::Result<Vec<Mount>> {
    let text = fs::read(process.join("mountinfo"))?;
    let mount = |line: &[u8]| {
        let mut fields = line.split(|&byte| byte == b' ');
        let id = str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let device = fields.nth(1)?.to_vec();
        let mut path = || fields.next().map(|field| PathBuf::from(unescaped(field)));
        Some(Mount { id, device, shown: path()?, at: path()? })
    };
    Ok(text.split(|&byte| byte == b'\n').filter_map(mount).collect())
}

/// The kernel writes blanks and backslashes in paths as octal numbers.
fn unescaped(path: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, after)) = rest.split_first() {
        let number =
            after.get(..3).and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        match (first, number) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_mounts_are_read_as_the_kernel_writes_them() {
        assert_eq!(unescaped(br"/a\040b\134c"), OsString::from(r"/a b\c"));
        assert_eq!(unescaped(br"/plain\"), OsString::from(r"/plain\"));
    }
}
