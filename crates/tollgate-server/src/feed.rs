//! What happens on the disk, told at once to whoever wants to know.
//!
//! One watcher of the kernel for the whole server, whoever caused the change and in whichever process. A burst of
//! changes is told as one. Nothing is polled: while nothing happens, nothing here runs, however many pages are open.
//!
//! ```no_run
//! # async fn page(site: tollgate_server::site::Site) {
//! use tollgate_server::feed::Happened;
//! let mut news = site.feed.subscribe();
//! while let Some(happened) = news.next().await {
//!     match happened {
//!         Happened::Lines(lines) => { /* new lines of the ledger, the oldest first */ }
//!         Happened::Board => { /* tasks came, went, or changed */ }
//!         Happened::Turns => { /* turns began, read, wrote or ended; reservations too */ }
//!         Happened::Setup => { /* settings or folders changed: look at everything again */ }
//!         Happened::Missed => { /* too much at once: look at everything again */ }
//!     }
//! }
//! // The server is about to end.
//! # }
//! ```

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::{Notify, broadcast, watch};
use tollgate::ledger::Line;

use crate::board::Touched;

/// Changes within this time are told as one: too short for a person to notice, long enough for the many small changes
/// of one write or one claim.
const TOGETHER: Duration = Duration::from_millis(50);

/// So many tellings are kept for a reader that is slow; then it is told that it missed some.
const KEPT: usize = 64;

/// What happened.
#[derive(Debug, Clone)]
pub enum Happened {
    /// Lines were added to the ledger: these, the oldest first. Of very many at once, the newest.
    Lines(Arc<[Line]>),
    /// Tasks came, went, or changed.
    Board,
    /// Turns or reservations began, changed or ended.
    Turns,
    /// The settings changed, or a folder appeared or went: what is open is not what it was.
    Setup,
    /// More happened than can be told.
    Missed,
}

/// The part of the state in which something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Part {
    Ledger = 1,
    Board = 2,
    Turns = 4,
    Setup = 8,
    Missed = 16,
}

/// Parts that something happened in, since they were last taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parts(u8);

impl Parts {
    pub(crate) fn has(self, part: Part) -> bool {
        self.0 & part as u8 != 0
    }
}

/// A folder that is watched, and what it means if something happens in it.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    pub(crate) folder: PathBuf,
    pub(crate) depth: RecursiveMode,
    pub(crate) part: Part,
    /// Only what has a name that begins like one of these. Empty: everything.
    pub(crate) only: Vec<OsString>,
}

impl Watched {
    fn means(&self, path: &Path) -> Option<Part> {
        let below = path.strip_prefix(&self.folder).ok()?;
        let Some(name) = below.iter().next() else {
            // The folder itself came or went.
            return Some(Part::Setup);
        };
        let like = |only: &OsString| name.as_encoded_bytes().starts_with(only.as_encoded_bytes());
        (self.only.is_empty() || self.only.iter().any(like)).then_some(self.part)
    }
}

/// Tells what happens to any number of readers.
pub struct Feed {
    sender: broadcast::Sender<Happened>,
    closed: watch::Sender<bool>,
    seen: Arc<Seen>,
    watcher: Mutex<Option<RecommendedWatcher>>,
    /// The kernel does not watch for us: it has no watches left, say.
    blind: AtomicBool,
}

/// What the watcher's own thread leaves for the task that tells it.
#[derive(Default)]
struct Seen {
    parts: AtomicU8,
    wake: Notify,
    watched: Mutex<Vec<Watched>>,
    touched: Mutex<Touched>,
}

/// One reader of the feed.
pub struct News {
    receiver: broadcast::Receiver<Happened>,
    closed: watch::Receiver<bool>,
}

