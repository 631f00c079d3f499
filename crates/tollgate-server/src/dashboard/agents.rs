//! `/agents`: each agent, and what it is doing now.

use std::collections::BTreeMap;

use jiff::Timestamp;
use maud::{Markup, html};
use tollgate::error::Result;
use tollgate::event::Event;
use tollgate::ledger::Line;
use tollgate::turn::TurnState as _;
use tollgate::vault::figures::Figures;
use tollgate::vault::state::State;
use tollgate::vault::store::TaskSummary;

use super::ledger::{sentence, tail};
use super::task_row::{TaskRow, rows};
use super::text::{SafeText, count, encode};
use super::turns::running;
use super::view::PageContent;
use super::visit::Visit;
use crate::workspace_provider::OpenWorkspace;

/// The number of recent ledger lines for each agent.
const LATEST: usize = 3;

/// The number of tasks in progress that are read: more than there are agents.
const MOST: usize = 200;

/// One agent.
#[derive(Default)]
struct AgentCard<'a> {
    tasks: Vec<&'a TaskRow>,
    turns: usize,
    latest: Vec<&'a Line>,
    refused: usize,
    figures: Option<Figures>,
    role: Option<String>,
}

pub(super) fn view(visit: &Visit, open: &OpenWorkspace) -> Result<PageContent> {
    let now = open.gate.workspace().now();
    let tail = tail(open)?;
    let mut agents: BTreeMap<String, AgentCard<'_>> = BTreeMap::new();
    let mut working = Vec::new();
    if let Some(vault) = &open.vault {
        let mut listed: Vec<TaskSummary> = Vec::new();
        if let Some(board) = visit.site.board()? {
            listed.extend(board.column(State::InProgress).tasks().take(MOST).cloned());
        }
        working = rows(vault, &listed, now);
        for figures in vault.figures(now)?.1 {
            let agent = figures.agent_name.clone();
            agents.entry(agent).or_default().figures = Some(figures);
        }
    }
    for row in &working {
        agents.entry(row.agent().to_owned()).or_default().tasks.push(row);
    }
    for turn in running(open)? {
        agents.entry(turn.agent().to_string()).or_default().turns += 1;
    }
    for line in &tail {
        let Some(agent) = &line.agent else { continue };
        let card = agents.entry(agent.to_string()).or_default();
        card.refused += usize::from(matches!(line.event, Event::MutationConflict(..)));
        if card.latest.len() < LATEST {
            card.latest.push(line);
        }
    }
    for (agent, role) in &open.gate.workspace().settings().agent {
        agents.entry(agent.to_string()).or_default().role.clone_from(&role.role);
    }
    let main = html! {
        h1 { "Agents " span.count { (agents.len()) } }
        @if agents.values().all(AgentCard::has_never_worked) {
            div.empty {
                p { "No agent has worked here yet. In the workspace, run:" }
                dl.commands {
                    dt { code { "tollgate init --host all" } }
                    dd { "sets up the hooks of the installed agent programs" }
                    dt { code { "tollgate work --agent blue -- COMMAND" } }
                    dd { "runs a command for each task" }
                }
            }
        }
        div.cards { @for (name, card) in &agents { (card.show(name, now)) } }
    };
    Ok(PageContent::new("Agents", main))
}

impl AgentCard<'_> {
    /// Whether the agent is only named in the settings.
    fn has_never_worked(&self) -> bool {
        self.tasks.is_empty() && self.turns == 0 && self.latest.is_empty() && self.figures.is_none()
    }

    fn show(&self, name: &str, now: Timestamp) -> Markup {
        let id = format!("agent-{name}");
        let stopped = self.figures.as_ref().and_then(Figures::stopped);
        let is_stopped = stopped.is_some();
        let is_busy = !self.tasks.is_empty() || self.turns > 0;
        html! {
            article.card data-key=(id) aria-labelledby=(id) {
                header {
                    h2 id=(id) { span.agent { (name) } }
                    p.now.good[is_busy && !is_stopped] {
                        @if is_stopped { "stopped" }
                        @else if !self.tasks.is_empty() { "working on " (count(self.tasks.len(), "task", "tasks")) }
                        @else if self.turns > 0 { "in " (count(self.turns, "turn", "turns")) }
                        @else { "idle" }
                    }
                }
                @if let Some(role) = &self.role { p.quiet { "role: " (SafeText(role)) } }
                @if let Some(sentence) = &stopped { p.bad { (SafeText(sentence)) } }
                @if !self.tasks.is_empty() { ul.tasks { @for row in &self.tasks { li { (row.show(now)) } } } }
                @if !self.latest.is_empty() {
                    h3 { "Recent activity" }
                    ol.lines { @for line in &self.latest { (sentence(line, now)) } }
                }
                dl.figures {
                    @if let Some(figures) = &self.figures {
                        div { dt { "claims" } dd { (figures.total_claims) } }
                        div { dt { "lost races" } dd { (figures.claim_conflicts_avoided) } }
                        div { dt { "attempts that succeeded" } dd { (figures.attempts_succeeded) " of " (figures.attempts) } }
                    }
                    div { dt { "recent stale writes" } dd { (self.refused) } }
                }
                p.quiet { a href=(format!("/ledger?agent={}", encode(name))) { "Full history of this agent" } }
            }
        }
    }
}
