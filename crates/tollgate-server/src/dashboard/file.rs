//! `/files?path=NAME`: who changed a file, under all its names; and who wrote each of its lines.

use std::ops::ControlFlow;

use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate::error::Result;
use tollgate::guard::Outcome;
use tollgate::history::blame::{BlamedLine, Writer, blame};
use tollgate::history::content::Contents;
use tollgate::history::ledger_name;
use tollgate::history::listing::PastPart;
use tollgate::history::trail::Trail;
use tollgate::workspace::Workspace;

use super::changes::{change_line, pages};
use super::links;
use super::text::{SafeText, age, count, encode, plain};
use super::view::PageContent;
use crate::workspace_provider::OpenWorkspace;

/// The number of changes on one page.
const AT_ONCE: usize = 50;

/// The number of lines of a file on one page.
const LINES: usize = 500;

/// The query: which file, and what of it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct FileQuery {
    path: String,
    /// Its lines, not its changes.
    lines: bool,
    /// The first line to show, from 1.
    from: usize,
    /// Only changes before this ledger line.
    before: Option<u64>,
    /// The name that the file had then.
    was: Option<String>,
}

impl FileQuery {
    /// Finding out who wrote the lines takes too long for doing it again with every change.
    pub(super) fn is_costly(&self) -> bool {
        self.lines
    }

    pub(super) fn is_empty(&self) -> bool {
        self.path.is_empty()
    }
}

pub(super) fn view(open: &OpenWorkspace, query: &FileQuery) -> Result<PageContent> {
    let workspace = open.gate.workspace();
    let name = name(workspace, &query.path)?;
    let here = links::file_address(&name);
    let main = html! {
        h1 { code { (SafeText(&name)) } }
        nav.spans aria-label="What to show" {
            a href=(here) aria-current=[(!query.lines).then_some("page")] { "Changes" }
            a href=(format!("{here}&lines=true")) aria-current=[query.lines.then_some("page")] { "Who wrote each line" }
        }
        @if query.lines { (lines(workspace, &name, &here, query.from)?) } @else { (history(workspace, &name, query)?) }
    };
    Ok(PageContent::new(name, main))
}

/// What the ledger calls the file: a file outside of the workspace as it was asked for.
fn name(workspace: &Workspace, path: &str) -> Result<String> {
    Ok(match workspace.inside(workspace.path().join(path)) {
        Ok(Outcome::Done(path)) => ledger_name(workspace, &path),
        _ => path.to_owned(),
    })
}

fn history(workspace: &Workspace, name: &str, query: &FileQuery) -> Result<Markup> {
    let now = workspace.now();
    let mut trail = Trail::of(query.was.as_deref().filter(|_| query.before.is_some()).unwrap_or(name));
    // Its names, each with the ledger line before which it had it.
    let mut names = vec![(u64::MAX, trail.name().to_owned())];
    let part = PastPart::read(workspace, query.before, AT_ONCE, |step| {
        let takes = trail.takes(step);
        if names.last().is_none_or(|(_, last)| last != trail.name()) {
            names.push((step.change, trail.name().to_owned()));
        }
        ControlFlow::Continue(takes)
    })?;
    let older = part.older.map(|older| {
        let was = names.iter().rev().find(|(line, _)| *line >= older).map_or(name, |(_, was)| was);
        format!("{}&before={older}&was={}", links::file_address(name), encode(was))
    });
    let newest = query.before.map(|_| links::file_address(name));
    Ok(html! {
        @if part.changes.is_empty() {
            p.empty {
                @if older.is_some() { "None of the lines searched so far changed this file." }
                @else if query.before.is_some() { "There are no older changes." }
                @else { "Nobody has changed this file through tollgate." }
            }
        }
        ol.lines { @for change in &part.changes { (change_line(change, now)) } }
        (pages(newest.as_deref(), older))
        p.more {
            a href=(format!("/conflicts?file={}", encode(name))) { "Conflicts about this file" } " · "
            a href=(format!("/ledger?text={}", encode(name))) { "Its lines in the ledger" }
        }
    })
}

/// The lines of the file, each with its writer.
fn lines(workspace: &Workspace, name: &str, here: &str, from: usize) -> Result<Markup> {
    let now = workspace.now();
    let path = match workspace.inside(workspace.path().join(name)) {
        Ok(Outcome::Done(path)) => path,
        Ok(Outcome::Refused(_)) | Err(_) => return Ok(cannot("it is not a file of this workspace")),
    };
    let Some(found) = Contents::of(workspace).text_on_disk(name)? else {
        return Ok(cannot("there is no such file now"));
    };
    let Some(text) = found.bytes.and_then(|bytes| String::from_utf8(bytes).ok()) else {
        return Ok(cannot("it is larger than 256 KiB, or not text"));
    };
    let blamed = blame(workspace, name, path.as_path(), text.as_bytes())?;
    let from = from.clamp(1, blamed.len().max(1));
    let texts: Vec<&str> = text.lines().collect();
    let shown = &blamed[from - 1..blamed.len().min(from - 1 + LINES)];
    let to = from - 1 + shown.len();
    let same =
        |one: &BlamedLine, other: &BlamedLine| one.writer == other.writer && one.commit == other.commit;
    Ok(html! {
        @if blamed.is_empty() { p.empty { "The file has no lines." } } @else {
            p.quiet { "Lines " (from) " to " (to) " of " (blamed.len()) }
            div.panes.blame tabindex="0" role="region" aria-label=(format!("lines of {}", plain(name))) {
                table {
                    thead { tr { th scope="col" { "written by" } th scope="col" { "line" } th scope="col" { "text" } } }
                    tbody {
                        @for group in shown.chunk_by(same) {
                            @for (index, line) in group.iter().enumerate() {
                                tr.first[index == 0] {
                                    td.who { @if index == 0 { (who(line, now)) } }
                                    td.no { (line.number) }
                                    td { (SafeText(texts.get(line.number - 1).copied().unwrap_or_default())) }
                                }
                            }
                        }
                    }
                }
            }
        }
        nav.pages aria-label="Parts of the file" {
            @if from > 1 { a rel="prev" href=(format!("{here}&lines=true&from={}", from.saturating_sub(LINES).max(1))) { "Lines before" } }
            @if to < blamed.len() { a rel="next" href=(format!("{here}&lines=true&from={}", to + 1)) { "Lines after" } }
        }
    })
}

fn cannot(why: &str) -> Markup {
    html! { p.empty { "Nobody can say who wrote the lines: " (why) "." } }
}

/// Who wrote a line, with a link to the change.
fn who(line: &BlamedLine, now: Timestamp) -> Markup {
    html! {
        @match &line.writer {
            Writer::Step(step) => {
                (links::agent(step.agent.as_ref())) " "
                a href=(format!("/changes/{}", step.change)) { (age(step.time, now)) span.unseen { " ago, change " (step.change) } }
            },
            Writer::SomebodyElse { before, .. } => {
                "somebody else" @if let Some(before) = before { " before " (age(*before, now)) }
            },
            Writer::OneOf { steps, .. } if steps.is_empty() => { "somebody else" },
            Writer::OneOf { steps, others } => {
                "one of " (count(steps.len(), "change", "changes"))
                @for step in steps.iter().take(3) { " " a href=(format!("/changes/{}", step.change)) { (step.change) } }
                @if *others { " or somebody else" }
            },
            Writer::Older => {
                @match &line.commit {
                    Some(commit) => {
                        (SafeText(&commit.author)) " " code { (commit.commit.get(..8).unwrap_or(&commit.commit)) }
                    },
                    None => span.quiet { "before" },
                }
            },
        }
    }
}
