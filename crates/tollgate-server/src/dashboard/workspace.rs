//! `/`: the workspace. Who is at work on which files, what needs a person, and what was changed.

use std::ops::ControlFlow;

use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use tollgate::error::Result;
use tollgate::history::listing::PastPart;
use tollgate::overlap;
use tollgate::vault::state::State;

use super::agents::card_now;
use super::agents_now::{AgentsNow, FileInWork, agents_now, files_in_work};
use super::changes::change_line;
use super::ledger::tail;
use super::links;
use super::refusals::{ActedFrom, RefusedWrite, read};
use super::task_row::state_words;
use super::text::{SafeText, ago, count};
use super::trouble::Trouble;
use super::view::PageContent;
use super::visit::Visit;
use crate::workspace_provider::OpenWorkspace;

/// The changes of this time are shown.
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// The number of changes that are shown.
const CHANGES: usize = 15;

/// The number of refusals that are shown.
const REFUSALS: usize = 5;

/// The number of agents, and of files in work, that are shown: more than anybody runs at once.
const AGENTS: usize = 20;
const FILES: usize = 12;

pub(super) fn view(visit: &Visit, open: &OpenWorkspace, trouble: Option<&Trouble>) -> Result<PageContent> {
    let workspace = open.gate.workspace();
    let now = workspace.now();
    let mut agents = agents_now(visit, open, &tail(open)?)?;
    agents.retain(|name, agent| agent.is_busy() && *name != visit.site.options.person);
    let is_recent = |time: Timestamp| now.duration_since(time) < DAY;
    let part = PastPart::read(workspace, None, CHANGES, |step| match is_recent(step.time) {
        true => ControlFlow::Continue(true),
        false => ControlFlow::Break(()),
    })?;
    let refused =
        read(workspace, None, REFUSALS, |refused| refused.is_open() && is_recent(refused.line.time))?;
    let main = html! {
        h1.unseen { "Workspace" }
        @if let Some(trouble) = trouble { (trouble.show(None)) }
        (tasks(visit)?)
        (at_work(&agents, now))
        div.below {
            (refusals(visit, &refused.refused, refused.more.is_some(), now))
            (in_work(&files_in_work(&agents, &overlap::list(workspace)?)))
            section.latest aria-labelledby="changed" {
                h2 #changed { "Changes in the last 24 hours" }
                @if part.changes.is_empty() {
                    p.empty { "Nothing was changed. Every guarded write will appear here, with its diff." }
                } @else {
                    ol.lines { @for change in &part.changes { (change_line(change, now)) } }
                }
                p.more { a href="/changes" { "All changes" } " · " a href="/ledger" { "Ledger" } }
            }
            (unfinished(visit, open))
        }
    };
    let status = trouble.map_or(axum::http::StatusCode::OK, Trouble::status);
    Ok(PageContent { status, ..PageContent::new("Workspace", main) })
}

/// The figures of the task board, in one line.
fn tasks(visit: &Visit) -> Result<Markup> {
    let Some(board) = visit.site.board()? else { return Ok(html! {}) };
    let counts = State::ALL.map(|state| (state, board.column(state).len()));
    drop(board);
    Ok(html! {
        p.tally {
            a href="/board" { "Tasks" }
            @for (state, count) in counts.iter().filter(|(_, count)| *count > 0) {
                " " a.quiet href=(if *state == State::PendingApproval { "/approvals".to_owned() } else { format!("/tasks?state={state}") }) {
                    strong { (count) } " " (state_words(*state).0.to_lowercase())
                }
            }
            @if counts.iter().all(|(_, count)| *count == 0) { " " span.quiet { "No tasks yet" } }
        }
    })
}

