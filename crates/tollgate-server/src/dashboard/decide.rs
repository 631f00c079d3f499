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
use jiff::Timestamp;
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
struct Case {
    site: Site,
    desk: Arc<Desk>,
    session: Session,
    task: TaskName,
    /// What was typed: it must not be lost if it cannot be used.
    typed: Option<String>,
}

type About = (State<Site>, Extension<Arc<Desk>>, Path<TaskName>, HeaderMap);

impl Case {
    fn new((State(site), Extension(desk), Path(task), headers): About, typed: Option<String>) -> Self {
        Self { site, desk, session: Session::of(&headers), task, typed }
    }

    /// Makes a decision, if the form is ours, and shows what came of it.
    async fn decide(
        self,
        token: &str,
        make: impl Fn(&Vault, &TaskName, &str) -> Result<Decided> + Send + 'static,
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
            Ok(match patiently(|| make(vault, &task, &site.person), &sleep)? {
                Decided::Yes(_) => None,
                // It still waits, so it is not what was shown.
                Decided::No(_) if is_waiting(vault, &task) => Some(Trouble::Changed),
                Decided::No(sentence) => Some(Trouble::Told(sentence)),
            })
        });
        let made = made.await;
        self.desk.forget();
        match made {
            Ok(None) => {
                Redirect::to(&format!("/approvals?decided={}", encode(self.task.as_str()))).into_response()
            }
            Ok(Some(trouble)) => self.again(trouble).await,
            Err(broken) => self.again(Trouble::Told(broken.0.to_string())).await,
        }
    }

    /// Shows what is there now, and asks again.
    async fn again(self, trouble: Trouble) -> Response {
        let page = Page::Approvals(Asked::again(self.task, trouble, self.typed));
        super::show(self.site, self.desk, self.session, page).await
    }
}

fn is_waiting(vault: &Vault, task: &TaskName) -> bool {
    let stored = vault.get(task, Timestamp::now());
    stored.is_ok_and(|stored| stored.slot.state() == state::State::PendingApproval)
}

/// The task as it was shown; or why it is not.
fn as_shown(vault: &Vault, task: &TaskName, seen: Digest) -> Result<std::result::Result<Sheet, Decided>> {
    let sheet = Sheet::read(vault, task, Timestamp::now())?;
    Ok(match sheet.stored.slot.state() {
        state::State::PendingApproval if sheet.exact == Some(seen) => Ok(sheet),
        state::State::PendingApproval => Err(Decided::No(format!("`{task}` has just been changed"))),
        other => Err(Decided::No(format!("`{task}` is in `{other}`"))),
    })
}

pub(super) async fn approve(
    site: State<Site>,
    desk: Extension<Arc<Desk>>,
    task: Path<TaskName>,
    headers: HeaderMap,
    Form(yes): Form<Yes>,
) -> Response {
    let case = Case::new((site, desk, task, headers), None);
    case.decide(&yes.token, move |vault, task, person| {
        vault.approve(task, person, Some(yes.seen), Timestamp::now())
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
    let reason = no.reason.trim().to_owned();
    let case = Case::new((site, desk, task, headers), Some(reason.clone()));
    if reason.is_empty() {
        return case.again(Trouble::NoReason).await;
    }
    case.decide(&no.token, move |vault, task, person| match as_shown(vault, task, no.seen)? {
        Ok(_) => vault.reject(task, person, &reason, Timestamp::now()),
        Err(decided) => Ok(decided),
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
    let case = Case::new((site, desk, task, headers), Some(edited.text.clone()));
    case.decide(&edited.token, move |vault, task, person| match as_shown(vault, task, edited.seen)? {
        Ok(sheet) => {
            let text = with(&sheet.text, &edited.text);
            vault.amend(task, person, edited.seen, &text, Timestamp::now())
        }
        Err(decided) => Ok(decided),
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
