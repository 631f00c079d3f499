//! One decision about several tasks of one action: approve, request changes, reject.
//!
//! Invariant: each task is decided as it was shown. One that was changed in the meantime is left out, and the answer says so.

use std::thread::sleep;

use axum::extract::{Form, State as Shared};
use axum::response::Response;
use jiff::Timestamp;
use tollgate::digest::Digest;
use tollgate::error::{Fault, MissingKind, Result};
use tollgate::vault::retry::with_retry;
use tollgate::vault::state::State;
use tollgate::vault::{TaskName, Vault};

use super::bulk::{BulkQuery, Outcome, TOGETHER};
use super::layout;
use super::page::Page;
use super::task_request::as_shown;
use super::trouble::Trouble;
use super::visit::Visit;
use crate::site::Site;

/// What a person decides about all of them.
#[derive(Clone)]
enum BulkDecision {
    Approve,
    SendBack(String),
    Reject(String),
}

impl BulkDecision {
    fn verb(&self) -> &'static str {
        match self {
            Self::Approve => "approved",
            Self::SendBack(_) => "sent back",
            Self::Reject(_) => "rejected",
        }
    }

    /// Decides one task as it was shown. Returns why it was not decided.
    fn decide(&self, vault: &Vault, task: &TaskName, seen: Digest, by: &str) -> Option<String> {
        let now = Timestamp::now();
        let decided = with_retry(
            || match as_shown(vault, task, seen, State::PendingApproval)? {
                Err(denial) => Ok(Err(denial)),
                Ok(_) => match self {
                    Self::Approve => vault.approve(task, by, Some(seen), now),
                    Self::SendBack(reason) => vault.retry(task, by, Some(reason), now),
                    Self::Reject(reason) => vault.reject(task, by, reason, now),
                },
            },
            &sleep,
        );
        match decided {
            Ok(Ok(_)) => None,
            Ok(Err(denial)) => Some(denial.to_string()),
            Err(fault) => Some(fault.to_string()),
        }
    }
}

/// The decision about the checked tasks. A form with the same field several times is a list of pairs.
pub(super) async fn decide(
    visit: Visit,
    Shared(site): Shared<Site>,
    Form(form): Form<Vec<(String, String)>>,
) -> Response {
    let field = |name: &str| form.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str());
    let action = field("action").to_owned();
    let outcome = match read(&visit, &form, field("decision"), field("reason").trim()) {
        Err(trouble) => Outcome::NotDone(trouble),
        Ok((decision, tasks)) => {
            let verb = decision.verb();
            let by = site.options.person.clone();
            let made = site.blocking(move |site| {
                let open = site.open()?;
                let Some(vault) = open.as_ref().and_then(|open| open.vault.as_ref()) else {
                    return Err(Fault::missing(MissingKind::Vault, "the vault"));
                };
                let (mut number, mut left) = (0, Vec::new());
                for (task, seen) in &tasks {
                    match decision.decide(vault, task, *seen, &by) {
                        None => number += 1,
                        Some(why) => left.push((task.to_string(), why)),
                    }
                }
                Ok((number, left))
            });
            match made.await {
                Ok((number, left)) => Outcome::Decided(number, verb, left),
                Err(fault) => Outcome::NotDone(Trouble::Other(fault.0.to_string())),
            }
        }
    };
    layout::respond(visit, Page::Bulk(BulkQuery::after(action, outcome))).await
}

/// The decision, and the tasks as they were shown.
fn read(
    visit: &Visit,
    form: &[(String, String)],
    decision: &str,
    reason: &str,
) -> Result<(BulkDecision, Vec<(TaskName, Digest)>), Trouble> {
    let token = form.iter().find(|(key, _)| key == "token").map_or("", |(_, value)| value.as_str());
    if !visit.sent(token) {
        return Err(Trouble::Forged);
    }
    let decision = match decision {
        "approve" => BulkDecision::Approve,
        "changes" | "reject" if reason.is_empty() => return Err(Trouble::NoReason),
        "changes" => BulkDecision::SendBack(reason.to_owned()),
        "reject" => BulkDecision::Reject(reason.to_owned()),
        _ => return Err(Trouble::Other("the form names no decision".into())),
    };
    let mut tasks = Vec::new();
    for (_, value) in form.iter().filter(|(key, _)| key == "task") {
        let (seen, task) = value.split_once(' ').unwrap_or_default();
        match (TaskName::of_file(task), seen.parse()) {
            (Ok(task), Ok(seen)) => tasks.push((task, seen)),
            _ => return Err(Trouble::Other("the form names no task".into())),
        }
    }
    match tasks.len() {
        0 => Err(Trouble::Other("no task is checked".into())),
        1..=TOGETHER => Ok((decision, tasks)),
        _ => Err(Trouble::Other(format!("at most {TOGETHER} tasks are decided at once"))),
    }
}
