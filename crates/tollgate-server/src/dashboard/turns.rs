//! `/turns`: the turns that have not ended, and the files that each has read or written.

use jiff::Timestamp;
use maud::{Markup, html};
use tollgate::error::{Fault, Result};
use tollgate::path::FilePath;
use tollgate::shared_turn::SharedTurn;
use tollgate::turn::{Extent, FileState, Sighting, TurnState as _};
use tollgate::workspace::Workspace;

use super::text::{SafeText, ago, count};
use super::view::PageContent;
use crate::workspace_provider::OpenWorkspace;

/// The number of turns that are shown, the newest first: more than anybody runs at once.
const TURNS: usize = 50;

/// The number of files that are shown for each turn.
const FILES: usize = 25;

/// The turns that have not ended, the newest first.
pub(super) fn running(open: &OpenWorkspace) -> Result<Vec<SharedTurn>> {
    let mut turns = Vec::new();
    for place in &open.turns {
        turns.extend(place.list()?);
    }
    turns.sort_by_key(|turn| std::cmp::Reverse(turn.started()));
    Ok(turns)
}

pub(super) fn view(open: &OpenWorkspace) -> Result<PageContent> {
    let now = open.gate.workspace().now();
    let turns = running(open)?;
    let main = html! {
        h1 { "Turns " span.count { (turns.len()) } }
        p.lead {
            "A turn lasts from a request to its answer. An agent may overwrite a file that it has read in its turn, as long as "
            "nobody else has changed it. MCP servers keep the turns of their agents in memory, so they are not listed here; "
            "their writes are in the " a href="/ledger" { "ledger" } "."
        }
        @if turns.is_empty() {
            div.empty {
                p { "No turn is running. The hooks of agent programs begin one with every request. To begin one by hand:" }
                dl.commands {
                    dt { code { "export TOLLGATE_TURN=$(tollgate turn begin --agent blue)" } }
                    dd { "then " code { "tollgate read" } ", " code { "tollgate write" } }
                }
            }
        }
        @for turn in turns.iter().take(TURNS) { (show(open.gate.workspace(), turn, now)?) }
        @if turns.len() > TURNS { p.quiet { (turns.len() - TURNS) " older turns are not shown." } }
    };
    Ok(PageContent::new("Turns", main))
}

fn show(workspace: &Workspace, turn: &SharedTurn, now: Timestamp) -> Result<Markup> {
    let files = match turn.files() {
        // The turn has just ended.
        Err(Fault::Io { .. }) => Vec::new(),
        files => files?,
    };
    let id = turn.id().as_str();
    Ok(html! {
        article.turn data-key=(id) aria-labelledby=(id) {
            header {
                h2 id=(id) { span.agent { (turn.agent()) } }
                p.quiet { "began " (ago(turn.started(), now)) ", " (count(files.len(), "file", "files")) ", " code { (id) } }
            }
            @if !files.is_empty() {
                ul.files { @for (path, sighting) in files.iter().take(FILES) { (file(workspace, path, *sighting)) } }
                @if files.len() > FILES { p.quiet { (files.len() - FILES) " more files" } }
            }
        }
    })
}

fn file(workspace: &Workspace, path: &FilePath, sighting: Sighting) -> Markup {
    let relative = path.as_path().strip_prefix(workspace.path()).unwrap_or(path.as_path());
    let (first, last) = (sighting.initial(), sighting.baseline(Extent::Whole));
    let word = match (first, last) {
        (_, FileState::Unreadable) => "unreadable",
        (None, FileState::Absent) => "did not exist",
        (None, FileState::Present(_)) => "written",
        (first, last) if first == last.digest() => "read",
        _ => "changed since the first read",
    };
    html! { li { code { (SafeText(&relative.display().to_string())) } " " span.quiet { (word) } } }
}
