//! CloudEvents 1.0, in the JSON event format: <https://github.com/cloudevents/spec>. Pure.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::{Agent, TurnId};

use crate::encoder::{Encoded, ExportFormat};
use crate::record::ExportRecord;
use crate::shipment::BodyForm;

/// CloudEvents 1.0 in JSON.
pub(crate) static FORMAT: ExportFormat = ExportFormat {
    name: "cloudevents",
    about: "CloudEvents 1.0 in JSON",
    reads_texts: false,
    encode: |encoder, records, _| {
        let item = |record: &ExportRecord| cloud_event(record, &encoder.origin.uri).map(Some);
        Encoded::one_by_one(records, (BATCH, BodyForm::List), item)
    },
};

/// The media type of a list of events.
const BATCH: &str = "application/cloudevents-batch+json; charset=UTF-8";

/// One event. Names of extensions are lowercase letters and digits only.
#[derive(Serialize)]
struct CloudEvent<'a> {
    specversion: &'static str,
    id: Digest,
    source: &'a str,
    r#type: String,
    time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    datacontenttype: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tollgateagent: Option<&'a Agent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tollgateturn: Option<&'a TurnId>,
    data: &'a RawValue,
}

/// One event as JSON.
fn cloud_event(record: &ExportRecord, source: &str) -> Result<String> {
    let wrong = |error: serde_json::Error| Fault::invalid(format!("an event is not JSON: {error}"));
    let described = record.event.described();
    let event = CloudEvent {
        specversion: "1.0",
        id: record.id,
        source,
        r#type: record.event_name(),
        time: record.time,
        subject: described.targets().next().filter(|subject| !subject.is_empty()),
        datacontenttype: "application/json",
        tollgateagent: record.agent.as_ref(),
        tollgateturn: record.turn.as_ref(),
        data: serde_json::from_str(&record.text).map_err(wrong)?,
    };
    serde_json::to_string(&event).map_err(wrong)
}
