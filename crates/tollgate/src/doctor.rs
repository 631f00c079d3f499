//! What a doctor looks at: what lies in the state that a healthy workspace would not have for long.
//!
//! It only looks, takes no lock and opens no workspace, so it also works where [`crate::workspace::Workspace::open`] fails.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::error::{At, Result};
use crate::lock::line_of;
use crate::name::Agent;
use crate::probe::PROBE_PREFIX;
use crate::reservation::Reservation;
use crate::stage::{StageName, parse_unfinished};

/// What lies in the folders of work in progress.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Journals of many-file changes: of a process at work, or of one that died.
    pub journals: Vec<PathBuf>,
    /// Journals and staged files that were begun and are no change yet.
    pub unfinished: usize,
    /// Files that wait for their second look, or to be judged.
    pub staged: usize,
    /// Files in the stage that tollgate did not name. It never touches them.
    pub unknown: Vec<PathBuf>,
    /// Tool calls that an agent's own program may be making.
    pub reservations: Vec<Reserved>,
}

/// One reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    /// Whose.
    pub agent: Agent,
    /// Since when.
    pub since: Timestamp,
}

/// Looks at the state in this folder. What is missing there is empty.
pub fn leftovers(state: &Path) -> Result<Leftovers> {
    let mut found = Leftovers::default();
    for name in names(&state.join("journal"))? {
        match Path::new(&name).extension() {
            Some(end) if end == "json" => found.journals.push(state.join("journal").join(name)),
            _ => found.unfinished += 1,
        }
    }
    found.journals.sort();
    for name in names(&state.join("stage"))? {
        let plain = name.to_string_lossy();
        if StageName::parse(OsString::from(plain.trim_end_matches('~')).as_os_str()).is_some() {
            found.staged += 1;
        } else if parse_unfinished(&name).is_some() || plain.starts_with(PROBE_PREFIX) {
            found.unfinished += 1;
        } else {
            found.unknown.push(state.join("stage").join(name));
        }
    }
    found.unknown.sort();
    let locks = state.join("locks");
    for name in names(&locks)? {
        // Changed at this moment, it is seen at the next look.
        let bytes = fs::read(locks.join(name)).unwrap_or_default();
        let reserved = Reservation::all_in(line_of(&bytes)).into_iter();
        found.reservations.extend(reserved.map(|there| Reserved { agent: there.agent, since: there.since }));
    }
    found.reservations.sort_by_key(|reserved| reserved.since);
    Ok(found)
}

fn names(folder: &Path) -> Result<Vec<OsString>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry.at("list the folder", folder)?.file_name())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).at("list the folder", folder),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_told_apart() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(leftovers(state.path()).unwrap(), Leftovers::default());
        for folder in ["journal", "stage", "locks"] {
            fs::create_dir(state.path().join(folder)).unwrap();
        }
        for name in ["journal/a.json", "journal/b.tmp", "stage/notes.txt", "stage/probe-1"] {
            fs::write(state.path().join(name), "").unwrap();
        }
        let line = r#"{"version":1,"reservations":[{"path":"a","call":"c","tool":"t","agent":"blue","turn":"t-1","predicted":null,"since":"1970-01-01T00:00:00Z"}]}"#;
        for (name, text) in [("00", format!("{:8}{line}\n{line}", "")), ("01", format!("{:8}\n{line}\n", ""))]
        {
            fs::write(state.path().join("locks").join(name), text).unwrap();
        }
        let found = leftovers(state.path()).unwrap();
        assert_eq!(found.journals, [state.path().join("journal/a.json")]);
        assert_eq!(found.unfinished, 2);
        assert_eq!(found.staged, 0);
        assert_eq!(found.unknown, [state.path().join("stage/notes.txt")]);
        let blue = Reserved { agent: "blue".parse().unwrap(), since: Timestamp::UNIX_EPOCH };
        assert_eq!(found.reservations, [blue], "what is left behind a line does not count");
    }
}
