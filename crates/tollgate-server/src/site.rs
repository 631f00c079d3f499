//! The site: what all pages and endpoints of the server share.
//!
//! Invariant: nothing is made in a folder that was never set up for tollgate. The site then waits; when somebody sets it
//! up, it opens by itself.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use notify::RecursiveMode;
use rustix::fs::Access;
use tokio::sync::Notify;
use tollgate::error::{Fault, Result};
use tollgate::gate::Gate;
use tollgate::ledger::Line;
use tollgate::name::{Agent, TurnId};
use tollgate::shared_turn::SharedTurns;
use tollgate::vault::Vault;
use tollgate::vault::state::State;
use tollgate::workspace::STATE_FOLDER;

use crate::accounts::{Account, Accounts};
use crate::board::{Board, Touched};
use crate::feed::{Feed, Happened, Part, Watched};
use crate::second_look;

/// How the workspace is found and opened. Whoever starts the server knows; nothing here reads the environment.
pub trait Premises: Send + Sync + 'static {
    /// The folder that is served, canonical.
    fn root(&self) -> &Path;

    /// Where the tasks are, or would be.
    fn vault(&self) -> PathBuf;

    /// Opens what is set up there. `None` where tollgate was never set up, and then nothing is made.
    fn open(&self) -> Result<Option<Open>>;
}

/// A workspace that is set up, open.
pub struct Open {
    /// The gate, and through it the workspace and its ledger.
    pub gate: Gate,
    /// The vault, if there is one.
    pub vault: Option<OpenVault>,
    /// Where turns are that several processes share.
    pub turns: Vec<SharedTurns>,
}

/// A vault, open.
#[derive(Clone)]
pub struct OpenVault {
    /// Its rules.
    pub vault: Vault,
    /// Its folder, canonical.
    pub folder: PathBuf,
}

/// Shared by all handlers, as `State<Site>`. Clones are the same site.
#[derive(Clone)]
pub struct Site(Arc<Shared>);

/// What is behind a [`Site`].
pub struct Shared {
    /// What happens, live.
    pub feed: Feed,
    /// When the server was started.
    pub started: Timestamp,
    /// In whose name agents of `/mcp` write.
    pub agent: Agent,
    /// Who decides about tasks on the pages, as the ledger will name them.
    pub person: String,
    premises: Box<dyn Premises>,
    /// The fault in words, because it is told more than once.
    open: RwLock<std::result::Result<Option<Arc<Open>>, String>>,
    /// What was there must not go without a word.
    had_state: AtomicBool,
    had_vault: AtomicBool,
    board: RwLock<Kept>,
    stale: Mutex<Option<(Instant, usize)>>,
    pub(crate) accounts: Accounts,
    /// Told when files were changed, by whomever.
    changed: Notify,
    seal: String,
}

#[derive(Default)]
struct Kept {
    board: Board,
    is_read: bool,
}

/// The board, as it was a moment ago. Not to be kept for long: who changes it waits.
pub struct OnBoard<'a>(RwLockReadGuard<'a, Kept>);

impl std::ops::Deref for OnBoard<'_> {
    type Target = Board;

    fn deref(&self) -> &Board {
        &self.0.board
    }
}

/// To find the claims whose owners are gone, their locks are tried, which is better not done a thousand times a second.
const STALE_CLAIMS_HOLD: Duration = Duration::from_secs(1);

/// Of more lines than this at once, only the newest are told.
const MOST_LINES: usize = 256;

impl std::ops::Deref for Site {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Site {
    /// Opens the premises. Blocks. A workspace that cannot be opened is told by [`Shared::open`], so that a page can tell it.
    pub fn new(premises: Box<dyn Premises>, agent: Agent, person: String) -> Result<Self> {
        // The ids of turns are random and hard to guess, which is all that a seal needs.
        let seal = [TurnId::new()?, TurnId::new()?].map(|id| id.to_string()).concat();
        let site = Self(Arc::new(Shared {
            feed: Feed::new(),
            started: Timestamp::now(),
            agent,
            person,
            premises,
            open: RwLock::new(Ok(None)),
            had_state: AtomicBool::new(false),
            had_vault: AtomicBool::new(false),
            board: RwLock::default(),
            stale: Mutex::new(None),
            accounts: Accounts::default(),
            changed: Notify::new(),
            seal,
        }));
        site.reopen();
        Ok(site)
    }

