//! The dashboard: pages for people, rendered here, kept live by server-sent events.
//!
//! A page is a pure function of what is on disk: the same code renders a visit and a live update. A `GET` changes nothing.
//! Decisions are forms that carry a token of this server and the hash of the file as it was shown.
//!
//! - `page`: which page an address means; `layout`: the frame of all pages; `events`: live updates.
//! - `workspace`, `board`, `tasks`, `task`, `approvals`, `agents`, `agent`, `conflicts`, `changes`, `change`, `file`, `ledger`, `search`: one
//!   page each; `export`: the ledger as a file.
//! - `undo`, `merge`: what would be written to files, and the question; `file_requests`: the answer, which writes it.
//! - `agents_now`: what agents are doing; `refusals`: refused writes and what became of them; `diff`: diffs and sizes; `links`.
//! - `decision_form`, `decide`: a person's decision, as a form and as a request; `bulk`, `decide_all`: one about several tasks; `task_actions`, `new_task`, `act`: what else
//!   people do with tasks; `task_request`: such a request; `trouble`: why something was not done.
//! - `visit`: who asks, and proof that a form came from our page; `view`, `overview`, `task_row`, `sheet`: what pages share.
//! - `panes`: three texts beside each other; `markdown`, `text`: untrusted text, made safe.
//! - `charts`, `plot`: what happened over time; `failures`: failed attempts; `assets`: style, script and icon.

mod act;
mod agent;
mod agents;
mod agents_now;
mod approvals;
mod assets;
mod board;
mod bulk;
mod change;
mod changes;
mod charts;
mod conflicts;
mod decide;
mod decide_all;
mod decision_form;
mod diff;
mod events;
mod export;
mod failures;
mod file;
mod file_requests;
mod layout;
mod ledger;
mod links;
mod markdown;
mod merge;
mod new_task;
mod overview;
mod page;
mod panes;
mod plot;
mod priority;
mod refusals;
mod search;
mod sheet;
mod task;
mod task_actions;
mod task_request;
mod task_row;
mod tasks;
mod text;
mod trouble;
mod undo;
mod view;
mod visit;
mod workspace;

use axum::Router;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};

use self::page::Page;
use self::visit::Visit;
use crate::site::Site;

/// Pages load everything from this server: no inline script, no inline style, nothing from elsewhere, no frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The routes, without their state.
pub fn router() -> Router<Site> {
    let mut routes = Router::new();
    for path in page::PATHS {
        routes = routes.route(path, get(show));
    }
    routes
        .route("/events", get(events::stream))
        .route("/ledger/export", get(export::get))
        .route("/static/{name}", get(assets::get))
        .route("/approvals/all", post(decide_all::decide))
        .route("/tasks/{task}/approve", post(decide::approve))
        .route("/tasks/{task}/reject", post(decide::reject))
        .route("/tasks/{task}/changes", post(decide::request_changes))
        .route("/tasks/{task}/edit", post(decide::edit))
        .route("/tasks/{task}/text", post(act::change_text))
        .route("/tasks/{task}/cancel", post(act::cancel))
        .route("/tasks/{task}/retry", post(act::retry))
        .route("/tasks/{task}/return", post(act::give_back))
        .route("/tasks/{task}/priority", post(act::change_priority))
        .route("/tasks/{task}/undo", post(act::take_back))
        .route("/tasks", post(act::add))
        .route("/changes/{line}/undo", post(file_requests::undo_change))
        .route("/turns/{turn}/undo", post(file_requests::undo_turn))
        .route("/conflicts/{line}/merge", post(file_requests::write_merge))
        .route("/conflicts/{line}/dismiss", post(file_requests::dismiss))
        // The turns are on the page of the agents.
        .route("/turns", get(async || Redirect::to("/agents")))
        .fallback(no_page)
        .layer(map_response(add_headers))
}

async fn show(visit: Visit, uri: Uri) -> Response {
    layout::respond(visit, Page::parse(&uri).unwrap_or(Page::NotFound)).await
}

/// Any other address: a page for people, a sentence for programs.
async fn no_page(visit: Visit, headers: HeaderMap) -> Response {
    let accepts = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    if accepts.is_some_and(|accept| accept.contains("text/html")) {
        return layout::respond(visit, Page::NotFound).await;
    }
    (StatusCode::NOT_FOUND, "no such page\n").into_response()
}

/// Adds the security headers to every response.
async fn add_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let say = |headers: &mut HeaderMap, name: HeaderName, value: &'static str| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    say(headers, header::CONTENT_SECURITY_POLICY, POLICY);
    say(headers, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    say(headers, header::X_FRAME_OPTIONS, "DENY");
    // Other sites learn nothing. Not `no-referrer`, because browsers then also hide the `Origin` of our own forms.
    say(headers, header::REFERRER_POLICY, "same-origin");
    say(headers, HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    say(headers, HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    // A page contains a token, and it is outdated soon.
    say(headers, header::CACHE_CONTROL, "no-store");
    response
}
