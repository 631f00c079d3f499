//! Where encoded events go.

use std::io::Write;

use tollgate_base::error::{At, Result};

use crate::notice::ExportNotice;
use crate::otlp::rejected;
use crate::out_file::OutFile;
use crate::receiver::{PostOutcome, Receiver};
use crate::shipment::Shipment;

/// Where encoded events go.
pub enum ExportTarget {
    /// To a stream, usually stdout.
    Stream(Box<dyn Write>),
    /// To the end of a file.
    File(OutFile),
    /// To an HTTP endpoint.
    Http(Receiver),
}

/// What came of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// Everything was taken, but for this many records, which the receiver refused for good.
    Taken { rejected: u64 },
    /// The receiver takes less at a time.
    TooLarge,
}

impl ExportTarget {
    /// Delivers all of it. If that fails in the middle, some of it was delivered.
    pub(crate) fn deliver(
        &mut self,
        shipments: &[Shipment],
        tell: &mut dyn FnMut(&ExportNotice),
    ) -> Result<Delivery> {
        let mut refused = 0;
        for shipment in shipments {
            match self {
                Self::Stream(stream) => {
                    let written = stream.write_all(&shipment.lines()).and_then(|()| stream.flush());
                    written.at("hand out", "events")?;
                }
                Self::File(file) => file.append(&shipment.lines())?,
                Self::Http(receiver) => match receiver.post(shipment, tell)? {
                    PostOutcome::TooLarge => return Ok(Delivery::TooLarge),
                    PostOutcome::Taken(answer) => {
                        if let Some((count, message)) = rejected(&answer) {
                            refused += count;
                            tell(&ExportNotice::Rejected { count, message });
                        }
                    }
                },
            }
        }
        Ok(Delivery::Taken { rejected: refused })
    }
}
