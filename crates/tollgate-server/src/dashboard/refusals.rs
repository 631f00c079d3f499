//! Refused writes as the ledger has them: each with what became of it.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use maud::{Markup, html};
use tollgate::error::{Fault, Result};
use tollgate::event::{
    ErrorType, Event, FileChanged, FolderMoved, Mutation, MutationStatus, RefusalStatus, WriteRefused,
};
use tollgate::ledger::Line;
use tollgate::name::Agent;
use tollgate::workspace::Workspace;

use super::text::ago;
use super::visit::Visit;

/// The number of ledger lines that are read for one list.
pub(super) const LOOKED_AT: u64 = 2000;

/// The outcome of a refused write.
pub(super) enum Fate {
    /// Somebody wrote the file later with this line, at this time: its agent, or a person by a merge.
    Resolved(u64, Timestamp),
    /// The agent's turn ended without such a write.
    GivenUp,
    /// A person has dismissed it.
    Dismissed,
    Open,
}

impl Fate {
    pub(super) const WORDS: [&str; 4] = ["open", "resolved", "ended", "dismissed"];

    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Open => Self::WORDS[0],
            Self::Resolved(..) => Self::WORDS[1],
            Self::GivenUp => Self::WORDS[2],
            Self::Dismissed => Self::WORDS[3],
        }
    }
}

/// A refused write.
pub(super) struct RefusedWrite {
    pub(super) line: Line,
    pub(super) write: WriteRefused,
    pub(super) status: RefusalStatus,
    pub(super) error: ErrorType,
    pub(super) fate: Fate,
}

impl RefusedWrite {
    /// Whether a person can do something about it: merge it, or dismiss it.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.fate, Fate::Open) && self.error == ErrorType::StaleFile
    }

    pub(super) fn agent(&self) -> Option<&Agent> {
        self.line.agent.as_ref()
    }

    /// What became of it, in words.
    pub(super) fn outcome(&self, now: Timestamp) -> Markup {
        match self.fate {
            Fate::Resolved(seq, time) => {
                html! { p.fate.good { "resolved: " a href=(format!("/changes/{seq}")) { "written" } " " (ago(time, now)) } }
            }
            Fate::GivenUp => html! { p.fate { "its turn ended" } },
            Fate::Dismissed => html! { p.fate { "dismissed" } },
            Fate::Open if self.is_open() => html! { p.fate.bad { "open" } },
            Fate::Open => html! {},
        }
    }

    /// Its address on the page of conflicts.
    pub(super) fn address(&self) -> String {
        format!("/conflicts?before={}#c-{}", self.line.seq + 1, self.line.seq)
    }

    /// What a person can do about it. `page` is the one to come back to.
    pub(super) fn actions(&self, visit: &Visit, page: ActedFrom) -> Markup {
        html! {
            @if self.is_open() {
                div.deeds {
                    a.button href=(format!("/conflicts/{}/merge", self.line.seq)) { "Merge …" }
                    form method="post" action=(format!("/conflicts/{}/dismiss", self.line.seq)) {
                        input type="hidden" name="token" value=(visit.token());
                        input type="hidden" name="from" value=(page.word());
                        button { "Dismiss" }
                    }
                }
            }
        }
    }
}

/// The page on which a person acts on a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ActedFrom {
    Workspace,
    Conflicts,
}

impl ActedFrom {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Conflicts => "conflicts",
        }
    }

    /// The page that a form names.
    pub(super) fn of(word: &str) -> Self {
        if word == Self::Conflicts.word() { Self::Conflicts } else { Self::Workspace }
    }

    pub(super) fn address(self) -> &'static str {
        match self {
            Self::Workspace => "/",
            Self::Conflicts => "/conflicts",
        }
    }
}

/// A part of the refused writes, the newest first.
pub(super) struct FoundRefusals {
    pub(super) refused: Vec<RefusedWrite>,
    /// There are older refusals, before this line.
    pub(super) more: Option<u64>,
}

/// The newest wanted ones, at most this many; of those before a ledger line, if one is given.
pub(super) fn read(
    workspace: &Workspace,
    before: Option<u64>,
    most: usize,
    mut wanted: impl FnMut(&RefusedWrite) -> bool,
) -> Result<FoundRefusals> {
    let ledger = workspace.ledger();
    let lines = match before {
        // The write that resolved a refusal comes after it.
        Some(before) => ledger.newest_before(before.saturating_add(LOOKED_AT / 2))?,
        None => ledger.newest_first()?,
    };
    let mut found = FoundRefusals { refused: Vec::new(), more: None };
    let mut later = Later::default();
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
        if before.is_some_and(|before| line.seq >= before) {
            later.take(&line);
            continue;
        }
        match &line.event {
            Event::MutationConflict(write, status, error) | Event::MutationRefused(write, status, error)
                if error.is_conflict() =>
            {
                let (write, status, error) = (write.clone(), *status, *error);
                let fate = later.fate(workspace, &line, &write)?;
                let refused = RefusedWrite { line, write, status, error, fate };
                if !wanted(&refused) {
                    continue;
                }
                if found.refused.len() == most {
                    // This one is on the next page.
                    found.more = Some(refused.line.seq + 1);
                    break;
                }
                found.refused.push(refused);
            }
            _ => later.take(&line),
        }
    }
    Ok(found)
}

/// What happened after a line.
#[derive(Default)]
struct Later {
    written: HashMap<(Option<Agent>, String), (u64, Timestamp)>,
    merged: HashMap<String, (u64, Timestamp)>,
    ended: HashSet<tollgate::name::TurnId>,
}

impl Later {
    /// Takes the next older line.
    fn take(&mut self, line: &Line) {
        let place = (line.seq, line.time);
        match &line.event {
            Event::Mutation(mutation, MutationStatus::Applied) => {
                let (file, tool) = match mutation {
                    Mutation::File(FileChanged { target_file, tool_name, .. }) => (target_file, tool_name),
                    Mutation::Folder(FolderMoved { target_file, tool_name, .. }) => (target_file, tool_name),
                };
                self.written.insert((line.agent.clone(), file.clone()), place);
                if tool == "merge_file" {
                    self.merged.insert(file.clone(), place);
                }
            }
            Event::TurnEnded(_) => self.ended.extend(line.turn.clone()),
            _ => {}
        }
    }

    fn fate(&self, workspace: &Workspace, line: &Line, write: &WriteRefused) -> Result<Fate> {
        let file = &write.target_file;
        if let Some((seq, time)) = self.written.get(&(line.agent.clone(), file.clone())) {
            return Ok(Fate::Resolved(*seq, *time));
        }
        if workspace.conflict(line.seq)?.is_some_and(|kept| kept.dismissed) {
            // A merge by a person dismisses the refusal.
            return Ok(match self.merged.get(file) {
                Some((seq, time)) => Fate::Resolved(*seq, *time),
                None => Fate::Dismissed,
            });
        }
        Ok(match &line.turn {
            Some(turn) if self.ended.contains(turn) => Fate::GivenUp,
            _ => Fate::Open,
        })
    }
}
