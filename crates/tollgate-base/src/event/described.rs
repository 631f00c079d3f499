//! What people read of an event: one table for the command line, the dashboard and the agents' logs.
//!
//! A sentence comes in parts, so that a terminal can escape and a page can link what it shows. Nothing here is escaped.

#![deny(clippy::wildcard_enum_match_arm)]

use super::kind::Event;
use super::payload::{
    Decision, EndedAttempt, FileChanged, FolderMoved, Mutation, MutationStatus, RefusalStatus, TaskClaimed,
    TaskDecided,
};
use crate::task::{State, Verdict};

/// An event for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described<'a> {
    /// One short sentence, without a period.
    pub sentence: Vec<Fragment<'a>>,
    /// More, for those who look closely.
    pub detail: Option<String>,
    /// Why, in the words of an agent, a person or the system.
    pub reason: Option<&'a str>,
    /// Whether it is good or bad news.
    pub tone: Tone,
}

/// A part of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fragment<'a> {
    /// Our own words, with the spaces around them.
    Words(&'static str),
    /// The agent that the line names.
    Agent,
    /// The path of a file or folder.
    File(&'a str),
    /// A task, by the name of its file.
    Task(&'a str),
    /// The name that a person gave.
    Person(&'a str),
    /// The state of a task.
    State(State),
    /// A word of the ledger.
    Code(&'a str),
}

/// Good or bad news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Something was achieved.
    Good,
    /// Somebody may want to look at it.
    Bad,
    /// Neither.
    Neutral,
}

impl<'a> Described<'a> {
    /// The first file or task in the sentence, and the second if there is one.
    pub fn targets(&self) -> impl Iterator<Item = &'a str> {
        self.sentence.iter().filter_map(|part| match part {
            Fragment::File(name) | Fragment::Task(name) => Some(*name),
            Fragment::Words(_)
            | Fragment::Agent
            | Fragment::Person(_)
            | Fragment::State(_)
            | Fragment::Code(_) => None,
        })
    }
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
                    Decision::Retry { by } => {
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
        let mut parts = parts.into_iter();
        let mut sentence = Vec::new();
        for words in template.split("{}") {
            sentence.extend(Some(Words(words)).filter(|_| !words.is_empty()));
            sentence.extend(parts.next());
        }
        Described { sentence, detail, reason, tone }
    }
}

fn ended(attempt: &EndedAttempt) -> String {
    let EndedAttempt { claim_id, result, duration_s, .. } = attempt;
    format!("{claim_id}, {result} after {duration_s} s")
}
