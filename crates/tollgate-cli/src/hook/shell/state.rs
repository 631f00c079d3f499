//! The state of a shell while its commands are read: its folder, and what the commands have done to files so far.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use tollgate::turn::Extent;

use super::glob;
use super::word::Word;
use crate::hook::plan::{PlannedChange, Text, ToolPlan};

/// The largest number of files in one command.
const FILES: usize = 10_000;

/// The largest number of names in folders that are compared with the patterns of one command.
const LOOKED_AT: usize = 100_000;

/// The largest number of patterns that are kept.
const PATTERNS: usize = 100;

/// A shell whose commands are read one after the other, and not run.
pub(super) struct Shell {
    pub(super) plan: ToolPlan,
    /// The current folder.
    pub(super) folder: PathBuf,
    /// Whether the current folder is certain: a `cd` may fail, or may not run.
    pub(super) is_certain: bool,
    pub(super) home: Option<PathBuf>,
    /// The values that the text gives to the variable with the agent's name; empty if one is not known.
    pub(super) agents: Vec<String>,
    /// Not all of the text is understood.
    pub(super) unclear: bool,
    /// Where each changed file is in the list of changes.
    changed: HashMap<PathBuf, usize>,
    /// The names in folders that may still be compared with patterns.
    looks: usize,
    /// The files that are read.
    shown: HashSet<PathBuf>,
}

/// Where the input of a simple command comes from, and where its output goes.
pub(super) struct Streams {
    pub(super) input: Option<Word>,
    /// The text of its input, if the command contains it.
    pub(super) text: Option<String>,
    /// Its output goes to the agent, perhaps through a filter.
    pub(super) shown: bool,
}

impl Shell {
    pub(super) fn new(folder: &Path, home: Option<&Path>) -> Self {
        Self {
            plan: ToolPlan::default(),
            folder: folder.to_owned(),
            is_certain: true,
            home: home.map(Path::to_owned),
            agents: Vec::new(),
            unclear: false,
            changed: HashMap::new(),
            looks: LOOKED_AT,
            shown: HashSet::new(),
        }
    }

    /// The words after the expansion of patterns.
    pub(super) fn expanded(&mut self, words: &[Word]) -> Vec<Word> {
        let mut all = Vec::new();
        for word in words {
            word.pattern.iter().for_each(|pattern| self.note_pattern(pattern));
            let Some(pattern) = word.pattern.as_ref().filter(|_| word.value.is_some()) else {
                all.push(word.clone());
                continue;
            };
            let found = glob::expand(pattern, &self.folder, &mut self.looks);
            // A shell keeps a pattern that matches nothing.
            all.extend(if found.is_empty() {
                vec![word.clone()]
            } else {
                found.iter().map(|text| Word::text(text)).collect()
            });
        }
        all
    }

    pub(super) fn note_pattern(&mut self, pattern: &str) {
        if self.plan.patterns.len() < PATTERNS {
            self.plan.patterns.push(pattern.to_owned());
        }
    }

    pub(super) fn is_exhausted(&mut self) -> bool {
        let ToolPlan { changes, reads, touched, .. } = &self.plan;
        self.unclear |= changes.len() + reads.len() + touched.len() > FILES || self.looks == 0;
        self.unclear
    }

    /// The path that a text names.
    pub(super) fn path(&self, text: &str) -> PathBuf {
        self.folder.join(text)
    }

    /// The file that a word names, for a change of it. If it is not known, it may be every file that the command names.
    pub(super) fn target(&mut self, word: &Word) -> Option<PathBuf> {
        let text = word.as_text().filter(|text| !text.is_empty());
        self.plan.vague |= text.is_none_or(|text| !self.is_certain && !text.starts_with('/'));
        text.map(|text| self.path(text))
    }

    pub(super) fn read(&mut self, word: &Word, extent: Extent) {
        let Some(text) = word.as_text().filter(|text| *text != "-" && !text.is_empty()) else { return };
        let path = self.path(text);
        // Elsewhere, another file of the same name may have been shown.
        let is_certain = self.is_certain || text.starts_with('/');
        let is_file = is_certain && !self.is_exhausted() && !is_device(&path) && !path.is_dir();
        if is_file && self.shown.insert(path.clone()) {
            self.plan.reads.push((path, extent));
        }
    }

    pub(super) fn touch(&mut self, word: &Word) {
        if !self.is_exhausted()
            && let Some(text) = word.as_text()
        {
            self.plan.touched.push(self.path(text));
        }
    }

    pub(super) fn change(&mut self, word: &Word, extent: Extent, text: Option<String>) {
        if let Some(path) = self.target(word) {
            self.change_path(path, extent, text);
        }
    }

    pub(super) fn change_all(&mut self, words: &[Word], extent: Extent) {
        words.iter().for_each(|word| self.change(word, extent, None));
    }

    pub(super) fn change_path(&mut self, path: PathBuf, extent: Extent, text: Option<String>) {
        let text = text.map_or(Text::Unknown, Text::Exactly);
        self.plan_change(PlannedChange { path, extent, text, by_git: false, brings_files: false });
    }

    pub(super) fn plan_change(&mut self, planned: PlannedChange) {
        if self.is_exhausted() || is_device(&planned.path) {
            return;
        }
        match self.changed.get(&planned.path).and_then(|at| self.plan.changes.get_mut(*at)) {
            // Changed twice, so the final text is not known.
            Some(change) => {
                change.text = Text::Unknown;
                // It may be a link that the command itself makes.
                self.plan.vague |= change.brings_files;
                change.brings_files |= planned.brings_files;
                if planned.extent == Extent::Whole {
                    change.extent = planned.extent;
                }
            }
            None => {
                self.changed.insert(planned.path.clone(), self.plan.changes.len());
                self.plan.changes.push(planned);
            }
        }
    }

    /// `cd`. A shell stays where it is if the folder is not there.
    pub(super) fn change_folder(&mut self, word: Option<&Word>) {
        let folder = match word.map(Word::as_text) {
            None => self.home.clone(),
            Some(text) => text.filter(|text| *text != "-").map(|text| self.path(text)),
        };
        let is_absolute = word.and_then(Word::as_text).is_none_or(|text| text.starts_with('/'));
        let is_there = folder.as_ref().is_some_and(|folder| folder.is_dir());
        self.is_certain = is_there && (self.is_certain || is_absolute);
        self.folder = folder.unwrap_or_else(|| self.folder.clone());
    }
}

/// Whether this is a device, or one of the names that the shell understands itself. `/dev/shm` has ordinary files.
fn is_device(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}
