//! The site: what all pages and endpoints of the server share.
//!
//! Invariant: the server creates nothing in a folder where tollgate is not set up. It waits, and opens the workspace as
//! soon as it is set up.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::Notify;
use tollgate::error::{Fault, Result};
use tollgate::gate::Gate;
use tollgate::ledger::Line;
use tollgate::name::Agent;
use tollgate::unfinished_list;
use tollgate::vault::Vault;

use crate::board::Board;
use crate::fault_response::FaultResponse;
use crate::feed::{Feed, FeedEvent};
use crate::late_write_check;
use crate::ledger_monitor::{LedgerMonitor, LedgerStatus};
use crate::notices::delivery::{NoticeQueue, NoticeTarget};
use crate::secret::Secret;
use crate::watch::{FolderWatch, StatePart, TouchedTasks};
use crate::workspace_provider::{OpenWorkspace, WorkspaceProvider};

/// The options of the server, besides its workspace.
#[derive(Debug, Clone)]
pub struct SiteOptions {
    /// The person who decides about tasks on the pages. The ledger records this name.
    pub person: String,
    /// The home directory of the server's user, which `~` stands for in `/mcp`.
    pub home: Option<PathBuf>,
}

/// Shared by all handlers, as `State<Site>`. Clones are the same site.
#[derive(Clone)]
pub struct Site(Arc<SiteState>);

/// The data behind a [`Site`].
pub struct SiteState {
    /// What happens in the workspace, live.
    pub feed: Feed,
    /// When the server was started.
    pub started: Timestamp,
    /// The options it was started with.
    pub options: SiteOptions,
    provider: Box<dyn WorkspaceProvider>,
    watch: FolderWatch,
    /// An error is kept as text, because several requests report it.
    open: RwLock<std::result::Result<Option<Arc<OpenWorkspace>>, String>>,
    /// If the state or the vault existed once and is gone, that is an error and not a folder that is not set up.
    had_state: AtomicBool,
    had_vault: AtomicBool,
    board: RwLock<KeptBoard>,
    stale: Held<usize>,
    unfinished: Held<Vec<(Option<Agent>, usize)>>,
    ledger: LedgerMonitor,
    /// Notified when files were changed, by any process.
    changed: Notify,
    form_key: Secret,
    delivery: OnceLock<NoticeQueue>,
}

#[derive(Default)]
struct KeptBoard {
    board: Board,
    is_read: bool,
}

/// The board as it was a moment ago. Do not keep it for long: updates wait for it.
pub struct BoardGuard<'a>(RwLockReadGuard<'a, KeptBoard>);

impl std::ops::Deref for BoardGuard<'_> {
    type Target = Board;

    fn deref(&self) -> &Board {
        &self.0.board
    }
}

/// Counting the claims of dead owners tries the lock of every claim, so the number is reused for this long.
const STALE_CLAIMS_HOLD: Duration = Duration::from_secs(1);

/// Asking git and the ledger whose files are unfinished takes up to half a second in a large repository, so the answer is reused for
/// this long.
pub(crate) const LONGEST_HOLD: Duration = Duration::from_secs(2);

/// A figure that is reused for a while, because finding it out is costly.
struct Held<T>(Mutex<Option<(Instant, T)>>);

impl<T> Default for Held<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> Held<T> {
    fn get(&self, hold: Duration, find: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, figure)) = &*held
            && at.elapsed() < hold
        {
            return Ok(figure.clone());
        }
        let figure = find()?;
        *held = Some((Instant::now(), figure.clone()));
        Ok(figure)
    }
}

/// If more lines than this were added at once, only the newest go into the feed.
const MOST_LINES: usize = 256;

impl std::ops::Deref for Site {
    type Target = SiteState;

    fn deref(&self) -> &SiteState {
        &self.0
    }
}

