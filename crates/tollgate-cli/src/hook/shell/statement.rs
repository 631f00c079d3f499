//! Pipes, and statements with redirections: which command gets which input, and where its output goes.

use tree_sitter::Node;

use super::expansion::unescaped;
use super::programs;
use super::reader::Reader;
use super::redirect::{OutputTarget, Redirects};
use super::tree::{children, is_end_quoted, name_of, slice, unindented};
use super::word::Quotes;

impl Reader {
    /// The input of a pipe is shown if all following commands print their input.
    pub(super) fn pipeline(&mut self, commands: &[Node<'_>], text: &str, output: OutputTarget, depth: usize) {
        self.piped_from(None, commands, text, output, depth);
    }

    fn piped_from(
        &mut self,
        mut input: Option<String>,
        commands: &[Node<'_>],
        text: &str,
        output: OutputTarget,
        depth: usize,
    ) {
        for (index, command) in commands.iter().enumerate() {
            let behind = &commands[index + 1..];
            let through = behind.iter().all(|command| programs::lets_through(&name_of(*command, text)));
            // Each part of a pipe runs in its own shell.
            let env = self.shell.env.clone();
            (self.piped, self.printed) = (input.take(), None);
            self.node(*command, text, if through { output } else { OutputTarget::Hidden }, depth + 1);
            input = self.printed.take().filter(|_| command.kind() == "command");
            self.shell.env = env;
        }
        (self.piped, self.printed) = (None, None);
    }

    /// A statement with redirections. They belong to its last command, in whatever way the grammar nests them.
    pub(super) fn redirected(
        &mut self,
        node: Node<'_>,
        body: Option<Node<'_>>,
        text: &str,
        output: OutputTarget,
        depth: usize,
    ) {
        let mut redirects = Redirects::default();
        // The rest of the line after the start of a here-document: `cat <<E | tee f`, `cat <<E && rm f`.
        let (mut piped, mut then) = (Vec::new(), Vec::new());
        for child in children(node) {
            match child.kind() {
                "file_redirect" => self.redirect(&mut redirects, child, text, depth),
                "heredoc_redirect" => {
                    let mut literal = String::new();
                    let mut is_quoted = false;
                    let indented = slice(child, text).starts_with("<<-");
                    for part in children(child) {
                        match part.kind() {
                            "heredoc_start" => is_quoted = is_end_quoted(slice(part, text)),
                            "heredoc_body" => {
                                literal = unindented(slice(part, text), indented);
                                if !is_quoted {
                                    self.leaf(slice(part, text), Quotes::Inside, depth + 1);
                                }
                            }
                            "file_redirect" => self.redirect(&mut redirects, part, text, depth),
                            "heredoc_end" => {}
                            "pipeline" => piped.extend(children(part)),
                            _ => then.push(part),
                        }
                    }
                    let is_exact = is_quoted || !literal.contains(['$', '`', '\\']);
                    redirects.rough_text =
                        Some(if is_quoted { literal.clone() } else { unescaped(&literal) });
                    redirects.text = is_exact.then_some(literal);
                }
                _ => {}
            }
        }
        let through = piped.iter().all(|command| programs::lets_through(&name_of(*command, text)));
        let hidden = redirects.hides || !through;
        let own = if hidden { OutputTarget::Hidden } else { output };
        self.printed = None;
        match body {
            Some(body) => self.last(body, text, own, &redirects, depth + 1),
            // `> file` alone empties it.
            None => self.shell.write_outputs(&redirects, Some(String::new())),
        }
        let printed = self.printed.take().filter(|_| body.is_some_and(|body| body.kind() == "command"));
        self.piped_from(printed, &piped, text, output, depth);
        for node in then {
            self.node(node, text, output, depth + 1);
        }
    }

    /// Adds a redirection. Substitutions in it run, too.
    fn redirect(&mut self, redirects: &mut Redirects, node: Node<'_>, text: &str, depth: usize) {
        redirects.add(&self.shell.env, node, text);
        self.children(node, text, OutputTarget::Hidden, depth);
    }

    /// Reads a statement whose last command has redirections.
    fn last(&mut self, node: Node<'_>, text: &str, own: OutputTarget, redirects: &Redirects, depth: usize) {
        if self.shell.is_exhausted(depth) {
            return;
        }
        match node.kind() {
            "command" => self.command(node, text, own, redirects, depth),
            "pipeline" => {
                let all = children(node);
                let Some((last, before)) = all.split_last() else { return };
                let through = own == OutputTarget::Shown && programs::lets_through(&name_of(*last, text));
                self.pipeline(before, text, if through { own } else { OutputTarget::Hidden }, depth);
                self.last(*last, text, own, redirects, depth + 1);
            }
            _ => {
                self.node(node, text, own, depth + 1);
                self.shell.write_outputs(redirects, None);
            }
        }
    }
}
