//! What an export did, and what it waits for.

use tollgate::visible::plain;
use tollgate_export::ExportNotice;

use super::text::count;

/// The end of an export.
pub(crate) fn exported(exported: u64, rejected: u64, destination: &str) -> String {
    let events = count(usize::try_from(exported).unwrap_or(usize::MAX), "event");
    let done = format!("exported {events} to `{}`", plain(destination));
    match rejected {
        0 => done,
        rejected => format!("{done}; the receiver rejected {rejected} of the records made from them"),
    }
}

/// One notice, for stderr.
pub(crate) fn export_notice(notice: &ExportNotice) -> String {
    match notice {
        ExportNotice::Waiting { why, pause } => format!(
            "waiting: the receiver accepts no events: {}\nnote: tollgate tries again, first in {:.1} s; no event is lost",
            plain(why),
            pause.as_secs_f64()
        ),
        ExportNotice::Resumed => "the receiver accepts events again".to_owned(),
        ExportNotice::Rejected { count: rejected, message } => format!(
            "warning: the receiver rejected {}: {}",
            count(usize::try_from(*rejected).unwrap_or(usize::MAX), "record"),
            plain(message)
        ),
        ExportNotice::Doubtful => {
            "warning: some ledger lines are damaged or do not fit together, and were exported as far as possible\n\
             hint: run `tollgate ledger verify` to see the first"
                .to_owned()
        }
    }
}
