//! `GET /events?page=ADDRESS&seen=FINGERPRINT`: the parts of that page, sent again whenever they change.
//!
//! A page opens one such stream while it is visible. Nothing is polled: the stream sleeps until the feed wakes it. After that it
//! looks once more when it is quiet, because some figures on the pages may be as old as [`LONGEST_HOLD`]. The id
//! of each event is a fingerprint of the parts. A browser that reconnects sends the last fingerprint it has, and gets the
//! parts only if they have changed.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::Query;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;

use super::layout;
use super::page::Page;
use super::visit::Visit;
use crate::fault_response::FaultResponse;
use crate::feed::Subscription;
use crate::site::LONGEST_HOLD;

/// Changes within this time are shown as one. Agents may do a hundred things a second, and a person wants to read.
const CALM: Duration = Duration::from_millis(300);

/// The time between keep-alive messages, by which the server finds out that a browser is gone.
const ALIVE: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
pub(super) struct StreamQuery {
    page: String,
    #[serde(default)]
    seen: String,
}

/// One browser that follows one page.
struct PageFollower {
    visit: Visit,
    page: Page,
    events: Subscription,
    seen: String,
    is_first: bool,
    /// Everything on the page is as new as it gets until something happens.
    is_settled: bool,
}

pub(super) async fn stream(visit: Visit, Query(query): Query<StreamQuery>, headers: HeaderMap) -> Response {
    let page = query.page.parse::<Uri>().ok().and_then(|uri| Page::parse(&uri));
    let Some(page) = page else { return (StatusCode::NOT_FOUND, "no such page\n").into_response() };
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let follower = PageFollower {
        // Subscribe before the first read, so that no change is missed.
        events: visit.site.feed.subscribe(),
        seen: last.unwrap_or(&query.seen).to_owned(),
        is_first: true,
        is_settled: false,
        visit,
        page,
    };
    let events = stream::unfold(follower, async |mut follower| {
        let event = follower.next().await?;
        Some((Ok::<_, Infallible>(event), follower))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE)).into_response()
}

impl PageFollower {
    /// Waits until the page differs from what the browser has. `None` when the server is about to stop.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if !self.is_first {
                let event = match self.is_settled {
                    true => Ok(self.events.next().await),
                    false => tokio::time::timeout(LONGEST_HOLD, self.events.next()).await,
                };
                self.is_settled = event.is_err();
                if let Ok(event) = event {
                    event?;
                    // Groups the changes of one burst.
                    tokio::time::sleep(CALM).await;
                    self.events = self.visit.site.feed.subscribe();
                }
            }
            self.is_first = false;
            // If the page cannot be rendered now, try again after the next change.
            let Ok(parts) = self.parts().await else { continue };
            let fingerprint = layout::fingerprint(&parts);
            if fingerprint != self.seen {
                self.seen.clone_from(&fingerprint);
                return Some(Event::default().event("parts").id(fingerprint).data(parts));
            }
        }
    }

    async fn parts(&self) -> Result<String, FaultResponse> {
        let (visit, page) = (self.visit.clone(), self.page.clone());
        self.visit
            .site
            .blocking(move |_| {
                let view = page.view(&visit)?;
                Ok(layout::parts(&visit, &page, &view).into_string())
            })
            .await
    }
}
