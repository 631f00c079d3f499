//! Parses a command with the grammar of Bash and follows it node by node, as a shell would run it.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use tree_sitter::{Node, ParseOptions, Parser, Tree};

use super::after_program::AfterProgram;
use super::effects::Effects;
use super::environment::AGENT;
use super::launch::Launched;
use super::our_calls::may_rename_us;
use super::people::may_be_people_only;
use super::programs;
use super::redirect::{OutputTarget, Redirects};
use super::state::Shell;
use super::tree::{children, is_list, quotes_of, slice};
use super::word::{Quotes, Word};

/// The effects of a command that runs in this folder.
pub(crate) fn effects(command: &str, folder: &Path, home: Option<&Path>) -> Effects {
    let mut reader =
        Reader { shell: Shell::new(folder, home), piped: None, printed: None, running: Vec::new() };
    reader.shell.may_rename_us = may_rename_us(command);
    reader.text(command, OutputTarget::Shown, 0);
    let Shell { mut effects, runs_unknown_text, .. } = reader.shell;
    if effects.unclear {
        // The shell may understand what the grammar does not. Then every word may be the name of a file to change.
        effects.gave_up = true;
        let words: BTreeSet<&str> = possible_names(command).collect();
        effects.touched.extend(words.into_iter().take(NAMED).filter_map(|word| path_of(word, folder, home)));
    }
    if (effects.unclear || runs_unknown_text) && effects.people_only.is_none() {
        effects.people_only = may_be_people_only(command);
    }
    effects
}

/// The largest number of different words of a text that cannot be parsed. A person or a model names fewer files.
const NAMED: usize = 20_000;

/// What may be a word of a text that cannot be parsed.
fn possible_names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c.is_whitespace() || "\"'`;|&<>(){}$=,".contains(c));
    words.filter(|word| !word.is_empty() && !word.contains('\0'))
}

fn path_of(word: &str, folder: &Path, home: Option<&Path>) -> Option<PathBuf> {
    match word.strip_prefix("~/") {
        Some(below) => home.map(|home| home.join(below)),
        None => Some(folder.join(word)),
    }
}

/// A shell whose commands are read and not run.
pub(super) struct Reader {
    pub(super) shell: Shell,
    /// The text that a pipe brings to the next command.
    pub(super) piped: Option<String>,
    /// The text that the last command printed.
    pub(super) printed: Option<String>,
    /// The functions that are being read.
    running: Vec<String>,
}

impl Reader {
    /// Reads a whole text.
    fn text(&mut self, text: &str, output: OutputTarget, depth: usize) {
        let Some(tree) = self.parse(text) else { return };
        let root = tree.root_node();
        self.shell.effects.unclear |= root.has_error();
        self.node(root, text, output, depth);
    }

