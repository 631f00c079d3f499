//! One task, from the claim to the release: verify, run the command, say how it went.
//!
//! Invariants: the command has the claim's lock for as long as it runs, and so does everything it starts; a task is let go
//! as failed or given back only when the whole group of the command has been killed and nothing else has the lock.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tollgate::error::{Fault, Result};
use tollgate::vault::block::Verdict;
use tollgate::vault::claim::Mode;
use tollgate::vault::retry::patiently;
use tollgate::vault::store::Landed;
use tollgate::vault::{Claimed, Owned, Release};

use super::crew::{Crew, Stopped};
use super::heart::Fenced;
use crate::words;

/// How often a release that a fault keeps from happening is tried again: the work is done, only the disk is full.
const RELEASE_PAUSE: Duration = Duration::from_secs(1);

/// How long what was killed may take to die. On a busy machine that can take a while.
const BURIAL: Duration = Duration::from_secs(10);

/// How an errand ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Done,
    Drafted,
    Failed,
    GivenBack,
    /// The claim was no longer ours, or is no longer ours alone, so nothing was said about the task.
    Lost,
}

/// What is left to do when the command has ended.
pub(super) struct LetGo {
    claimed: Claimed,
    how: How,
    began: Instant,
}

enum How {
    /// By how the command ended.
    Release(Release),
    /// Unworked, and why.
    GiveBack(&'static str),
    /// It is not ours any more.
    Not,
}

impl Crew<'_> {
    /// Works on one task. What is left is to let it go.
    pub(super) fn errand(&self, claimed: Claimed) -> LetGo {
        let began = Instant::now();
        let how = self.work_on(&claimed);
        LetGo { claimed, how, began }
    }

    fn work_on(&self, claimed: &Claimed) -> How {
        let Claimed { task, claim, .. } = claimed;
        // The contract's second look, before anything is done.
        match patiently(|| self.tasks.vault.verify(task, &claim.id, self.door.now()), &sleep) {
            Ok(true) => {}
            Ok(false) => {
                self.tell(&words::claim_is_gone(task));
                return How::Not;
            }
            Err(fault) => {
                self.tell(&words::work_fault(self.door, &fault));
                return How::GiveBack("it could not be verified");
            }
        }
        self.show(&words::work_begins(claimed));
        let (status, stopped) = match self.run(claimed) {
            Ok(Ran::Ended(_, _, Some(Fenced::Lost))) => {
                self.tell(&words::fenced_off(task));
                return How::Not;
            }
            Ok(Ran::Ended(_, _, Some(Fenced::Silent))) => {
                self.tell(&words::silent_for_a_lease(task));
                return How::GiveBack("the remote was out of reach for a whole lease");
            }
            Ok(Ran::Ended(status, stopped, None)) => (status, stopped),
            Ok(Ran::StillRuns) => {
                self.tell(&words::something_still_runs(task));
                return How::Not;
            }
            Ok(Ran::NotStarted) => return How::GiveBack("stopped"),
            Err(error) => {
                self.tell(&words::cannot_start(&error));
                return How::GiveBack("its command could not be started");
            }
        };
        match (status.success(), stopped) {
            (true, _) => How::Release(Release::success()),
            (false, Stopped::Yes) => How::GiveBack("stopped"),
            (false, Stopped::No) => {
                How::Release(Release::failure(words::exit_status(status.code(), status.signal())))
            }
        }
    }

    /// Lets a task go that was worked on.
    pub(super) fn let_go(&self, LetGo { claimed, how, began }: LetGo) -> Ended {
        let Claimed { task, claim, .. } = &claimed;
        let how = match how {
            How::Not => return Ended::Lost,
            How::GiveBack(why) => return self.give_back(&claimed, why),
            How::Release(how) => how,
        };
        let landed = self.insist(|| self.tasks.vault.release(task, &claim.id, &how, self.door.now()));
        let Some(landed) = landed else { return Ended::Lost };
        let success = how.verdict == Verdict::Success;
        self.show(&words::work_ended(task, &landed, success, how.note.as_deref(), began.elapsed()));
        match (success, claim.mode) {
            (true, Mode::Execute) => Ended::Done,
            (true, Mode::Draft) => Ended::Drafted,
            (false, _) => Ended::Failed,
        }
    }

