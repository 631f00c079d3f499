//! Turns and claims as spans, from their beginning to their end.
//!
//! Invariant: a span is made once, when its end is exported. A turn whose beginning was not exported has none.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tollgate_base::event::{EndedAttempt, Event, TaskReclaimed, TaskReleased};
use tollgate_base::name::Agent;
use tollgate_base::task::Verdict;

use super::values::{SpanIds, nanos, text_attribute};
use crate::origin::ExportOrigin;
use crate::record::ExportRecord;

/// The number of turns and claims that may be open. Turns are not always ended, so the oldest give way.
const MOST: usize = 4096;

/// The kind of a span that is neither a request nor a message.
const INTERNAL: u8 = 1;
const OK: u8 = 1;
const ERROR: u8 = 2;

/// The turns and claims that have begun, the oldest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct OpenSpans(VecDeque<OpenSpan>);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct OpenSpan {
    /// The id of the turn or of the claim.
    id: String,
    since: Timestamp,
    agent: Option<Agent>,
}

/// The claim that an event is about.
pub(super) fn claim_of(event: &Event) -> Option<&str> {
    match event {
        Event::Claim(claimed) => Some(claimed.claim_id.as_str()),
        Event::Renew(renewed) => Some(renewed.claim_id.as_str()),
        Event::Release(TaskReleased { attempt, .. }, _)
        | Event::Reclaim(TaskReclaimed { attempt: Some(attempt), .. }, _) => Some(attempt.claim_id.as_str()),
        _ => None,
    }
}

impl OpenSpans {
    /// The span that ends with this event, if one does.
    pub(super) fn take(&mut self, record: &ExportRecord, origin: &ExportOrigin) -> Option<Value> {
        match &record.event {
            Event::TurnStarted(_) => self.open(record.turn.as_ref()?.as_str(), record),
            Event::Claim(claimed) => self.open(claimed.claim_id.as_str(), record),
            Event::TurnEnded(_) => {
                let turn = record.turn.as_ref()?.as_str();
                let begun = self.close(turn)?;
                let attributes = vec![text_attribute("tollgate.turn", turn)];
                return Some(span("turn", turn, &begun, record.time, attributes, OK, origin));
            }
            Event::Release(TaskReleased { task, attempt, .. }, state)
            | Event::Reclaim(TaskReclaimed { task, attempt: Some(attempt), .. }, state) => {
                let EndedAttempt { claim_id, result, duration_s, .. } = attempt;
                let begun = self.close(claim_id.as_str()).unwrap_or_else(|| OpenSpan {
                    id: claim_id.as_str().to_owned(),
                    since: before(record.time, *duration_s),
                    agent: record.agent.clone(),
                });
                let attributes = vec![
                    text_attribute("tollgate.task", task.as_str()),
                    text_attribute("tollgate.claim_id", claim_id.as_str()),
                    text_attribute("tollgate.result", result.as_str()),
                    text_attribute("tollgate.status", state.as_str()),
                ];
                let status = if *result == Verdict::Success { OK } else { ERROR };
                return Some(span(
                    "claim",
                    claim_id.as_str(),
                    &begun,
                    record.time,
                    attributes,
                    status,
                    origin,
                ));
            }
            _ => {}
        }
        None
    }

    fn open(&mut self, id: &str, record: &ExportRecord) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(OpenSpan { id: id.to_owned(), since: record.time, agent: record.agent.clone() });
    }

    fn close(&mut self, id: &str) -> Option<OpenSpan> {
        // What ends has mostly begun lately.
        let at = self.0.iter().rposition(|open| open.id == id)?;
        self.0.remove(at)
    }
}

fn before(time: Timestamp, seconds: u64) -> Timestamp {
    let duration = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
    time.checked_sub(duration).unwrap_or(time)
}

fn span(
    kind: &'static str,
    id: &str,
    begun: &OpenSpan,
    end: Timestamp,
    mut attributes: Vec<Value>,
    status: u8,
    origin: &ExportOrigin,
) -> Value {
    let SpanIds { trace, span } = SpanIds::of(kind, id, origin);
    attributes.extend(begun.agent.as_ref().map(|agent| text_attribute("tollgate.agent", agent.as_str())));
    json!({
        "traceId": trace,
        "spanId": span,
        "name": kind,
        "kind": INTERNAL,
        "startTimeUnixNano": nanos(begun.since.min(end)),
        "endTimeUnixNano": nanos(end),
        "attributes": attributes,
        "status": { "code": status },
    })
}
