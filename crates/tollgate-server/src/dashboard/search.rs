//! `/search?q=TEXT`: tasks whose name, title or text has this text, agents, files, and lines of the ledger. Tasks can be
//! filtered by state, agent, action, priority, and by whether they wait for another task.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate::error::Result;
use tollgate::event::{Event, Mutation};
use tollgate::ledger::Line;
use tollgate::vault::Vault;
use tollgate::vault::state::State;
use tollgate::vault::store::TaskSummary;

use super::ledger::{newest, sentence, tells};
use super::links;
use super::new_task::priorities;
use super::task_row::{rows, state_words, title};
use super::text::{SafeText, count, encode};
use super::view::{PageContent, SECTIONS};
use super::visit::Visit;
use crate::board::Board;
use crate::workspace_provider::OpenWorkspace;

/// The number of tasks on one page, and of results of each other kind.
const AT_ONCE: usize = 30;

/// What people do, beside the pages of the navigation.
const ACTIONS: [(&str, &str); 3] =
    [("/new", "New task"), ("/search?blocked=true", "Blocked tasks"), ("/changes", "Changes")];

/// The number of results while somebody types.
const WHILE_TYPING: usize = 8;

/// The number of ledger lines that are searched for agents, files and what happened.
const LINES: usize = 2000;

/// The number of lines of the ledger that are shown.
const SHOWN_LINES: usize = 5;

/// The texts of tasks are searched no longer than this. Names and titles are in memory.
const PATIENCE: Duration = Duration::from_secs(1);

/// As much of each text is searched.
const LONGEST: u64 = 64 << 10;

/// The query.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct SearchQuery {
    pub(super) q: String,
    state: String,
    agent: String,
    action: String,
    priority: String,
    /// Only tasks that wait for another one.
    blocked: bool,
    from: usize,
    /// Somebody is typing: names and titles only.
    typing: bool,
}

/// The tasks that were found.
#[derive(Default)]
struct FoundTasks {
    /// Those of the wanted state.
    tasks: Vec<TaskSummary>,
    /// The number of tasks found in each state.
    counts: BTreeMap<State, usize>,
    /// The number of tasks whose texts were not searched, because there are too many.
    left: usize,
}

/// What else was found.
#[derive(Default)]
struct BesideTasks {
    agents: BTreeSet<String>,
    files: BTreeSet<String>,
    /// Lines of the ledger, the newest first.
    lines: Vec<Line>,
}

impl SearchQuery {
    /// Whether a task passes the filters, without the state.
    fn passes(&self, task: &TaskSummary, board: &Board) -> bool {
        let brief = task.brief.as_ref().ok();
        let action = brief.and_then(|brief| brief.action.as_deref()).unwrap_or_default();
        let agent = task.slot.agent().map_or("", |agent| agent.as_str());
        let is_blocked =
            || brief.is_some_and(|brief| brief.after.iter().any(|task| !board.column(State::Done).has(task)));
        (self.agent.is_empty() || agent == self.agent)
            && (self.action.is_empty() || action == self.action)
            && (self.priority.is_empty()
                || brief.is_some_and(|brief| brief.priority.as_str() == self.priority))
            && (!self.blocked || is_blocked())
    }

    fn has_filter(&self) -> bool {
        self.blocked
            || [&self.state, &self.agent, &self.action, &self.priority].iter().any(|one| !one.is_empty())
    }

    fn address(&self, state: &str, from: usize) -> String {
        let [q, agent, action, priority] =
            [&self.q, &self.agent, &self.action, &self.priority].map(|field| encode(field));
        let blocked = if self.blocked { "&blocked=true" } else { "" };
        format!(
            "/search?q={q}&state={state}&agent={agent}&action={action}&priority={priority}{blocked}&from={from}"
        )
    }