impl Site {
    /// Opens the workspace. Blocks. If that fails, [`SiteState::open`] returns the error, so that pages can show it.
    pub fn new(provider: Box<dyn WorkspaceProvider>, options: SiteOptions) -> Result<Self> {
        let form_key = Secret::random()?;
        let site = Self(Arc::new(SiteState {
            feed: Feed::new(),
            started: Timestamp::now(),
            options,
            provider,
            watch: FolderWatch::new(),
            open: RwLock::new(Ok(None)),
            had_state: AtomicBool::new(false),
            had_vault: AtomicBool::new(false),
            board: RwLock::default(),
            stale: Held::default(),
            unfinished: Held::default(),
            ledger: LedgerMonitor::default(),
            changed: Notify::new(),
            form_key,
            delivery: OnceLock::new(),
        }));
        site.reopen();
        Ok(site)
    }

    /// Runs library code on a thread that may wait for the disk.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> std::result::Result<T, FaultResponse> {
        let site = self.clone();
        match tokio::task::spawn_blocking(move || work(&site)).await {
            Ok(done) => done.map_err(FaultResponse),
            Err(_) => Err(FaultResponse(Fault::invalid("internal error in the server"))),
        }
    }

    /// Runs the late-write checks for writes by any process, for as long as it is polled.
    pub(crate) async fn late_write_checks(self) {
        let workspace = || Some(self.open().ok()??.gate.workspace().clone());
        late_write_check::after_each(&self.changed, workspace).await;
    }

    /// Follows the ledger for as long as it is polled.
    pub(crate) async fn follow_ledger(self) {
        let ledger = || Some(self.open().ok()??.gate.workspace().ledger().clone());
        // An event without lines makes the pages show the new condition.
        self.ledger.run(ledger, || self.feed.send(FeedEvent::Lines(Arc::new([])))).await;
    }

    /// Sends what happens to the feed, for as long as it is polled.
    pub(crate) async fn feed_changes(self) {
        let mut last = self.blocking(|site| site.newest_line()).await.unwrap_or(0);
        loop {
            let parts = self.watch.changed().await;
            if parts.has(StatePart::Setup) {
                let site = self.clone();
                // `open` reports what goes wrong in there.
                let _ = tokio::task::spawn_blocking(move || site.reopen()).await;
                self.feed.send(FeedEvent::Setup);
            }
            if parts.has(StatePart::Ledger) || parts.has(StatePart::Setup) {
                self.ledger.wake();
                match self.blocking(move |site| site.lines_after(last)).await {
                    Ok((newest, _)) if newest < last => {
                        // The ledger was replaced by a new one.
                        last = newest;
                        self.feed.send(FeedEvent::Missed);
                    }
                    Ok((newest, lines)) if newest > last => {
                        last = newest;
                        self.changed.notify_one();
                        self.feed.send(FeedEvent::Lines(lines.into()));
                    }
                    _ => {}
                }
            }
            for (part, event) in [
                (StatePart::Board, FeedEvent::Board),
                (StatePart::Turns, FeedEvent::Turns),
                (StatePart::Missed, FeedEvent::Missed),
            ] {
                if parts.has(part) {
                    self.feed.send(event);
                }
            }
        }
    }
}

impl SiteState {
    /// From now on, tells these about what needs a person. Only the first call counts.
    pub fn tell(&self, target: NoticeTarget) -> Result<()> {
        let _ = self.delivery.set(NoticeQueue::start(target)?);
        Ok(())
    }

    /// What delivers notices, if anybody is to be told.
    pub(crate) fn delivery(&self) -> Option<&NoticeQueue> {
        self.delivery.get()
    }

    /// The folder that is served, canonical.
    pub fn root(&self) -> &Path {
        self.provider.root()
    }

    /// The open workspace. `None` where tollgate is not set up; an error if it cannot be opened.
    pub fn open(&self) -> Result<Option<Arc<OpenWorkspace>>> {
        match &*self.open.read().unwrap_or_else(PoisonError::into_inner) {
            Ok(open) => Ok(open.clone()),
            Err(what) => Err(Fault::Config { path: self.root().to_owned(), what: what.clone() }),
        }
    }

    /// The gate for an agent, which may write those files of the vault that this agent may write. Blocks.
    pub(crate) fn gate_of(&self, agent: &Agent) -> Result<Gate> {
        self.provider.gate_of(agent)
    }

    /// Whether the server learns of every change, so that pages are live.
    pub fn is_live(&self) -> bool {
        !self.watch.is_blind()
    }

    /// A secret of this run of the server. Form tokens are made from it.
    pub(crate) fn form_key(&self) -> &Secret {
        &self.form_key
    }

