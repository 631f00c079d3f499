//! Lists of commands: `a && b || c`.

use tree_sitter::Node;

use super::environment::Environment;
use super::reader::Reader;
use super::redirect::OutputTarget;
use super::tree::{children, is_list};

impl Reader {
    /// `a && b || c`: only the first command certainly runs. A command after `&&` runs only if the one before it did, so it sees
    /// the changes of that one. After `||`, and after the whole list, it is not known which commands ran.
    pub(super) fn list(&mut self, node: Node<'_>, text: &str, output: OutputTarget, depth: usize) {
        let mut certain: Option<Environment> = None;
        let mut may_be_skipped = false;
        let (piped, commands) = commands_of(node);
        for (index, ListedCommand { after_or, command, redirected }) in commands.into_iter().enumerate() {
            if self.shell.is_exhausted(depth) {
                return;
            }
            if let Some(certain) = &certain
                && (after_or || may_be_skipped)
            {
                self.shell.env = certain.clone();
            }
            may_be_skipped = after_or;
            match redirected {
                Some(statement) => self.redirected(statement, Some(command), text, output, depth + 1),
                None if index == 0 && !piped.is_empty() => {
                    let last = if command.kind() == "pipeline" { children(command) } else { vec![command] };
                    self.pipeline(&[&piped[..], &last[..]].concat(), text, output, depth + 1);
                }
                None => self.node(command, text, output, depth + 1),
            }
            let mut left = self.shell.env.clone();
            if let Some(certain) = certain {
                left.forget_differences(&certain);
            }
            certain = Some(left);
        }
        if let Some(certain) = certain {
            self.shell.env = certain;
        }
    }
}

/// A command of a list.
struct ListedCommand<'t> {
    /// Whether there is a `||` before it, and not a `&&`.
    after_or: bool,
    command: Node<'t>,
    /// The statement with its redirections, if that has other commands in it as well.
    redirected: Option<Node<'t>>,
}

/// The commands of `a && b > file || c`, which the grammar nests to the left, and those whose output goes to the first one.
fn commands_of(node: Node<'_>) -> (Vec<Node<'_>>, Vec<ListedCommand<'_>>) {
    let (mut piped, mut commands) = (Vec::new(), Vec::new());
    let (mut first, mut redirected) = (node, None);
    while is_list(first) {
        let mut all = children(first);
        match (first.kind(), first.child_by_field_name("body")) {
            ("redirected_statement", Some(body)) if redirected.is_none() => {
                (first, redirected) = (body, Some(first));
            }
            ("list", _) => {
                let mut cursor = first.walk();
                let after_or = !first.children(&mut cursor).any(|child| child.kind() == "&&");
                let listed = |command| ListedCommand { after_or, command, redirected: redirected.take() };
                commands.extend(all.drain(1..).rev().map(listed));
                first = all[0];
            }
            ("pipeline", _) => {
                first = all.pop().unwrap_or(first);
                piped.append(&mut all);
            }
            _ => break,
        }
    }
    commands.push(ListedCommand { after_or: false, command: first, redirected });
    commands.reverse();
    (piped, commands)
}