    fn find(&self, visit: &Visit, vault: &Vault, now: Timestamp) -> Result<FoundTasks> {
        let wanted = self.q.trim().to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        let (mut named, mut others) = (Vec::new(), Vec::new());
        if let Some(board) = visit.site.board()? {
            for task in State::ALL.into_iter().flat_map(|state| board.column(state).tasks()) {
                if self.passes(task, &board) {
                    let is_named = has(title(task)) || has(task.name.as_str());
                    if is_named { &mut named } else { &mut others }.push(task.clone());
                }
            }
        }
        let mut found = FoundTasks::default();
        if !self.typing {
            let begun = Instant::now();
            for (index, task) in others.iter().enumerate() {
                if begun.elapsed() > PATIENCE {
                    found.left = others.len() - index;
                    break;
                }
                let text = vault.get_with_text(&task.name, LONGEST, now).map(|(_, text)| text);
                // A task that was moved or deleted in the meantime is found by the next search.
                if text.is_ok_and(|text| has(&String::from_utf8_lossy(&text))) {
                    named.push(task.clone());
                }
            }
        }
        for task in named {
            *found.counts.entry(task.slot.state()).or_default() += 1;
            if self.state.is_empty() || self.state == task.slot.state().as_str() {
                found.tasks.push(task);
            }
        }
        Ok(found)
    }

    fn form(&self) -> Markup {
        html! {
            form.filter method="get" action="/search" role="search" aria-label="Filter the tasks" {
                label { "Text" input name="q" value=(self.q) autocomplete="off"; }
                label { "Owner" input name="agent" value=(self.agent) autocomplete="off" spellcheck="false"; }
                label { "Action" input name="action" value=(self.action) autocomplete="off" spellcheck="false"; }
                label {
                    "Priority"
                    select name="priority" {
                        option value="" { "any" }
                        @for word in priorities() { option value=(word) selected[word == self.priority] { (word) } }
                    }
                }
                label { "Blocked" input type="checkbox" name="blocked" value="true" checked[self.blocked]; }
                input type="hidden" name="state" value=(self.state);
                button { "Filter" }
            }
        }
    }
}

pub(super) fn view(visit: &Visit, open: &OpenWorkspace, query: &SearchQuery) -> Result<PageContent> {
    let now = open.gate.workspace().now();
    let text = query.q.trim();
    let asks = !text.is_empty() || query.has_filter();
    let found = match &open.vault {
        Some(vault) if asks => query.find(visit, vault, now)?,
        _ => FoundTasks::default(),
    };
    let beside = if text.is_empty() { BesideTasks::default() } else { BesideTasks::find(open, text)? };
    if query.typing {
        return Ok(PageContent::new("Search", while_typing(text, &found, &beside)));
    }
    let all: usize = found.counts.values().sum();
    let first = query.from.min(found.tasks.len().saturating_sub(1)) / AT_ONCE * AT_ONCE;
    let shown: Vec<TaskSummary> = found.tasks.iter().skip(first).take(AT_ONCE).cloned().collect();
    let main = html! {
        h1 { "Search " @if asks { span.count { (count(all, "task", "tasks")) } } }
        (query.form())
        @if all > 0 {
            nav.spans aria-label="States" {
                a href=(query.address("", 0)) aria-current=[query.state.is_empty().then_some("page")] { "all " (all) }
                @for (state, number) in &found.counts {
                    a href=(query.address(state.as_str(), 0)) aria-current=[(query.state == state.as_str()).then_some("page")] {
                        (state_words(*state).0) " " (number)
                    }
                }
            }
        }
        @if found.left > 0 {
            p.quiet { "The texts of " (count(found.left, "task was", "tasks were")) " not searched: narrow the search with a filter." }
        }
        @if let Some(vault) = &open.vault {
            ul.tasks.wide {
                @for row in rows(vault, &shown, now) {
                    li { (row.show(now)) p.quiet { (state_words(row.state()).0) " · " code { (SafeText(row.name())) } } }
                }
            }
        }
        nav.pages aria-label="Parts of the list" {
            @if first > 0 { a rel="prev" href=(query.address(&query.state, first - AT_ONCE)) { "Previous" } }
            @if found.tasks.len() > AT_ONCE { span { (first + 1) " to " (first + shown.len()) " of " (found.tasks.len()) } }
            @if first + AT_ONCE < found.tasks.len() { a rel="next" href=(query.address(&query.state, first + AT_ONCE)) { "Next" } }
        }
        div.results {
            @if asks && all + beside.len() == 0 { p.none { "Nothing was found." } }
            ul.hits { (beside.hits(AT_ONCE)) }
            @if !beside.lines.is_empty() {
                h2 { "Ledger" }
                ol.lines { @for line in beside.lines.iter().take(SHOWN_LINES) { (sentence(line, now)) } }
            }
            (in_ledger(text, beside.lines.len()))
        }
    };
    Ok(PageContent::new("Search", main))
}

