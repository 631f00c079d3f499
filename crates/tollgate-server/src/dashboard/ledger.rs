//! `/ledger`: every line, the newest first, and whether the ledger is intact.

use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;
use tollgate::error::Result;
use tollgate::event::{Described, Event, Fragment, Tone};
use tollgate::ledger::Line;

use super::text::{SafeText, age, count, encode};
use super::view::{PageContent, Visit};
use crate::ledger_monitor::{LedgerCondition, LedgerStatus};
use crate::workspace_provider::OpenWorkspace;

/// The number of lines on one page.
const AT_ONCE: usize = 60;

/// The query: which lines to show.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct LedgerQuery {
    agent: String,
    kind: String,
    text: String,
    before: Option<u64>,
}

impl LedgerQuery {
    fn fits(&self, line: &Line) -> bool {
        let agent = line.agent.as_ref().map_or("", |agent| agent.as_str());
        (self.agent.is_empty() || self.agent == agent)
            && (self.kind.is_empty() || self.kind == line.event.action_type())
            && (self.text.is_empty() || tells(line, &self.text))
    }

    fn is_filter(&self) -> bool {
        !(self.agent.is_empty() && self.kind.is_empty() && self.text.is_empty())
    }

    fn newest(&self) -> String {
        let (agent, kind, text) = (encode(&self.agent), encode(&self.kind), encode(&self.text));
        format!("/ledger?agent={agent}&kind={kind}&text={text}")
    }

    fn before(&self, seq: u64) -> String {
        format!("{}&before={seq}", self.newest())
    }
}

fn tells(line: &Line, text: &str) -> bool {
    let json = line.json();
    let values = json["payload"].as_object().into_iter().flat_map(serde_json::Map::values);
    values.filter_map(Value::as_str).any(|value| value.contains(text))
}

pub(super) fn view(visit: &Visit<'_>, open: &OpenWorkspace, query: &LedgerQuery) -> Result<PageContent> {
    let now = open.gate.workspace().now();
    let page = open.gate.workspace().ledger().page(AT_ONCE, query.before, |line| query.fits(line))?;
    let main = html! {
        h1 { "Ledger" }
        (condition(&visit.site.ledger()))
        form.filter method="get" action="/ledger" role="search" aria-label="Filter the ledger" {
            label { "Agent" input name="agent" value=(query.agent) autocomplete="off" spellcheck="false"; }
            label {
                "Kind"
                select name="kind" {
                    option value="" { "all" }
                    @for kind in Event::ACTION_TYPES {
                        option value=(kind) selected[query.kind == *kind] { (kind) }
                    }
                }
            }
            label {
                "File or task"
                input #filter name="text" value=(query.text) autocomplete="off" spellcheck="false" type="search";
            }
            button { "Filter" }
            @if query.is_filter() { a href="/ledger" { "Show all" } }
        }
        @if page.lines.is_empty() {
            p.empty {
                @if page.older.is_some() { "None of the lines searched so far match." }
                @else if query.is_filter() || query.before.is_some() { "No matching lines." }
                @else { "Nothing has happened yet. Every guarded write, refusal and claim becomes a line." }
            }
        }
        ol.lines.ledger {
            @for line in &page.lines { (with_json(line, now)) }
        }
        @if page.damaged > 0 {
            p.bad { (count(page.damaged, "damaged line is", "damaged lines are")) " not shown." }
        }
        nav.pages aria-label="Parts of the ledger" {
            @if query.before.is_some() { a rel="prev" href=(query.newest()) { "Newest" } }
            @if let Some(older) = page.older { a rel="next" href=(query.before(older)) { "Older, before line " (older) } }
        }
    };
    Ok(PageContent::new("Ledger", main))
}

fn with_json(line: &Line, now: Timestamp) -> Markup {
    let described = line.event.described();
    let json = serde_json::to_string_pretty(&line.json()).unwrap_or_default();
    html! {
        li.line id=(format!("l-{}", line.seq)) data-mood=[mood(described.tone)] {
            span.seq { (line.seq) }
            (words(line, &described))
            (age(line.time, now))
            details { summary { "json" span.unseen { " of line " (line.seq) } } pre tabindex="0" { (SafeText(&json)) } }
        }
    }
}

/// One ledger line as a list item.
pub(super) fn sentence(line: &Line, now: Timestamp) -> Markup {
    let described = line.event.described();
    html! {
        li.line data-key=(line.seq) data-mood=[mood(described.tone)] { (words(line, &described)) (age(line.time, now)) }
    }
}

/// The class of its tone.
fn mood(tone: Tone) -> Option<&'static str> {
    match tone {
        Tone::Good => Some("good"),
        Tone::Bad => Some("bad"),
        Tone::Neutral => None,
    }
}

fn words(line: &Line, described: &Described<'_>) -> Markup {
    let who = line.agent.as_ref().map_or("an unknown agent", |agent| agent.as_str());
    let is_refusal = matches!(line.event, Event::MutationConflict(..) | Event::MutationRefused(..));
    let conflict = format!("/conflicts?before={}#c-{}", line.seq + 1, line.seq);
    html! {
        span.words {
            @for part in &described.sentence {
                @match part {
                    Fragment::Words(words) => { (words) },
                    Fragment::Agent => { span.agent { (who) } },
                    Fragment::File(file) if is_refusal => { a href=(conflict) { code { (SafeText(file)) } } },
                    Fragment::File(file) => { code { (SafeText(file)) } },
                    Fragment::Task(task) => {
                        a href=(format!("/tasks/{}", encode(task))) { (SafeText(task.strip_suffix(".md").unwrap_or(task))) }
                    },
                    Fragment::Person(name) => { (SafeText(name)) },
                    Fragment::State(state) => { span.state { (state.as_str().replace('_', " ")) } },
                    Fragment::Code(code) => { span.kind { (SafeText(code)) } },
                }
            }
            @if let Some(reason) = described.reason { ": " (SafeText(reason)) }
        }
    }
}

/// Whether the ledger is intact, as far as it was read.
fn condition(status: &LedgerStatus) -> Markup {
    html! {
        div.verified {
            @match &status.condition {
                LedgerCondition::Checking => p role="status" { "Verifying every line…" },
                LedgerCondition::Whole if status.lines == 0 => {},
                LedgerCondition::Whole => p.good {
                    strong { "Verified." } " Each of the " (status.lines) " lines carries the hash of the line before it."
                },
                LedgerCondition::Broken { problem } => div.alert role="alert" {
                    p { strong { "The ledger was changed after it was written." } " " (SafeText(problem)) }
                },
            }
        }
    }
}
