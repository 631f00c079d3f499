//! How far an export has come, in a file, so that the next process continues there.
//!
//! Invariant: one process at a time exports to a destination. Two would both save a place, and the later save of the slower
//! one would repeat what the other has done, over and over.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::file::replace_file;
use tollgate_base::lock::Lock;
use tollgate_base::private;
use tollgate_base::settings::Durability;

use crate::encoder::ExportFormat;
use crate::otlp::state::OtlpState;

/// The version of the file. A later one is refused.
const VERSION: u32 = 1;

/// How long to wait for another export to the same destination: long enough for one that is ending.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// What is exported where. Each of these has a place of its own.
#[derive(Debug, Clone)]
pub struct ExportKey {
    /// The format.
    pub format: &'static ExportFormat,
    /// Which events: `ledger` or `vault`.
    pub of: &'static str,
    /// The path of the file, or the address.
    pub destination: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedFile {
    version: u32,
    to: String,
    of: String,
    destination: String,
    /// After the last event that was taken.
    place: String,
    otlp: OtlpState,
}

/// The saved place of an export, locked.
pub struct SavedExport {
    path: PathBuf,
    key: ExportKey,
    loaded: Option<SavedFile>,
    _lock: Lock,
}

impl SavedExport {
    /// The place of this export, in a folder for such places.
    pub fn open(folder: &Path, key: ExportKey) -> Result<Self> {
        private::create_folders(folder, 0o777).at("make the folder", folder)?;
        let id = Digest::of(format!("{} {} {}", key.format.name, key.of, key.destination).as_bytes());
        let name = &id.to_string()[..16];
        let lock_path = folder.join(format!("{name}.lock"));
        let lock = Lock::acquire(&lock_path, LOCK_WAIT)?
            .ok_or(Fault::Locked { path: lock_path, waited_s: LOCK_WAIT.as_secs() })?;
        let path = folder.join(format!("{name}.json"));
        let loaded = match private::read(&path) {
            Ok(bytes) => Some(parse(&path, &bytes)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).at("read", &path),
        };
        Ok(Self { path, key, loaded, _lock: lock })
    }

    /// Whether an earlier process has begun this export.
    pub(crate) fn exists(&self) -> bool {
        self.loaded.is_some()
    }

    /// The place, and what the format must remember.
    pub(crate) fn take(&mut self) -> Option<(String, OtlpState)> {
        self.loaded.take().map(|loaded| (loaded.place, loaded.otlp))
    }

    /// Its name among the exports of this machine.
    pub(crate) fn name(&self) -> &str {
        self.path.file_stem().and_then(|name| name.to_str()).unwrap_or_default()
    }

    pub(crate) fn save(&self, place: String, otlp: &OtlpState) -> Result<()> {
        let ExportKey { format, of, destination } = &self.key;
        let saved = SavedFile {
            version: VERSION,
            to: format.name.to_owned(),
            of: (*of).to_owned(),
            destination: destination.clone(),
            place,
            otlp: otlp.clone(),
        };
        let bytes = serde_json::to_vec(&saved).map_err(|error| Fault::invalid(error.to_string()))?;
        // A power cut must not leave an empty file, which would be a place that nobody knows.
        replace_file(&self.path, &bytes, Durability::Durable)
    }
}

fn parse(path: &Path, bytes: &[u8]) -> Result<SavedFile> {
    #[derive(Deserialize)]
    struct SavedVersion {
        version: u32,
    }
    let damaged = |error: serde_json::Error| {
        Fault::damaged(path, format!("{error}; delete it to export everything again"))
    };
    let SavedVersion { version } = serde_json::from_slice(bytes).map_err(damaged)?;
    if version > VERSION {
        return Err(Fault::NewerFormat { path: path.to_owned(), found: version, known: VERSION });
    }
    serde_json::from_slice(bytes).map_err(damaged)
}
