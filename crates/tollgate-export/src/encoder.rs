//! From events to the format that a receiver wants.

use tollgate_base::error::Result;

use crate::agent_trace::FileTexts;
use crate::format::ExportFormat;
use crate::origin::ExportOrigin;
use crate::otlp::OtlpState;
use crate::record::ExportRecord;
use crate::shipment::{BodyForm, Shipment};

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
