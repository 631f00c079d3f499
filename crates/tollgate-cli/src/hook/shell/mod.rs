//! What a shell command does to files, as far as its text tells.
//!
//! The text is parsed by the grammar of Bash; nothing is run and nothing is guessed. A word whose value depends on what
//! we cannot know (a variable of the environment, the output of another command) names no file. What is missed here is
//! found afterwards: after each command the turn's files are looked at again.
//!
//! Both lists lean to the safe side. A write that might happen (in a branch, in a loop) is listed. A read that is listed
//! counts only as far as the output shows the file; see [`shown_in`].

mod glob;
mod programs;
mod word;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tollgate::turn::Extent;
use tree_sitter::{Node, ParseOptions, Parser};

use word::Word;

/// What a command does.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Effects {
    /// Files whose content goes to the output.
    pub(crate) reads: Vec<(PathBuf, Extent)>,
    /// Files that are changed.
    pub(crate) changes: Vec<Change>,
    /// Files that are named to programs of which we know nothing.
    pub(crate) named: Vec<PathBuf>,
    /// The text is no shell command that we understand all of.
    pub(crate) unclear: bool,
    /// It was too long or too deep to be read to its end.
    pub(crate) gave_up: bool,
}

/// A file that a command changes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    /// The file, or a folder with everything in it.
    pub(crate) path: PathBuf,
    /// Whether it is replaced whole.
    pub(crate) extent: Extent,
    /// What it will hold, if the command tells.
    pub(crate) text: Option<String>,
}

/// A command that takes longer to parse is not one that anybody wrote.
const PATIENCE: Duration = Duration::from_millis(500);

/// Deeper nesting is not followed: our own stack is finite.
const DEPTH: usize = 100;

/// More files than this in one command are not followed.
const FILES: usize = 10_000;

/// What a command does when it is run in this folder.
pub(crate) fn effects(command: &str, folder: &Path, home: Option<&Path>) -> Effects {
    let mut reader = Reader {
        folder: Some(folder.to_owned()),
        home: home.map(Path::to_owned),
        variables: HashMap::new(),
        effects: Effects::default(),
        started: Instant::now(),
    };
    reader.text(command, Output::Shown, 0);
    reader.effects
}

/// How much of a file an output shows: all lines, in their order, each perhaps with something before or after it (a
/// number, a name); else a part, if there is any output at all.
pub(crate) fn shown_in(output: &str, content: &str) -> Option<Extent> {
    let mut printed = output.lines();
    let whole = content.lines().all(|line| {
        let line = line.trim_end();
        printed.any(|printed| if line.is_empty() { is_nearly_empty(printed) } else { printed.contains(line) })
    });
    match whole {
        true => Some(Extent::Whole),
        false => (!output.trim().is_empty()).then_some(Extent::Part),
    }
}

/// An empty line, or the number of one.
fn is_nearly_empty(line: &str) -> bool {
    line.chars().all(|c| c.is_whitespace() || c.is_ascii_digit() || ":|-".contains(c))
}

/// Where the output of a command goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    /// To the agent, perhaps through a filter.
    Shown,
    /// Elsewhere.
    Hidden,
}

/// The state of a shell that is known while its commands are read one after the other.
struct Reader {
    /// The current folder; none if nobody can tell.
    folder: Option<PathBuf>,
    home: Option<PathBuf>,
    /// Variables with a value that is known.
    variables: HashMap<String, String>,
    effects: Effects,
    started: Instant,
}

/// What is redirected for one command.
#[derive(Debug, Default, Clone)]
struct Redirects {
    /// Files that get its output, and whether they are appended to.
    outputs: Vec<(Word, Extent)>,
    /// Files that are its input.
    inputs: Vec<Word>,
    /// Text that is its input.
    text: Option<String>,
    /// Its standard output goes elsewhere.
    hides: bool,
    /// Words that the grammar took for targets and that are arguments.
    arguments: Vec<Word>,
}

