//! Figures that an older version counted and that are in no journal: carried over once, when the vault is migrated.
//!
//! Format 1 kept counters in `figures/<agent>`: parts of 512 bytes, one for each process that counted at the same time,
//! each with the numbers of claims, lost races and failed claims. The file here holds the difference to what the journal
//! says, so that journal and difference together are what was counted.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::event::Journal;
use crate::figures::Tally;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::name::Agent;

/// The size of one part of the old counters.
const PART: usize = 512;

/// The name of the file.
const FILE: &str = "carried.json";

/// Differences: claims, lost races, failed claims.
type Differences = BTreeMap<Agent, [i64; 3]>;

#[derive(Serialize, Deserialize)]
struct Carried {
    /// The journal to which the differences belong.
    journal: String,
    agents: Differences,
}

/// What the counters in this folder say beyond the journal, as a file that [`add`] reads.
pub(super) fn of_format_1(private: &Path, journal: &dyn Journal) -> Result<Option<(String, Vec<u8>)>> {
    let folder = private.join("figures");
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries.at("read", &folder)?,
    };
    let mut agents = Differences::new();
    for entry in entries {
        let entry = entry.at("read", &folder)?;
        let Some(agent) = entry.file_name().to_str().and_then(|name| name.parse::<Agent>().ok()) else {
            continue;
        };
        let bytes = fs::read(entry.path()).at("read", entry.path())?;
        let sums = agents.entry(agent).or_default();
        for part in bytes.chunks(PART) {
            for (sum, number) in sums.iter_mut().zip(part.chunks_exact(8)) {
                *sum += number.try_into().map_or(0, i64::from_le_bytes);
            }
        }
    }
    for (agent, tally) in journal.tallies()? {
        let difference = agents.entry(agent).or_default();
        for (known, told) in difference.iter_mut().zip([tally.claims, tally.lost, tally.failed]) {
            *known -= i64::try_from(told).unwrap_or(i64::MAX);
        }
    }
    agents.retain(|_, differences| *differences != [0; 3]);
    let carried = Carried { journal: journal.id().to_owned(), agents };
    let bytes = serde_json::to_vec(&carried).map_err(|error| Fault::invalid(error.to_string()))?;
    Ok(Some((FILE.to_owned(), bytes)))
}

/// Adds what was carried over to the figures of the journal.
pub(super) fn add(private: &Path, journal: &str, tallies: &mut BTreeMap<Agent, Tally>) -> Result<()> {
    let path = private.join(FILE);
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        bytes => bytes.at("read", &path)?,
    };
    let carried: Carried = serde_json::from_slice(&bytes).map_err(|error| Fault::damaged(&path, error))?;
    if carried.journal != journal {
        return Ok(());
    }
    for (agent, [claims, lost, failed]) in carried.agents {
        let tally = tallies.entry(agent).or_default();
        for (number, difference) in
            [(&mut tally.claims, claims), (&mut tally.lost, lost), (&mut tally.failed, failed)]
        {
            *number = number.saturating_add_signed(difference);
        }
    }
    Ok(())
}
