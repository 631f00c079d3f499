//! One call of a hook: from the bytes on stdin to an answer in the format of the agent program.
//!
//! If anything goes wrong before a write (an unreadable payload, a damaged state, a panic, a slow disk), the answer blocks the
//! write and says why, within a deadline that is shorter than the program's. If the call may proceed, there is no answer: an
//! "allow" would suppress the program's own question to the user.
//!
//! Data flows one way: `payload` (which event?) -> `plan` (which files?) -> `places` (in which workspaces?) -> `acting` (judge or record the call) ->
//! `session` (`agent_names`: whose?) -> `settle` (calls that nobody ended) -> `pending_call`. `in_time` surrounds all of it.

mod acting;
mod agent_names;
pub(crate) mod checkup;
mod formatter;
mod hard_links;
mod in_time;
mod last_call;
mod payload;
mod pending_call;
mod places;
mod plan;
mod process;
mod prologue;
mod run_record;
mod session;
mod settle;
mod shell;
mod shown;
mod suspects;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;
use tollgate::settings::{GuardMode, HookSettings, OnFault, Settings, ShellCommands};
use tollgate::tasks::VaultHome;
use tollgate::workspace::has_state;

use crate::error::CliError;
use crate::global_args::GlobalArgs;
use crate::host::Host;
use crate::host::event::{Call, HookCall, HookEvent, ToolEffects, ToolReport};
use crate::invocation::Invocation;
use crate::surroundings::Surroundings;
use crate::words;
use acting::{Acting, Judgement, PlannedCall, RunPlace};
use in_time::{Timer, answered, panicked};
use payload::{BadPayload, not_understood, read_stdin, understand};
use places::Shares;
use plan::{ToolPlan, Weight};
use session::HookSession;

/// Reads the payload, acts on it, and returns what to print.
pub(crate) fn answer(called: &'static dyn Host, global: &GlobalArgs) -> Option<Value> {
    let started = Instant::now();
    let bytes = match read_stdin(started + HookSettings::default().deadline.0) {
        Ok(bytes) => bytes,
        Err(why) => return BadPayload { answer_to: called, weight: Weight::Writes, why }.answer(),
    };
    // From here on, a signal enforces the deadline: to parse a command and to look for its files takes time, too.
    let timer = Timer::start(started, &|_, error| Some(called.block(&words::hook_fault(error), None)));
    let understood = catch_unwind(AssertUnwindSafe(|| {
        let (host, mut heard) = understand(called, &bytes)?;
        let mut surroundings = Surroundings::look();
        // A relative folder is relative to this process.
        if let Ok(folder) = surroundings.folder {
            heard.folder = folder.join(&heard.folder);
        }
        surroundings.folder = Ok(heard.folder.clone());
        let is_own = host.name() == called.name();
        let home = Invocation::new(surroundings, global.clone());
        prologue::remove_prologues(&mut heard.event, &home.all_folders_of_turns());
        let hook = Hook { host, is_own, heard, home };
        let plan = hook.plan();
        Ok::<_, BadPayload>((hook, plan))
    }));
    let (hook, plan) = match understood {
        Ok(Ok(understood)) => understood,
        Ok(Err(bad)) => return bad.answer(),
        Err(_) => return Some(called.block(&words::hook_fault(&panicked()), None)),
    };
    if let Some(command) = &plan.people_only {
        return Some(hook.host.block(&words::hook_people_only(command), hook.call()));
    }
    let weight = plan.weight();
    let fault = |settings: &Settings, error: &CliError| hook.fault(weight, settings, error);
    match &hook.heard.event {
        HookEvent::Before(_) | HookEvent::Unknown(_) => timer.answered(&fault, |told| hook.run(plan, told)),
        _ => {
            // Nothing waits for the answer. If the deadline ended this, a reservation might stay.
            drop(timer);
            answered(&fault, |told| hook.run(plan, told))
        }
    }
}

/// A parsed call of a hook.
struct Hook {
    host: &'static dyn Host,
    /// The program was set up to call this hook. Otherwise it calls the hook of another program, whose configuration it also
    /// reads.
    is_own: bool,
    heard: HookCall,
    /// A call of the command in the agent's folder.
    home: Invocation,
}

