//! From events to the format that a receiver wants.

use std::fmt;

use tollgate_base::error::Result;

use crate::file_texts::FileTexts;
use crate::origin::ExportOrigin;
use crate::otlp::state::OtlpState;
use crate::record::ExportRecord;
use crate::shipment::{BodyForm, Shipment};

/// The format of an export.
pub struct ExportFormat {
    /// The word for it on the command line.
    pub name: &'static str,
    /// What it is, for the help of the command.
    pub about: &'static str,
    /// Whether it needs [`FileTexts`](crate::FileTexts).
    pub reads_texts: bool,
    /// What receivers get for events. A format that describes more than one event at a time keeps what it needs to know in
    /// the state.
    pub(crate) encode: fn(&Encoder, &[ExportRecord], &mut OtlpState) -> Result<Encoded>,
}

impl fmt::Debug for ExportFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Encodes events in one format.
pub(crate) struct Encoder {
    pub(crate) format: &'static ExportFormat,
    pub(crate) origin: ExportOrigin,
    pub(crate) texts: Box<dyn FileTexts>,
}

/// Encoded events.
pub(crate) struct Encoded {
    pub(crate) shipments: Vec<Shipment>,
    /// The number of events that are in them.
    pub(crate) events: usize,
}

impl Encoder {
    /// What receivers get for these events.
    pub(crate) fn encode(&self, records: &[ExportRecord], state: &mut OtlpState) -> Result<Encoded> {
        (self.format.encode)(self, records, state)
    }
}

impl Encoded {
    /// One item for each event that the format describes.
    pub(crate) fn one_by_one(
        records: &[ExportRecord],
        (media_type, form): (&'static str, BodyForm),
        item: impl Fn(&ExportRecord) -> Result<Option<String>>,
    ) -> Result<Self> {
        let items: Vec<String> =
            records.iter().filter_map(|record| item(record).transpose()).collect::<Result<_>>()?;
        let events = items.len();
        let shipment = (events > 0).then_some(Shipment { path: "", media_type, items, form });
        Ok(Self { shipments: shipment.into_iter().collect(), events })
    }
}
