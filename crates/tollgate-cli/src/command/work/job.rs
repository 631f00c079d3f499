//! One task, from the claim to the release: verify, run the command, report the result.
//!
//! Invariants: a task is released as failed or returned only after the whole process group of the command was killed and is dead.
//! If the lock of the claim is a file, the command and everything it starts hold it as long as they run, and no process may hold
//! it any more, not even one that has left the group.

use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tollgate::error::Fault;
use tollgate::vault::block::Verdict;
use tollgate::vault::claim::Mode;
use tollgate::vault::retry::with_retry;
use tollgate::vault::state::{Slot, State};
use tollgate::vault::store::TaskAfterStep;
use tollgate::vault::{BEATS, ClaimLock, Claimed, Release, TaskName};

use super::heartbeat::KillReason;
use super::relay::Relay;
use super::shift::{Shift, StopRequest};
use crate::command::launch::LAUNCH;
use crate::output::Stream;
use crate::words;

/// The pause before a failed release is tried again. The work is done, and the disk may be full only for a while.
const RELEASE_PAUSE: Duration = Duration::from_secs(1);

/// The longest time that killed processes may take to die, which can be long on a busy machine.
const BURIAL: Duration = Duration::from_secs(10);

/// How long to wait for processes that do not hold the lock of the claim: the store waits for heartbeats, and nobody sends them then.
const SHORT_BURIAL: Duration = Duration::from_secs(1);

/// Why a task is returned although nobody asked the worker to stop.
const NOT_STARTED: &str = "the command could not be started";

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobResult {
    Done,
    Drafted,
    Failed,
    GivenBack,
    /// This worker no longer owns the claim, or another process still holds its lock, so the task was not released.
    Lost,
    /// The claim was lost, and the task is gone, or in the queue again: the command may do that to every task it gets.
    Undone,
}

/// What is left to do after the command has ended.
pub(super) struct PendingRelease {
    claimed: Claimed,
    how: JobRelease,
    began: Instant,
}

enum JobRelease {
    /// Release the task with the command's result.
    Release(Release),
    /// Return the task without a result, for this reason.
    GiveBack(&'static str),
    /// Nothing: the command has released the task itself.
    Released(TaskAfterStep),
    /// Leave the task alone, because this worker no longer owns it.
    Not,
}

impl PendingRelease {
    pub(super) fn task(&self) -> &TaskName {
        &self.claimed.task
    }

    /// How long the work took, and if it failed: why.
    pub(super) fn outcome(&self) -> (Duration, Option<String>) {
        let failure = match &self.how {
            JobRelease::Release(how) if how.verdict == Verdict::Failure => how.note.clone(),
            JobRelease::GiveBack(NOT_STARTED) => Some(NOT_STARTED.to_owned()),
            JobRelease::Release(_) | JobRelease::GiveBack(_) | JobRelease::Released(_) | JobRelease::Not => {
                None
            }
        };
        (self.began.elapsed(), failure)
    }
}

impl Shift<'_> {
    /// Works on one task. The caller then releases it.
    pub(super) fn job(&self, claimed: Claimed) -> PendingRelease {
        let began = Instant::now();
        let how = self.work_on(&claimed);
        PendingRelease { claimed, how, began }
    }

