//! After a tool: records what it read and changed, and ends its reservations.

use std::collections::BTreeSet;
use std::path::PathBuf;

use tollgate::digest::Digest;
use tollgate::error::Fault;
use tollgate::gate::{Ticket, ToolResult};
use tollgate::path::FilePath;
use tollgate::shared_turn::SharedTurn;
use tollgate::turn::{Extent, FileState, TurnState};

use super::Acting;
use crate::error::CliError;
use crate::hook::pending_call::{CallTime, LastChange, PendingCall, hash_of};
use crate::hook::plan::{PlannedChange, Text, ToolPlan};
use crate::hook::prologue::Prologue;
use crate::hook::run_record::RunReport;
use crate::hook::shown::{is_formatted, is_same_text, shown, shown_by_diff};
use crate::host::event::{Call, Shown, ToolEffects, ToolReport};
use crate::words;

impl Acting<'_> {
    /// Records what a tool did. If that fails, nothing stays reserved, and the agent is told: the tool has run.
    pub(in crate::hook) fn after(
        &self,
        call: &Call,
        aftermath: &ToolReport,
    ) -> Result<Option<String>, CliError> {
        let Some((mut pending, since)) = self.session.take(&self.name_of(call))? else { return Ok(None) };
        let is_named = pending.ticket.as_ref().is_some_and(|ticket| ticket.changes().next().is_some());
        let may_change = is_named || matches!(call.effects, ToolEffects::Shell { .. });
        let settled = self.settled(call, aftermath, &mut pending, since);
        if settled.is_err() {
            // The record is taken, so no later hook would do this.
            let _ = self.session.settle(self.gate, pending);
        }
        match settled {
            Err(error) if may_change => Ok(Some(words::hook_not_recorded(&error))),
            settled => settled,
        }
    }

    /// Records what a tool did, and takes from `pending` what is settled. After a fault, the rest is still in it.
    fn settled(
        &self,
        call: &Call,
        aftermath: &ToolReport,
        pending: &mut PendingCall,
        since: CallTime,
    ) -> Result<Option<String>, CliError> {
        // The call may have begun in a turn that has ended.
        let turn = match self.session.turn_of(&pending.turn)? {
            Some(turn) => turn,
            None => self.session.turn(self.gate, self.heard.turn.as_deref())?,
        };
        let is_shell = matches!(call.effects, ToolEffects::Shell { .. });
        let (mut own, mut read) = (BTreeSet::new(), BTreeSet::new());
        let mut lost = None;
        if let Some(ticket) = &mut pending.ticket {
            own.extend(ticket.changes().map(|(path, _)| path.to_owned()));
            lost = aftermath.replaced.as_ref().and_then(|(path, text)| {
                let path = self.gate.workspace().canonical(self.heard.folder.join(path)).ok()?;
                let (_, before) = ticket.changes().find(|(there, _)| *there == path.as_path())?;
                let slipped_in = match before {
                    FileState::Present(digest) => !is_same_text(&turn.text(digest).ok()??, text),
                    FileState::Absent => true,
                    FileState::Unreadable => false,
                };
                slipped_in.then_some((path, before, text))
            });
            let reported = aftermath.replaced.is_some();
            for (path, state) in
                self.known_only(call, &turn, ticket, (reported, lost.as_ref().map(|lost| &lost.0)))?
            {
                ticket.knows_only(&path, state);
            }
            ticket.judge_reads(|path, planned| {
                read.insert(path.to_owned());
                shown(&aftermath.shown, path, planned)
            });
        }
        if let Some(ticket) = pending.ticket.clone() {
            // A shell command that fails has often changed something before.
            let failed = aftermath.failed && !is_shell;
            let result = if failed { ToolResult::Failed } else { ToolResult::Succeeded };
            self.gate.post_tool_use(&turn, ticket, result)?;
            pending.ticket = None;
        }
        let reports: Vec<RunReport> =
            pending.prologues.iter().filter_map(|prologue| RunReport::read(prologue.record())).collect();
        pending.prologues.iter().for_each(Prologue::remove);
        let output = match &aftermath.shown {
            Shown::Text(output) => Some(output.as_str()),
            _ => None,
        };
        if !reports.is_empty() {
            let turns = self.session.all_turns(&turn, self.gate, &self.invocation.folders_of_turns())?;
            for report in &reports {
                report.teach(self.gate.workspace(), &turns, output, |path| read.contains(path))?;
            }
        }
        if is_shell && reports.is_empty() && !pending.runs_in_outer_workspace {
            // Nearly all files are unchanged, and for those one look at the ctime is enough. A change that nobody foresaw is
            // foreign, even if the command names the file: somebody else may have saved it while the command ran.
            let changed = turn.files_where(|path| since.last_changed(path) != LastChange::Before)?;
            let unforeseen = changed.into_iter().filter(|path| !own.contains(path.as_path()));
            let files: Vec<FilePath> = unforeseen.collect();
            self.gate.look_again(&turn, &files, since.time())?;
            for path in shown_by_diff(output.unwrap_or_default(), &self.heard.folder) {
                if let Ok(digest) = hash_of(&path) {
                    let path = self.gate.workspace().canonical(path)?;
                    let now = self.gate.workspace().now();
                    turn.was_shown(&path, FileState::Present(digest), Extent::Whole, now)?;
                }
            }
        }
        let lost = lost.map(|(path, before, text)| {
            // If the text cannot be kept, the agent is told of it all the same.
            let kept = self.gate.keep_overwritten(&turn, &path, before, text.as_bytes()).ok();
            words::hook_lost(&self.invocation.viewpoint(), &path, text, kept.as_deref())
        });
        let notes = self.host.can_tell().then(|| self.notes(&turn)).flatten();
        let said: Vec<String> = lost.into_iter().chain(notes).collect();
        Ok(Some(said.join("\n")).filter(|said| !said.is_empty()))
    }

    /// The files that have text in them which the agent has not seen, because someone else saved them between the check and the
    /// edit: with what the agent takes them for, the result of its edit on what it had read. `reported`: the program said what
    /// its tool replaced, and in which file that was text that the agent had not seen.
    fn known_only(
        &self,
        call: &Call,
        turn: &SharedTurn,
        ticket: &Ticket,
        (reported, slipped_in): (bool, Option<&FilePath>),
    ) -> Result<Vec<(PathBuf, FileState)>, Fault> {
        let ToolEffects::Files(effects) = &call.effects else { return Ok(Vec::new()) };
        let mut plan = ToolPlan::default();
        effects.iter().for_each(|effect| plan.add(effect, &self.heard.folder));
        let mut known = Vec::new();
        for (path, before) in ticket.changes() {
            let is_foreign = slipped_in.is_some_and(|there| there.as_path() == path);
            let of_path = |planned: &&PlannedChange| {
                self.gate.workspace().canonical(&planned.path).is_ok_and(|there| there.as_path() == path)
            };
            let mut planned = plan.changes.iter().filter(of_path);
            let (Some(planned), None) = (planned.next(), planned.next()) else { continue };
            // An agent that has written the whole file knows it. Formatters may have changed it since.
            if matches!(planned.text, Text::Exactly(_)) || reported && !is_foreign {
                continue;
            }
            let text = before.digest().map(|digest| turn.text(digest)).transpose()?.flatten();
            let Some(expected) = text.and_then(|text| planned.outcome(Some(&text))) else {
                known.extend(is_foreign.then(|| (path.to_owned(), before)));
                continue;
            };
            let is_expected = std::fs::read_to_string(path).is_ok_and(|found| match is_foreign {
                true => found == expected,
                false => is_formatted(&expected, &found),
            });
            if !is_expected {
                let digest = Digest::of(expected.as_bytes());
                turn.keep_text(digest, expected.as_bytes())?;
                known.push((path.to_owned(), FileState::Present(digest)));
            }
        }
        Ok(known)
    }
}
