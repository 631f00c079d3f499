//! The maintainer: a thread that keeps the folders of this machine and the store the same, in rounds.
//!
//! Only one process maintains the view: the one that has its lock. The others wait. When that process ends, for whatever reason,
//! the kernel releases the lock, and one of the others goes on.
//!
//! A round looks at the tasks about which the watches have given hints, and from time to time at all open tasks, because a hint may
//! have been lost. If the store cannot be reached, the files stay as they are, and a file in the vault says since when and why.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::folder_view::{FolderView, ViewOptions};
use super::notice::Notice;
use super::round::ViewNews;
use crate::folder::watch;
use crate::state::State;
use crate::store::{Hint, Watch};
use crate::vault::Vault;
use tollgate_base::error::{Fault, Result};
use tollgate_base::task::TaskName;

/// How often a process that waits tries to get the lock.
const TAKE_OVER: Duration = Duration::from_millis(500);

/// How often the store is asked for something, so that an outage is noticed although nobody does anything.
const PULSE: Duration = Duration::from_secs(5);

/// How often all open tasks are compared, because a hint may have been lost.
const COMPARE: Duration = Duration::from_secs(60);

/// How often they are compared if the store gives no hints.
const COMPARE_WITHOUT_HINTS: Duration = Duration::from_secs(2);

/// The pauses during an outage, the first and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Maintains the view until it is dropped.
pub struct Maintainer {
    stop: Sender<Option<ViewNews>>,
}

impl Drop for Maintainer {
    fn drop(&mut self) {
        // An error means that the thread has ended.
        let _ = self.stop.send(None);
    }
}

impl Maintainer {
    /// Starts a thread that maintains the view whenever no other process does.
    pub fn start(vault: Vault, options: ViewOptions) -> Result<Self> {
        let (stop, news) = channel();
        let sender = stop.clone();
        let run = move || wait_for_turn(&vault, &options, &news, &sender);
        let started = thread::Builder::new().name("tollgate-view".to_owned()).spawn(run);
        started.map_err(|error| Fault::invalid(format!("no thread for the view can be started: {error}")))?;
        Ok(Self { stop })
    }
}

/// Tries to get the lock of the view until this process has it, then maintains the view. Returns when the maintainer is dropped.
fn wait_for_turn(
    vault: &Vault,
    options: &ViewOptions,
    news: &Receiver<Option<ViewNews>>,
    sender: &Sender<Option<ViewNews>>,
) {
    let mut was_told = false;
    loop {
        match FolderView::open(vault.clone(), options.clone()) {
            Ok(Some(view)) => return view.maintain(news, sender),
            Ok(None) => {}
            Err(fault) => {
                if !std::mem::replace(&mut was_told, true) {
                    (options.tell)(&Notice::Stale { why: fault.to_string() });
                }
            }
        }
        match news.recv_timeout(TAKE_OVER) {
            Ok(Some(_)) | Err(RecvTimeoutError::Timeout) => {}
            Ok(None) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The watchers of the folders and of the store.
struct Watches {
    _folder: Watch,
    store: Option<Watch>,
}

impl FolderView {
    /// Works until nothing is left to do, or until this time, and marks the folders as out of date or as up to date, as a
    /// maintainer does. Returns the tasks that are left: somebody still writes their files, or something is wrong with them.
    pub fn work_until(&mut self, until: Instant) -> Result<Vec<TaskName>> {
        let worked = self.all_work_until(until);
        match &worked {
            Ok(_) => self.fresh()?,
            Err(fault) => self.stale(fault),
        }
        worked
    }

    fn all_work_until(&mut self, until: Instant) -> Result<Vec<TaskName>> {
        while let Some(wait) = self.work()?.filter(|wait| Instant::now() + *wait <= until) {
            thread::sleep(wait);
        }
        Ok(self.to_do.later.keys().cloned().collect())
    }

    /// One round after the other, until the maintainer is dropped.
    fn maintain(mut self, news: &Receiver<Option<ViewNews>>, sender: &Sender<Option<ViewNews>>) {
        let (mut watches, mut pause) = (None, PAUSES.0);
        let (mut asked, mut compared) = (Instant::now(), Instant::now());
        loop {
            let worked = self.watched(&mut watches, sender).and_then(|has_hints| {
                let every = if has_hints { COMPARE } else { COMPARE_WITHOUT_HINTS };
                if compared.elapsed() >= every {
                    compared = Instant::now();
                    let open = State::ALL.into_iter().filter(|state| !state.is_final() || !has_hints);
                    open.for_each(|state| self.hear(ViewNews::Store(Hint::State(state))));
                }
                if asked.elapsed() >= PULSE {
                    self.check_store()?;
                    asked = Instant::now();
                }
                let next = self.work()?;
                self.fresh()?;
                Ok(next.unwrap_or(PULSE).min(PULSE).min(every))
            });
            let wait = match worked {
                Ok(wait) => {
                    pause = PAUSES.0;
                    wait
                }
                Err(fault) => {
                    self.stale(&fault);
                    // Hints may be lost in an outage.
                    self.hear(ViewNews::Store(Hint::Everything));
                    let wait = pause;
                    pause = (pause * 2).min(PAUSES.1);
                    wait
                }
            };
            if !self.hear_all(news, wait) {
                return;
            }
        }
    }

    /// Waits for news, at most this long, and takes all that have arrived, so that several hints about one task cost one look.
    /// `false`: the maintainer was dropped.
    fn hear_all(&mut self, news: &Receiver<Option<ViewNews>>, wait: Duration) -> bool {
        let mut next = news.recv_timeout(wait);
        loop {
            match next {
                Ok(Some(news)) => self.hear(news),
                Err(RecvTimeoutError::Timeout) => return true,
                Ok(None) | Err(RecvTimeoutError::Disconnected) => return false,
            }
            next = news.recv_timeout(Duration::ZERO);
        }
    }

    /// Starts the watchers, if need be. Whether the store gives hints.
    fn watched(&mut self, watches: &mut Option<Watches>, sender: &Sender<Option<ViewNews>>) -> Result<bool> {
        if let Some(watches) = watches {
            return Ok(watches.store.is_some());
        }
        let to = |news: fn(Hint) -> ViewNews| {
            let sender = sender.clone();
            // An error means that the view is not maintained any more.
            Arc::new(move |hint| _ = sender.send(Some(news(hint))))
        };
        let folder = watch::start(&self.options.folder, None, &State::ALL, to(ViewNews::Folder))?;
        let store = self.vault.store().watch(&State::ALL, to(ViewNews::Store))?;
        // What happened before they watched.
        self.hear(ViewNews::Folder(Hint::Everything));
        self.hear(ViewNews::Store(Hint::Everything));
        let has_hints = store.is_some();
        *watches = Some(Watches { _folder: folder, store });
        Ok(has_hints)
    }

    /// Asks the store for a task that does not exist: a fault if it does not answer.
    fn check_store(&self) -> Result<()> {
        let nobody: TaskName = "is-anybody-there".parse()?;
        self.vault.store().get(&nobody, None, self.now()).map(drop)
    }

    /// Marks the folders as out of date, and tells people if they were not.
    fn stale(&self, fault: &Fault) {
        let why = fault.to_string();
        if self.files.mark_stale(self.now(), &why).unwrap_or(true) {
            self.tell(&Notice::Stale { why });
        }
    }

    /// Marks the folders as up to date, and tells people if they were not.
    fn fresh(&self) -> Result<()> {
        if self.files.mark_fresh()? {
            self.tell(&Notice::Fresh);
        }
        Ok(())
    }
}
