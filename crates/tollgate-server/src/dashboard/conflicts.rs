//! `/conflicts`: refused writes. For each the agent, the file, who had changed it, the diff, and the outcome.

#![deny(clippy::wildcard_enum_match_arm)]

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use maud::{Markup, html};
use tollgate::digest::Digest;
use tollgate::error::{Fault, Result};
use tollgate::event::{ErrorType, Event, FileChanged, FolderMoved, Mutation, RefusalStatus, WriteRefused};
use tollgate::ledger::Line;
use tollgate::name::Agent;
use tollgate::workspace::Workspace;

use super::charts;
use super::text::{SafeText, ago, encode, plain};
use super::view::{PageContent, Visit};
use crate::workspace_provider::OpenWorkspace;

/// The number of refusals on one page.
const AT_ONCE: usize = 20;

/// The number of ledger lines that are read for one page.
const LOOKED_AT: u64 = 2000;

/// The outcome of a refused write.
enum Fate {
    /// The same agent wrote the file later: with this line, at this time.
    Resolved(u64, Timestamp),
    /// The agent's turn ended without such a write.
    GivenUp,
    Open,
}

struct RefusedWrite {
    line: Line,
    write: WriteRefused,
    status: RefusalStatus,
    error: ErrorType,
    fate: Fate,
}

struct FoundConflict {
    refused: Vec<RefusedWrite>,
    /// There are older refusals, before this line.
    more: Option<u64>,
}

fn read(workspace: &Workspace, before: Option<u64>) -> Result<FoundConflict> {
    let ledger = workspace.ledger();
    let lines = match before {
        // The write that resolved a refusal comes after it.
        Some(before) => ledger.newest_before(before.saturating_add(LOOKED_AT / 2))?,
        None => ledger.newest_first()?,
    };
    let mut found = FoundConflict { refused: Vec::new(), more: None };
    let mut later: HashMap<(Option<Agent>, String), (u64, Timestamp)> = HashMap::new();
    let mut ended = HashSet::new();
    let mut last = None;
    for (index, line) in (0..).zip(lines) {
        if index == LOOKED_AT {
            found.more = found.more.or(last);
            break;
        }
        let line = match line {
            Ok(line) => line,
            Err(Fault::Damaged { .. }) => continue,
            Err(fault) => return Err(fault),
        };
        last = Some(line.seq);
        match &line.event {
            Event::Mutation(
                Mutation::File(FileChanged { target_file, .. })
                | Mutation::Folder(FolderMoved { target_file, .. }),
                _,
            ) => {
                later.insert((line.agent, target_file.clone()), (line.seq, line.time));
            }
            Event::TurnEnded(_) => ended.extend(line.turn),
            Event::MutationConflict(write, status, error) | Event::MutationRefused(write, status, error) => {
                if before.is_some_and(|before| line.seq >= before) {
                    continue;
                }
                if found.refused.len() == AT_ONCE {
                    // This one is on the next page.
                    found.more = Some(line.seq + 1);
                    break;
                }
                let (write, status, error) = (write.clone(), *status, *error);
                let fate = match later.get(&(line.agent.clone(), write.target_file.clone())) {
                    Some((seq, time)) => Fate::Resolved(*seq, *time),
                    None if line.turn.as_ref().is_some_and(|turn| ended.contains(turn)) => Fate::GivenUp,
                    None => Fate::Open,
                };
                found.refused.push(RefusedWrite { line, write, status, error, fate });
            }
            Event::LateExternalWrite(_)
            | Event::ReservationExpired(_)
            | Event::Claim(_)
            | Event::ClaimLost(_)
            | Event::Breaker(_)
            | Event::ClaimFailed(_)
            | Event::Renew(_)
            | Event::Release(..)
            | Event::Approval(_)
            | Event::Reclaim(..)
            | Event::TurnStarted(_)
            | Event::LedgerHealed(_)
            | Event::Other { .. } => {}
        }
    }
    Ok(found)
}

