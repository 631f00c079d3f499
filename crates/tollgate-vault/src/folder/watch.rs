//! Watching the vault's folders through the kernel's events, so that a new task is seen within milliseconds.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RenameMode};
use notify::{RecursiveMode, Watcher};

use super::scan::is_task;
use crate::state::State;
use crate::store::{Hint, Noticed, Wake, Watch};
use tollgate_base::error::{Fault, Result};
use tollgate_base::task::TaskName;

/// Watches these states, and the locks of held claims, if there are any.
pub(crate) fn start(vault: &Path, held: Option<&Path>, states: &[State], wake: Wake) -> Result<Watch> {
    let states: Vec<_> = states.iter().map(|state| (*state, vault.join(state.as_str()))).collect();
    let cannot = |error: notify::Error| {
        Fault::invalid(format!("cannot watch `{}`: {error}", vault.display().to_string().escape_debug()))
    };
    let (folders, lock) = (states.clone(), held.map(Path::to_owned));
    let hears = move |event| heard(event, &folders, lock.as_deref(), &wake);
    let mut watcher = notify::recommended_watcher(hears).map_err(cannot)?;
    if let Some(held) = held {
        watcher.watch(held, RecursiveMode::NonRecursive).map_err(cannot)?;
    }
    for (state, folder) in states {
        let all = state == State::InProgress;
        let mode = if all { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
        watcher.watch(&folder, mode).map_err(cannot)?;
    }
    Ok(Box::new(watcher))
}

fn heard(
    event: notify::Result<notify::Event>,
    folders: &[(State, PathBuf)],
    held: Option<&Path>,
    wake: &Wake,
) {
    let event = match event {
        Ok(event) if !event.need_rescan() => event,
        // Some were lost.
        _ => return wake(Hint::Everything),
    };
    let how = match event.kind {
        EventKind::Modify(ModifyKind::Name(RenameMode::To)) => Noticed::MovedIn,
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => Noticed::Written,
        EventKind::Access(_) => return,
        _ => Noticed::Touched,
    };
    for path in &event.paths {
        if Some(&**path) == held && how == Noticed::Written {
            wake(Hint::OwnerGone);
        }
        let within = folders.iter().find(|(_, folder)| path.starts_with(folder));
        let Some((state, _)) = within else { continue };
        let name = path.file_name().filter(|name| is_task(name)).and_then(OsStr::to_str);
        wake(match name.and_then(|name| TaskName::of_file(name).ok()) {
            Some(task) => Hint::Task(task, *state, how),
            None => Hint::State(*state),
        });
    }
}