/// The agents that are at work.
fn at_work(agents: &AgentsNow, now: Timestamp) -> Markup {
    html! {
        section.now aria-labelledby="now" {
            h2 #now { "At work now " span.count { (agents.len()) } }
            @if agents.is_empty() {
                div.empty {
                    p { "No agent is at work. " a href="/agents" { "All agents" } }
                    dl.commands {
                        dt { code { "tollgate init --host all" } }
                        dd { "sets up the hooks of the installed agent programs" }
                        dt { code { "tollgate mcp --agent blue" } }
                        dd { "starts the server for MCP clients" }
                    }
                }
            } @else {
                div.cards { @for (name, agent) in agents.iter().take(AGENTS) { (card_now(name, agent, now)) } }
                @if agents.len() > AGENTS {
                    p.more { a href="/agents" { (count(agents.len() - AGENTS, "more agent", "more agents")) } }
                }
            }
        }
    }
}

/// Refused writes that nobody has made good yet.
fn refusals(visit: &Visit, refused: &[RefusedWrite], is_more: bool, now: Timestamp) -> Markup {
    html! {
        @if !refused.is_empty() {
            section.refusals aria-labelledby="refused" {
                h2 #refused { "Refused writes" }
                ul {
                    @for refused in refused {
                        li data-key=(refused.line.seq) {
                            p {
                                (links::agent(refused.agent())) " could not write "
                                a href=(refused.address()) { code { (SafeText(&refused.write.target_file)) } } ", "
                                (ago(refused.line.time, now))
                            }
                            (refused.actions(visit, ActedFrom::Workspace))
                        }
                    }
                }
                @if is_more { p.more { a href="/conflicts?state=open" { "All open conflicts" } } }
            }
        }
    }
}

/// The files that are being changed, and who else has read them.
fn in_work(files: &[FileInWork]) -> Markup {
    let names = |names: &std::collections::BTreeSet<String>| {
        html! {
            @for (index, name) in names.iter().enumerate() {
                @if index > 0 { ", " }
                a.agent href=(links::agent_address(name)) { (name) }
            }
        }
    };
    html! {
        @if !files.is_empty() {
            section.in-work aria-labelledby="files" {
                h2 #files { "Files in work " span.count { (files.len()) } }
                ul {
                    @for file in files.iter().take(FILES) {
                        li data-key=(super::text::plain(&file.name)) {
                            (links::file(&file.name))
                            span.quiet {
                                "changed by " (names(&file.changed_by))
                                @if !file.read_by.is_empty() { ", read by " (names(&file.read_by)) }
                                @for tree in &file.trees { ", also in " code { (SafeText(tree)) } }
                                @if file.changed_by.len() > 1 { " " span.badge { (file.changed_by.len()) " agents" } }
                            }
                        }
                    }
                }
                @if files.len() > FILES { p.quiet { (count(files.len() - FILES, "more file", "more files")) } }
            }
        }
    }
}

/// Whose unfinished files are in the workspace. Nothing if there are none.
fn unfinished(visit: &Visit, open: &OpenWorkspace) -> Markup {
    let agents = match visit.site.unfinished(open) {
        Ok(agents) if agents.is_empty() => return html! {},
        agents => agents,
    };
    html! {
        section.unfinished aria-labelledby="unfinished" {
            @match agents {
                Ok(agents) => {
                    h2 #unfinished { "Unfinished files " span.count { (agents.iter().map(|(_, files)| files).sum::<usize>()) } }
                    ul {
                        @for (agent, files) in agents.iter().take(AGENTS) {
                            li {
                                @match agent {
                                    Some(_) => (links::agent(agent.as_ref())),
                                    None => "people or other programs",
                                }
                                " " span.quiet { (count(*files, "file", "files")) }
                            }
                        }
                    }
                    @if agents.len() > AGENTS { p.quiet { "and " (count(agents.len() - AGENTS, "more", "more")) } }
                    p.quiet { "They are in no commit. List them: " code { "tollgate status --unfinished" } }
                },
                Err(fault) => { h2 #unfinished { "Unfinished files" } p.quiet { (SafeText(&fault.to_string())) } },
            }
        }
    }
}
