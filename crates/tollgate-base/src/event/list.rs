//! The one list of events, and the sentence that people read of each.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::task::{State, Verdict};

use super::described::{Described, Fragment, Tone, filled};
use super::kind::{Parts, events, status};
use super::payload::*;

events! {
    /// A write was refused because the file is stale.
    MutationConflict(WriteRefused, status: RefusalStatus, error_type: ErrorType) = "MUTATION_CONFLICT";
    /// A write was refused for another reason.
    MutationRefused(WriteRefused, status: RefusalStatus, error_type: ErrorType) = "MUTATION_REFUSED";
    /// A file or a folder was changed; or a change that had a line was rolled back.
    Mutation(Mutation, status: MutationStatus) = "MUTATION";
    /// An agent's own changes became a commit in git.
    Commit(OwnChangesCommitted) = "COMMIT" => |_| "COMMITTED";
    /// Another program wrote into a file after the file had been replaced.
    LateExternalWrite(LateWrite) = "LATE_EXTERNAL_WRITE" => |_| "KEPT";
    /// A tool call did not report its end in time, so its reservation is void.
    ReservationExpired(ReservationVoid) = "RESERVATION_EXPIRED" => |_| "EXPIRED";
    /// A task was claimed.
    Claim(TaskClaimed) = "CLAIM" => |_| "CLAIMED";
    /// Another agent claimed the task first.
    ClaimLost(ClaimLost) = "CLAIM_LOST" => |_| "LOST";
    /// A claim ended in an error.
    ClaimFailed(ClaimFailed) = "CLAIM_FAILED" => |_| "FAILED";
    /// The lease of a claim was extended.
    Renew(ClaimRenewed) = "RENEW" => |_| "RENEWED";
    /// The owner released a task, which is in this state now.
    Release(TaskReleased, status: State) = "RELEASE";
    /// A person decided about a task, or an approval became void.
    Approval(TaskDecided) = "APPROVAL" => TaskDecided::status;
    /// A task was taken from an owner who is gone, or a claim was rolled back. The task is in this state now.
    Reclaim(TaskReclaimed, status: State) = "RECLAIM";
    /// The breaker of a worker opened, so that it claims no tasks; or it closed again.
    Breaker(BreakerTurned) = "BREAKER" => BreakerTurned::status;
    /// A turn began.
    TurnStarted(TurnMark) = "TURN_STARTED" => |_| "OK";
    /// A turn ended.
    TurnEnded(TurnMark) = "TURN_ENDED" => |_| "OK";
    /// A damaged end of the ledger was moved to a file of its own.
    LedgerHealed(TailMoved) = "LEDGER_HEALED" => |_| "HEALED";
}

