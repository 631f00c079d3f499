//! Small functions on the nodes of a parsed command.

use tree_sitter::Node;

use super::word::Quotes;

pub(super) fn children(node: Node<'_>) -> Vec<Node<'_>> {
    let mut cursor = node.walk();
    node.named_children(&mut cursor).collect()
}

pub(super) fn slice<'t>(node: Node<'_>, text: &'t str) -> &'t str {
    text.get(node.byte_range()).unwrap_or_default()
}

/// The name of a command, if it is a plain word.
pub(super) fn name_of(node: Node<'_>, text: &str) -> String {
    let node = match node.kind() {
        "redirected_statement" => node.child_by_field_name("body").unwrap_or(node),
        _ => node,
    };
    node.child_by_field_name("name").map(|name| slice(name, text).to_owned()).unwrap_or_default()
}

/// Whether the end of a here-document is quoted. Then a shell expands nothing in its text.
pub(super) fn is_end_quoted(start: &str) -> bool {
    start.contains(['\'', '"', '\\'])
}

/// The text of a here-document, without tabs at the start of each line if it is indented (`<<-`).
pub(super) fn unindented(text: &str, indented: bool) -> String {
    match indented {
        true => text.split_inclusive('\n').map(|line| line.trim_start_matches('\t')).collect(),
        false => text.to_owned(),
    }
}

/// Whether these are commands in a row: `a && b || c`, `a && b > file`, or `a | b | c && d`, which the grammar takes for
/// `a | { b | c && d; }`.
pub(super) fn is_list(node: Node<'_>) -> bool {
    match node.kind() {
        "list" => node.named_child_count() > 0,
        "redirected_statement" => node.child_by_field_name("body").is_some_and(is_list),
        "pipeline" => children(node).last().is_some_and(|last| last.kind() == "list" && is_list(*last)),
        _ => false,
    }
}

/// Whether a part of the text is in double quotes.
pub(super) fn quotes_of(node: Node<'_>) -> Quotes {
    let mut above = Some(node);
    while let Some(node) = above {
        match node.kind() {
            "string" | "string_content" => return Quotes::Inside,
            kind if kind.contains("substitution") || kind == "command" => return Quotes::Outside,
            _ => above = node.parent(),
        }
    }
    Quotes::Outside
}
