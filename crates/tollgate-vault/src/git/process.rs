//! One run of a program: its input is written and its output read until it ends, or until its time is up.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The standard input of a program.
pub(super) enum Given<'a> {
    Nothing,
    Bytes(&'a [u8]),
    /// The lock of the conversation, which the program keeps as long as it lives.
    Lock(&'a File),
}

/// What a program answered.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) ok: bool,
    pub(super) out: Vec<u8>,
    /// Its error messages, whole lines, without control characters.
    pub(super) err: String,
    /// It did not end in time.
    pub(super) hung: bool,
}

impl Ran {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).trim_end().to_owned()
    }
}

/// Gives a program its input and reads its output until it ends, or until the time is up.
pub(super) fn run(child: &mut Child, given: &Given<'_>, patience: Duration) -> io::Result<Ran> {
    let deadline = Instant::now() + patience;
    let mut input = child.stdin.take();
    let mut rest: &[u8] = match given {
        Given::Bytes(bytes) => bytes,
        _ => &[],
    };
    if let Some(pipe) = &input {
        rustix::io::ioctl_fionbio(pipe, true)?;
    }
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let (mut written, mut complained) = (Vec::new(), Vec::new());
    let status = loop {
        if rest.is_empty() {
            // Closed, so that the program sees the end of its input.
            input = None;
        }
        // Asked before the wait: a program that has ended by now has written everything, so if the wait then finds nothing
        // to read, everything was read. If it were asked after the wait, the program could write and end in between, and
        // its last output would be lost.
        let ended = child.try_wait()?;
        let ready = wait_for(input.as_ref(), out.as_ref(), err.as_ref())?;
        if ready[0]
            && let Some(pipe) = &mut input
        {
            match pipe.write(rest) {
                Ok(len) => rest = &rest[len..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // It has read enough, or has died, which its status shows.
                Err(_) => rest = &[],
            }
        }
        if ready[1] {
            read_some(&mut out, &mut written)?;
        }
        if ready[2] {
            read_some(&mut err, &mut complained)?;
        }
        let are_closed = out.is_none() && err.is_none();
        let ended = if are_closed { child.try_wait()? } else { ended };
        // A program that it started may go on and keep the pipes open (a shared ssh connection does), so only its own end
        // counts.
        if let Some(status) = ended
            && (are_closed || !(ready[1] || ready[2]))
        {
            break Some(status);
        }
        if Instant::now() > deadline {
            break None;
        }
    };
    Ok(Ran {
        ok: status.is_some_and(|status| status.success()),
        out: written,
        err: printable(&complained),
        hung: status.is_none(),
    })
}

/// Which of the three pipes are ready now, after a moment at most.
fn wait_for(
    input: Option<&ChildStdin>,
    out: Option<&ChildStdout>,
    err: Option<&ChildStderr>,
) -> io::Result<[bool; 3]> {
    let mut fds = Vec::with_capacity(3);
    let mut places = Vec::with_capacity(3);
    if let Some(pipe) = input {
        fds.push(PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::OUT));
        places.push(0);
    }
    if let Some(pipe) = out {
        fds.push(PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN));
        places.push(1);
    }
    if let Some(pipe) = err {
        fds.push(PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN));
        places.push(2);
    }
    // A program that has closed both pipes ends at once, so its end is checked often.
    let millis = if out.is_none() && err.is_none() { 1 } else { 20 };
    let moment = Timespec { tv_sec: 0, tv_nsec: millis * 1_000_000 };
    // A wait that a signal interrupts starts again, because the caller would take it for silence.
    while let Err(error) = poll(&mut fds, Some(&moment)) {
        if error != rustix::io::Errno::INTR {
            return Err(error.into());
        }
    }
    let mut ready = [false; 3];
    for (fd, place) in fds.iter().zip(places) {
        ready[place] = !fd.revents().is_empty();
    }
    Ok(ready)
}

fn read_some(pipe: &mut Option<impl Read>, into: &mut Vec<u8>) -> io::Result<()> {
    let Some(from) = pipe else { return Ok(()) };
    let mut bytes = vec![0; 64 << 10];
    match from.read(&mut bytes) {
        Ok(0) => *pipe = None,
        Ok(read) => into.extend_from_slice(&bytes[..read]),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Without control characters and empty lines, because a server may send anything.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines =
        text.split(['\n', '\r']).map(|line| line.chars().filter(|c| !c.is_control()).collect::<String>());
    let lines: Vec<_> = lines.map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect();
    lines.join("\n")
}
