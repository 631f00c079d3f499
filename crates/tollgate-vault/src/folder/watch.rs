//! Watching the vault's folders through the kernel's events, so that a new task is seen within milliseconds.
//!
//! The kernel forgets a folder that is removed. So the vault's own folder is watched, too, and a folder of a state that is made
//! again, by a change of the git branch for example, is watched again. A thread does that, because the one that hears the events
//! cannot.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RenameMode};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::scan::is_task;
use crate::state::State;
use crate::store::{Hint, NoticedChange, Wake, Watch};
use tollgate_base::error::{Fault, Result};
use tollgate_base::task::TaskName;

/// Watches these states, and the locks of held claims, if there are any.
pub(crate) fn start(vault: &Path, held: Option<&Path>, states: &[State], wake: Wake) -> Result<Watch> {
    let states: Vec<_> = states.iter().map(|state| (*state, vault.join(state.as_str()))).collect();
    let cannot = |what: &dyn std::fmt::Display| {
        Fault::invalid(format!("cannot watch `{}`: {what}", vault.display().to_string().escape_debug()))
    };
    let (changed, changes) = channel();
    let events = FolderEvents { folders: states.clone(), held: held.map(Path::to_owned), changed, wake };
    let wake = Arc::clone(&events.wake);
    let mut watcher =
        notify::recommended_watcher(move |event| events.heard(event)).map_err(|error| cannot(&error))?;
    let others = [Some(vault), held].into_iter().flatten();
    for folder in others {
        watcher.watch(folder, RecursiveMode::NonRecursive).map_err(|error| cannot(&error))?;
    }
    for (state, folder) in &states {
        watcher.watch(folder, mode(*state)).map_err(|error| cannot(&error))?;
    }
    let watcher = Arc::new(Mutex::new(watcher));
    let weak = Arc::downgrade(&watcher);
    let again = move || watch_again(&weak, &changes, &wake);
    thread::Builder::new().name("tollgate-watch".to_owned()).spawn(again).map_err(|error| cannot(&error))?;
    Ok(Box::new(watcher))
}

fn mode(state: State) -> RecursiveMode {
    if state == State::InProgress { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive }
}

/// Watches folders of states that were made again, until the watcher is dropped.
fn watch_again(watcher: &Weak<Mutex<RecommendedWatcher>>, changes: &Receiver<(State, PathBuf)>, wake: &Wake) {
    for (state, folder) in changes {
        let Some(watcher) = watcher.upgrade() else { return };
        // If it is not there now, we hear of it when it is made.
        let _ = watcher.lock().unwrap_or_else(PoisonError::into_inner).watch(&folder, mode(state));
        // What happened in it before it was watched.
        wake(Hint::Everything);
    }
}

/// Turns events into hints.
struct FolderEvents {
    folders: Vec<(State, PathBuf)>,
    held: Option<PathBuf>,
    /// Told of a folder of a state that was made, removed or moved.
    changed: Sender<(State, PathBuf)>,
    wake: Wake,
}

impl FolderEvents {
    fn heard(&self, event: notify::Result<notify::Event>) {
        let event = match event {
            Ok(event) if !event.need_rescan() => event,
            // Some were lost.
            _ => return (self.wake)(Hint::Everything),
        };
        let how = match event.kind {
            EventKind::Modify(ModifyKind::Name(RenameMode::To)) => NoticedChange::MovedIn,
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => NoticedChange::Written,
            EventKind::Access(_) => return,
            _ => NoticedChange::Touched,
        };
        for path in &event.paths {
            if Some(path) == self.held.as_ref() && how == NoticedChange::Written {
                (self.wake)(Hint::OwnerGone);
            }
            let within = self.folders.iter().find(|(_, folder)| path.starts_with(folder));
            let Some((state, folder)) = within else { continue };
            if path == folder {
                // An error means that the watcher is being dropped.
                let _ = self.changed.send((*state, folder.clone()));
                continue;
            }
            let name = path.file_name().filter(|name| is_task(name)).and_then(OsStr::to_str);
            (self.wake)(match name.and_then(|name| TaskName::of_file(name).ok()) {
                Some(task) => Hint::Task(task, *state, how),
                None => Hint::State(*state),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use tollgate_base::lock::Pauses;

    use super::*;

    #[test]
    fn a_folder_that_is_removed_and_made_again_is_watched_again() {
        let vault = tempfile::tempdir().unwrap();
        for state in State::ALL {
            fs::create_dir(vault.path().join(state.as_str())).unwrap();
        }
        let (sender, hints) = channel();
        let wake: Wake = Arc::new(move |hint| _ = sender.send(hint));
        let _watch = start(vault.path(), None, &State::ALL, wake).unwrap();
        for (state, agent) in [(State::NeedsAction, ""), (State::InProgress, "blue")] {
            let folder = vault.path().join(state.as_str());
            for how in ["removed", "moved away"] {
                match how {
                    "removed" => fs::remove_dir_all(&folder).unwrap(),
                    _ => fs::rename(&folder, vault.path().join(format!("old-{state}"))).unwrap(),
                }
                fs::create_dir_all(folder.join(agent)).unwrap();
                let written = Hint::Task("x".parse().unwrap(), state, NoticedChange::Written);
                let mut pauses = Pauses::lasting(Duration::from_secs(30));
                // What is written before it is watched is not heard of by name.
                loop {
                    fs::write(folder.join(agent).join("x.md"), "x").unwrap();
                    if hints.try_iter().any(|hint| hint == written) {
                        break;
                    }
                    assert!(pauses.pause(), "{state}, {how}");
                }
            }
        }
    }
}
