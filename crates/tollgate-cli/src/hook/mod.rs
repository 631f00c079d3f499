//! One call of a hook: from the bytes on stdin to an answer in the format of the agent program.
//!
//! If anything goes wrong before a write (an unreadable payload, a damaged state, a panic, a slow disk), the answer blocks the
//! write and says why, within a deadline that is shorter than the program's. If the call may proceed, there is no answer: an
//! "allow" would suppress the program's own question to the user.
//!
//! Data flows one way: `plan` (which files?) -> `acting` (settle old calls, judge this one) -> `session` -> `settle` ->
//! `pending_call`.

mod acting;
pub(crate) mod checkup;
mod formatter;
mod last_call;
mod pending_call;
mod plan;
mod process;
mod session;
mod settle;
mod shell;
mod shown;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use serde_json::Value;
use tollgate::settings::{GuardMode, HookSettings, OnFault};
use tollgate_base::sys::Deadline;

use crate::error::{CliError, UsageError};
use crate::global_args::GlobalArgs;
use crate::host::event::{Deeds, Heard, HookEvent};
use crate::host::{self, Host};
use crate::invocation::Invocation;
use crate::surroundings::Surroundings;
use crate::words;
use acting::Acting;
use plan::{Plan, Weight};
use session::Session;

/// The largest payload. A payload has the text of one or two files, so a larger one is a mistake of the program.
const LARGEST: usize = 64 << 20;

/// Reads the payload, acts on it, and returns what to print.
pub(crate) fn answer(called: &'static dyn Host, global: &GlobalArgs) -> Option<Value> {
    let started = Instant::now();
    let read = read_stdin(started + HookSettings::default().deadline.0);
    let understood = catch_unwind(AssertUnwindSafe(|| {
        let bytes = read.map_err(|what| (called, Weight::Writes, what))?;
        let (host, heard) = understand(called, &bytes)?;
        let hook = Hook { host, heard, global: global.clone() };
        let plan = hook.plan();
        Ok((hook, plan))
    }));
    match understood {
        Ok(Ok((Hook { host, .. }, Plan { people_only: Some(command), .. }))) => {
            Some(host.block(&words::hook_people_only(&command)))
        }
        Ok(Ok((hook, plan))) if plan.weight() == Weight::Harmless => {
            // If this fails or takes long, no update is lost.
            catch_unwind(AssertUnwindSafe(|| hook.run(&plan, &mut |_| {}))).ok()?.ok()?
        }
        Ok(Ok((hook, plan))) => {
            let host = hook.host;
            judged(host, started, |settings| hook.run(&plan, settings))
        }
        Ok(Err((host, Weight::Writes, what))) => {
            Some(host.block(&words::hook_fault(&UsageError::BadPayload { host: host.name(), what }.into())))
        }
        Ok(Err((_, Weight::Harmless, _))) => None,
        Err(_) => Some(called.block(&words::hook_fault(&UsageError::HookFailed("it panicked").into()))),
    }
}

/// Everything on stdin, if it ends before the deadline.
fn read_stdin(deadline: Instant) -> Result<Vec<u8>, String> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdin = rustix::stdio::stdin();
    let mut bytes = Vec::with_capacity(8 << 10);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err("its end did not arrive in time".into()),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.to_string()),
        }
        let mut chunk = [0; 16 << 10];
        match rustix::io::read(stdin, &mut chunk) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.to_string()),
        }
        if bytes.len() > LARGEST {
            return Err("it is larger than 64 MiB".into());
        }
    }
}

/// Judges a write. A panic or a hanging disk cannot prevent the answer.
fn judged(
    host: &'static dyn Host,
    started: Instant,
    work: impl FnOnce(&mut dyn FnMut(&HookSettings)) -> Result<Option<Value>, CliError>,
) -> Option<Value> {
    let mut settings = HookSettings::default();
    let blocked = |settings: &HookSettings, reason: &str| {
        (settings.on_fault == OnFault::Block).then(|| host.block(reason))
    };
    let last_words = |settings: &HookSettings| {
        let words =
            blocked(settings, &words::hook_fault(&UsageError::HookTooSlow(settings.deadline.0).into()));
        let words = words.map(|words| format!("{words}\n").into_bytes()).unwrap_or_default();
        (settings.deadline.0.saturating_sub(started.elapsed()), words)
    };
    let (wait, words) = last_words(&settings);
    let mut deadline = Deadline::set(wait, words);
    let told = &mut |read: &HookSettings| {
        if (read.deadline, read.on_fault) != (settings.deadline, settings.on_fault)
            && let Ok(set) = &mut deadline
        {
            let (wait, words) = last_words(read);
            if let Err(fault) = set.change(wait, words) {
                deadline = Err(fault);
            }
        }
        settings = read.clone();
    };
    let answer = catch_unwind(AssertUnwindSafe(|| work(told)));
    let reason = match (answer, deadline) {
        (Ok(Ok(answer)), Ok(_)) => return answer,
        // The deadline could not be set, so the answer may have come too late.
        (Ok(Ok(_)), Err(fault)) => words::hook_fault(&fault.into()),
        (Ok(Err(error)), _) => words::hook_fault(&error),
        (Err(_), _) => words::hook_fault(&UsageError::HookFailed("it panicked").into()),
    };
    blocked(&settings, &reason)
}

