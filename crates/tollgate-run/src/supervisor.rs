//! The two processes of a run.
//!
//! The process that the caller knows, in **front**, waits for the end of the run, passes signals on to the command, and
//! starts what `tollgate` inside the run asks for at its [`door`](crate::door). The
//! **supervisor** behind it runs the command and commits its changes. So the front can end with the command, while the
//! supervisor waits for processes that the command has left behind.
//!
//! If the front is killed, the supervisor and the command die with it, and nothing is committed. If the supervisor is
//! killed, the command dies with it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::RecvFlags;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open, set_child_subreaper,
    set_parent_process_death_signal,
};

use crate::descriptors;
use crate::outcome::RunEnd;
use crate::sys::{self, SignalMask};
use tollgate_base::error::{At, Fault, Result};

/// What a process is after [`split`].
pub enum Side {
    /// The front, after the run has ended with this. `None`: the supervisor has died.
    Front(Option<RunEnd>),
    /// The supervisor, which has the run before it.
    Supervisor(Supervisor),
}

/// The process that runs the command.
pub struct Supervisor {
    to_front: UnixStream,
    mask: SignalMask,
}

/// The signals that other processes send to a command to make it do something.
const PASSED_ON: [libc::c_int; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// The supervisor stays awake when the terminal stops the command and the front.
const OF_TERMINAL: [libc::c_int; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// The number of calls through the door at the same time. Others wait: a command must not fill the machine with processes that
/// are not its own.
const MOST_CARRIED: usize = 64;

const STARTED: u8 = b's';
const EXITED: u8 = b'e';
const KILLED: u8 = b'k';

/// Splits this process, which must have one thread only. The front starts `carry` for each call at the door of the run, with the
/// connection as its standard input.
pub fn split(carry: &dyn Fn() -> Command) -> Result<Side> {
    let (from, to) = UnixStream::pair().at("open", "a socket")?;
    let mask = sys::block(&PASSED_ON).at("block", "signals")?;
    let front = getpid();
    match sys::fork().at("start", "a process")? {
        Some(supervisor) => {
            drop(to);
            let end = Front { from, supervisor, mask, carry, door: None, carried: Vec::new() }.wait();
            drop(mask.set());
            Ok(Side::Front(end.at("wait for", "the supervisor")?))
        }
        None => {
            drop(from);
            let all: Vec<libc::c_int> = PASSED_ON.iter().chain(&OF_TERMINAL).copied().collect();
            sys::block(&all).at("block", "signals")?;
            set_parent_process_death_signal(Some(Signal::KILL)).at("watch", "the front")?;
            if getppid() != Some(front) {
                return Err(Fault::invalid("the process in front has died"));
            }
            // The processes that the command leaves behind become children of this one.
            set_child_subreaper(Some(getpid())).at("watch", "the command")?;
            Ok(Side::Supervisor(Supervisor { to_front: to, mask }))
        }
    }
}

/// Lets a command run in this folder, with the signals blocked that this process blocked when it started.
pub(crate) fn prepare(command: &mut Command, folder: &Path, supervisor: Option<&Supervisor>) {
    let (mask, folder) = (supervisor.map(Supervisor::mask), folder.to_owned());
    sys::before_exec(command, move || {
        rustix::process::chdir(&folder)?;
        mask.as_ref().map_or(Ok(()), |mask| mask.set().map(drop))
    });
}

/// Ends this process as its command was ended by a signal.
pub fn die_by(signal: i32) {
    sys::die_by(signal);
}

impl Supervisor {
    /// The signals that the command blocks: those that this process blocked when it started.
    pub(crate) fn mask(&self) -> SignalMask {
        self.mask
    }

    /// From now on, the front passes signals on to the command, and keeps this door. A sandbox may forbid to have one.
    pub(crate) fn started(&self, pid: u32, door: Option<&OwnedFd>) {
        let mut message = [STARTED, 0, 0, 0, 0];
        message[1..].copy_from_slice(&pid.to_ne_bytes());
        // If the front is dead, so is this process.
        let _ = match door {
            Some(door) => descriptors::send(&self.to_front, &message, &[door.as_fd()]),
            None => descriptors::send(&self.to_front, &message, &[]),
        };
    }

    /// From now on, this process outlives a front that is killed. It learns of that from this descriptor, which reports an error
    /// then.
    pub(crate) fn outlive_front(&self) -> Result<&UnixStream> {
        set_parent_process_death_signal(None).at("leave", "the front")?;
        Ok(&self.to_front)
    }

    /// Lets the front end. Nothing ties this process to it any more.
    pub fn let_front_end(self, end: RunEnd) -> Result<()> {
        set_parent_process_death_signal(None).at("leave", "the front")?;
        let (kind, value) = match end {
            RunEnd::Killed(signal) => (KILLED, u8::try_from(signal).unwrap_or(0)),
            end => (EXITED, end.code()),
        };
        let _ = (&self.to_front).write_all(&[kind, value, 0, 0, 0]);
        Ok(())
    }
}

/// The process in front.
struct Front<'a> {
    from: UnixStream,
    supervisor: Pid,
    /// The signals that this process blocked when it started.
    mask: SignalMask,
    carry: &'a dyn Fn() -> Command,
    door: Option<UnixListener>,
    carried: Vec<Carried>,
}

/// A call that came through the door.
struct Carried {
    child: Child,
    ended: OwnedFd,
    connection: UnixStream,
}

impl Front<'_> {
    /// Waits for the end of the run.
    fn wait(mut self) -> io::Result<Option<RunEnd>> {
        let mut signals = File::from(sys::signal_reader(&PASSED_ON)?);
        let mut command: Option<Pid> = None;
        let mut early = Vec::new();
        loop {
            let [signalled, told, knocked] = self.poll(&signals)?;
            if signalled {
                let mut info = [0; 128];
                signals.read_exact(&mut info)?;
                let number =
                    |at: usize| i32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
                // A positive code is the kernel's: the terminal has sent the signal to the command, too.
                if number(8) <= 0 {
                    early.extend(Signal::from_named_raw(number(0)));
                }
            }
            if told {
                let mut message = [0; 5];
                let (read, files) = descriptors::receive(&self.from, &mut message, RecvFlags::WAITALL)?;
                if read != message.len() {
                    return Ok(None);
                }
                let [kind, value, ..] = message;
                match kind {
                    EXITED => return Ok(Some(RunEnd::Exited(value))),
                    KILLED => return Ok(Some(RunEnd::Killed(i32::from(value)))),
                    _ => {
                        let pid = i32::from_ne_bytes([message[1], message[2], message[3], message[4]]);
                        command = Pid::from_raw(pid);
                        self.door = files.into_iter().next().map(UnixListener::from);
                    }
                }
            }
            if knocked && let Some(Ok((connection, _))) = self.door.as_ref().map(UnixListener::accept) {
                // A call that cannot be started, or that is not for this run: the connection ends without an answer.
                self.carried.extend(self.is_own(&connection).then(|| self.start(connection).ok()).flatten());
            }
            self.end_carried();
            if let Some(pid) = command {
                // The command may have ended.
                for signal in early.drain(..) {
                    let _ = kill_process(pid, signal);
                }
            }
        }
    }

    /// Waits until something happens: a signal, a message of the supervisor, a call at the door, the end of a call.
    fn poll(&self, signals: &File) -> io::Result<[bool; 3]> {
        let watched = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut ready = vec![watched(signals.as_fd()), watched(self.from.as_fd())];
        let door = self.door.as_ref().filter(|_| self.carried.len() < MOST_CARRIED);
        ready.extend(door.map(|door| watched(door.as_fd())));
        for call in &self.carried {
            ready.push(watched(call.ended.as_fd()));
            // A caller that has died is reported, whatever is asked for.
            ready.push(PollFd::from_borrowed_fd(call.connection.as_fd(), PollFlags::empty()));
        }
        match poll(&mut ready, None) {
            Err(rustix::io::Errno::INTR) => return Ok([false; 3]),
            answer => answer?,
        };
        let is = |at: usize| !ready[at].revents().is_empty();
        Ok([is(0), is(1), door.is_some() && is(2)])
    }

    /// Whether a process of this run calls. Commands of other runs see the door, too, and have another agent. What a command leaves
    /// behind becomes a child of the supervisor.
    fn is_own(&self, connection: &UnixStream) -> bool {
        let mut process = socket_peercred(connection).ok().map(|peer| peer.pid);
        while process.is_some_and(|process| process != self.supervisor) {
            process = process.and_then(parent);
        }
        process.is_some()
    }

    /// Starts the process that carries a call out.
    fn start(&self, connection: UnixStream) -> io::Result<Carried> {
        let mask = self.mask;
        let mut command = (self.carry)();
        command.stdin(OwnedFd::from(connection.try_clone()?));
        sys::before_exec(&mut command, move || {
            // What the run asked for ends with the run.
            set_parent_process_death_signal(Some(Signal::KILL))?;
            mask.set().map(drop)
        });
        let child = command.spawn()?;
        let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        Ok(Carried { child, ended, connection })
    }

    /// Passes on the exit codes of the calls that have ended, and ends those whose callers have died.
    fn end_carried(&mut self) {
        self.carried.retain_mut(|call| match call.child.try_wait() {
            Ok(None) => {
                if is_closed(&call.connection) {
                    let _ = call.child.kill();
                }
                true
            }
            Ok(Some(status)) => {
                let killed = status.signal().map(|signal| signal + 128);
                let code = status.code().or(killed).and_then(|code| u8::try_from(code).ok());
                let _ = call.connection.write_all(&[code.unwrap_or(u8::MAX)]);
                false
            }
            Err(_) => false,
        });
    }
}

fn parent(process: Pid) -> Option<Pid> {
    let stat = std::fs::read(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    // The name of the program is in brackets, and may have any bytes.
    let stat = String::from_utf8_lossy(&stat);
    let (_, rest) = stat.rsplit_once(')')?;
    Pid::from_raw(rest.split_whitespace().nth(1)?.parse().ok()?)
}

/// Whether the other side has ended.
fn is_closed(connection: &UnixStream) -> bool {
    let mut ready = [PollFd::new(connection, PollFlags::empty())];
    poll(&mut ready, Some(&rustix::event::Timespec::default())).is_ok_and(|ready| ready > 0)
}
