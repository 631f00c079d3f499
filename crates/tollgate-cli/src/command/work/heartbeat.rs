//! The heartbeat of a claim: while the command runs, it tells the store that the owner is alive.
//!
//! Invariant: the command never runs after another machine may have started the same task. If the claim is lost, the command
//! is killed at once. If the store cannot be reached, the command is asked to stop and then killed, before a whole lease without
//! a heartbeat has passed. A thread of its own sees to that, so a heartbeat that takes long does not delay it; and the warden
//! kills the command if this process cannot. Only a command that has released its task itself goes on without a claim, if
//! nobody can claim the task before a person has decided.

use std::io;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tollgate::vault::store::TaskAfterStep;
use tollgate::vault::{BEATS, Claimed};
use tollgate_base::boot_clock::{comes, millis, millis_since_boot};

use super::shift::Shift;
use crate::words;

/// After how many twelfths of a lease without a heartbeat the command is asked to stop, and killed. Two heartbeats have failed
/// by then, several times. If none has failed, the machine slept, and has a moment to send one. A sixth of the lease is left
/// as a margin.
const STOP: u32 = 8;
const STOP_AFTER_SLEEP: u32 = 9;
const KILL: u32 = 10;

/// A moment that never comes. A lease that began then never ends.
const NEVER: u64 = u64::MAX;

/// When the store last heard of the owner.
struct LastHeartbeat {
    /// In milliseconds since the machine was started.
    at: u64,
    /// Whether a heartbeat has failed since then.
    has_failed: bool,
}

/// Why a command was killed before it ended.
#[derive(Debug)]
pub(super) enum KillReason {
    /// The claim does not own the task any more.
    Lost,
    /// The command has released the task itself, and others may claim it now.
    Released(TaskAfterStep),
    /// The store could not be reached for most of a lease.
    Silent,
    /// This process was stopped, or the machine slept, for most of a lease. If the command still ran then, the warden has
    /// killed it.
    Overslept,
}

impl Shift<'_> {
    /// Waits for the command, with a heartbeat if the store needs one. After an error, nobody has waited.
    pub(super) fn with_heartbeat<T>(
        &self,
        claimed: &Claimed,
        group: Pid,
        wait: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<(Option<KillReason>, T)> {
        let interval = self.tasks.vault.heartbeat_interval(&claimed.claim);
        let Some(interval) = interval else { return Ok((None, wait()?)) };
        // The claim was made before this moment, so a lease that is counted from here ends a little too late, unless the store
        // knows better. The margin is much larger.
        let at = self.tasks.vault.heard(&claimed.claim.id, millis_since_boot());
        self.warden.kill_at(group, after(KILL, BEATS * interval, at))?;
        let heard = Mutex::new(LastHeartbeat { at, has_failed: false });
        thread::scope(|scope| {
            let (ended, over) = mpsc::channel::<()>();
            let (ended_too, over_too) = mpsc::channel::<()>();
            let heard = &heard;
            let thread = thread::Builder::new;
            let heart =
                thread().spawn_scoped(scope, move || self.beat(interval, claimed, group, heard, &over))?;
            let timer = thread()
                .spawn_scoped(scope, move || stop_in_time(BEATS * interval, group, heard, &over_too))?;
            let waited = wait();
            drop((ended, ended_too));
            let lost = heart.join().unwrap_or(None);
            Ok((lost.or(timer.join().unwrap_or(None)), waited?))
        })
    }

    /// Sends heartbeats until the command has ended, or is killed because its claim was lost.
    fn beat(
        &self,
        interval: Duration,
        claimed: &Claimed,
        group: Pid,
        heard: &Mutex<LastHeartbeat>,
        over: &Receiver<()>,
    ) -> Option<KillReason> {
        let hear = |at: u64| {
            *heard.lock().unwrap_or_else(PoisonError::into_inner) = LastHeartbeat { at, has_failed: false };
            // If the warden cannot be told, it kills the command too early. If there is none, this process still kills the
            // command in time.
            let _ = self.warden.kill_at(group, after(KILL, BEATS * interval, at));
        };
        let (mut pause, mut released) = (interval, None);
        let mut since = heard.lock().unwrap_or_else(PoisonError::into_inner).at;
        loop {
            if !comes(|| since.saturating_add(millis(pause)), millis_since_boot, over) {
                return None;
            }
            since = millis_since_boot();
            pause = interval;
            match self.tasks.vault.beat(&claimed.task, &claimed.claim, self.invocation.now()) {
                Ok(true) => hear(since),
                // It still ends with this process.
                Ok(false) if self.may_go_on(claimed, &mut released) => hear(NEVER),
                Ok(false) => {
                    end(group, Signal::KILL);
                    return Some(released.map_or(KillReason::Lost, KillReason::Released));
                }
                Err(fault) => {
                    let has_failed = {
                        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                        std::mem::replace(&mut heard.has_failed, true)
                    };
                    // Without the lock: a full pipe makes this wait, and the timer must not wait with it.
                    if !has_failed {
                        self.tell(&words::work_fault(&self.invocation.viewpoint(), &fault));
                    }
                    (since, pause) = (millis_since_boot(), (interval / 4).max(Duration::from_millis(1)));
                }
            }
        }
    }

    /// Whether a command without a claim may go on: it has released the task itself, as `released` says from then on, and nobody
    /// can claim the task now.
    fn may_go_on(&self, claimed: &Claimed, released: &mut Option<TaskAfterStep>) -> bool {
        match self.tasks.vault.ended(&claimed.task, &claimed.claim.id, self.invocation.now()) {
            Ok(Some(landed)) => !released.insert(landed).slot.state().is_claimable(),
            // Somebody else has the task.
            Ok(None) => false,
            // The next look may say more. Before the first, the claim may just as well have been taken away.
            Err(_) => released.is_some(),
        }
    }
}

