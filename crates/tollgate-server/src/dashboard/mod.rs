//! The dashboard: pages for people.

use axum::Router;
use axum::extract::State;
use axum::response::Html;
use axum::routing::get;

use crate::site::Site;

/// Its routes, without their state.
pub fn router() -> Router<Site> {
    Router::new().route("/", get(index))
}

async fn index(State(site): State<Site>) -> Html<&'static str> {
    Html(match site.open() {
        Ok(Some(_)) => "<!doctype html><title>tollgate</title><h1>tollgate</h1>",
        _ => "<!doctype html><title>tollgate</title><h1>not set up</h1>",
    })
}
