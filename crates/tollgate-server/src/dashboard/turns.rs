//! `/turns`: the turns that have not ended, and the files that each of them knows.

use jiff::Timestamp;
use maud::{Markup, html};
use tollgate::error::{Fault, Result};
use tollgate::path::FilePath;
use tollgate::shared_turn::SharedTurn;
use tollgate::turn::{Extent, FileState, Sighting, Sightings as _};
use tollgate::workspace::Workspace;

use super::page::View;
use super::text::{Shown, ago, count};
use crate::site::Open;

/// So many turns are shown, the newest: more agents than anybody runs at once.
const TURNS: usize = 50;

/// So many files of each.
const FILES: usize = 25;

/// The turns that have not ended, the newest first.
pub(super) fn running(open: &Open) -> Result<Vec<SharedTurn>> {
    let mut turns = Vec::new();
    for place in &open.turns {
        turns.extend(place.list()?);
    }
    turns.sort_by_key(|turn| std::cmp::Reverse(turn.started()));
    Ok(turns)
}

pub(super) fn view(open: &Open) -> Result<View> {
    let now = open.gate.workspace().now();
    let turns = running(open)?;
    let main = html! {
        h1 { "Turns " span.count { (turns.len()) } }
        p.lead {
            "A turn goes from a request to its answer. What an agent has read in it, it may overwrite, as long as nobody "
            "else has changed it. Agents of MCP servers keep their turns to themselves; what they write is in the "
            a href="/ledger" { "ledger" } "."
        }
        @if turns.is_empty() {
            div.empty {
                p { "No turn is running. Hooks of agent programs begin one with every request; by hand it is:" }
                dl.commands {
                    dt { code { "export TOLLGATE_TURN=$(tollgate turn begin --agent blue)" } }
                    dd { "then " code { "tollgate read" } ", " code { "tollgate write" } }
                }
            }
        }
        @for turn in turns.iter().take(TURNS) { (show(open.gate.workspace(), turn, now)?) }
        @if turns.len() > TURNS { p.quiet { (turns.len() - TURNS) " older ones are not shown." } }
    };
    Ok(View::new("Turns", main))
}

fn show(workspace: &Workspace, turn: &SharedTurn, now: Timestamp) -> Result<Markup> {
    let files = match turn.files() {
        // It ended at this moment.
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
        (FileState::Unreadable, _) => "could not be read",
        (FileState::Absent, FileState::Absent) => "was not there",
        (FileState::Absent, _) => "created",
        (first, last) if first == last => "read",
        _ => "changed since its first read",
    };
    html! { li { code { (Shown(&relative.display().to_string())) } " " span.quiet { (word) } } }
}