impl Reader {
    /// Reads a whole text.
    fn text(&mut self, text: &str, output: Output, depth: usize) {
        let mut parser = Parser::new();
        if parser.set_language(&tree_sitter_bash::LANGUAGE.into()).is_err() {
            self.effects.unclear = true;
            return;
        }
        let started = self.started;
        let mut patience = |_: &tree_sitter::ParseState| {
            if started.elapsed() > PATIENCE { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        // The grammar's scanner asks the C library about every character as if it were a byte, and reads beyond a table
        // for those that are not. To Bash they are letters of a word like others: so the parser sees a letter that is in no
        // keyword for each of their bytes, and what a word says is taken from the text itself, at the same place.
        let bytes: Vec<u8> = text.bytes().map(|byte| if byte.is_ascii() { byte } else { b'q' }).collect();
        let options = ParseOptions::new().progress_callback(&mut patience);
        let tree =
            parser.parse_with_options(&mut |at, _| bytes.get(at..).unwrap_or_default(), None, Some(options));
        let Some(tree) = tree else {
            (self.effects.unclear, self.effects.gave_up) = (true, true);
            return;
        };
        let root = tree.root_node();
        self.effects.unclear |= root.has_error();
        self.node(root, text, output, depth);
    }

    fn is_exhausted(&mut self, depth: usize) -> bool {
        let exhausted = depth > DEPTH
            || self.effects.changes.len() + self.effects.reads.len() > FILES
            || self.started.elapsed() > PATIENCE;
        self.effects.unclear |= exhausted;
        self.effects.gave_up |= exhausted;
        exhausted
    }

    fn node(&mut self, node: Node<'_>, text: &str, output: Output, depth: usize) {
        if self.is_exhausted(depth) {
            return;
        }
        match node.kind() {
            "command" => self.command(node, text, output, &Redirects::default(), depth),
            "redirected_statement" => self.redirected(node, text, output, depth),
            "pipeline" => self.pipeline(&children(node), text, output, depth),
            "variable_assignment" => self.assign(node, text),
            "subshell" | "command_substitution" | "process_substitution" => {
                let output = if node.kind() == "subshell" { output } else { Output::Hidden };
                let (folder, variables) = (self.folder.clone(), self.variables.clone());
                self.children(node, text, output, depth);
                (self.folder, self.variables) = (folder, variables);
            }
            "for_statement" => self.repeat(node, text, output, depth),
            "if_statement"
            | "while_statement"
            | "case_statement"
            | "function_definition"
            | "c_style_for_statement" => {
                let (folder, variables) = (self.folder.clone(), self.variables.clone());
                self.children(node, text, output, depth);
                // Nobody can tell which of it was run.
                if self.folder != folder {
                    self.folder = None;
                }
                self.variables.retain(|name, value| variables.get(name) == Some(value));
            }
            "heredoc_body" | "comment" | "test_command" | "word" | "raw_string" => {}
            _ => self.children(node, text, output, depth),
        }
    }

    fn children(&mut self, node: Node<'_>, text: &str, output: Output, depth: usize) {
        for child in children(node) {
            self.node(child, text, output, depth + 1);
        }
    }

    /// What goes into a pipe is shown if everything behind it lets text through.
    fn pipeline(&mut self, commands: &[Node<'_>], text: &str, output: Output, depth: usize) {
        for (index, command) in commands.iter().enumerate() {
            let behind = &commands[index + 1..];
            let through = behind.iter().all(|command| programs::lets_through(&name_of(*command, text)));
            // Each part of a pipe is a shell of its own.
            let folder = self.folder.clone();
            self.node(*command, text, if through { output } else { Output::Hidden }, depth + 1);
            self.folder = folder;
        }
    }

    /// `for x in a b c`: with each value, if they are known.
    fn repeat(&mut self, node: Node<'_>, text: &str, output: Output, depth: usize) {
        let mut cursor = node.walk();
        let values: Vec<Node<'_>> = node.children_by_field_name("value", &mut cursor).collect();
        let values: Vec<String> =
            values.iter().flat_map(|value| self.expand(self.word(*value, text))).collect();
        let name =
            node.child_by_field_name("variable").map(|name| slice(name, text).to_owned()).unwrap_or_default();
        let Some(body) = node.child_by_field_name("body") else { return };
        let folder = self.folder.clone();
        if values.is_empty() {
            self.variables.remove(&name);
            self.node(body, text, output, depth + 1);
        }
        for value in values {
            self.variables.insert(name.clone(), value);
            self.node(body, text, output, depth + 1);
        }
        if self.folder != folder {
            self.folder = None;
        }
        self.variables.remove(&name);
    }

    fn assign(&mut self, node: Node<'_>, text: &str) {
        let Some(name) = node.child_by_field_name("name") else { return };
        let value = match node.child_by_field_name("value") {
            Some(value) => self.word(value, text),
            None => Word::text(""),
        };
        match value {
            Word::Text { text: value, .. } => self.variables.insert(slice(name, text).to_owned(), value),
            Word::Unknown => self.variables.remove(slice(name, text)),
        };
    }

    /// A statement with redirections. They belong to its last command, however the grammar nests them.
    fn redirected(&mut self, node: Node<'_>, text: &str, output: Output, depth: usize) {
        let mut redirects = Redirects::default();
        // What follows the head of a here-document on its line: `cat <<E | tee f`, `cat <<E && rm f`.
        let (mut piped, mut then) = (Vec::new(), Vec::new());
        let body = node.child_by_field_name("body");
        for child in children(node) {
            match child.kind() {
                "file_redirect" => self.file_redirect(child, text, &mut redirects),
                "heredoc_redirect" => {
                    let mut literal = String::new();
                    let mut exact = true;
                    let indented = slice(child, text).starts_with("<<-");
                    for part in children(child) {
                        match part.kind() {
                            "heredoc_start" => {
                                exact &=
                                    slice(part, text).contains(['\'', '"', '\\']) || !has_expansion(child);
                            }
                            "heredoc_body" => literal = unindented(slice(part, text), indented),
                            "file_redirect" => self.file_redirect(part, text, &mut redirects),
                            "heredoc_end" => {}
                            "pipeline" => piped.extend(children(part)),
                            _ => then.push(part),
                        }
                    }
                    redirects.text = exact.then_some(literal);
                }
                _ => {}
            }
        }
        let through = piped.iter().all(|command| programs::lets_through(&name_of(*command, text)));
        let hidden = redirects.hides || !through;
        let own = if hidden { Output::Hidden } else { output };
        match body {
            Some(body) => self.last(body, text, output, own, &redirects, depth + 1),
            // `> file` alone empties it.
            None => self.write_outputs(&redirects, Some(String::new())),
        }
        self.pipeline(&piped, text, output, depth);
        for node in then {
            self.node(node, text, output, depth + 1);
        }
    }

    /// Reads a statement whose last command has redirections.
    fn last(
        &mut self,
        node: Node<'_>,
        text: &str,
        output: Output,
        own: Output,
        redirects: &Redirects,
        depth: usize,
    ) {
        if self.is_exhausted(depth) {
            return;
        }
        match node.kind() {
            "command" => self.command(node, text, own, redirects, depth),
            "list" => {
                let all = children(node);
                let Some((last, before)) = all.split_last() else { return };
                for node in before {
                    self.node(*node, text, output, depth + 1);
                }
                self.last(*last, text, output, own, redirects, depth + 1);
            }
            "pipeline" => {
                let all = children(node);
                let Some((last, before)) = all.split_last() else { return };
                let through = own == Output::Shown && programs::lets_through(&name_of(*last, text));
                self.pipeline(before, text, if through { own } else { Output::Hidden }, depth);
                self.last(*last, text, output, own, redirects, depth + 1);
            }
            _ => {
                self.node(node, text, own, depth + 1);
                self.write_outputs(redirects, None);
            }
        }
    }

    fn file_redirect(&mut self, node: Node<'_>, text: &str, redirects: &mut Redirects) {
        let descriptor = node.child_by_field_name("descriptor").map(|node| slice(node, text));
        let mut operator = "";
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            if !child.is_named() {
                operator = slice(child, text);
                break;
            }
        }
        let mut cursor = node.walk();
        let mut targets: Vec<Word> = node
            .children_by_field_name("destination", &mut cursor)
            .map(|target| self.word(target, text))
            .collect();
        if targets.is_empty() {
            return;
        }
        // Only the first word is the target: the grammar is greedy.
        redirects.arguments.extend(targets.split_off(1));
        let Some(target) = targets.pop() else { return };
        match operator {
            "<" => redirects.inputs.push(target),
            ">" | ">|" | "&>" | ">>" | "&>>" | "<>" => {
                let appends =
                    if operator.contains(">>") || operator == "<>" { Extent::Part } else { Extent::Whole };
                redirects.hides |= descriptor.is_none_or(|number| number == "1");
                redirects.outputs.push((target, appends));
            }
            // `>&2`, `2>&1`: a descriptor; but `>& file` is a file.
            ">&" if descriptor.is_none()
                && !matches!(&target, Word::Text { text, .. } if text == "-" || text.parse::<u32>().is_ok()) =>
            {
                redirects.hides = true;
                redirects.outputs.push((target, Extent::Whole));
            }
            ">&" => redirects.hides |= descriptor.is_none(),
            _ => {}
        }
    }

    fn write_outputs(&mut self, redirects: &Redirects, text: Option<String>) {
        let only = redirects.outputs.len() == 1;
        for (target, extent) in &redirects.outputs {
            let text = text.clone().filter(|_| only && *extent == Extent::Whole);
            for path in self.paths(target.clone()) {
                self.change(path, *extent, text.clone());
            }
        }
    }

    fn command(&mut self, node: Node<'_>, text: &str, output: Output, redirects: &Redirects, depth: usize) {
        let mut redirects = redirects.clone();
        let mut words = Vec::new();
        for child in children(node) {
            match child.kind() {
                // Only for this one command; none of those that we know cares.
                "variable_assignment" => {}
                "file_redirect" => self.file_redirect(child, text, &mut redirects),
                "herestring_redirect" => {}
                "command_name" => words.push(match child.named_child(0) {
                    Some(name) => self.word(name, text),
                    None => Word::Unknown,
                }),
                _ => words.push(self.word(child, text)),
            }
            // Commands inside of words are run, too.
            self.inside(child, text, depth + 1);
        }
        words.append(&mut redirects.arguments);
        let output = if redirects.hides { Output::Hidden } else { output };
        let words: Vec<Word> = words.into_iter().flat_map(|word| self.globbed(word)).collect();
        let told = programs::run(self, &words, output, &redirects, depth);
        self.write_outputs(&redirects, told);
    }

    /// Commands that are run to make a word.
    fn inside(&mut self, node: Node<'_>, text: &str, depth: usize) {
        if self.is_exhausted(depth) {
            return;
        }
        if matches!(node.kind(), "command_substitution" | "process_substitution") {
            return self.node(node, text, Output::Hidden, depth);
        }
        for child in children(node) {
            self.inside(child, text, depth + 1);
        }
    }

    /// The files that a word names.
    fn paths(&self, word: Word) -> Vec<PathBuf> {
        self.expand(word).iter().filter_map(|text| self.path(text)).collect()
    }

    fn path(&self, text: &str) -> Option<PathBuf> {
        if text.is_empty() || text.contains('\0') {
            return None;
        }
        let path = Path::new(text);
        if path.is_absolute() { Some(path.to_owned()) } else { Some(self.folder.as_ref()?.join(path)) }
    }

    /// The values of a word: several if it is a pattern.
    fn expand(&self, word: Word) -> Vec<String> {
        self.globbed(word).into_iter().filter_map(Word::into_text).collect()
    }

    fn globbed(&self, word: Word) -> Vec<Word> {
        let Word::Text { text, pattern: Some(pattern) } = word else { return vec![word] };
        let found = self.folder.as_ref().map(|folder| glob::expand(&pattern, folder)).unwrap_or_default();
        match found.is_empty() {
            // As a shell does with a pattern that matches nothing.
            true => vec![Word::text(&text)],
            false => found.iter().map(|text| Word::text(text)).collect(),
        }
    }

    fn read(&mut self, path: PathBuf, extent: Extent) {
        if !path.starts_with("/dev") && !self.effects.reads.iter().any(|(there, _)| *there == path) {
            self.effects.reads.push((path, extent));
        }
    }

    fn change(&mut self, path: PathBuf, extent: Extent, text: Option<String>) {
        if path.starts_with("/dev") {
            return;
        }
        let changes = &mut self.effects.changes;
        match changes.iter_mut().find(|change| change.path == path) {
            // Twice: then nobody can tell what it holds in the end.
            Some(change) => {
                change.text = None;
                if extent == Extent::Whole {
                    change.extent = extent;
                }
            }
            None => changes.push(Change { path, extent, text }),
        }
    }
}

fn children(node: Node<'_>) -> Vec<Node<'_>> {
    let mut cursor = node.walk();
    node.named_children(&mut cursor).collect()
}

fn slice<'t>(node: Node<'_>, text: &'t str) -> &'t str {
    text.get(node.byte_range()).unwrap_or_default()
}

/// The name of a command, if it is a plain word.
fn name_of(node: Node<'_>, text: &str) -> String {
    let node = match node.kind() {
        "redirected_statement" => node.child_by_field_name("body").unwrap_or(node),
        _ => node,
    };
    node.child_by_field_name("name").map(|name| slice(name, text).to_owned()).unwrap_or_default()
}

fn has_expansion(heredoc: Node<'_>) -> bool {
    let body = children(heredoc).into_iter().find(|part| part.kind() == "heredoc_body");
    body.is_some_and(|body| {
        children(body)
            .iter()
            .any(|part| part.kind().contains("expansion") || part.kind().contains("substitution"))
    })
}

/// Tabs at the beginning of each line go, if the here-document says so.
fn unindented(text: &str, indented: bool) -> String {
    match indented {
        true => text.split_inclusive('\n').map(|line| line.trim_start_matches('\t')).collect(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
