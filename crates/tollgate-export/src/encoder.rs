//! From events to the format that a receiver wants.

use tollgate_base::error::Result;

use crate::agent_trace::{FileTexts, trace_record};
use crate::cloudevents::{BATCH, cloud_event};
use crate::origin::ExportOrigin;
use crate::otlp::OtlpState;
use crate::record::ExportRecord;
use crate::shipment::{BodyForm, Shipment};

const NDJSON: &str = "application/x-ndjson";

/// The format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// The lines of the ledger, each with its id.
    Ndjson,
    /// CloudEvents 1.0 in JSON.
    CloudEvents,
    /// OpenTelemetry: log records, spans and metrics.
    Otlp,
    /// Which agent wrote which lines: <https://agent-trace.dev>.
    AgentTrace,
}

impl ExportFormat {
    /// The word for it on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ndjson => "ndjson",
            Self::CloudEvents => "cloudevents",
            Self::Otlp => "otlp",
            Self::AgentTrace => "agent-trace",
        }
    }
}

/// Encodes events in one format.
pub(crate) struct Encoder {
    pub(crate) format: ExportFormat,
    pub(crate) origin: ExportOrigin,
    pub(crate) texts: Box<dyn FileTexts>,
}

impl Encoder {
    /// What receivers get for these events. Formats that describe more than one event at a time keep what they need to know
    /// in `state`.
    pub(crate) fn encode(&self, records: &[ExportRecord], state: &mut OtlpState) -> Result<Vec<Shipment>> {
        let (media_type, form) = match self.format {
            ExportFormat::Otlp => return state.encode(records, &self.origin),
            ExportFormat::CloudEvents => (BATCH, BodyForm::List),
            ExportFormat::Ndjson | ExportFormat::AgentTrace => (NDJSON, BodyForm::Lines),
        };
        let item = |record: &ExportRecord| match self.format {
            ExportFormat::CloudEvents => cloud_event(record, &self.origin.uri).map(Some),
            ExportFormat::AgentTrace => trace_record(record, &self.origin, &*self.texts),
            ExportFormat::Ndjson | ExportFormat::Otlp => Ok(Some(with_id(record))),
        };
        let items: Vec<String> =
            records.iter().filter_map(|record| item(record).transpose()).collect::<Result<_>>()?;
        if items.is_empty() {
            return Ok(Vec::new());
        }
        Ok(vec![Shipment { path: "", media_type, items, form }])
    }
}

/// The line with its id as the first key. The rest stays byte for byte as it is in the ledger.
fn with_id(record: &ExportRecord) -> String {
    format!("{{\"id\":\"{}\",{}", record.id, record.text.trim_start().strip_prefix('{').unwrap_or_default())
}
