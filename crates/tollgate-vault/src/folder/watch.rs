//! Watching the vault's folders through the kernel's events, so that a new task is seen within milliseconds.

use std::path::{Path, PathBuf};

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RenameMode};
use notify::{RecursiveMode, Watcher};

use super::scan::is_task;
use crate::state::State;
use crate::watch::{Change, Noticed, Wake, Watch};
use tollgate_base::error::{Fault, Result};
use tollgate_base::task::TaskName;

/// What is watched.
struct Folders {
    states: Vec<(State, PathBuf)>,
    held: PathBuf,
}

/// Watches these states, and the locks of held claims.
pub(super) fn start(vault: &Path, held: &Path, states: &[State], wake: Wake) -> Result<Watch> {
    let states: Vec<_> = states.iter().map(|state| (*state, vault.join(state.as_str()))).collect();
    let folders = Folders { states, held: held.to_owned() };
    let mut watched: Vec<_> = folders
        .states
        .iter()
        .map(|(state, folder)| {
            let recursive = *state == State::InProgress;
            (folder.clone(), if recursive { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive })
        })
        .collect();
    watched.push((folders.held.clone(), RecursiveMode::NonRecursive));
    let cannot = |error: notify::Error| {
        Fault::invalid(format!("cannot watch `{}`: {error}", vault.display().to_string().escape_debug()))
    };
    let mut watcher =
        notify::recommended_watcher(move |event| folders.heard(event, &wake)).map_err(cannot)?;
    for (folder, mode) in watched {
        watcher.watch(&folder, mode).map_err(cannot)?;
    }
    Ok(Watch::new(watcher))
}

impl Folders {
    fn heard(&self, event: notify::Result<notify::Event>, wake: &Wake) {
        let event = match event {
            Ok(event) if !event.need_rescan() => event,
            // Some were lost.
            _ => return wake(Change::Everything),
        };
        let how = match event.kind {
            EventKind::Modify(ModifyKind::Name(RenameMode::To)) => Noticed::MovedIn,
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => Noticed::Written,
            EventKind::Access(_) => return,
            _ => Noticed::Touched,
        };
        for path in &event.paths {
            if *path == self.held {
                if how == Noticed::Written {
                    wake(Change::OwnerGone);
                }
                continue;
            }
            let within = |folder: &PathBuf| path.starts_with(folder);
            let Some((state, _)) = self.states.iter().find(|(_, folder)| within(folder)) else { continue };
            let name = path.file_name().unwrap_or_default();
            let task = name.to_str().filter(|_| is_task(name)).and_then(|name| TaskName::of_file(name).ok());
            wake(match task {
                Some(task) => Change::Task { task, state: *state, how },
                None => Change::State(*state),
            });
        }
    }
}
