//! One tool call of an agent in one workspace: judged before the tool runs, recorded after it has run.

mod after;
mod before;
mod suspicion;

use serde_json::Value;
use tollgate::error::Fault;
use tollgate::gate::{Gate, GitStep, Ticket, ToolUse};
use tollgate::guard::{Change, Outcome, Refused};
use tollgate::refusal::ErrorType;
use tollgate::shared_turn::SharedTurn;

use super::plan::{PlannedChange, ToolPlan};
use super::session::HookSession;
use super::settle;
use crate::error::CliError;
use crate::host::Host;
use crate::host::event::{Call, HookCall};
use crate::invocation::Invocation;
use crate::words;

/// Everything that one tool call needs.
pub(super) struct Acting<'h> {
    pub(super) host: &'static dyn Host,
    pub(super) heard: &'h HookCall,
    pub(super) invocation: &'h Invocation,
    pub(super) gate: &'h Gate,
    pub(super) session: &'h HookSession<'h>,
}

impl Acting<'_> {
    /// The name of a call, the same before and after the tool.
    fn name_of(&self, call: &Call) -> String {
        self.session.call_name(call.id_or_input().as_bytes())
    }

    /// The answer that refuses these changes, if the gate does. Reserves nothing. `why`: why this call counts as changing these
    /// files, as one more line for the agent.
    fn refused(
        &self,
        planned: PlannedCall<'_>,
        changes: Vec<Change>,
        git: &[GitStep],
        why: &str,
    ) -> Result<Option<Value>, CliError> {
        if changes.is_empty() && git.is_empty() {
            return Ok(None);
        }
        let PlannedCall { call, turn, .. } = planned;
        let (tool, git) = (call.tool.clone(), git.to_vec());
        let tool_use = ToolUse { call: self.name_of(call), tool, reads: Vec::new(), changes, git };
        match self.unless_abandoned(|| self.gate.refuse_tool_use(turn, &tool_use))? {
            Outcome::Done(()) => Ok(None),
            Outcome::Refused(mut refused) => {
                self.keep_wanted(planned, &mut refused)?;
                Ok(Some(self.host.block(&(self.refusal(planned, &refused) + why), Some(call))))
            }
        }
    }

    /// Judges a call, and reserves its files.
    fn reserve(&self, turn: &SharedTurn, tool_use: &ToolUse) -> Result<Outcome<Ticket>, Fault> {
        self.unless_abandoned(|| self.gate.pre_tool_use(turn, tool_use))
    }

    /// Asks the gate. If a file is busy, the call that holds it may be over without a report: then such calls of all agents are
    /// settled first, and the gate is asked again. This reads many files, so it is done only then.
    fn unless_abandoned<T>(&self, ask: impl Fn() -> Result<Outcome<T>, Fault>) -> Result<Outcome<T>, Fault> {
        let answer = ask()?;
        let is_busy = |refused: &Refused| {
            refused.refusals().iter().any(|refusal| refusal.error_type() == ErrorType::FileBusy)
        };
        if !matches!(&answer, Outcome::Refused(refused) if is_busy(refused)) {
            return Ok(answer);
        }
        settle::abandoned(self.gate, &self.invocation.existing_turns()?)?;
        ask()
    }

    /// Keeps what the tool would have written, for a merge.
    fn keep_wanted(&self, planned: PlannedCall<'_>, refused: &mut Refused) -> Result<(), Fault> {
        let PlannedCall { call, plan, turn } = planned;
        let workspace = self.gate.workspace();
        self.gate.keep_refused(turn, &call.tool, refused, |path, base| {
            let of_path = |planned: &&PlannedChange| {
                workspace.canonical(&planned.path).is_ok_and(|there| there == *path)
            };
            let mut planned = plan.changes.iter().filter(of_path);
            match (planned.next(), planned.next()) {
                (Some(planned), None) => planned.outcome(base).map(String::into_bytes),
                // Which of several changes of one file is the last is not known.
                _ => None,
            }
        })
    }

    fn refusal(&self, PlannedCall { call, turn, .. }: PlannedCall<'_>, refused: &Refused) -> String {
        let payload = refused.payload();
        let actual = payload.actual_hash.map(|hash| hash.to_string()).unwrap_or_default();
        let again = self.session.was_told(format!("{}\0{}\0{actual}", call.tool, call.input).as_bytes());
        let refused = words::hook_refused(&self.invocation.viewpoint(), refused, again, self.session.agent());
        // No hook comes after a tool that did not run.
        [refused].into_iter().chain(self.notes(turn)).collect::<Vec<_>>().join("\n")
    }

    /// What the agent should hear now, beside the answer to its call. If that cannot be found out, the answer is given without it.
    pub(super) fn notes(&self, turn: &SharedTurn) -> Option<String> {
        let folder = self.invocation.viewpoint().base.unwrap_or_default();
        self.gate.workspace().notes(turn, &folder).ok().filter(|notes| !notes.is_empty())
    }
}

/// A call, what it will do to the files of one workspace, and the turn that it belongs to there.
#[derive(Clone, Copy)]
pub(super) struct PlannedCall<'c> {
    pub(super) call: &'c Call,
    pub(super) plan: &'c ToolPlan,
    pub(super) turn: &'c SharedTurn,
}

/// What a workspace says about a call.
pub(super) enum Judgement {
    /// This answer refuses it.
    Refused(Value),
    /// It may run; with this answer, it runs with another input.
    Agreed(Option<Value>),
}

/// Where a shell command runs through `tollgate run`, seen from one workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunPlace {
    Here,
    /// In a workspace around this one. The run compares the changes of the command, and tells this one what it wrote.
    Elsewhere,
    Nowhere,
}