    /// Calls the library on a thread that may wait for the disk.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> std::result::Result<T, Broken> {
        let site = self.clone();
        match tokio::task::spawn_blocking(move || work(&site)).await {
            Ok(done) => done.map_err(Broken),
            Err(_) => Err(Broken(Fault::Invalid { what: "the server has made a mistake".into() })),
        }
    }

    /// Looks once more at what writes have replaced, whoever made them, for as long as it is polled.
    pub(crate) async fn second_looks(self) {
        let workspace = || Some(self.open().ok()??.gate.workspace().clone());
        second_look::after_each(&self.changed, workspace).await;
    }

    /// Tells what happens, for as long as it is polled.
    pub(crate) async fn watch_and_tell(self) {
        let mut last = self.blocking(|site| site.newest_line()).await.unwrap_or(0);
        loop {
            let parts = self.feed.something().await;
            if parts.has(Part::Setup) {
                let site = self.clone();
                // What goes wrong in there is told by `open`.
                let _ = tokio::task::spawn_blocking(move || site.reopen()).await;
                self.feed.tell(Happened::Setup);
            }
            if parts.has(Part::Ledger) || parts.has(Part::Setup) {
                self.accounts.wake();
                match self.blocking(move |site| site.lines_after(last)).await {
                    Ok((newest, _)) if newest < last => {
                        // It was begun anew.
                        last = newest;
                        self.feed.tell(Happened::Missed);
                    }
                    Ok((newest, lines)) if newest > last => {
                        last = newest;
                        self.changed.notify_one();
                        self.feed.tell(Happened::Lines(lines.into()));
                    }
                    _ => {}
                }
            }
            for (part, happened) in [
                (Part::Board, Happened::Board),
                (Part::Turns, Happened::Turns),
                (Part::Missed, Happened::Missed),
            ] {
                if parts.has(part) {
                    self.feed.tell(happened);
                }
            }
        }
    }
}

impl Shared {
    /// The folder that is served, canonical.
    pub fn root(&self) -> &Path {
        self.premises.root()
    }

    /// What is open; `None` where tollgate was never set up; the fault if it cannot be opened.
    pub fn open(&self) -> Result<Option<Arc<Open>>> {
        match &*self.open.read().unwrap_or_else(PoisonError::into_inner) {
            Ok(open) => Ok(open.clone()),
            Err(what) => Err(Fault::Config { path: self.root().to_owned(), what: what.clone() }),
        }
    }

    /// What a form must carry so that its sender has seen a page of this server: strangers cannot read our pages.
    pub fn seal(&self) -> &str {
        &self.seal
    }

    /// Whether a form carries it.
    pub fn is_sealed(&self, given: &str) -> bool {
        crate::visitor::same(given.as_bytes(), self.seal.as_bytes())
    }

