//! Substitutions: `$(...)`, backticks, `<(...)`, and where one ends in a text that the grammar does not divide.

use tree_sitter::{Node, Tree};

use super::reader::Reader;
use super::redirect::OutputTarget;
use super::tree::{children, is_end_quoted, slice};
use super::word::Quotes;

impl Reader {
    /// A part of the text that the grammar does not divide further. A shell runs the substitutions in it.
    pub(super) fn leaf(&mut self, text: &str, quotes: Quotes, depth: usize) {
        let mut at = 0;
        while let Some(found) = text[at..].find(['\\', '$', '`', '<', '>']) {
            at += found;
            let rest = &text[at..];
            if let Some(escaped) = rest.strip_prefix('\\') {
                at += 1 + escaped.chars().next().map_or(0, char::len_utf8);
            } else if rest.starts_with('`')
                || rest[1..].starts_with('(') && (quotes == Quotes::Outside || rest.starts_with('$'))
            {
                at += self.substitution(rest, depth).max(1);
            } else {
                at += 1;
            }
            if self.shell.is_exhausted(depth) {
                return;
            }
        }
    }

    /// Reads the substitution at the beginning of a text. Returns its length.
    fn substitution(&mut self, text: &str, depth: usize) -> usize {
        let length = length(text);
        // Only this part, because a parser that gets all that follows would read a long text again and again.
        let part = &text[..length.unwrap_or(0)];
        let Some(tree) = self.parse(part) else { return text.len() };
        let node = first_substitution(&tree);
        let is_whole = |node: &Node<'_>| node.end_byte() == part.len() && !node.has_error();
        let is_certain = node.as_ref().is_some_and(is_whole);
        if !is_certain && !text.starts_with('`') && !self.shell.effects.unclear {
            // Its end may be elsewhere.
            let Some(tree) = self.parse(text) else { return text.len() };
            if let Some(node) = first_substitution(&tree).filter(|node| !node.has_error()) {
                self.node(node, text, OutputTarget::Hidden, depth + 1);
                return node.end_byte();
            }
        }
        self.shell.effects.unclear |= !is_certain;
        match node {
            Some(node) => self.node(node, part, OutputTarget::Hidden, depth + 1),
            None if !text.starts_with('`') => return 0,
            None => {}
        }
        part.len()
    }

    /// The substitutions in a here-document, unless its end is quoted.
    pub(super) fn here_document(&mut self, node: Node<'_>, text: &str, depth: usize) {
        let parts = children(node);
        let is_quoted =
            parts.iter().any(|part| part.kind() == "heredoc_start" && is_end_quoted(slice(*part, text)));
        for part in parts {
            match part.kind() {
                // The grammar does not know all substitutions in it.
                "heredoc_body" if !is_quoted => self.leaf(slice(part, text), Quotes::Inside, depth + 1),
                "heredoc_body" | "heredoc_start" | "heredoc_end" => {}
                _ => self.node(part, text, OutputTarget::Hidden, depth + 1),
            }
        }
    }

    /// Reads a process substitution. Returns what it prints, if that is certain.
    pub(super) fn substituted(&mut self, node: Node<'_>, text: &str, depth: usize) -> Option<String> {
        self.printed = None;
        self.node(node, text, OutputTarget::Hidden, depth + 1);
        let printed = self.printed.take();
        printed.filter(|_| matches!(children(node)[..], [only] if only.kind() == "command"))
    }
}

/// The substitution at the beginning of a text.
fn first_substitution(tree: &Tree) -> Option<Node<'_>> {
    let mut node = tree.root_node();
    while !node.kind().contains("substitution") && node.kind() != "arithmetic_expansion" {
        node = node.named_child(0).filter(|child| child.start_byte() == 0)?;
    }
    Some(node)
}

/// What ends a part of a text.
#[derive(Clone, Copy, PartialEq)]
enum Until {
    Bracket,
    Brace,
    Quote,
    /// The `'` of `$'...'`, in which backslashes count.
    AnsiQuote,
    DoubleQuote,
    Backtick,
}

/// The length of the substitution at the beginning of a text: `$(...)`, `<(...)`, `>(...)` or one in backticks. `None` if it
/// does not end. It is only nearly exact: the `)` of a pattern in `case` may end it too early.
fn length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_backtick = bytes.first() == Some(&b'`');
    let mut open = vec![if is_backtick { Until::Backtick } else { Until::Bracket }];
    let mut at = if is_backtick { 1 } else { 2 };
    while let (Some(byte), Some(until)) = (bytes.get(at), open.last().copied()) {
        let next = bytes.get(at + 1);
        at += 1;
        let plain = matches!(until, Until::Bracket | Until::Brace);
        match (byte, until) {
            (b'\\', _) if until != Until::Quote => at += 1,
            (b')', Until::Bracket)
            | (b'}', Until::Brace)
            | (b'\'', Until::Quote | Until::AnsiQuote)
            | (b'"', Until::DoubleQuote)
            | (b'`', Until::Backtick) => {
                open.pop();
                if open.is_empty() {
                    return Some(at);
                }
            }
            (_, Until::Quote | Until::AnsiQuote | Until::Backtick) => {}
            (b'`', _) => open.push(Until::Backtick),
            (b'$', _) if matches!(next, Some(b'(' | b'{')) => {
                open.push(if next == Some(&b'(') { Until::Bracket } else { Until::Brace });
                at += 1;
            }
            (b'$', _) if plain && next == Some(&b'\'') => {
                open.push(Until::AnsiQuote);
                at += 1;
            }
            (b'(', Until::Bracket) => open.push(Until::Bracket),
            (b'\'', _) if plain => open.push(Until::Quote),
            (b'"', _) if until != Until::DoubleQuote => open.push(Until::DoubleQuote),
            // A comment.
            (b'#', Until::Bracket) if bytes[at - 2].is_ascii_whitespace() || bytes[at - 2] == b';' => {
                at += bytes[at..].iter().position(|byte| *byte == b'\n')?;
            }
            _ => {}
        }
    }
    None
}
