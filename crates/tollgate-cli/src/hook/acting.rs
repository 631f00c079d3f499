//! One tool call of an agent: judged before the tool runs, recorded after it has run.
//!
//! Before the tool there are three steps, in this order: settle the agent's older calls, because their results are part of
//! what the turn knows; judge this call; record it for the hook after the tool.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tollgate::digest::Digest;
use tollgate::error::Fault;
use tollgate::gate::{Gate, Ticket, ToolChange, ToolResult, ToolUse};
use tollgate::guard::{Expected, Outcome, Refused};
use tollgate::path::FilePath;
use tollgate::refusal::ErrorType;
use tollgate::settings::GuardMode;
use tollgate::shared_turn::SharedTurn;
use tollgate::turn::{Extent, FileState, Sighting, TurnState};

use super::formatter::{self, Adopted};
use super::hard_links::HardLinks;
use super::pending_call::{Expectation, LastChange, PendingCall, Since, hash_of};
use super::plan::{Planned, Text, ToolPlan};
use super::prologue::{Prologue, PrologueForm, RunOf, with_commands};
use super::run_record::RunReport;
use super::session::HookSession;
use super::settle;
use super::shell::ActsAs;
use super::shown::{has_word, is_formatted, is_same_text, shown};
use crate::error::CliError;
use crate::host::Host;
use crate::host::event::{Aftermath, Call, Deeds, Heard, Shown};
use crate::invocation::Invocation;
use crate::replace::{FileAccess, make_folder};
use crate::surroundings::Surroundings;
use crate::words;

/// Everything that one tool call needs.
pub(super) struct Acting<'h> {
    pub(super) host: &'static dyn Host,
    pub(super) heard: &'h Heard,
    pub(super) invocation: &'h Invocation,
    pub(super) gate: &'h Gate,
    pub(super) session: &'h HookSession<'h>,
}

