//! A diff in the format of the reference server.

use std::path::Path;
use std::time::Duration;

use similar::{DiffOp, TextDiff};

/// The number of unchanged lines around a change.
const CONTEXT: usize = 4;

/// How long to look for the smallest diff. After that it may be larger than necessary.
const PATIENCE: Duration = Duration::from_secs(1);

/// The change of a file as a unified diff in a fenced block.
pub(crate) fn fenced(path: &Path, before: &[u8], after: &[u8]) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace("\r\n", "\n");
    let diff = unified(&path.to_string_lossy(), &text(before), &text(after));
    // Longer than any in the diff.
    let longest = diff.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat((longest + 1).max(3));
    format!("{fence}diff\n{diff}{fence}\n\n")
}

fn unified(path: &str, before: &str, after: &str) -> String {
    let mut patch =
        format!("Index: {path}\n{}\n--- {path}\toriginal\n+++ {path}\tmodified\n", "=".repeat(67));
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(before, after);
    for group in diff.grouped_ops(CONTEXT) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let old = first.old_range().start..last.old_range().end;
        let new = first.new_range().start..last.new_range().end;
        patch.push_str(&format!("@@ -{} +{} @@\n", span(&old), span(&new)));
        for op in &group {
            lines(&mut patch, &diff, op);
        }
    }
    patch
}

/// The start, counted from one, and the length. An empty span starts at the line before it.
fn span(range: &std::ops::Range<usize>) -> String {
    format!("{},{}", range.start + usize::from(!range.is_empty()), range.len())
}

fn lines(patch: &mut String, diff: &TextDiff<'_, '_, str>, op: &DiffOp) {
    for change in diff.iter_changes(op) {
        let sign = match change.tag() {
            similar::ChangeTag::Equal => ' ',
            similar::ChangeTag::Delete => '-',
            similar::ChangeTag::Insert => '+',
        };
        patch.push(sign);
        patch.push_str(change.value());
        if !change.value().ends_with('\n') {
            patch.push_str("\n\\ No newline at end of file\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_have_the_right_positions() {
        let shown = unified("/f", "a\nb\n", "a\nc\n");
        assert!(shown.ends_with("@@ -1,2 +1,2 @@\n a\n-b\n+c\n"), "{shown}");
        let shown = unified("/f", "", "a\n");
        assert!(shown.ends_with("@@ -0,0 +1,1 @@\n+a\n"), "{shown}");
        let shown = unified("/f", "a", "b");
        let end = "\\ No newline at end of file\n";
        assert!(shown.ends_with(&format!("@@ -1,1 +1,1 @@\n-a\n{end}+b\n{end}")), "{shown}");
    }

    #[test]
    fn the_fence_is_longer_than_any_inside() {
        assert!(fenced(Path::new("/f"), b"", b"````\n").starts_with("`````diff\n"));
    }
}
