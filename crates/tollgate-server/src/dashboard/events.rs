//! `GET /events?page=ADDRESS&seen=FINGERPRINT`: the parts of that page again, whenever they are not what was seen.
//!
//! A page opens one such stream while somebody can see it. Nothing is polled: the stream sleeps until the feed wakes it.
//! Each event is named by its fingerprint, so a browser that comes back after a break tells what it has, and is told only
//! what is new.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;

use super::desk::Desk;
use super::layout;
use super::page::{Page, Visit};
use super::session::Session;
use crate::feed::News;
use crate::site::{Broken, Site};

/// Agents may do a hundred things a second; a person wants to read. What happens within this time is shown as one.
const CALM: Duration = Duration::from_millis(300);

/// Often enough to find out that a browser is gone, seldom enough to cost nothing.
const ALIVE: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
pub(super) struct Asked {
    page: String,
    #[serde(default)]
    seen: String,
}

struct Follower {
    site: Site,
    desk: Arc<Desk>,
    page: Page,
    token: String,
    news: News,
    seen: String,
    is_first: bool,
}

pub(super) async fn stream(
    State(site): State<Site>,
    Extension(desk): Extension<Arc<Desk>>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Response {
    let page = asked.page.parse::<Uri>().ok().and_then(|uri| Page::parse(&uri));
    let Some(page) = page else { return (StatusCode::NOT_FOUND, "there is no such page\n").into_response() };
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let follower = Follower {
        token: Session::of(&headers).token(&site),
        // From before the first look, so that nothing falls between.
        news: site.feed.subscribe(),
        seen: last.unwrap_or(&asked.seen).to_owned(),
        is_first: true,
        site,
        desk,
        page,
    };
    let events = stream::unfold(follower, async |mut follower| {
        let event = follower.next().await?;
        Some((Ok::<_, Infallible>(event), follower))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE)).into_response()
}

impl Follower {
    /// Waits until the page is not what was seen. `None` when the server is about to end.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if !self.is_first {
                self.news.next().await?;
                // What belongs to the same burst is told in one; this sleep groups, it does not wait for anything.
                tokio::time::sleep(CALM).await;
                self.news = self.site.feed.subscribe();
            }
            self.is_first = false;
            // A page that cannot be made now is made when the next thing happens.
            let Ok(parts) = self.parts().await else { continue };
            let fingerprint = layout::fingerprint(&parts);
            if fingerprint != self.seen {
                self.seen.clone_from(&fingerprint);
                return Some(Event::default().event("parts").id(fingerprint).data(parts));
            }
        }
    }

    async fn parts(&self) -> Result<String, Broken> {
        let (desk, page, token) = (self.desk.clone(), self.page.clone(), self.token.clone());
        self.site
            .blocking(move |site| {
                let visit = Visit { site, desk: &desk, token: &token };
                let view = page.view(&visit)?;
                Ok(layout::parts(&visit, &page, &view).into_string())
            })
            .await
    }
}
