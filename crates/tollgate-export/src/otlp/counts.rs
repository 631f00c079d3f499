//! The number of events of each kind, as a metric.
//!
//! The sum is cumulative: a data point that arrives twice counts once, and one that is lost is made up for by the next.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::values::{nanos, text_attribute};
use crate::record::ExportRecord;

/// The number of series, as in OpenTelemetry's own libraries. Events beyond that are counted together.
const MOST: usize = 2000;

/// Sums start over at zero when their beginning changes.
const CUMULATIVE: u8 = 2;

/// The number of events of each kind, for each agent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct EventCounts {
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    series: BTreeMap<String, EventCount>,
    /// Events that have no series of their own.
    overflow: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct EventCount {
    action_type: String,
    agent: String,
    status: String,
    count: u64,
    /// Whether it changed since it was last sent.
    #[serde(default)]
    is_new: bool,
}

impl EventCounts {
    pub(super) fn add(&mut self, record: &ExportRecord) {
        // The beginning stays: another one would say that the sums start over.
        let since = *self.since.get_or_insert(record.time);
        self.until = Some(self.until.unwrap_or(since).max(record.time));
        let words = record.event.result_words();
        let status = words.into_iter().find(|(key, _)| *key == "status").map_or("", |(_, word)| word);
        let (action_type, agent) =
            (record.event.action_type(), record.agent.as_ref().map_or("", |agent| agent.as_str()));
        let key = format!("{action_type} {agent} {status}");
        if let Some(counted) = self.series.get_mut(&key) {
            counted.count += 1;
            counted.is_new = true;
        } else if self.series.len() < MOST {
            let (action_type, agent, status) = (action_type.to_owned(), agent.to_owned(), status.to_owned());
            self.series.insert(key, EventCount { action_type, agent, status, count: 1, is_new: true });
        } else {
            self.overflow += 1;
        }
    }

    /// The sums that have changed.
    pub(super) fn metrics(&mut self) -> Vec<Value> {
        let start = nanos(self.since.unwrap_or(Timestamp::UNIX_EPOCH));
        let time = nanos(self.until.unwrap_or(Timestamp::UNIX_EPOCH));
        let point = |attributes: Value, count: u64| {
            json!({
                "attributes": attributes,
                "startTimeUnixNano": start,
                "timeUnixNano": time,
                "asInt": count.to_string(),
            })
        };
        let mut points = Vec::new();
        for counted in self.series.values_mut() {
            if !std::mem::take(&mut counted.is_new) {
                continue;
            }
            let mut attributes = vec![text_attribute("tollgate.action_type", &counted.action_type)];
            for (key, value) in [("tollgate.agent", &counted.agent), ("tollgate.status", &counted.status)] {
                if !value.is_empty() {
                    attributes.push(text_attribute(key, value));
                }
            }
            points.push(point(attributes.into(), counted.count));
        }
        if self.overflow > 0 {
            let overflow = json!([{ "key": "otel.metric.overflow", "value": { "boolValue": true } }]);
            points.push(point(overflow, self.overflow));
        }
        vec![json!({
            "name": "tollgate.events",
            "description": "Number of ledger events.",
            "unit": "{event}",
            "sum": { "dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true },
        })]
    }
}
