//! `/tasks/NAME`: one task with its text, its draft and its history.

use jiff::Timestamp;
use maud::{Markup, html};
use tollgate::digest::Digest;
use tollgate::error::{Fault, Result};
use tollgate::ledger::Line;
use tollgate::vault::claim::Tenure;
use tollgate::vault::state::State;
use tollgate::vault::store::Stored;
use tollgate::vault::{TaskName, Vault};

use super::anatomy::{Anatomy, Attempt};
use super::approvals::decision;
use super::board::words;
use super::ledger::sentence;
use super::markdown;
use super::page::{View, Visit, no_vault};
use super::text::{Shown, ago, encode};
use crate::site::{Open, OpenVault};

/// More of a task is not shown. What is not shown whole is not decided here.
pub(super) const LONGEST: u64 = 512 << 10;

/// So far back the ledger is searched for a task: a look at more is a click away.
const LOOKED_AT: usize = 2000;

/// A task, and its text.
pub(super) struct Sheet {
    pub(super) stored: Stored,
    pub(super) text: String,
    /// The SHA-256 of the file, if the text is exactly what is in it.
    pub(super) exact: Option<Digest>,
}

impl Sheet {
    pub(super) fn read(vault: &Vault, task: &TaskName, now: Timestamp) -> Result<Self> {
        let stored = vault.get(task, now)?;
        let bytes = vault.read(&stored, LONGEST + 1)?;
        let is_whole = bytes.len() as u64 <= LONGEST;
        let digest = Digest::of(&bytes);
        Ok(match String::from_utf8(bytes) {
            Ok(text) => Self { stored, text, exact: is_whole.then_some(digest) },
            Err(bytes) => {
                let text = String::from_utf8_lossy(bytes.as_bytes()).into_owned();
                Self { stored, text, exact: None }
            }
        })
    }

    pub(super) fn name(&self) -> &str {
        self.stored.task.stem()
    }