    /// The board; `None` without a vault. Blocks.
    pub fn board(&self) -> Result<Option<OnBoard<'_>>> {
        let open = self.open()?;
        let Some(OpenVault { vault, folder }) = open.as_ref().and_then(|open| open.vault.as_ref()) else {
            return Ok(None);
        };
        let is_fresh = || {
            let kept = self.board.read().unwrap_or_else(PoisonError::into_inner);
            (kept.is_read && !self.feed.is_touched()).then_some(kept)
        };
        if let Some(kept) = is_fresh() {
            return Ok(Some(OnBoard(kept)));
        }
        let mut kept = self.board.write().unwrap_or_else(PoisonError::into_inner);
        let now = Timestamp::now();
        let was_read = std::mem::replace(&mut kept.is_read, false);
        // Taken under the lock, so that who finds nothing touched waits for it and sees what came of it.
        match self.feed.take_touched() {
            Touched::Paths(paths) if was_read => kept.board.catch_up(vault, folder, paths, now)?,
            _ => kept.board = Board::read(vault, now)?,
        }
        kept.is_read = true;
        drop(kept);
        Ok(Some(OnBoard(self.board.read().unwrap_or_else(PoisonError::into_inner))))
    }

    /// How the ledger is, as far as it was read.
    pub fn ledger(&self) -> Account {
        if self.feed.is_blind() {
            self.accounts.wake();
        }
        self.accounts.known()
    }

    /// How many claims there are whose owners are gone. May be a second old.
    pub(crate) fn stale_claims(&self, vault: &Vault) -> Result<usize> {
        let mut stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, count)) = *stale
            && at.elapsed() < STALE_CLAIMS_HOLD
        {
            return Ok(count);
        }
        let count = vault.reclaimable(Timestamp::now())?.len();
        *stale = Some((Instant::now(), count));
        Ok(count)
    }

    /// What of the state cannot be written, or is not there.
    pub(crate) fn broken_folders(&self, open: &Open) -> Vec<String> {
        let state = open.gate.workspace().state_path();
        let mut folders: Vec<PathBuf> =
            ["", "locks", "stage", "journal", "recovery"].iter().map(|name| state.join(name)).collect();
        if let Some(OpenVault { folder, .. }) = &open.vault {
            folders.extend(State::ALL.map(|state| folder.join(state.as_str())));
        } else if self.had_vault.load(Ordering::Relaxed) {
            folders.push(self.premises.vault().join(State::NeedsAction.as_str()));
        }
        let usable = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
        let broken = |folder: &PathBuf| match rustix::fs::access(folder, usable) {
            Ok(()) if folder.is_dir() => None,
            Ok(()) => Some(format!("`{}` is not a folder", folder.display())),
            Err(error) => {
                let error = std::io::Error::from(error);
                Some(format!("`{}` cannot be used: {error}", folder.display()))
            }
        };
        folders.iter().filter_map(broken).collect()
    }

    fn reopen(&self) {
        self.watch();
        let opened = self.premises.open().map(|open| open.map(Arc::new)).map_err(|fault| fault.to_string());
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
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = opened;
        self.feed.touch_everything();
        // Once more: what is open now may have folders that were not known before.
        self.watch();
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

    fn watch(&self) {
        let flat = RecursiveMode::NonRecursive;
        let root = self.root();
        let state = root.join(STATE_FOLDER);
        let mut folders = Vec::new();
        let mut add = |folder: PathBuf, depth, part, only: &[&OsStr]| {
            let only = only.iter().map(|name| (*name).to_owned()).collect();
            folders.push(Watched { folder, depth, part, only });
        };
        let vault = self.premises.vault();
        for known in State::ALL {
            let depth = if known == State::InProgress { RecursiveMode::Recursive } else { flat };
            add(vault.join(known.as_str()), depth, Part::Board, &[]);
        }
        if let Ok(Some(open)) = self.open() {
            for turns in &open.turns {
                add(turns.folder().to_owned(), RecursiveMode::Recursive, Part::Turns, &[]);
            }
        }
        add(state.join("reservations"), flat, Part::Turns, &[]);
        add(state.clone(), flat, Part::Ledger, &["ledger".as_ref()]);
        add(state, flat, Part::Setup, &["config.toml".as_ref(), "version".as_ref()]);
        let first = vault.strip_prefix(root).ok().and_then(|below| below.iter().next());
        add(vault.clone(), flat, Part::Setup, &State::ALL.map(|state| OsStr::new(state.as_str())));
        add(
            root.to_owned(),
            flat,
            Part::Setup,
            &[STATE_FOLDER.as_ref(), first.unwrap_or(STATE_FOLDER.as_ref())],
        );
        self.feed.watch(folders);
    }
}

/// What a page says if the library could not do what it was asked.
#[derive(Debug)]
pub struct Broken(pub Fault);

impl From<Fault> for Broken {
    fn from(fault: Fault) -> Self {
        Self(fault)
    }
}

impl IntoResponse for Broken {
    fn into_response(self) -> Response {
        let status = match &self.0 {
            Fault::Missing { .. } => StatusCode::NOT_FOUND,
            Fault::Invalid { .. } => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, format!("{}\n", self.0)).into_response()
    }
}
