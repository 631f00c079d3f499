//! The time limit of a command: one that takes longer is ended, with everything that it started.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::pool::LAST_WORDS;
use super::shift::Shift;

impl Shift<'_> {
    /// Waits for the command. Whether it took longer than it may, and was ended. After an error, nobody has waited.
    pub(super) fn with_timeout(&self, group: Pid, wait: impl FnOnce()) -> io::Result<bool> {
        let Some(limit) = self.timeout else {
            wait();
            return Ok(false);
        };
        thread::scope(|scope| {
            let (ended, over) = mpsc::channel::<()>();
            let timer = thread::Builder::new().spawn_scoped(scope, move || end_after(limit, group, &over))?;
            wait();
            drop(ended);
            Ok(timer.join().unwrap_or(false))
        })
    }
}

fn end_after(limit: Duration, group: Pid, over: &Receiver<()>) -> bool {
    let is_over = |wait| over.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
    // It may have ended at the last moment, and nobody has noticed yet.
    let looked =
        || waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG);
    if is_over(limit) || looked().is_ok_and(|ended| ended.is_some()) {
        return false;
    }
    // An error means that no process of the group is left. Until the command is reaped, its id cannot be reused.
    let _ = kill_process_group(group, Signal::TERM);
    if !is_over(LAST_WORDS) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    true
}
