//! What people read of an event: one table for the command line, the dashboard and the agents' logs.
//!
//! A sentence comes in parts, so that a terminal can escape and a page can link what it shows. Nothing here is escaped.

#![deny(clippy::wildcard_enum_match_arm)]

use std::fmt::Write as _;

use super::files::{FileChanged, FolderMoved, Mutation, MutationStatus, RefusalStatus};
use super::kinds::Event;
use super::tasks::{Decision, EndedAttempt, TaskClaimed, TaskDecided};
use crate::task::State;

/// An event for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described<'a> {
    /// One short sentence, without a period.
    pub sentence: Vec<Part<'a>>,
    /// More, for those who look closely.
    pub detail: Option<String>,
    /// Why, in the words of an agent, a person or the system.
    pub reason: Option<&'a str>,
    /// Whether it is good or bad news.
    pub tone: Tone,
}

/// A part of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
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
            Part::File(name) | Part::Task(name) => Some(*name),
            Part::Words(_) | Part::Agent | Part::Person(_) | Part::State(_) | Part::Code(_) => None,
        })
    }
}

impl Event {
    /// What people read of it.
    pub fn described(&self) -> Described<'_> {
        use Part::{Agent, Code, File, Person, Task, Words};
        use Tone::{Bad, Good, Neutral};
        let (mut detail, mut reason) = (None, None);
        let (sentence, tone) = match self {
            Self::Mutation(Mutation::File(change), status) => match status {
                MutationStatus::Applied => (changed(change), Good),
                MutationStatus::Undone => (undone(&change.target_file), Bad),
            },
            Self::Mutation(Mutation::Folder(moved), status) => {
                let FolderMoved { target_file, moved_to, .. } = moved;
                match status {
                    MutationStatus::Applied => (
                        vec![Agent, Words(" moved "), File(target_file), Words(" to "), File(moved_to)],
                        Good,
                    ),
                    MutationStatus::Undone => (undone(target_file), Bad),
                }
            }
            Self::MutationConflict(refused, RefusalStatus::Denied, _) => {
                (vec![Agent, Words(" was refused: "), File(&refused.target_file), Words(" is stale")], Bad)
            }
            Self::MutationConflict(refused, RefusalStatus::Observed, _) => {
                (vec![Agent, Words(" wrote over a change of "), File(&refused.target_file)], Bad)
            }
            Self::MutationRefused(refused, RefusalStatus::Denied, error) => (
                vec![
                    Agent,
                    Words(" was refused: "),
                    File(&refused.target_file),
                    Words(" "),
                    Code(error.as_str()),
                ],
                Bad,
            ),
            Self::MutationRefused(refused, RefusalStatus::Observed, error) => (
                vec![
                    Agent,
                    Words(" wrote "),
                    File(&refused.target_file),
                    Words(" in spite of "),
                    Code(error.as_str()),
                ],
                Bad,
            ),
            Self::LateExternalWrite(late) => {
                let end = Words(" too late; its bytes are kept");
                (vec![Words("another program wrote "), File(&late.target_file), end], Bad)
            }
            Self::ReservationExpired(void) => {
                detail = Some(format!("tool {}, reserved at {}", void.tool_name, void.since));
                (
                    vec![
                        Words("the reservation of "),
                        File(&void.target_file),
                        Words(" by "),
                        Agent,
                        Words(" expired"),
                    ],
                    Bad,
                )
            }
            Self::Claim(TaskClaimed { task, claim_id, attempt, mode, .. }) => {
                detail = Some(format!("{claim_id}, attempt {attempt}, mode {}", mode.as_str()));
                (vec![Agent, Words(" claimed "), Task(task.as_str())], Neutral)
            }
            Self::ClaimLost(lost) => {
                (vec![Agent, Words(" lost the race for "), Task(lost.task.as_str())], Neutral)
            }
            Self::ClaimFailed(failed) => {
                reason = Some(failed.error.as_str());
                (vec![Agent, Words(" could not claim "), Task(failed.task.as_str())], Bad)
            }
            Self::Renew(renewed) => {
                detail = Some(renewed.claim_id.to_string());
                (vec![Agent, Words(" renewed the claim on "), Task(renewed.task.as_str())], Neutral)
            }
            Self::Release(released, state) => {
                detail = Some(ended(&released.attempt));
                reason = released.reason.as_deref();
                let tone = match (state, released.attempt.result) {
                    (State::Done, _) => Good,
                    (_, crate::task::Verdict::Failure) => Bad,
                    (_, crate::task::Verdict::Success) => Neutral,
                };
                let task = Task(released.task.as_str());
                (vec![Agent, Words(" released "), task, Words(" to "), Part::State(*state)], tone)
            }
            Self::Approval(TaskDecided { task, decision, .. }) => {
                let task = Task(task.as_str());
                match decision {
                    Decision::Approve { by, edited_from: None, .. } => {
                        (vec![Person(by), Words(" approved "), task], Good)
                    }
                    Decision::Approve { by, edited_from: Some(_), .. } => {
                        (vec![Person(by), Words(" edited and approved "), task], Good)
                    }
                    Decision::Reject { by, reason: why } => {
                        reason = Some(why);
                        (vec![Person(by), Words(" rejected "), task], Neutral)
                    }
                    Decision::Void { reason: why } => {
                        reason = Some(why);
                        (vec![Words("the approval of "), task, Words(" is void")], Neutral)
                    }
                }
            }
            Self::Reclaim(reclaimed, state) => {
                let mut more = format!("to {state}");
                if let Some(attempt) = &reclaimed.attempt {
                    let _ = write!(more, ", {}", ended(attempt));
                }
                detail = Some(more);
                reason = reclaimed.reason.as_deref();
                (vec![Task(reclaimed.task.as_str()), Words(" was taken back from "), Agent], Bad)
            }
            Self::TurnStarted(_) => (vec![Agent, Words(" began a turn")], Neutral),
            Self::TurnEnded(_) => (vec![Agent, Words(" ended a turn")], Neutral),
            Self::LedgerHealed(moved) => {
                detail = Some(format!("{} bytes, kept in {}", moved.bytes_dropped, moved.kept_in));
                (vec![Words("a torn line was moved out of the ledger")], Bad)
            }
            Self::Other { action_type, payload, .. } => {
                let mut sentence = vec![Agent, Words(" "), Code(action_type)];
                let file = payload["target_file"].as_str().map(File);
                if let Some(target) = file.or_else(|| payload["task"].as_str().map(Task)) {
                    sentence.extend([Words(" "), target]);
                }
                if let Some(to) = payload["moved_to"].as_str() {
                    sentence.extend([Words(" to "), File(to)]);
                }
                (sentence, Neutral)
            }
        };
        Described { sentence, detail, reason, tone }
    }
}

fn changed(change: &FileChanged) -> Vec<Part<'_>> {
    use Part::{Agent, File, Words};
    let file = File(&change.target_file);
    match change {
        FileChanged { moved_to: Some(to), .. } => {
            vec![Agent, Words(" moved "), file, Words(" to "), File(to)]
        }
        FileChanged { hash_after: None, .. } => vec![Agent, Words(" deleted "), file],
        FileChanged { hash_before: None, .. } => vec![Agent, Words(" created "), file],
        FileChanged { hash_before: Some(_), hash_after: Some(_), .. } => {
            vec![Agent, Words(" wrote "), file]
        }
    }
}

fn undone(file: &str) -> Vec<Part<'_>> {
    let end = Part::Words(" was rolled back after a power cut");
    vec![Part::Words("the change of "), Part::File(file), Part::Words(" by "), Part::Agent, end]
}

fn ended(attempt: &EndedAttempt) -> String {
    let EndedAttempt { claim_id, result, duration_s, .. } = attempt;
    format!("{claim_id}, {} after {duration_s} s", result.as_str())
}
