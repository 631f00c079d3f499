//! Short diffs for refusals.

use std::time::Duration;

use similar::TextDiff;

/// Enough to see what changed. A model that needs more reads the file again anyway.
const MAX_BYTES: usize = 4096;

/// A late refusal would be worse than one without a diff.
const MAX_TIME: Duration = Duration::from_millis(100);

/// A unified diff of limited length. `None` if the bytes are not text.
pub(crate) fn bounded(old: &[u8], new: &[u8]) -> Option<String> {
    let (old, new) = (str::from_utf8(old).ok()?, str::from_utf8(new).ok()?);
    if old.contains('\0') || new.contains('\0') {
        return None;
    }
    let diff = TextDiff::configure().timeout(MAX_TIME).diff_lines(old, new);
    let text = diff.unified_diff().context_radius(2).header("what you read", "on disk").to_string();
    if text.len() <= MAX_BYTES {
        return Some(text);
    }
    let end = (0..=MAX_BYTES).rev().find(|&end| text.is_char_boundary(end))?;
    let end = text[..end].rfind('\n').map_or(end, |newline| newline + 1);
    Some(format!("{}... ({} bytes more)\n", &text[..end], text.len() - end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown() {
        let text = bounded(b"a\nb\nc\n", b"a\nB\nc\n").unwrap();
        assert!(text.contains("-b\n+B\n"), "{text}");
    }

    #[test]
    fn a_long_diff_is_cut_and_says_so() {
        let (old, new) = ("ä\n".repeat(10_000), "ö\n".repeat(10_000));
        let text = bounded(old.as_bytes(), new.as_bytes()).unwrap();
        assert!(text.len() < MAX_BYTES + 50 && text.ends_with("bytes more)\n"));
    }

    #[test]
    fn bytes_that_are_not_text_are_not_shown() {
        assert_eq!(bounded(b"\xff", b"a"), None);
        assert_eq!(bounded(b"a", b"\0"), None);
    }
}