    /// Everything about it, under a heading of the second level.
    pub(super) fn show(&self, visit: &Visit<'_>, open: &Open) -> Result<Markup> {
        let now = open.gate.workspace().now();
        let anatomy = Anatomy::of(&self.text);
        let history = history(visit, open, &self.stored.task)?;
        let hash = self.exact.map(|exact| exact.to_string());
        let is_pending = self.stored.slot.state() == State::PendingApproval;
        Ok(html! {
            article.sheet #open data-hold=[hash.as_deref().filter(|_| is_pending)] aria-labelledby="open-title" {
                header {
                    h2 #open-title { (Shown(self.name())) }
                    p.state data-state=(self.stored.slot.state()) { (words(self.stored.slot.state()).0) }
                }
                (self.facts(&anatomy, now))
                @if is_pending { (decision(visit, self, &anatomy)) }
                @if let Some(draft) = anatomy.draft.clone() {
                    section.draft aria-labelledby="draft-title" {
                        h3 #draft-title { "Draft" }
                        div.markdown dir="auto" { (markdown::render(&self.text[draft], 4)) }
                    }
                }
                section aria-labelledby="task-title" {
                    h3 #task-title { "Task" }
                    @if let Some(front) = anatomy.frontmatter { pre.front { (Shown(front.trim_end())) } }
                    div.markdown dir="auto" { (markdown::render(anatomy.body, 4)) }
                }
                @if !anatomy.attempts.is_empty() {
                    section aria-labelledby="attempts-title" {
                        h3 #attempts-title { "Attempts" }
                        ol.attempts { @for attempt in anatomy.attempts.iter().rev() { li { (show_attempt(attempt, now)) } } }
                    }
                }
                @if let Some(decision) = anatomy.decision {
                    section aria-labelledby="decision-title" {
                        h3 #decision-title { "Decision" }
                        div.markdown dir="auto" { (markdown::render(decision.trim_start_matches("## Decision"), 4)) }
                    }
                }
                section aria-labelledby="history-title" {
                    h3 #history-title { "History" }
                    @if history.is_empty() { p.quiet { "The latest lines of the ledger do not tell of it." } }
                    ol.lines { @for line in &history { (sentence(line, now)) } }
                    p.more {
                        a href=(format!("/ledger?text={}", encode(self.stored.task.as_str()))) { "All lines about it" }
                    }
                }
                details.raw {
                    summary { "The file as it is" }
                    @if let Some(hash) = &hash { p.quiet { "SHA-256 " code { (hash) } } }
                    pre tabindex="0" { (Shown(&self.text)) }
                }
            }
        })
    }

    fn facts(&self, anatomy: &Anatomy<'_>, now: Timestamp) -> Markup {
        let stored = &self.stored;
        let last = anatomy.attempts.last();
        let is_pending = stored.slot.state() == State::PendingApproval;
        html! {
            dl.facts {
                @match &stored.brief {
                    Ok(brief) => {
                        @if let Some(action) = &brief.action { (fact("Action", &html! { code { (Shown(action)) } })) }
                        (fact("Priority", &html! { (brief.priority.as_str()) }))
                        @if let Some(due) = brief.due { (fact("Due", &html! { (super::text::exact(due)) })) }
                        @if !brief.after.is_empty() {
                            (fact("After", &html! {
                                @for task in &brief.after {
                                    a href=(format!("/tasks/{}", encode(task.as_str()))) { (Shown(task.stem())) } " "
                                }
                            }))
                        }
                    },
                    Err(broken) => (fact("Cannot be read", &html! { span.bad { (Shown(&broken.to_string())) } })),
                }
                @if let Some(claim) = &stored.note.claim {
                    (fact("Owner", &html! { span.agent { (claim.agent) } ", " (ago(claim.at, now)) }))
                    (fact("To", &html! { (claim.mode.as_str()) }))
                    @if let Tenure::Leased(until) = claim.tenure {
                        (fact("Lease until", &html! { (super::text::exact(until)) }))
                    }
                } @else if let Some(agent) = last.and_then(|last| last.agent) {
                    @let word = if is_pending { "Drafted by" } else { "Last owner" };
                    (fact(word, &html! { span.agent { (Shown(agent)) } }))
                }
                @if stored.note.attempts > 0 { (fact("Attempts", &html! { (stored.note.attempts) })) }
                @if let Some(reason) = &stored.note.reason { (fact("Why here", &html! { (Shown(reason)) })) }
                @if let Some(approval) = &stored.note.approval {
                    (fact("Approved", &html! { "by " (Shown(&approval.by)) ", " (ago(approval.at, now)) }))
                }
                @if is_pending { (fact("Drafted", &html! { (ago(stored.modified, now)) })) }
                @else { (fact("Changed", &html! { (ago(stored.modified, now)) })) }
            }
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
                _ => (Shown(text.unwrap_or("at some time"))),
            }
        }
    };
    html! {
        p {
            span.agent { (Shown(attempt.agent.unwrap_or("somebody"))) } " claimed it " (time(attempt.claimed_at))
            @if attempt.completed_at.is_some() {
                ", " span.result data-result=[attempt.result] { (Shown(attempt.result.unwrap_or("ended"))) }
                @if let Some(seconds) = attempt.seconds { " after " (Shown(seconds)) " s" }
                @if let Some(next) = attempt.next { ", to " span.state { (Shown(&next.replace('_', " "))) } }
            } @else { ", not ended" }
            " " code.quiet { (Shown(attempt.claim_id)) }
        }
        @if let Some(note) = attempt.note { p.quiet { (Shown(note)) } }
        @if !attempt.notes.is_empty() { div.markdown dir="auto" { (markdown::render(attempt.notes, 5)) } }
    }
}

/// What the ledger's latest lines tell of a task, the newest first.
fn history(visit: &Visit<'_>, open: &Open, task: &TaskName) -> Result<Vec<Line>> {
    let about = |line: &Line| line.payload["task"] == task.as_str();
    // Nearly always all of it is in what is remembered.
    let tail = visit.desk.tail(visit.site, open)?;
    let mut found: Vec<Line> = tail.iter().filter(|line| about(line)).cloned().collect();
    if let (true, Some(last)) = (found.is_empty(), tail.last()) {
        for line in open.gate.workspace().ledger().newest_before(last.seq)?.take(LOOKED_AT) {
            match line {
                Ok(line) if about(&line) => found.push(line),
                Ok(_) | Err(Fault::Damaged { .. }) => {}
                Err(fault) => return Err(fault),
            }
        }
    }
    Ok(found)
}

pub(super) fn view(visit: &Visit<'_>, open: &Open, task: &TaskName) -> Result<View> {
    let Some(OpenVault { vault, .. }) = &open.vault else {
        return Ok(View::new("Task", html! { h1 { "Task" } (no_vault(open)) }));
    };
    let sheet = Sheet::read(vault, task, open.gate.workspace().now())?;
    Ok(View::new(sheet.name(), html! { h1.unseen { "Task" } (sheet.show(visit, open)?) }))
}