    pub(super) fn parse(&mut self, text: &str) -> Option<Tree> {
        let mut parser = Parser::new();
        if parser.set_language(&tree_sitter_bash::LANGUAGE.into()).is_err() {
            self.shell.effects.unclear = true;
            return None;
        }
        let is_late = self.shell.lateness();
        let mut patience = |_: &tree_sitter::ParseState| {
            if is_late() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        // The grammar's scanner passes every character to a C function for bytes, which reads beyond its table for
        // characters above 255. To Bash they are ordinary letters. So the parser gets a `q`, which is in no keyword, for
        // each of their bytes, and the value of a word is taken from the original text at the same position.
        let bytes: Vec<u8> = text.bytes().map(|byte| if byte.is_ascii() { byte } else { b'q' }).collect();
        let options = ParseOptions::new().progress_callback(&mut patience);
        let tree =
            parser.parse_with_options(&mut |at, _| bytes.get(at..).unwrap_or_default(), None, Some(options));
        if tree.is_none() {
            (self.shell.effects.unclear, self.shell.effects.gave_up) = (true, true);
        }
        tree
    }

    pub(super) fn node(&mut self, node: Node<'_>, text: &str, output: OutputTarget, depth: usize) {
        if self.shell.is_exhausted(depth) {
            return;
        }
        match node.kind() {
            "command" => self.command(node, text, output, &Redirects::default(), depth),
            _ if is_list(node) => self.list(node, text, output, depth),
            "redirected_statement" => {
                self.redirected(node, node.child_by_field_name("body"), text, output, depth);
            }
            "pipeline" => self.pipeline(&children(node), text, output, depth),
            "variable_assignment" => {
                self.children(node, text, OutputTarget::Hidden, depth);
                self.assign(node, text);
            }
            "subshell" | "command_substitution" | "process_substitution" => {
                let output = if node.kind() == "subshell" { output } else { OutputTarget::Hidden };
                let env = self.shell.env.clone();
                self.children(node, text, output, depth);
                self.shell.env = env;
            }
            "for_statement" => self.repeat(node, text, output, depth),
            "function_definition" => self.define(node, text, output, depth),
            "if_statement" | "while_statement" | "case_statement" | "c_style_for_statement" => {
                self.branch(node, text, output, depth);
            }
            "ERROR" => {
                self.children(node, text, output, depth);
                self.leaf(slice(node, text), Quotes::Outside, depth);
            }
            "heredoc_redirect" => self.here_document(node, text, depth),
            "unset_command" => {
                self.children(node, text, output, depth);
                for name in children(node) {
                    self.shell.env.set(slice(name, text), Word::Unknown);
                }
            }
            "comment" | "raw_string" | "ansi_c_string" => {}
            _ if node.named_child_count() == 0 => {
                let part = slice(node, text);
                // `quotes_of` walks up the tree, so it is called only if the answer matters.
                let matters = part.contains("<(") || part.contains(">(");
                self.leaf(part, if matters { quotes_of(node) } else { Quotes::Outside }, depth);
            }
            _ => self.children(node, text, output, depth),
        }
    }

    pub(super) fn children(&mut self, node: Node<'_>, text: &str, output: OutputTarget, depth: usize) {
        for child in children(node) {
            self.node(child, text, output, depth + 1);
        }
    }

    /// Keeps a function, and reads it as if it were called with unknown arguments.
    fn define(&mut self, node: Node<'_>, text: &str, output: OutputTarget, depth: usize) {
        let name = node.child_by_field_name("name").map(|name| slice(name, text).to_owned());
        let name = name.unwrap_or_default();
        if let Some(body) = node.child_by_field_name("body") {
            self.shell.env.functions.insert(name.clone(), slice(body, text).to_owned());
        }
        self.running.push(name);
        let positional = self.shell.env.positional.take();
        self.branch(node, text, output, depth);
        self.shell.env.positional = positional;
        self.running.pop();
        // `f() { ...; } > file`
        let mut redirects = Redirects::default();
        for child in children(node).into_iter().filter(|child| child.kind() == "file_redirect") {
            redirects.add(&self.shell.env, child, text);
        }
        self.shell.write_outputs(&redirects, None);
    }

    /// Commands that may or may not run.
    fn branch(&mut self, node: Node<'_>, text: &str, output: OutputTarget, depth: usize) {
        let before = self.shell.env.clone();
        self.children(node, text, output, depth);
        self.shell.env.forget_differences(&before);
    }

    /// `for x in a b c`: runs the body with each value, if the values are known.
    fn repeat(&mut self, node: Node<'_>, text: &str, output: OutputTarget, depth: usize) {
        let mut cursor = node.walk();
        let words: Vec<Node<'_>> = node.children_by_field_name("value", &mut cursor).collect();
        for word in &words {
            self.node(*word, text, OutputTarget::Hidden, depth + 1);
        }
        let words = words.iter().flat_map(|word| self.shell.env.words(*word, text));
        let values: Vec<Word> = words.flat_map(|word| self.shell.env.globbed(word)).collect();
        let name =
            node.child_by_field_name("variable").map(|name| slice(name, text).to_owned()).unwrap_or_default();
        let Some(body) = node.child_by_field_name("body") else { return };
        let before = self.shell.env.clone();
        // Without values it repeats for the arguments of the shell.
        let values = if values.is_empty() { vec![Word::Unknown] } else { values };
        for value in values {
            self.shell.env.set(&name, value);
            self.node(body, text, output, depth + 1);
        }
        self.shell.env.forget_differences(&before);
        self.shell.env.set(&name, Word::Unknown);
    }

    fn assign(&mut self, node: Node<'_>, text: &str) {
        let Some(name) = node.child_by_field_name("name") else { return };
        let value = match node.child_by_field_name("value") {
            Some(value) => self.shell.env.word(value, text),
            None => Word::text(""),
        };
        let name = slice(name, text);
        let is_added = slice(node, text).strip_prefix(name).is_some_and(|rest| rest.starts_with("+="));
        let value = match (value.into_text(), is_added) {
            (Some(value), false) => Some(value),
            (Some(value), true) => {
                self.shell.env.variables.get(name).map(|before| format!("{before}{value}"))
            }
            (None, _) => None,
        };
        self.shell.env.set(name, value.map_or(Word::Unknown, |value| Word::text(&value)));
    }

    pub(super) fn command(
        &mut self,
        node: Node<'_>,
        text: &str,
        output: OutputTarget,
        redirects: &Redirects,
        depth: usize,
    ) {
        let mut redirects = redirects.clone();
        let (mut words, mut assignments) = (Vec::new(), Vec::new());
        let piped = self.piped.take();
        for child in children(node) {
            if self.shell.is_exhausted(depth) {
                return;
            }
            match child.kind() {
                "process_substitution" => {
                    words.push(Word::Substituted(self.substituted(child, text, depth)));
                    continue;
                }
                "variable_assignment" => assignments.push(child),
                "file_redirect" => redirects.add(&self.shell.env, child, text),
                // A shell adds a newline.
                "herestring_redirect" => {
                    let word = child.named_child(0).map(|word| self.shell.env.word(word, text));
                    redirects.text = word.and_then(Word::into_text).map(|text| text + "\n");
                }
                "command_name" => match child.named_child(0) {
                    Some(name) => words.extend(self.shell.env.words(name, text)),
                    None => words.push(Word::text(slice(child, text))),
                },
                _ => words.extend(self.shell.env.words(child, text)),
            }
            // Substitutions inside words also run.
            if child.kind() != "variable_assignment" {
                self.node(child, text, OutputTarget::Hidden, depth + 1);
            }
        }
        if redirects.inputs.is_empty() && redirects.input_text().is_none() {
            redirects.text = piped;
        }
        words.append(&mut redirects.arguments);
        let output = if redirects.hides { OutputTarget::Hidden } else { output };
        let mut expanded = Vec::new();
        for word in words {
            if self.shell.is_exhausted(depth) {
                return;
            }
            // The matches are in several folders, so their names are no longer relative.
            let is_pattern = matches!(word, Word::Text { pattern: Some(_), .. });
            self.shell.effects.gave_up |= is_pattern && self.shell.env.is_vague(&word);
            expanded.extend(self.shell.env.globbed(word));
        }
        let before = (!assignments.is_empty())
            .then(|| (self.shell.env.variables.clone(), self.shell.env.unknown.clone()));
        for assignment in assignments {
            self.node(assignment, text, OutputTarget::Hidden, depth + 1);
            let name =
                assignment.child_by_field_name("name").map(|name| slice(name, text)).unwrap_or_default();
            if let Some(value) = self.shell.env.variables.get(name) {
                self.shell.env.passed.insert(name.to_owned(), value.clone());
            }
        }
        let printed = self.words(&expanded, output, &redirects, depth);
        self.shell.env.passed.clear();
        // They hold for this command only.
        if let Some(before) = before {
            (self.shell.env.variables, self.shell.env.unknown) = before;
        }
        self.shell.write_outputs(&redirects, printed.clone());
        self.printed = printed.filter(|_| redirects.outputs.is_empty());
    }

    /// Runs a command whose words are known. Returns what it prints, if that is certain.
    fn words(
        &mut self,
        words: &[Word],
        output: OutputTarget,
        redirects: &Redirects,
        depth: usize,
    ) -> Option<String> {
        if self.shell.is_exhausted(depth) {
            return None;
        }
        let function = words.first().and_then(|name| self.shell.env.functions.get(name.as_text()?)).cloned();
        // A recursive call is not followed: the definition was already read with unknown arguments.
        let name = words.first().and_then(Word::as_text).unwrap_or_default().to_owned();
        if let Some(body) = function.filter(|_| !self.running.contains(&name)) {
            // The definition may be in a branch that does not run, so a program of this name counts, too.
            let outer = self.shell.env.positional.replace(words[1..].to_vec());
            self.running.push(name);
            self.text(&body, output, depth + 10);
            self.running.pop();
            self.shell.env.positional = outer;
        }
        if let [Word::Unknown | Word::Substituted(_), rest @ ..] = words
            && !rest.is_empty()
        {
            // It may be nothing (`$SUDO cp a b`), an assignment (`env A=$B cp a b`), or a program that runs the rest.
            self.words(rest, output, redirects, depth + 1);
        }
        match programs::run(&mut self.shell, words, output, redirects) {
            AfterProgram::Prints(text) => Some(text),
            AfterProgram::Quiet => None,
            AfterProgram::Eval(script) => {
                self.text(&script, output, depth + 1);
                None
            }
            AfterProgram::Script(script, arguments) => {
                self.nested(&script, arguments, output, depth);
                None
            }
            AfterProgram::Launched(launch) => self.launch(launch, output, redirects, depth),
        }
    }

    /// Runs the commands that a program starts.
    fn launch(
        &mut self,
        launch: Launched,
        output: OutputTarget,
        redirects: &Redirects,
        depth: usize,
    ) -> Option<String> {
        let before =
            (launch.folder.is_some() || !launch.variables.is_empty()).then(|| self.shell.env.clone());
        if let Some(folder) = launch.folder {
            self.shell.env.folder = folder;
        }
        for (name, value) in launch.variables {
            self.shell.env.set(&name, Word::text(&value));
            self.shell.env.passed.insert(name, value);
        }
        let mut printed = None;
        for command in &launch.commands {
            printed = self.words(command, output, redirects, depth + 1);
        }
        if let Some(env) = before {
            self.shell.env = env;
        }
        printed.filter(|_| launch.commands.len() == 1)
    }

    /// A shell in a shell. Its folder and variables do not change those of the outer shell.
    fn nested(&mut self, script: &str, arguments: Vec<Word>, output: OutputTarget, depth: usize) {
        let env = self.shell.env.clone();
        let running = std::mem::take(&mut self.running);
        // Of the outer shell's other variables it has only those that were exported, and which these are is not known.
        let passed = std::mem::take(&mut self.shell.env.passed);
        let outer = std::mem::replace(&mut self.shell.env.variables, passed);
        let lost = outer.into_keys().filter(|name| !self.shell.env.variables.contains_key(name));
        self.shell.env.unknown.extend(lost.filter(|name| name != AGENT));
        self.shell.env.functions.clear();
        self.shell.env.positional = Some(arguments);
        if !self.shell.is_exhausted(depth + 1) {
            self.text(script, output, depth + 10);
        }
        (self.shell.env, self.running) = (env, running);
    }
}
