//! OpenTelemetry's protocol (OTLP 1.x) in its JSON encoding: <https://opentelemetry.io/docs/specs/otlp/>. Pure.
//!
//! Every event is a log record; every turn and every claim is a span, made when it ends; the events so far are counted in a
//! cumulative sum. Log records of a turn or a claim name its span. The ids of spans follow from the ids of turns and claims,
//! and times from the ledger, so that an event that is exported again gives the same records again.

mod counts;
mod logs;
mod spans;
mod values;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::counts::EventCounts;
use self::logs::log_record;
use self::spans::OpenSpans;
use self::values::text_attribute;
use crate::encoder::Encoded;
use crate::format::ExportFormat;
use crate::origin::ExportOrigin;
use crate::record::ExportRecord;
use crate::shipment::{BodyForm, Shipment};

/// OpenTelemetry: log records, spans and metrics.
pub static FORMAT: ExportFormat = ExportFormat {
    name: "otlp",
    about: "OpenTelemetry: events as logs, turns and claims as spans, and metrics",
    reads_texts: false,
    encode: |encoder, records, state| {
        Ok(Encoded { shipments: state.encode(records, &encoder.origin), events: records.len() })
    },
};

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
    fn encode(&mut self, records: &[ExportRecord], origin: &ExportOrigin) -> Vec<Shipment> {
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

/// The number of log records, spans or data points that the receiver refused for good, with its message.
pub(crate) fn rejected(answer: &[u8]) -> Option<(u64, String)> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let partial = &answer["partialSuccess"];
    let message = partial["errorMessage"].as_str().unwrap_or_default().to_owned();
    // 64-bit numbers are texts in this encoding, and some receivers write numbers.
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let counts = ["rejectedLogRecords", "rejectedSpans", "rejectedDataPoints"];
    let count = counts.iter().find_map(|key| number(&partial[*key])).unwrap_or(0);
    (count > 0).then_some((count, message))
}
