//! Redirections: where the input of a command comes from and where its output goes.

use tollgate::turn::Extent;
use tree_sitter::Node;

use super::environment::Environment;
use super::tree::slice;
use super::word::Word;

/// Where the output of a command goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputTarget {
    /// To the agent, perhaps through a filter.
    Shown,
    /// To a file or another program.
    Hidden,
}

/// The redirections of one command.
#[derive(Debug, Default, Clone)]
pub(super) struct Redirects {
    /// Files that get its output, and whether they are appended to.
    pub(super) outputs: Vec<(Word, Extent)>,
    /// Files that are its input.
    pub(super) inputs: Vec<Word>,
    /// Text that is its input.
    pub(super) text: Option<String>,
    /// The same, if parts of it are only known when the shell expands them.
    pub(super) rough_text: Option<String>,
    /// Its standard output does not go to the agent.
    pub(super) hides: bool,
    /// Arguments that the grammar took for targets.
    pub(super) arguments: Vec<Word>,
}

impl Redirects {
    /// The text of its input, as far as it is known.
    pub(super) fn input_text(&self) -> Option<&String> {
        self.text.as_ref().or(self.rough_text.as_ref())
    }

    /// Adds a redirection from or to a file.
    pub(super) fn add(&mut self, env: &Environment, node: Node<'_>, text: &str) {
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
            .map(|target| env.word(target, text))
            .collect();
        if targets.is_empty() {
            return;
        }
        // Only the first word is the target. The grammar is greedy.
        self.arguments.extend(targets.split_off(1));
        let Some(target) = targets.pop() else { return };
        match operator {
            "<" => self.inputs.push(target),
            ">" | ">|" | "&>" | ">>" | "&>>" | "<>" => {
                let appends =
                    if operator.contains(">>") || operator == "<>" { Extent::Part } else { Extent::Whole };
                self.hides |= descriptor.is_none_or(|number| number == "1");
                self.outputs.push((target, appends));
            }
            // `>&2`, `2>&1`: a descriptor; but `>& file` is a file.
            ">&" if descriptor.is_none()
                && !matches!(&target, Word::Text { text, .. } if text == "-" || text.parse::<u32>().is_ok()) =>
            {
                self.hides = true;
                self.outputs.push((target, Extent::Whole));
            }
            ">&" => self.hides |= descriptor.is_none(),
            _ => {}
        }
    }
}
