//! What people do with tasks besides deciding: add, edit, cancel, retry, return, change the priority, take a decision back.
//!
//! Each form carries a token of this server, and what the page showed, as for decisions. A second press gets a clear answer.

use axum::extract::Form;
use axum::response::{IntoResponse, Redirect, Response};
use jiff::Timestamp;
use serde::Deserialize;
use tollgate::digest::Digest;
use tollgate::error::Result;
use tollgate::vault::brief::{Brief, Priority};
use tollgate::vault::new_task::NewTask;
use tollgate::vault::state::State;
use tollgate::vault::{Allowed, Denial, TaskAfterStep, TaskName, Vault};

use super::approvals::ApprovalsQuery;
use super::layout;
use super::new_task::NewTaskForm;
use super::page::Page;
use super::priority::with_priority;
use super::task::TaskQuery;
use super::task_request::{TaskRequest, as_shown};
use super::text::encode;
use super::trouble::Trouble;
use super::visit::Visit;
use crate::site::Site;

/// A form that says only which page it came from.
#[derive(Deserialize)]
pub(super) struct PlainForm {
    token: String,
}

#[derive(Deserialize)]
pub(super) struct ReturnForm {
    token: String,
    /// The claim that the page showed.
    #[serde(default)]
    claim: String,
}

#[derive(Deserialize)]
pub(super) struct PriorityForm {
    token: String,
    seen: Digest,
    priority: String,
}

#[derive(Deserialize)]
pub(super) struct TextForm {
    token: String,
    seen: Digest,
    text: String,
}

#[derive(Deserialize)]
pub(super) struct CancelForm {
    token: String,
    seen: Digest,
    reason: String,
}

impl TaskRequest {
    /// Does it, and shows the task's page; with what the person typed, if it is not done.
    async fn act(
        self,
        token: &str,
        typed: Option<String>,
        make: impl Fn(&Vault, &TaskName, &str) -> Result<Allowed<TaskAfterStep>> + Send + 'static,
    ) -> Response {
        match self.made(token, make).await {
            Ok(()) => {
                Redirect::to(&format!("/tasks/{}?acted=true", encode(self.task.as_str()))).into_response()
            }
            Err(trouble) => self.show(|task| Page::Task(TaskQuery::again(task, trouble, typed))).await,
        }
    }

    async fn made(
        &self,
        token: &str,
        make: impl Fn(&Vault, &TaskName, &str) -> Result<Allowed<TaskAfterStep>> + Send + 'static,
    ) -> Result<(), Trouble> {
        self.carry_out(token, make).await?.map(drop).map_err(|denial| match denial {
            Denial::Changed(_) => Trouble::Changed,
            denial => Trouble::Other(denial.to_string()),
        })
    }
}

pub(super) async fn retry(request: TaskRequest, Form(form): Form<PlainForm>) -> Response {
    request
        .act(&form.token, None, |vault, task, person| vault.retry(task, person, None, Timestamp::now()))
        .await
}

pub(super) async fn give_back(request: TaskRequest, Form(form): Form<ReturnForm>) -> Response {
    request
        .act(&form.token, None, move |vault, task, person| {
            // Another agent may have claimed it since the page was shown. That claim is not the one to end.
            let seen = (!form.claim.is_empty()).then(|| form.claim.parse()).transpose()?;
            vault.give_back(task, person, seen.as_ref(), Timestamp::now())
        })
        .await
}

pub(super) async fn change_priority(request: TaskRequest, Form(form): Form<PriorityForm>) -> Response {
    let Some(priority) = Priority::read(&form.priority) else {
        let trouble = Trouble::Other("this is not a priority".into());
        return request.show(|task| Page::Task(TaskQuery::again(task, trouble, None))).await;
    };
    request
        .act(&form.token, None, move |vault, task, person| {
            let sheet = match as_shown(vault, task, form.seen, State::NeedsAction)? {
                Ok(sheet) => sheet,
                Err(denial) => return Ok(Err(denial)),
            };
            match with_priority(&sheet.text, priority) {
                Some(text) => vault.edit(task, person, form.seen, &text, Timestamp::now()),
                None => Err(tollgate::error::Fault::invalid(format!(
                    "the priority in `{task}` is not clear: run `tollgate task edit`"
                ))),
            }
        })
        .await
}

