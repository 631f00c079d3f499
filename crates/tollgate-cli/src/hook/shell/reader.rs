//! Goes through the commands of a text in their order, and lists what they do to files.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use tollgate::turn::Extent;

use super::glob;
use super::people;
use super::programs;
use super::syntax::{self, Command, GroupKind, Join, List, Pipeline, Redirect};
use super::word::Word;
use crate::hook::plan::{PlannedChange, Text, ToolPlan};

/// The largest number of files in one command.
const FILES: usize = 10_000;

/// The largest number of names in folders that are compared with the patterns of one command.
const LOOKED_AT: usize = 100_000;

/// The largest number of patterns that are kept.
const PATTERNS: usize = 100;

/// The deepest nesting of commands that run others: `env nice sh -c "sh -c '...'"`.
const NESTED: usize = 20;

/// The largest number of different words of a text that is not understood. A person or a model names fewer files.
const NAMED: usize = 20_000;

/// The commands of a text are read, and not run.
pub(super) struct Reader {
    pub(super) plan: ToolPlan,
    /// The current folder.
    pub(super) folder: PathBuf,
    /// Whether the current folder is certain: a `cd` may fail, or may not run.
    pub(super) is_certain: bool,
    home: Option<PathBuf>,
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
    /// How many commands run this one.
    depth: usize,
}

/// Where the input of a simple command comes from, and where its output goes.
pub(super) struct Streams {
    pub(super) input: Option<Word>,
    /// The text of its input, if the command contains it.
    pub(super) text: Option<String>,
    /// Its output goes to the agent, perhaps through a filter.
    pub(super) shown: bool,
}

impl Reader {
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
            depth: 0,
        }
    }

    /// What the whole text does. If it is not understood, it may not run at all, so it reads nothing; and every word of it may be the
    /// name of a file that it changes.
    pub(super) fn finish(mut self, text: &str) -> ToolPlan {
        if self.unclear {
            self.plan.vague = true;
            self.plan.reads.clear();
            let words = text.split(|c: char| c.is_whitespace() || "\"'`;|&<>(){}$=,".contains(c));
            let words = words.filter(|word| !word.is_empty() && !word.contains('\0')).take(NAMED);
            let paths = words.map(|word| match (word.strip_prefix("~/"), &self.home) {
                (Some(below), Some(home)) => home.join(below),
                _ => self.folder.join(word),
            });
            self.plan.touched.extend(paths);
            self.plan.people_only = self.plan.people_only.or_else(|| people::people_only_in(text));
        }
        self.plan
    }

    pub(super) fn list(&mut self, list: &List, shown: bool) {
        let (mut start, mut may_differ) = (self.folder.clone(), false);
        for pipeline in list {
            if pipeline.join == Join::Always {
                self.is_certain &= !may_differ;
                (start, may_differ) = (self.folder.clone(), false);
            }
            // It runs if the command before it has failed, and then that may not have changed the folder.
            self.is_certain &= pipeline.join != Join::Or || self.folder == start;
            let before = self.folder.clone();
            self.pipeline(pipeline, shown);
            // A command after `a || cd b &&` may run without the `cd`.
            self.is_certain &= pipeline.join != Join::Or || self.folder == before;
            may_differ |= pipeline.join != Join::Always && self.folder != before;
        }
        self.is_certain &= !may_differ;
    }

    /// The output of a command is shown if all following commands print their input.
    fn pipeline(&mut self, Pipeline { commands, .. }: &Pipeline, shown: bool) {
        for (at, command) in commands.iter().enumerate() {
            let name = |command: &Command| command.words.first().and_then(|word| word.value.clone());
            let mut behind = commands[at + 1..].iter().map(name);
            let shown = shown && behind.all(|name| name.is_some_and(|name| programs::lets_through(&name)));
            match commands.len() {
                1 => self.command(command, shown),
                // Each part of a pipe runs in its own shell.
                _ => self.in_subshell(|reader| reader.command(command, shown)),
            }
        }
    }

    fn in_subshell(&mut self, read: impl FnOnce(&mut Self)) {
        let before = (self.folder.clone(), self.is_certain);
        read(self);
        (self.folder, self.is_certain) = before;
    }

    fn command(&mut self, command: &Command, shown: bool) {
        for list in &command.substitutions {
            self.in_subshell(|reader| reader.list(list, false));
        }
        let (mut streams, mut outputs) = (Streams { input: None, text: None, shown }, Vec::new());
        for redirect in &command.redirects {
            match redirect {
                Redirect::Input(file) => streams.input = Some(file.clone()),
                Redirect::Text(text) => streams.text.clone_from(text),
                Redirect::Descriptor { hides } => streams.shown &= !hides,
                Redirect::Output { target, extent, hides } => {
                    streams.shown &= !hides;
                    outputs.push((target, *extent));
                }
            }
        }
        let words = self.expanded(&command.words);
        let text = match &command.group {
            Some(group) => {
                let before = self.folder.clone();
                match group.kind {
                    GroupKind::Subshell => {
                        self.in_subshell(|reader| reader.list(&group.body, streams.shown));
                    }
                    GroupKind::Plain | GroupKind::Branch => self.list(&group.body, streams.shown),
                }
                self.is_certain &= group.kind == GroupKind::Plain || self.folder == before;
                None
            }
            None => self.simple(&words, &streams),
        };
        let only = outputs.len() == 1;
        for (target, extent) in outputs {
            let text = text.clone().filter(|_| only && extent == Extent::Whole);
            self.change(target, extent, text);
        }
    }

    /// Adds what a simple command does. Returns what it prints, if that is certain.
    pub(super) fn simple(&mut self, words: &[Word], streams: &Streams) -> Option<String> {
        people::note_agents(self, words);
        let words = &words[words.iter().take_while(|word| word.assignment().is_some()).count()..];
        let Some((program, arguments)) = words.split_first() else {
            // `> file` alone empties it.
            return Some(String::new());
        };
        self.unclear |= self.depth > NESTED;
        if self.is_exhausted() {
            return None;
        }
        self.depth += 1;
        let printed = programs::run(self, program, arguments, streams);
        self.depth -= 1;
        printed
    }

    /// Reads a text that a shell runs in this one. If it is not known, it may change every file that the command names.
    pub(super) fn script(&mut self, text: Option<&str>, shown: bool) {
        match text.map(|text| syntax::parse(text, self.home.as_deref())) {
            Some(Ok(list)) => self.list(&list, shown),
            Some(Err(syntax::Unclear)) => self.unclear = true,
            None => self.plan.vague = true,
        }
    }

    /// The words after the expansion of patterns.
    fn expanded(&mut self, words: &[Word]) -> Vec<Word> {
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