    /// The board; `None` without a vault. Blocks.
    pub fn board(&self) -> Result<Option<BoardGuard<'_>>> {
        let open = self.open()?;
        let Some(vault) = open.as_ref().and_then(|open| open.vault.as_ref()) else {
            return Ok(None);
        };
        let is_fresh = || {
            let kept = self.board.read().unwrap_or_else(PoisonError::into_inner);
            (kept.is_read && !self.watch.is_touched()).then_some(kept)
        };
        if let Some(kept) = is_fresh() {
            return Ok(Some(BoardGuard(kept)));
        }
        let mut kept = self.board.write().unwrap_or_else(PoisonError::into_inner);
        let now = Timestamp::now();
        let was_read = std::mem::replace(&mut kept.is_read, false);
        // Taken under the lock: a request that finds nothing touched waits for the lock, and so sees the update.
        match self.watch.take_touched() {
            TouchedTasks::These { tasks, states } if was_read => {
                kept.board.catch_up(vault, tasks, states, now)?;
            }
            _ => kept.board = Board::read(vault, now)?,
        }
        kept.is_read = true;
        drop(kept);
        Ok(Some(BoardGuard(self.board.read().unwrap_or_else(PoisonError::into_inner))))
    }

    /// What is known about the ledger so far.
    pub fn ledger(&self) -> LedgerStatus {
        if !self.is_live() {
            self.ledger.wake();
        }
        self.ledger.status()
    }

    /// The number of claims whose owner is gone. May be a second old.
    pub(crate) fn stale_claims(&self, vault: &Vault) -> Result<usize> {
        self.stale.get(STALE_CLAIMS_HOLD, || Ok(vault.reclaimable(Timestamp::now())?.len()))
    }

    /// The number of unfinished files of each agent. May be as old as [`LONGEST_HOLD`].
    pub(crate) fn unfinished(&self, open: &OpenWorkspace) -> Result<Vec<(Option<Agent>, usize)>> {
        let workspace = open.gate.workspace();
        self.unfinished.get(LONGEST_HOLD, || {
            Ok(unfinished_list::counts(&unfinished_list::list(workspace.path(), workspace.ledger())?))
        })
    }

    /// Whether there was a vault at some time.
    pub(crate) fn had_vault(&self) -> bool {
        self.had_vault.load(Ordering::Relaxed)
    }

    fn reopen(&self) {
        self.watch_folders();
        let opened = self.provider.open().map(|open| open.map(Arc::new)).map_err(|fault| fault.to_string());
        let opened = match opened {
            Ok(None) if self.had_state.load(Ordering::Relaxed) => {
                Err("its state in `.tollgate` is gone".to_owned())
            }
            opened => opened,
        };
        if let Ok(Some(open)) = &opened {
            self.had_state.store(true, Ordering::Relaxed);
            self.had_vault.fetch_or(open.vault.is_some(), Ordering::Relaxed);
        }
        let vault = opened.as_ref().ok().and_then(Option::as_ref).and_then(|open| open.vault.as_ref());
        self.watch.watch_tasks(vault);
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = opened;
        self.watch.touch_everything();
        // Again, because the open workspace may have folders that were not known before.
        self.watch_folders();
    }

    fn watch_folders(&self) {
        let open = self.open().ok().flatten();
        let turns = open.as_ref().map_or(&[][..], |open| &open.turns);
        self.watch.watch(self.root(), &self.provider.vault(), turns);
    }

    fn newest_line(&self) -> Result<u64> {
        Ok(self.lines_after(u64::MAX)?.0)
    }

    /// The number of the newest line, and the lines after a number, the oldest first.
    fn lines_after(&self, last: u64) -> Result<(u64, Vec<Line>)> {
        let Some(open) = self.open()? else { return Ok((0, Vec::new())) };
        let mut newest = 0;
        let mut lines = Vec::new();
        for line in open.gate.workspace().ledger().newest_first()?.filter_map(Result::ok) {
            newest = newest.max(line.seq);
            if line.seq <= last || lines.len() == MOST_LINES {
                break;
            }
            lines.push(line);
        }
        lines.reverse();
        Ok((newest, lines))
    }
}
