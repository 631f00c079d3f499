//! Which files were closed after writing, by whatever process.
//!
//! The kernel queues the event before the closing call returns, so a command that closes a file and opens it again is
//! understood in this order.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};

/// The folders in which the command has opened files for writing.
pub(super) struct ClosedFiles {
    events: OwnedFd,
    folders: HashMap<i32, PathBuf>,
}

impl ClosedFiles {
    pub(super) fn new() -> io::Result<Self> {
        let events = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self { events, folders: HashMap::new() })
    }

    /// From now on, notices when this file is closed after writing. If the kernel allows no more watches, the file counts as
    /// open until nobody has it open.
    pub(super) fn watch(&mut self, path: &Path) {
        let Some(folder) = path.parent() else { return };
        if let Ok(watch) = add_watch(&self.events, folder, WatchFlags::CLOSE_WRITE | WatchFlags::ONLYDIR) {
            self.folders.insert(watch, folder.to_owned());
        }
    }

    /// A watched folder, or one above it, has got another name.
    pub(super) fn moved(&mut self, from: &Path, to: &Path) {
        for folder in self.folders.values_mut() {
            if let Ok(rest) = folder.strip_prefix(from) {
                *folder = to.join(rest);
            }
        }
    }

    /// The files that were closed since the last call.
    pub(super) fn take(&mut self) -> Vec<PathBuf> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.events, &mut buffer);
        let mut closed = Vec::new();
        // An error means that there are no more events.
        while let Ok(event) = reader.next() {
            if let (Some(folder), Some(name)) = (self.folders.get(&event.wd()), event.file_name()) {
                closed.push(folder.join(OsStr::from_bytes(name.to_bytes())));
            }
        }
        closed
    }
}
