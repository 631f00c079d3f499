//! What a person decides: approve, reject, edit then approve. Each is a form that carries the hash of what was shown.
//!
//! Invariants: nothing is decided without a token of this server; nothing is approved but what was shown; what was changed
//! meanwhile is shown again and asked again; a second decision gets a clear answer.

use std::sync::Arc;
use std::thread::sleep;

use axum::Extension;
use axum::extract::{Form, Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use tollgate::digest::Digest;
use tollgate::error::{Fault, Result};
use tollgate::vault::retry::patiently;
use tollgate::vault::state;
use tollgate::vault::{Decided, TaskName, Vault};

use super::anatomy::Anatomy;
use super::approvals::{Asked, Trouble};
use super::desk::Desk;
use super::page::Page;
use super::session::Session;
use super::task::Sheet;
use super::text::encode;
use crate::site::{OpenVault, Site};

#[derive(Deserialize)]
pub(super) struct Yes {
    token: String,
    seen: Digest,
}

#[derive(Deserialize)]
pub(super) struct No {
    token: String,
    seen: Digest,
    reason: String,
}

#[derive(Deserialize)]
pub(super) struct Edited {
    token: String,
    seen: Digest,
    text: String,
}

/// Who asks, and about what.
pub(super) struct Case {
    site: Site,
    desk: Arc<Desk>,
    session: Session,
    task: TaskName,
}

type About = (State<Site>, Extension<Arc<Desk>>, Path<TaskName>, HeaderMap);

impl Case {
    fn new((State(site), Extension(desk), Path(task), headers): About) -> Self {
        Self { site, desk, session: Session::of(&headers), task }
    }

    /// Makes a decision, if the form is ours, and shows what came of it.
    async fn decide(
        self,
        token: &str,
        make: impl Fn(&Vault, &TaskName, &str) -> Result<Answer> + Send + 'static,
    ) -> Response {
        if !self.session.sent(&self.site, token) {
            return self.again(Trouble::Forged).await;
        }
        let task = self.task.clone();
        let made = self.site.blocking(move |site| {
            let open = site.open()?;
            let Some(OpenVault { vault, .. }) = open.as_ref().and_then(|open| open.vault.as_ref()) else {
                return Err(Fault::Missing { what: format!("the task `{task}`") });
            };
            patiently(|| make(vault, &task, &site.person), &sleep)
        });
        let made = made.await;
        self.desk.forget();
        match made {
            Ok(Answer::Decided(Decided::Yes(_))) => {
                Redirect::to(&format!("/approvals?decided={}", encode(self.task.as_str()))).into_response()
            }
            Ok(Answer::Decided(Decided::No(_)) | Answer::Changed) if self.is_waiting().await => {
                self.again(Trouble::Changed).await
            }
            Ok(Answer::Changed) => self.again(Trouble::Told("It is not there any more".into())).await,
            Ok(Answer::Decided(Decided::No(sentence))) => self.again(Trouble::Told(sentence)).await,
            Ok(Answer::NoReason) => self.again(Trouble::NoReason).await,
            Err(broken) => self.again(Trouble::Told(broken.0.to_string())).await,
        }
    }

    async fn is_waiting(&self) -> bool {
        let task = self.task.clone();
        let state = self.site.blocking(move |site| {
            let open = site.open()?;
            let Some(open) = open else { return Ok(None) };
            let Some(OpenVault { vault, .. }) = &open.vault else { return Ok(None) };
            Ok(vault.get(&task, open.gate.workspace().now()).ok().map(|stored| stored.slot.state()))
        });
        matches!(state.await, Ok(Some(state::State::PendingApproval)))
    }

    async fn again(self, trouble: Trouble) -> Response {
        let page = Page::Approvals(Asked::again(self.task, trouble));
        super::show(self.site, self.desk, self.session, page).await
    }
}

/// What came of asking for a decision.
pub(super) enum Answer {
    Decided(Decided),
    Changed,
    NoReason,
}

pub(super) async fn approve(
    site: State<Site>,
    desk: Extension<Arc<Desk>>,
    task: Path<TaskName>,
    headers: HeaderMap,
    Form(yes): Form<Yes>,
) -> Response {
    let case = Case::new((site, desk, task, headers));
    let seen = yes.seen;
    case.decide(&yes.token, move |vault, task, person| {
        vault.approve(task, person, Some(seen), jiff::Timestamp::now()).map(Answer::Decided)
    })
    .await
}

pub(super) async fn reject(
    site: State<Site>,
    desk: Extension<Arc<Desk>>,
    task: Path<TaskName>,
    headers: HeaderMap,
    Form(no): Form<No>,
) -> Response {
    let case = Case::new((site, desk, task, headers));
    case.decide(&no.token, move |vault, task, person| {
        if no.reason.trim().is_empty() {
            return Ok(Answer::NoReason);
        }
        let now = jiff::Timestamp::now();
        let sheet = Sheet::read(vault, task, now)?;
        if sheet.stored.slot.state() == state::State::PendingApproval && sheet.exact != Some(no.seen) {
            return Ok(Answer::Changed);
        }
        vault.reject(task, person, no.reason.trim(), now).map(Answer::Decided)
    })
    .await
}

pub(super) async fn edit(
    site: State<Site>,
    desk: Extension<Arc<Desk>>,
    task: Path<TaskName>,
    headers: HeaderMap,
    Form(edited): Form<Edited>,
) -> Response {
    let case = Case::new((site, desk, task, headers));
    case.decide(&edited.token, move |vault, task, person| {
        let now = jiff::Timestamp::now();
        let sheet = Sheet::read(vault, task, now)?;
        if sheet.stored.slot.state() == state::State::PendingApproval && sheet.exact != Some(edited.seen) {
            return Ok(Answer::Changed);
        }
        let text = with(&sheet.text, &edited.text);
        vault.amend(task, person, edited.seen, &text, now).map(Answer::Decided)
    })
    .await
}

/// The file with the edit put in: into the draft, if there is one; else it is all of it.
fn with(text: &str, edited: &str) -> String {
    // Browsers send every line end as CR LF; the file keeps its own.
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
    use super::with;

    #[test]
    fn an_edit_goes_into_the_draft_and_nowhere_else() {
        let file = "a\n<!-- tollgate c-1 -->\n## Draft\n\nold\n\n## Completion\n\nx\n";
        assert_eq!(
            with(file, "new\r\nlines\r\n"),
            "a\n<!-- tollgate c-1 -->\n## Draft\n\nnew\nlines\n\n## Completion\n\nx\n"
        );
        assert_eq!(with(file, "old"), file, "what was not changed is the same bytes");
        assert_eq!(with("no draft\n", "all\r\nof it\r\n"), "all\nof it\n");
        assert_eq!(with("dos\r\n## Draft\r\nx\r\n", "y\r\nz"), "dos\r\n## Draft\r\ny\r\nz\r\n");
        assert_eq!(with("## Draft\n", "y"), "## Draft\ny");
    }
}