/// The program that sent the payload, and the event in it; or the program to answer, the weight of a mistake, and the error.
#[allow(clippy::type_complexity, reason = "a success of two parts, or a failure of three")]
fn understand(
    called: &'static dyn Host,
    bytes: &[u8],
) -> Result<(&'static dyn Host, Heard), (&'static dyn Host, Weight, String)> {
    // Some programs on some systems send a byte order mark first.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let weight = |host: &dyn Host| {
        let beginning = String::from_utf8_lossy(&bytes[..bytes.len().min(1 << 20)]);
        if host.may_be_before_a_tool(&beginning) { Weight::Writes } else { Weight::Harmless }
    };
    let payload: Value =
        serde_json::from_slice(bytes).map_err(|error| (called, weight(called), error.to_string()))?;
    let host = host::recognise(&payload, called);
    host.hear(&payload).map(|heard| (host, heard)).map_err(|what| (host, weight(host), what))
}

/// A parsed call of a hook.
struct Hook {
    host: &'static dyn Host,
    heard: Heard,
    global: GlobalArgs,
}

impl Hook {
    fn plan(&self) -> Plan {
        let (HookEvent::Before(call) | HookEvent::After(call, _)) = &self.heard.event else {
            return Plan::default();
        };
        let mut plan = Plan::default();
        match &call.deeds {
            Deeds::Files(deeds) => deeds.iter().for_each(|deed| plan.add(deed, &self.heard.folder)),
            Deeds::Shell { commands, folder } => {
                plan.shell = true;
                // After the tool only the names in the command's text count, and they need no parser.
                if matches!(self.heard.event, HookEvent::Before(_)) {
                    let folder = folder
                        .as_ref()
                        .map_or(self.heard.folder.clone(), |folder| self.heard.folder.join(folder));
                    for command in commands {
                        plan.follow(shell::effects(command, &folder, Surroundings::home().as_deref()));
                    }
                }
            }
        }
        plan
    }

    fn run(&self, plan: &Plan, told: &mut dyn FnMut(&HookSettings)) -> Result<Option<Value>, CliError> {
        match &self.heard.event {
            HookEvent::Other => return Ok(None),
            HookEvent::Before(_) | HookEvent::After(..) if plan.is_empty() => return Ok(None),
            _ => {}
        }
        let surroundings = Surroundings { folder: Ok(self.heard.folder.clone()), ..Surroundings::look() };
        let invocation = Invocation::new(surroundings, self.global.clone());
        let gate = invocation.gate()?;
        let settings = gate.workspace().settings().clone();
        told(&settings.hooks);
        if settings.guard.mode == GuardMode::Off {
            return Ok(None);
        }
        let turns = invocation.new_turns()?;
        let names =
            [self.host.name(), &self.heard.session, self.heard.subagent.as_deref().unwrap_or_default()];
        let session = Session::open(&turns, names, invocation.named_by_environment()?)?;
        last_call::note(&turns, self.host.name());
        let number = self.heard.turn.as_deref();
        let acting = Acting {
            host: self.host,
            heard: &self.heard,
            invocation: &invocation,
            gate: &gate,
            session: &session,
            settings: &settings.hooks,
        };
        match &self.heard.event {
            HookEvent::Prompt => session.next_turn(&gate, number)?,
            HookEvent::Before(call) => return acting.before(call, plan, &session.turn(&gate, number)?),
            HookEvent::After(call, aftermath) => return acting.after(call, aftermath),
            // The turn continues: the agent may get more work, and still knows what it has read.
            HookEvent::Stopped => session.settle_all(&gate)?,
            HookEvent::Gone => session.close(&gate)?,
            HookEvent::Other => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use tollgate::error::Fault;

    use super::*;

    fn host() -> &'static dyn Host {
        host::ALL[0]
    }

    fn blocked(answer: Option<Value>) -> String {
        answer.expect("blocked").to_string()
    }

    #[test]
    fn a_panic_blocks_a_write() {
        let answer = judged(host(), Instant::now(), |_| std::panic::panic_any("a mistake in tollgate"));
        assert!(blocked(answer).contains("panicked"));
    }

    #[test]
    fn a_setting_allows_writes_that_cannot_be_judged() {
        let answer = judged(host(), Instant::now(), |told| {
            told(&HookSettings { on_fault: OnFault::Allow, ..HookSettings::default() });
            Err(Fault::Missing { what: "something".into() }.into())
        });
        assert_eq!(answer, None);
    }
}
