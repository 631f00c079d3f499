//! The events of a ledger for other systems: as NDJSON, CloudEvents, OpenTelemetry or Agent Trace, to a file, a stream or an
//! HTTP endpoint.
//!
//! Invariants:
//! - at least once: the saved place is moved only after everything before it was taken, so a process that dies repeats events
//!   and never skips one;
//! - in order, and with stable ids: an event that is exported twice has the same id both times;
//! - bounded memory: one page of events is under way at a time, and a receiver that takes none makes the export wait.
//!
//! `exporter` moves the events; `source` reads them, `encoder` writes them in one of the [`FORMATS`], `target` delivers them, `saved`
//! remembers how far the export has come.

mod agent_trace;
mod cloudevents;
mod encoder;
mod exporter;
mod file_texts;
mod ndjson;
mod notice;
mod origin;
mod otlp;
mod out_file;
mod receiver;
mod record;
mod saved;
mod shipment;
mod source;
mod target;

pub use encoder::ExportFormat;
pub use exporter::{ExportStep, Exporter};
pub use file_texts::{FileTexts, NoTexts};
pub use notice::ExportNotice;
pub use origin::ExportOrigin;
pub use otlp::FORMAT as OTLP;
pub use out_file::OutFile;
pub use receiver::{Receiver, ReceiverOptions};
pub use record::ExportRecord;
pub use saved::{ExportKey, SavedExport};
pub use source::{EventSource, FirstEvent, LedgerSource, SourcePage, VaultSource};
pub use target::ExportTarget;

/// All formats. A new one takes a file with its `FORMAT`, its `mod` line, and a line here.
pub static FORMATS: [&ExportFormat; 4] =
    [&ndjson::FORMAT, &cloudevents::FORMAT, &otlp::FORMAT, &agent_trace::FORMAT];
