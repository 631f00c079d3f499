//! `/ledger`: what happened, line by line, the newest first; with its verification.

use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;
use tollgate::error::Result;
use tollgate::ledger::{ActionType, Line};

use super::page::{View, Visit};
use super::text::{Shown, age, count, encode};
use crate::accounts::{Account, Condition};
use crate::site::Open;

/// So many lines on one page.
const AT_ONCE: usize = 60;

/// Which lines are asked for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Asked {
    agent: String,
    kind: String,
    text: String,
    before: Option<u64>,
}

impl Asked {
    fn fits(&self, line: &Line) -> bool {
        let agent = line.agent.as_ref().map_or("", |agent| agent.as_str());
        (self.agent.is_empty() || self.agent == agent)
            && (self.kind.is_empty() || self.kind == line.action_type)
            && (self.text.is_empty() || tells(&line.payload, &self.text))
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

fn tells(payload: &Value, text: &str) -> bool {
    let values = payload.as_object().into_iter().flat_map(serde_json::Map::values);
    values.filter_map(Value::as_str).any(|value| value.contains(text))
}

pub(super) fn view(visit: &Visit<'_>, open: &Open, asked: &Asked) -> Result<View> {
    let now = open.gate.workspace().now();
    let page = open.gate.workspace().ledger().page(AT_ONCE, asked.before, |line| asked.fits(line))?;
    let main = html! {
        h1 { "Ledger" }
        (condition(&visit.site.ledger()))
        form.filter method="get" action="/ledger" role="search" aria-label="Filter the ledger" {
            label { "Agent" input name="agent" value=(asked.agent) autocomplete="off" spellcheck="false"; }
            label {
                "Kind"
                select name="kind" {
                    option value="" { "all" }
                    @for kind in ActionType::ALL {
                        option value=(kind.as_str()) selected[asked.kind == kind.as_str()] { (kind.as_str()) }
                    }
                }
            }
            label {
                "File or task"
                input #filter name="text" value=(asked.text) autocomplete="off" spellcheck="false" type="search";
            }
            button { "Filter" }
            @if asked.is_filter() { a href="/ledger" { "Show all" } }
        }
        @if page.lines.is_empty() {
            p.empty {
                @if page.older.is_some() { "No line fits among those that were looked at." }
                @else if asked.is_filter() || asked.before.is_some() { "No line fits." }
                @else { "Nothing has happened yet. Every guarded write, every refusal and every claim becomes a line." }
            }
        }
        ol.lines.ledger {
            @for line in &page.lines { (with_json(line, now)) }
        }
        @if page.damaged > 0 {
            p.bad { (count(page.damaged, "damaged line is", "damaged lines are")) " left out." }
        }
        nav.pages aria-label="Parts of the ledger" {
            @if asked.before.is_some() { a rel="prev" href=(asked.newest()) { "Newest" } }
            @if let Some(older) = page.older { a rel="next" href=(asked.before(older)) { "Older, before line " (older) } }
        }
    };
    Ok(View::new("Ledger", main))
}

fn with_json(line: &Line, now: Timestamp) -> Markup {
    let json = serde_json::to_string_pretty(line).unwrap_or_default();
    html! {
        li.line id=(format!("l-{}", line.seq)) data-mood=[mood(line)] {
            span.seq { (line.seq) }
            (words(line))
            (age(line.time, now))
            details { summary { "json" span.unseen { " of line " (line.seq) } } pre tabindex="0" { (Shown(&json)) } }
        }
    }
}

/// One line of the ledger, as a line of a list.
pub(super) fn sentence(line: &Line, now: Timestamp) -> Markup {
    html! { li.line data-key=(line.seq) data-mood=[mood(line)] { (words(line)) (age(line.time, now)) } }
}

/// Whether it is good or bad news, or none.
fn mood(line: &Line) -> Option<&'static str> {
    match line.action_type.as_str() {
        "MUTATION_CONFLICT" | "MUTATION_REFUSED" | "LATE_EXTERNAL_WRITE" | "RECLAIM" | "LEDGER_HEALED" => {
            Some("bad")
        }
        "MUTATION" => Some("good"),
        "APPROVAL" if line.payload["decision"] == "approve" => Some("good"),
        "RELEASE" if line.result["status"] == "Done" => Some("good"),
        "RELEASE" if line.payload["result"] == "failure" => Some("bad"),
        _ => None,
    }
}

fn words(line: &Line) -> Markup {
    let text = |key: &str| line.payload[key].as_str().unwrap_or_default();
    let status = line.result["status"].as_str().unwrap_or_default();
    let error = line.result["error_type"].as_str().unwrap_or_default();
    let who = line.agent.as_ref().map_or("somebody", |agent| agent.as_str());
    let agent = html! { span.agent { (who) } };
    let file = html! { code { (Shown(text("target_file"))) } };
    let name = text("task").strip_suffix(".md").unwrap_or(text("task"));
    let task = html! { a href=(format!("/tasks/{}", encode(text("task")))) { (Shown(name)) } };
    let conflict = format!("/conflicts?before={}#c-{}", line.seq + 1, line.seq);
    html! {
        span.words {
            @match line.action_type.as_str() {
                "MUTATION" if status == "UNDONE" => { (agent) " lost " (file) " to a power cut: taken back" },
                "MUTATION" if text("hash_after").is_empty() && text("moved_to").is_empty() => { (agent) " deleted " (file) },
                "MUTATION" if !text("moved_to").is_empty() => {
                    (agent) " moved " (file) " to " code { (Shown(text("moved_to"))) }
                },
                "MUTATION" if text("hash_before").is_empty() => { (agent) " created " (file) },
                "MUTATION" => { (agent) " wrote " (file) },
                "MUTATION_CONFLICT" if status == "OBSERVED" => { (agent) " wrote over a change of " a href=(conflict) { (file) } },
                "MUTATION_CONFLICT" => { (agent) " was refused: " a href=(conflict) { (file) } " is stale" },
                "MUTATION_REFUSED" => { (agent) " was refused: " a href=(conflict) { (file) } " " span.kind { (error) } },
                "LATE_EXTERNAL_WRITE" => { "another program wrote " (file) " too late; its bytes are kept" },
                "CLAIM" => { (agent) " claimed " (task) },
                "CLAIM_LOST" => { (agent) " lost the race for " (task) },
                "RENEW" => { (agent) " renewed the claim on " (task) },
                "RELEASE" => { (agent) " released " (task) " to " span.state { (status.replace('_', " ")) } },
                "APPROVAL" if text("decision") == "reject" => { (Shown(text("by"))) " rejected " (task) },
                "APPROVAL" if text("decision") == "void" => { "the approval of " (task) " is void: it was changed" },
                "APPROVAL" => {
                    (Shown(text("by"))) @if text("edited_from").is_empty() { " approved " } @else { " edited and approved " } (task)
                },
                "RECLAIM" => { (task) " was taken back from " (agent) @if !text("reason").is_empty() { ": " (Shown(text("reason"))) } },
                "TURN_STARTED" => { (agent) " began a turn" },
                "TURN_ENDED" => { (agent) " ended a turn" },
                "LEDGER_HEALED" => { "a torn line was moved out of the ledger" },
                other => { (agent) " " span.kind { (Shown(other)) } },
            }
        }
    }
}

/// How the whole ledger is, as far as it was read.
fn condition(account: &Account) -> Markup {
    html! {
        div.verified {
            @match &account.condition {
                Condition::Checking => p role="status" { "Reading every line…" },
                Condition::Whole if account.lines == 0 => {},
                Condition::Whole => p.good {
                    strong { "Whole." } " Each of " (account.lines) " lines carries the hash of the one before."
                },
                Condition::Broken { problem } => div.alert role="alert" {
                    p { strong { "Not as it was written." } " " (Shown(problem)) }
                },
            }
        }
    }
}
