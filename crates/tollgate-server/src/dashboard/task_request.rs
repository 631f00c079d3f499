//! What a person asks for about one task, with a form.
//!
//! Invariant: nothing is done without a token of this server.

use std::thread::sleep;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use tollgate::digest::Digest;
use tollgate::error::{Fault, Result};
use tollgate::vault::retry::with_retry;
use tollgate::vault::state::State;
use tollgate::vault::{Allowed, Denial, TaskAfterStep, TaskName, Vault};

use super::layout;
use super::page::Page;
use super::sheet::Sheet;
use super::trouble::Trouble;
use super::visit::Visit;
use crate::site::Site;

/// One form about one task.
pub(super) struct TaskRequest {
    pub(super) visit: Visit,
    pub(super) task: TaskName,
}

impl FromRequestParts<Site> for TaskRequest {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, site: &Site) -> Result<Self, Response> {
        let visit = Visit::from_request_parts(parts, site).await.map_err(IntoResponse::into_response)?;
        let Path(task) = Path::from_request_parts(parts, site).await.map_err(IntoResponse::into_response)?;
        Ok(Self { visit, task })
    }
}

impl TaskRequest {
    /// Does what the form asks for, if the form came from our own page.
    pub(super) async fn carry_out(
        &self,
        token: &str,
        make: impl Fn(&Vault, &TaskName, &str) -> Result<Allowed<TaskAfterStep>> + Send + 'static,
    ) -> Result<Allowed<TaskAfterStep>, Trouble> {
        if !self.visit.sent(token) {
            return Err(Trouble::Forged);
        }
        let task = self.task.clone();
        let made = self.visit.site.blocking(move |site| {
            let open = site.open()?;
            let Some(vault) = open.as_ref().and_then(|open| open.vault.as_ref()) else {
                return Err(Fault::no_task(&task));
            };
            with_retry(|| make(vault, &task, &site.options.person), &sleep)
        });
        made.await.map_err(|fault| Trouble::Other(fault.0.to_string()))
    }

    /// Shows this page.
    pub(super) async fn show(self, page: impl FnOnce(TaskName) -> Page) -> Response {
        layout::respond(self.visit, page(self.task)).await
    }
}

/// The task, if it is still in this state and what the page showed; otherwise the reason why nothing can be done.
pub(super) fn as_shown(vault: &Vault, task: &TaskName, seen: Digest, state: State) -> Result<Allowed<Sheet>> {
    let sheet = Sheet::read(vault, task, Timestamp::now())?;
    Ok(match sheet.stored.slot.state() {
        now if now == state && sheet.exact == Some(seen) => Ok(sheet),
        now if now == state => Err(Denial::Changed(task.clone())),
        _ => Err(Denial::Elsewhere(task.clone(), sheet.stored.slot)),
    })
}
