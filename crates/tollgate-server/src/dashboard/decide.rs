//! A person's decisions: approve, reject, or edit and approve. Each form carries the hash of the file as it was shown.
//!
//! Invariants: nothing is decided without a token of this server. Only the version that was shown can be approved. If the
//! file was changed in the meantime, the page shows the new version and asks again. A second decision gets a clear answer.

use std::sync::Arc;
use std::thread::sleep;

use axum::Extension;
use axum::extract::{Form, Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use jiff::Timestamp;
use serde::Deserialize;
use tollgate::digest::Digest;
use tollgate::error::{Fault, Result};
use tollgate::vault::retry::with_retry;
use tollgate::vault::state;
use tollgate::vault::{Allowed, Denial, Landed, TaskName, Vault};

use super::anatomy::Anatomy;
use super::approvals::{ApprovalsQuery, Trouble};
use super::layout;
use super::page::Page;
use super::page_cache::PageCache;
use super::session::PersonSession;
use super::sheet::Sheet;
use super::text::encode;
use crate::site::Site;

#[derive(Deserialize)]
pub(super) struct ApproveForm {
    token: String,
    seen: Digest,
}

#[derive(Deserialize)]
pub(super) struct RejectForm {
    token: String,
    seen: Digest,
    reason: String,
}

#[derive(Deserialize)]
pub(super) struct EditForm {
    token: String,
    seen: Digest,
    text: String,
}

/// One decision: about which task, and from which browser.
struct PendingDecision {
    site: Site,
    cache: Arc<PageCache>,
    session: PersonSession,
    task: TaskName,
    /// The text that the person typed. The page shows it again if the decision is not made.
    typed: Option<String>,
}

type DecisionRequest = (State<Site>, Extension<Arc<PageCache>>, Path<TaskName>, PersonSession);

impl PendingDecision {
    fn new(
        (State(site), Extension(cache), Path(task), session): DecisionRequest,
        typed: Option<String>,
    ) -> Self {
        Self { site, cache, session, task, typed }
    }

    /// Makes the decision, if the form came from our own page, and shows the result.
    async fn decide(
        self,
        token: &str,
        make: impl Fn(&Vault, &TaskName, &str) -> Result<Allowed<Landed>> + Send + 'static,
    ) -> Response {
        if !self.session.sent(&self.site, token) {
            return self.again(Trouble::Forged).await;
        }
        let task = self.task.clone();
        let made = self.site.blocking(move |site| {
            let open = site.open()?;
            let Some(vault) = open.as_ref().and_then(|open| open.vault.as_ref()) else {
                return Err(Fault::Missing { what: format!("the task `{task}`") });
            };
            Ok(match with_retry(|| make(vault, &task, &site.options.person), &sleep)? {
                Ok(_) => None,
                // The task still waits for approval, so its file must have changed.
                Err(_) if is_waiting(vault, &task) => Some(Trouble::Changed),
                Err(not_decided) => Some(Trouble::Other(not_decided.to_string())),
            })
        });
        let made = made.await;
        self.cache.clear();
        match made {
            Ok(None) => {
                Redirect::to(&format!("/approvals?decided={}", encode(self.task.as_str()))).into_response()
            }
            Ok(Some(trouble)) => self.again(trouble).await,
            Err(fault) => self.again(Trouble::Other(fault.0.to_string())).await,
        }
    }

    /// Shows the current version and asks again.
    async fn again(self, trouble: Trouble) -> Response {
        let page = Page::Approvals(ApprovalsQuery::again(self.task, trouble, self.typed));
        layout::respond(self.site, self.cache, &self.session, page).await
    }
}

fn is_waiting(vault: &Vault, task: &TaskName) -> bool {
    let stored = vault.get(task, Timestamp::now());
    stored.is_ok_and(|stored| stored.slot.state() == state::State::PendingApproval)
}

/// The task, if it is still what the page showed; otherwise the reason why it cannot be decided.
fn as_shown(vault: &Vault, task: &TaskName, seen: Digest) -> Result<Allowed<Sheet>> {
    let sheet = Sheet::read(vault, task, Timestamp::now())?;
    Ok(match sheet.stored.slot.state() {
        state::State::PendingApproval if sheet.exact == Some(seen) => Ok(sheet),
        state::State::PendingApproval => Err(Denial::Changed(task.clone())),
        _ => Err(Denial::Elsewhere(task.clone(), sheet.stored.slot)),
    })
}

pub(super) async fn approve(
    site: State<Site>,
    cache: Extension<Arc<PageCache>>,
    task: Path<TaskName>,
    session: PersonSession,
    Form(form): Form<ApproveForm>,
) -> Response {
    let decision = PendingDecision::new((site, cache, task, session), None);
    decision
        .decide(&form.token, move |vault, task, person| {
            vault.approve(task, person, Some(form.seen), Timestamp::now())
        })
        .await
}

pub(super) async fn reject(
    site: State<Site>,
    cache: Extension<Arc<PageCache>>,
    task: Path<TaskName>,
    session: PersonSession,
    Form(form): Form<RejectForm>,
) -> Response {
    let reason = form.reason.trim().to_owned();
    let decision = PendingDecision::new((site, cache, task, session), Some(reason.clone()));
    if reason.is_empty() {
        return decision.again(Trouble::NoReason).await;
    }
    decision
        .decide(&form.token, move |vault, task, person| match as_shown(vault, task, form.seen)? {
            Ok(_) => vault.reject(task, person, &reason, Timestamp::now()),
            Err(denial) => Ok(Err(denial)),
        })
        .await
}

pub(super) async fn edit(
    site: State<Site>,
    cache: Extension<Arc<PageCache>>,
    task: Path<TaskName>,
    session: PersonSession,
    Form(form): Form<EditForm>,
) -> Response {
    let decision = PendingDecision::new((site, cache, task, session), Some(form.text.clone()));
    decision
        .decide(&form.token, move |vault, task, person| match as_shown(vault, task, form.seen)? {
            Ok(sheet) => {
                let text = with_edit(&sheet.text, &form.text);
                vault.amend(task, person, form.seen, &text, Timestamp::now())
            }
            Err(denial) => Ok(Err(denial)),
        })
        .await
}

/// The file with the edited text: it replaces the draft if there is one, or else the whole file.
fn with_edit(text: &str, edited: &str) -> String {
    // Browsers send every line end as CR LF. The file keeps its own kind.
    let edited = edited.replace("\r\n", "\n");
    let edited = if text.contains("\r\n") { edited.replace('\n', "\r\n") } else { edited };
    match Anatomy::of(text).draft {
        Some(draft) => {
            let old = &text[draft.clone()];
            let kept = old.trim_matches(['\r', '\n']);
            let start = draft.start + (old.len() - old.trim_start_matches(['\r', '\n']).len());
            let end = start + kept.len();
            let edited = edited.trim_matches(['\r', '\n']);
            [&text[..start], edited, &text[end..]].concat()
        }
        None => edited,
    }
}

#[cfg(test)]
mod tests {
    use super::with_edit;

    #[test]
    fn an_edit_changes_only_the_draft() {
        let file = "a\n<!-- tollgate c-1 -->\n## Draft\n\nold\n\n## Completion\n\nx\n";
        assert_eq!(
            with_edit(file, "new\r\nlines\r\n"),
            "a\n<!-- tollgate c-1 -->\n## Draft\n\nnew\nlines\n\n## Completion\n\nx\n"
        );
        assert_eq!(with_edit(file, "old"), file, "an unchanged draft leaves the file unchanged");
        assert_eq!(with_edit("no draft\n", "all\r\nof it\r\n"), "all\nof it\n");
        assert_eq!(with_edit("dos\r\n## Draft\r\nx\r\n", "y\r\nz"), "dos\r\n## Draft\r\ny\r\nz\r\n");
        assert_eq!(with_edit("## Draft\n", "y"), "## Draft\ny");
    }
}
