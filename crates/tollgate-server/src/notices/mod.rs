//! Notices: tells people outside of the browser that something needs them. A pending approval, an open breaker, an agent
//! that is refused again and again, several agents that change one file.
//!
//! The server watches the workspace anyway, so it is the one that sends. Nothing waits for a notice: `run` puts it into a
//! queue of limited length, and a thread delivers it, with a limited number of tries. The command and the webhook have one each. What cannot be delivered is counted,
//! and `/health` says so.
//!
//! - `notice_filter`: what deserves a notice, from what happens; pure.
//! - `delivery`: the queues, their threads, the command and the webhook.

pub(crate) mod delivery;
mod notice_filter;

pub use self::delivery::{NoticeTarget, Webhook};

use self::notice_filter::NoticeFilter;
use crate::feed::{FeedEvent, Subscription};
use crate::site::Site;
use serde_json::Value;
use tollgate::error::Result;
use tollgate::event::Event;
use tollgate::ledger::Line;
use tollgate::overlap;
use tollgate::settings::NoticeKind;
use tollgate::vault::state::State;

/// Looks at what waits already, and returns what sends notices from then on, for as long as it is polled. `None` if nobody
/// is to be told.
pub(crate) async fn start(site: Site) -> Option<impl Future<Output = ()>> {
    let settings = site.delivery()?.settings().clone();
    let events = site.feed.subscribe();
    let mut filter = NoticeFilter::new(settings, site.root());
    if let Ok(waiting) = site.blocking(pending).await {
        filter.pending(&waiting);
    }
    overlaps(&site, &mut filter).await;
    Some(run(site, events, filter))
}

async fn run(site: Site, mut events: Subscription, mut filter: NoticeFilter) {
    let Some(delivery) = site.delivery() else { return };
    while let Some(event) = events.next().await {
        match event {
            FeedEvent::Lines(lines) => {
                for notice in lines.iter().filter_map(|line| filter.line(line)) {
                    delivery.send(notice);
                }
                let is_about_turns = |line: &Line| {
                    matches!(line.event, Event::Mutation(..) | Event::TurnStarted(_) | Event::TurnEnded(_))
                };
                if lines.iter().any(is_about_turns) {
                    for notice in overlaps(&site, &mut filter).await {
                        delivery.send(notice);
                    }
                }
            }
            FeedEvent::Board | FeedEvent::Setup | FeedEvent::Missed => {
                let Ok(waiting) = site.blocking(pending).await else { continue };
                for notice in filter.pending(&waiting) {
                    delivery.send(notice);
                }
            }
            FeedEvent::Turns => {}
        }
    }
}

/// The notices about files that several agents have changed.
async fn overlaps(site: &Site, filter: &mut NoticeFilter) -> Vec<Value> {
    if !filter.wants(NoticeKind::Overlaps) {
        return Vec::new();
    }
    let look = |site: &Site| match site.open()? {
        Some(open) => overlap::list(open.gate.workspace()),
        None => Ok(Vec::new()),
    };
    site.blocking(look).await.map(|files| filter.overlaps(&files)).unwrap_or_default()
}

/// The tasks that wait for approval, and what people call them.
fn pending(site: &Site) -> Result<Vec<(String, String)>> {
    let Some(board) = site.board()? else { return Ok(Vec::new()) };
    let tasks = board.column(State::PendingApproval).tasks();
    let named = tasks.map(|task| {
        let title = task.brief.as_ref().ok().and_then(|brief| brief.title.as_deref());
        (task.name.to_string(), title.unwrap_or(task.name.stem()).to_owned())
    });
    Ok(named.collect())
}
