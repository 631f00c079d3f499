//! `/approvals`: the tasks that wait for a person, the oldest first, and the open one beside them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use maud::{Markup, html};
use serde::Deserialize;
use tollgate::error::{Fault, Result};
use tollgate::event::Event;
use tollgate::vault::TaskName;
use tollgate::vault::state::State;
use tollgate::vault::store::TaskSummary;

use super::decision_form::{address, address_of_all};
use super::ledger::{sentence, tail};
use super::sheet::Sheet;
use super::task;
use super::task_actions::undo;
use super::task_row::title;
use super::text::{SafeText, age, plain};
use super::trouble::Trouble;
use super::view::{PageContent, no_vault};
use super::visit::Visit;
use crate::workspace_provider::OpenWorkspace;

/// The number of tasks in the list. The others appear when these are decided.
const LISTED: usize = 100;

/// The number of actions for which the page offers a decision about all of their tasks.
const KINDS: usize = 5;

/// The query.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ApprovalsQuery {
    /// The task to open. Default: the oldest.
    task: Option<TaskName>,
    /// The task that was just decided. The one that is open now came by itself, so for a moment nothing can be decided.
    decided: Option<TaskName>,
    /// Why the last decision was not made.
    #[serde(skip)]
    trouble: Option<Trouble>,
    /// The text that the person typed for that decision.
    #[serde(skip)]
    typed: Option<String>,
}

impl ApprovalsQuery {
    /// The page again, after a decision that was not made.
    pub(super) fn again(task: TaskName, trouble: Trouble, typed: Option<String>) -> Self {
        let typed = typed.filter(|typed| !typed.is_empty());
        Self { task: Some(task), decided: None, trouble: Some(trouble), typed }
    }
}

pub(super) fn view(visit: &Visit, open: &OpenWorkspace, query: &ApprovalsQuery) -> Result<PageContent> {
    let Some(vault) = &open.vault else {
        return Ok(PageContent::new("Approvals", html! { h1 { "Approvals" } (no_vault(open)) }));
    };
    let now = open.gate.workspace().now();
    let mut waiting: Vec<TaskSummary> = match visit.site.board()? {
        Some(board) => board.column(State::PendingApproval).tasks().cloned().collect(),
        None => Vec::new(),
    };
    waiting.sort_by(|a, b| (a.modified, &a.name).cmp(&(b.modified, &b.name)));
    let is_waiting = |task: &&TaskName| waiting.iter().any(|listed| listed.name == **task);
    let wanted = query.task.as_ref().filter(|task| query.decided.is_none() || is_waiting(task));
    let sheet = match wanted.or(waiting.first().map(|listed| &listed.name)) {
        Some(task) => match Sheet::read(vault, task, now) {
            Err(Fault::Missing { .. }) => None,
            sheet => Some(sheet?),
        },
        None => None,
    };
    let is_open = |task: &TaskName| sheet.as_ref().is_some_and(|sheet| sheet.stored.name == *task);
    let at = waiting.iter().position(|listed| is_open(&listed.name));
    let next = at.and_then(|at| waiting.get(at + 1).or(waiting.get(at.checked_sub(1)?)));
    let main = html! {
        h1 { "Approvals " span.count { (waiting.len()) } }
        @if let Some(decided) = &query.decided { (said(visit, open, decided)?) }
        @if let Some(trouble) = &query.trouble { (trouble.show(query.typed.as_deref())) }
        @else if let Some(task) = wanted { (not_waiting(task, sheet.as_ref())) }
        @if waiting.is_empty() {
            div.empty {
                p { "Nothing is waiting for you." }
                p {
                    "For actions that are " code { "sensitive" } " for it, an agent only writes a draft, which appears here. Example for "
                    code { ".tollgate/config.toml" } ":"
                }
                pre tabindex="0" { "[agent.cloud]\nsensitive = [\"send_email\", \"payment\"]" }
            }
        }
        div.desk.has-open[sheet.is_some()].chosen[query.task.is_some()].arming[query.decided.is_some()] {
            @if !waiting.is_empty() {
                section.queue aria-labelledby="queue-title" {
                    h2 #queue-title { "Waiting, oldest first" }
                    input #filter type="search" placeholder="Filter" aria-label="Filter the queue" hidden autocomplete="off";
                    ol.queue {
                        @for listed in waiting.iter().take(LISTED) {
                            li data-key=(plain(listed.name.as_str())) {
                                a.task href=(address(listed.name.as_str())) title=(plain(listed.name.as_str()))
                                    aria-current=[is_open(&listed.name).then_some("true")] {
                                    (SafeText(title(listed)))
                                }
                                div.about {
                                    @if let Ok(brief) = &listed.brief && let Some(action) = &brief.action {
                                        span.action { (SafeText(action)) }
                                    }
                                    (age(listed.modified, now))
                                }
                            }
                        }
                    }
                    @for (action, number) in together(&waiting) {
                        p.together { a href=(address_of_all(action)) { "Decide " (number) " × " code { (SafeText(action)) } " together" } }
                    }
                    @if waiting.len() > LISTED { p.quiet { (waiting.len() - LISTED) " more are waiting." } }
                }
            }
            @if let Some(sheet) = &sheet { (task::show(sheet, visit, open, next.map(|listed| &listed.name))?) }
        }
    };
    let status = query.trouble.as_ref().map_or(axum::http::StatusCode::OK, Trouble::status);
    Ok(PageContent { status, ..PageContent::new("Approvals", main) })
}

/// The actions of which several tasks wait, and how many: the most frequent first.
fn together(waiting: &[TaskSummary]) -> Vec<(&str, usize)> {
    let mut actions: BTreeMap<&str, usize> = BTreeMap::new();
    for action in waiting.iter().filter_map(|listed| listed.brief.as_ref().ok()?.action.as_deref()) {
        *actions.entry(action).or_default() += 1;
    }
    let mut actions: Vec<_> = actions.into_iter().filter(|(_, number)| *number > 1).collect();
    actions.sort_by_key(|(_, number)| Reverse(*number));
    actions.truncate(KINDS);
    actions
}

/// The ledger line of a decision that was just made.
fn said(visit: &Visit, open: &OpenWorkspace, task: &TaskName) -> Result<Markup> {
    let tail = tail(open)?;
    let decides = |event: &Event| matches!(event, Event::Approval(decided) if decided.task == *task);
    let line = tail.iter().find(|line| decides(&line.event));
    let now = open.gate.workspace().now();
    let vault = open.vault.as_ref();
    let slot = vault.and_then(|vault| vault.get(task, now).ok()).map(|found| found.slot);
    let may_undo = slot.is_some_and(|slot| matches!(slot.state(), State::Approved | State::Rejected));
    Ok(html! {
        @if let Some(line) = line {
            div.said {
                ol.lines role="status" { (sentence(line, now)) }
                @if may_undo { (undo(visit, task.as_str())) }
            }
        }
    })
}

/// A notice, if the open task is not waiting for approval.
fn not_waiting(task: &TaskName, sheet: Option<&Sheet>) -> Markup {
    let place = match sheet.map(|sheet| &sheet.stored.slot) {
        Some(slot) if slot.state() == State::PendingApproval => return html! {},
        Some(slot) => format!("It is in {slot}."),
        None => "It no longer exists.".to_owned(),
    };
    html! {
        div.alert role="status" {
            p { strong { code { (SafeText(task.as_str())) } " is not waiting for a decision." } " " (place) }
        }
    }
}
