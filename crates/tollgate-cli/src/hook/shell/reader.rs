//! Parses a command with the grammar of Bash and follows it node by node, as a shell would run it.

use std::ops::ControlFlow;
use std::path::Path;

use tree_sitter::{Node, ParseOptions, Parser};

use super::effects::Effects;
use super::people::may_be_people_only;
use super::programs::{self, AfterProgram};
use super::redirect::{OutputTarget, Redirects};
use super::state::{PATIENCE, Shell};
use super::tree::{children, has_expansion, name_of, slice, unindented};
use super::word::Word;

/// The effects of a command that runs in this folder.
pub(crate) fn effects(command: &str, folder: &Path, home: Option<&Path>) -> Effects {
    let mut reader = Reader { shell: Shell::new(folder, home) };
    reader.text(command, OutputTarget::Shown, 0);
    let mut effects = reader.shell.effects;
    if effects.unclear && effects.people_only.is_none() {
        effects.people_only = may_be_people_only(command);
    }
    effects
}

/// A shell whose commands are read and not run.
struct Reader {
    shell: Shell,
}

impl Reader {
    /// Reads a whole text.
    fn text(&mut self, text: &str, output: OutputTarget, depth: usize) {
        let mut parser = Parser::new();
        if parser.set_language(&tree_sitter_bash::LANGUAGE.into()).is_err() {
            self.shell.effects.unclear = true;
            return;
        }
        let started = self.shell.started;
        let mut patience = |_: &tree_sitter::ParseState| {
            if started.elapsed() > PATIENCE { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        // The grammar's scanner passes every character to a C function for bytes, which reads beyond its table for
        // characters above 255. To Bash they are ordinary letters. So the parser gets a `q`, which is in no keyword, for
        // each of their bytes, and the value of a word is taken from the original text at the same position.
        let bytes: Vec<u8> = text.bytes().map(|byte| if byte.is_ascii() { byte } else { b'q' }).collect();
        let options = ParseOptions::new().progress_callback(&mut patience);
        let tree =
            parser.parse_with_options(&mut |at, _| bytes.get(at..).unwrap_or_default(), None, Some(options));
        let Some(tree) = tree else {
            (self.shell.effects.unclear, self.shell.effects.gave_up) = (true, true);
            return;
        };
        let root = tree.root_node();
        self.shell.effects.unclear |= root.has_error();
        self.node(root, text, output, depth);
    }

    fn node(&mut self, node: Node<'_>, text: &str, output: OutputTarget, depth: usize) {
        if self.shell.is_exhausted(depth) {
            return;
        }
        match node.kind() {
            "command" => self.command(node, text, output, &Redirects::default(), depth),
            "redirected_statement" => self.redirected(node, text, output, depth),
            "pipeline" => self.pipeline(&children(node), text, output, depth),
            "variable_assignment" => self.assign(node, text),
            "subshell" | "command_substitution" | "process_substitution" => {
                let output = if node.kind() == "subshell" { output } else { OutputTarget::Hidden };
                let (folder, variables) = (self.shell.env.folder.clone(), self.shell.env.variables.clone());
                self.children(node, text, output, depth);
                (self.shell.env.folder, self.shell.env.variables) = (folder, variables);
            }
            "for_statement" => self.repeat(node, text, output, depth),
            "if_statement"
            | "while_statement"
            | "case_statement"
            | "function_definition"
            | "c_style_for_statement" => {
                let (folder, variables) = (self.shell.env.folder.clone(), self.shell.env.variables.clone());
                self.children(node, text, output, depth);
                // Nobody can tell which branch runs.
                if self.shell.env.folder != folder {
                    self.shell.env.folder = None;
                }
                self.shell.env.variables.retain(|name, value| variables.get(name) == Some(value));
            }
            "heredoc_body" | "comment" | "test_command" | "word" | "raw_string" => {}
            _ => self.children(node, text, output, depth),
        }
    }

    fn children(&mut self, node: Node<'_>, text: &str, output: OutputTarget, depth: usize) {
        for child in children(node) {
            self.node(child, text, output, depth + 1);
        }
    }

    /// The input of a pipe is shown if all following commands print their input.
    fn pipeline(&mut self, commands: &[Node<'_>], text: &str, output: OutputTarget, depth: usize) {
        for (index, command) in commands.iter().enumerate() {
            let behind = &commands[index + 1..];
            let through = behind.iter().all(|command| programs::lets_through(&name_of(*command, text)));
            // Each part of a pipe runs in its own shell.
            let folder = self.shell.env.folder.clone();
            self.node(*command, text, if through { output } else { OutputTarget::Hidden }, depth + 1);
            self.shell.env.folder = folder;
        }
    }

    /// `for x in a b c`: runs the body with each value, if the values are known.
    fn repeat(&mut self, node: Node<'_>, text: &str, output: OutputTarget, depth: usize) {
        let mut cursor = node.walk();
        let values: Vec<Node<'_>> = node.children_by_field_name("value", &mut cursor).collect();
        let values: Vec<String> = values
            .iter()
            .flat_map(|value| self.shell.env.expand(self.shell.env.word(*value, text)))
            .collect();
        let name =
            node.child_by_field_name("variable").map(|name| slice(name, text).to_owned()).unwrap_or_default();
        let Some(body) = node.child_by_field_name("body") else { return };
        let folder = self.shell.env.folder.clone();
        if values.is_empty() {
            self.shell.env.variables.remove(&name);
            self.node(body, text, output, depth + 1);
        }
        for value in values {
            self.shell.env.variables.insert(name.clone(), value);
            self.node(body, text, output, depth + 1);
        }
        if self.shell.env.folder != folder {
            self.shell.env.folder = None;
        }
        self.shell.env.variables.remove(&name);
    }

    fn assign(&mut self, node: Node<'_>, text: &str) {
        let Some(name) = node.child_by_field_name("name") else { return };
        let value = match node.child_by_field_name("value") {
            Some(value) => self.shell.env.word(value, text),
            None => Word::text(""),
        };
        match value {
            Word::Text { text: value, .. } => {
                self.shell.env.variables.insert(slice(name, text).to_owned(), value)
            }
            Word::Unknown => self.shell.env.variables.remove(slice(name, text)),
        };
    }

    /// A statement with redirections. They belong to its last command, in whatever way the grammar nests them.
    fn redirected(&mut self, node: Node<'_>, text: &str, output: OutputTarget, depth: usize) {
        let mut redirects = Redirects::default();
        // The rest of the line after the start of a here-document: `cat <<E | tee f`, `cat <<E && rm f`.
        let (mut piped, mut then) = (Vec::new(), Vec::new());
        let body = node.child_by_field_name("body");
        for child in children(node) {
            match child.kind() {
                "file_redirect" => redirects.add(&self.shell.env, child, text),
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
                            "file_redirect" => redirects.add(&self.shell.env, part, text),
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
        let own = if hidden { OutputTarget::Hidden } else { output };
        match body {
            Some(body) => self.last(body, text, output, own, &redirects, depth + 1),
            // `> file` alone empties it.
            None => self.shell.write_outputs(&redirects, Some(String::new())),
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
        output: OutputTarget,
        own: OutputTarget,
        redirects: &Redirects,
        depth: usize,
    ) {
        if self.shell.is_exhausted(depth) {
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
                let through = own == OutputTarget::Shown && programs::lets_through(&name_of(*last, text));
                self.pipeline(before, text, if through { own } else { OutputTarget::Hidden }, depth);
                self.last(*last, text, output, own, redirects, depth + 1);
            }
            _ => {
                self.node(node, text, own, depth + 1);
                self.shell.write_outputs(redirects, None);
            }
        }
    }

    fn command(
        &mut self,
        node: Node<'_>,
        text: &str,
        output: OutputTarget,
        redirects: &Redirects,
        depth: usize,
    ) {
        let mut redirects = redirects.clone();
        let mut words = Vec::new();
        for child in children(node) {
            match child.kind() {
                // It holds for this command only, and no known program depends on it.
                "variable_assignment" => {}
                "file_redirect" => redirects.add(&self.shell.env, child, text),
                // A shell adds a newline.
                "herestring_redirect" => {
                    let word = child.named_child(0).map(|word| self.shell.env.word(word, text));
                    redirects.text = word.and_then(Word::into_text).map(|text| text + "\n");
                }
                "command_name" => words.push(match child.named_child(0) {
                    Some(name) => self.shell.env.word(name, text),
                    None => Word::Unknown,
                }),
                _ => words.push(self.shell.env.word(child, text)),
            }
            // Command substitutions inside words also run.
            self.inside(child, text, depth + 1);
        }
        words.append(&mut redirects.arguments);
        let output = if redirects.hides { OutputTarget::Hidden } else { output };
        let words: Vec<Word> = words.into_iter().flat_map(|word| self.shell.env.globbed(word)).collect();
        let printed = match programs::run(&mut self.shell, &words, output, &redirects) {
            AfterProgram::Prints(text) => Some(text),
            AfterProgram::Quiet => None,
            AfterProgram::Eval(script) => {
                self.text(&script, output, depth + 1);
                None
            }
            AfterProgram::Script(script) => {
                self.nested(&script, output, depth);
                None
            }
        };
        self.shell.write_outputs(&redirects, printed);
    }

    /// A shell in a shell. Its folder and variables do not change those of the outer shell.
    fn nested(&mut self, script: &str, output: OutputTarget, depth: usize) {
        let env = self.shell.env.clone();
        if !self.shell.is_exhausted(depth + 1) {
            self.text(script, output, depth + 10);
        }
        self.shell.env = env;
    }

    /// Command substitutions in a word.
    fn inside(&mut self, node: Node<'_>, text: &str, depth: usize) {
        if self.shell.is_exhausted(depth) {
            return;
        }
        if matches!(node.kind(), "command_substitution" | "process_substitution") {
            return self.node(node, text, OutputTarget::Hidden, depth);
        }
        for child in children(node) {
            self.inside(child, text, depth + 1);
        }
    }
}
