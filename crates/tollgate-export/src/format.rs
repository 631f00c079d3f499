//! The formats of an export. A new one takes a file with its `FORMAT`, and a line in [`FORMATS`].

use std::fmt;

use tollgate_base::error::Result;

use crate::encoder::{Encoded, Encoder};
use crate::otlp::OtlpState;
use crate::record::ExportRecord;
use crate::{agent_trace, cloudevents, ndjson, otlp};

/// All formats.
pub static FORMATS: [&ExportFormat; 4] =
    [&ndjson::FORMAT, &cloudevents::FORMAT, &otlp::FORMAT, &agent_trace::FORMAT];

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

impl ExportFormat {
    /// The format with this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        FORMATS.into_iter().find(|format| format.name == name)
    }
}

impl fmt::Debug for ExportFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
