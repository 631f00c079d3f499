//! What `tollgate doctor` looks for in the state: files that a healthy workspace does not keep for long.
//!
//! Read-only: takes no lock and opens no workspace, so it works even if [`crate::workspace::Workspace::open`] fails.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::probe::PROBE_PREFIX;
pub use crate::reservation::Reservation;
use crate::stage::{StageName, parse_unfinished};
use crate::stripe_lock::line_of;
use tollgate_base::error::Result;
use tollgate_base::file::names_in;
use tollgate_base::private;

/// Files of work in progress.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Journals of multi-file changes, by a running process or by one that died.
    pub journals: Vec<PathBuf>,
    /// The number of journals and staged files that are not completely written.
    pub unfinished: usize,
    /// The number of staged files that await the late-write check, or recovery after a crash.
    pub staged: usize,
    /// Files in the stage that tollgate did not create. It never touches them.
    pub unknown: Vec<PathBuf>,
    /// Reservations for tool calls of agents' own programs.
    pub reservations: Vec<Reservation>,
}

/// Looks at the state in this folder. A missing folder counts as empty.
pub fn leftovers(state: &Path) -> Result<Leftovers> {
    let mut found = Leftovers::default();
    for name in names_in(&state.join("journal"))? {
        match Path::new(&name).extension() {
            Some(end) if end == "json" || end == "unflushed" => {
                found.journals.push(state.join("journal").join(name));
            }
            _ => found.unfinished += 1,
        }
    }
    found.journals.sort();
    for name in names_in(&state.join("stage"))? {
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
    for name in names_in(&locks)? {
        // A file that is being changed right now counts as empty.
        let bytes = private::read(&locks.join(name)).unwrap_or_default();
        found.reservations.extend(Reservation::all_in(line_of(&bytes)));
    }
    found.reservations.sort_by_key(|reserved| reserved.since);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_kind_of_file_is_recognised() {
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
        let [blue] = found.reservations.as_slice() else {
            panic!("text after the first line does not count")
        };
        assert_eq!((blue.agent.as_str(), blue.since), ("blue", jiff::Timestamp::UNIX_EPOCH));
    }
}
