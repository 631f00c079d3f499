//! `/`: the board. All tasks by state, the first of each, and what happened last.

use jiff::Timestamp;
use maud::{Markup, html};
use tollgate::error::Result;
use tollgate::vault::Vault;
use tollgate::vault::claim::Tenure;
use tollgate::vault::state::{Slot, State};
use tollgate::vault::store::{Listed, Unfit};
use tollgate::vault::task::Priority;

use super::ledger::sentence;
use super::page::{View, Visit, no_vault};
use super::text::{Shown, age, count, encode, plain};
use crate::site::{Open, OpenVault, Site};

/// So many tasks of each state are on the board, so that all states fit on a screen; the rest is a click away.
const FIRST: usize = 6;

/// So many things that happened last.
const LATEST: usize = 8;

/// What the board shows of the tasks: of each state the number, and the first.
pub(super) struct Front {
    columns: Vec<Column>,
    unfit: Vec<Unfit>,
}

struct Column {
    state: State,
    len: usize,
    rows: Vec<Row>,
}

/// One task, as it is shown in a list.
pub(super) struct Row {
    task: String,
    slot: Slot,
    priority: Priority,
    action: Option<String>,
    broken: Option<String>,
    attempts: u32,
    reason: Option<String>,
    lapsed: bool,
    since: Timestamp,
}

impl Front {
    /// `None` without a vault.
    pub(super) fn read(site: &Site) -> Result<Option<Self>> {
        let open = site.open()?;
        let Some(open) = open.as_ref() else { return Ok(None) };
        let Some(OpenVault { vault, .. }) = &open.vault else { return Ok(None) };
        let (mut columns, mut unfit, mut first) = (Vec::new(), Vec::new(), Vec::new());
        if let Some(board) = site.board()? {
            for state in State::ALL {
                let column = board.column(state);
                unfit.extend_from_slice(&column.unfit);
                columns.push(Column { state, len: column.len(), rows: Vec::new() });
                first.push(column.tasks().take(FIRST).cloned().collect::<Vec<_>>());
            }
        }
        for (column, listed) in columns.iter_mut().zip(&first) {
            column.rows = rows(vault, listed, open.gate.workspace().now());
        }
        Ok(Some(Self { columns, unfit }))
    }
}

/// A closer look at some tasks.
pub(super) fn rows(vault: &Vault, listed: &[Listed], now: Timestamp) -> Vec<Row> {
    let mut rows = Vec::with_capacity(listed.len());
    for listed in listed {
        let mut row = Row {
            task: listed.task.to_string(),
            slot: listed.slot.clone(),
            priority: listed.brief.as_ref().map(|brief| brief.priority).unwrap_or_default(),
            action: listed.brief.as_ref().ok().and_then(|brief| brief.action.as_deref().map(str::to_owned)),
            broken: listed.brief.as_ref().err().map(ToString::to_string),
            attempts: 0,
            reason: None,
            lapsed: false,
            since: listed.modified,
        };
        // What is final has no notes. One that was moved since the look is told by the next.
        if !listed.slot.state().is_final()
            && let Ok(stored) = vault.get(&listed.task, now)
            && stored.slot == listed.slot
        {
            row.attempts = stored.note.attempts;
            row.reason.clone_from(&stored.note.reason);
            if let Some(claim) = &stored.note.claim {
                row.since = claim.at;
                row.lapsed = matches!(claim.tenure, Tenure::Leased(until) if until < now);
            }
            if let Some(approval) = &stored.note.approval {
                row.since = approval.at;
            }
        }
        rows.push(row);
    }
    rows
}

