//! What a participant has done so far, in a file, so that it survives a kill.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;
use tollgate::error::{Fault, Result};

/// What is counted.
#[derive(Clone, Copy)]
pub(crate) enum Count {
    /// Operations, whatever came of them.
    Operations,
    /// Changes and releases that were acknowledged.
    Done,
    /// Changes and claims that were refused or lost.
    Refused,
    /// Errors outside the rules. Only participants with injected faults may have some.
    Faults,
}

pub(crate) const COUNTS: usize = 4;

/// The counts and the records of one participant.
pub(crate) struct Notes {
    counts: [u64; COUNTS],
    tally: File,
    records: File,
}

impl Notes {
    /// In this folder, under this name. A participant that is started again goes on counting.
    pub(crate) fn open(folder: &Path, name: &str) -> Result<Self> {
        let tally = folder.join(format!("tally-{name}"));
        let counts = read(&tally);
        let records = folder.join(format!("records-{name}.jsonl"));
        let (mut write, mut append) = (OpenOptions::new(), OpenOptions::new());
        let open = |options: &OpenOptions, path: &Path| {
            let fault = |source| Fault::Io { doing: "open", path: path.to_owned(), source };
            options.open(path).map_err(fault)
        };
        end_torn_line(&records);
        Ok(Self {
            counts,
            tally: open(write.write(true).create(true), &tally)?,
            records: open(append.append(true).create(true), &records)?,
        })
    }

    pub(crate) fn count(&mut self, count: Count) {
        self.counts[count as usize] += 1;
        let bytes: Vec<u8> = self.counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        let _ = self.tally.write_all_at(&bytes, 0);
    }

    pub(crate) fn record(&mut self, record: &Value) {
        let _ = self.records.write_all(format!("{record}\n").as_bytes());
    }
}

/// A kill may have cut off the last record. It was never finished, so it is taken out.
fn end_torn_line(path: &Path) {
    if let Ok(text) = fs::read(path)
        && text.last().is_some_and(|last| *last != b'\n')
    {
        let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let _ = fs::write(path, &text[..end]);
    }
}

/// The counts in a file.
pub(crate) fn read(path: &Path) -> [u64; COUNTS] {
    let mut counts = [0; COUNTS];
    let bytes = fs::read(path).unwrap_or_default();
    for (count, bytes) in counts.iter_mut().zip(bytes.chunks_exact(8)) {
        *count = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    }
    counts
}