/// Changes the text of a task that nobody has claimed.
pub(super) async fn change_text(request: TaskRequest, Form(form): Form<TextForm>) -> Response {
    // Browsers send every line end as CR LF.
    let typed = form.text.replace("\r\n", "\n");
    if let Err(broken) = Brief::read(typed.as_bytes()) {
        let trouble = Trouble::Other(format!("an agent could not read this task: {broken}"));
        return request.show(|task| Page::Task(TaskQuery::again(task, trouble, Some(typed)))).await;
    }
    let text = typed.clone();
    request
        .act(&form.token, Some(typed), move |vault, task, person| {
            match as_shown(vault, task, form.seen, State::NeedsAction)? {
                Ok(sheet) => {
                    let text =
                        if sheet.text.contains("\r\n") { text.replace('\n', "\r\n") } else { text.clone() };
                    vault.edit(task, person, form.seen, &text, Timestamp::now())
                }
                Err(denial) => Ok(Err(denial)),
            }
        })
        .await
}

/// Moves a task that nobody has claimed to `Rejected`.
pub(super) async fn cancel(request: TaskRequest, Form(form): Form<CancelForm>) -> Response {
    let reason = form.reason.trim().to_owned();
    if reason.is_empty() {
        return request.show(|task| Page::Task(TaskQuery::again(task, Trouble::NoReason, None))).await;
    }
    request
        .act(&form.token, Some(reason.clone()), move |vault, task, person| {
            match as_shown(vault, task, form.seen, State::NeedsAction)? {
                Ok(_) => vault.reject(task, person, &reason, Timestamp::now()),
                Err(denial) => Ok(Err(denial)),
            }
        })
        .await
}

pub(super) async fn take_back(request: TaskRequest, Form(form): Form<PlainForm>) -> Response {
    let made =
        request.made(&form.token, |vault, task, person| vault.take_back(task, person, Timestamp::now()));
    match made.await {
        Ok(()) => Redirect::to(&format!("/approvals?task={}", encode(request.task.as_str()))).into_response(),
        Err(trouble) => {
            request.show(|task| Page::Approvals(ApprovalsQuery::again(task, trouble, None))).await
        }
    }
}

pub(super) async fn add(visit: Visit, Form(form): Form<NewTaskForm>) -> Response {
    let given = form.clone();
    let made = if visit.sent(&form.token) { added(&visit.site, form).await } else { Err(Trouble::Forged) };
    match made {
        Ok(landed) => Redirect::to(&format!("/tasks/{}", encode(landed.task.as_str()))).into_response(),
        Err(trouble) => layout::respond(visit, Page::New(Box::new((given, Some(trouble))))).await,
    }
}

async fn added(site: &Site, form: NewTaskForm) -> Result<TaskAfterStep, Trouble> {
    let other = |sentence: String| Trouble::Other(sentence);
    let priority = match form.priority.as_str() {
        "" => None,
        word => Some(Priority::read(word).ok_or_else(|| other("this is not a priority".into()))?),
    };
    // Browsers send every line end as CR LF.
    let body = form.body.replace("\r\n", "\n");
    let action = Some(form.action.trim()).filter(|action| !action.is_empty());
    let due = Some(form.due.trim()).filter(|due| !due.is_empty());
    let new =
        NewTask { title: &form.title, action, priority, due, body: body.as_bytes(), ..NewTask::default() };
    let text = new.text().map_err(|bad| other(bad.to_string()))?;
    let landed = site.blocking(move |site| {
        let open = site.open()?;
        let Some(vault) = open.as_ref().and_then(|open| open.vault.as_ref()) else {
            return Err(tollgate::error::Fault::missing(tollgate::error::MissingKind::Vault, "the vault"));
        };
        vault.add_titled(&form.title, &[], &text, Timestamp::now())
    });
    match landed.await {
        Ok(Ok(landed)) => Ok(landed),
        Ok(Err(_)) => Err(other("it would wait for itself".into())),
        Err(fault) => Err(other(fault.0.to_string())),
    }
}
