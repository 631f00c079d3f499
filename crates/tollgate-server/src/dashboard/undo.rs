//! `/changes/LINE/undo` and `/turns/ID/undo`: what an undo would write, and the question. Nothing is written here.
//!
//! The form carries a fingerprint of the plan that the page showed. The undo is made only if a new plan is the same.

use jiff::Timestamp;
use maud::{Markup, html};
use tollgate::digest::Digest;
use tollgate::error::Result;
use tollgate::history::chosen::{Chosen, Which};
use tollgate::history::content::Contents;
use tollgate::history::undo::{Plan, UndoResult, Undone, WhyNot};
use tollgate::workspace::Workspace;

use super::change::{address, heading};
use super::diff::{LINES, show_diff};
use super::links;
use super::text::{SafeText, ago, count, plain};
use super::trouble::Trouble;
use super::view::PageContent;
use super::visit::Visit;
use crate::workspace_provider::OpenWorkspace;

/// The number of files that are shown.
const FILES: usize = 40;

/// Which changes to undo, and why an attempt failed.
#[derive(Debug, Clone)]
pub(super) struct UndoQuery {
    which: Which,
    trouble: Option<Trouble>,
}

impl UndoQuery {
    pub(super) fn new(which: Which) -> Self {
        Self { which, trouble: None }
    }

    pub(super) fn again(which: Which, trouble: Trouble) -> Self {
        Self { which, trouble: Some(trouble) }
    }
}

/// What an undo would do now.
pub(super) struct UndoPlan {
    chosen: Chosen,
    pub(super) plan: Plan,
}

impl UndoPlan {
    /// Makes the plan; `None` if the ledger has no such change.
    pub(super) fn make(workspace: &Workspace, which: &Which) -> Result<Option<Self>> {
        let Some(chosen) = which.find(workspace.ledger())? else { return Ok(None) };
        let contents = Contents::of(workspace).left_by(&chosen.steps);
        let plan = chosen.plan_to_undo(&contents)?;
        Ok(Some(Self { chosen, plan }))
    }

    /// Whether it can be carried out.
    pub(super) fn is_possible(&self) -> bool {
        let Plan { changes, folders, .. } = &self.plan;
        !changes.is_empty() && folders.is_empty() && self.plan.conflicts().next().is_none()
    }

    /// Identifies what it would write, and over what.
    pub(super) fn fingerprint(&self) -> Digest {
        let hash = |bytes: &Option<Vec<u8>>| bytes.as_deref().map(Digest::of);
        let parts = self.plan.files.iter().map(|file| {
            let result = match &file.result {
                UndoResult::Already => "already".to_owned(),
                UndoResult::Becomes { bytes, .. } => format!("becomes {:?}", hash(bytes)),
                UndoResult::MovesBack { to } => format!("moves back to {to:?}"),
                UndoResult::Conflict(why) => why.word().to_owned(),
            };
            format!("{:?} {:?} {result}\n", file.path, hash(&file.disk))
        });
        Digest::of(parts.collect::<String>().as_bytes())
    }
}

pub(super) fn view(visit: &Visit, open: &OpenWorkspace, query: &UndoQuery) -> Result<PageContent> {
    let workspace = open.gate.workspace();
    let which = &query.which;
    let Some(undo) = UndoPlan::make(workspace, which)? else {
        return Ok(PageContent::not_found(&html! { "The ledger has no change of this kind." }));
    };
    let files = &undo.plan.files;
    let title = format!("Undo {}", heading(which, &undo.chosen));
    let main = html! {
        h1 { (title) "?" }
        (whose(&undo, workspace.now()))
        @if let Some(trouble) = &query.trouble { (trouble.show(None)) }
        (question(visit, which, &undo))
        @for file in files.iter().take(FILES) { (one(file)) }
        @if files.len() > FILES { p.quiet { (count(files.len() - FILES, "more file is", "more files are")) " not shown." } }
    };
    let status = query.trouble.as_ref().map_or(axum::http::StatusCode::OK, Trouble::status);
    Ok(PageContent { status, ..PageContent::new(title, main) })
}

/// Whose changes they are.
fn whose(undo: &UndoPlan, now: Timestamp) -> Markup {
    let last = undo.chosen.meant().next_back();
    let mut agents: Vec<_> = undo.chosen.meant().map(|step| step.agent.as_ref()).collect();
    agents.sort_unstable();
    agents.dedup();
    html! {
        p.lead {
            "By "
            @for (index, agent) in agents.iter().enumerate() {
                @if index > 0 { ", " }
                (links::agent(*agent))
            }
            @if let Some(last) = last { ", " (ago(last.time, now)) }
            ". An undo is a guarded write: all files are undone or none, what others have changed since stays, and it can be undone itself."
        }
    }
}