    fn work_on(&self, claimed: &Claimed) -> JobRelease {
        let Claimed { task, claim, .. } = claimed;
        // The contract asks for this check before the work begins.
        match with_retry(|| self.tasks.vault.verify(task, &claim.id, self.invocation.now()), &sleep) {
            Ok(true) => {}
            Ok(false) => {
                self.tell(&words::claim_is_gone(task));
                return JobRelease::Not;
            }
            Err(fault) => {
                self.tell(&words::work_fault(&self.invocation.viewpoint(), &fault));
                return JobRelease::GiveBack("the claim could not be verified");
            }
        }
        self.show(&words::work_begins(claimed));
        let (status, stopped, timed_out, output) = match self.run(claimed) {
            Ok(JobEnd::Ended { fenced: Some(KillReason::Lost), .. }) => {
                self.tell(&words::fenced_off(task, self.tasks.home.settings.vault.chosen_store()));
                return JobRelease::Not;
            }
            Ok(JobEnd::Ended { fenced: Some(KillReason::Released(landed)), .. }) => {
                return JobRelease::Released(landed);
            }
            Ok(JobEnd::Ended { fenced: Some(KillReason::Silent), .. }) => {
                self.tell(&words::silent_for_a_lease(task));
                return JobRelease::GiveBack("the remote was unreachable for most of a lease");
            }
            Ok(JobEnd::Ended { fenced: Some(KillReason::Overslept), .. }) => {
                self.tell(&words::slept_for_a_lease(task));
                return JobRelease::GiveBack("the worker was stopped for most of a lease");
            }
            Ok(JobEnd::Ended { status, stopped, timed_out, output, fenced: None }) => {
                (status, stopped, timed_out, output)
            }
            Ok(JobEnd::StillRuns) => {
                self.tell(&words::something_still_runs(task));
                return JobRelease::Not;
            }
            Ok(JobEnd::NotStarted) => return JobRelease::GiveBack("stopped"),
            Err(error) => {
                self.tell(&words::cannot_start(&error));
                return JobRelease::GiveBack(NOT_STARTED);
            }
        };
        match (status.success() && !timed_out, stopped) {
            (true, _) => JobRelease::Release(Release::success()),
            (false, StopRequest::Yes) => JobRelease::GiveBack("stopped"),
            (false, StopRequest::No) => {
                let note = match self.timeout.filter(|_| timed_out) {
                    Some(limit) => words::timed_out(limit),
                    None => words::exit_status(status.code(), status.signal()),
                };
                JobRelease::Release(Release { output: Some(output), ..Release::failure(note) })
            }
        }
    }

    /// Releases or returns a task after the work.
    pub(super) fn let_go(&self, PendingRelease { claimed, how, began }: PendingRelease) -> JobResult {
        let task = &claimed.task;
        let how = match how {
            JobRelease::Not => return JobResult::Lost,
            JobRelease::Released(landed) => return self.released_by_command(task, &landed),
            JobRelease::GiveBack(why) => return self.give_back(&claimed, why),
            JobRelease::Release(how) => how,
        };
        let success = how.verdict == Verdict::Success;
        // The store is asked only about a draft, because every task comes here.
        let is_draft = success && claimed.claim.mode == Mode::Draft;
        let lacks_draft = is_draft && self.tasks.lacks_draft(task, self.invocation.now());
        let landed = match self.insist(&claimed, &how) {
            Ok(landed) => landed,
            Err(ended) => return ended,
        };
        self.show(&words::work_ended(task, &landed, success, how.note.as_deref(), began.elapsed()));
        match landed.slot.state() {
            State::Done => JobResult::Done,
            State::PendingApproval if success => {
                if lacks_draft {
                    self.tell(&format!("note: {}", words::no_draft(&landed.task)));
                }
                JobResult::Drafted
            }
            _ => JobResult::Failed,
        }
    }

    fn give_back(&self, claimed: &Claimed, why: &str) -> JobResult {
        match self.insist(claimed, &Release::give_back(why)) {
            Ok(landed) => {
                self.show(&words::given_back(&claimed.task, &landed, why));
                JobResult::GivenBack
            }
            Err(ended) => ended,
        }
    }

    fn released_by_command(&self, task: &TaskName, landed: &TaskAfterStep) -> JobResult {
        self.show(&words::released_by_command(task, landed));
        match landed.slot.state() {
            State::Done => JobResult::Done,
            State::PendingApproval => JobResult::Drafted,
            _ => JobResult::Failed,
        }
    }

