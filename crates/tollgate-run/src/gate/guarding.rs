//! Guarding a command: starts it under the filter, answers its calls, and stays until its last process has ended.
//!
//! The process that does this is the parent of the command, because the kernel lets only ancestors look into a process; and
//! for the same reason it adopts the processes that the command leaves behind. It leaves the process group of the command, so
//! that what is meant for the command does not end it. If it dies all the same, the command dies, and every supervised call
//! of what the command has started fails.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::RecvFlags;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, chdir, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal, setsid, waitpid,
};

use super::call::{SystemCall, supervised};
use super::files::{Files, LearnedFiles};
use super::remembered::CommandMemory;
use super::tracee::Tracee;
use super::why_not::{may_not_look, why_not_installed};
use crate::descriptors;
use crate::door::{self, FOLDER_VARIABLE};
use crate::level::{LEVEL_VARIABLE, RunLevel};
use crate::outcome::{AfterRun, ChangedFile, LevelAttempt, ReadFile, RunEnd, RunNote, RunOutcome};
use crate::request::{ReadsCount, RunRequest};
use crate::supervisor::Supervisor;
use crate::sys;
use crate::sys::seccomp::{
    CallAnswer, DoorOfRun, Filter, Interruptible, WaitingCall, prefer_same_processor, receive, reply,
    still_waits,
};
use tollgate_base::error::{At, Result};
use tollgate_guard::gate::Gate;
use tollgate_guard::run_folder::RunFolder;
use tollgate_guard::turn::TurnState;

/// How often to ask for processes that have ended, once the command has. The kernel reports that nobody uses a filter any more
/// only after their parent has asked for them.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// A command under guard, with all processes that it has started.
struct Guarding {
    listener: OwnedFd,
    memory: CommandMemory,
    folder: RunFolder,
    /// Why tollgate could not judge a call. The call has failed.
    fault: Option<String>,
}

/// What came of starting a command.
enum Start {
    Started(Child, OwnedFd, Interruptible),
    /// The program could not be executed.
    NotExecuted(io::Error),
    NotPossible(String),
}

/// Runs a command at this level.
pub(crate) fn run(gate: &Gate, request: &RunRequest<'_>) -> Result<LevelAttempt> {
    let root = gate.workspace().path();
    if let Some(why) = may_not_look() {
        return Ok(LevelAttempt::NotPossible(why));
    }
    let mut memory = CommandMemory::new(root, &request.pass).at("look at", root)?;
    let folder = RunFolder::create(gate.workspace())?;
    let door = door::socket::open(folder.path()).ok();
    let (mut child, listener) =
        match start(request, folder.path(), door.as_ref().map_or(DoorOfRun::Missing, |_| DoorOfRun::Open))? {
            Start::Started(child, listener, interruptible) => {
                memory.calls_are(interruptible);
                (child, listener)
            }
            Start::NotExecuted(error) => {
                folder.remove()?;
                return Ok(LevelAttempt::Ran(RunOutcome::not_started(
                    RunLevel::Gate,
                    &request.command[0],
                    &error,
                )));
            }
            Start::NotPossible(why) => {
                folder.remove()?;
                return Ok(LevelAttempt::NotPossible(why));
            }
        };
    if let Some(supervisor) = request.supervisor {
        supervisor.started(child.id(), door.as_ref());
        // A session of its own, and not only a process group: if the parent of a process is in another group of the same session,
        // the kernel hangs up the whole group when that process ends and another one of the group is stopped.
        setsid().at("leave", "the session of the command")?;
    }
    prefer_same_processor(&listener);
    let mut guarding = Guarding { listener, memory, folder, fault: None };
    guarding.until_the_command_ends(gate, request, &child)?;
    let status = child.wait().at("wait for", "the command")?;
    let end = match (status.code(), status.signal()) {
        (Some(code), _) => RunEnd::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        (None, signal) => RunEnd::Killed(signal.unwrap_or(0)),
    };
    guarding.end(gate, request, end).map(LevelAttempt::Ran)
}