/// The button, or why there is none.
fn question(visit: &Visit, which: &Which, undo: &UndoPlan) -> Markup {
    let plan = &undo.plan;
    let conflicts = plan.conflicts().count();
    html! {
        @if let Some([from, to]) = plan.folders.first() {
            div.alert {
                p {
                    strong { "This cannot be undone here." } " The folder " code { (SafeText(from)) } " was moved to "
                    code { (SafeText(to)) } ". Move it back by hand."
                }
            }
        } @else if conflicts > 0 {
            div.alert {
                p {
                    strong { (count(conflicts, "file cannot be undone", "files cannot be undone")) ", so nothing is." }
                    " See why below, and edit by hand what you want to change."
                }
            }
        } @else if plan.changes.is_empty() {
            p.empty { "There is nothing to undo: all files are as they were before." }
        } @else {
            section.actions aria-label="Actions" {
                form method="post" action=(format!("{}/undo", address(which))) {
                    input type="hidden" name="token" value=(visit.token());
                    input type="hidden" name="seen" value=(undo.fingerprint());
                    button.danger { "Undo " (count(plan.changes.len(), "file", "files")) }
                    a.button href=(address(which)) { "Cancel" }
                    span.quiet { "Writes exactly what is shown below, in your name." }
                }
            }
        }
    }
}

fn one(file: &Undone) -> Markup {
    let words = match &file.result {
        UndoResult::Already => "is as it was before",
        UndoResult::MovesBack { .. } => "is moved back",
        UndoResult::Conflict(_) => "cannot be undone",
        UndoResult::Becomes { bytes: None, .. } => "is deleted",
        UndoResult::Becomes { merged: true, .. } => "was changed since, and keeps what is newer",
        UndoResult::Becomes { .. } if file.disk.is_none() => "comes back",
        UndoResult::Becomes { .. } => "",
    };
    html! {
        section.changed-file {
            header { h2 { (links::file(&file.path)) } span.quiet { (words) } }
            @match &file.result {
                UndoResult::MovesBack { to } => p { "to " (links::file(to)) },
                UndoResult::Conflict(why) => (conflict(file, why)),
                UndoResult::Becomes { .. } => {
                    @match file.diff("undone") {
                        Some(diff) if !diff.is_empty() => (show_diff(&diff, &file.path, LINES)),
                        Some(_) => p.quiet { "The file has no lines." },
                        None => p.quiet { "Not shown: it is not text, or too large." },
                    }
                },
                UndoResult::Already => {},
            }
        }
    }
}

/// Why a file cannot be undone; with the text of both, if the same lines were changed.
fn conflict(file: &Undone, why: &WhyNot) -> Markup {
    html! {
        p.bad { (why.to_string()) }
        @if let Some(text) = why.text() { (marked(text, &file.path)) }
    }
}

/// A text with markers around each conflict. Shows the conflicts with a few lines around each.
pub(super) fn marked(text: &str, file: &str) -> Markup {
    const AROUND: usize = 3;
    let mut class = "same";
    let mut lines: Vec<(&str, &str)> = Vec::new();
    for line in text.lines() {
        let marker =
            ["<<<<<<< ", "||||||| ", "=======", ">>>>>>> "].iter().position(|mark| line.starts_with(mark));
        match marker {
            Some(at) => {
                lines.push(("head", line));
                class = ["add", "same-marked", "cut", "same"][at];
            }
            None => lines.push((class, line)),
        }
    }
    let is_of_conflict: Vec<bool> = lines.iter().map(|(class, _)| *class != "same").collect();
    let is_near = |index: usize| {
        let (from, to) = (index.saturating_sub(AROUND), (index + AROUND + 1).min(lines.len()));
        is_of_conflict[from..to].contains(&true)
    };
    let shown: Vec<&(&str, &str)> =
        lines.iter().enumerate().filter(|(index, _)| is_near(*index)).map(|(_, line)| line).collect();
    html! {
        pre.diff tabindex="0" role="group" aria-label=(format!("conflicts in {}", plain(file))) {
            @for (class, line) in shown.into_iter().take(LINES) {
                @match *class {
                    "add" => ins { (SafeText(line)) "\n" },
                    "cut" => del { (SafeText(line)) "\n" },
                    class => span class=(class) { (SafeText(line)) "\n" },
                }
            }
        }
    }
}
