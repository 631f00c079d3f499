//! `/tasks/NAME`: one task with its text, its draft and its history.

use jiff::Timestamp;
use maud::{Markup, html};
use tollgate::error::Result;
use tollgate::ledger::Line;
use tollgate::vault::TaskName;
use tollgate::vault::anatomy::{Anatomy, Attempt};
use tollgate::vault::claim::Tenure;
use tollgate::vault::state::State;
use tollgate::vault::store::Task;
use tollgate::visible::count_invisible;

use super::decision_form::decision;
use super::ledger::{newest, sentence, tail};
use super::markdown;
use super::sheet::Sheet;
use super::task_actions::actions;
use super::task_row::state_words;
use super::text::{SafeText, ago, count, encode, exact, printed};
use super::trouble::Trouble;
use super::view::{PageContent, no_vault};
use super::visit::Visit;
use crate::workspace_provider::OpenWorkspace;

/// The number of ledger lines that are searched for a task. The link to the full history leads to the rest.
const LOOKED_AT: usize = 2000;

/// The query: which task.
#[derive(Debug, Clone)]
pub(super) struct TaskQuery {
    task: TaskName,
    /// Something was just done with it.
    acted: bool,
    /// Why that was not done.
    trouble: Option<Trouble>,
    /// What the person had typed for it.
    typed: Option<String>,
}

impl TaskQuery {
    pub(super) fn new(task: TaskName, acted: bool) -> Self {
        Self { task, acted, trouble: None, typed: None }
    }

    #[cfg(test)]
    pub(super) fn name(&self) -> &TaskName {
        &self.task
    }

    /// The page again, after something that was not done.
    pub(super) fn again(task: TaskName, trouble: Trouble, typed: Option<String>) -> Self {
        Self { task, acted: false, trouble: Some(trouble), typed }
    }
}

/// Everything about a task, under a heading of level 2.
/// `next` is the task to open after a decision about this one.
pub(super) fn show(
    sheet: &Sheet,
    visit: &Visit,
    open: &OpenWorkspace,
    next: Option<&TaskName>,
) -> Result<Markup> {
    let now = open.gate.workspace().now();
    let anatomy = Anatomy::of(&sheet.text);
    let history = history(open, &sheet.stored.name)?;
    let hash = sheet.exact.map(|exact| exact.to_string());
    let is_pending = sheet.stored.slot.state() == State::PendingApproval;
    Ok(html! {
        article.sheet #open data-hold=[hash.as_deref().filter(|_| is_pending)] aria-labelledby="open-title" {
            header {
                h2 #open-title { (SafeText(sheet.title())) }
                p.state data-state=(sheet.stored.slot.state()) { (state_words(sheet.stored.slot.state()).0) }
            }
            (facts(&sheet.stored, anatomy.draft.is_some(), now))
            @if is_pending { (decision(visit, sheet, &anatomy, next)) } @else { (actions(visit, sheet)) }
            // Beside each other: rendering hides parts of a text, and a person approves all of it.
            div.both {
                @if let Some(draft) = anatomy.draft.clone() {
                    section.draft aria-labelledby="draft-title" {
                        h3 #draft-title { "Draft" }
                        div.markdown dir="auto" { (markdown::render(&sheet.text[draft], 4)) }
                    }
                }
                @if is_pending {
                    section.raw aria-labelledby="whole-title" {
                        h3 #whole-title { "The whole file, exactly" }
                        (raw(sheet, hash.as_deref()))
                    }
                }
            }
            section aria-labelledby="task-title" {
                h3 #task-title { "Task" }
                @if let Some(front) = anatomy.frontmatter { pre.front { (SafeText(front.trim_end())) } }
                div.markdown dir="auto" { (markdown::render(anatomy.body, 4)) }
            }
            @if !anatomy.attempts.is_empty() {
                section aria-labelledby="attempts-title" {
                    h3 #attempts-title { "Attempts, as written in the file" }
                    ol.attempts { @for attempt in anatomy.attempts.iter().rev() { li { (show_attempt(attempt, now)) } } }
                }
            }
            @if let Some(decision) = anatomy.decision {
                section aria-labelledby="decision-title" {
                    h3 #decision-title { "Decision" }
                    div.markdown dir="auto" { (markdown::render(decision, 4)) }
                }
            }
            section aria-labelledby="history-title" {
                h3 #history-title { "History" }
                @if history.is_empty() { p.quiet { "The recent ledger lines do not mention this task." } }
                ol.lines { @for line in &history { (sentence(line, now)) } }
                p.more {
                    a href=(format!("/ledger?text={}", encode(sheet.stored.name.as_str()))) { "Full history" }
                }
            }
            @if !is_pending {
                details.raw {
                    summary { "Raw file" }
                    (raw(sheet, hash.as_deref()))
                }
            }
        }
    })
}

/// The text of a task, every character of it visible.
fn raw(sheet: &Sheet, hash: Option<&str>) -> Markup {
    let hidden = count_invisible(&sheet.text);
    html! {
        @if hidden > 0 {
            p.alert { (count(hidden, "invisible character", "invisible characters")) ", marked as " span.mark { "U+..." } }
        }
        pre tabindex="0" { (SafeText(&sheet.text)) }
        @if let Some(hash) = hash { p.quiet { "SHA-256 " code { (hash) } } }
    }
}