pub(super) fn view(visit: &Visit<'_>, open: &OpenWorkspace, before: Option<u64>) -> Result<PageContent> {
    let workspace = open.gate.workspace();
    let now = workspace.now();
    let found = read(workspace, before)?;
    let main = html! {
        h1 { "Conflicts" }
        p.lead { "Refused writes. A stale write would have destroyed a change that its author had not seen." }
        @if before.is_none() { (charts::writes(visit, now)) }
        @if found.refused.is_empty() {
            div.empty {
                p {
                    @if before.is_some() { "No older conflicts." }
                    @else { "No conflicts. When two agents change the same file, the refused write appears here." }
                }
                @if before.is_none() {
                    dl.commands {
                        dt { code { "tollgate init --host all" } }
                        dd { "sets up the hooks of the installed agent programs" }
                        dt { code { "tollgate mcp --agent blue" } }
                        dd { "starts the server for MCP clients" }
                    }
                }
            }
        }
        @for refused in &found.refused { (refused.show(workspace, now)?) }
        nav.pages aria-label="Parts of the list" {
            @if before.is_some() { a rel="prev" href="/conflicts" { "Newest" } }
            @if let Some(more) = found.more {
                a rel="next" href=(format!("/conflicts?before={more}")) { "Older, before line " (more) }
            }
        }
    };
    Ok(PageContent::new("Conflicts", main))
}

impl RefusedWrite {
    fn show(&self, workspace: &Workspace, now: Timestamp) -> Result<Markup> {
        let Self { line, write, status, error, .. } = self;
        let file = write.target_file.as_str();
        let hash = |hash: Option<Digest>| hash.map_or("no file".to_owned(), |hash| hash.short());
        let agent = line.agent.as_ref().map_or("an unknown agent", |agent| agent.as_str());
        let is_stale = *error == ErrorType::StaleFile;
        let kept = if is_stale { workspace.conflict(line.seq)? } else { None };
        let (changed_by, diff) = kept.map_or((None, None), |kept| (kept.changed_by, kept.diff));
        let id = format!("c-{}", line.seq);
        Ok(html! {
            article.conflict id=(id) aria-labelledby=(format!("{id}-title")) data-key=(id) {
                header {
                    h2 id=(format!("{id}-title")) { code { (SafeText(file)) } }
                    (self.fate(now))
                }
                p {
                    span.agent { (agent) }
                    @if *status == RefusalStatus::Observed { " overwrote a change " } @else { " was refused " }
                    (ago(line.time, now))
                    @if !is_stale { ": " span.kind { (error.as_str()) } }
                    @else if let Some(by) = &changed_by {
                        ": " span.agent { (by.agent) } " had changed the file " (ago(by.time, now))
                    } @else if write.current_hash.is_none() { ": the file was deleted" }
                    @else { ": the file was changed by a program outside tollgate" }
                }
                @if let Some(diff) = &diff { (show_diff(&diff.replacen("what you read", &format!("what {agent} read"), 1), file)) }
                @else if is_stale {
                    p.quiet {
                        "No diff available. The agent had read " code { (hash(write.baseline_hash)) }
                        "; on disk was " code { (hash(write.current_hash)) } "."
                    }
                }
                p.quiet { a href=(format!("/ledger?text={}", encode(file))) { "Full history of this file" } }
            }
        })
    }

    fn fate(&self, now: Timestamp) -> Markup {
        match self.fate {
            Fate::Resolved(seq, time) => {
                let address = format!("/ledger?before={}#l-{seq}", seq + 1);
                html! { p.fate.good { "resolved: " a href=(address) { "written" } " " (ago(time, now)) } }
            }
            Fate::GivenUp => html! { p.fate { "its turn ended" } },
            Fate::Open if self.error == ErrorType::StaleFile => html! { p.fate.bad { "open" } },
            Fate::Open => html! {},
        }
    }
}

/// A diff. Added and removed lines differ by sign and by colour.
fn show_diff(diff: &str, file: &str) -> Markup {
    let kind = |line: &str| match line.as_bytes().first() {
        _ if line.starts_with("---") || line.starts_with("+++") => "head",
        Some(b'+') => "add",
        Some(b'-') => "cut",
        Some(b'@') => "head",
        _ => "same",
    };
    html! {
        pre.diff tabindex="0" role="region" aria-label=(format!("diff of {}", plain(file))) {
            @for line in diff.lines() {
                @match kind(line) {
                    "add" => ins { (SafeText(line)) "\n" },
                    "cut" => del { (SafeText(line)) "\n" },
                    kind => span class=(kind) { (SafeText(line)) "\n" },
                }
            }
        }
    }
}
