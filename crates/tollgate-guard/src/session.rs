//! A session: what an agent knows beyond one turn.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::path::FilePath;
use crate::turn::Sighting;
use tollgate_base::error::Result;

/// What an agent knows beyond one turn, for the policy `unread = "known"` and for unfinished work: its last look at each file, and
/// where names led.
pub trait Known: fmt::Debug + Send + Sync {
    /// What the agent last knew of this file.
    fn get(&self, path: &FilePath) -> Result<Option<Sighting>>;

    /// What the agent knows of this file now.
    fn set(&self, path: &FilePath, sighting: Sighting) -> Result<()>;

    /// The file to which this name led.
    fn led_to(&self, name: &Path) -> Result<Option<FilePath>>;

    /// Remembers where a name leads.
    fn set_lead(&self, name: &Path, path: &FilePath) -> Result<()>;

    /// All names under which the agent knew files: their paths, and the paths through symbolic links that led to them.
    fn names(&self) -> Result<Vec<PathBuf>>;
}

/// What an agent knew in all turns of a session, ended or not. Clones share the session.
///
/// A session may be part of a longer one, such as that of a connection: what the shorter one knows counts first, and the
/// longer one learns everything.
#[derive(Debug, Clone, Default)]
pub struct Session {
    own: Arc<Mutex<Knowledge>>,
    longer: Option<Arc<dyn Known>>,
}

#[derive(Debug, Default)]
struct Knowledge {
    files: HashMap<FilePath, Sighting>,
    leads: HashMap<PathBuf, FilePath>,
}

impl Session {
    /// A session that is part of a longer one.
    pub fn within(longer: Arc<dyn Known>) -> Self {
        Self { own: Arc::default(), longer: Some(longer) }
    }
}

impl Known for Session {
    fn get(&self, path: &FilePath) -> Result<Option<Sighting>> {
        match (lock(&self.own).files.get(path), &self.longer) {
            (Some(sighting), _) => Ok(Some(*sighting)),
            (None, Some(longer)) => longer.get(path),
            (None, None) => Ok(None),
        }
    }

    fn set(&self, path: &FilePath, sighting: Sighting) -> Result<()> {
        lock(&self.own).files.insert(path.clone(), sighting);
        self.longer.as_ref().map_or(Ok(()), |longer| longer.set(path, sighting))
    }

    fn led_to(&self, name: &Path) -> Result<Option<FilePath>> {
        match (lock(&self.own).leads.get(name), &self.longer) {
            (Some(path), _) => Ok(Some(path.clone())),
            (None, Some(longer)) => longer.led_to(name),
            (None, None) => Ok(None),
        }
    }

    fn set_lead(&self, name: &Path, path: &FilePath) -> Result<()> {
        lock(&self.own).leads.insert(name.to_owned(), path.clone());
        self.longer.as_ref().map_or(Ok(()), |longer| longer.set_lead(name, path))
    }

    fn names(&self) -> Result<Vec<PathBuf>> {
        let mut names = self.longer.as_ref().map_or(Ok(Vec::new()), |longer| longer.names())?;
        let own = lock(&self.own);
        names.extend(own.files.keys().map(|path| path.as_path().to_owned()));
        names.extend(own.leads.keys().cloned());
        Ok(names)
    }
}

/// Every change under these locks is one assignment, so a panic leaves nothing incomplete.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_state::FileState;
    use tollgate_base::digest::Digest;

    fn state(text: &str) -> Sighting {
        Sighting::new(FileState::Present(Digest::of(text.as_bytes())))
    }

    #[test]
    fn a_session_counts_before_the_longer_one_that_it_is_part_of() {
        let [path, other] = ["/w/a", "/w/b"].map(|path| FilePath::trusted(path.into()));
        let longer = Session::default();
        let [first, second] = [(); 2].map(|()| Session::within(Arc::new(longer.clone())));
        first.set(&path, state("one")).unwrap();
        assert_eq!(second.get(&path).unwrap(), Some(state("one")), "another part of the longer session");
        second.set(&path, state("two")).unwrap();
        assert_eq!(first.get(&path).unwrap(), Some(state("one")), "it has not seen the other's change");
        assert_eq!(longer.get(&path).unwrap(), Some(state("two")));
        first.set_lead(Path::new("/w/link"), &path).unwrap();
        assert_eq!(second.led_to(Path::new("/w/link")).unwrap(), Some(path));
        second.set_lead(Path::new("/w/link"), &other).unwrap();
        assert_eq!(longer.led_to(Path::new("/w/link")).unwrap(), Some(other));
    }
}
