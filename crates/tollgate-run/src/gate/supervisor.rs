//! The supervisor: the process that starts the command, answers its calls, and stays until its last process has ended.
//!
//! It is the parent of the command, because the kernel lets only ancestors look into a process; and for the same reason it
//! adopts the processes that the command leaves behind. It is not in the process group of the command, so that what is
//! meant for the command does not end it. If it dies all the same, every supervised call fails.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, pidfd_open, pidfd_send_signal,
    set_child_subreaper, setpgid, waitpid,
};

use super::call::{Call, supervised};
use super::closed::ClosedFiles;
use super::files::{Files, Settled};
use super::message::{Ended, SupervisorMessage};
use super::tracee::{Tracee, Viewpoint};
use super::why_not_installed;
use crate::sys::seccomp::{
    CallAnswer, Filter, WaitingCall, before_exec, prefer_same_processor, receive, reply, still_waits,
};
use crate::sys::signals::{BlockedSignals, SENT_TO_PROCESSES, STOPPING};
use crate::{LEVEL_VARIABLE, RunEnd, RunLevel, RunRequest};
use tollgate_base::error::{At, Fault, Result};
use tollgate_guard::gate::Gate;
use tollgate_guard::supervised::SupervisedProgram;

/// How often the supervisor looks for processes that have ended, once the command has. The kernel reports that a filter is
/// not used any more only after their parent has asked for them.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Runs the command to its end, and tells the waiting process about it.
pub(super) fn supervise(gate: &Gate, request: &RunRequest<'_>, waiting: &UnixStream) -> Result<()> {
    let root = gate.workspace().path();
    let view = Viewpoint::new(root).at("look at", root)?;
    let closed = ClosedFiles::new().at("watch", root)?;
    let pass = request.pass.iter().map(|folder| root.join(folder)).collect();
    let program = SupervisedProgram::new(gate, request.turn, RunLevel::Gate.word());
    let mut files = Files::new(program, view, pass, closed);
    set_child_subreaper(Some(getpid())).at("adopt processes for", root)?;
    let (child, listener) = match start(request)? {
        Ok(started) => started,
        Err(end) => {
            let nothing = Settled { reads: Vec::new(), changes: Vec::new() };
            return tell(waiting, Ended::new(root, end, Vec::new(), nothing, false));
        }
    };
    leave_the_terminal().at("leave the process group of", root)?;
    prefer_same_processor(&listener);
    let handle = pidfd_open(child, PidfdFlags::empty()).at("watch the command of", root)?;
    // If the waiting process is gone, the loop notices it.
    let _ = SupervisorMessage::Started(child.as_raw_pid()).send(waiting);
    let mut command = Some(handle);
    let mut waited_for = true;
    loop {
        let ready =
            Ready::wait(&listener, command.as_ref(), waited_for.then_some(waiting)).at("watch", root)?;
        if ready.abandoned {
            waited_for = false;
            // Whoever killed the waiting process meant the command.
            let _ = command.as_ref().map(|command| pidfd_send_signal(command, Signal::KILL));
        }
        if ready.call
            && let Some(call) = receive(&listener).at("supervise", root)?
        {
            answer(&listener, &call, &mut files)?;
        }
        if ready.ended {
            command = None;
            let end = reap(child).at("wait for the command in", root)?;
            reap_others();
            let left_behind = !Ready::wait(&listener, None, None).at("watch", root)?.unused;
            let settled = files.settle(!left_behind)?;
            let _ = tell(waiting, Ended::new(root, end, files.refusals(), settled, left_behind));
            waited_for = false;
        }
        if command.is_none() {
            reap_others();
        }
        if ready.unused && command.is_none() {
            files.settle(true)?;
            return Ok(());
        }
    }
}

fn tell(waiting: &UnixStream, ended: Ended) -> Result<()> {
    SupervisorMessage::Ended(Box::new(ended)).send(waiting).at("report to", "the waiting process")
}

/// What there is to do.
struct Ready {
    /// A call waits for an answer.
    call: bool,
    /// No process uses the filter any more.
    unused: bool,
    /// The command has ended.
    ended: bool,
    /// The process that waits for the command is gone.
    abandoned: bool,
}