impl Hook {
    /// The call of a tool that this event is about.
    fn call(&self) -> Option<&Call> {
        match &self.heard.event {
            HookEvent::Before(call) | HookEvent::Unknown(call) | HookEvent::After(call, _) => Some(call),
            _ => None,
        }
    }

    /// The answer to a fault. Before a tool it blocks what may change files. After a tool it can only tell the agent.
    fn fault(&self, weight: Weight, settings: &Settings, error: &CliError) -> Option<Value> {
        let may_change = match (&self.heard.event, weight) {
            (HookEvent::After(_, report), Weight::Writes) => {
                return self.host.tell(&words::hook_not_recorded(error), report);
            }
            (_, Weight::Writes) => true,
            // A command without a known target may run if it cannot be judged, unless it must run as a transaction.
            (HookEvent::Before(Call { effects: ToolEffects::Shell { .. }, .. }), Weight::Harmless) => {
                settings.run.runs(self.host.name())
            }
            // So may an unknown tool, even if it names a file: most of them change none.
            (_, Weight::Harmless) => false,
        };
        let blocks = may_change && settings.hooks.on_fault == OnFault::Block;
        blocks.then(|| self.host.block(&words::hook_fault(error), self.call()))
    }

    fn plan(&self) -> ToolPlan {
        let mut plan = ToolPlan::default();
        let (call, is_before) = match &self.heard.event {
            HookEvent::Before(call) | HookEvent::Unknown(call) => (call, true),
            HookEvent::After(call, _) => (call, false),
            _ => return plan,
        };
        let home = Surroundings::home();
        match &call.effects {
            ToolEffects::Files(effects) => {
                effects.iter().for_each(|effect| plan.add(effect, &self.heard.folder));
            }
            ToolEffects::Unknown if is_before => {
                plan.suspects = suspects::suspects(&call.input, &self.heard.folder, home.as_deref());
            }
            ToolEffects::Unknown => {}
            ToolEffects::Shell { commands, folder, .. } => {
                plan.shell = true;
                // After the tool only the names in the command's text count, and they need no parser.
                if is_before {
                    let folder = folder
                        .as_ref()
                        .map_or(self.heard.folder.clone(), |folder| self.heard.folder.join(folder));
                    for command in commands {
                        plan.follow(shell::read(command, &folder, home.as_deref()));
                    }
                }
            }
        }
        plan
    }

    fn run(&self, plan: ToolPlan, told: &mut dyn FnMut(&Settings)) -> Result<Option<Value>, CliError> {
        match &self.heard.event {
            HookEvent::Before(_) | HookEvent::Unknown(_) | HookEvent::After(..) if plan.is_empty() => {
                Ok(None)
            }
            HookEvent::Before(call) | HookEvent::Unknown(call) => self.before(call, plan, told),
            HookEvent::After(call, aftermath) => self.after(call, aftermath),
            HookEvent::Prompt | HookEvent::Stopped | HookEvent::Gone => self.around_turns(),
            HookEvent::Started => self.greeting(),
            HookEvent::Other => Ok(None),
        }
    }

    /// At the start of a session in a workspace: what the agent should know.
    fn greeting(&self) -> Result<Option<Value>, CliError> {
        let (root, is_set_up) = self.home_root();
        if !is_set_up {
            return Ok(None);
        }
        let greeting = self.at(&root, &mut |_| {}, |acting| {
            let has_tasks = VaultHome::at(root.clone())?.has_vault();
            let is_shell_guarded = self.host.shell_commands(&acting.gate.workspace().settings().run)
                == ShellCommands::Transaction;
            let agent = acting.session.agent();
            acting.session.note_model()?;
            Ok(self.host.greet(&words::hook_greeting(agent, has_tasks, is_shell_guarded)))
        })?;
        Ok(greeting.flatten())
    }

    /// The names of the agent: its program, its session, its subagent.
    fn names(&self) -> [&str; 3] {
        [self.host.name(), &self.heard.session, self.heard.subagent.as_deref().unwrap_or_default()]
    }

    /// The workspace of the agent's folder, and whether it has a state.
    fn home_root(&self) -> (PathBuf, bool) {
        match self.home.root() {
            Ok((root, _)) => (root.clone(), has_state(&root)),
            // The folder does not exist. If a file needs this workspace, opening it reports the fault.
            Err(_) => (self.heard.folder.clone(), false),
        }
    }

