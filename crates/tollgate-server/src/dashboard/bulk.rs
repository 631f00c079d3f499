//! `/approvals/all?action=ACTION`: every draft of one action, whole and unrendered, and one decision about those that the
//! person leaves checked.
//!
//! Invariant: each task is decided as it was shown. One that was changed in the meantime is left out, and the answer says so.
//! The page does not update itself, so that nothing appears among the checked tasks that the person has not seen.

use std::thread::sleep;

use axum::extract::{Form, State as Shared};
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate::digest::Digest;
use tollgate::error::{Fault, MissingKind, Result};
use tollgate::vault::anatomy::Anatomy;
use tollgate::vault::retry::with_retry;
use tollgate::vault::state::State;
use tollgate::vault::store::TaskSummary;
use tollgate::vault::{TaskName, Vault};

use super::decision_form::address;
use super::layout;
use super::page::Page;
use super::sheet::Sheet;
use super::task_request::as_shown;
use super::text::{SafeText, ago, count};
use super::trouble::Trouble;
use super::view::{PageContent, no_vault};
use super::visit::Visit;
use crate::site::Site;
use crate::workspace_provider::OpenWorkspace;

/// The number of tasks that are decided together: what a person can look through at once.
const TOGETHER: usize = 25;

/// The size of a text that is shown among others. A longer one is decided alone.
const LONGEST: usize = 16 << 10;

/// The query.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct BulkQuery {
    action: String,
    #[serde(skip)]
    outcome: Option<Outcome>,
}

/// What became of the last decision.
#[derive(Debug, Clone)]
enum Outcome {
    /// The number of tasks that were decided, the verb for it, and the others with the reason.
    Decided(usize, &'static str, Vec<(String, String)>),
    NotDone(Trouble),
}

/// What a person decides about all of them.
#[derive(Clone)]
enum BulkDecision {
    Approve,
    SendBack(String),
    Reject(String),
}

fn of(action: &str, listed: &TaskSummary) -> bool {
    listed.brief.as_ref().is_ok_and(|brief| brief.action.as_deref() == Some(action))
}

pub(super) fn view(visit: &Visit, open: &OpenWorkspace, query: &BulkQuery) -> Result<PageContent> {
    let title = format!("Approvals of {}", query.action);
    let Some(vault) = &open.vault else {
        return Ok(PageContent::new(title, html! { h1 { "Approvals" } (no_vault(open)) }));
    };
    let now = open.gate.workspace().now();
    let mut waiting: Vec<TaskSummary> = match visit.site.board()? {
        Some(board) => board
            .column(State::PendingApproval)
            .tasks()
            .filter(|task| of(&query.action, task))
            .cloned()
            .collect(),
        None => Vec::new(),
    };
    waiting.sort_by(|a, b| (a.modified, &a.name).cmp(&(b.modified, &b.name)));
    let (mut shown, mut alone) = (Vec::new(), Vec::new());
    for listed in waiting.iter().take(TOGETHER) {
        match Sheet::read(vault, &listed.name, now) {
            Ok(sheet) if sheet.stored.slot.state() != State::PendingApproval => {}
            Ok(sheet) if sheet.exact.is_some() && sheet.text.len() <= LONGEST => shown.push(sheet),
            Ok(sheet) => alone.push(sheet),
            Err(Fault::Missing { .. }) => {}
            Err(fault) => return Err(fault),
        }
    }
    let main = html! {
        h1 { "Approvals of " code { (SafeText(&query.action)) } " " span.count { (waiting.len()) } }
        p { a href="/approvals" { "All approvals" } }
        @if let Some(outcome) = &query.outcome { (outcome.show()) }
        @if waiting.is_empty() { p.empty { "Nothing of this kind is waiting for you." } }
        @if !shown.is_empty() {
            form.bulk method="post" action="/approvals/all" {
                input type="hidden" name="token" value=(visit.token());
                input type="hidden" name="action" value=(query.action);
                ul { @for sheet in &shown { li { (one(sheet, now)) } } }
                (buttons())
            }
        }
        @for sheet in &alone {
            p.alert {
                a href=(address(sheet.stored.name.as_str())) { (SafeText(sheet.title())) }
                " is too long to be decided with the others, or is not text."
            }
        }
        @if waiting.len() > TOGETHER { p.quiet { (waiting.len() - TOGETHER) " more are waiting. They appear when these are decided." } }
    };
    let mut content = PageContent::new(title, main);
    if let Some(Outcome::NotDone(trouble)) = &query.outcome {
        content.status = trouble.status();
    }
    Ok(content)
}

/// A task with its whole text. One without a draft is not checked: it is decided by itself, or on purpose.
fn one(sheet: &Sheet, now: Timestamp) -> Markup {
    let has_draft = Anatomy::of(&sheet.text).draft.is_some();
    let value = sheet.exact.map(|seen| format!("{seen} {}", sheet.stored.name));
    html! {
        article.sheet {
            header {
                h2 {
                    label {
                        input type="checkbox" name="task" value=[value] checked[has_draft];
                        " " (SafeText(sheet.title()))
                    }
                }
                p.quiet {
                    @if !has_draft { strong { "no draft" } ", " }
                    @if let Some(agent) = &sheet.stored.record.released_by { "by " span.agent { (agent) } ", " }
                    (ago(sheet.stored.modified, now))
                }
            }
            pre tabindex="0" { (SafeText(&sheet.text)) }
        }
    }
}

fn buttons() -> Markup {
    html! {
        section.decision aria-label="Decision" {
            button.primary name="decision" value="approve" { "Approve the checked tasks" }
            label { "Reason, to send back or reject" input name="reason" maxlength="500" autocomplete="off"; }
            button name="decision" value="changes" { "Request changes" }
            button.danger name="decision" value="reject" { "Reject the checked tasks" }
        }
    }
}

impl Outcome {
    fn show(&self) -> Markup {
        let (number, verb, left) = match self {
            Self::NotDone(trouble) => return trouble.show(None),
            Self::Decided(number, verb, left) => (number, verb, left),
        };
        html! {
            div.said role="status" { p { (count(*number, "task was", "tasks were")) " " (verb) "." } }
            @if !left.is_empty() {
                div.alert role="alert" {
                    p { strong { (count(left.len(), "task was", "tasks were")) " not decided." } }
                    ul { @for (task, why) in left { li { code { (SafeText(task)) } ": " (SafeText(why)) } } }
                }
            }
        }
    }
}

impl BulkDecision {
    fn verb(&self) -> &'static str {
        match self {
            Self::Approve => "approved",
            Self::SendBack(_) => "sent back",
            Self::Reject(_) => "rejected",
        }
    }

