//! OpenTelemetry's protocol (OTLP 1.x) in its JSON encoding: <https://opentelemetry.io/docs/specs/otlp/>. Pure.
//!
//! Every event is a log record; every turn and every claim is a span, made when it ends; the events so far are counted in a
//! cumulative sum. Log records of a turn or a claim name its span. The ids of spans follow from the ids of turns and claims,
//! and times from the ledger, so that an event that is exported again gives the same records again.

mod counts;
mod logs;
mod spans;
pub(crate) mod state;
mod values;

use serde_json::Value;

use crate::encoder::{Encoded, ExportFormat};

/// OpenTelemetry: log records, spans and metrics.
pub static FORMAT: ExportFormat = ExportFormat {
    name: "otlp",
    about: "OpenTelemetry: events as logs, turns and claims as spans, and metrics",
    reads_texts: false,
    encode: |encoder, records, state| {
        Ok(Encoded { shipments: state.encode(records, &encoder.origin), events: records.len() })
    },
};

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