impl Guarding {
    fn until_the_command_ends(&mut self, gate: &Gate, request: &RunRequest<'_>, child: &Child) -> Result<()> {
        let command = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).at("watch", "the command")?;
        let mut front = request.supervisor.map(Supervisor::outlive_front).transpose()?;
        loop {
            let mut sources =
                vec![PollFd::new(&self.listener, PollFlags::IN), PollFd::new(&command, PollFlags::IN)];
            // Without a front, nothing is reported but an error.
            sources.extend(front.map(|front| PollFd::new(front, PollFlags::empty())));
            wait(&mut sources, None)?;
            let ready: Vec<PollFlags> = sources.iter().map(PollFd::revents).collect();
            if ready[0].contains(PollFlags::IN) {
                self.answer_one(gate, request.turn)?;
            }
            if ready.get(2).is_some_and(|front| !front.is_empty()) {
                front = None;
                // The signal that killed the process in front was meant for the command.
                let _ = pidfd_send_signal(&command, Signal::KILL);
            }
            if !ready[1].is_empty() {
                return Ok(());
            }
        }
    }

    /// The outcome of the command, with what is known of it when it has ended.
    fn end(mut self, gate: &Gate, request: &RunRequest<'_>, end: RunEnd) -> Result<RunOutcome> {
        let root = gate.workspace().path();
        reap();
        let is_used = !self.wait_for_a_call(Some(&Timespec::default()))?.contains(PollFlags::HUP);
        let mut files = Files::new(gate, request.turn, &mut self.memory);
        let LearnedFiles { reads, changes } =
            files.settle(!is_used, (request.reads_count, &request.named_files()))?;
        let refused = files.refused();
        let fault = self.fault.take().map(RunNote::NotJudged);
        let relative = |path: &Path| path.strip_prefix(root).unwrap_or(path).to_owned();
        let reads =
            reads.iter().map(|(path, state)| ReadFile { path: relative(path), sha256: state.digest() });
        let writes = changes.iter().map(|made| ChangedFile {
            path: relative(made.path.as_path()),
            before: made.before.digest(),
            after: made.after.digest(),
            link: false,
        });
        Ok(RunOutcome {
            level: RunLevel::Gate,
            end,
            refused,
            reads: reads.collect(),
            writes: writes.collect(),
            notes: is_used.then_some(RunNote::StillGuarded).into_iter().chain(fault).collect(),
            after: match is_used {
                true => AfterRun::of(|gate, turn| self.finish(gate, turn)),
                false => AfterRun::of(|_, _| self.folder.remove()),
            },
        })
    }

    /// Guards what the command has left behind, until the last of it ends.
    fn finish(mut self, gate: &Gate, turn: &dyn TurnState) -> Result<()> {
        loop {
            let ready = self.wait_for_a_call(Some(&LOOK))?;
            if ready.contains(PollFlags::IN) {
                self.answer_one(gate, turn)?;
            } else if ready.contains(PollFlags::HUP) {
                // What it read, the agent does not get to see.
                Files::new(gate, turn, &mut self.memory)
                    .settle(true, (ReadsCount::Later, &HashSet::new()))?;
                return self.folder.remove();
            }
            reap();
        }
    }

    fn wait_for_a_call(&self, limit: Option<&Timespec>) -> Result<PollFlags> {
        let mut sources = [PollFd::new(&self.listener, PollFlags::IN)];
        wait(&mut sources, limit)?;
        Ok(sources[0].revents())
    }

    fn answer_one(&mut self, gate: &Gate, turn: &dyn TurnState) -> Result<()> {
        let Some(call) = receive(&self.listener).at("guard", "the command")? else { return Ok(()) };
        let mut files = Files::new(gate, turn, &mut self.memory);
        let Some(answer) = answer(&self.listener, &call, &mut files) else { return Ok(()) };
        let answer = answer.unwrap_or_else(|fault| {
            // If tollgate cannot say yes, the answer is no.
            self.fault.get_or_insert(fault.to_string());
            CallAnswer::Fails(libc::EIO)
        });
        reply(&self.listener, call.id, answer).at("answer", "a system call")
    }
}

/// The answer to a call. `None` if nobody waits for it any more.
fn answer(listener: &OwnedFd, waiting: &WaitingCall, files: &mut Files<'_>) -> Option<Result<CallAnswer>> {
    let tracee = Tracee::new(waiting.thread);
    let call = SystemCall::read(waiting, &tracee);
    // Otherwise another thread may have this number by now.
    if !still_waits(listener, waiting.id) {
        return None;
    }
    Some(match call {
        Ok(call) => files.answer(&tracee, &call),
        Err(error) if error.raw_os_error() == Some(libc::ENAMETOOLONG) => {
            Ok(CallAnswer::Fails(libc::ENAMETOOLONG))
        }
        Err(_) => Ok(CallAnswer::Fails(libc::EACCES)),
    })
}

fn wait(sources: &mut [PollFd<'_>], limit: Option<&Timespec>) -> Result<()> {
    match poll(sources, limit) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error).at("guard", "the command"),
    }
}

/// Starts the command under the filter.
fn start(request: &RunRequest<'_>, run: &Path, door: DoorOfRun) -> Result<Start> {
    let (ours, theirs) = UnixStream::pair().at("open", "a socket")?;
    let filter = Filter::new(&supervised(), door);
    let (mask, folder) = (request.supervisor.map(Supervisor::mask), request.folder.clone());
    let (program, arguments) = request.program();
    let mut command = Command::new(program);
    command.args(arguments).env(LEVEL_VARIABLE, RunLevel::Gate.word()).env(FOLDER_VARIABLE, run);
    sys::before_exec(&mut command, move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        chdir(&folder)?;
        if let Some(mask) = &mask {
            mask.set()?;
        }
        let (listener, interruptible) = filter.install()?;
        send_listener(&theirs, &listener, interruptible)
    });
    let spawned = command.spawn();
    // With the other end of the socket.
    drop(command);
    Ok(match (spawned, receive_listener(&ours)) {
        (Ok(child), Some((listener, interruptible))) => Start::Started(child, listener, interruptible),
        // The filter was installed, so it is the program that could not be executed.
        (Err(error), Some(_)) => Start::NotExecuted(error),
        (Err(error), None) => Start::NotPossible(why_not_installed(&error)),
        (Ok(mut child), None) => {
            // All its calls fail, because nobody answers them.
            child.kill().at("end", "the command")?;
            Start::NotPossible("the command started without a supervisor".to_owned())
        }
    })
}

/// Between `fork` and `exec`: allocates nothing.
fn send_listener(to: &UnixStream, listener: &OwnedFd, interruptible: Interruptible) -> io::Result<()> {
    descriptors::send(to, &[u8::from(interruptible == Interruptible::Yes)], &[listener.as_fd()])
}

fn receive_listener(from: &UnixStream) -> Option<(OwnedFd, Interruptible)> {
    let mut byte = [0];
    let (_, files) = descriptors::receive(from, &mut byte, RecvFlags::DONTWAIT).ok()?;
    let interruptible = if byte == [0] { Interruptible::No } else { Interruptible::Yes };
    Some((files.into_iter().next()?, interruptible))
}

/// Asks for all processes that have ended.
fn reap() {
    while let Ok(Some(_)) = waitpid(None, WaitOptions::NOHANG) {}
}
