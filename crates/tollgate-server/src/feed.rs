//! The live feed: what has happened in the workspace, for any number of readers.
//!
//! ```no_run
//! # async fn page(site: tollgate_server::site::Site) {
//! use tollgate_server::feed::FeedEvent;
//! let mut events = site.feed.subscribe();
//! while let Some(event) = events.next().await {
//!     match event {
//!         FeedEvent::Lines(lines) => { /* new ledger lines, the oldest first */ }
//!         FeedEvent::Board => { /* tasks were added, removed or changed */ }
//!         FeedEvent::Turns => { /* turns began, changed or ended */ }
//!         FeedEvent::Setup => { /* settings or folders changed: read everything again */ }
//!         FeedEvent::Missed => { /* too many events: read everything again */ }
//!     }
//! }
//! // The server is about to stop.
//! # }
//! ```

use std::sync::Arc;

use tokio::sync::{broadcast, watch};
use tollgate::ledger::Line;

/// The feed keeps this many events for a slow reader. A reader that falls further behind gets [`FeedEvent::Missed`].
const KEPT: usize = 64;

/// One thing that happened.
#[derive(Debug, Clone)]
pub enum FeedEvent {
    /// Lines were added to the ledger: these, the oldest first. If very many were added at once, only the newest.
    Lines(Arc<[Line]>),
    /// Tasks were added, removed or changed.
    Board,
    /// Turns began, changed or ended.
    Turns,
    /// The settings changed, or a folder appeared or disappeared. The workspace was opened again.
    Setup,
    /// Events were dropped.
    Missed,
}

/// Sends events to any number of readers.
pub struct Feed {
    sender: broadcast::Sender<FeedEvent>,
    closed: watch::Sender<bool>,
}

/// One reader of the feed.
pub struct Subscription {
    receiver: broadcast::Receiver<FeedEvent>,
    closed: watch::Receiver<bool>,
}

impl Subscription {
    /// Waits for the next event. `None` when the server is about to stop.
    pub async fn next(&mut self) -> Option<FeedEvent> {
        let event = tokio::select! {
            event = self.receiver.recv() => event,
            _ = self.closed.wait_for(|closed| *closed) => return None,
        };
        match event {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(FeedEvent::Missed),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

impl Feed {
    pub(crate) fn new() -> Self {
        Self { sender: broadcast::Sender::new(KEPT), closed: watch::Sender::new(false) }
    }

    /// A reader for all events from now on. It costs nothing until something happens.
    pub fn subscribe(&self) -> Subscription {
        Subscription { receiver: self.sender.subscribe(), closed: self.closed.subscribe() }
    }

    pub(crate) fn send(&self, event: FeedEvent) {
        // Fails only without readers, and then nobody needs the event.
        let _ = self.sender.send(event);
    }

    /// Ends every subscription.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }
}