impl Event {
    /// What people read of it.
    pub fn described(&self) -> Described<'_> {
        use Fragment::{Agent, Code, File, Person, Task, Words};
        use Tone::{Bad, Good, Neutral};
        let (mut detail, mut reason) = (None, None);
        let (tone, template, parts) = match self {
            Self::Mutation(
                Mutation::File(FileChanged { target_file, .. })
                | Mutation::Folder(FolderMoved { target_file, .. }),
                MutationStatus::Undone,
            ) => {
                let template = "the change of {} by {} was rolled back after a power cut";
                (Bad, template, vec![File(target_file), Agent])
            }
            Self::Mutation(
                Mutation::File(FileChanged { target_file, moved_to: Some(to), .. })
                | Mutation::Folder(FolderMoved { target_file, moved_to: to, .. }),
                MutationStatus::Applied,
            ) => (Good, "{} moved {} to {}", vec![Agent, File(target_file), File(to)]),
            Self::Mutation(Mutation::File(change), MutationStatus::Applied) => {
                let template = match (change.hash_before, change.hash_after) {
                    (_, None) => "{} deleted {}",
                    (None, Some(_)) => "{} created {}",
                    (Some(_), Some(_)) => "{} wrote {}",
                };
                (Good, template, vec![Agent, File(&change.target_file)])
            }
            Self::MutationConflict(refused, status, _) => {
                let template = match status {
                    RefusalStatus::Denied => "{} was refused: {} is stale",
                    RefusalStatus::Observed => "{} wrote over a change of {}",
                };
                (Bad, template, vec![Agent, File(&refused.target_file)])
            }
            Self::MutationRefused(refused, status, error) => {
                let template = match status {
                    RefusalStatus::Denied => "{} was refused: {} {}",
                    RefusalStatus::Observed => "{} wrote {} in spite of {}",
                };
                (Bad, template, vec![Agent, File(&refused.target_file), Code(error.as_str())])
            }
            Self::Commit(made) => {
                let count = made.paths.len();
                let branch = made.branch.as_ref().map(|name| format!(" on {name}")).unwrap_or_default();
                detail = Some(format!("{count} {}{branch}", if count == 1 { "file" } else { "files" }));
                let first = File(made.paths.first().map_or("", String::as_str));
                let more = Words(if count > 1 { " and more" } else { "" });
                // As git shortens it, or longer.
                let id = Code(made.commit.get(..12).unwrap_or(&made.commit));
                (Good, "{} committed {}{} as {}", vec![Agent, first, more, id])
            }
            Self::LateExternalWrite(late) => {
                (Bad, "another program wrote {} too late; its bytes are kept", vec![File(&late.target_file)])
            }
            Self::ReservationExpired(void) => {
                detail = Some(format!("tool {}, reserved at {}", void.tool_name, void.since));
                (Bad, "the reservation of {} by {} expired", vec![File(&void.target_file), Agent])
            }
            Self::Claim(TaskClaimed { task, claim_id, attempt, mode, .. }) => {
                detail = Some(format!("{claim_id}, attempt {attempt}, mode {mode}"));
                (Neutral, "{} claimed {}", vec![Agent, Task(task.as_str())])
            }
            Self::ClaimLost(lost) => {
                (Neutral, "{} lost the race for {}", vec![Agent, Task(lost.task.as_str())])
            }
            Self::ClaimFailed(failed) => {
                reason = Some(failed.error.as_str());
                (Bad, "{} could not claim {}", vec![Agent, Task(failed.task.as_str())])
            }
            Self::Renew(renewed) => {
                detail = Some(renewed.claim_id.to_string());
                (Neutral, "{} renewed the claim on {}", vec![Agent, Task(renewed.task.as_str())])
            }
            Self::Release(released, state) => {
                detail = Some(ended(&released.attempt));
                reason = released.reason.as_deref();
                let tone = match (state, released.attempt.result) {
                    (State::Done, _) => Good,
                    (_, Verdict::Failure) => Bad,
                    (_, Verdict::Success) => Neutral,
                };
                let task = Task(released.task.as_str());
                (tone, "{} released {} to {}", vec![Agent, task, Fragment::State(*state)])
            }
            Self::Approval(TaskDecided { task, decision, .. }) => {
                let task = Task(task.as_str());
                match decision {
                    Decision::Approve { by, edited_from, .. } => {
                        let edited = "{} edited and approved {}";
                        let template = edited_from.map_or("{} approved {}", |_| edited);
                        (Good, template, vec![Person(by), task])
                    }
                    Decision::Reject { by, reason: why } => {
                        reason = Some(why);
                        (Neutral, "{} rejected {}", vec![Person(by), task])
                    }
                    Decision::Retry { by, reason: why } => {
                        reason = why.as_deref();
                        (Neutral, "{} wants {} to be tried again", vec![Person(by), task])
                    }
                    Decision::Edit { by, .. } => (Neutral, "{} edited {}", vec![Person(by), task]),
                    Decision::Void { reason: why } => {
                        reason = Some(why);
                        (Neutral, "the approval of {} is void", vec![task])
                    }
                    Decision::Ask { reason: why } => {
                        reason = Some(why);
                        (Bad, "a person must look at {}", vec![task])
                    }
                }
            }
            Self::Reclaim(reclaimed, state) => {
                let attempt = reclaimed.attempt.as_ref().map(|attempt| format!(", {}", ended(attempt)));
                detail = Some(format!("to {state}{}", attempt.unwrap_or_default()));
                reason = reclaimed.reason.as_deref();
                (Bad, "{} was taken back from {}", vec![Task(reclaimed.task.as_str()), Agent])
            }
            Self::Breaker(turned) => {
                reason = Some(turned.reason.as_str());
                match turned.until {
                    Some(until) => {
                        let failures = turned.failures;
                        detail = Some(format!("{failures} failures in a row, next try at {until:.0}"));
                        (Bad, "{} stopped claiming tasks: its command fails", vec![Agent])
                    }
                    None => (Good, "{} claims tasks again", vec![Agent]),
                }
            }
            Self::TurnStarted(_) => (Neutral, "{} began a turn", vec![Agent]),
            Self::TurnEnded(_) => (Neutral, "{} ended a turn", vec![Agent]),
            Self::LedgerHealed(moved) => {
                detail = Some(format!("{} bytes, kept in {}", moved.bytes_dropped, moved.kept_in));
                (Bad, "a torn line was moved out of the ledger", vec![])
            }
            Self::Other { action_type, payload, .. } => {
                let mut parts = vec![Agent, Code(action_type)];
                let file = payload["target_file"].as_str().map(File);
                if let Some(target) = file.or_else(|| payload["task"].as_str().map(Task)) {
                    parts.extend([Words(" "), target]);
                }
                if let Some(to) = payload["moved_to"].as_str() {
                    parts.extend([Words(" to "), File(to)]);
                }
                (Neutral, "{} {}{}{}{}{}", parts)
            }
        };
        Described { sentence: filled(template, parts), detail, reason, tone }
    }
}

fn ended(attempt: &EndedAttempt) -> String {
    let EndedAttempt { claim_id, result, duration_s, .. } = attempt;
    format!("{claim_id}, {result} after {duration_s} s")
}
