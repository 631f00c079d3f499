//! `/agents/NAME`: what an agent does now, and what it has done, turn by turn, with diffs.

use std::ops::ControlFlow;

use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate::error::Result;
use tollgate::history::content::Contents;
use tollgate::history::listing::{PastChange, PastPart};
use tollgate::name::Agent;

use super::agents::{now_words, turn_now};
use super::agents_now::{AgentNow, agents_now};
use super::changes::{NAMED, pages, verb};
use super::diff::{file_diff, only_diff, size};
use super::ledger::tail;
use super::links;
use super::text::{SafeText, age, ago, count, encode};
use super::view::PageContent;
use super::visit::Visit;
use crate::workspace_provider::OpenWorkspace;

/// The number of changes on one page.
const AT_ONCE: usize = 20;

/// The number of changes whose diffs are open.
const OPEN: usize = 3;

/// The number of files of one change, and of lines of one diff, that are shown. The page about the change has more.
const FILES: usize = 5;
const LINES: usize = 80;

/// Which agent, and from where on.
#[derive(Debug, Clone)]
pub(super) struct AgentQuery {
    agent: Agent,
    before: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct BeforeQuery {
    before: Option<u64>,
}

impl AgentQuery {
    pub(super) fn new(agent: Agent, query: &BeforeQuery) -> Self {
        Self { agent, before: query.before }
    }
}

pub(super) fn view(visit: &Visit, open: &OpenWorkspace, query: &AgentQuery) -> Result<PageContent> {
    let workspace = open.gate.workspace();
    let now = workspace.now();
    let agent = &query.agent;
    let part = PastPart::read(workspace, query.before, AT_ONCE, |step| {
        ControlFlow::Continue(step.agent.as_ref() == Some(agent))
    })?;
    let contents = part.contents(workspace);
    let doing = match query.before {
        None => agents_now(visit, open, &tail(open)?)?.remove(agent.as_str()).unwrap_or_default(),
        Some(_) => AgentNow::default(),
    };
    let turns = part.changes.chunk_by(|one, other| one.steps[0].turn == other.steps[0].turn);
    let here = links::agent_address(agent.as_str());
    let mut shown = 0;
    let main = html! {
        h1 { (agent) }
        @if query.before.is_none() {
            p.lead { (now_words(&doing)) }
            @if !doing.tasks.is_empty() { ul.tasks.wide { @for row in &doing.tasks { li { (row.show(now)) } } } }
            @for turn in &doing.turns { (turn_now(turn, now)) }
        }
        h2 { "Changes, turn by turn" }
        @if part.changes.is_empty() {
            p.empty {
                @if part.older.is_some() { "It has changed nothing in the lines searched so far." }
                @else { "It has changed nothing." }
            }
        }
        @for changes in turns {
            section.turn {
                (turn_header(changes, now))
                @for change in changes {
                    (with_diffs(change, &contents, shown < OPEN, now)?)
                    ({ shown += 1; "" })
                }
            }
        }
        (pages(query.before.map(|_| here.as_str()), part.older.map(|older| format!("{here}?before={older}"))))
        p.more { a href=(format!("/ledger?agent={}", encode(agent.as_str()))) { "All lines of this agent in the ledger" } }
    };
    Ok(PageContent::new(agent.to_string(), main))
}

fn turn_header(changes: &[PastChange], now: Timestamp) -> Markup {
    let newest = &changes[0].steps[0];
    html! {
        header {
            h3 {
                @match &newest.turn {
                    Some(turn) => { "Turn " (links::turn(turn)) },
                    None => "Without a turn",
                }
            }
            span.quiet { (count(changes.len(), "change", "changes")) ", the last " (ago(newest.time, now)) }
        }
    }
}

/// A change with its diffs.
fn with_diffs(change: &PastChange, contents: &Contents<'_>, is_open: bool, now: Timestamp) -> Result<Markup> {
    let first = &change.steps[0];
    let files = change.files(contents)?;
    Ok(html! {
        details.past data-key=(first.change) open[is_open] {
            summary {
                (verb(&change.steps)) " "
                @for (index, step) in change.steps.iter().take(NAMED).enumerate() {
                    @if index > 0 { ", " }
                    code { (SafeText(step.landed())) }
                }
                @if change.steps.len() > NAMED { " and " (change.steps.len() - NAMED) " more" }
                " " (size(change.size)) " " (age(first.time, now))
            }
            p.quiet {
                a href=(format!("/changes/{}", first.change)) { "Change " (first.change) } ", with "
                span.kind { (SafeText(&first.tool)) }
            }
            @if let [only] = &files[..] { (only_diff(only, LINES)) }
            @else { @for file in files.iter().take(FILES) { (file_diff(file, LINES)) } }
            @if files.len() > FILES {
                p.more { a href=(format!("/changes/{}", first.change)) { (count(files.len() - FILES, "more file", "more files")) } }
            }
        }
    })
}
