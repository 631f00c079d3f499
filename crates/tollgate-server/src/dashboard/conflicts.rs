//! `/conflicts`: refused writes by file. For each the agent, who had changed the file, the three texts, and the outcome.

use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate::digest::Digest;
use tollgate::error::Result;
use tollgate::event::{ErrorType, RefusalStatus};
use tollgate::workspace::Workspace;

use super::charts;
use super::diff::{LINES, show_diff};
use super::links;
use super::panes::Panes;
use super::refusals::{ActedFrom, Fate, LOOKED_AT, RefusedWrite, read};
use super::text::{SafeText, ago, count, encode, plain};
use super::view::PageContent;
use super::visit::Visit;
use crate::workspace_provider::OpenWorkspace;

/// The number of refusals on one page.
const AT_ONCE: usize = 20;

/// The query: which refused writes to show.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ConflictsQuery {
    agent: String,
    file: String,
    state: String,
    /// Only those before this ledger line.
    pub(super) before: Option<u64>,
}

impl ConflictsQuery {
    fn fits(&self, refused: &RefusedWrite) -> bool {
        let agent = refused.agent().map_or("", |agent| agent.as_str());
        (self.agent.is_empty() || self.agent == agent)
            && (self.file.is_empty() || refused.write.target_file.contains(&self.file))
            && (self.state.is_empty() || self.state == refused.fate.word())
    }

    fn is_filter(&self) -> bool {
        !(self.agent.is_empty() && self.file.is_empty() && self.state.is_empty())
    }

    fn newest(&self) -> String {
        let (agent, file, state) = (encode(&self.agent), encode(&self.file), encode(&self.state));
        format!("/conflicts?agent={agent}&file={file}&state={state}")
    }

    fn form(&self) -> Markup {
        html! {
            form.filter method="get" action="/conflicts" role="search" aria-label="Filter the conflicts" {
                label { "Agent" input name="agent" value=(self.agent) autocomplete="off" spellcheck="false"; }
                label { "File" input name="file" value=(self.file) autocomplete="off" spellcheck="false"; }
                label {
                    "State"
                    select name="state" {
                        option value="" { "all" }
                        @for word in Fate::WORDS { option value=(word) selected[self.state == word] { (word) } }
                    }
                }
                button { "Filter" }
                @if self.is_filter() { a href="/conflicts" { "Show all" } }
            }
        }
    }
}

pub(super) fn view(visit: &Visit, open: &OpenWorkspace, query: &ConflictsQuery) -> Result<PageContent> {
    let workspace = open.gate.workspace();
    let now = workspace.now();
    let found = read(workspace, query.before, AT_ONCE, |refused| query.fits(refused))?;
    let is_first = query.before.is_none();
    // The file of the newest refusal first.
    let mut files: Vec<(&str, Vec<&RefusedWrite>)> = Vec::new();
    for refused in &found.refused {
        let file = refused.write.target_file.as_str();
        match files.iter_mut().find(|(known, _)| *known == file) {
            Some((_, writes)) => writes.push(refused),
            None => files.push((file, vec![refused])),
        }
    }
    let main = html! {
        h1 { "Conflicts" }
        p.lead {
            "Refused writes. A stale write would have destroyed a change that its author had not seen. "
            a href="/ledger?kind=MUTATION_REFUSED" { "Other refusals" } " are in the ledger."
        }
        @if is_first && !query.is_filter() { (charts::writes(visit, now)) }
        (query.form())
        @if found.refused.is_empty() {
            div.empty {
                p {
                    @if query.is_filter() && found.more.is_some() { "No matching conflicts in the newest " (LOOKED_AT) " lines of the ledger." }
                    @else if query.is_filter() { "No matching conflicts." }
                    @else if !is_first { "No older conflicts." }
                    @else { "No conflicts. When two agents change the same file, the refused write appears here." }
                }
                @if is_first && !query.is_filter() {
                    dl.commands {
                        dt { code { "tollgate init --host all" } }
                        dd { "sets up the hooks of the installed agent programs" }
                        dt { code { "tollgate mcp --agent blue" } }
                        dd { "starts the server for MCP clients" }
                    }
                }
            }
        }
        @for (file, writes) in &files {
            section.conflicts data-key=(plain(file)) {
                header {
                    h2 { code { (SafeText(file)) } }
                    p.quiet {
                        (count(writes.len(), "refused write", "refused writes")) ", "
                        a href=(links::file_address(file)) { "history of this file" }
                    }
                }
                @for (index, refused) in writes.iter().enumerate() { (show(visit, workspace, refused, index == 0, now)?) }
            }
        }
        nav.pages aria-label="Parts of the list" {
            @if !is_first { a rel="prev" href=(query.newest()) { "Newest" } }
            @if let Some(more) = found.more {
                a rel="next" href=(format!("{}&before={more}", query.newest())) { "Older, before line " (more) }
            }
        }
    };
    Ok(PageContent::new("Conflicts", main))
}

