//! `/conflicts`: writes that were refused. Who, which file, whose change, the diff, and what became of it.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use maud::{Markup, html};
use tollgate::error::{Fault, Result};
use tollgate::ledger::Line;
use tollgate::workspace::Workspace;

use super::page::View;
use super::plot::Happenings;
use super::text::{Shown, ago, encode, short_hash};
use crate::site::Open;

/// So many refusals on one page.
const AT_ONCE: usize = 20;

/// So many lines of the ledger are looked at for one page.
const LOOKED_AT: u64 = 2000;

/// What became of a refused write.
enum Fate {
    /// The same agent wrote the file later: in this line, at this time.
    Resolved(u64, Timestamp),
    /// Its turn ended without that.
    GivenUp,
    Open,
}

struct Refused {
    line: Line,
    fate: Fate,
}

struct Found {
    refused: Vec<Refused>,
    happenings: Happenings,
    /// There are older lines, before this one.
    more: Option<u64>,
}

fn read(workspace: &Workspace, before: Option<u64>) -> Result<Found> {
    let ledger = workspace.ledger();
    let lines = match before {
        // What resolved the newest of them came later.
        Some(before) => ledger.newest_before(before.saturating_add(LOOKED_AT / 2))?,
        None => ledger.newest_first()?,
    };
    let mut found = Found { refused: Vec::new(), happenings: Happenings::default(), more: None };
    let mut later: HashMap<(String, String), (u64, Timestamp)> = HashMap::new();
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
        let agent = line.agent.as_ref().map_or("", |agent| agent.as_str()).to_owned();
        let file = line.payload["target_file"].as_str().unwrap_or_default().to_owned();
        match line.action_type.as_str() {
            "MUTATION" => {
                found.happenings.commits.push(line.time);
                later.insert((agent, file), (line.seq, line.time));
            }
            "TURN_ENDED" => ended.extend(line.turn),
            "MUTATION_CONFLICT" | "MUTATION_REFUSED" => {
                found.happenings.refusals.push(line.time);
                if before.is_some_and(|before| line.seq >= before) {
                    continue;
                }
                if found.refused.len() == AT_ONCE {
                    // On the next page. What follows is still in the picture.
                    found.more = found.more.or(Some(line.seq + 1));
                    continue;
                }
                let fate = match later.get(&(agent, file)) {
                    Some((seq, time)) => Fate::Resolved(*seq, *time),
                    None if line.turn.as_ref().is_some_and(|turn| ended.contains(turn)) => Fate::GivenUp,
                    None => Fate::Open,
                };
                found.refused.push(Refused { line, fate });
            }
            _ => {}
        }
    }
    Ok(found)
}

pub(super) fn view(open: &Open, before: Option<u64>) -> Result<View> {
    let workspace = open.gate.workspace();
    let now = workspace.now();
    let found = read(workspace, before)?;
    let main = html! {
        h1 { "Conflicts" }
        p.lead { "Writes that were refused. A stale one would have destroyed a change that its author had not seen." }
        @if before.is_none() { (found.happenings.plot(now)) }
        @if found.refused.is_empty() {
            div.empty {
                p {
                    @if before.is_some() { "No older ones." }
                    @else { "None. Agents that write through tollgate appear here when they meet." }
                }
                @if before.is_none() {
                    dl.commands {
                        dt { code { "tollgate init --host all" } }
                        dd { "sets up the hooks of the agent programs that are found" }
                        dt { code { "tollgate mcp --agent blue" } }
                        dd { "is the server for agents that speak MCP" }
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
    Ok(View::new("Conflicts", main))
}

impl Refused {
    fn show(&self, workspace: &Workspace, now: Timestamp) -> Result<Markup> {
        let line = &self.line;
        let text = |key: &str| line.payload[key].as_str();
        let file = text("target_file").unwrap_or_default();
        let error = line.result["error_type"].as_str().unwrap_or_default();
        let agent = line.agent.as_ref().map_or("somebody", |agent| agent.as_str());
        let is_stale = line.action_type == "MUTATION_CONFLICT";
        let kept = if is_stale { workspace.conflict(line.seq)? } else { None };
        let (changed_by, diff) = kept.map_or((None, None), |kept| (kept.changed_by, kept.diff));
        let id = format!("c-{}", line.seq);
        Ok(html! {
            article.conflict id=(id) aria-labelledby=(format!("{id}-title")) data-key=(id) {
                header {
                    h2 id=(format!("{id}-title")) { code { (Shown(file)) } }
                    (self.fate(now))
                }
                p {
                    span.agent { (agent) }
                    @if line.result["status"] == "OBSERVED" { " was let through " } @else { " was refused " }
                    (ago(line.time, now))
                    @if !is_stale { ": " span.kind { (error) } }
                    @else if let Some(by) = &changed_by {
                        ": " span.agent { (by.agent) } " had changed the file " (ago(by.time, now))
                    } @else if text("current_hash").is_none() { ": the file was gone" }
                    @else { ": a program that does not ask tollgate had changed the file" }
                }
                @if let Some(diff) = &diff { (show_diff(&diff.replacen("what you read", &format!("what {agent} read"), 1), file)) }
                @else if is_stale {
                    p.quiet {
                        "No diff is kept. It had read " code { (text("baseline_hash").map_or("nothing", short_hash)) }
                        ", on disk was " code { (text("current_hash").map_or("nothing", short_hash)) } "."
                    }
                }
                p.quiet { a href=(format!("/ledger?text={}", encode(file))) { "All lines about this file" } }
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
            Fate::Open if self.line.action_type == "MUTATION_CONFLICT" => html! { p.fate.bad { "open" } },
            Fate::Open => html! {},
        }
    }
}

/// A diff with its lines told apart, by sign and by colour.
fn show_diff(diff: &str, file: &str) -> Markup {
    let kind = |line: &str| match line.as_bytes().first() {
        _ if line.starts_with("---") || line.starts_with("+++") => "head",
        Some(b'+') => "add",
        Some(b'-') => "cut",
        Some(b'@') => "head",
        _ => "same",
    };
    html! {
        pre.diff tabindex="0" role="region" aria-label=(format!("diff of {}", super::text::plain(file))) {
            @for line in diff.lines() {
                @match kind(line) {
                    "add" => ins { (Shown(line)) "\n" },
                    "cut" => del { (Shown(line)) "\n" },
                    kind => span class=(kind) { (Shown(line)) "\n" },
                }
            }
        }
    }
}
