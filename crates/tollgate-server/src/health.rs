//! `GET /health`: how the coordination goes, for monitoring.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::site::{Broken, Site};

pub(crate) async fn get(State(site): State<Site>) -> Result<Json<Value>, Broken> {
    site.blocking(|site| {
        let open = site.open()?;
        let Some(vault) = open.as_ref().and_then(|open| open.vault.as_ref()) else {
            return Ok(Json(json!({"status": "ok"})));
        };
        let (all, each) = vault.vault.figures()?;
        Ok(Json(json!({"status": "ok", "coordination": all, "agents": each})))
    })
    .await
}
