//! `/agents`: who works here, and what each does now.

use std::collections::BTreeMap;

use jiff::Timestamp;
use maud::{Markup, html};
use tollgate::error::Result;
use tollgate::ledger::Line;
use tollgate::turn::Sightings as _;
use tollgate::vault::figures::Figures;
use tollgate::vault::state::State;
use tollgate::vault::store::Listed;

use super::board::{Row, rows};
use super::ledger::sentence;
use super::page::{View, Visit};
use super::text::{count, encode};
use super::turns::running;
use crate::site::{Open, OpenVault};

/// So many of the latest lines of each agent.
const LATEST: usize = 3;

/// So many tasks in hand are looked at: more than there are agents.
const MOST: usize = 200;

/// What is known about one agent.
#[derive(Default)]
struct About<'a> {
    tasks: Vec<&'a Row>,
    turns: usize,
    latest: Vec<&'a Line>,
    refused: usize,
    figures: Option<Figures>,
    role: Option<String>,
}

pub(super) fn view(visit: &Visit<'_>, open: &Open) -> Result<View> {
    let now = open.gate.workspace().now();
    let tail = visit.desk.tail(visit.site, open)?;
    let mut agents: BTreeMap<String, About<'_>> = BTreeMap::new();
    let mut working = Vec::new();
    if let Some(OpenVault { vault, .. }) = &open.vault {
        let mut listed: Vec<Listed> = Vec::new();
        if let Some(board) = visit.site.board()? {
            listed.extend(board.column(State::InProgress).tasks().take(MOST).cloned());
        }
        working = rows(vault, &listed, now);
        for figures in vault.figures()?.1 {
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
    for line in tail.iter() {
        let Some(agent) = &line.agent else { continue };
        let about = agents.entry(agent.to_string()).or_default();
        about.refused += usize::from(line.action_type == "MUTATION_CONFLICT");
        if about.latest.len() < LATEST {
            about.latest.push(line);
        }
    }
    for (agent, role) in &open.gate.workspace().settings().agent {
        agents.entry(agent.to_string()).or_default().role.clone_from(&role.role);
    }
    let main = html! {
        h1 { "Agents " span.count { (agents.len()) } }
        @if agents.is_empty() {
            div.empty {
                p { "No agent has worked here yet." }
                dl.commands {
                    dt { code { "tollgate init --host all" } }
                    dd { "sets up the hooks of the agent programs that are found" }
                    dt { code { "tollgate work --agent blue -- COMMAND" } }
                    dd { "runs a command for each task" }
                }
            }
        }
        div.cards { @for (name, about) in &agents { (about.show(name, now)) } }
    };
    Ok(View::new("Agents", main))
}

impl About<'_> {
    fn show(&self, name: &str, now: Timestamp) -> Markup {
        let id = format!("agent-{name}");
        let is_busy = !self.tasks.is_empty() || self.turns > 0;
        html! {
            article.card data-key=(id) aria-labelledby=(id) {
                header {
                    h2 id=(id) { span.agent { (name) } }
                    p.now.good[is_busy] {
                        @if !self.tasks.is_empty() { "works on " (count(self.tasks.len(), "task", "tasks")) }
                        @else if self.turns > 0 { "in " (count(self.turns, "turn", "turns")) }
                        @else { "idle" }
                    }
                }
                @if let Some(role) = &self.role { p.quiet { "role: " (super::text::Shown(role)) } }
                @if !self.tasks.is_empty() { ul.tasks { @for row in &self.tasks { li { (row.show(now)) } } } }
                @if !self.latest.is_empty() {
                    h3 { "Last" }
                    ol.lines { @for line in &self.latest { (sentence(line, now)) } }
                }
                dl.figures {
                    @if let Some(figures) = &self.figures {
                        div { dt { "claims" } dd { (figures.total_claims) } }
                        div { dt { "races lost" } dd { (figures.claim_conflicts_avoided) } }
                        div { dt { "claims that worked" } dd { (format!("{:.0} %", figures.claim_success_rate * 100.0)) } }
                    }
                    div { dt { "stale writes of late" } dd { (self.refused) } }
                }
                p.quiet { a href=(format!("/ledger?agent={}", encode(name))) { "All lines of this agent" } }
            }
        }
    }
}
