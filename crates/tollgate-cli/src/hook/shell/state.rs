//! The known state of a shell while its commands are read one after the other.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tollgate::turn::Extent;

use super::effects::{Effects, ShellChange};
use super::environment::Environment;
use super::redirect::Redirects;
use super::word::Word;

/// The longest time of the processor for parsing a command. No command of a person or a model takes longer.
const PATIENCE: Duration = Duration::from_millis(500);

/// The deepest nesting that is followed, because the stack is finite.
const DEPTH: usize = 100;

/// The largest number of files in one command.
const FILES: usize = 10_000;

/// The largest number of links that are followed, as in the kernel.
const LINKS: usize = 40;

/// The time of the processor that this thread has used. What is understood of a command must not depend on what else runs on
/// the machine.
pub(super) fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

fn is_late(started: Duration) -> bool {
    processor_time().saturating_sub(started) > PATIENCE
}

/// A shell: its environment, and the effects of its commands so far.
pub(super) struct Shell {
    pub(super) env: Environment,
    pub(super) effects: Effects,
    /// Where each changed file is in the list of changes.
    changed: HashMap<PathBuf, usize>,
    /// The files that were read.
    shown: HashSet<PathBuf>,
    /// The links that the command makes, and where they lead.
    links: HashMap<PathBuf, PathBuf>,
    /// A shell runs a text that is not known.
    pub(super) runs_unknown_text: bool,
    /// The command copies, links or looks up our program, or puts its name in a variable.
    pub(super) may_rename_us: bool,
    /// A program has run that may have added or removed names.
    pub(super) has_run: bool,
    /// The time that this thread had used when the parsing began.
    started: Duration,
}

impl Shell {
    pub(super) fn new(folder: &Path, home: Option<&Path>) -> Self {
        let env = Environment {
            folder: Some(folder.to_owned()),
            folders: Vec::new(),
            last_folder: None,
            home: home.map(Path::to_owned),
            variables: HashMap::new(),
            unknown: BTreeSet::new(),
            passed: HashMap::new(),
            positional: None,
            functions: HashMap::new(),
        };
        Self {
            env,
            effects: Effects::default(),
            changed: HashMap::new(),
            shown: HashSet::new(),
            links: HashMap::new(),
            runs_unknown_text: false,
            may_rename_us: false,
            has_run: false,
            started: processor_time(),
        }
    }

    /// Whether parsing takes too long. May be asked where the shell is in use.
    pub(super) fn lateness(&self) -> impl Fn() -> bool + use<> {
        let started = self.started;
        move || is_late(started)
    }

    pub(super) fn is_exhausted(&mut self, depth: usize) -> bool {
        let Effects { changes, reads, touched, .. } = &self.effects;
        let files = changes.len() + reads.len() + touched.len();
        let exhausted = depth > DEPTH || files > FILES || is_late(self.started);
        self.effects.unclear |= exhausted;
        self.effects.gave_up |= exhausted;
        exhausted
    }

    pub(super) fn write_outputs(&mut self, redirects: &Redirects, text: Option<String>) {
        let only = redirects.outputs.len() == 1;
        for (target, extent) in &redirects.outputs {
            let text = text.clone().filter(|_| only && *extent == Extent::Whole);
            for path in self.targets(target.clone()) {
                self.change(path, *extent, text.clone());
            }
        }
    }

    pub(super) fn read(&mut self, path: PathBuf, extent: Extent) {
        if !is_device(&path) && self.shown.insert(path.clone()) {
            self.effects.reads.push((path, extent));
        }
    }

    /// Whether a folder is there when the command needs it: it exists, or the command itself makes it.
    pub(super) fn has_folder(&self, folder: &Path) -> bool {
        let plain = normalised(folder);
        let mut made = self.effects.changes.iter().map(|change| &change.path).chain(&self.effects.touched);
        folder.is_dir() || made.any(|path| normalised(path).starts_with(&plain))
    }

    /// The files that a word names, for a change of them. If they are not known, they may be all that the command names.
    pub(super) fn targets(&mut self, word: Word) -> Vec<PathBuf> {
        self.effects.gave_up |= self.env.is_vague(&word);
        let names = self.env.expand(word);
        self.effects.gave_up |= names.is_empty();
        names.iter().flat_map(|name| self.env.possible_paths(name)).collect()
    }

    /// The names in a folder: those that exist, and those that the command itself makes. If there are too many: enough to
    /// exhaust the shell.
    pub(super) fn names_in(&self, folder: &Path) -> Vec<OsString> {
        let there = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let made = self.effects.changes.iter().map(|change| &change.path).chain(&self.effects.touched);
        let folder = normalised(folder);
        let made = made.filter_map(|path| {
            let path = normalised(path);
            Some(path.strip_prefix(&folder).ok()?.components().next()?.as_os_str().to_owned())
        });
        there.chain(made).take(FILES + 2).collect()
    }

    /// A new link.
    pub(super) fn link(&mut self, at: &Path, leads_to: PathBuf) {
        if self.links.len() < LINKS {
            self.links.insert(normalised(at), normalised(&leads_to));
        }
    }

    /// Where a path leads, through the links that the command itself makes.
    pub(super) fn through_links(&self, path: &Path) -> PathBuf {
        let mut path = normalised(path);
        for _ in 0..LINKS {
            let link = path.ancestors().find_map(|above| Some((above, self.links.get(above)?)));
            let Some((link, leads_to)) = link else { break };
            let below = path.strip_prefix(link).unwrap_or(Path::new(""));
            path = if below.as_os_str().is_empty() { leads_to.clone() } else { leads_to.join(below) };
        }
        path
    }

    pub(super) fn change(&mut self, path: PathBuf, extent: Extent, text: Option<String>) {
        if !self.links.is_empty() {
            let leads_to = self.through_links(&path);
            if leads_to != normalised(&path) {
                self.change_file(leads_to, extent, None);
            }
        }
        self.change_file(path, extent, text);
    }

    fn change_file(&mut self, path: PathBuf, extent: Extent, text: Option<String>) {
        if is_device(&path) {
            return;
        }
        match self.changed.get(&path).and_then(|at| self.effects.changes.get_mut(*at)) {
            // Changed twice, so the final text is not known.
            Some(change) => {
                change.text = None;
                if extent == Extent::Whole {
                    change.extent = extent;
                }
            }
            None => {
                self.changed.insert(path.clone(), self.effects.changes.len());
                let change = ShellChange { path, extent, text, by_git: false, brings_files: false };
                self.effects.changes.push(change);
            }
        }
    }

    /// A file or a folder comes to this path.
    pub(super) fn bring(&mut self, to: PathBuf, brings_files: bool) {
        self.change(to.clone(), Extent::Whole, None);
        if let Some(change) = self.changed.get(&to).and_then(|at| self.effects.changes.get_mut(*at)) {
            change.brings_files |= brings_files;
        }
    }
}

/// A path without `.` and `..`, as its text says.
fn normalised(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

/// Whether this is a device, or one of the names that the shell understands itself. `/dev/shm` has ordinary files.
fn is_device(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}
