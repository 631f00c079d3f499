//! `/approvals/all?action=ACTION`: every draft of one action, whole and unrendered, and one decision about those that the
//! person leaves checked.
//!
//! The page does not update itself, so that nothing appears among the checked tasks that the person has not seen.

use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate::error::{Fault, Result};
use tollgate::vault::anatomy::Anatomy;
use tollgate::vault::state::State;
use tollgate::vault::store::TaskSummary;

use super::decision_form::address;
use super::sheet::Sheet;
use super::text::{SafeText, ago, count};
use super::trouble::Trouble;
use super::view::{PageContent, no_vault};
use super::visit::Visit;
use crate::workspace_provider::OpenWorkspace;

/// The number of tasks that are decided together: what a person can look through at once.
pub(super) const TOGETHER: usize = 25;

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

impl BulkQuery {
    /// The page again, after a decision.
    pub(super) fn after(action: String, outcome: Outcome) -> Self {
        Self { action, outcome: Some(outcome) }
    }
}

/// What became of the last decision.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    /// The number of tasks that were decided, the verb for it, and the others with the reason.
    Decided(usize, &'static str, Vec<(String, String)>),
    NotDone(Trouble),
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

/// A task with its whole text. One without a draft is not checked, so that nobody approves it by oversight.
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