impl News {
    /// Waits for the next thing that happens. `None` when the server is about to end.
    pub async fn next(&mut self) -> Option<Happened> {
        let happened = tokio::select! {
            happened = self.receiver.recv() => happened,
            _ = self.closed.wait_for(|closed| *closed) => return None,
        };
        match happened {
            Ok(happened) => Some(happened),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(Happened::Missed),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

impl Feed {
    pub(crate) fn new() -> Self {
        let seen = Arc::new(Seen::default());
        let for_watcher = seen.clone();
        let watcher = notify::recommended_watcher(move |event| for_watcher.see(event)).ok();
        Self {
            sender: broadcast::Sender::new(KEPT),
            closed: watch::Sender::new(false),
            seen,
            blind: AtomicBool::new(watcher.is_none()),
            watcher: Mutex::new(watcher),
        }
    }

    /// From now on. Costs nothing until something happens.
    pub fn subscribe(&self) -> News {
        News { receiver: self.sender.subscribe(), closed: self.closed.subscribe() }
    }

    pub(crate) fn tell(&self, happened: Happened) {
        // Without readers there is nobody to tell.
        let _ = self.sender.send(happened);
    }

    /// Every reader comes to its end.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Watches these folders, beside those that are watched already. One that is not there is passed over: the one
    /// above it tells when it appears.
    pub(crate) fn watch(&self, folders: Vec<Watched>) {
        *lock(&self.seen.watched) = folders.clone();
        if let Some(watcher) = &mut *lock(&self.watcher) {
            let mut blind = false;
            for watched in folders {
                blind |= match watcher.watch(&watched.folder, watched.depth) {
                    Ok(()) => false,
                    Err(error) => match error.kind {
                        ErrorKind::PathNotFound => false,
                        ErrorKind::Io(error) => error.kind() != io::ErrorKind::NotFound,
                        _ => true,
                    },
                };
            }
            self.blind.store(blind, Ordering::Relaxed);
        }
    }

    /// Whether a task was touched since that was last taken.
    pub(crate) fn is_touched(&self) -> bool {
        self.is_blind() || *lock(&self.seen.touched) != Touched::default()
    }

    /// The tasks that were touched. At once, without waiting for what belongs to it.
    pub(crate) fn take_touched(&self) -> Touched {
        let touched = std::mem::take(&mut *lock(&self.seen.touched));
        if self.is_blind() { Touched::Everything } else { touched }
    }

    /// Nothing is told by itself, so who asks must look. Pages are right, but not live.
    pub fn is_blind(&self) -> bool {
        self.blind.load(Ordering::Relaxed)
    }

    /// Everything may be other than it was.
    pub(crate) fn touch_everything(&self) {
        *lock(&self.seen.touched) = Touched::Everything;
    }

    /// Waits until something has happened, and a moment for what belongs to it.
    pub(crate) async fn something(&self) -> Parts {
        loop {
            self.seen.wake.notified().await;
            tokio::time::sleep(TOGETHER).await;
            let parts = self.seen.parts.swap(0, Ordering::AcqRel);
            if parts != 0 {
                return Parts(parts);
            }
        }
    }
}

impl Seen {
    fn see(&self, event: notify::Result<Event>) {
        let parts = match event {
            Ok(event) if is_reading(event.kind) => 0,
            // The kernel had more to tell than it could keep.
            Ok(event) if event.need_rescan() => u8::MAX,
            Ok(event) => {
                let watched = lock(&self.watched);
                let mut parts = 0;
                for path in event.paths {
                    let Some(part) = watched.iter().find_map(|watched| watched.means(&path)) else {
                        continue;
                    };
                    parts |= part as u8;
                    if part == Part::Board {
                        lock(&self.touched).add(path);
                    }
                }
                parts
            }
            Err(_) => u8::MAX,
        };
        if parts & Part::Missed as u8 != 0 {
            *lock(&self.touched) = Touched::Everything;
        }
        if parts != 0 {
            self.parts.fetch_or(parts, Ordering::AcqRel);
            self.wake.notify_one();
        }
    }
}

/// Who only looks changes nothing; our own looks would wake us for ever.
fn is_reading(kind: EventKind) -> bool {
    matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_be_told_looks_each_time() {
        let feed = Feed::new();
        assert!(!feed.is_blind() && !feed.is_touched());
        let folder = |folder: &str| Watched {
            folder: folder.into(),
            depth: RecursiveMode::NonRecursive,
            part: Part::Board,
            only: Vec::new(),
        };
        feed.watch(vec![folder("/nowhere/at/all")]);
        assert!(!feed.is_blind(), "it is seen when it appears");
        // A name that the kernel does not take stands for all that it cannot watch.
        feed.watch(vec![folder(&format!("/{}", "x".repeat(300)))]);
        assert!(feed.is_blind() && feed.is_touched());
        assert_eq!(feed.take_touched(), Touched::Everything);
        assert!(feed.is_touched(), "and again");
        feed.watch(vec![folder("/")]);
        assert!(!feed.is_blind());
    }
}