impl Acting<'_> {
    /// The name of a call, the same before and after the tool.
    fn name_of(&self, call: &Call) -> String {
        self.session.call_name(id_of(call).as_bytes())
    }

    /// Judges a call and reserves its files. A shell command may run through `tollgate run` instead, in one workspace.
    pub(super) fn before(
        &self,
        call: &Call,
        plan: &ToolPlan,
        turn: &SharedTurn,
        run: RunPlace,
    ) -> Result<Judgement, CliError> {
        let name = self.name_of(call);
        self.session.settle_finished(self.gate, &name)?;
        if let Some(answer) = self.acts_as_another(call, plan)? {
            return Ok(Judgement::Refused(answer));
        }
        if let Some(answer) = self.suspected(call, plan, turn)? {
            return Ok(Judgement::Refused(answer));
        }
        if run != RunPlace::Nowhere {
            return self.before_run(call, plan, turn, run);
        }
        if let Some(answer) = self.vague(call, plan, turn)? {
            return Ok(Judgement::Refused(answer));
        }
        if plan.names_nothing() {
            if plan.shell {
                self.session.record(&name, turn, Expectation::default())?;
            }
            return Ok(Judgement::Agreed(None));
        }
        let (changes, predicted) = self.changes(plan, turn)?;
        let mut untrusted = false;
        for change in &changes {
            let adopted =
                formatter::adopt(self.gate.workspace(), &self.invocation.trust(), turn, &change.path)?;
            untrusted |= adopted == Adopted::Untrusted;
        }
        let tool_use =
            ToolUse { call: name.clone(), tool: call.tool.clone(), reads: plan.reads.clone(), changes };
        match self.judge(turn, &tool_use)? {
            Outcome::Refused(mut refused) => {
                self.keep_wanted(call, plan, turn, &mut refused)?;
                let note = if untrusted { words::hook_untrusted() } else { "" };
                let answer = self.host.block(&(self.refusal(call, &refused) + note), Some(call));
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
    fn before_run(
        &self,
        call: &Call,
        plan: &ToolPlan,
        turn: &SharedTurn,
        run: RunPlace,
    ) -> Result<Judgement, CliError> {
        let (changes, _) = self.changes(plan, turn)?;
        for change in &changes {
            formatter::adopt(self.gate.workspace(), &self.invocation.trust(), turn, &change.path)?;
        }
        if let Some(answer) = self.refused(call, plan, changes, turn)? {
            return Ok(Judgement::Refused(answer));
        }
        let name = self.name_of(call);
        let reads = plan.reads.clone();
        let tool_use = ToolUse { call: name.clone(), tool: call.tool.clone(), reads, changes: Vec::new() };
        let ticket = match self.judge(turn, &tool_use)? {
            Outcome::Done(ticket) => Some(ticket),
            Outcome::Refused(_) => None,
        };
        let (mut prologues, mut answer) = (Vec::new(), None);
        if run == RunPlace::Here {
            prologues = self.prologues(call, turn, &name)?;
            answer = with_prologues(self.host, call, &prologues);
        }
        let runs_elsewhere = run == RunPlace::Elsewhere;
        let expectation =
            Expectation { ticket, prologues: prologues.clone(), runs_elsewhere, ..Expectation::default() };
        if let Err(fault) = self.session.record(&name, turn, expectation) {
            // Without a record no later hook would delete them.
            prologues.iter().for_each(Prologue::remove);
            return Err(fault.into());
        }
        Ok(Judgement::Agreed(answer))
    }

    /// Writes a prologue for each command of a call.
    fn prologues(&self, call: &Call, turn: &SharedTurn, name: &str) -> Result<Vec<Prologue>, Fault> {
        let Deeds::Shell { commands, keep_running, .. } = &call.deeds else { return Ok(Vec::new()) };
        let (tollgate, records) = (Surroundings::executable(), self.invocation.run_folder()?);
        make_folder(&records, FileAccess::Private)?;
        let write = |(at, command): (usize, &String)| {
            let run = RunOf {
                tollgate: &tollgate,
                workspace: self.gate.workspace().path(),
                agent: turn.agent(),
                turn: turn.id(),
                turns: self.session.turns(),
                keep_running: *keep_running,
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
    pub(super) fn take_back(&self, call: &Call) -> Result<(), CliError> {
        let Some((pending, _)) = self.session.take(&self.name_of(call))? else { return Ok(()) };
        Ok(self.session.settle(self.gate, pending)?)
    }

    /// Judges a call and reserves nothing.
    pub(super) fn only_judge(
        &self,
        call: &Call,
        plan: &ToolPlan,
        turn: &SharedTurn,
    ) -> Result<Option<Value>, CliError> {
        if let Some(answer) = self.suspected(call, plan, turn)? {
            return Ok(Some(answer));
        }
        if let Some(answer) = self.vague(call, plan, turn)? {
            return Ok(Some(answer));
        }
        let (changes, _) = self.changes(plan, turn)?;
        self.refused(call, plan, changes, turn)
    }

    /// The answer to a command of tollgate that acts under another name than the agent's own. A subagent has its own name for
    /// files, because its turn knows other versions of them, and works on the tasks of its session.
    fn acts_as_another(&self, call: &Call, plan: &ToolPlan) -> Result<Option<Value>, CliError> {
        if self.gate.workspace().settings().guard.mode != GuardMode::Enforce {
            return Ok(None);
        }
        let own = |acts: &ActsAs| match acts.command.starts_with("tollgate task ") {
            true => self.session.claims_as(),
            false => self.session.agent(),
        };
        let is_named = self.invocation.is_named_by_variable();
        let another = plan.acts_as.iter().find(|acts| match &acts.name {
            Some(name) => own(acts).as_str() != name,
            // The shell has the same environment as this hook.
            None => !is_named,
        });
        let words = another.map(|acts| words::hook_other_name(&acts.command, own(acts)));
        Ok(words.map(|words| self.host.block(&words, Some(call))))
    }

    /// The answer to an unknown tool that names a file which the turn knows and which is stale.
    fn suspected(&self, call: &Call, plan: &ToolPlan, turn: &SharedTurn) -> Result<Option<Value>, CliError> {
        let (mut stale, mut added) = (Vec::new(), BTreeSet::new());
        for path in &plan.suspects {
            // The same file may be named in several spellings.
            if self.is_stale(path, turn)? && added.insert(self.gate.workspace().canonical(path)?) {
                stale.push(ToolChange::part(path.clone()));
            }
        }
        self.refused(call, plan, stale, turn)
    }

    /// The answer to a command that may change every file that it names, and names one that is stale. It may also only read the
    /// others, so they are not reserved: what somebody else saves there in the meantime would count as the agent's.
    fn vague(&self, call: &Call, plan: &ToolPlan, turn: &SharedTurn) -> Result<Option<Value>, CliError> {
        let Deeds::Shell { commands, .. } = &call.deeds else { return Ok(None) };
        let mut stale = Vec::new();
        if plan.gave_up {
            for path in turn.files_where(|path| self.is_named(commands, path))? {
                if self.is_stale(path.as_path(), turn)? {
                    stale.push(ToolChange::part(path.as_path().to_owned()));
                }
            }
        }
        self.refused(call, plan, stale, turn)
    }

    /// The answer of a workspace further up, which only watches these changes.
    pub(super) fn watched(&self, call: &Call, paths: &[PathBuf]) -> Result<Option<Value>, CliError> {
        let turn = match self.session.any_turn()? {
            Some(turn) => turn,
            None if !self.protects(paths)? => return Ok(None),
            None => self.session.turn(self.gate, None)?,
        };
        let mut changes: Vec<ToolChange> = Vec::new();
        for path in paths {
            if self.gate.workspace().canonical(path).is_err() {
                continue;
            }
            if self.gate.workspace().is_protected(path)? || self.is_stale(path, &turn)? {
                changes.push(ToolChange::part(path.clone()));
            }
        }
        self.refused(call, &ToolPlan::default(), changes, &turn)
    }

    fn protects(&self, paths: &[PathBuf]) -> Result<bool, Fault> {
        for path in paths {
            if self.gate.workspace().is_protected(path)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The file to which a path leads, and what the turn knows of it. What is not a path names no file.
    fn known(&self, path: &Path, turn: &SharedTurn) -> Result<Option<(FilePath, Sighting)>, Fault> {
        match self.gate.workspace().canonical(path) {
            Ok(_) => self.gate.sighting(turn, path),
            Err(_) => Ok(None),
        }
    }

    /// Whether the turn knows a file that is not as the agent last saw it.
    fn is_stale(&self, path: &Path, turn: &SharedTurn) -> Result<bool, Fault> {
        let Some((path, sighting)) = self.known(path, turn)? else { return Ok(false) };
        let now = hash_of(path.as_path()).ok();
        Ok(match sighting.baseline(Extent::Part) {
            FileState::Present(known) => now != Some(known),
            FileState::Absent => path.as_path().exists(),
            FileState::Unreadable => false,
        })
    }

    /// The answer that refuses these changes, if the gate does. Reserves nothing.
    fn refused(
        &self,
        call: &Call,
        plan: &ToolPlan,
        changes: Vec<ToolChange>,
        turn: &SharedTurn,
    ) -> Result<Option<Value>, CliError> {
        if changes.is_empty() {
            return Ok(None);
        }
        let tool_use =
            ToolUse { call: self.name_of(call), tool: call.tool.clone(), reads: Vec::new(), changes };
        match self.judge(turn, &tool_use)? {
            Outcome::Refused(mut refused) => {
                self.keep_wanted(call, plan, turn, &mut refused)?;
                Ok(Some(self.host.block(&self.refusal(call, &refused), Some(call))))
            }
            Outcome::Done(ticket) => {
                self.gate.post_tool_use(turn, ticket, ToolResult::Failed)?;
                Ok(None)
            }
        }
    }

    /// Judges a call. If a file is busy, the call that holds it may be over without a report: then such calls of all agents
    /// are settled first. This reads many files, so it is done only then.
    fn judge(&self, turn: &SharedTurn, tool_use: &ToolUse) -> Result<Outcome<Ticket>, Fault> {
        let outcome = self.gate.pre_tool_use(turn, tool_use)?;
        let is_busy = |refused: &Refused| {
            refused.refusals().iter().any(|refusal| refusal.error_type() == ErrorType::FileBusy)
        };
        if !matches!(&outcome, Outcome::Refused(refused) if is_busy(refused)) {
            return Ok(outcome);
        }
        settle::abandoned(self.gate, &self.invocation.existing_turns()?)?;
        self.gate.pre_tool_use(turn, tool_use)
    }

    /// Keeps what the tool would have written, for a merge.
    fn keep_wanted(
        &self,
        call: &Call,
        plan: &ToolPlan,
        turn: &SharedTurn,
        refused: &mut Refused,
    ) -> Result<(), Fault> {
        let workspace = self.gate.workspace();
        self.gate.keep_refused(turn, &call.tool, refused, |path, base| {
            let of_path =
                |planned: &&Planned| workspace.canonical(&planned.path).is_ok_and(|there| there == *path);
            let mut planned = plan.changes.iter().filter(of_path);
            match (planned.next(), planned.next()) {
                (Some(planned), None) => planned.outcome(base).map(String::into_bytes),
                // Which of several changes of one file is the last is not known.
                _ => None,
            }
        })
    }

    fn refusal(&self, call: &Call, refused: &Refused) -> String {
        let payload = refused.payload();
        let actual = payload.actual_hash.map(|hash| hash.to_string()).unwrap_or_default();
        let again = self.session.was_told(format!("{}\0{}\0{actual}", call.tool, call.input).as_bytes());
        words::hook_refused(&self.invocation.viewpoint(), refused, again, self.session.agent())
    }

    /// The changes for the gate, each file once, and the hashes that the files will have.
    #[allow(clippy::type_complexity, reason = "two lists that are made in one pass")]
    fn changes(
        &self,
        plan: &ToolPlan,
        turn: &SharedTurn,
    ) -> Result<(Vec<ToolChange>, Vec<(PathBuf, Digest)>), Fault> {
        let (mut changes, mut predicted): (Vec<ToolChange>, Vec<_>) = (Vec::new(), Vec::new());
        let workspace = self.gate.workspace();
        let (mut added, mut hard_links) = (BTreeSet::new(), HardLinks::default());
        // As it was given: the path of a protected file may lead through a link.
        let touched = plan.touched.iter().chain(plan.changes.iter().map(|planned| &planned.path));
        for path in touched {
            if workspace.is_protected(path)? && added.insert(workspace.canonical(path)?) {
                changes.push(ToolChange::part(path.clone()));
            }
        }
        for planned in &plan.changes {
            let path = workspace.canonical(&planned.path)?;
            if planned.brings_files {
                changes.extend(workspace.protected_names_below(&path).map(ToolChange::part));
            }
            // As it is given: the gate compares where the path leads with where it led.
            let mut add = |file: &FilePath, given: &Path, text: Option<Digest>| {
                if !added.insert(file.clone()) {
                    return;
                }
                predicted.extend(text.map(|text| (file.as_path().to_owned(), text)));
                let (path, extent, expected) = (given.to_owned(), planned.extent, Expected::Baseline);
                changes.push(ToolChange { path, extent, expected, predicted: text });
            };
            if path.as_path().is_dir() {
                // A change of a folder changes all files in it that the turn has seen,
                let inside =
                    turn.files()?.into_iter().filter(|(file, _)| file.as_path().starts_with(path.as_path()));
                inside.for_each(|(file, _)| add(&file, file.as_path(), None));
                // and everything protected in it. git itself leaves its own files alone.
                if !planned.by_git {
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

    /// Records what a tool did. If that fails, nothing stays reserved, and the agent is told: the tool has run.
    pub(super) fn after(&self, call: &Call, aftermath: &Aftermath) -> Result<Option<Value>, CliError> {
        let Some((mut pending, since)) = self.session.take(&self.name_of(call))? else { return Ok(None) };
        let is_named = pending.ticket.as_ref().is_some_and(|ticket| ticket.changes().next().is_some());
        let may_change = is_named || matches!(call.deeds, Deeds::Shell { .. });
        let settled = self.settled(call, aftermath, &mut pending, since);
        if settled.is_err() {
            // The record is taken, so no later hook would do this.
            let _ = self.session.settle(self.gate, pending);
        }
        match settled {
            Err(error) if may_change => Ok(self.host.tell(&words::hook_not_recorded(&error))),
            settled => settled,
        }
    }

    /// The same. On a fault, `pending` has what is still open.
    fn settled(
        &self,
        call: &Call,
        aftermath: &Aftermath,
        pending: &mut PendingCall,
        since: Since,
    ) -> Result<Option<Value>, CliError> {
        // The call may have begun in a turn that has ended.
        let turn = match self.session.turn_of(&pending.turn)? {
            Some(turn) => turn,
            None => self.session.turn(self.gate, self.heard.turn.as_deref())?,
        };
        let is_shell = matches!(call.deeds, Deeds::Shell { .. });
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
        if let Some(ticket) = pending.ticket.take() {
            // A shell command that fails has often changed something before.
            let failed = aftermath.failed && !is_shell;
            let result = if failed { ToolResult::Failed } else { ToolResult::Succeeded };
            self.gate.post_tool_use(&turn, ticket, result)?;
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
        if is_shell && reports.is_empty() && !pending.runs_elsewhere {
            // Nearly all files are unchanged, and for those one look at the ctime is enough. A change that nobody foresaw is
            // foreign, even if the command names the file: somebody else may have saved it while the command ran.
            let changed = turn.files_where(|path| since.last_changed(path) != LastChange::Before)?;
            let unforeseen = changed.into_iter().filter(|path| !own.contains(path.as_path()));
            let files: Vec<FilePath> = unforeseen.collect();
            self.gate.look_again(&turn, &files)?;
        }
        let Some((path, before, text)) = lost else { return Ok(None) };
        // If the text cannot be kept, the agent is told of it all the same.
        let kept = self.gate.keep_overwritten(&turn, &path, before, text.as_bytes()).ok();
        Ok(self.host.tell(&words::hook_lost(&self.invocation.viewpoint(), &path, text, kept.as_deref())))
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
        let Deeds::Files(deeds) = &call.deeds else { return Ok(Vec::new()) };
        let mut plan = ToolPlan::default();
        deeds.iter().for_each(|deed| plan.add(deed, &self.heard.folder));
        let mut known = Vec::new();
        for (path, before) in ticket.changes() {
            let is_foreign = slipped_in.is_some_and(|there| there.as_path() == path);
            let of_path = |planned: &&Planned| {
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

    /// Whether a command names a file, in whatever language its parts are written.
    fn is_named(&self, commands: &[String], path: &Path) -> bool {
        let root = self.gate.workspace().path();
        let spellings =
            [Some(path), path.strip_prefix(root).ok(), path.strip_prefix(&self.heard.folder).ok()];
        let names = |text: &str| {
            spellings.iter().flatten().filter_map(|path| path.to_str()).any(|word| has_word(text, word))
                || path.file_name().and_then(|name| name.to_str()).is_some_and(|name| has_word(text, name))
        };
        commands.iter().any(|text| names(text))
    }
}

/// What a workspace says about a call.
pub(super) enum Judgement {
    /// This answer refuses it.
    Refused(Value),
    /// It may run; with this answer, it runs with another input.
    Agreed(Option<Value>),
}

/// The id of a call: the program's, otherwise its tool and its input.
pub(super) fn id_of(call: &Call) -> String {
    match &call.id {
        Some(id) => id.clone(),
        None => format!("{}\0{}", call.tool, call.input),
    }
}

/// Where a shell command runs through `tollgate run`, seen from one workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunPlace {
    Here,
    /// In a workspace around this one. The run compares the changes of the command, and tells this one what it wrote.
    Elsewhere,
    Nowhere,
}

/// Whether the commands of a call can run through `tollgate run`: the program must support it.
pub(super) fn can_run(host: &dyn Host, call: &Call) -> bool {
    with_prologues(host, call, &[]).is_some()
}

/// The answer that gives these prologues to the commands of a call. `None` if the program does not support it.
fn with_prologues(host: &dyn Host, call: &Call, prologues: &[Prologue]) -> Option<Value> {
    if !matches!(call.deeds, Deeds::Shell { .. }) {
        return None;
    }
    let mut prologues = prologues.iter();
    let mut put = |text: &str| {
        Value::from(prologues.next().map_or_else(|| text.to_owned(), |prologue| prologue.on(text)))
    };
    host.change_input(with_commands(&call.input, &mut put)?)
}
