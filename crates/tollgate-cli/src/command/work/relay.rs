//! What a command prints: passed on to the worker's own streams at once, and its end kept for the task's file.
//!
//! Invariant: when the command has ended, everything that it printed was passed on. A process that outlives the command may
//! print more, which is passed on too.

use std::io::{self, PipeReader, PipeWriter, Read, pipe};
use std::process::Command;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::output::{self, Stream};

/// The number of bytes that are kept: enough for an error message with its context.
const KEPT: usize = 4 << 10;

/// The most bytes that a pipe holds, unless somebody enlarges it.
const PIPE: usize = 64 << 10;

/// The longest time to pass on what an ended command printed. A terminal may be stopped, and its user must be able to stop
/// the worker all the same.
const PATIENCE: Duration = Duration::from_secs(5);

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Passes on what a command prints.
pub(super) struct Relay {
    /// Dropped when the command has ended.
    ended: PipeWriter,
    end: Receiver<Vec<u8>>,
}

impl Relay {
    /// Connects the command, which has not started yet. Its standard output goes to `stdout`.
    pub(super) fn connect(command: &mut Command, stdout: Stream) -> io::Result<Self> {
        let ((out, out_writer), (err, err_writer)) = (pipe()?, pipe()?);
        let (has_ended, ended) = pipe()?;
        command.stdout(out_writer).stderr(err_writer);
        let (sender, end) = mpsc::sync_channel(1);
        let streams = vec![(out, stdout), (err, Stream::Stderr)];
        thread::Builder::new().spawn(move || pass_on(streams, &has_ended, &sender))?;
        Ok(Self { ended, end })
    }

    /// The end of what the command printed. The command has ended.
    pub(super) fn end(self) -> String {
        drop(self.ended);
        let bytes = self.end.recv_timeout(PATIENCE).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        // A byte that is not UTF-8 has become three.
        let start = text.len().saturating_sub(KEPT);
        text[text.ceil_char_boundary(start)..].to_owned()
    }
}

fn pass_on(mut streams: Vec<(PipeReader, Stream)>, has_ended: &PipeReader, end: &SyncSender<Vec<u8>>) {
    let (mut kept, mut buffer) = (Vec::new(), vec![0; PIPE]);
    let (mut is_last, mut is_told) = (false, false);
    while !streams.is_empty() {
        let mut watched: Vec<_> =
            streams.iter().map(|(stream, _)| PollFd::new(stream, PollFlags::IN)).collect();
        if !is_told {
            watched.push(PollFd::new(has_ended, PollFlags::IN));
        }
        // After the end one more look, because the command may have printed something during the one that saw its end.
        if poll(&mut watched, is_last.then_some(&AT_ONCE)).is_err() {
            // A signal.
            continue;
        }
        let ready: Vec<bool> = watched.iter().map(|watched| !watched.revents().is_empty()).collect();
        let (readable, ended) = ready.split_at(streams.len());
        let has_ended = ended == [true];
        let mut readable = readable.iter();
        streams.retain_mut(|(stream, to)| {
            if readable.next() != Some(&true) {
                return true;
            }
            let count = match stream.read(&mut buffer) {
                Ok(count) => count,
                Err(error) => return error.kind() == io::ErrorKind::Interrupted,
            };
            output::pass_on(*to, &buffer[..count]);
            kept.extend_from_slice(&buffer[..count]);
            kept.drain(..kept.len().saturating_sub(KEPT));
            count > 0
        });
        if is_last {
            // What the command printed before its end was in the pipes, and one read empties a pipe.
            let _ = end.send(std::mem::take(&mut kept));
            (is_last, is_told) = (false, true);
        } else {
            is_last = has_ended;
        }
    }
    let _ = end.send(kept);
}
