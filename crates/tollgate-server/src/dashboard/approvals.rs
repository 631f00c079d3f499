//! `/approvals`: what waits for a person, the oldest first, and the one that is open beside it.

use maud::{Markup, html};
use serde::Deserialize;
use tollgate::error::{Fault, Result};
use tollgate::vault::TaskName;
use tollgate::vault::state::State;
use tollgate::vault::store::Listed;

use super::anatomy::Anatomy;
use super::page::{View, Visit, no_vault};
use super::task::Sheet;
use super::text::{Shown, age, brief, encode, plain};
use crate::site::{Open, OpenVault};

/// So many are in the list; the others come when these are decided.
const LISTED: usize = 100;

/// What is asked for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Asked {
    /// The task that is open; without it, the oldest.
    task: Option<TaskName>,
    /// The task that was decided a moment ago: then none is open, so that no key decides what nobody has looked at.
    decided: Option<TaskName>,
    /// Why a decision could not be made, by [`Trouble`].
    #[serde(skip)]
    trouble: Option<Trouble>,
    /// What was typed with it.
    #[serde(skip)]
    typed: Option<String>,
}

impl Asked {
    pub(super) fn again(task: TaskName, trouble: Trouble, typed: Option<String>) -> Self {
        let typed = typed.filter(|typed| !typed.is_empty());
        Self { task: Some(task), decided: None, trouble: Some(trouble), typed }
    }
}

/// Why a decision was not made.
#[derive(Debug, Clone)]
pub(super) enum Trouble {
    /// What was shown is not what is there.
    Changed,
    /// The form was not ours, or from before the server was started again.
    Forged,
    /// There is no reason with a no.
    NoReason,
    /// In a sentence.
    Told(String),
}

pub(super) fn address(task: &str) -> String {
    format!("/approvals?task={}", encode(task))
}

pub(super) fn view(visit: &Visit<'_>, open: &Open, asked: &Asked) -> Result<View> {
    let Some(OpenVault { vault, .. }) = &open.vault else {
        return Ok(View::new("Approvals", html! { h1 { "Approvals" } (no_vault(open)) }));
    };
    let now = open.gate.workspace().now();
    let mut waiting: Vec<Listed> = match visit.site.board()? {
        Some(board) => board.column(State::PendingApproval).tasks().cloned().collect(),
        None => Vec::new(),
    };
    waiting.sort_by(|a, b| (a.modified, &a.task).cmp(&(b.modified, &b.task)));
    let oldest = waiting.first().map(|listed| &listed.task).filter(|_| asked.decided.is_none());
    let sheet = match asked.task.as_ref().or(oldest) {
        Some(task) => match Sheet::read(vault, task, now) {
            Err(Fault::Missing { .. }) => None,
            sheet => Some(sheet?),
        },
        None => None,
    };
    let is_open = |task: &TaskName| sheet.as_ref().is_some_and(|sheet| sheet.stored.task == *task);
    let main = html! {
        h1 { "Approvals " span.count { (waiting.len()) } }
        @if let Some(decided) = &asked.decided { (said(visit, open, decided)?) }
        @if let Some(trouble) = &asked.trouble { (trouble.show(asked.typed.as_deref())) }
        @else if let Some(task) = &asked.task { (not_waiting(task, sheet.as_ref())) }
        @if waiting.is_empty() {
            div.empty {
                p { "Nothing waits for you." }
                p {
                    "What is " code { "sensitive" } " for an agent is drafted by it and comes here. In "
                    code { ".tollgate/config.toml" } ":"
                }
                pre tabindex="0" { "[agent.cloud]\nsensitive = [\"send_email\", \"payment\"]" }
            }
        }
        div.desk.has-open[sheet.is_some()] {
            @if !waiting.is_empty() {
                section.queue aria-labelledby="queue-title" {
                    h2 #queue-title { "Waiting, the oldest first" }
                    input #filter type="search" placeholder="Filter" aria-label="Filter the queue" hidden autocomplete="off";
                    ol.queue {
                        @for (index, listed) in waiting.iter().take(LISTED).enumerate() {
                            li data-key=(plain(listed.task.as_str())) {
                                a.task href=(address(listed.task.as_str()))
                                    aria-current=[is_open(&listed.task).then_some("true")]
                                    data-next[index == 0 && asked.decided.is_some()] {
                                    (Shown(&brief(listed.task.stem(), 120)))
                                }
                                div.about {
                                    @if let Ok(brief) = &listed.brief && let Some(action) = &brief.action {
                                        span.action { (Shown(action)) }
                                    }
                                    (age(listed.modified, now))
                                }
                            }
                        }
                    }
                    @if waiting.len() > LISTED { p.quiet { (waiting.len() - LISTED) " more wait behind these." } }
                }
            }
            @if let Some(sheet) = &sheet { (sheet.show(visit, open)?) }
        }
    };
    let status = match asked.trouble {
        None => axum::http::StatusCode::OK,
        Some(Trouble::Forged) => axum::http::StatusCode::FORBIDDEN,
        Some(Trouble::NoReason) => axum::http::StatusCode::BAD_REQUEST,
        Some(Trouble::Changed | Trouble::Told(_)) => axum::http::StatusCode::CONFLICT,
    };
    Ok(View { status, ..View::new("Approvals", main) })
}

