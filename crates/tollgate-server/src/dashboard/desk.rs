//! What is remembered between two looks, so that a page costs the same with ten tasks and with ten thousand.
//!
//! The site keeps the board; here is what a look at single tasks and at the ledger's end has told. Nothing in here is the truth; that is on the disk. What is remembered is forgotten when the feed tells that something
//! happened, and made again when somebody looks. While nobody looks, nothing is made.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use tollgate::error::{Fault, Result};
use tollgate::ledger::Line;

use super::board::Front;
use crate::feed::{Happened, News};
use crate::site::{Open, Site};

/// So many of the newest lines are remembered: enough for what agents do now and what happened last.
const TAIL: usize = 400;

/// All that is remembered.
#[derive(Default)]
pub(super) struct Desk {
    front: Memo<Option<Front>>,
    tail: Memo<Vec<Line>>,
}

impl Desk {
    /// The first tasks of each state.
    pub(super) fn front(&self, site: &Site) -> Result<Arc<Option<Front>>> {
        let matters = |happened: &Happened| !matches!(happened, Happened::Lines(_) | Happened::Turns);
        self.front.get(site, matters, || Front::read(site))
    }

    /// The newest lines of the ledger, the newest first.
    pub(super) fn tail(&self, site: &Site, open: &Open) -> Result<Arc<Vec<Line>>> {
        let matters = |happened: &Happened| !matches!(happened, Happened::Board | Happened::Turns);
        self.tail.get(site, matters, || {
            let lines = open.gate.workspace().ledger().newest_first()?;
            // A damaged line is told by the ledger's own page.
            let readable = lines.filter(|line| !matches!(line, Err(Fault::Damaged { .. })));
            readable.take(TAIL).collect()
        })
    }

    /// What this server itself has just changed is not waited for.
    pub(super) fn forget(&self) {
        self.front.forget();
        self.tail.forget();
    }
}

/// One thing that is remembered until something happens.
struct Memo<T>(Mutex<Option<(News, Arc<T>)>>);

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Memo<T> {
    fn get(
        &self,
        site: &Site,
        matters: impl Fn(&Happened) -> bool,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((news, made)) = &mut *kept {
            // Who is told nothing has to look.
            let mut is_old = site.feed.is_blind();
            while let Some(happened) = arrived(news) {
                is_old |= happened.is_none_or(|happened| matters(&happened));
                if is_old {
                    break;
                }
            }
            if !is_old {
                return Ok(made.clone());
            }
        }
        *kept = None;
        // From before the look, so that what happens during it is not missed.
        let news = site.feed.subscribe();
        let made = Arc::new(make()?);
        *kept = Some((news, made.clone()));
        Ok(made)
    }

    fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// What has arrived by now: nothing, something, or (inside) the end of all news.
fn arrived(news: &mut News) -> Option<Option<Happened>> {
    let next = pin!(news.next());
    match next.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(happened) => Some(happened),
        Poll::Pending => None,
    }
}
