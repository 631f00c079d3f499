//! `/ledger`: every line, the newest first, and whether the ledger is intact.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;
use tollgate::error::{Fault, Result};
use tollgate::event::{Described, Event, Fragment, Tone};
use tollgate::history::step::Step;
use tollgate::ledger::{Ledger, Line};

use super::links;
use super::text::{SafeText, age, count, encode};
use super::view::PageContent;
use super::visit::Visit;
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
    /// A time, as browsers send it: without a zone, which is UTC.
    since: String,
    until: String,
    before: Option<u64>,
}

impl LedgerQuery {
    pub(super) fn fits(&self, line: &Line) -> bool {
        let (since, until) = self.times();
        let agent = line.agent.as_ref().map_or("", |agent| agent.as_str());
        (self.agent.is_empty() || self.agent == agent)
            && (self.kind.is_empty() || self.kind == line.event.action_type())
            && (self.text.is_empty() || tells(line, &self.text))
            && since.is_none_or(|since| line.time >= since)
            && until.is_none_or(|until| line.time <= until)
    }

    /// From when to when.
    pub(super) fn times(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        let last = |time: Timestamp| {
            // A minute or a day lasts until its end.
            let lasts = match self.until.len() {
                16 => 59_999,
                10 => 86_399_999,
                _ => 0,
            };
            time.checked_add(SignedDuration::from_millis(lasts)).unwrap_or(time)
        };
        (time(&self.since), time(&self.until).map(last))
    }

    fn is_filter(&self) -> bool {
        [&self.agent, &self.kind, &self.text, &self.since, &self.until].iter().any(|field| !field.is_empty())
    }

    fn query(&self) -> String {
        let [agent, kind, text] = [&self.agent, &self.kind, &self.text].map(|field| encode(field));
        let [since, until] = [&self.since, &self.until].map(|field| encode(field));
        format!("agent={agent}&kind={kind}&text={text}&since={since}&until={until}")
    }

    fn newest(&self) -> String {
        format!("/ledger?{}", self.query())
    }

    fn before(&self, seq: u64) -> String {
        format!("{}&before={seq}", self.newest())
    }
}

/// A time as people and browsers write it.
fn time(text: &str) -> Option<Timestamp> {
    let civil = || text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
    text.parse().ok().or_else(civil)
}

/// The first line after this time, by bisection: lines are in the order of time, but for the clocks of several processes,
/// which may differ by moments.
fn first_after(ledger: &Ledger, time: Timestamp) -> Result<u64> {
    let at_or_before = |seq: u64| -> Result<Option<Line>> {
        let mut lines = ledger
            .newest_before(seq.saturating_add(1))?
            .filter(|line| !matches!(line, Err(Fault::Damaged { .. })));
        lines.next().transpose()
    };
    let newest = at_or_before(u64::MAX - 1)?.map_or(0, |line| line.seq);
    let (mut low, mut high) = (1, newest + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        match at_or_before(middle)? {
            Some(line) if line.time > time => high = middle,
            _ => low = middle + 1,
        }
    }
    Ok(low)
}

/// The first line that is not before this time.
pub(super) fn first_since(ledger: &Ledger, time: Timestamp) -> Result<u64> {
    first_after(ledger, time.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(time))
}

pub(super) fn tells(line: &Line, text: &str) -> bool {
    let json = line.json();
    let values = json["payload"].as_object().into_iter().flat_map(serde_json::Map::values);
    values.filter_map(Value::as_str).any(|value| value.contains(text))
}

pub(super) fn view(visit: &Visit, open: &OpenWorkspace, query: &LedgerQuery) -> Result<PageContent> {
    let now = open.gate.workspace().now();
    let ledger = open.gate.workspace().ledger();
    let (since, until) = query.times();
    let end = until.map(|until| first_after(ledger, until)).transpose()?;
    let before = query.before.into_iter().chain(end).min();
    let mut page = ledger.page(AT_ONCE, before, |line| query.fits(line))?;
    if let Some(since) = since {
        // Nothing that is older can match.
        page.older = page.older.filter(|older| first_since(ledger, since).is_ok_and(|first| *older > first));
    }
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
                input name="text" value=(query.text) autocomplete="off" spellcheck="false" type="search";
            }
            label { "From (UTC)" input name="since" type="datetime-local" value=(query.since); }
            label { "Until (UTC)" input name="until" type="datetime-local" value=(query.until); }
            button { "Filter" }
            @if query.is_filter() { a href="/ledger" { "Show all" } }
            a.button href=(format!("/ledger/export?{}", query.query())) download { "Export" }
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

/// The number of lines that show the recent activity of every agent.
const TAIL: usize = 400;

/// The last lines of the ledger, the newest first.
pub(super) fn tail(open: &OpenWorkspace) -> Result<Vec<Line>> {
    newest(open, TAIL)
}

/// This many of the last lines of the ledger, the newest first. The ledger's own page reports damaged lines.
pub(super) fn newest(open: &OpenWorkspace, count: usize) -> Result<Vec<Line>> {
    let lines = open.gate.workspace().ledger().newest_first()?;
    lines.filter(|line| !matches!(line, Err(Fault::Damaged { .. }))).take(count).collect()
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
    // A change leads to its diff, a refusal to the conflict, and everything else to the file.
    let address = match &line.event {
        Event::MutationConflict(..) | Event::MutationRefused(..) => {
            Some(format!("/conflicts?before={}#c-{}", line.seq + 1, line.seq))
        }
        _ if Step::is_line(line) => Some(format!("/changes/{}", line.seq)),
        _ => None,
    };
    html! {
        span.words {
            @for part in &described.sentence {
                @match part {
                    Fragment::Words(words) => { (words) },
                    Fragment::Agent => { (links::agent(line.agent.as_ref())) },
                    Fragment::File(file) => {
                        a href=(address.clone().unwrap_or_else(|| links::file_address(file))) { code { (SafeText(file)) } }
                    },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_without_seconds_lasts_until_its_end() {
        let times = |since: &str, until: &str| {
            let (since, until) =
                LedgerQuery { since: since.into(), until: until.into(), ..LedgerQuery::default() }.times();
            (since.map(|time| time.to_string()), until.map(|time| time.to_string()))
        };
        let some = |text: &str| Some(text.to_owned());
        let minute = times("2026-11-16T10:00", "2026-11-16T10:00");
        assert_eq!(minute, (some("2026-11-16T10:00:00Z"), some("2026-11-16T10:00:59.999Z")));
        let exact = times("2026-11-16T10:00:07Z", "2026-11-16T10:00:09Z");
        assert_eq!(exact, (some("2026-11-16T10:00:07Z"), some("2026-11-16T10:00:09Z")));
        assert_eq!(times("2026-11-16", "2026-11-16").1, some("2026-11-16T23:59:59.999Z"));
        assert_eq!(times("soon", ""), (None, None));
        assert_eq!(times("", "9999-12-30").1, some("9999-12-30T00:00:00Z"), "the last day of all");
    }
}
