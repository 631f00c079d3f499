//! The lines of the ledger, one after the other. Pure.

use crate::encoder::{Encoded, ExportFormat};
use crate::record::ExportRecord;
use crate::shipment::BodyForm;

/// The media type of lines of JSON.
pub(crate) const NDJSON: &str = "application/x-ndjson";

/// The lines of the ledger, each with its id.
pub(crate) static FORMAT: ExportFormat = ExportFormat {
    name: "ndjson",
    about: "The lines of the ledger, each with its id",
    reads_texts: false,
    encode: |_, records, _| {
        Encoded::one_by_one(records, (NDJSON, BodyForm::Lines), |record| Ok(Some(with_id(record))))
    },
};

/// The line with its id as the first key. The rest stays byte for byte as it is in the ledger.
fn with_id(record: &ExportRecord) -> String {
    format!("{{\"id\":\"{}\",{}", record.id, record.text.trim_start().strip_prefix('{').unwrap_or_default())
}
