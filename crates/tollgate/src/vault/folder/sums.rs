//! What is counted of each agent: a file of sums for each, with a part for each process that counts at the same time.
//!
//! Invariants: a part is written only by whoever has the lock of its first byte, which is let go when the process ends;
//! the next one goes on from there. So nobody reads or waits to count, and the sums of an agent are those of all parts.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::disk::Disk;
use crate::error::{At, Result};
use crate::name::Agent;
use crate::sys;
use crate::vault::claim::StepId;
use crate::vault::figures::{Count, Tally};

/// How far apart the parts are: none of them crosses a page, so a kill does not cut the writing of one in half.
const PART: usize = 512;

const _: () = assert!(Tally::BYTES <= PART);

/// The part that is ours of an agent's sums.
#[derive(Debug)]
struct Part {
    agent: Agent,
    file: File,
    path: PathBuf,
    at: u64,
    tally: Tally,
}

/// The sums of all agents.
#[derive(Debug)]
pub(crate) struct Sums {
    folder: PathBuf,
    /// The one that was last added to.
    last: Mutex<Option<Part>>,
}

impl Sums {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, last: Mutex::default() }
    }

    fn path(&self, agent: &Agent) -> PathBuf {
        self.folder.join(agent.as_str())
    }

    /// Counts something of an agent's.
    pub(crate) fn add(&self, disk: &Disk, agent: &Agent, what: &Count) -> Result<()> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // Out of its place until it is written: after a fault it is read again.
        let mut part = match last.take().filter(|part| part.agent == *agent) {
            Some(part) => part,
            None => Part::take(agent.clone(), self.path(agent))?,
        };
        part.tally.add(what);
        disk.count(&part.file, &part.path, part.at, &part.tally.to_bytes())?;
        *last = Some(part);
        Ok(())
    }

    /// Whether a claim was counted, by whoever has made it.
    pub(crate) fn has(&self, agent: &Agent, step: &StepId) -> Result<bool> {
        Ok(parts(&self.path(agent))?.iter().any(|part| part.has(step)))
    }

    /// The sums of each agent.
    pub(crate) fn all(&self) -> Result<Vec<(Agent, Tally)>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.folder).at("read", &self.folder)? {
            let entry = entry.at("read", &self.folder)?;
            if let Some(agent) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
                all.push((agent, parts(&entry.path())?.iter().sum()));
            }
        }
        Ok(all)
    }
}

impl Part {
    /// The first one that nobody has.
    fn take(agent: Agent, path: PathBuf) -> Result<Self> {
        let file = crate::lock::open(&path)?;
        let mut at = 0;
        while !sys::try_lock_byte(&file, at).at("lock", &path)? {
            at += PART as u64;
        }
        let mut bytes = [0; Tally::BYTES];
        // Zeros, behind the end.
        file.read_at(&mut bytes, at).at("read", &path)?;
        Ok(Self { agent, tally: Tally::from_bytes(&bytes), file, path, at })
    }
}

/// All parts of a file, whoever counts meanwhile: each number is written as one.
fn parts(path: &Path) -> Result<Vec<Tally>> {
    let mut bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        bytes => bytes.at("read", path)?,
    };
    bytes.resize(bytes.len().next_multiple_of(PART), 0);
    let first = |part: &[u8]| std::array::from_fn(|at| part[at]);
    Ok(bytes.chunks_exact(PART).map(|part| Tally::from_bytes(&first(part))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Durability;
    use std::sync::Arc;

    #[test]
    fn those_who_count_at_the_same_time_add_up_and_the_next_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let root = Arc::new((folder.path().to_owned(), File::open(folder.path()).unwrap()));
        let disk = &Disk { durability: Durability::Fast, root, fates: None };
        let blue: Agent = "blue".parse().unwrap();
        let sums = || Sums::new(folder.path().to_owned());
        let claim = || Count::Claim(StepId::new().unwrap());
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    let mine = sums();
                    scope.spawn(move || {
                        (0..100).for_each(|_| mine.add(disk, &"blue".parse().unwrap(), &claim()).unwrap());
                    });
                }
            });
        }
        let step = StepId::new().unwrap();
        let (one, other) = (sums(), sums());
        one.add(disk, &blue, &Count::Claim(step.clone())).unwrap();
        other.add(disk, &blue, &Count::Lost).unwrap();
        other.add(disk, &"red".parse().unwrap(), &Count::Error).unwrap();
        assert!(sums().has(&blue, &step).unwrap(), "whoever has counted it");
        assert!(!sums().has(&blue, &StepId::new().unwrap()).unwrap());
        assert!(!sums().has(&"nobody".parse().unwrap(), &step).unwrap());
        let mut all = sums().all().unwrap();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        let numbers: Vec<_> =
            all.iter().map(|(agent, sum)| (agent.as_str(), sum.claims, sum.lost, sum.errors)).collect();
        assert_eq!(numbers, [("blue", 1201, 1, 0), ("red", 0, 0, 1)]);
        // Each once would be fourteen. Four do, but a process that another test is just starting has a copy of every lock.
        let len = fs::metadata(folder.path().join("blue")).unwrap().len();
        assert!(len <= 10 * PART as u64, "what is let go is used again: {len} bytes");
    }
}
