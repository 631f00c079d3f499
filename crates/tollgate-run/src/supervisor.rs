//! The two processes of a run.
//!
//! The process that the caller knows, in **front**, waits for the end of the run and passes signals on to the command. The
//! **supervisor** behind it runs the command and commits its changes. So the front can end with the command, while the
//! supervisor waits for processes that the command has left behind.
//!
//! If the front is killed, the supervisor and the command die with it, and nothing is committed. If the supervisor is
//! killed, the command dies with it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, set_child_subreaper, set_parent_process_death_signal,
};

use crate::outcome::RunEnd;
use crate::sys::{self, SignalMask};
use tollgate_base::error::{At, Fault, Result};

/// The signals that other processes send to a command to make it do something.
const PASSED_ON: [libc::c_int; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// The supervisor stays awake when the terminal stops the command and the front.
const OF_TERMINAL: [libc::c_int; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// What a process is after [`split`].
pub enum Side {
    /// The front, after the run has ended with this. `None`: the supervisor has died.
    Front(Option<RunEnd>),
    /// The supervisor, which has the run before it.
    Supervisor(Supervisor),
}

/// The process that runs the command.
pub struct Supervisor {
    to_front: File,
    mask: SignalMask,
}

const STARTED: u8 = b's';
const EXITED: u8 = b'e';
const KILLED: u8 = b'k';

/// Splits this process, which must have one thread only.
pub fn split() -> Result<Side> {
    let (from, to) = pipe_with(PipeFlags::CLOEXEC).at("open", "a pipe")?;
    let mask = sys::block(&PASSED_ON).at("block", "signals")?;
    let front = getpid();
    match sys::fork().at("start", "a process")? {
        Some(_) => {
            drop(to);
            let end = wait_in_front(from);
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
            Ok(Side::Supervisor(Supervisor { to_front: to.into(), mask }))
        }
    }
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

    /// From now on, the front passes signals on to the command.
    pub(crate) fn started(&self, pid: u32) {
        let mut message = [STARTED, 0, 0, 0, 0];
        message[1..].copy_from_slice(&pid.to_ne_bytes());
        // If the front is dead, so is this process.
        let _ = (&self.to_front).write_all(&message);
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

fn wait_in_front(from: OwnedFd) -> io::Result<Option<RunEnd>> {
    let mut signals = File::from(sys::signal_reader(&PASSED_ON)?);
    let mut from = File::from(from);
    let mut command: Option<Pid> = None;
    let mut early = Vec::new();
    loop {
        let mut ready = [PollFd::new(&signals, PollFlags::IN), PollFd::new(&from, PollFlags::IN)];
        match poll(&mut ready, None) {
            Err(rustix::io::Errno::INTR) => continue,
            answer => answer?,
        };
        let [signalled, told] = ready.map(|fd| !fd.revents().is_empty());
        if signalled {
            let mut info = [0; 128];
            signals.read_exact(&mut info)?;
            let number = |at: usize| i32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
            // A positive code is the kernel's: the terminal has sent the signal to the command, too.
            if number(8) <= 0 {
                early.extend(Signal::from_named_raw(number(0)));
            }
        }
        if told {
            let mut message = [0; 5];
            if from.read_exact(&mut message).is_err() {
                return Ok(None);
            }
            let [kind, value, ..] = message;
            match kind {
                EXITED => return Ok(Some(RunEnd::Exited(value))),
                KILLED => return Ok(Some(RunEnd::Killed(i32::from(value)))),
                _ => {
                    let pid = i32::from_ne_bytes([message[1], message[2], message[3], message[4]]);
                    command = Pid::from_raw(pid);
                }
            }
        }
        if let Some(pid) = command {
            // The command may have ended.
            for signal in early.drain(..) {
                let _ = kill_process(pid, signal);
            }
        }
    }
}
