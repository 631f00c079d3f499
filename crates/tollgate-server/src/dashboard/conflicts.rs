//! `/conflicts`: refused writes by file. For each the agent, who had changed the file, the three texts, and the outcome.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate::digest::Digest;
use tollgate::error::{Fault, Result};
use tollgate::event::{ErrorType, Event, FileChanged, FolderMoved, Mutation, RefusalStatus, WriteRefused};
use tollgate::ledger::Line;
use tollgate::name::Agent;
use tollgate::workspace::Workspace;

use super::charts;
use super::panes::Panes;
use super::text::{SafeText, ago, count, encode, plain};
use super::view::PageContent;
use super::visit::Visit;
use crate::workspace_provider::OpenWorkspace;

/// The number of refusals on one page.
const AT_ONCE: usize = 20;

/// The number of ledger lines that are read for one page.
const LOOKED_AT: u64 = 2000;

/// The outcome of a refused write.
enum Fate {
    /// Its agent wrote the file later: with this line, at this time.
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
    fn fits(&self, line: &Line, write: &WriteRefused, fate: &Fate) -> bool {
        let agent = line.agent.as_ref().map_or("", |agent| agent.as_str());
        (self.agent.is_empty() || self.agent == agent)
            && (self.file.is_empty() || write.target_file.contains(&self.file))
            && (self.state.is_empty() || self.state == fate.word())
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

impl Fate {
    const WORDS: [&str; 3] = ["open", "resolved", "ended"];

    fn word(&self) -> &'static str {
        match self {
            Self::Open => Self::WORDS[0],
            Self::Resolved(..) => Self::WORDS[1],
            Self::GivenUp => Self::WORDS[2],
        }
    }
}

struct FoundConflict {
    refused: Vec<RefusedWrite>,
    /// There are older refusals, before this line.
    more: Option<u64>,
}

fn read(workspace: &Workspace, query: &ConflictsQuery) -> Result<FoundConflict> {
    let before = query.before;
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
                if !error.is_conflict() || before.is_some_and(|before| line.seq >= before) {
                    continue;
                }
                let (write, status, error) = (write.clone(), *status, *error);
                let fate = match later.get(&(line.agent.clone(), write.target_file.clone())) {
                    Some((seq, time)) => Fate::Resolved(*seq, *time),
                    None if line.turn.as_ref().is_some_and(|turn| ended.contains(turn)) => Fate::GivenUp,
                    None => Fate::Open,
                };
                if !query.fits(&line, &write, &fate) {
                    continue;
                }
                if found.refused.len() == AT_ONCE {
                    // This one is on the next page.
                    found.more = Some(line.seq + 1);
                    break;
                }
                found.refused.push(RefusedWrite { line, write, status, error, fate });
            }
            _ => {}
        }
    }
    Ok(found)
}

pub(super) fn view(visit: &Visit, open: &OpenWorkspace, query: &ConflictsQuery) -> Result<PageContent> {
    let workspace = open.gate.workspace();
    let now = workspace.now();
    let found = read(workspace, query)?;
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
                        a href=(format!("/ledger?text={}", encode(file))) { "full history of this file" }
                    }
                }
                @for (index, refused) in writes.iter().enumerate() { (refused.show(workspace, index == 0, now)?) }
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

impl RefusedWrite {
    fn show(&self, workspace: &Workspace, is_newest: bool, now: Timestamp) -> Result<Markup> {
        let Self { line, write, status, error, .. } = self;
        let file = write.target_file.as_str();
        let hash = |hash: Option<Digest>| hash.map_or("no file".to_owned(), |hash| hash.short());
        let agent = line.agent.as_ref().map_or("an unknown agent", |agent| agent.as_str());
        let is_stale = *error == ErrorType::StaleFile;
        let details = if is_stale { workspace.conflict(line.seq)? } else { None };
        let (changed_by, diff) = details.map_or((None, None), |kept| (kept.changed_by, kept.diff));
        let id = format!("c-{}", line.seq);
        let texts = workspace.refused_texts(line)?;
        let panes = texts.as_ref().and_then(|texts| {
            let text = |bytes: &'_ Vec<u8>| {
                String::from_utf8(bytes.clone()).ok().filter(|text| !text.contains('\0'))
            };
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
                    (self.fate(now))
                }
                @if let Some((read, disk, wanted)) = &panes {
                    details open[is_newest] {
                        summary { "What " (agent) " read, what was on disk, what " (agent) " wanted to write" }
                        (Panes::of(read, disk, wanted).show(&format!("three versions of {}", plain(file)), [
                            html! { span.agent { (agent) } " read" },
                            html! { "on disk" @if let Some(by) = &changed_by { ", by " span.agent { (by.agent) } } },
                            html! { span.agent { (agent) } " wanted" },
                        ]))
                        @if matches!(self.fate, Fate::Open) {
                            p.quiet { "To merge both changes: " code { "tollgate merge " (SafeText(file)) } }
                        }
                    }
                } @else if let Some(diff) = &diff {
                    (show_diff(&diff.replacen("what you read", &format!("what {agent} read"), 1), file))
                } @else if is_stale {
                    p.quiet {
                        "The texts are not kept. The agent had read " code { (hash(write.baseline_hash)) }
                        "; on disk was " code { (hash(write.current_hash)) } "."
                    }
                }
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
