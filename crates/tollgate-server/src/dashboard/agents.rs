//! `/agents`: each agent, what it is doing now, and its figures; and an agent as a card.

use std::collections::BTreeMap;

use jiff::Timestamp;
use maud::{Markup, html};
use tollgate::error::Result;
use tollgate::event::Event;
use tollgate::ledger::Line;
use tollgate::vault::figures::Figures;

use super::agents_now::{AgentNow, TurnNow, agents_now};
use super::ledger::{sentence, tail};
use super::links;
use super::text::{SafeText, ago, count};
use super::view::PageContent;
use super::visit::Visit;
use crate::workspace_provider::OpenWorkspace;

/// The number of recent ledger lines for each agent.
const LATEST: usize = 3;

/// The number of files of a turn, and of turns of an agent, that a card names.
const FILES: usize = 6;
const TURNS: usize = 3;

/// One agent.
#[derive(Default)]
struct AgentCard<'a> {
    now: AgentNow,
    latest: Vec<&'a Line>,
    refused: usize,
    figures: Option<Figures>,
    role: Option<String>,
}

pub(super) fn view(visit: &Visit, open: &OpenWorkspace) -> Result<PageContent> {
    let now = open.gate.workspace().now();
    let tail = tail(open)?;
    let mut agents: BTreeMap<String, AgentCard<'_>> = BTreeMap::new();
    for (agent, now) in agents_now(visit, open, &tail)? {
        agents.entry(agent).or_default().now = now;
    }
    if let Some(vault) = &open.vault {
        for figures in vault.figures(now)?.1 {
            let agent = figures.agent_name.clone();
            agents.entry(agent).or_default().figures = Some(figures);
        }
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
        !self.now.is_busy() && self.latest.is_empty() && self.figures.is_none()
    }

    fn show(&self, name: &str, now: Timestamp) -> Markup {
        let id = format!("agent-{name}");
        let stopped = self.figures.as_ref().and_then(Figures::stopped);
        html! {
            article.card data-key=(id) aria-labelledby=(id) {
                (header(name, &id, if stopped.is_some() { None } else { Some(&self.now) }))
                @if let Some(role) = &self.role { p.quiet { "role: " (SafeText(role)) } }
                @if let Some(sentence) = &stopped { p.bad { (SafeText(sentence)) } }
                (doing(&self.now, now))
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
                p.quiet { a href=(links::agent_address(name)) { "What it has done, turn by turn" } }
            }
        }
    }
}

/// The name of an agent, and what it is doing in some words; without them, that it has stopped.
fn header(name: &str, id: &str, now: Option<&AgentNow>) -> Markup {
    html! {
        header {
            h2 id=(id) { a.agent href=(links::agent_address(name)) { (name) } }
            p.now.good[now.is_some_and(AgentNow::is_busy)] { (now.map_or("stopped".to_owned(), now_words)) }
        }
    }
}

/// What an agent is doing, in some words.
pub(super) fn now_words(now: &AgentNow) -> String {
    match (now.tasks.len(), now.turns.len()) {
        (0, 0) => "idle".to_owned(),
        (0, turns) => format!("in {}", count(turns, "turn", "turns")),
        (tasks, _) => format!("working on {}", count(tasks, "task", "tasks")),
    }
}

/// Its tasks and turns.
fn doing(agent: &AgentNow, now: Timestamp) -> Markup {
    html! {
        @if !agent.tasks.is_empty() { ul.tasks { @for row in &agent.tasks { li { (row.show(now)) } } } }
        @for turn in agent.turns.iter().take(TURNS) { (turn_now(turn, now)) }
        @if agent.turns.len() > TURNS { p.quiet { (count(agent.turns.len() - TURNS, "older turn", "older turns")) } }
    }
}

/// A turn that goes on: how many files it has read, and which it has changed.
pub(super) fn turn_now(turn: &TurnNow, now: Timestamp) -> Markup {
    let changed = turn.files.iter().filter(|file| file.is_changed).count();
    html! {
        div.turn-now data-key=(turn.id) {
            p.quiet {
                a href=(links::turn_address(&turn.id)) { "turn" } " since " (ago(turn.since, now)) ": "
                (count(turn.files.len() - changed, "file", "files")) " read, " (changed) " changed"
            }
            @if !turn.files.is_empty() {
                ul.files {
                    @for file in turn.files.iter().take(FILES) {
                        li { (links::file(&file.name)) " " span.quiet { (file.word) } }
                    }
                }
                @if turn.files.len() > FILES {
                    p.quiet { a href=(links::turn_address(&turn.id)) { (count(turn.files.len() - FILES, "more file", "more files")) } }
                }
            }
        }
    }
}

/// An agent that is at work.
pub(super) fn card_now(name: &str, agent: &AgentNow, now: Timestamp) -> Markup {
    let id = format!("agent-{name}");
    html! {
        article.card data-key=(id) aria-labelledby=(id) {
            (header(name, &id, Some(agent)))
            (doing(agent, now))
            @if let Some(line) = &agent.refused { ol.lines { (sentence(line, now)) } }
        }
    }
}
