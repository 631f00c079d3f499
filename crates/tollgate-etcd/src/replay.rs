//! Events from a cursor: first from the files of the archive, if this machine has them, then from the engine.
//!
//! Invariant: no event is missing. A reader whose cursor the archive has overtaken, or that needs files of another machine, is
//! told so.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use tollgate_base::error::{Fault, Result};
use tollgate_base::ledger::{Entry, Ledger};
use tollgate_vault::event::EventPage;

use crate::archive_files::{files_in, has_end_of, read_piece};
use crate::archived::{ArchivePiece, Archived};
use crate::inside::Inside;
use crate::line_place::{EventPlace, LinePlace};

impl Inside {
    /// The events after a cursor.
    pub(crate) fn events_after(&self, after: &str, limit: usize) -> Result<EventPage> {
        let (mut piece, mut seq) = match EventPlace::parse(after)? {
            EventPlace::Archive { piece, seq } => (piece, seq),
            EventPlace::Engine(place) => {
                let (events, next) = self.read_on(place, limit)?;
                // Asked after they were read: what was archived before that may be missing.
                self.check_not_overtaken(&self.archived()?.1, place)?;
                return Ok((events, next.to_string()));
            }
        };
        let mut events = Vec::new();
        loop {
            let (_, archived) = self.archived()?;
            let files = self.all_files(&archived)?;
            let is_known = match archived.filled().get(piece) {
                Some(piece) => seq <= piece.last,
                None => (piece, seq) == (0, 0),
            };
            if !is_known {
                return Err(Fault::invalid(format!(
                    "`{}` is not a cursor of this ledger",
                    after.escape_debug()
                )));
            }
            (piece, seq) = read_files(archived.filled(), &files, (piece, seq), limit, &mut events)?;
            if archived.filled().get(piece).is_some_and(|piece| seq < piece.last) {
                return Ok((events, EventPlace::Archive { piece, seq }.to_string()));
            }
            let place = archived.place();
            let (more, next) = self.read_on(place, limit - events.len())?;
            if !self.archived()?.1.is_ahead_of(place) {
                events.extend(more);
                return Ok((events, next.to_string()));
            }
            // What comes next was archived in the meantime.
        }
    }

    /// Where a reader with this cursor will go on in the engine.
    pub(crate) fn place_in_engine(&self, cursor: &str) -> Result<LinePlace> {
        let (_, archived) = self.archived()?;
        match EventPlace::parse(cursor)? {
            EventPlace::Engine(place) => self.check_not_overtaken(&archived, place).map(|()| place),
            EventPlace::Archive { .. } => self.all_files(&archived).map(|_| archived.place()),
        }
    }

    /// A cursor before all events of this time or later.
    pub(crate) fn cursor_before(&self, time: Timestamp) -> Result<String> {
        let (_, archived) = self.archived()?;
        // Then the reader needs no archive, wherever that is.
        let is_all_older = archived.time.is_some_and(|newest| newest < time);
        Ok(if is_all_older { archived.place().to_string() } else { String::new() })
    }

    fn check_not_overtaken(&self, archived: &Archived, place: LinePlace) -> Result<()> {
        if !archived.is_ahead_of(place) {
            return Ok(());
        }
        Err(Fault::invalid(format!(
            "the events after the place `{place}` have moved to the archive of the machine `{}` since they were last read: \
             to continue an export, run it once with `--since` and the time of the last event that it has sent, on a machine \
             that has the archive; other commands begin again when you run them again",
            archived.machine
        )))
    }

    /// The files of every piece, if all of them are here.
    fn all_files(&self, archived: &Archived) -> Result<Vec<Ledger>> {
        if archived.pieces.is_empty() && archived.revision > 0 {
            return Err(self.elsewhere(archived, &archived.machine));
        }
        archived.filled().iter().map(|piece| self.files_of(archived, piece)).collect()
    }

    fn files_of(&self, archived: &Archived, piece: &ArchivePiece) -> Result<Ledger> {
        if piece.last == u64::MAX {
            let last = archived.time.map_or_else(|| "them".to_owned(), |time| time.to_string());
            return Err(Fault::invalid(format!(
                "an earlier version of tollgate has archived the oldest events on the machine `{}` and did not say how many: \
                 this version cannot read them, only those after {last} (`--since`)",
                piece.machine
            )));
        }
        let elsewhere = || self.elsewhere(archived, &piece.machine);
        let folder = self.folder_of(&piece.machine).filter(|folder| folder.is_dir()).ok_or_else(elsewhere)?;
        let files = files_in(&folder);
        match has_end_of(&files, piece)? {
            true => Ok(files),
            false if piece.machine == self.machine => Err(Fault::damaged(
                &folder,
                format!("line {} of the archive is missing: restore these files", piece.last),
            )),
            false => Err(elsewhere()),
        }
    }

    /// Where the files of a machine are, or where a person can copy them.
    fn folder_of(&self, machine: &str) -> Option<PathBuf> {
        let own: &Path = self.archive.as_deref()?;
        let is_name = machine.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        match machine == self.machine {
            true => Some(own.to_owned()),
            false => is_name.then(|| own.join(format!("from-{machine}"))),
        }
    }

    fn elsewhere(&self, archived: &Archived, machine: &str) -> Fault {
        let since =
            archived.time.map(|time| format!("; later events than {time} are in the engine, for `--since`"));
        let what = match self.folder_of(machine) {
            _ if archived.pieces.is_empty() && machine == self.machine => {
                "an earlier version of tollgate has written the archive, and it can be read as soon as this version has \
                 archived the next lines"
                    .to_owned()
            }
            Some(copy) => format!(
                "run this there (`.tollgate/engine/machine` in its vault has this name), or copy its folder \
                 `.tollgate/engine/archive` to `{}`",
                copy.display()
            ),
            None => "run this there".to_owned(),
        };
        Fault::invalid(format!(
            "the oldest events of `{}` are in the archive of the machine `{machine}`: {what}{}",
            self.client.shown,
            since.unwrap_or_default()
        ))
    }
}

/// Adds events from the files, up to `limit` of them, and returns the place after the last.
fn read_files(
    pieces: &[ArchivePiece],
    files: &[Ledger],
    (mut piece, mut seq): (usize, u64),
    limit: usize,
    events: &mut Vec<Entry>,
) -> Result<(usize, u64)> {
    while let Some((here, ledger)) = pieces.get(piece).zip(files.get(piece)) {
        let (more, end) = read_piece(ledger, here, seq.max(here.first - 1), limit - events.len())?;
        events.extend(more);
        seq = end;
        if end < here.last || piece + 1 == pieces.len() {
            break;
        }
        (piece, seq) = (piece + 1, 0);
    }
    Ok((piece, seq))
}
