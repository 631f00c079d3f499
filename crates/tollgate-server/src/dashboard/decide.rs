//! A person's decisions: approve, reject, request changes, edit. Each form carries the hash of the file as it was shown.
//!
//! Invariants: nothing is decided without a token of this server. Only the version that was shown can be approved. If the
//! file was changed in the meantime, the page shows the new version and asks again. A second decision gets a clear answer.

use axum::extract::Form;
use axum::response::{IntoResponse, Redirect, Response};
use jiff::Timestamp;
use serde::Deserialize;
use tollgate::digest::Digest;
use tollgate::error::Result;
use tollgate::vault::anatomy::Anatomy;
use tollgate::vault::state::State;
use tollgate::vault::{Allowed, Denial, TaskAfterStep, TaskName, Vault};

use super::approvals::ApprovalsQuery;
use super::page::Page;
use super::task_request::{TaskRequest, as_shown};
use super::text::encode;
use super::trouble::Trouble;

#[derive(Deserialize)]
pub(super) struct ApproveForm {
    token: String,
    seen: Digest,
    next: Option<TaskName>,
}

/// The form of a decision that needs a reason.
#[derive(Deserialize)]
pub(super) struct ReasonForm {
    token: String,
    seen: Digest,
    next: Option<TaskName>,
    reason: String,
}

#[derive(Deserialize)]
pub(super) struct EditForm {
    token: String,
    seen: Digest,
    next: Option<TaskName>,
    text: String,
    #[serde(default)]
    then: Then,
}

/// What happens to the edited text.
#[derive(Deserialize, Default, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Then {
    #[default]
    Approve,
    /// The task waits where it is.
    Wait,
}

/// A decision about a task, the task to open after it, and the text that the person typed for it. The page shows the text
/// again if the decision is not made.
struct PendingDecision {
    request: TaskRequest,
    next: Option<TaskName>,
    typed: Option<String>,
}

impl PendingDecision {
    /// Makes the decision, if the form came from our own page, and shows the result.
    async fn decide(
        self,
        token: &str,
        make: impl Fn(&Vault, &TaskName, &str) -> Result<Allowed<TaskAfterStep>> + Send + 'static,
    ) -> Response {
        match self.request.carry_out(token, make).await {
            Ok(Ok(_)) => {
                let task = encode(self.request.task.as_str());
                let next =
                    self.next.map(|next| format!("&task={}", encode(next.as_str()))).unwrap_or_default();
                Redirect::to(&format!("/approvals?decided={task}{next}")).into_response()
            }
            // The task still waits for approval, so its file must have changed.
            Ok(Err(Denial::Changed(_))) if self.is_waiting().await => self.again(Trouble::Changed).await,
            Ok(Err(denial)) => self.again(Trouble::Other(denial.to_string())).await,
            Err(trouble) => self.again(trouble).await,
        }
    }

    async fn is_waiting(&self) -> bool {
        let task = self.request.task.clone();
        let found = self.request.visit.site.blocking(move |site| {
            let open = site.open()?;
            let vault = open.as_ref().and_then(|open| open.vault.as_ref());
            Ok(vault.and_then(|vault| vault.get(&task, Timestamp::now()).ok()))
        });
        found.await.ok().flatten().is_some_and(|found| found.slot.state() == State::PendingApproval)
    }

    /// Shows the current version and asks again.
    async fn again(self, trouble: Trouble) -> Response {
        let again = |task| Page::Approvals(ApprovalsQuery::again(task, trouble, self.typed));
        self.request.show(again).await
    }
}

pub(super) async fn approve(request: TaskRequest, Form(form): Form<ApproveForm>) -> Response {
    let decision = PendingDecision { request, next: form.next, typed: None };
    decision
        .decide(&form.token, move |vault, task, person| {
            vault.approve(task, person, Some(form.seen), Timestamp::now())
        })
        .await
}

pub(super) async fn reject(request: TaskRequest, Form(form): Form<ReasonForm>) -> Response {
    with_reason(request, form, |vault, task, person, reason| {
        vault.reject(task, person, reason, Timestamp::now())
    })
    .await
}

/// Sends a draft back to an agent.
pub(super) async fn request_changes(request: TaskRequest, Form(form): Form<ReasonForm>) -> Response {
    with_reason(request, form, |vault, task, person, reason| {
        vault.retry(task, person, Some(reason), Timestamp::now())
    })
    .await
}

async fn with_reason(
    request: TaskRequest,
    form: ReasonForm,
    make: fn(&Vault, &TaskName, &str, &str) -> Result<Allowed<TaskAfterStep>>,
) -> Response {
    let reason = form.reason.trim().to_owned();
    let decision = PendingDecision { request, next: form.next, typed: Some(reason.clone()) };
    if reason.is_empty() {
        return decision.again(Trouble::NoReason).await;
    }
    decision
        .decide(&form.token, move |vault, task, person| {
            match as_shown(vault, task, form.seen, State::PendingApproval)? {
                Ok(_) => make(vault, task, person, &reason),
                Err(denial) => Ok(Err(denial)),
            }
        })
        .await
}

pub(super) async fn edit(request: TaskRequest, Form(form): Form<EditForm>) -> Response {
    // A text that was only saved is what the person wants to see next.
    let next = if form.then == Then::Wait { Some(request.task.clone()) } else { form.next };
    let decision = PendingDecision { request, next, typed: Some(form.text.clone()) };
    decision
        .decide(&form.token, move |vault, task, person| {
            match as_shown(vault, task, form.seen, State::PendingApproval)? {
                Ok(sheet) => {
                    let text = with_edit(&sheet.text, &form.text);
                    let edit = if form.then == Then::Wait { Vault::edit } else { Vault::amend };
                    edit(vault, task, person, form.seen, &text, Timestamp::now())
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
