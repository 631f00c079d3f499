//! Before a tool: judges a call and reserves its files.
//!
//! There are three steps, in this order: settle the agent's older calls, because their results are part of what the turn
//! knows; judge this call; record it for the hook after the tool.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tollgate::digest::Digest;
use tollgate::error::Fault;
use tollgate::gate::{Files, ToolResult, ToolUse};
use tollgate::guard::{Action, Change, Outcome};
use tollgate::path::FilePath;
use tollgate::shared_turn::SharedTurn;
use tollgate::turn::TurnState;

use super::{Acting, Judgement, PlannedCall, RunPlace};
use crate::error::CliError;
use crate::hook::formatter::{self, Adoption};
use crate::hook::hard_links::ProtectedLinks;
use crate::hook::pending_call::Expectation;
use crate::hook::plan::ToolPlan;
use crate::hook::prologue::{Prologue, PrologueForm, RunInput, with_prologues};
use crate::host::event::{Call, ToolEffects};
use crate::replace::{FileAccess, make_folder};
use crate::surroundings::Surroundings;
use crate::words;

/// Whether git keeps this file for itself.
fn is_of_git(file: &FilePath) -> bool {
    file.as_path().iter().any(|part| part == ".git")
}

impl Acting<'_> {
    /// Judges a call and reserves its files. A shell command may run through `tollgate run` instead, in one workspace.
    pub(in crate::hook) fn before(
        &self,
        planned: PlannedCall<'_>,
        run: RunPlace,
    ) -> Result<Judgement, CliError> {
        let PlannedCall { call, plan, turn } = planned;
        let name = self.name_of(call);
        self.session.settle_finished(self.gate, &name)?;
        if let Some(answer) = self.acts_as_another(call, plan)? {
            return Ok(Judgement::Refused(answer));
        }
        if let Some(answer) = self.suspected(planned)? {
            return Ok(Judgement::Refused(answer));
        }
        if run != RunPlace::Nowhere {
            return self.before_run(planned, run);
        }
        if let Some(answer) = self.vague(planned)? {
            return Ok(Judgement::Refused(answer));
        }
        if plan.names_nothing() {
            if plan.shell {
                self.session.record(&name, turn, Expectation::default())?;
            }
            return Ok(Judgement::Agreed(None));
        }
        let (changes, predicted) = self.changes(plan, turn, run)?;
        let mut untrusted = false;
        for change in &changes {
            let adopted =
                formatter::adopt(self.gate.workspace(), &self.invocation.trust(), turn, &change.path)?;
            untrusted |= adopted == Adoption::Untrusted;
        }
        let tool_use = ToolUse {
            call: name.clone(),
            tool: call.tool.clone(),
            reads: plan.reads.clone(),
            changes,
            git: plan.git.clone(),
        };
        match self.reserve(turn, &tool_use)? {
            Outcome::Refused(mut refused) => {
                self.keep_wanted(planned, &mut refused)?;
                let note = if untrusted { words::hook_untrusted() } else { "" };
                let answer = self.host.block(&(self.refusal(planned, &refused) + note), Some(call));
                Ok(Judgement::Refused(answer))
            }
            Outcome::Done(ticket) => {
                let ticket_kept = Some(ticket.clone());
                let expectation = Expectation { ticket: ticket_kept, predicted, ..Expectation::default() };
                if let Err(fault) = self.session.record(&name, turn, expectation) {
                    // Without a record no later hook would end the reservation.
                    let _ = self.gate.post_tool_use(turn, ticket, ToolResult::Failed);
                    return Err(fault.into());
                }
                Ok(Judgement::Agreed(None))
            }
        }
    }

    /// Judges a call whose commands run through `tollgate run`. Nothing is reserved: the run checks the files when its command
    /// ends. What the text of the command says is judged all the same, because the agent learns it sooner.
    fn before_run(&self, planned: PlannedCall<'_>, run: RunPlace) -> Result<Judgement, CliError> {
        let PlannedCall { call, plan, turn } = planned;
        let (changes, _) = self.changes(plan, turn, run)?;
        for change in &changes {
            formatter::adopt(self.gate.workspace(), &self.invocation.trust(), turn, &change.path)?;
        }
        if let Some(answer) = self.refused(planned, changes, &[], "")? {
            return Ok(Judgement::Refused(answer));
        }
        let name = self.name_of(call);
        let reads = plan.reads.clone();
        let tool_use = ToolUse { call: name.clone(), tool: call.tool.clone(), reads, ..ToolUse::default() };
        let ticket = match self.reserve(turn, &tool_use)? {
            Outcome::Done(ticket) => Some(ticket),
            Outcome::Refused(_) => None,
        };
        let (mut prologues, mut answer) = (Vec::new(), None);
        if run == RunPlace::Here {
            prologues = self.prologues(call, turn, &name)?;
            answer = with_prologues(self.host, call, &prologues);
        }
        let expectation = Expectation {
            ticket,
            prologues: prologues.clone(),
            runs_in_outer_workspace: run == RunPlace::Elsewhere,
            ..Expectation::default()
        };
        if let Err(fault) = self.session.record(&name, turn, expectation) {
            // Without a record no later hook would delete them.
            prologues.iter().for_each(Prologue::remove);
            return Err(fault.into());
        }
        Ok(Judgement::Agreed(answer))
    }

    /// The changes for the gate, each file once, and the hashes that the files will have.
    #[allow(clippy::type_complexity, reason = "two lists that are made in one pass")]
    fn changes(
        &self,
        plan: &ToolPlan,
        turn: &SharedTurn,
        run: RunPlace,
    ) -> Result<(Vec<Change>, Vec<(PathBuf, Digest)>), Fault> {
        let (mut changes, mut predicted): (Vec<Change>, Vec<_>) = (Vec::new(), Vec::new());
        let workspace = self.gate.workspace();
        let (mut added, mut hard_links) = (BTreeSet::new(), ProtectedLinks::default());
        // As it was given: the path of a protected file may lead through a link.
        let touched = plan.touched.iter().chain(plan.changes.iter().map(|planned| &planned.path));
        for path in touched {
            if workspace.is_protected(path)? && added.insert(workspace.canonical(path)?) {
                changes.push(Change::of_some_part(path.clone()));
            }
        }
        for planned in &plan.changes {
            let path = workspace.canonical(&planned.path)?;
            if planned.brings_files {
                changes.extend(workspace.protected_names_below(&path).map(Change::of_some_part));
            }
            // As it is given: the gate compares where the path leads with where it led.
            let mut add = |file: &FilePath, given: &Path, text: Option<Digest>| {
                if !added.insert(file.clone()) {
                    return;
                }
                predicted.extend(text.map(|text| (file.as_path().to_owned(), text)));
                let action = Action::ByProgram { extent: planned.extent, result: text };
                changes.push(Change::new(given, action));
            };
            if path.as_path().is_dir() {
                // A change of a folder changes all files in it that the turn has seen,
                if matches!(planned.files, Files::All | Files::Tracked) {
                    let mut inside = turn.files()?;
                    inside.retain(|(file, _)| file.as_path().starts_with(path.as_path()) && !is_of_git(file));
                    inside.into_iter().for_each(|(file, _)| add(&file, file.as_path(), None));
                }
                // all unfinished files, which a run finds itself,
                if run == RunPlace::Nowhere {
                    for file in self.gate.unfinished_below(turn, path.as_path(), planned.files)? {
                        add(&workspace.canonical_link(&file)?, &file, None);
                    }
                }
                // and everything protected in it. git itself leaves its own files alone.
                if planned.files == Files::All {
                    for file in workspace.protected_within(&path) {
                        add(&workspace.canonical(&file)?, &file, None);
                    }
                }
            } else {
                if let Some(file) = hard_links.protected_name(workspace, path.as_path())? {
                    add(&workspace.canonical(&file)?, &file, None);
                }
                add(&path, &planned.path, planned.digest(path.as_path()));
            }
        }
        Ok((changes, predicted))
    }

    /// Writes a prologue for each command of a call.
    fn prologues(&self, call: &Call, turn: &SharedTurn, name: &str) -> Result<Vec<Prologue>, Fault> {
        let ToolEffects::Shell { commands, keep_running, .. } = &call.effects else { return Ok(Vec::new()) };
        let (tollgate, records) = (Surroundings::executable(), self.invocation.run_folder()?);
        make_folder(&records, FileAccess::Private)?;
        let write = |(at, command): (usize, &String)| {
            let run = RunInput {
                tollgate: &tollgate,
                workspace: self.gate.workspace().path(),
                agent: turn.agent(),
                claims_as: self.session.claims_as(),
                turn: turn.id(),
                turns: self.session.turns(),
                keep_running: *keep_running,
                tells: self.host.can_tell(),
                command,
            };
            Prologue::write(self.session.folder(), &format!("{name}-{at}"), &records, self.form(), &run)
        };
        let mut written = Vec::new();
        for command in commands.iter().enumerate() {
            match write(command) {
                Ok(prologue) => written.push(prologue),
                Err(fault) => {
                    // They are not recorded yet, so no later hook would delete them.
                    written.iter().for_each(Prologue::remove);
                    return Err(fault);
                }
            }
        }
        Ok(written)
    }

    /// The form of the prologues: a comment if the program has our prefix, and the prefix finds the prologues of this session.
    fn form(&self) -> PrologueForm {
        let folders = self.invocation.folders_of_turns();
        let is_found = folders.iter().any(|folder| self.session.folder().starts_with(folder));
        PrologueForm::with(self.host.shell_prefix().filter(|_| is_found))
    }

    /// Takes back what [`Acting::before`] reserved and recorded: another workspace has refused the call.
    pub(in crate::hook) fn take_back(&self, call: &Call) -> Result<(), CliError> {
        let Some((pending, _)) = self.session.take(&self.name_of(call))? else { return Ok(()) };
        Ok(self.session.settle(self.gate, pending)?)
    }

    /// Judges a call and reserves nothing.
    pub(in crate::hook) fn only_judge(&self, planned: PlannedCall<'_>) -> Result<Option<Value>, CliError> {
        if let Some(answer) = self.suspected(planned)? {
            return Ok(Some(answer));
        }
        if let Some(answer) = self.vague(planned)? {
            return Ok(Some(answer));
        }
        let (changes, _) = self.changes(planned.plan, planned.turn, RunPlace::Nowhere)?;
        self.refused(planned, changes, &planned.plan.git, "")
    }
}
