//! Events as log records.

use serde_json::{Value, json};
use tollgate_base::event::{Event, Tone};

use super::spans::claim_of;
use super::values::{SpanIds, nanos, number_attribute, text_attribute};
use crate::origin::ExportOrigin;
use crate::record::ExportRecord;

/// The severities of OpenTelemetry that are used here.
const INFO: (u8, &str) = (9, "INFO");
const WARN: (u8, &str) = (13, "WARN");

pub(super) fn log_record(record: &ExportRecord, origin: &ExportOrigin) -> Value {
    let described = record.event.described();
    let (number, text) = if described.tone == Tone::Bad { WARN } else { INFO };
    let mut attributes = vec![text_attribute("log.record.uid", &record.id.to_string())];
    attributes.extend(record.seq.map(|seq| number_attribute("tollgate.seq", seq)));
    attributes.extend(record.agent.as_ref().map(|agent| text_attribute("tollgate.agent", agent.as_str())));
    attributes.extend(record.turn.as_ref().map(|turn| text_attribute("tollgate.turn", turn.as_str())));
    let words = record.event.result_words();
    attributes.extend(words.into_iter().map(|(key, word)| text_attribute(&format!("tollgate.{key}"), word)));
    match record.event.keys().task {
        Some(task) => attributes.push(text_attribute("tollgate.task", task)),
        None => {
            attributes.extend(described.targets().next().map(|file| text_attribute("tollgate.file", file)));
        }
    }
    let time = nanos(record.time);
    let mut log = json!({
        "timeUnixNano": time,
        "observedTimeUnixNano": time,
        "severityNumber": number,
        "severityText": text,
        "eventName": record.event_name(),
        "body": { "stringValue": &*record.text },
        "attributes": attributes,
    });
    if let Some(SpanIds { trace, span }) = span_of(record, origin) {
        log["traceId"] = trace.into();
        log["spanId"] = span.into();
    }
    log
}

/// The span to which an event belongs: that of its claim, else that of its turn.
fn span_of(record: &ExportRecord, origin: &ExportOrigin) -> Option<SpanIds> {
    let of_claim = |event: &Event| Some(SpanIds::of("claim", claim_of(event)?, origin));
    let of_turn = || Some(SpanIds::of("turn", record.turn.as_ref()?.as_str(), origin));
    of_claim(&record.event).or_else(of_turn)
}