    fn give_back(&self, claimed: &Claimed, why: &str) -> Ended {
        let (task, id) = (&claimed.task, &claimed.claim.id);
        match self.insist(|| self.tasks.vault.give_back(task, id, why, self.door.now())) {
            Some(landed) => {
                self.show(&words::given_back(task, &landed, why));
                Ended::GivenBack
            }
            None => Ended::Lost,
        }
    }

    /// Lets a task go, also if that takes time. None if it is not ours any more, or if we must stop before it succeeds:
    /// then the lock is let go with this process, and another takes the task back.
    fn insist(&self, release: impl Fn() -> Result<Owned<Landed>>) -> Option<Landed> {
        let mut told = false;
        loop {
            match patiently(&release, &sleep) {
                Ok(Owned::Yes(landed)) => return Some(landed),
                Ok(Owned::No(why)) => {
                    self.tell(&words::not_the_owner(&why));
                    return None;
                }
                Err(fault) => {
                    if !std::mem::replace(&mut told, true) {
                        self.tell(&words::work_fault(self.door, &fault));
                    }
                    if matches!(fault, Fault::Invalid { .. }) || self.must_end() {
                        return None;
                    }
                    sleep(RELEASE_PAUSE);
                }
            }
        }
    }

    fn run(&self, claimed: &Claimed) -> io::Result<Ran> {
        let claim = &claimed.claim;
        let mut command = Command::new(self.door.program());
        command.arg("launch").arg(std::process::id().to_string()).arg("--").args(self.command);
        command
            .env("TOLLGATE_TASK_ID", claimed.task.as_str())
            .env("TOLLGATE_CLAIM_ID", claim.id.as_str())
            .env("TOLLGATE_AGENT", claim.agent.as_str())
            .env("TOLLGATE_ACTION", claim.action.as_deref().unwrap_or_default())
            .env("TOLLGATE_MODE", claim.mode.as_str());
        if let Some(path) = &claimed.path {
            command.env("TOLLGATE_TASK", path);
        }
        // A group of its own: ctrl-c is for tollgate to hear, and what the command has started can be ended with it.
        command.stdin(Stdio::null()).process_group(0);
        if self.quiet {
            // Stdout is for the one JSON document.
            command.stdout(io::stderr());
        }
        let Some(hold) = &claimed.hold else { return Err(io::ErrorKind::Unsupported.into()) };
        let (child, borrowers) =
            hold.lend(|| command.spawn()).map_err(|fault| io::Error::other(fault.to_string()))?;
        let mut child = child?;
        let group = Pid::from_child(&child);
        // Ends all of the group. Killed is not yet dead, and until it is, its files are open and the task is not free.
        let mut end = || -> io::Result<Option<ExitStatus>> {
            // That there is none left is fine.
            let _ = kill_process_group(group, Signal::KILL);
            let status = child.wait()?;
            let gone = borrowers.are_gone(BURIAL).map_err(|fault| io::Error::other(fault.to_string()))?;
            Ok(gone.then_some(status))
        };
        if !self.started(group) {
            return Ok(end()?.map_or(Ran::StillRuns, |_| Ran::NotStarted));
        }
        let fenced = self.with_heartbeat(claimed, group, || {
            // Not yet buried: until then its number is nobody else's, so that the group can be killed safely.
            while let Err(error) = waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                if error != rustix::io::Errno::INTR {
                    break;
                }
            }
        });
        let stopped = self.ended(group);
        let succeeded = || {
            let looked = waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            looked.ok().flatten().and_then(|status| status.exit_status()) == Some(0)
        };
        let status = if succeeded() { Some(child.wait()?) } else { end()? };
        Ok(status.map_or(Ran::StillRuns, |status| Ran::Ended(status, stopped, fenced)))
    }
}

enum Ran {
    Ended(ExitStatus, Stopped, Option<Fenced>),
    /// We were asked to stop before it began.
    NotStarted,
    /// It failed, and something that it has started has left its group and lives on: the claim is that one's now.
    StillRuns,
}