fn show(
    visit: &Visit,
    workspace: &Workspace,
    refused: &RefusedWrite,
    is_newest: bool,
    now: Timestamp,
) -> Result<Markup> {
    let RefusedWrite { line, write, status, error, .. } = refused;
    let file = write.target_file.as_str();
    let hash = |hash: Option<Digest>| hash.map_or("no file".to_owned(), |hash| hash.short());
    let agent = line.agent.as_ref().map_or("an unknown agent", |agent| agent.as_str());
    let is_stale = *error == ErrorType::StaleFile;
    let details = if is_stale { workspace.conflict(line.seq)? } else { None };
    let (changed_by, diff) = details.map_or((None, None), |kept| (kept.changed_by, kept.diff));
    let id = format!("c-{}", line.seq);
    let texts = workspace.refused_texts(line)?;
    let panes = texts.as_ref().and_then(|texts| {
        let text =
            |bytes: &'_ Vec<u8>| String::from_utf8(bytes.clone()).ok().filter(|text| !text.contains('\0'));
        Some((text(texts.read.as_ref()?)?, text(texts.disk.as_ref()?)?, text(&texts.wanted)?))
    });
    Ok(html! {
        article.conflict id=(id) aria-labelledby=(format!("{id}-title")) data-key=(id) {
            header {
                h3 id=(format!("{id}-title")) {
                    span.agent { (agent) }
                    @if *status == RefusalStatus::Observed { " overwrote a change " } @else { " was refused " }
                    (ago(line.time, now))
                    @if !is_stale { ": " span.kind { (error.as_str()) } }
                    @else if let Some(by) = &changed_by {
                        ": " span.agent { (by.agent) } " had changed the file " (ago(by.time, now))
                    } @else if write.current_hash.is_none() { ": the file was deleted" }
                    @else { ": the file was changed by a program outside tollgate" }
                }
                (refused.outcome(now))
            }
            @if let Some((read, disk, wanted)) = &panes {
                details open[is_newest] {
                    summary { "What " (agent) " read, what was on disk, what " (agent) " wanted to write" }
                    (Panes::of(read, disk, wanted).show(&format!("three versions of {}", plain(file)), [
                        html! { span.agent { (agent) } " read" },
                        html! { "on disk" @if let Some(by) = &changed_by { ", by " span.agent { (by.agent) } } },
                        html! { span.agent { (agent) } " wanted" },
                    ]))
                }
            } @else if let Some(diff) = &diff {
                (show_diff(&diff.replacen("what you read", &format!("what {agent} read"), 1), file, LINES))
            } @else if is_stale {
                p.quiet {
                    "The texts are not kept. The agent had read " code { (hash(write.baseline_hash)) }
                    "; on disk was " code { (hash(write.current_hash)) } "."
                }
            }
            (refused.actions(visit, ActedFrom::Conflicts))
        }
    })
}
