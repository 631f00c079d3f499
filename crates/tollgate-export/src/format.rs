//! The list of formats. A new one takes a file with its `FORMAT`, and a line here.

use crate::encoder::ExportFormat;
use crate::{agent_trace, cloudevents, ndjson, otlp};

/// All formats.
pub static FORMATS: [&ExportFormat; 4] =
    [&ndjson::FORMAT, &cloudevents::FORMAT, &otlp::FORMAT, &agent_trace::FORMAT];