    /// Decides one task as it was shown. Returns why it was not decided.
    fn decide(&self, vault: &Vault, task: &TaskName, seen: Digest, by: &str) -> Option<String> {
        let now = Timestamp::now();
        let decided = with_retry(
            || match as_shown(vault, task, seen, State::PendingApproval)? {
                Err(denial) => Ok(Err(denial)),
                Ok(_) => match self {
                    Self::Approve => vault.approve(task, by, Some(seen), now),
                    Self::SendBack(reason) => vault.retry(task, by, Some(reason), now),
                    Self::Reject(reason) => vault.reject(task, by, reason, now),
                },
            },
            &sleep,
        );
        match decided {
            Ok(Ok(_)) => None,
            Ok(Err(denial)) => Some(denial.to_string()),
            Err(fault) => Some(fault.to_string()),
        }
    }
}

/// The decision about the checked tasks. A form with the same field several times is a list of pairs.
pub(super) async fn decide(
    visit: Visit,
    Shared(site): Shared<Site>,
    Form(form): Form<Vec<(String, String)>>,
) -> Response {
    let field = |name: &str| form.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str());
    let action = field("action").to_owned();
    let outcome = match read(&visit, &form, field("decision"), field("reason").trim()) {
        Err(trouble) => Outcome::NotDone(trouble),
        Ok((decision, tasks)) => {
            let verb = decision.verb();
            let by = site.options.person.clone();
            let made = site.blocking(move |site| {
                let open = site.open()?;
                let Some(vault) = open.as_ref().and_then(|open| open.vault.as_ref()) else {
                    return Err(Fault::missing(MissingKind::Vault, "the vault"));
                };
                let (mut number, mut left) = (0, Vec::new());
                for (task, seen) in &tasks {
                    match decision.decide(vault, task, *seen, &by) {
                        None => number += 1,
                        Some(why) => left.push((task.to_string(), why)),
                    }
                }
                Ok((number, left))
            });
            match made.await {
                Ok((number, left)) => Outcome::Decided(number, verb, left),
                Err(fault) => Outcome::NotDone(Trouble::Other(fault.0.to_string())),
            }
        }
    };
    layout::respond(visit, Page::Bulk(BulkQuery { action, outcome: Some(outcome) })).await
}

/// The decision, and the tasks as they were shown.
fn read(
    visit: &Visit,
    form: &[(String, String)],
    decision: &str,
    reason: &str,
) -> Result<(BulkDecision, Vec<(TaskName, Digest)>), Trouble> {
    let token = form.iter().find(|(key, _)| key == "token").map_or("", |(_, value)| value.as_str());
    if !visit.sent(token) {
        return Err(Trouble::Forged);
    }
    let decision = match decision {
        "approve" => BulkDecision::Approve,
        "changes" | "reject" if reason.is_empty() => return Err(Trouble::NoReason),
        "changes" => BulkDecision::SendBack(reason.to_owned()),
        "reject" => BulkDecision::Reject(reason.to_owned()),
        _ => return Err(Trouble::Other("the form names no decision".into())),
    };
    let mut tasks = Vec::new();
    for (_, value) in form.iter().filter(|(key, _)| key == "task") {
        let (seen, task) = value.split_once(' ').unwrap_or_default();
        match (TaskName::of_file(task), seen.parse()) {
            (Ok(task), Ok(seen)) => tasks.push((task, seen)),
            _ => return Err(Trouble::Other("the form names no task".into())),
        }
    }
    match tasks.len() {
        0 => Err(Trouble::Other("no task is checked".into())),
        1..=TOGETHER => Ok((decision, tasks)),
        _ => Err(Trouble::Other(format!("at most {TOGETHER} tasks are decided at once"))),
    }
}