pub(super) fn view(visit: &Visit<'_>, open: &Open) -> Result<View> {
    let now = open.gate.workspace().now();
    let tail = visit.desk.tail(visit.site, open)?;
    let latest = html! {
        section.latest aria-labelledby="latest" {
            h2 #latest { "What happened last" }
            @if tail.is_empty() {
                p.empty { "Nothing yet. Every guarded write and every claim will be here." }
            } @else {
                ol.lines { @for line in tail.iter().take(LATEST) { (sentence(line, now)) } }
                p.more { a href="/ledger" { "The whole ledger" } }
            }
        }
    };
    let front = visit.desk.front(visit.site)?;
    let Some(front) = &*front else {
        return Ok(View::new("Board", html! { h1 { "Board" } (no_vault(open)) (latest) }));
    };
    let all: usize = front.columns.iter().map(|column| column.len).sum();
    let main = html! {
        h1.unseen { "Board" }
        @if all == 0 {
            div.empty {
                p { "No tasks yet. In the workspace:" }
                dl.commands {
                    dt { code { "tollgate task add 'what is to be done'" } }
                    dd { "adds one; or save a markdown file in " code { "Needs_Action/" } " of the vault" }
                    dt { code { "tollgate work --agent blue -- COMMAND" } }
                    dd { "lets an agent work: COMMAND runs once for each task" }
                }
            }
        }
        div.board {
            @for column in front.columns.iter().filter(|column| !column.state.is_final()) { (column.show(now)) }
            (latest)
            @for column in front.columns.iter().filter(|column| column.state.is_final()) { (column.show(now)) }
        }
        @if !front.unfit.is_empty() {
            section.unfit aria-labelledby="unfit" {
                h2 #unfit { (count(front.unfit.len(), "file cannot be a task", "files cannot be tasks")) }
                ul {
                    @for unfit in front.unfit.iter().take(FIRST) {
                        li { code { (unfit.state) "/" (Shown(&unfit.name)) } ": " (Shown(&unfit.why)) }
                    }
                }
            }
        }
    };
    Ok(View::new("Board", main))
}

impl Column {
    fn show(&self, now: Timestamp) -> Markup {
        let (name, none) = words(self.state);
        let rest = self.len.saturating_sub(self.rows.len());
        let all = format!("/tasks?state={}", self.state);
        html! {
            section.column data-state=(self.state) aria-labelledby=(format!("c-{}", self.state)) {
                h2 id=(format!("c-{}", self.state)) { (name) " " span.count { (self.len) } }
                @if self.rows.is_empty() {
                    p.none { (none) }
                } @else {
                    ul.tasks { @for row in &self.rows { li { (row.show(now)) } } }
                    @if rest > 0 {
                        p.more { a href=(all) { (rest) " more" span.unseen { " in " (name) } } }
                    }
                }
            }
        }
    }
}

impl Row {
    /// In whose hands it is, if in any.
    pub(super) fn agent(&self) -> &str {
        self.slot.agent().map_or("", |agent| agent.as_str())
    }

    pub(super) fn show(&self, now: Timestamp) -> Markup {
        let address = format!("/tasks/{}", encode(&self.task));
        let name = self.task.strip_suffix(".md").unwrap_or(&self.task);
        html! {
            a.task href=(address) title=(plain(&self.task)) { (Shown(name)) }
            div.about {
                @if self.priority < Priority::default() {
                    span.priority data-level=(self.priority.0) { (self.priority.as_str()) }
                }
                @if let Some(agent) = self.slot.agent() { span.agent { (agent) } }
                @if let Some(action) = &self.action { span.action { (Shown(action)) } }
                @if self.attempts > 1 { span { "attempt " (self.attempts) } }
                @if self.lapsed { span.bad { "lease has run out" } }
                @if let Some(broken) = &self.broken { span.bad { "cannot be read: " (Shown(broken)) } }
                @if let Some(reason) = &self.reason { span.reason { (Shown(reason)) } }
                (age(self.since, now))
            }
        }
    }
}

/// A state as people say it, and what it means that there is nothing in it.
pub(super) fn words(state: State) -> (&'static str, &'static str) {
    match state {
        State::NeedsAction => ("Needs action", "Nothing waits."),
        State::InProgress => ("In progress", "Nobody works on anything."),
        State::PendingApproval => ("Pending approval", "Nothing waits for you."),
        State::Approved => ("Approved", "Nothing waits to be executed."),
        State::Done => ("Done", "Nothing is finished yet."),
        State::Rejected => ("Rejected", "Nothing was rejected."),
    }
}
