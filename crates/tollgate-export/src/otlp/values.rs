//! Values of OpenTelemetry as JSON: attributes, times, ids.

use jiff::Timestamp;
use serde_json::{Value, json};
use tollgate_base::digest::Digest;

use crate::origin::ExportOrigin;

/// An attribute that is a text.
pub(super) fn text_attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// An attribute that is a number. 64-bit numbers are texts in this encoding.
pub(super) fn number_attribute(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

/// A time, in nanoseconds since 1970. Times before that do not exist in this protocol.
pub(super) fn nanos(time: Timestamp) -> String {
    time.as_nanosecond().max(0).to_string()
}

/// The ids of the span of a turn or a claim: of its trace, and its own.
pub(super) struct SpanIds {
    pub(super) trace: String,
    pub(super) span: String,
}

impl SpanIds {
    /// The ids follow from the turn or claim and its ledger, so that another export gives the same.
    pub(super) fn of(kind: &str, id: &str, origin: &ExportOrigin) -> Self {
        let hex = Digest::of(format!("{kind} {id} {}", origin.uri).as_bytes()).to_string();
        Self { trace: hex[..32].to_owned(), span: hex[32..48].to_owned() }
    }
}
