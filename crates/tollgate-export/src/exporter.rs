//! Moves events from a source to a target, page by page.
//!
//! Invariant: the place is saved after everything before it was taken and flushed. If the process dies, at most
//! what was exported in the last second is repeated.

use std::time::{Duration, Instant};

use tollgate_base::error::Result;

use crate::encoder::{Encoded, Encoder, ExportFormat};
use crate::file_texts::FileTexts;
use crate::notice::ExportNotice;
use crate::origin::ExportOrigin;
use crate::otlp::state::OtlpState;
use crate::record::ExportRecord;
use crate::saved::SavedExport;
use crate::source::{EventSource, FirstEvent};
use crate::target::{Delivery, ExportTarget};

/// The number of events that are read and sent together: some hundred kilobytes.
const PAGE: usize = 500;

/// How often the place is saved. Saving flushes the disk, which agents need, too.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// How far a step has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportStep {
    /// There is more.
    Further,
    /// These are all events for now.
    ToTheEnd,
}

/// An export.
pub struct Exporter {
    source: Box<dyn EventSource>,
    encoder: Encoder,
    target: ExportTarget,
    saved: Option<SavedExport>,
    state: OtlpState,
    last_save: Instant,
    is_saved: bool,
    exported: u64,
    rejected: u64,
}

impl Exporter {
    /// Begins at `since`, else at the saved place, else with the first event.
    pub fn new(
        mut source: Box<dyn EventSource>,
        (format, origin, texts): (&'static ExportFormat, ExportOrigin, Box<dyn FileTexts>),
        mut target: ExportTarget,
        mut saved: Option<SavedExport>,
        since: Option<FirstEvent>,
    ) -> Result<Self> {
        if let ExportTarget::File(file) = &mut target {
            if saved.as_ref().is_some_and(SavedExport::exists) {
                file.delete_torn_line()?;
            } else {
                file.end_last_line()?;
            }
        }
        let loaded = saved.as_mut().and_then(SavedExport::take);
        let mut state = OtlpState::default();
        match (since, loaded) {
            (Some(since), _) => source.go_before(since)?,
            (None, Some((place, loaded))) => {
                source.go_to(&place)?;
                state = loaded;
            }
            (None, None) => {}
        }
        let encoder = Encoder { format, origin, texts };
        let last_save = Instant::now();
        let mut exporter = Self {
            source,
            encoder,
            target,
            saved,
            state,
            last_save,
            is_saved: false,
            exported: 0,
            rejected: 0,
        };
        // From now on, a torn line at the end of the file is one of ours.
        exporter.save()?;
        Ok(exporter)
    }

    /// Exports the next events, if there are any.
    pub fn advance(&mut self, tell: &mut dyn FnMut(&ExportNotice)) -> Result<ExportStep> {
        let page = self.source.read(PAGE)?;
        if page.is_doubtful {
            tell(&ExportNotice::Doubtful);
        }
        if !page.records.is_empty() {
            self.deliver(&page.records, tell)?;
            self.is_saved = false;
        }
        // A request costs more than a save. So that an export that is killed often comes further each time, every full page
        // that a receiver took is saved.
        let is_costly = matches!(self.target, ExportTarget::Http(_)) && !page.is_end;
        if is_costly || self.last_save.elapsed() >= SAVE_EVERY {
            self.save()?;
        }
        Ok(if page.is_end { ExportStep::ToTheEnd } else { ExportStep::Further })
    }

    fn deliver(&mut self, records: &[ExportRecord], tell: &mut dyn FnMut(&ExportNotice)) -> Result<()> {
        let mut state = self.state.clone();
        let Encoded { shipments, events } = self.encoder.encode(records, &mut state)?;
        match (self.target.deliver(&shipments, tell)?, &self.target) {
            (Delivery::Taken { rejected }, _) => {
                self.state = state;
                self.rejected += rejected;
                self.exported += events as u64;
                Ok(())
            }
            (Delivery::TooLarge, ExportTarget::Http(receiver)) if records.len() == 1 => {
                Err(receiver.undelivered("HTTP 413, although the request has one event".into()))
            }
            (Delivery::TooLarge, _) => {
                let (first, second) = records.split_at(records.len() / 2);
                self.deliver(first, tell)?;
                self.deliver(second, tell)
            }
        }
    }

    /// Saves the place, if it has changed. Without a file for it, the next export begins again.
    pub fn save(&mut self) -> Result<()> {
        if let Some(saved) = self.saved.as_ref().filter(|_| !self.is_saved) {
            if let ExportTarget::File(file) = &self.target {
                // Otherwise a power cut could keep the place and lose lines before it.
                file.sync()?;
            }
            saved.save(self.source.place(), &self.state)?;
            // After the place is saved: until then, the next export continues at the one before.
            self.source.keep(saved.name())?;
        }
        (self.is_saved, self.last_save) = (true, Instant::now());
        Ok(())
    }

    /// The number of events, or of records made from them, that were taken.
    pub fn exported(&self) -> u64 {
        self.exported
    }

    /// The number of records that the receiver refused for good.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use tollgate_base::error::Fault;

    use super::*;
    use crate::file_texts::NoTexts;
    use crate::saved::ExportKey;
    use crate::source::SourcePage;

    /// What was asked of a source, in order.
    type Asked = Rc<RefCell<Vec<String>>>;

    /// A source with three places, whose events are of no interest.
    struct Places(u8, Asked);

    impl EventSource for Places {
        fn go_to(&mut self, place: &str) -> Result<()> {
            self.0 = place.parse().map_err(|_| Fault::invalid("no place"))?;
            Ok(())
        }

        fn go_before(&mut self, _first: FirstEvent) -> Result<()> {
            Ok(())
        }

        fn read(&mut self, _most: usize) -> Result<SourcePage> {
            self.1.borrow_mut().push("read".to_owned());
            self.0 += 1;
            Ok(SourcePage { records: Vec::new(), is_end: self.0 == 2, is_doubtful: false })
        }

        fn place(&self) -> String {
            self.0.to_string()
        }

        fn keep(&self, export: &str) -> Result<()> {
            self.1.borrow_mut().push(format!("keep {} {}", self.0, export.len()));
            Ok(())
        }
    }

    #[test]
    fn the_source_is_told_what_to_keep_before_the_first_read_and_after_each_saved_place() {
        let folder = tempfile::tempdir().unwrap();
        let asked = Asked::default();
        let key =
            |to: &str| ExportKey { format: &crate::ndjson::FORMAT, of: "vault", destination: to.to_owned() };
        let exporter = |saved| {
            let origin =
                ExportOrigin { uri: String::new(), version: "1", folder: String::new(), user: String::new() };
            let source = Box::new(Places(0, Rc::clone(&asked)));
            let target = ExportTarget::Stream(Box::new(Vec::new()));
            Exporter::new(source, (&crate::ndjson::FORMAT, origin, Box::new(NoTexts)), target, saved, None)
        };
        let mut first = exporter(Some(SavedExport::open(folder.path(), key("there")).unwrap())).unwrap();
        first.advance(&mut |_| ()).unwrap();
        first.is_saved = false;
        first.save().unwrap();
        drop(first);
        let second = exporter(Some(SavedExport::open(folder.path(), key("there")).unwrap())).unwrap();
        drop(second);
        // Nobody continues an export to a stream.
        exporter(None).unwrap().advance(&mut |_| ()).unwrap();
        assert_eq!(*asked.borrow(), ["keep 0 16", "read", "keep 1 16", "keep 1 16", "read"]);
    }
}