fn facts(stored: &Task, has_draft: bool, now: Timestamp) -> Markup {
    let is_pending = stored.slot.state() == State::PendingApproval;
    html! {
        dl.facts {
            (fact("File", &html! { code { (SafeText(stored.name.as_str())) } }))
            @match &stored.brief {
                Ok(brief) => {
                    @if let Some(action) = &brief.action { (fact("Action", &html! { code { (SafeText(action)) } })) }
                    (fact("Priority", &html! { (brief.priority.as_str()) }))
                    @if let Some(due) = brief.due { (fact("Due", &html! { (exact(due)) })) }
                    @if !brief.after.is_empty() {
                        (fact("After", &html! {
                            @for task in &brief.after {
                                a href=(format!("/tasks/{}", encode(task.as_str()))) { (SafeText(task.stem())) } " "
                            }
                        }))
                    }
                },
                Err(broken) => (fact("Unreadable", &html! { span.bad { (SafeText(&broken.to_string())) } })),
            }
            @if let Some(claim) = &stored.record.claim {
                (fact("Owner", &html! { span.agent { (claim.agent) } ", " (ago(claim.at, now)) }))
                (fact("Mode", &html! { (claim.mode.as_str()) }))
                @if let Tenure::Leased(until) = claim.tenure {
                    (fact("Lease until", &html! { (exact(until)) }))
                }
            } @else if let Some(agent) = &stored.record.released_by {
                @let word = if is_pending && has_draft { "Drafted by" } else { "Last owner" };
                (fact(word, &html! { span.agent { (agent) } }))
            } @else if is_pending && has_draft {
                (fact("Drafted by", &html! { "unknown: a person or another program put it here" }))
            }
            @if stored.record.attempts > 0 { (fact("Attempts", &html! { (stored.record.attempts) })) }
            @if let Some(reason) = &stored.record.reason { (fact("Reason", &html! { (SafeText(reason)) })) }
            @if let Some(approval) = &stored.record.approval {
                (fact("Approved", &html! { "by " (SafeText(&approval.by)) ", " (ago(approval.at, now)) }))
            }
            @if is_pending && has_draft { (fact("Drafted", &html! { (ago(stored.modified, now)) })) }
            @else { (fact("Changed", &html! { (ago(stored.modified, now)) })) }
        }
    }
}

fn fact(name: &str, value: &Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

fn show_attempt(attempt: &Attempt<'_>, now: Timestamp) -> Markup {
    let time = |text: Option<&str>| {
        html! {
            @match text.map(str::parse::<Timestamp>) {
                Some(Ok(time)) => (ago(time, now)),
                _ => (SafeText(text.unwrap_or("at an unknown time"))),
            }
        }
    };
    html! {
        p {
            span.agent { (SafeText(attempt.agent.unwrap_or("an unknown agent"))) } " claimed it " (time(attempt.claimed_at))
            @if attempt.completed_at.is_some() {
                ", " span.result data-result=[attempt.result] { (SafeText(attempt.result.unwrap_or("ended"))) }
                @if let Some(seconds) = attempt.seconds { " after " (SafeText(seconds)) " s" }
                @if let Some(next) = attempt.next { ", to " span.state { (SafeText(&next.replace('_', " "))) } }
            } @else { ", in progress" }
            " " code.quiet { (SafeText(attempt.claim_id)) }
        }
        @if let Some(note) = attempt.note { p.quiet { (SafeText(note)) } }
        @if let Some(output) = &attempt.output { (printed(output)) }
        @if !attempt.notes.is_empty() { div.markdown dir="auto" { (markdown::render(attempt.notes, 5)) } }
    }
}

/// The recent ledger lines about a task, the newest first.
fn history(open: &OpenWorkspace, task: &TaskName) -> Result<Vec<Line>> {
    let mut found = newest(open, LOOKED_AT)?;
    found.retain(|line| line.event.keys().task == Some(task.as_str()));
    Ok(found)
}

pub(super) fn view(visit: &Visit, open: &OpenWorkspace, query: &TaskQuery) -> Result<PageContent> {
    let Some(vault) = &open.vault else {
        return Ok(PageContent::new("Task", html! { h1 { "Task" } (no_vault(open)) }));
    };
    let now = open.gate.workspace().now();
    let sheet = Sheet::read(vault, &query.task, now)?;
    let tail = tail(open)?;
    let last = tail.iter().find(|line| line.event.keys().task == Some(query.task.as_str()));
    let main = html! {
        h1.unseen { "Task" }
        @if let Some(trouble) = &query.trouble { (trouble.show(query.typed.as_deref())) }
        @if let (true, Some(line)) = (query.acted, last) {
            div.said { ol.lines role="status" { (sentence(line, now)) } }
        }
        (show(&sheet, visit, open, None)?)
    };
    let status = query.trouble.as_ref().map_or(axum::http::StatusCode::OK, Trouble::status);
    Ok(PageContent { status, ..PageContent::new(sheet.title(), main) })
}
