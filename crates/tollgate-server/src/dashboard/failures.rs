//! Failed attempts that nobody has made good yet: the task, why it failed, and the end of what its command printed.

use std::collections::BTreeSet;

use jiff::Timestamp;
use maud::{Markup, html};
use tollgate::error::Result;
use tollgate::event::Event;
use tollgate::ledger::Line;
use tollgate::vault::anatomy::Anatomy;
use tollgate::vault::block::Verdict;
use tollgate::vault::state::State;
use tollgate::vault::{TaskName, Vault};

use super::sheet::Sheet;
use super::task_row::state_words;
use super::text::{SafeText, ago, encode, printed};

/// The number of failures that the board shows.
const SHOWN: usize = 5;

/// A task whose last attempt failed.
pub(super) struct FailedTask {
    task: TaskName,
    title: String,
    state: State,
    agent: String,
    time: Timestamp,
    reason: Option<String>,
    output: Option<String>,
}

impl FailedTask {
    /// The newest failures in these lines, of tasks that still wait for another attempt or were rejected.
    pub(super) fn newest(vault: &Vault, lines: &[Line], now: Timestamp) -> Result<Vec<Self>> {
        let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
        for line in lines {
            let Some(task) = line.event.keys().task else { continue };
            // Only the last thing that happened to a task counts.
            if found.len() == SHOWN || !seen.insert(task.to_owned()) {
                continue;
            }
            let Event::Release(released, state) = &line.event else { continue };
            if released.attempt.result != Verdict::Failure || *state == State::PendingApproval {
                continue;
            }
            // A task that was deleted or moved since is no failure any more.
            let Ok(sheet) = Sheet::read(vault, &released.task, now) else { continue };
            if sheet.stored.slot.state() != *state {
                continue;
            }
            found.push(Self {
                title: sheet.title().to_owned(),
                task: released.task.clone(),
                state: *state,
                agent: line.agent.as_ref().map_or("an unknown agent", |agent| agent.as_str()).to_owned(),
                time: line.time,
                reason: released.reason.clone(),
                output: Anatomy::of(&sheet.text).attempts.pop().and_then(|attempt| attempt.output),
            });
        }
        Ok(found)
    }

    pub(super) fn show(&self, now: Timestamp) -> Markup {
        let task = self.task.as_str();
        html! {
            li.failure data-key=(encode(task)) {
                p {
                    a href=(format!("/tasks/{}", encode(task))) { (SafeText(&self.title)) } " "
                    span.state data-state=(self.state) { (state_words(self.state).0) }
                }
                p.quiet {
                    span.agent { (self.agent) } " failed " (ago(self.time, now))
                    @if let Some(reason) = &self.reason { ": " (SafeText(reason)) }
                }
                @if let Some(output) = &self.output {
                    details { summary { "Output" span.unseen { " of " (SafeText(&self.title)) } } (printed(output)) }
                }
            }
        }
    }
}
