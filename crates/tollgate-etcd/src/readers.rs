//! Who reads the ledger in the engine, and how far they are, so that lines stay until they are read.
//!
//! Each reader has one key and one lease, whose id follows from the key. A reader that does not come back is forgotten when
//! the lease ends. If readers hold back too many lines, the oldest are removed all the same: the readers are told so when they read.
//!
//! Limit: a place is read once for each batch that is removed. This batch may have lines of a reader that leaves its first place
//! after that. It is told so when it reads.

use std::time::Duration;

use tollgate_base::digest::Digest;
use tollgate_base::error::Result;

use crate::line_place::{LinePlace, LineSums};
use crate::message::{Range, TxnOperation};
use crate::process_lease::lease_id;
use crate::shared_store::SharedStore;

/// How long a place counts that its reader does not renew: an export that runs once a week, or a machine that is switched off
/// over a weekend, continues without a gap.
const LASTS: Duration = Duration::from_secs(7 * 24 * 3600);

/// A reader of the ledger.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LedgerReader {
    /// Its key in the engine.
    pub(crate) key: String,
    /// What it has read.
    pub(crate) place: LinePlace,
}

impl SharedStore {
    /// A reader of this machine has read up to this cursor, and will continue there.
    pub(crate) fn keep_after(&self, reader: &str, cursor: &str) -> Result<()> {
        let place = LinePlace::parse(cursor)?;
        // First: a reader that cannot go on must not keep anything from being removed.
        self.check_kept(place)?;
        let key = self.layout.reader(&self.machine, reader);
        let lease = lease_id(&Digest::of(key.as_bytes()).to_string()[..16]);
        if self.called(self.client.keep_alive(lease, self.client.deadline))?.is_none() {
            self.called(self.client.grant(lease, LASTS))?;
        }
        self.act(vec![TxnOperation::put_leased(key, place.to_string(), lease)]).map(drop)
    }

    /// The readers that can go on: nothing that they have not read was removed.
    pub(crate) fn readers(&self, tally: &LineSums) -> Result<Vec<LedgerReader>> {
        let found = self.called(self.client.range(&Range::all(&self.layout.readers())))?;
        let reader = |key: &[u8], value: &[u8]| LedgerReader {
            key: String::from_utf8_lossy(key).into_owned(),
            // One that cannot be read is before everything.
            place: str::from_utf8(value)
                .ok()
                .and_then(|text| LinePlace::parse(text).ok())
                .unwrap_or_default(),
        };
        let readers = found.kvs.iter().map(|kv| reader(&kv.key, &kv.value));
        Ok(readers.filter(|reader| !tally.is_ahead_of(reader.place)).collect())
    }
}
