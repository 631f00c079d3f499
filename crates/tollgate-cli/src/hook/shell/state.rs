//! The known state of a shell while its commands are read one after the other.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tollgate::turn::Extent;

use super::effects::{Effects, ShellChange};
use super::redirect::Redirects;
use super::word::Environment;

/// The longest time for parsing a command. No command of a person or a model takes longer.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);

/// The deepest nesting that is followed, because the stack is finite.
const DEPTH: usize = 100;

/// The largest number of files in one command.
const FILES: usize = 10_000;

/// A shell: its environment, and the effects of its commands so far.
pub(super) struct Shell {
    pub(super) env: Environment,
    pub(super) effects: Effects,
    pub(super) started: Instant,
}

impl Shell {
    pub(super) fn new(folder: &Path, home: Option<&Path>) -> Self {
        let env = Environment {
            folder: Some(folder.to_owned()),
            home: home.map(Path::to_owned),
            variables: HashMap::new(),
        };
        Self { env, effects: Effects::default(), started: Instant::now() }
    }

    pub(super) fn is_exhausted(&mut self, depth: usize) -> bool {
        let exhausted = depth > DEPTH
            || self.effects.changes.len() + self.effects.reads.len() > FILES
            || self.started.elapsed() > PATIENCE;
        self.effects.unclear |= exhausted;
        self.effects.gave_up |= exhausted;
        exhausted
    }

    pub(super) fn write_outputs(&mut self, redirects: &Redirects, text: Option<String>) {
        let only = redirects.outputs.len() == 1;
        for (target, extent) in &redirects.outputs {
            let text = text.clone().filter(|_| only && *extent == Extent::Whole);
            for path in self.env.paths(target.clone()) {
                self.change(path, *extent, text.clone());
            }
        }
    }

    pub(super) fn read(&mut self, path: PathBuf, extent: Extent) {
        if !is_device(&path) && !self.effects.reads.iter().any(|(there, _)| *there == path) {
            self.effects.reads.push((path, extent));
        }
    }

    pub(super) fn change(&mut self, path: PathBuf, extent: Extent, text: Option<String>) {
        if is_device(&path) {
            return;
        }
        let changes = &mut self.effects.changes;
        match changes.iter_mut().find(|change| change.path == path) {
            // Changed twice, so the final text is not known.
            Some(change) => {
                change.text = None;
                if extent == Extent::Whole {
                    change.extent = extent;
                }
            }
            None => changes.push(ShellChange { path, extent, text, by_git: false, brings_files: false }),
        }
    }
}

/// Whether this is a device, or one of the names that the shell understands itself. `/dev/shm` has ordinary files.
fn is_device(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}
