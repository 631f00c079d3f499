//! The requests for events, and what the export must remember from one event to the next. Pure.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::counts::EventCounts;
use super::logs::log_record;
use super::spans::OpenSpans;
use super::values::text_attribute;
use crate::origin::ExportOrigin;
use crate::record::ExportRecord;
use crate::shipment::{BodyForm, Shipment};

/// What the export must remember from event to event.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct OtlpState {
    #[serde(default)]
    open: OpenSpans,
    #[serde(default)]
    counts: EventCounts,
}

impl OtlpState {
    /// The requests for these events.
    pub(super) fn encode(&mut self, records: &[ExportRecord], origin: &ExportOrigin) -> Vec<Shipment> {
        if records.is_empty() {
            return Vec::new();
        }
        let mut spans = Vec::new();
        for record in records {
            spans.extend(self.open.take(record, origin));
            self.counts.add(record);
        }
        let logs: Vec<Value> = records.iter().map(|record| log_record(record, origin)).collect();
        let mut shipments =
            vec![shipment("v1/logs", "resourceLogs", "scopeLogs", "logRecords", logs, origin)];
        if !spans.is_empty() {
            shipments.push(shipment("v1/traces", "resourceSpans", "scopeSpans", "spans", spans, origin));
        }
        let metrics = self.counts.metrics();
        shipments.push(shipment("v1/metrics", "resourceMetrics", "scopeMetrics", "metrics", metrics, origin));
        shipments
    }
}

/// One request: records of one resource and one scope.
fn shipment(
    path: &'static str,
    of_resource: &str,
    of_scope: &str,
    of_records: &str,
    records: Vec<Value>,
    origin: &ExportOrigin,
) -> Shipment {
    let item = json!({ of_resource: [{
        "resource": { "attributes": [
            text_attribute("service.name", "tollgate"),
            text_attribute("service.version", origin.version),
            text_attribute("service.instance.id", &origin.uri),
        ] },
        of_scope: [{ "scope": { "name": "tollgate", "version": origin.version }, of_records: records }],
    }] });
    Shipment { path, media_type: "application/json", items: vec![item.to_string()], form: BodyForm::Lines }
}
