//! One call of a hook: from the bytes on stdin to the answer that the agent program understands.
//!
//! Never silently open: whatever goes wrong before a write (a payload that cannot be read, a broken state, a panic, a
//! disk that is too slow) is answered with "blocked, because", inside a deadline that is shorter than the program's. Silent
//! when all is well: an "allow" would skip the question that the user wants to be asked.

pub(crate) mod checkup;
pub(crate) mod event;
mod formatter;
pub(crate) mod patch;
mod plan;
mod process;
mod session;
mod shell;
mod shown;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use tollgate::deadline::Deadline;
use tollgate::digest::Digest;
use tollgate::error::Fault;
use tollgate::gate::{Gate, Named, ToolChange, ToolResult, ToolUse};
use tollgate::guard::{Expected, Outcome, Refused};
use tollgate::path::FilePath;
use tollgate::refusal::ErrorType;
use tollgate::settings::{HookSettings, Mode, OnFault};
use tollgate::shared_turn::{SharedTurn, SharedTurns};
use tollgate::turn::{Extent, FileState, Sightings};
use tollgate::workspace::STATE_FOLDER;

use crate::answer::Stop;
use crate::arguments::Everywhere;
use crate::door::Door;
use crate::host::{self, Host};
use crate::surroundings::Surroundings;
use crate::words;
use event::{Aftermath, Call, Deeds, Event, Heard};
use plan::{Plan, Weight};
use session::{Last, Session, settle_what_is_over};
use shown::{has_word, is_same_text, shown};

/// A payload holds at most the text of a file or two, so this is a program gone wrong.
const LARGEST: usize = 64 << 20;

/// Reads the payload, does what has to be done, and says what to print.
pub(crate) fn answer(called: &'static dyn Host, everywhere: &Everywhere) -> Option<Value> {
    let started = Instant::now();
    let read = read_stdin(started + HookSettings::default().deadline.0);
    let understood = catch_unwind(AssertUnwindSafe(|| {
        let bytes = read.map_err(|what| (called, Weight::Writes, what))?;
        let (host, heard) = understand(called, &bytes)?;
        let hook = Hook { host, heard, everywhere: everywhere.clone() };
        let plan = hook.plan();
        Ok((hook, plan))
    }));
    match understood {
        Ok(Ok((hook, plan))) if plan.weight() == Weight::Harmless => {
            // Nothing is lost if this fails or takes its time.
            catch_unwind(AssertUnwindSafe(|| hook.run(&plan, &mut |_| {}))).ok()?.ok()?
        }
        Ok(Ok((hook, plan))) => {
            let host = hook.host;
            judged(host, started, |settings| hook.run(&plan, settings))
        }
        Ok(Err((host, Weight::Writes, what))) => {
            Some(host.block(&words::hook_fault(&words::bad_payload(host.name(), &what))))
        }
        Ok(Err((_, Weight::Harmless, _))) => None,
        Err(_) => Some(called.block(&words::hook_failed("it panicked"))),
    }
}

/// All that comes on standard input, if it comes in time.
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
            Ok(0) => return Err("it does not end".into()),
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

/// Judges a write so that neither a panic nor a disk that hangs can keep the answer back.
fn judged(
    host: &'static dyn Host,
    started: Instant,
    work: impl FnOnce(&mut dyn FnMut(&HookSettings)) -> Result<Option<Value>, Stop>,
) -> Option<Value> {
    let mut settings = HookSettings::default();
    let blocked = |settings: &HookSettings, reason: &str| {
        (settings.on_fault == OnFault::Block).then(|| host.block(reason))
    };
    let last_words = |settings: &HookSettings| {
        let words = blocked(settings, &words::hook_too_slow(settings.deadline.0));
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
        // Whoever cannot keep a deadline has none to rely on.
        (Ok(Ok(_)), Err(fault)) => words::hook_fault(&fault.into()),
        (Ok(Err(stop)), _) => words::hook_fault(&stop),
        (Err(_), _) => words::hook_failed("it panicked"),
    };
    blocked(&settings, &reason)
}

