//! The site: what all pages and endpoints of the server share.
//!
//! Invariant: nothing is made in a folder that was never set up for tollgate. The site then waits; when somebody sets it
//! up, it opens by itself.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use notify::RecursiveMode;
use tollgate::error::{Fault, Result};
use tollgate::gate::Gate;
use tollgate::name::{Agent, TurnId};
use tollgate::shared_turn::SharedTurns;
use tollgate::vault::Vault;
use tollgate::vault::state::State;
use tollgate::workspace::STATE_FOLDER;

use crate::feed::{Feed, Happened, Part, Watched};

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
    seal: String,
}

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
            seal,
        }));
        // Watched first, so that nothing falls between the look and the watch.
        site.watch();
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

    /// Tells what happens, for as long as it is polled.
    pub(crate) async fn watch_and_tell(self) {
        let last = self.blocking(|site| Ok(site.last_line())).await;
        let mut last = last.unwrap_or(0);
        loop {
            let (parts, _touched) = self.feed.something().await;
            if parts.has(Part::Setup) {
                let _ = self
                    .blocking(|site| {
                        site.watch();
                        site.reopen();
                        Ok(())
                    })
                    .await;
                self.feed.tell(Happened::Setup);
            }
            if parts.has(Part::Ledger) {
                let lines = self.blocking(move |site| match site.open()? {
                    Some(open) => open.gate.workspace().ledger().lines_after(last),
                    None => Ok(Vec::new()),
                });
                if let Ok(lines) = lines.await
                    && let Some(newest) = lines.last()
                {
                    last = newest.seq;
                    self.feed.tell(Happened::Lines(lines.into()));
                }
            }
            if parts.has(Part::Board) {
                self.feed.tell(Happened::Board);
            }
            if parts.has(Part::Turns) {
                self.feed.tell(Happened::Turns);
            }
            if parts.has(Part::Missed) {
                self.feed.tell(Happened::Missed);
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

    fn reopen(&self) {
        let opened = self.premises.open().map(|open| open.map(Arc::new)).map_err(|fault| fault.to_string());
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = opened;
        self.watch();
    }

    fn last_line(&self) -> u64 {
        let Ok(Some(open)) = self.open() else { return 0 };
        let newest = open.gate.workspace().ledger().newest_first();
        newest.ok().and_then(|mut lines| lines.find_map(Result::ok)).map_or(0, |line| line.seq)
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