impl Trouble {
    fn show(&self, typed: Option<&str>) -> Markup {
        html! {
            div.alert role="alert" {
                p {
                    @match self {
                        Self::Changed => {
                            strong { "It was changed while you looked." }
                            " Nothing was decided. Below is what is there now; decide again."
                        },
                        Self::Forged => {
                            strong { "This form is not from this page." }
                            " Nothing was decided. The server may have been started again since the page was opened; decide again."
                        },
                        Self::NoReason => {
                            strong { "A rejection needs a reason." }
                            " Nothing was decided. Say why, for whoever asked for it."
                        },
                        Self::Told(sentence) => { strong { "Nothing was decided." } " " (Shown(sentence)) "." },
                    }
                }
                @if let Some(typed) = typed {
                    p { "What you had written:" }
                    pre.typed tabindex="0" { (Shown(typed)) }
                }
            }
        }
    }
}

/// What became of a decision, as the disk tells it.
fn said(visit: &Visit<'_>, open: &Open, task: &TaskName) -> Result<Markup> {
    let tail = visit.desk.tail(visit.site, open)?;
    let line =
        tail.iter().find(|line| line.action_type == "APPROVAL" && line.payload["task"] == task.as_str());
    let now = open.gate.workspace().now();
    Ok(html! {
        @if let Some(line) = line { ol.lines.said role="status" { (super::ledger::sentence(line, now)) } }
    })
}

/// Somebody has opened what does not wait, or no longer.
fn not_waiting(task: &TaskName, sheet: Option<&Sheet>) -> Markup {
    let place = match sheet.map(|sheet| &sheet.stored.slot) {
        Some(slot) if slot.state() == State::PendingApproval => return html! {},
        Some(slot) => format!("It is in {slot}."),
        None => "It is not there any more.".to_owned(),
    };
    html! {
        div.alert role="status" {
            p { strong { code { (Shown(task.as_str())) } " does not wait for a decision." } " " (place) }
        }
    }
}

/// What a person can decide about a task that waits.
pub(super) fn decision(visit: &Visit<'_>, sheet: &Sheet, anatomy: &Anatomy<'_>) -> Markup {
    let Some(seen) = &sheet.exact else {
        return html! {
            div.alert {
                p {
                    "It is too long to be shown whole, or has bytes that are not text, so it cannot be decided here. "
                    "Look at it and run " code { "tollgate task approve" } " in the workspace."
                }
            }
        };
    };
    let path = |verb: &str| format!("/tasks/{}/{verb}", encode(sheet.stored.task.as_str()));
    let hidden = html! {
        input type="hidden" name="token" value=(visit.token);
        input type="hidden" name="seen" value=(seen);
    };
    let (label, text) = match anatomy.draft.clone() {
        Some(draft) => ("Draft", sheet.text[draft].trim_matches('\n')),
        None => ("Text of the task", sheet.text.as_str()),
    };
    html! {
        section.decision aria-label="Decision" {
            p.changed.alert role="alert" hidden {
                strong { "This task was changed or decided meanwhile." } " Below is what you have opened. "
                a href=(address(sheet.stored.task.as_str())) { "Show what is there now" }
            }
            form.approve method="post" action=(path("approve")) {
                (hidden)
                button.primary #approve aria-keyshortcuts="a" { "Approve" }
                span.quiet { "as " (Shown(&visit.site.person)) ", exactly what is shown" }
            }
            details.reject {
                summary #reject aria-keyshortcuts="r" { "Reject" }
                form method="post" action=(path("reject")) {
                    (hidden)
                    label { "Reason" input name="reason" required maxlength="500" autocomplete="off"; }
                    button.danger { "Reject" }
                }
            }
            details.edit {
                summary #edit aria-keyshortcuts="e" { "Edit" }
                form method="post" action=(path("edit")) {
                    (hidden)
                    label {
                        (label)
                        textarea name="text" rows="12" required spellcheck="true" dir="auto" { "\n" (text) }
                    }
                    button.primary { "Save and approve" }
                }
            }
        }
    }
}