impl Ready {
    fn wait(listener: &OwnedFd, command: Option<&OwnedFd>, waiting: Option<&UnixStream>) -> io::Result<Self> {
        let mut sources = vec![PollFd::new(listener, PollFlags::IN)];
        // A socket is readable when the other side has closed it.
        let others = command.map(AsFd::as_fd).into_iter().chain(waiting.map(AsFd::as_fd));
        sources.extend(others.map(|other| PollFd::from_borrowed_fd(other, PollFlags::IN)));
        match poll(&mut sources, command.is_none().then_some(&LOOK)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let events = |at: usize| sources[at].revents();
        let some = |at: usize| !events(at).is_empty();
        Ok(Self {
            call: events(0).contains(PollFlags::IN),
            unused: events(0).contains(PollFlags::HUP),
            ended: command.is_some() && some(1),
            abandoned: waiting.is_some() && some(sources.len() - 1),
        })
    }
}

/// Starts the command under the filter.
fn start(request: &RunRequest<'_>) -> Result<std::result::Result<(Pid, OwnedFd), RunEnd>> {
    let (ours, theirs) = UnixStream::pair().at("make a socket for", "the filter")?;
    let filter = Filter::new(&supervised());
    let (name, arguments) =
        request.command.split_first().ok_or_else(|| Fault::invalid("there is no command"))?;
    let mut command = Command::new(name);
    command.args(arguments).current_dir(&request.folder).env(LEVEL_VARIABLE, RunLevel::Gate.word());
    before_exec(&mut command, move || {
        let (listener, _) = filter.install()?;
        send_listener(&theirs, &listener)
    });
    let spawned = command.spawn();
    let listener = receive_listener(&ours);
    match (spawned, listener) {
        (Ok(child), Some(listener)) => {
            let raw = i32::try_from(child.id()).unwrap_or(0);
            let child = Pid::from_raw(raw).ok_or_else(|| Fault::invalid("the command has no number"))?;
            Ok(Ok((child, listener)))
        }
        (Ok(_), None) => Err(Fault::invalid("the command started without a supervisor")),
        // The filter was installed, so it is the program that could not be started.
        (Err(error), Some(_)) if error.kind() == io::ErrorKind::NotFound => Ok(Err(RunEnd::NotFound)),
        (Err(_), Some(_)) => Ok(Err(RunEnd::NotExecutable)),
        (Err(error), None) => Err(Fault::invalid(why_not_installed(&error))),
    }
}

/// Between `fork` and `exec`: allocates nothing.
fn send_listener(to: &UnixStream, listener: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let handles = [listener.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&handles));
    sendmsg(to, &[IoSlice::new(b"l")], &mut control, SendFlags::empty())?;
    Ok(())
}

fn receive_listener(from: &UnixStream) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut control, flags).ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut handles) => handles.next(),
        _ => None,
    })
}

/// The command has the terminal and the pipes of the caller. The supervisor must not keep them open, or whoever reads them
/// would wait for it.
fn leave_the_terminal() -> io::Result<()> {
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    setpgid(None, None)?;
    let signals: Vec<_> = SENT_TO_PROCESSES.into_iter().chain(STOPPING).collect();
    // Blocked for good.
    BlockedSignals::block(&signals).map(drop)
}

fn answer(listener: &OwnedFd, waiting: &WaitingCall, files: &mut Files<'_>) -> Result<()> {
    let tracee = Tracee::new(waiting.thread);
    let call = Call::read(waiting, &tracee);
    // From here on, the thread is known to be the one that made the call.
    if !still_waits(listener, waiting.id) {
        return Ok(());
    }
    let answer = match call {
        // If tollgate cannot say yes, the answer is no.
        Ok(call) => files.answer(&tracee, &call).unwrap_or(CallAnswer::Fails(libc::EIO)),
        Err(error) if error.raw_os_error() == Some(libc::ENAMETOOLONG) => {
            CallAnswer::Fails(libc::ENAMETOOLONG)
        }
        Err(_) => CallAnswer::Fails(libc::EACCES),
    };
    reply(listener, waiting.id, answer).at("answer", "a system call")
}

fn reap(child: Pid) -> io::Result<RunEnd> {
    let status = waitpid(Some(child), WaitOptions::empty())?;
    Ok(status.map_or(RunEnd::Killed(libc::SIGKILL), |(_, status)| end(status)))
}

fn end(status: WaitStatus) -> RunEnd {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => RunEnd::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        (None, Some(signal)) => RunEnd::Killed(signal),
        (None, None) => RunEnd::Killed(libc::SIGKILL),
    }
}

/// Asks for all processes that have ended.
fn reap_others() {
    while let Ok(Some(_)) = waitpid(None, WaitOptions::NOHANG) {}
}
