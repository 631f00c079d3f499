//! Waiting for new lines of the ledger, for commands that follow it.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tollgate::ledger::Ledger;

/// The kernel announces changes. One look a second is for network folders, where it does not, and to notice that the reader
/// of stdout is gone.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Waits for new lines.
pub(crate) struct LedgerWatch {
    state: Option<PathBuf>,
    /// `None`: this system has none.
    watcher: Option<RecommendedWatcher>,
    announced: Receiver<()>,
    is_watching: bool,
}

impl LedgerWatch {
    /// Watches the folder of this ledger, as soon as it exists.
    pub(crate) fn new(ledger: &Ledger) -> Self {
        let (announce, announced) = mpsc::channel();
        let watcher = notify::recommended_watcher(move |_| {
            // If the other end is gone, so is the process.
            let _ = announce.send(());
        });
        let state = ledger.path().parent().map(Into::into);
        Self { state, watcher: watcher.ok(), announced, is_watching: false }
    }

    /// Returns when there may be new lines, and after a second in any case.
    pub(crate) fn wait(&mut self) {
        // The state may not exist yet; then the next call tries again. Lines that were added before the watch began are
        // read at once.
        if !self.is_watching
            && let (Some(watcher), Some(state)) = (&mut self.watcher, &self.state)
            && watcher.watch(state, RecursiveMode::NonRecursive).is_ok()
        {
            self.is_watching = true;
            return;
        }
        match self.announced.recv_timeout(LOOK_EVERY) {
            // One look is enough for all changes announced so far.
            Ok(()) => while self.announced.try_recv().is_ok() {},
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK_EVERY),
        }
    }
}

/// Whether the reader of stdout has closed it.
pub(crate) fn reader_is_gone() -> bool {
    let stdout = io::stdout();
    let mut stdout = [PollFd::new(&stdout, PollFlags::empty())];
    poll(&mut stdout, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok()
        && stdout[0].revents().contains(PollFlags::ERR)
}