    /// Releases a task, and tries again as long as that fails. If it was not released here: how the job ended. The command may
    /// have released the task itself; or this worker no longer owns it; or it must stop first: then the lock is released with
    /// this process, and another worker reclaims the task.
    fn insist(&self, claimed: &Claimed, how: &Release) -> Result<TaskAfterStep, JobResult> {
        let (vault, task, id) = (&self.tasks.vault, &claimed.task, &claimed.claim.id);
        let (mut told, began) = (false, Instant::now());
        loop {
            match with_retry(|| vault.release(task, id, how, self.invocation.now()), &sleep) {
                Ok(Ok(landed)) => return Ok(landed),
                Ok(Err(_)) => {
                    return Err(match vault.ended(task, id, self.invocation.now()) {
                        Ok(Some(landed)) => self.released_by_command(task, &landed),
                        _ => self.lost(claimed),
                    });
                }
                Err(fault) => {
                    if !std::mem::replace(&mut told, true) {
                        self.tell(&words::work_fault(&self.invocation.viewpoint(), &fault));
                    }
                    // What an engine refuses may be allowed again, but the claim lasts no longer than its lease.
                    let is_over = match fault {
                        Fault::Invalid { .. } => true,
                        Fault::RemoteRefused { .. } => {
                            let interval =
                                self.tasks.vault.heartbeat_interval(&claimed.claim).unwrap_or_default();
                            began.elapsed() > BEATS * interval
                        }
                        _ => false,
                    };
                    if is_over || self.must_end() {
                        return Err(JobResult::Lost);
                    }
                    sleep(RELEASE_PAUSE);
                }
            }
        }
    }

    /// Says why the claim has ended although nobody has released the task.
    fn lost(&self, claimed: &Claimed) -> JobResult {
        let found = self.tasks.vault.store().get(&claimed.task, None, self.invocation.now());
        let (words, ended) = match found.map(|found| found.map(|found| found.slot)) {
            Ok(None) => (words::task_is_gone(claimed), JobResult::Undone),
            Ok(Some(Slot::Free(state))) => {
                let ended = if state.is_claimable() { JobResult::Undone } else { JobResult::Lost };
                (words::task_was_moved(claimed, state), ended)
            }
            Ok(Some(Slot::InProgress(_))) | Err(_) => (words::claim_was_lost(&claimed.task), JobResult::Lost),
        };
        self.tell(&words);
        ended
    }

