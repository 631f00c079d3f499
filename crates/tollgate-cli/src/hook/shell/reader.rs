//! Goes through the commands of a text in their order.

use std::path::Path;

use tollgate::turn::Extent;

use super::people;
use super::programs;
use super::state::{Shell, Streams};
use super::syntax::{self, Command, GroupKind, Join, List, Pipeline, Redirect};
use super::word::Word;
use crate::hook::plan::ToolPlan;

/// The deepest nesting of commands that run others: `env nice sh -c "sh -c '...'"`.
const NESTED: usize = 20;

/// The largest number of different words of a text that is not understood. A person or a model names fewer files.
const NAMED: usize = 20_000;

/// The commands of a text are read, and not run.
pub(super) struct Reader {
    pub(super) shell: Shell,
    /// How many commands run this one.
    depth: usize,
}

impl Reader {
    pub(super) fn new(folder: &Path, home: Option<&Path>) -> Self {
        Self { shell: Shell::new(folder, home), depth: 0 }
    }

    /// What the whole text does. If it is not understood, it may not run at all, so it reads nothing; and every word of it may be the
    /// name of a file that it changes.
    pub(super) fn finish(mut self, text: &str) -> ToolPlan {
        if self.shell.unclear {
            self.shell.plan.vague = true;
            self.shell.plan.reads.clear();
            let words = text.split(|c: char| c.is_whitespace() || "\"'`;|&<>(){}$=,".contains(c));
            let words = words.filter(|word| !word.is_empty() && !word.contains('\0')).take(NAMED);
            let paths = words.map(|word| match (word.strip_prefix("~/"), &self.shell.home) {
                (Some(below), Some(home)) => home.join(below),
                _ => self.shell.folder.join(word),
            });
            self.shell.plan.touched.extend(paths);
            self.shell.plan.people_only =
                self.shell.plan.people_only.or_else(|| people::people_only_in(text));
        }
        self.shell.plan
    }

    pub(super) fn list(&mut self, list: &List, shown: bool) {
        let (mut start, mut may_differ) = (self.shell.folder.clone(), false);
        for pipeline in list {
            if pipeline.join == Join::Always {
                self.shell.is_certain &= !may_differ;
                (start, may_differ) = (self.shell.folder.clone(), false);
            }
            // It runs if the command before it has failed, and then that may not have changed the folder.
            self.shell.is_certain &= pipeline.join != Join::Or || self.shell.folder == start;
            let before = self.shell.folder.clone();
            self.pipeline(pipeline, shown);
            // A command after `a || cd b &&` may run without the `cd`.
            self.shell.is_certain &= pipeline.join != Join::Or || self.shell.folder == before;
            may_differ |= pipeline.join != Join::Always && self.shell.folder != before;
        }
        self.shell.is_certain &= !may_differ;
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
        let before = (self.shell.folder.clone(), self.shell.is_certain);
        read(self);
        (self.shell.folder, self.shell.is_certain) = before;
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
        let words = self.shell.expanded(&command.words);
        let text = match &command.group {
            Some(group) => {
                let before = self.shell.folder.clone();
                match group.kind {
                    GroupKind::Subshell => {
                        self.in_subshell(|reader| reader.list(&group.body, streams.shown));
                    }
                    GroupKind::Plain | GroupKind::Branch => self.list(&group.body, streams.shown),
                }
                self.shell.is_certain &= group.kind == GroupKind::Plain || self.shell.folder == before;
                None
            }
            None => self.simple(&words, &streams),
        };
        let only = outputs.len() == 1;
        for (target, extent) in outputs {
            let text = text.clone().filter(|_| only && extent == Extent::Whole);
            self.shell.change(target, extent, text);
        }
    }

    /// Adds what a simple command does. Returns what it prints, if that is certain.
    pub(super) fn simple(&mut self, words: &[Word], streams: &Streams) -> Option<String> {
        people::note_agents(&mut self.shell, words);
        let words = &words[words.iter().take_while(|word| word.assignment().is_some()).count()..];
        let Some((program, arguments)) = words.split_first() else {
            // `> file` alone empties it.
            return Some(String::new());
        };
        self.shell.unclear |= self.depth > NESTED;
        if self.shell.is_exhausted() {
            return None;
        }
        self.depth += 1;
        let printed = match self.launch(program, arguments, streams) {
            true => None,
            false => programs::run(&mut self.shell, program, arguments, streams),
        };
        self.depth -= 1;
        printed
    }

    /// Reads a text that a shell runs in this one. If it is not known, it may change every file that the command names.
    pub(super) fn script(&mut self, text: Option<&str>, shown: bool) {
        match text.map(|text| syntax::parse(text, self.shell.home.as_deref())) {
            Some(Ok(list)) => self.list(&list, shown),
            Some(Err(syntax::Unclear)) => self.shell.unclear = true,
            None => self.shell.plan.vague = true,
        }
    }
}
