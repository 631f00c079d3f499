//! `/changes`: what agents have changed, the newest first; and a change as a line of a list.

use std::ops::ControlFlow;

use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate::error::Result;
use tollgate::history::listing::{PastChange, PastPart};
use tollgate::history::step::{Step, What};

use super::diff::size;
use super::links;
use super::text::{SafeText, age};
use super::view::PageContent;
use crate::workspace_provider::OpenWorkspace;

/// The number of changes on one page.
const AT_ONCE: usize = 50;

/// The number of files that a line names.
pub(super) const NAMED: usize = 3;

/// The query: from where on.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChangesQuery {
    /// Only those before this ledger line.
    before: Option<u64>,
}

pub(super) fn view(open: &OpenWorkspace, query: ChangesQuery) -> Result<PageContent> {
    let workspace = open.gate.workspace();
    let now = workspace.now();
    let part = PastPart::read(workspace, query.before, AT_ONCE, |_| ControlFlow::Continue(true))?;
    let main = html! {
        h1 { "Changes" }
        p.lead {
            "What agents and people have changed through tollgate, newest first. Programs that do not use tollgate leave no line here; "
            "the lines of a file show what they wrote."
        }
        @if part.changes.is_empty() { p.empty { (none(query.before)) } }
        ol.lines { @for change in &part.changes { (change_line(change, now)) } }
        (pages(query.before.is_some().then_some("/changes"), part.older.map(|older| format!("/changes?before={older}"))))
    };
    Ok(PageContent::new("Changes", main))
}

fn none(before: Option<u64>) -> &'static str {
    match before {
        None => "Nothing was changed yet. Every guarded write will appear here.",
        Some(_) => "None of the lines searched so far are changes.",
    }
}

/// Links to the newest and to the next part of a list.
pub(super) fn pages(newest: Option<&str>, older: Option<String>) -> Markup {
    html! {
        nav.pages aria-label="Parts of the list" {
            @if let Some(newest) = newest { a rel="prev" href=(newest) { "Newest" } }
            @if let Some(older) = older { a rel="next" href=(older) { "Older" } }
        }
    }
}

/// One change: who, what, how much, when. The files lead to its diff.
pub(super) fn change_line(change: &PastChange, now: Timestamp) -> Markup {
    let first = &change.steps[0];
    html! {
        li.line data-key=(first.change) {
            span.words {
                (links::agent(first.agent.as_ref())) " " (what_was_done(change))
            }
            (size(change.size))
            span.kind.quiet { (SafeText(&first.tool)) }
            (age(first.time, now))
        }
    }
}

/// What a change did to its files, which lead to its diff.
fn what_was_done(change: &PastChange) -> Markup {
    let first = &change.steps[0];
    let address = format!("/changes/{}", first.change);
    let more = change.steps.len().saturating_sub(NAMED);
    html! {
        (verb(&change.steps)) " "
        @for (index, step) in change.steps.iter().take(NAMED).enumerate() {
            @if index > 0 { ", " }
            a href=(address) { code { (SafeText(&step.path)) } }
            @if let Some(to) = &step.moved_to { " to " a href=(address) { code { (SafeText(to)) } } }
        }
        @if more > 0 { " and " a href=(address) { (more) " more" } }
    }
}

/// What was done, in a word.
pub(super) fn verb(steps: &[Step]) -> &'static str {
    let one = |step: &Step| match (&step.moved_to, step.what) {
        (Some(_), _) | (None, What::Folder) => "moved",
        (None, What::File { before: None, .. }) => "created",
        (None, What::File { after: None, .. }) => "deleted",
        (None, What::File { .. }) => "wrote",
    };
    let verb = one(&steps[0]);
    if steps.iter().all(|step| one(step) == verb) { verb } else { "changed" }
}
