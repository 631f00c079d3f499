//! `/changes/LINE` and `/turns/ID`: what a change did, or all changes of a turn, with their diffs, and how to undo it.

use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate::error::{Fault, Result};
use tollgate::history::chosen::{Chosen, Which};
use tollgate::history::content::Contents;
use tollgate::history::step::Step;
use tollgate::shared_turn::SharedTurn;
use tollgate::turn::TurnState as _;

use super::agents_now::{FileUse, running, used_files};
use super::diff::{LINES, file_diff};
use super::links;
use super::text::{SafeText, age, ago, count, encode};
use super::view::PageContent;
use crate::workspace_provider::OpenWorkspace;

/// The number of files whose diffs are shown.
const FILES: usize = 40;

/// The number of changes of a turn that are listed, and of files that it has read.
const LISTED: usize = 50;

/// Which changes, and whether they were made a moment ago, by this person.
#[derive(Debug, Clone)]
pub(super) struct ChangeQuery {
    which: Which,
    made: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct MadeQuery {
    made: bool,
}

impl ChangeQuery {
    pub(super) fn new(which: Which, query: &MadeQuery) -> Self {
        Self { which, made: query.made }
    }

    /// A turn may go on. A change never changes.
    pub(super) fn is_finished(&self) -> bool {
        matches!(self.which, Which::Line(_))
    }
}

/// The address of the page about these changes.
pub(super) fn address(which: &Which) -> String {
    match which {
        Which::Line(line) => format!("/changes/{line}"),
        Which::Turn(turn) => links::turn_address(turn),
        Which::Task(task) => format!("/tasks/{}", encode(task.as_str())),
        Which::Agent(agent, _) => links::agent_address(agent.as_str()),
    }
}

/// How a heading calls them.
pub(super) fn heading(which: &Which, chosen: &Chosen) -> String {
    match which {
        Which::Line(_) => format!("change {}", chosen.steps[0].change),
        which => which.described().replace('`', ""),
    }
}

pub(super) fn view(open: &OpenWorkspace, query: &ChangeQuery) -> Result<PageContent> {
    let workspace = open.gate.workspace();
    let now = workspace.now();
    let which = &query.which;
    let turn = running_turn(open, which)?;
    let Some(chosen) = which.find(workspace.ledger())? else {
        return match (&turn, which) {
            (Some(turn), _) => Ok(unchanged(open, turn, now)),
            (None, Which::Turn(id)) => Err(Fault::no_turn(id)),
            _ => Ok(PageContent::not_found(&html! { "The ledger has no change with this number." })),
        };
    };
    let contents = Contents::of(workspace).left_by(&chosen.steps);
    let files = chosen.diffs(&contents, FILES + 1)?;
    let steps: Vec<&Step> = chosen.meant().collect();
    let title = capital(&heading(which, &chosen));
    let main = html! {
        h1 { (title) }
        @if query.made {
            div.said role="status" { p { "Done. This is the change that was made: it can be undone like any other." } }
        }
        (facts(&steps, now))
        section.actions aria-label="Actions" {
            a.button href=(format!("{}/undo", address(which))) { "Undo …" }
            span.quiet { "Shows what would be written, and asks. What others have changed since stays." }
        }
        @if !matches!(which, Which::Line(_)) { (list(&steps, now)) }
        @for step in steps.iter().filter(|step| step.moved_to.is_some()).take(LISTED) {
            p { "moved " (links::file(&step.path)) " to " (links::file(step.landed())) }
        }
        @for file in files.iter().take(FILES) { (file_diff(file, LINES)) }
        @if files.len() > FILES { p.quiet { "More files were changed. See them with " code { "tollgate show " (shown(which)) } "." } }
        @if let Some(turn) = &turn { (reads(open, turn)) }
    };
    Ok(PageContent::new(title, main))
}

/// The argument for the command line.
fn shown(which: &Which) -> String {
    match which {
        Which::Line(line) => line.to_string(),
        Which::Turn(turn) => turn.to_string(),
        Which::Task(task) => task.to_string(),
        Which::Agent(..) => String::new(),
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

/// Who, when, in which turn, for which task, with which tool.
fn facts(steps: &[&Step], now: Timestamp) -> Markup {
    let (first, last) = (steps[0], steps[steps.len() - 1]);
    let is_one = |same: &dyn Fn(&Step) -> bool| steps.iter().all(|step| same(step));
    let mut changes: Vec<u64> = steps.iter().map(|step| step.change).collect();
    changes.dedup();
    html! {
        dl.facts {
            div {
                dt { "by" }
                dd { @if is_one(&|step| step.agent == first.agent) { (links::agent(first.agent.as_ref())) } @else { "several agents" } }
            }
            div { dt { "when" } dd { (ago(first.time, now)) } }
            @if changes.len() > 1 {
                div { dt { "changes" } dd { (changes.len()) ", the last " (ago(last.time, now)) } }
            }
            @if let Some(turn) = first.turn.as_ref().filter(|_| is_one(&|step| step.turn == first.turn)) {
                div { dt { "turn" } dd { (links::turn(turn)) } }
            }
            @if let Some(task) = first.task.as_ref().filter(|_| is_one(&|step| step.task == first.task)) {
                div { dt { "task" } dd { (links::task(task)) } }
            }
            @if is_one(&|step| step.tool == first.tool) {
                div { dt { "with" } dd { span.kind { (SafeText(&first.tool)) } } }
            }
            div {
                dt { "ledger" }
                dd { a href=(format!("/ledger?before={}#l-{}", last.seq + 1, last.seq)) { "line " (last.seq) } }
            }
        }
    }
}

/// The changes of a turn, each with a link to its own diff.
fn list(steps: &[&Step], now: Timestamp) -> Markup {
    let changes: Vec<&[&Step]> = steps.chunk_by(|one, other| one.change == other.change).collect();
    html! {
        section aria-labelledby="changes" {
            h2 #changes { "Changes " span.count { (changes.len()) } }
            ol.lines {
                @for steps in changes.iter().rev().take(LISTED) {
                    li.line data-key=(steps[0].change) {
                        span.words {
                            a href=(format!("/changes/{}", steps[0].change)) { code { (SafeText(&steps[0].path)) } }
                            @if steps.len() > 1 { " and " (steps.len() - 1) " more" }
                        }
                        span.kind.quiet { (SafeText(&steps[0].tool)) }
                        (age(steps[0].time, now))
                    }
                }
            }
            @if changes.len() > LISTED { p.quiet { (changes.len() - LISTED) " older changes are not listed." } }
        }
    }
}

fn running_turn(open: &OpenWorkspace, which: &Which) -> Result<Option<SharedTurn>> {
    let Which::Turn(id) = which else { return Ok(None) };
    Ok(running(open)?.into_iter().find(|turn| turn.id() == id))
}

/// A turn that goes on and has changed nothing yet.
fn unchanged(open: &OpenWorkspace, turn: &SharedTurn, now: Timestamp) -> PageContent {
    let title = format!("Turn {}", turn.id());
    let main = html! {
        h1 { (title) }
        dl.facts {
            div { dt { "by" } dd { (links::agent(Some(turn.agent()))) } }
            div { dt { "began" } dd { (ago(turn.started(), now)) } }
        }
        p.empty { "This turn goes on, and has changed nothing yet." }
        (reads(open, turn))
    };
    PageContent::new(title, main)
}

/// The files that a running turn has read or written.
fn reads(open: &OpenWorkspace, turn: &SharedTurn) -> Markup {
    let files = used_files(open.gate.workspace(), turn).unwrap_or_default();
    html! {
        @if !files.is_empty() {
            section aria-labelledby="files" {
                h2 #files { "Files of this turn, which goes on " span.count { (files.len()) } }
                ul.files {
                    @for FileUse { name, word, .. } in files.iter().take(LISTED) { li { (links::file(name)) " " span.quiet { (word) } } }
                }
                @if files.len() > LISTED { p.quiet { (count(files.len() - LISTED, "more file", "more files")) } }
            }
        }
    }
}
