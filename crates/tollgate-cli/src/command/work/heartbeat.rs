//! The heartbeat of a claim: while the command runs, it tells the store that the owner is alive.
//!
//! Invariant: the command never runs after another machine may have started the same task. If the claim is lost, the command
//! is killed at once. If the store cannot be reached, the command is killed before a whole lease without heartbeat has passed.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tollgate::error::Result;
use tollgate::vault::Claimed;
use tollgate::vault::claim::Tenure;

use super::shift::Shift;
use crate::words;

/// The number of heartbeats in a lease.
const BEATS: u32 = 3;

/// Why a command was killed before it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fenced {
    /// Another agent has the task.
    Lost,
    /// The store could not be reached for nearly a whole lease.
    Silent,
}

impl Shift<'_> {
    /// Waits for the command, with a heartbeat if the store needs one.
    pub(super) fn with_heartbeat(
        &self,
        claimed: &Claimed,
        group: Pid,
        wait: impl FnOnce(),
    ) -> Option<Fenced> {
        let leased = matches!(claimed.claim.tenure, Tenure::Leased(_));
        let lease = || self.tasks.vault.terms().lease / BEATS;
        let interval = self.tasks.vault.store().heartbeat_interval().or_else(|| leased.then(lease));
        let Some(interval) = interval else {
            wait();
            return None;
        };
        thread::scope(|scope| {
            let (ended, over) = mpsc::channel::<()>();
            let heart = scope.spawn(move || self.beat(interval, claimed, group, &over));
            wait();
            drop(ended);
            heart.join().unwrap_or(None)
        })
    }

    fn beat(&self, interval: Duration, claimed: &Claimed, group: Pid, over: &Receiver<()>) -> Option<Fenced> {
        let lease = BEATS * interval;
        // The claim was made before this moment, so a lease counted from here ends too early, never too late.
        let mut heard = Instant::now();
        let (mut pause, mut told) = (interval, false);
        while over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            let asked = Instant::now();
            let fenced = match self.heartbeat(claimed) {
                Ok(true) => {
                    (heard, pause, told) = (asked, interval, false);
                    continue;
                }
                Ok(false) => Fenced::Lost,
                Err(fault) => {
                    if !std::mem::replace(&mut told, true) {
                        self.tell(&words::work_fault(&self.invocation.viewpoint(), &fault));
                    }
                    pause = (lease / 12).max(Duration::from_millis(1));
                    if heard.elapsed() + 2 * pause < lease {
                        continue;
                    }
                    Fenced::Silent
                }
            };
            // An error means that no process of the group is left.
            let _ = kill_process_group(group, Signal::KILL);
            return Some(fenced);
        }
        None
    }

    /// Renews a lease, or tells the store that the holder of a held claim is alive. Whether it still owns the task.
    fn heartbeat(&self, claimed: &Claimed) -> Result<bool> {
        let (vault, task, id) = (&self.tasks.vault, &claimed.task, &claimed.claim.id);
        match claimed.claim.tenure {
            Tenure::Held => vault.store().heartbeat(task, id),
            Tenure::Leased(_) => vault.verify(task, id, self.invocation.now()),
        }
    }
}
