//! The page cache: what pages read from the disk, kept until something changes.
//!
//! With it a page costs the same with ten tasks and with ten thousand. Nothing in the cache is authoritative; the disk
//! is. An entry is dropped when the feed reports a change, and read again at the next visit. While nobody visits,
//! nothing is read.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use tollgate::error::{Fault, Result};
use tollgate::ledger::Line;
use tollgate::vault::figures::Figures;

use super::overview::Overview;
use crate::feed::{FeedEvent, Subscription};
use crate::site::Site;
use crate::workspace_provider::OpenWorkspace;

/// The number of ledger lines that are kept: enough to show the recent activity of every agent.
const TAIL: usize = 400;

/// The cache.
#[derive(Default)]
pub(super) struct PageCache {
    overview: Memo<Option<Overview>>,
    tail: Memo<Vec<Line>>,
    stopped: Memo<Vec<String>>,
}

impl PageCache {
    /// The first tasks of each state, with their claims, which the store has to be asked for. `None` without a vault.
    pub(super) fn overview(&self, site: &Site) -> Result<Arc<Option<Overview>>> {
        self.overview.get(site, || Overview::read(site))
    }

    /// The last lines of the ledger, the newest first.
    pub(super) fn tail(&self, site: &Site, open: &OpenWorkspace) -> Result<Arc<Vec<Line>>> {
        self.tail.get(site, || {
            let lines = open.gate.workspace().ledger().newest_first()?;
            // The ledger's own page reports damaged lines.
            let readable = lines.filter(|line| !matches!(line, Err(Fault::Damaged { .. })));
            readable.take(TAIL).collect()
        })
    }

    /// A sentence for each worker whose breaker is open.
    pub(super) fn stopped(&self, site: &Site, open: &OpenWorkspace) -> Result<Arc<Vec<String>>> {
        let read = || match &open.vault {
            Some(vault) => {
                let (_, each) = vault.figures(open.gate.workspace().now())?;
                Ok(each.iter().filter_map(Figures::stopped).collect())
            }
            None => Ok(Vec::new()),
        };
        let stopped = self.stopped.get(site, read)?;
        // An open breaker is shown for a limited time, whose end nothing announces.
        Ok(if stopped.is_empty() { stopped } else { Arc::new(read()?) })
    }

    /// Drops everything. Called after a decision, so that its own page shows it without waiting for the feed.
    pub(super) fn clear(&self) {
        self.overview.clear();
        self.tail.clear();
        self.stopped.clear();
    }
}

/// One cached value, with the subscription that says when it is outdated.
struct Memo<T>(Mutex<Option<(Subscription, Arc<T>)>>);

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Memo<T> {
    fn get(&self, site: &Site, make: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((events, made)) = &mut *kept {
            // If changes go unreported, every value may be outdated.
            let mut is_old = !site.is_live();
            while let Some(event) = arrived(events) {
                // No page keeps anything about turns.
                is_old |= !matches!(event, Some(FeedEvent::Turns));
                if is_old {
                    break;
                }
            }
            if !is_old {
                return Ok(made.clone());
            }
        }
        *kept = None;
        // Subscribe before reading, so that a change during the read is not missed.
        let events = site.feed.subscribe();
        let made = Arc::new(make()?);
        *kept = Some((events, made.clone()));
        Ok(made)
    }

    fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The next event, if one has arrived. The inner `None` means that the feed has ended.
fn arrived(events: &mut Subscription) -> Option<Option<FeedEvent>> {
    let next = pin!(events.next());
    match next.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(event) => Some(event),
        Poll::Pending => None,
    }
}