/// When this many twelfths of a lease are over that began at this moment. In milliseconds since the machine was started, by a
/// clock that goes on while the machine sleeps.
fn after(twelfths: u32, lease: Duration, began: u64) -> u64 {
    began.saturating_add(millis(lease * twelfths / 12))
}

impl LastHeartbeat {
    /// When the command is asked to stop.
    fn stop_at(&self, lease: Duration) -> u64 {
        after(if self.has_failed { STOP } else { STOP_AFTER_SLEEP }, lease, self.at)
    }
}

/// Asks the command to stop, and kills it, before a whole lease without a heartbeat has passed.
fn stop_in_time(
    lease: Duration,
    group: Pid,
    heard: &Mutex<LastHeartbeat>,
    over: &Receiver<()>,
) -> Option<KillReason> {
    let heard = || heard.lock().unwrap_or_else(PoisonError::into_inner);
    let stop_at = || heard().stop_at(lease);
    let kill_at = || after(KILL, lease, heard().at);
    let is_overslept = || kill_at() <= millis_since_boot();
    // A heartbeat may come in the meantime.
    if !comes(stop_at, millis_since_boot, over) {
        return is_overslept().then_some(KillReason::Overslept);
    }
    let kill_at = kill_at();
    if is_overslept() {
        end(group, Signal::KILL);
        return Some(KillReason::Overslept);
    }
    end(group, Signal::TERM);
    if comes(|| kill_at, millis_since_boot, over) {
        end(group, Signal::KILL);
    }
    Some(KillReason::Silent)
}

fn end(group: Pid, signal: Signal) {
    // An error means that no process of the group is left.
    let _ = kill_process_group(group, signal);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_stopped_later_if_no_heartbeat_has_failed_and_always_before_it_is_killed() {
        let lease = Duration::from_secs(60);
        let [failed, slept] =
            [true, false].map(|has_failed| LastHeartbeat { at: 7, has_failed }.stop_at(lease));
        assert!(failed < slept && slept < after(KILL, lease, 7), "{failed} {slept}");
    }
}
