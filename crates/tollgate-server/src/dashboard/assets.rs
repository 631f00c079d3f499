//! Style, script and icon. They are part of the program and named by their hash, so that browsers load them only once.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tollgate::digest::Digest;

/// One file.
pub(super) struct Asset {
    /// Its address.
    pub(super) path: String,
    kind: &'static str,
    bytes: &'static [u8],
}

impl Asset {
    fn new(ending: &str, kind: &'static str, bytes: &'static [u8]) -> Self {
        let hash = Digest::of(bytes).to_string();
        Self { path: format!("/static/{}.{ending}", &hash[..16]), kind, bytes }
    }
}

pub(super) static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("css", "text/css; charset=utf-8", include_bytes!("assets/style.css")));
pub(super) static SCRIPT: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("js", "text/javascript; charset=utf-8", include_bytes!("assets/script.js")));
pub(super) static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("svg", "image/svg+xml", include_bytes!("assets/icon.svg")));

pub(super) async fn get(Path(name): Path<String>) -> Response {
    let asked = format!("/static/{name}");
    match [&STYLE, &SCRIPT, &ICON].into_iter().find(|asset| asset.path == asked) {
        Some(asset) => {
            let headers = [
                (header::CONTENT_TYPE, asset.kind),
                (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
            ];
            (headers, asset.bytes).into_response()
        }
        None => (StatusCode::NOT_FOUND, "no such file\n").into_response(),
    }
}
