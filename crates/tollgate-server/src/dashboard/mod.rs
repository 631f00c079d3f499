//! The dashboard: pages for people, rendered here, live by server-sent events.
//!
//! A page is a pure function of what is on the disk: the same code answers a visit and an event. Nothing changes by a
//! `GET`; decisions are forms that carry a token of this server and the hash of what was shown.
//!
//! - `page`: which page an address means; `layout`: what all pages share; `events`: the same pages, again when
//!   something has happened.
//! - `board`, `tasks`, `task`, `approvals`, `agents`, `conflicts`, `turns`, `ledger`: one page each.
//! - `decide`: what a person decides. `session`: that it was a person at one of our pages.
//! - `desk`: what is remembered between two looks. `anatomy`: the parts of a task's file.
//! - `markdown`, `text`: untrusted text, made safe. `plot`: a small picture. `assets`: style and script.

mod agents;
mod anatomy;
mod approvals;
mod assets;
mod board;
mod conflicts;
mod decide;
mod desk;
mod events;
mod layout;
mod ledger;
mod markdown;
mod page;
mod plot;
mod session;
mod task;
mod tasks;
mod text;
mod turns;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::map_response;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};

use self::desk::Desk;
use self::page::{Page, Visit};
use self::session::Session;
use crate::site::Site;

/// Everything a page needs comes from here. No inline script, no inline style, nothing from elsewhere, no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Its routes, without their state.
pub fn router() -> Router<Site> {
    let mut routes = Router::new();
    for path in page::PATHS {
        routes = routes.route(path, get(visit));
    }
    routes
        .route("/events", get(events::stream))
        .route("/static/{name}", get(assets::get))
        .route("/tasks/{task}/approve", post(decide::approve))
        .route("/tasks/{task}/reject", post(decide::reject))
        .route("/tasks/{task}/edit", post(decide::edit))
        .layer(map_response(guarded))
        .layer(Extension(Arc::new(Desk::default())))
}

async fn visit(
    State(site): State<Site>,
    Extension(desk): Extension<Arc<Desk>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let session = Session::of(&headers);
    match Page::parse(&uri) {
        Some(page) => show(site, desk, session, page).await,
        None => (StatusCode::NOT_FOUND, "there is no such page\n").into_response(),
    }
}

/// The whole page.
async fn show(site: Site, desk: Arc<Desk>, session: Session, page: Page) -> Response {
    let token = session.token(&site);
    let rendered = site
        .blocking(move |site| {
            let visit = Visit { site, desk: &desk, token: &token };
            page.view(&visit).map(|view| (view.status, layout::whole(&visit, &page, &view)))
        })
        .await;
    match rendered {
        Ok((status, html)) => (status, session.headers(), Html(html)).into_response(),
        Err(broken) => broken.into_response(),
    }
}

/// What every answer says to the browser.
async fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let say = |headers: &mut HeaderMap, name: HeaderName, value: &'static str| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    say(headers, header::CONTENT_SECURITY_POLICY, POLICY);
    say(headers, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    say(headers, header::X_FRAME_OPTIONS, "DENY");
    // Strangers learn nothing. Not `no-referrer`: browsers then hide the `Origin` of our own forms too, and it is checked.
    say(headers, header::REFERRER_POLICY, "same-origin");
    say(headers, HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    say(headers, HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    // A page has a token in it, and is old the next moment.
    say(headers, header::CACHE_CONTROL, "no-store");
    response
}
