//! Folders on other file systems.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A folder on a file system that ignores case: NTFS, in a file. Needs root, and the programs of the package `ntfs-3g`.
#[derive(Debug)]
pub struct IgnoresCase {
    folder: PathBuf,
}

impl IgnoresCase {
    /// Mounts it over an empty folder. `image` is a file that does not exist yet.
    pub fn over(folder: &Path, image: &Path) -> Self {
        File::create_new(image).unwrap().set_len(16 << 20).unwrap();
        done(Command::new("/usr/sbin/mkntfs").args(["-F", "-q"]).arg(image));
        done(Command::new("lowntfs-3g").args(["-o", "ignore_case"]).args([image, folder]));
        Self { folder: folder.to_owned() }
    }
}

impl Drop for IgnoresCase {
    fn drop(&mut self) {
        // A process of the test may still be in it.
        done(Command::new("umount").arg("--lazy").arg(&self.folder));
    }
}

fn done(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