    fn run(&self, claimed: &Claimed) -> io::Result<JobEnd> {
        let claim = &claimed.claim;
        let mut command = Command::new(&self.invocation.surroundings().program);
        command.arg(LAUNCH).arg(std::process::id().to_string()).arg("--").args(self.command);
        command
            .env("TOLLGATE_TASK_ID", claimed.task.as_str())
            .env("TOLLGATE_VAULT", &self.tasks.home.root)
            .env("TOLLGATE_CLAIM_ID", claim.id.as_str())
            .env("TOLLGATE_AGENT", claim.agent.as_str())
            .env("TOLLGATE_ACTION", claim.action.as_deref().unwrap_or_default())
            .env("TOLLGATE_MODE", claim.mode.as_str())
            // The person's secret for `tollgate serve`: with it, the agent could approve its own drafts.
            .env_remove("TOLLGATE_TOKEN");
        if let Some(path) = &claimed.path {
            command.env("TOLLGATE_TASK", path);
        }
        // Its own process group: Ctrl-C reaches only tollgate, and everything that the command starts can be killed with it.
        command.stdin(Stdio::piped()).process_group(0);
        // With `--json`, stdout is reserved for the JSON document.
        let stdout = if self.quiet { Stream::Stderr } else { Stream::Stdout };
        let relay = Relay::connect(&mut command, stdout)?;
        if self.tasks.vault.heartbeat_interval(claim).is_some() {
            self.warden.ready()?;
        }
        // Without a lock the claim has a lease, which the heartbeat renews.
        let nothing = ClaimLock::nothing();
        let lock = claimed.lock.as_ref().unwrap_or(&nothing);
        let (child, borrowers) =
            lock.lend(|| command.spawn()).map_err(|fault| io::Error::other(fault.to_string()))?;
        let mut child = child?;
        // It has the other ends of the pipes.
        drop(command);
        let (group, go) = (Pid::from_child(&child), child.stdin.take());
        // Kills the whole group and waits until it is dead: until then the task must not be free.
        let mut end = || {
            // An error means that no process of the group is left.
            let _ = kill_process_group(group, Signal::KILL);
            // Before the child is reaped: afterwards its id may be that of another group.
            self.warden.spare(group);
            let status = child.wait();
            let patience = if borrowers.have_lock { BURIAL } else { SHORT_BURIAL };
            buried(status, borrowers.are_gone(patience), borrowers.have_lock)
        };
        if !self.started(group) {
            return Ok(end().map_or(JobEnd::StillRuns, |_| JobEnd::NotStarted));
        }
        let wait = || {
            // Only now the warden knows of it. If it is dead, there is nothing to wait for.
            let _ = go.map(|mut go| go.write_all(b"\n"));
            // Waits without reaping: until the child is reaped its id cannot be reused, so killing its group is safe.
            while let Err(error) = waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                if error != rustix::io::Errno::INTR {
                    break;
                }
            }
        };
        let waited = self.with_heartbeat(claimed, group, || self.with_timeout(group, wait));
        let stopped = self.ended(group);
        let (fenced, timed_out) = match waited {
            Ok(waited) => waited,
            // Nobody waited, so the command has not begun.
            Err(error) => return end().map_or(Ok(JobEnd::StillRuns), |_| Err(error)),
        };
        let succeeded = || {
            let looked = waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            looked.ok().flatten().and_then(|status| status.exit_status()) == Some(0)
        };
        // The work was done before anybody could kill it. Whether the task is still ours, the release says.
        let fenced = fenced.filter(|fenced| !matches!(fenced, KillReason::Overslept) || !succeeded());
        // A command that was asked to stop may say that all is well. What it has started may still run.
        let status = if succeeded() && !timed_out && fenced.is_none() {
            self.warden.spare(group);
            child.wait().ok()
        } else {
            end()
        };
        let output = relay.end();
        Ok(status.map_or(JobEnd::StillRuns, |status| JobEnd::Ended {
            status,
            stopped,
            fenced,
            timed_out,
            output,
        }))
    }
}

/// How a killed command ended. `None` if a process that it started may still run and hold the lock of the claim: also if that
/// cannot be found out, because the task must not be free before its last process has ended.
fn buried(
    status: io::Result<ExitStatus>,
    gone: tollgate::error::Result<bool>,
    have_lock: bool,
) -> Option<ExitStatus> {
    // Without the lock, a process that has left the group holds nothing. Its guarded writes are refused.
    status.ok().filter(|_| !have_lock || gone.unwrap_or(false))
}

enum JobEnd {
    Ended {
        status: ExitStatus,
        stopped: StopRequest,
        fenced: Option<KillReason>,
        /// It took longer than `--timeout` and was ended.
        timed_out: bool,
        /// The end of what it printed.
        output: String,
    },
    /// `tollgate work` was asked to stop before the command began.
    NotStarted,
    /// The command failed, but a process that it started left its group, still runs and holds the lock.
    StillRuns,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_found_out_about_a_killed_command_counts_as_running() {
        let (killed, fault) = (|| Ok(ExitStatus::from_raw(9)), || Fault::invalid("no memory"));
        for (gone, have_lock, is_buried) in [
            (Ok(true), true, true),
            (Ok(false), true, false),
            (Err(fault()), true, false),
            (Ok(false), false, true),
            (Err(fault()), false, true),
        ] {
            let shown = format!("{gone:?} {have_lock}");
            assert_eq!(buried(killed(), gone, have_lock).is_some(), is_buried, "{shown}");
        }
        assert!(buried(Err(io::Error::other("no child")), Ok(true), true).is_none());
    }
}