    /// The workspace in whose view a shell command of this agent runs, if there is one.
    fn run_root(&self, home: &Path) -> Option<PathBuf> {
        let runs = |root: &Path| {
            let settings = match root == home {
                true => self.home.settings(),
                false => self.home.elsewhere(root).settings(),
            };
            // If the settings cannot be read, opening the workspace reports the fault.
            settings.is_ok_and(|settings| {
                settings.run.runs(self.host.name()) && settings.guard.mode == GuardMode::Enforce
            })
        };
        let used = || session::used_workspaces(self.names(), &self.home.folders_of_turns());
        places::run_root(home, &self.home, runs, used)
    }

    /// Acts in one workspace, unless its guard is off.
    fn at<T>(
        &self,
        root: &Path,
        told: &mut dyn FnMut(&Settings),
        act: impl FnOnce(&Acting<'_>) -> Result<T, CliError>,
    ) -> Result<Option<T>, CliError> {
        let elsewhere;
        let invocation = match self.home.root() {
            Ok((home, _)) if home == root => &self.home,
            _ => {
                elsewhere = self.home.elsewhere(root);
                &elsewhere
            }
        };
        let settings = invocation.settings()?;
        told(&settings);
        if settings.guard.mode == GuardMode::Off {
            return Ok(None);
        }
        let turns = match settings.run.runs(self.host.name()) {
            true => invocation.new_turns_for_runs()?,
            false => invocation.new_turns()?,
        };
        if !invocation.has_state()? {
            // The names of agents are kept in the state.
            invocation.workspace()?;
        }
        let named = invocation.named_by_environment()?;
        let session = HookSession::open(
            &turns,
            self.names(),
            named,
            (root, &settings),
            (&self.heard.folder, self.home.folders_of_turns()),
        )?;
        let session = session.asked(self.heard.prompt.clone(), self.heard.model.clone());
        let gate = invocation.gate_of(session.claims_as(), settings)?;
        if self.is_own {
            session.note_own_hook()?;
        } else if session.has_own_hook() && self.has_own_hook(root) {
            // Its own hook judges this call.
            return Ok(None);
        }
        last_call::note(&turns, self.host.name());
        let acting =
            Acting { host: self.host, heard: &self.heard, invocation, gate: &gate, session: &session };
        act(&acting).map(Some)
    }

    /// Whether the program's own hooks are still installed: in the workspace, or where the program runs its hooks.
    fn has_own_hook(&self, root: &Path) -> bool {
        let setup = self.host.setup();
        setup.is_there(root) || Surroundings::look().folder.is_ok_and(|folder| setup.is_there(&folder))
    }

    /// Before a tool: every workspace with a file of this call judges its share. All of them must agree.
    fn before(
        &self,
        call: &Call,
        plan: ToolPlan,
        told: &mut dyn FnMut(&Settings),
    ) -> Result<Option<Value>, CliError> {
        let (home, is_set_up) = self.home_root();
        let runs_at = if prologue::can_run(self.host, call) { self.run_root(&home) } else { None };
        let run = |root: &PathBuf| match &runs_at {
            Some(there) if there == root => RunPlace::Here,
            Some(there) if root.starts_with(there) => RunPlace::Elsewhere,
            _ => RunPlace::Nowhere,
        };
        let shares = Shares::of(plan, (&home, is_set_up), runs_at.as_deref(), &self.home);
        // The settings of the outermost workspace decide about faults: an agent may be able to make a new one below it.
        let mut told = Some(told);
        let mut once = |settings: &Settings| {
            if let Some(told) = told.take() {
                told(settings);
            }
        };
        for (root, paths) in &shares.watched {
            if let Some(Some(answer)) = self.at(root, &mut once, |acting| acting.watched(call, paths))? {
                return Ok(Some(answer));
            }
        }
        let mut agreed: Vec<&Path> = Vec::new();
        let (mut answer, mut changed) = (Ok(None), None);
        for (root, plan) in &shares.own {
            if plan.is_only_suspicious() && !has_state(root) {
                // Nobody has read a file here.
                continue;
            }
            match self.at(root, &mut once, |acting| self.judge(acting, call, plan, run(root))) {
                Ok(None) => agreed.push(root),
                Ok(Some(Judgement::Agreed(input))) => {
                    agreed.push(root);
                    changed = changed.or(input);
                }
                Ok(Some(Judgement::Refused(refused))) => answer = Ok(Some(refused)),
                Err(error) => answer = Err(error),
            }
            if !matches!(answer, Ok(None)) {
                break;
            }
        }
        if !matches!(answer, Ok(None)) {
            for root in agreed {
                // If this fails, the reservation ends with the turn.
                let _ = self.at(root, &mut |_| {}, |acting| acting.take_back(call));
            }
            return answer;
        }
        Ok(changed)
    }

    /// One workspace judges its share of a call.
    fn judge(
        &self,
        acting: &Acting<'_>,
        call: &Call,
        plan: &ToolPlan,
        run: RunPlace,
    ) -> Result<Judgement, CliError> {
        if plan.unreadable && acting.gate.workspace().settings().guard.mode == GuardMode::Enforce {
            let why = format!("the input of `{}` names no file that tollgate can read", call.tool);
            return Err(not_understood(self.host, &why));
        }
        let turn = acting.session.turn(acting.gate, self.heard.turn.as_deref())?;
        let planned = PlannedCall { call, plan, turn: &turn };
        match self.heard.event {
            HookEvent::Unknown(_) => {
                let refused = acting.only_judge(planned)?;
                Ok(refused.map_or(Judgement::Agreed(None), Judgement::Refused))
            }
            _ => acting.before(planned, run),
        }
    }

    /// After a tool: every workspace that has recorded the call settles it.
    fn after(&self, call: &Call, aftermath: &ToolReport) -> Result<Option<Value>, CliError> {
        let (home, is_set_up) = self.home_root();
        let all = self.home.folders_of_turns();
        let mut roots = session::workspaces_of(self.names(), Some(call.id_or_input().as_bytes()), &all);
        if is_set_up && !roots.contains(&home) {
            roots.push(home);
        }
        let mut said: Vec<String> = Vec::new();
        let done = self.everywhere(roots, |acting| {
            said.extend(acting.after(call, aftermath)?);
            Ok(())
        });
        if said.is_empty() {
            return done.map(|()| None);
        }
        Ok(self.host.tell(&said.join("\n"), aftermath))
    }

    /// A turn begins or ends, in every workspace that knows the agent.
    fn around_turns(&self) -> Result<Option<Value>, CliError> {
        let all = self.home.folders_of_turns();
        let mut roots = session::workspaces_of(self.names(), None, &all);
        roots.retain(|root| root.is_dir());
        let (home, _) = self.home_root();
        if !roots.contains(&home) {
            roots.push(home);
        }
        let number = self.heard.turn.as_deref();
        let mut said: Vec<String> = Vec::new();
        self.everywhere(roots, |acting| {
            match &self.heard.event {
                HookEvent::Prompt => {
                    // The turn that ends here is what the agent still remembers.
                    if self.host.tell_at_prompt("").is_some() {
                        let turn = acting.session.any_turn()?;
                        said.extend(turn.and_then(|turn| acting.notes(&turn)));
                    }
                    acting.session.next_turn(acting.gate, number)?;
                }
                // The turn continues: the agent may get more work, and still knows what it has read.
                HookEvent::Stopped => acting.session.settle_all(acting.gate)?,
                HookEvent::Gone => acting.session.close(acting.gate)?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(if said.is_empty() { None } else { self.host.tell_at_prompt(&said.join("\n")) })
    }

    /// Acts in all these workspaces, that of the agent's folder first, even if one of them fails. Returns the first fault.
    fn everywhere(
        &self,
        mut roots: Vec<PathBuf>,
        mut act: impl FnMut(&Acting<'_>) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let (home, _) = self.home_root();
        roots.sort_by_key(|root| *root != home);
        let mut done = Ok(());
        for root in roots {
            done = done.and(self.at(&root, &mut |_| {}, &mut act).map(drop));
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host;

    #[test]
    fn mutated_payloads_are_understood_without_a_panic() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.txt");
        let events = [host::Canary::BeforeRead, host::Canary::AfterRead, host::Canary::BeforeWrite];
        for called in host::ALL {
            let payloads = events.map(|event| called.canary("s", folder.path(), event, &file).to_string());
            tollgate_fuzz::fuzz(called.name(), &payloads, |bytes| {
                if let Ok((host, heard)) = understand(called, bytes) {
                    let home = Invocation::new(Surroundings::look(), GlobalArgs::default());
                    Hook { host, heard, home, is_own: true }.plan();
                }
            });
        }
    }
}
