//! `/conflicts/LINE/merge`: a refused write, merged with what is on disk, and the question whether to write it. Nothing is written
//! here.

use maud::{Markup, html};
use tollgate::digest::Digest;
use tollgate::error::{Fault, Result};
use tollgate::event::{Event, WriteRefused};
use tollgate::gate::Gate;
use tollgate::ledger::Line;
use tollgate::merge::{Merge, NoMerge};
use tollgate::name::TurnId;
use tollgate::turn::Turn;
use tollgate::workspace::Workspace;

use super::diff::{LINES, show_diff};
use super::links;
use super::text::{SafeText, ago};
use super::trouble::Trouble;
use super::undo::marked;
use super::view::PageContent;
use super::visit::Visit;
use crate::workspace_provider::OpenWorkspace;

/// The ledger line of the refusal, and why an attempt failed.
#[derive(Debug, Clone)]
pub(super) struct MergeQuery {
    line: u64,
    trouble: Option<Trouble>,
}

impl MergeQuery {
    pub(super) fn new(line: u64) -> Self {
        Self { line, trouble: None }
    }

    pub(super) fn again(line: u64, trouble: Trouble) -> Self {
        Self { line, trouble: Some(trouble) }
    }
}

/// The refusal with this ledger line.
pub(super) fn refusal(workspace: &Workspace, seq: u64) -> Result<Option<Line>> {
    let mut lines = workspace.ledger().newest_before(seq.saturating_add(1))?;
    let line = lines.find(|line| !matches!(line, Err(Fault::Damaged { .. }))).transpose()?;
    Ok(line.filter(|line| line.seq == seq && refused(line).is_some()))
}

fn refused(line: &Line) -> Option<&WriteRefused> {
    match &line.event {
        Event::MutationConflict(write, ..) | Event::MutationRefused(write, ..) => Some(write),
        _ => None,
    }
}

/// The merge of a refused write with what is on disk now. `turn` learns what is on disk.
pub(super) fn merge_of(gate: &Gate, turn: &Turn, line: &Line) -> Result<std::result::Result<Merge, NoMerge>> {
    let Some(write) = refused(line) else { return Ok(Err(NoMerge::NothingRefused)) };
    gate.merge(turn, gate.workspace().path().join(&write.target_file), line.agent.as_ref())
}

/// Identifies what a merge would write, and over what.
pub(super) fn fingerprint(merge: &Merge) -> Digest {
    Digest::of(format!("{} {} {}", merge.line, merge.disk, merge.content).as_bytes())
}

pub(super) fn view(visit: &Visit, open: &OpenWorkspace, query: &MergeQuery) -> Result<PageContent> {
    let workspace = open.gate.workspace();
    let now = workspace.now();
    let line = refusal(workspace, query.line)?;
    let Some((line, write)) = line.as_ref().and_then(|line| Some((line, refused(line)?))) else {
        return Ok(PageContent::not_found(&html! { "The ledger has no refusal with this number." }));
    };
    let person = Turn::begin(TurnId::new()?, visit.site.options.person.parse()?);
    let merge = merge_of(&open.gate, &person, line)?;
    let main = html! {
        h1 { "Merge " code { (SafeText(&write.target_file)) } "?" }
        p.lead {
            "The write of " (links::agent(line.agent.as_ref())) " to " (links::file(&write.target_file)) " was refused "
            (ago(line.time, now)) ". A merge has that change and everything that is on disk."
        }
        @if let Some(trouble) = &query.trouble { (trouble.show(None)) }
        @match &merge {
            Err(why) => div.empty { p { "There is no merge: " (why.to_string()) "." } },
            Ok(merge) if merge.line != line.seq => div.empty {
                p {
                    "A later write of the same agent to this file was refused, too. "
                    a href=(format!("/conflicts/{}/merge", merge.line)) { "Merge that one" }
                }
            },
            Ok(merge) => (merged(visit, merge, &write.target_file)),
        }
    };
    let status = query.trouble.as_ref().map_or(axum::http::StatusCode::OK, Trouble::status);
    Ok(PageContent { status, ..PageContent::new(format!("Merge {}", write.target_file), main) })
}

fn merged(visit: &Visit, merge: &Merge, file: &str) -> Markup {
    html! {
        @if !merge.clean {
            div.alert {
                p {
                    strong { "Both have changed the same lines." }
                    " Nothing can be written here. Edit the file by hand, or let the agent read it again."
                }
            }
            section.changed-file {
                header { h2 { (links::file(file)) } span.quiet { "with both versions of each conflict" } }
                (marked(&merge.content, file))
            }
        } @else if merge.diff.is_empty() {
            p.empty { "There is nothing to write: the file already has the change." }
        } @else {
            section.actions aria-label="Actions" {
                form method="post" action=(format!("/conflicts/{}/merge", merge.line)) {
                    input type="hidden" name="token" value=(visit.token());
                    input type="hidden" name="seen" value=(fingerprint(merge));
                    button.primary { "Write the merge" }
                    a.button href="/conflicts" { "Cancel" }
                    span.quiet { "Writes exactly what is shown below, in your name. It can be undone." }
                }
            }
            section.changed-file {
                header { h2 { (links::file(file)) } }
                (show_diff(&merge.diff, file, LINES))
            }
        }
    }
}