/// Whose payload it is and what it says; or what is wrong with it, and whether it may be one that matters.
#[allow(clippy::type_complexity, reason = "either understood, or who to answer and how")]
fn understand(
    called: &'static dyn Host,
    bytes: &[u8],
) -> Result<(&'static dyn Host, Heard), (&'static dyn Host, Weight, String)> {
    // Some programs on some systems begin with a byte order mark.
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

/// A call that was understood.
struct Hook {
    host: &'static dyn Host,
    heard: Heard,
    everywhere: Everywhere,
}

impl Hook {
    fn plan(&self) -> Plan {
        let (Event::Before(call) | Event::After(call, _)) = &self.heard.event else { return Plan::default() };
        let mut plan = Plan::default();
        match &call.deeds {
            Deeds::Files(deeds) => deeds.iter().for_each(|deed| plan.add(deed, &self.heard.folder)),
            Deeds::Shell { commands, folder } => {
                plan.shell = true;
                // Afterwards only the words of the command count, and those are looked for in its text.
                if matches!(self.heard.event, Event::Before(_)) {
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

    fn run(&self, plan: &Plan, told: &mut dyn FnMut(&HookSettings)) -> Result<Option<Value>, Stop> {
        match &self.heard.event {
            Event::Other => return Ok(None),
            Event::Before(_) | Event::After(..) if plan.is_empty() => return Ok(None),
            _ => {}
        }
        let surroundings = Surroundings { folder: Ok(self.heard.folder.clone()), ..Surroundings::look() };
        let door = Door::new(surroundings, self.everywhere.clone());
        let gate = door.gate()?;
        let settings = gate.workspace().settings().clone();
        told(&settings.hooks);
        if settings.guard.mode == Mode::Off {
            return Ok(None);
        }
        let turns = door.new_turns()?;
        let names = [self.host.name(), &self.heard.session, self.heard.helper.as_deref().unwrap_or_default()];
        let session = Session::open(&turns, names, door.named_by_environment()?)?;
        note_call(&turns, self.host.name());
        let number = self.heard.turn.as_deref();
        let acting =
            Acting { hook: self, door: &door, gate: &gate, session: &session, settings: &settings.hooks };
        match &self.heard.event {
            Event::Prompt => session.next_turn(&gate, number)?,
            Event::Before(call) => return acting.before(call, plan, &session.turn(&gate, number)?),
            Event::After(call, aftermath) => return acting.after(call, aftermath),
            // The turn itself goes on: the agent may be sent back to work, and still knows what it read.
            Event::Stopped => session.settle_all(&gate)?,
            Event::Gone => session.close(&gate)?,
            Event::Other => {}
        }
        Ok(None)
    }
}

/// Everything that is needed to act for one tool call.
struct Acting<'h> {
    hook: &'h Hook,
    door: &'h Door,
    gate: &'h Gate,
    session: &'h Session<'h>,
    settings: &'h HookSettings,
}

impl Acting<'_> {
    /// The call's name between the hooks: its id, else what is the same before and after.
    fn name_of(&self, call: &Call) -> String {
        let id = match &call.id {
            Some(id) => id.clone(),
            None => format!("{}\0{}", call.tool, call.input),
        };
        self.session.call(id.as_bytes())
    }

    fn before(&self, call: &Call, plan: &Plan, turn: &SharedTurn) -> Result<Option<Value>, Stop> {
        let name = self.name_of(call);
        self.session.settle_done(self.gate, &name)?;
        if plan.reads.is_empty() && plan.changes.is_empty() && !plan.gave_up {
            self.session.leave(&name, turn, None, Vec::new(), self.foreign(plan, turn)?)?;
            return Ok(None);
        }
        let (changes, predicted) = self.changes(call, plan, turn)?;
        let foreign = self.foreign(plan, turn)?;
        for change in &changes {
            formatter::adopt(self.gate.workspace(), self.settings, turn, &change.path)?;
        }
        let tool_use =
            ToolUse { call: name.clone(), tool: call.tool.clone(), reads: plan.reads.clone(), changes };
        let mut outcome = self.gate.pre_tool_use(turn, &tool_use)?;
        if let Outcome::Refused(refused) = &outcome
            && refused.refusals().iter().any(|refusal| refusal.error_type() == ErrorType::FileBusy)
        {
            // Whoever holds the file may be gone without a word.
            settle_what_is_over(self.gate, &self.door.existing_turns()?)?;
            outcome = self.gate.pre_tool_use(turn, &tool_use)?;
        }
        match outcome {
            Outcome::Refused(refused) => Ok(Some(self.hook.host.block(&self.refusal(call, &refused)))),
            Outcome::Done(ticket) => {
                if let Err(fault) = self.session.leave(&name, turn, Some(ticket.clone()), predicted, foreign)
                {
                    // Without a slip nobody would ever end the reservation.
                    let _ = self.gate.post_tool_use(turn, ticket, ToolResult::Failed);
                    return Err(fault.into());
                }
                Ok(None)
            }
        }
    }

    fn refusal(&self, call: &Call, refused: &Refused) -> String {
        let payload = refused.payload();
        let actual = payload.actual_hash.map(|hash| hash.to_string()).unwrap_or_default();
        let again = self.session.was_told(format!("{}\0{}\0{actual}", call.tool, call.input).as_bytes());
        words::hook_refused(self.door, refused, again)
    }

    /// The changes as the gate wants them, each file once, and what they will make of their files.
    #[allow(clippy::type_complexity, reason = "two lists that are made in one pass")]
    fn changes(
        &self,
        call: &Call,
        plan: &Plan,
        turn: &SharedTurn,
    ) -> Result<(Vec<ToolChange>, Vec<(PathBuf, Digest)>), Fault> {
        let (mut changes, mut predicted): (Vec<ToolChange>, Vec<_>) = (Vec::new(), Vec::new());
        for planned in &plan.changes {
            let path = self.gate.workspace().canonical(&planned.path)?;
            let mut add = |path: &FilePath, text: Option<Digest>| {
                let path = path.as_path().to_owned();
                if changes.iter().any(|there| there.path == path) {
                    return;
                }
                predicted.extend(text.map(|text| (path.clone(), text)));
                let (extent, expected) = (planned.extent, Expected::Baseline);
                changes.push(ToolChange { path, extent, expected, predicted: text });
            };
            if path.as_path().is_dir() {
                // A folder that goes away takes with it what the turn knows in there.
                let inside =
                    turn.files()?.into_iter().filter(|(file, _)| file.as_path().starts_with(path.as_path()));
                inside.for_each(|(file, _)| add(&file, None));
                // And what nobody may take away.
                let root = self.gate.workspace().path();
                let protected =
                    host::protected().into_iter().chain([STATE_FOLDER.into()]).map(|file| root.join(file));
                for file in protected.filter(|file| file.exists()) {
                    if file.starts_with(path.as_path()) || path.as_path().starts_with(&file) {
                        add(&self.gate.workspace().canonical(&file)?, None);
                    }
                }
            } else {
                add(&path, planned.digest(path.as_path()));
            }
        }
        if plan.gave_up
            && let Deeds::Shell { commands, .. } = &call.deeds
        {
            for path in turn.files_where(|path| self.is_named(commands, path) == Named::Yes)? {
                let (path, extent) = (path.as_path().to_owned(), Extent::Part);
                if !changes.iter().any(|there| there.path == path) {
                    changes.push(ToolChange { path, extent, expected: Expected::Baseline, predicted: None });
                }
            }
        }
        Ok((changes, predicted))
    }

    /// Files that are named to programs of which we know nothing, and that are not what the turn knows.
    fn foreign(&self, plan: &Plan, turn: &SharedTurn) -> Result<Vec<PathBuf>, Fault> {
        let mut foreign = Vec::new();
        for named in &plan.named {
            let Ok(path) = self.gate.workspace().canonical(named) else { continue };
            if let Some(sighting) = turn.get(&path)?
                && let Some(known) = sighting.baseline(Extent::Whole).digest()
                && std::fs::read(path.as_path()).is_ok_and(|bytes| Digest::of(&bytes) != known)
            {
                foreign.push(path.as_path().to_owned());
            }
        }
        Ok(foreign)
    }

    fn after(&self, call: &Call, aftermath: &Aftermath) -> Result<Option<Value>, Stop> {
        let Some((slip, since)) = self.session.take(&self.name_of(call))? else { return Ok(None) };
        // It may have been begun in a turn that is over.
        let turn = match self.session.turn_of(&slip)? {
            Some(turn) => turn,
            None => self.session.turn(self.gate, self.hook.heard.turn.as_deref())?,
        };
        let is_shell = matches!(call.deeds, Deeds::Shell { .. });
        let (mut own, mut read) = (BTreeSet::new(), BTreeSet::new());
        let mut lost = None;
        if let Some(mut ticket) = slip.ticket {
            own.extend(ticket.changes().map(|(path, _)| path.to_owned()));
            lost = aftermath.replaced.as_ref().and_then(|(path, text)| {
                let path = self.gate.workspace().canonical(self.hook.heard.folder.join(path)).ok()?;
                let (_, before) = ticket.changes().find(|(there, _)| *there == path.as_path())?;
                let slipped_in = match before {
                    FileState::Present(digest) => !is_same_text(&turn.text(digest).ok()??, text),
                    FileState::Absent => true,
                    FileState::Unreadable => false,
                };
                slipped_in.then_some((path, before, text))
            });
            ticket.judge_reads(|path, planned| {
                // A file that is only read is not changed by that.
                read.insert(path.to_owned());
                shown(&aftermath.shown, path, planned)
            });
            // A shell that fails has often done something before.
            let failed = aftermath.failed && !is_shell;
            let result = if failed { ToolResult::Failed } else { ToolResult::Succeeded };
            self.gate.post_tool_use(&turn, ticket, result)?;
        }
        if let Deeds::Shell { commands, .. } = &call.deeds {
            // Nearly all of them are as they were, and then one look at the time is all they cost.
            let changed = turn.files_where(|path| since.last_changed(path) != Last::Before)?;
            let mut files: Vec<(FilePath, Named)> = Vec::new();
            for path in changed.into_iter().filter(|path| !own.contains(path.as_path())) {
                let foreign = since.last_changed(path.as_path()) == Last::Near
                    || read.contains(path.as_path())
                    || slip.foreign.iter().any(|there| there == path.as_path());
                let named = if foreign { Named::No } else { self.is_named(commands, path.as_path()) };
                files.push((path, named));
            }
            self.gate.look_again(&turn, &call.tool, &files)?;
        }
        let Some((path, before, text)) = lost else { return Ok(None) };
        // If it cannot be kept, the agent is told all the same.
        let kept = self.gate.keep_overwritten(&turn, &path, before, text.as_bytes()).ok();
        Ok(self.hook.host.tell(&words::hook_lost(self.door, &path, text, kept.as_deref())))
    }

    /// Whether a command names a file, in whatever language is inside of it.
    fn is_named(&self, commands: &[String], path: &Path) -> Named {
        let root = self.gate.workspace().path();
        let spellings =
            [Some(path), path.strip_prefix(root).ok(), path.strip_prefix(&self.hook.heard.folder).ok()];
        let names = |text: &str| {
            spellings.iter().flatten().filter_map(|path| path.to_str()).any(|word| has_word(text, word))
                || path.file_name().and_then(|name| name.to_str()).is_some_and(|name| has_word(text, name))
        };
        if commands.iter().any(|text| names(text)) { Named::Yes } else { Named::No }
    }
}

/// Leaves word for the doctor that this program calls us.
fn note_call(turns: &SharedTurns, host: &str) {
    let folder = turns.folder().join("called");
    let path = folder.join(host);
    let now = std::time::SystemTime::now();
    let recent = |found: std::fs::Metadata| {
        found
            .modified()
            .is_ok_and(|then| now.duration_since(then).is_ok_and(|age| age < Duration::from_secs(60)))
    };
    // Once a minute is enough.
    if !std::fs::metadata(&path).is_ok_and(recent) {
        let _ = std::fs::create_dir_all(&folder);
        let _ = std::fs::write(&path, "");
    }
}

/// When this program last called us here.
fn last_called(turns: &SharedTurns, host: &str) -> Option<std::time::SystemTime> {
    std::fs::metadata(turns.folder().join("called").join(host)).ok()?.modified().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> &'static dyn Host {
        host::ALL[0]
    }

    fn blocked(answer: Option<Value>) -> String {
        answer.expect("blocked").to_string()
    }

    #[test]
    fn a_panic_blocks_a_write() {
        let answer = judged(host(), Instant::now(), |_| std::panic::panic_any("as if something were wrong"));
        assert!(blocked(answer).contains("panicked"));
    }

    #[test]
    fn a_setting_lets_through_what_cannot_be_judged() {
        let answer = judged(host(), Instant::now(), |told| {
            told(&HookSettings { on_fault: OnFault::Allow, ..HookSettings::default() });
            Err(Fault::Missing { what: "something".into() }.into())
        });
        assert_eq!(answer, None);
    }
}
