//! Where events come from: the ledger of a workspace, or the events of a vault, which may be in an engine.
//!
//! Invariant: a source continues after its place without gaps, or says why it cannot.

use jiff::{SignedDuration, Timestamp};
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::ledger::{Cursor, Followed, Follower, Ledger, Line, Lost};
use tollgate_vault::Vault;
use tollgate_vault::event::Entry;

use crate::record::ExportRecord;

/// Processes read the clock before they get the lock of the ledger, and a clock may be set. A line that is older than
/// another by more than this is also earlier in the ledger.
const CLOCK_SLACK: SignedDuration = SignedDuration::from_hours(1);

/// How many events of a vault are looked at together for a time.
const LOOK: usize = 1000;

/// The first event to export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstEvent {
    /// The line with this number, or the first one after it.
    Seq(u64),
    /// The first event at this time or later.
    Time(Timestamp),
}

/// Some events in a row.
#[derive(Debug)]
pub struct SourcePage {
    /// The events, the oldest first.
    pub records: Vec<ExportRecord>,
    /// Whether these are all for now.
    pub is_end: bool,
    /// Whether lines were damaged, or do not fit together.
    pub is_doubtful: bool,
}

/// Events in order, from a place.
pub trait EventSource {
    /// Goes to a place that [`place`](Self::place) gave. The empty text is the place before the first event.
    fn go_to(&mut self, place: &str) -> Result<()>;

    /// Goes to the place before this event.
    fn go_before(&mut self, first: FirstEvent) -> Result<()>;

    /// The next events, at most this many.
    fn read(&mut self, most: usize) -> Result<SourcePage>;

    /// The place after the last event that was read.
    fn place(&self) -> String;

    /// The export of this name will continue at this place, perhaps in another process: what comes after it must stay readable.
    fn keep(&self, _export: &str) -> Result<()> {
        Ok(())
    }
}

/// The lines of a ledger.
#[derive(Debug)]
pub struct LedgerSource {
    ledger: Ledger,
    follower: Follower,
}

impl LedgerSource {
    /// All lines of this ledger.
    pub fn new(ledger: Ledger) -> Self {
        Self { follower: ledger.follow(), ledger }
    }

