//! The heartbeat of a claim on a remote: while the command runs, the remote hears of it three times in each lease.
//!
//! Invariant: nobody works on a task for longer than others may believe. Whoever has lost it is ended at once; whoever
//! could not reach the remote is ended before its silence has lasted a lease, because then another may begin.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tollgate::vault::Claimed;
use tollgate::vault::git::{Beat, GitStore};

use super::crew::Crew;
use crate::words;

/// Why a command was ended before it had ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fenced {
    /// Another has the task.
    Lost,
    /// The remote could not be told for nearly a whole lease.
    Silent,
}

impl Crew<'_> {
    /// Waits for the command while the remote is told that it is alive.
    pub(super) fn with_heartbeat(
        &self,
        claimed: &Claimed,
        group: Pid,
        wait: impl FnOnce(),
    ) -> Option<Fenced> {
        let Some(git) = &self.tasks.git else {
            wait();
            return None;
        };
        thread::scope(|scope| {
            let (ended, over) = mpsc::channel::<()>();
            let heart = scope.spawn(move || self.beat(git, claimed, group, &over));
            wait();
            drop(ended);
            heart.join().unwrap_or(None)
        })
    }

    fn beat(&self, git: &GitStore, claimed: &Claimed, group: Pid, over: &Receiver<()>) -> Option<Fenced> {
        let lease = git.lease();
        // The claim itself was heard of after it began; to count from there is never too long.
        let mut heard = Instant::now();
        let (mut pause, mut told) = (lease / 3, false);
        while over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            let asked = Instant::now();
            let fenced = match git.beat(&claimed.task, &claimed.claim.id) {
                Ok(Beat::Alive) => {
                    (heard, pause, told) = (asked, lease / 3, false);
                    continue;
                }
                Ok(Beat::Lost) => Fenced::Lost,
                Err(fault) => {
                    if !std::mem::replace(&mut told, true) {
                        self.tell(&words::work_fault(self.door, &fault));
                    }
                    pause = (lease / 12).max(Duration::from_millis(1));
                    if heard.elapsed() + 2 * pause < lease {
                        continue;
                    }
                    Fenced::Silent
                }
            };
            // That there is none left is fine.
            let _ = kill_process_group(group, Signal::KILL);
            return Some(fenced);
        }
        None
    }
}