impl BesideTasks {
    fn find(open: &OpenWorkspace, text: &str) -> Result<Self> {
        let wanted = text.to_lowercase();
        let has = |name: &str| name.to_lowercase().contains(&wanted);
        let mut found = Self::default();
        let roles = open.gate.workspace().settings().agent.keys().map(ToString::to_string);
        found.agents.extend(roles.filter(|agent| has(agent)));
        for line in newest(open, LINES)? {
            found.agents.extend(line.agent.as_ref().map(ToString::to_string).filter(|agent| has(agent)));
            found.files.extend(file(&line.event).filter(|file| has(file)).map(str::to_owned));
            if tells(&line, text) {
                found.lines.push(line);
            }
        }
        Ok(found)
    }

    fn len(&self) -> usize {
        self.agents.len() + self.files.len() + self.lines.len()
    }

    fn hits(&self, most: usize) -> Markup {
        html! {
            @for agent in self.agents.iter().take(most) {
                li { a href=(links::agent_address(agent)) { (SafeText(agent)) } " " span.quiet { "agent" } }
            }
            @for file in self.files.iter().take(most) {
                li { a href=(links::file_address(file)) { (SafeText(file)) } " " span.quiet { "file" } }
            }
        }
    }
}

/// What appears below the field while somebody types: tasks by name, pages, agents and files.
fn while_typing(text: &str, found: &FoundTasks, beside: &BesideTasks) -> Markup {
    let more = found.tasks.len().saturating_sub(WHILE_TYPING);
    let wanted = text.to_lowercase();
    let pages: Vec<_> =
        SECTIONS.iter().chain(&ACTIONS).filter(|(_, name)| name.to_lowercase().contains(&wanted)).collect();
    html! {
        div.results {
            ul.hits {
                @for task in found.tasks.iter().take(WHILE_TYPING) {
                    li {
                        a href=(format!("/tasks/{}", encode(task.name.as_str()))) { (SafeText(title(task))) } " "
                        span.quiet { (state_words(task.slot.state()).0) " · " (SafeText(task.name.as_str())) }
                    }
                }
                @for (address, name) in &pages { li { a href=(address) { (name) } " " span.quiet { "page" } } }
                (beside.hits(WHILE_TYPING))
            }
            @if found.tasks.is_empty() && pages.is_empty() && beside.len() == 0 { p.none { "Nothing has this in its name." } }
            p.more {
                a href=(format!("/search?q={}", encode(text))) {
                    @if more > 0 { (count(more, "more task", "more tasks")) ", and search in texts" }
                    @else { "Search in texts, too" }
                }
            }
        }
    }
}

fn in_ledger(text: &str, lines: usize) -> Markup {
    html! {
        @if !text.is_empty() {
            p.more {
                a href=(format!("/ledger?text={}", encode(text))) {
                    @if lines > SHOWN_LINES { "All " (lines) " of the newest " (LINES) " lines, and older ones" }
                    @else { "Search the whole ledger for “" (SafeText(text)) "”" }
                }
            }
        }
    }
}

/// The file that an event is about.
fn file(event: &Event) -> Option<&str> {
    match event {
        Event::MutationConflict(write, ..) | Event::MutationRefused(write, ..) => Some(&write.target_file),
        Event::Mutation(Mutation::File(changed), _) => Some(&changed.target_file),
        Event::LateExternalWrite(late) => Some(&late.target_file),
        _ => None,
    }
}
