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
use super::approvals::ApprovalsQuery;
use super::layout;
use super::page::Page;
use super::page_cache::PageCache;
use super::session::PersonSession;
use super::sheet::Sheet;
use super::text::encode;
use super::trouble::Trouble;
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
        match carry_out(&self.site, &self.cache, &self.session, token, &self.task, make).await {
            Ok(Ok(_)) => {
                Redirect::to(&format!("/approvals?decided={}", encode(self.task.as_str()))).into_response()
            }
            // The task still waits for approval, so its file must have changed.
            Ok(Err(Denial::Changed(_))) if self.is_waiting().await => self.again(Trouble::Changed).await,
            Ok(Err(denial)) => self.again(Trouble::Other(denial.to_string())).await,
            Err(trouble) => self.again(trouble).await,
        }
    }

    async fn is_waiting(&self) -> bool {
        let task = self.task.clone();
        let found = self.site.blocking(move |site| {
            let open = site.open()?;
            let vault = open.as_ref().and_then(|open| open.vault.as_ref());
            Ok(vault.and_then(|vault| vault.get(&task, Timestamp::now()).ok()))
        });
        let state = found.await.ok().flatten().map(|found| found.slot.state());
        state == Some(state::State::PendingApproval)
    }

    /// Shows the current version and asks again.
    async fn again(self, trouble: Trouble) -> Response {
        let page = Page::Approvals(ApprovalsQuery::again(self.task, trouble, self.typed));
        layout::respond(self.site, self.cache, &self.session, page).await
    }
}

/// Does what a form asks for, if the form came from our own page.
pub(super) async fn carry_out(
    site: &Site,
    cache: &PageCache,
    session: &PersonSession,
    token: &str,
    task: &TaskName,
    make: impl Fn(&Vault, &TaskName, &str) -> Result<Allowed<Landed>> + Send + 'static,
) -> Result<Allowed<Landed>, Trouble> {
    if !session.sent(site, token) {
        return Err(Trouble::Forged);
    }
    let task = task.clone();
    let made = site.blocking(move |site| {
        let open = site.open()?;
        let Some(vault) = open.as_ref().and_then(|open| open.vault.as_ref()) else {
            return Err(Fault::Missing { what: format!("the task `{task}`") });
        };
        with_retry(|| make(vault, &task, &site.options.person), &sleep)
    });
    let made = made.await;
    cache.clear();
    made.map_err(|fault| Trouble::Other(fault.0.to_string()))
}

/// The task, if it is still in this state and what the page showed; otherwise the reason why nothing can be done.
pub(super) fn as_shown(
    vault: &Vault,
    task: &TaskName,
    seen: Digest,
    state: state::State,
) -> Result<Allowed<Sheet>> {
    let sheet = Sheet::read(vault, task, Timestamp::now())?;
    Ok(match sheet.stored.slot.state() {
        now if now == state && sheet.exact == Some(seen) => Ok(sheet),
        now if now == state => Err(Denial::Changed(task.clone())),
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
        .decide(&form.token, move |vault, task, person| {
            match as_shown(vault, task, form.seen, state::State::PendingApproval)? {
                Ok(_) => vault.reject(task, person, &reason, Timestamp::now()),
                Err(denial) => Ok(Err(denial)),
            }
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
        .decide(&form.token, move |vault, task, person| {
            match as_shown(vault, task, form.seen, state::State::PendingApproval)? {
                Ok(sheet) => {
                    let text = with_edit(&sheet.text, &form.text);
                    vault.amend(task, person, form.seen, &text, Timestamp::now())
                }
                Err(denial) => Ok(Err(denial)),
            }
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