    /// The place before the line with this number. Damaged lines have none.
    fn before(&self, seq: u64) -> Result<Cursor> {
        for line in self.ledger.newest_before(seq)? {
            match line {
                Ok(line) => return Ok(line.cursor()),
                Err(Fault::Damaged { .. }) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(Cursor::START)
    }
}

impl EventSource for LedgerSource {
    fn go_to(&mut self, place: &str) -> Result<()> {
        let cursor = if place.is_empty() { Cursor::START } else { place.parse()? };
        self.follower = self.ledger.follow_from(cursor);
        Ok(())
    }

    fn go_before(&mut self, first: FirstEvent) -> Result<()> {
        let cursor = match first {
            FirstEvent::Seq(seq) => self.before(seq)?,
            FirstEvent::Time(time) => {
                let earliest = time.checked_sub(CLOCK_SLACK).unwrap_or(Timestamp::MIN);
                let mut first = u64::MAX;
                for line in self.ledger.newest_first()? {
                    match line {
                        Ok(line) if line.time >= time => first = line.seq,
                        Ok(line) if line.time < earliest => break,
                        Ok(_) | Err(Fault::Damaged { .. }) => {}
                        Err(fault) => return Err(fault),
                    }
                }
                self.before(first)?
            }
        };
        self.follower = self.ledger.follow_from(cursor);
        Ok(())
    }

    fn read(&mut self, most: usize) -> Result<SourcePage> {
        let mut records = Vec::new();
        let followed = self.follower.advance(most, |line| records.push(of_line(line)))?;
        if let Followed::Lost(lost) = followed {
            let seq = self.follower.cursor().seq;
            let why = match lost {
                Lost::Deleted => "the files with the lines after it were deleted",
                Lost::Changed => "the line was changed, or this is another ledger",
                Lost::Cut => "the ledger ends before it",
            };
            let what = format!(
                "the last line that was exported, {seq}, is not in it any more: {why}; choose where to begin again with `--since`"
            );
            return Err(Fault::damaged(self.ledger.path(), what));
        }
        let is_doubtful = followed == Followed::Doubtful;
        if is_doubtful {
            // Said once. From now on only new damage counts.
            self.follower.trust();
        }
        Ok(SourcePage { records, is_end: followed != Followed::Further, is_doubtful })
    }

    fn place(&self) -> String {
        self.follower.cursor().to_string()
    }
}

fn of_line(line: Line) -> ExportRecord {
    let id = line.cursor().hash;
    let text = line.text().into();
    let Line { seq, time, agent, turn, event, .. } = line;
    ExportRecord { id, seq: Some(seq), time, agent, turn, event, text }
}

/// The events of a vault, from all machines that share its store.
pub struct VaultSource {
    vault: Vault,
    place: String,
}

impl VaultSource {
    /// All events of this vault.
    pub fn new(vault: Vault) -> Self {
        Self { vault, place: String::new() }
    }
}

impl EventSource for VaultSource {
    fn go_to(&mut self, place: &str) -> Result<()> {
        place.clone_into(&mut self.place);
        Ok(())
    }

    fn go_before(&mut self, first: FirstEvent) -> Result<()> {
        let FirstEvent::Time(time) = first else {
            return Err(Fault::invalid("the events of a vault have no numbers: give a time"));
        };
        self.place = self.vault.store().cursor_before(time)?;
        loop {
            let (events, next) = self.vault.store().events(&self.place, LOOK)?;
            match events.iter().position(|entry| entry.time >= time) {
                Some(0) => return Ok(()),
                Some(before) => {
                    self.place = self.vault.store().events(&self.place, before)?.1;
                    return Ok(());
                }
                None => self.place = next,
            }
            if events.len() < LOOK {
                return Ok(());
            }
        }
    }

    fn read(&mut self, most: usize) -> Result<SourcePage> {
        let (events, next) = self.vault.store().events(&self.place, most)?;
        let is_end = events.len() < most;
        let records = events.into_iter().map(of_entry).collect::<Result<_>>()?;
        self.place = next;
        Ok(SourcePage { records, is_end, is_doubtful: false })
    }

    fn place(&self) -> String {
        self.place.clone()
    }

    fn keep(&self, export: &str) -> Result<()> {
        self.vault.store().keep_after(export, &self.place)
    }
}

fn of_entry(entry: Entry) -> Result<ExportRecord> {
    let text = serde_json::to_string(&entry)
        .map_err(|error| Fault::invalid(format!("an event cannot be written as JSON: {error}")))?;
    let Entry { time, agent, turn, event } = entry;
    Ok(ExportRecord {
        id: Digest::of(text.as_bytes()),
        seq: None,
        time,
        agent,
        turn,
        event,
        text: text.into(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tollgate_base::name::StepId;
    use tollgate_base::task::TaskName;
    use tollgate_vault::event::EventPage;
    use tollgate_vault::store::Scan;
    use tollgate_vault::{State, Step, StepOutcome, Store, Task, Terms};

    use super::*;

    /// A store whose old events are elsewhere. It has no newer ones yet.
    #[derive(Default)]
    struct Archiving(Mutex<Vec<(String, String)>>);

    fn unasked<T>() -> Result<T> {
        Err(Fault::invalid("an export does not ask for this"))
    }

    impl Store for Archiving {
        fn scan(&self, _: State, _: Timestamp) -> Result<Scan> {
            unasked()
        }

        fn get(&self, _: &TaskName, _: Option<State>, _: Timestamp) -> Result<Option<Task>> {
            unasked()
        }

        fn read(&self, _: &Task, _: u64) -> Result<Option<Vec<u8>>> {
            unasked()
        }

        fn apply(&self, _: &Step) -> Result<StepOutcome> {
            unasked()
        }

        fn add(&self, _: &StepId, _: &TaskName, _: &[u8], _: Timestamp) -> Result<StepOutcome> {
            unasked()
        }

        fn record(&self, _: &[Entry]) -> Result<()> {
            unasked()
        }

        fn events(&self, after: &str, _: usize) -> Result<EventPage> {
            match after {
                "later" => Ok((Vec::new(), "later".to_owned())),
                _ => Err(Fault::invalid("these events are elsewhere")),
            }
        }

        fn cursor_before(&self, time: Timestamp) -> Result<String> {
            Ok(if time > Timestamp::UNIX_EPOCH { "later" } else { "" }.to_owned())
        }

        fn keep_after(&self, reader: &str, cursor: &str) -> Result<()> {
            self.0.lock().unwrap().push((reader.to_owned(), cursor.to_owned()));
            Ok(())
        }
    }

    #[test]
    fn a_vault_is_asked_where_a_time_begins_and_told_what_to_keep() {
        let store = Arc::new(Archiving::default());
        let vault = Vault::new(Arc::clone(&store) as Arc<dyn Store>, Terms::default());
        let mut source = VaultSource::new(vault);
        assert!(source.go_before(FirstEvent::Time(Timestamp::UNIX_EPOCH)).is_err());
        source.go_before(FirstEvent::Time(Timestamp::from_second(1).unwrap())).unwrap();
        assert!(source.read(10).unwrap().is_end);
        source.keep("name").unwrap();
        assert_eq!(*store.0.lock().unwrap(), [("name".to_owned(), "later".to_owned())]);
    }
}
