//! Changing the priority that a task's author has written. Pure.
//!
//! Invariant: nothing else that the task asks for changes. A text in which that cannot be done for certain stays as it is.

use tollgate::vault::brief::{Brief, Priority};

/// The text with this priority. `None` if it would ask for anything else than before, or cannot be read.
pub(super) fn with_priority(text: &str, priority: Priority) -> Option<String> {
    let old = Brief::read(text.as_bytes()).ok()?;
    let wanted = Brief { priority, ..old };
    let ending = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let new = format!("priority: {}{ending}", priority.as_str());
    let mut candidates = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let word: String =
            line.chars().filter(char::is_ascii_alphanumeric).take(8).collect::<String>().to_lowercase();
        if word.starts_with("prio") && line.contains(':') {
            let bold = line.trim_start().starts_with("**");
            let line_end = if line.ends_with('\n') { ending } else { "" };
            let written = match bold {
                true => format!("**Priority**: {}{line_end}", priority.as_str()),
                false => new.clone(),
            };
            candidates.push([&text[..at], &written, &text[at + line.len()..]].concat());
        }
        at += line.len();
    }
    match text.strip_prefix("---").and_then(|rest| rest.split_once('\n')) {
        Some((first, rest)) => candidates.push(format!("---{first}\n{new}{rest}")),
        None => candidates.push(format!("---{ending}{new}---{ending}{text}")),
    }
    candidates.into_iter().find(|text| Brief::read(text.as_bytes()).is_ok_and(|brief| brief == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_priority_changes() {
        let high = |text: &str| with_priority(text, Priority(1));
        for (text, wanted) in [
            ("# Do it\n", "---\npriority: high\n---\n# Do it\n"),
            ("---\naction: pay\n---\n# Do it\n", "---\npriority: high\naction: pay\n---\n# Do it\n"),
            ("---\naction: pay\npriority: low\n---\nx", "---\naction: pay\npriority: high\n---\nx"),
            ("---\nPrio: p4\n---\nx", "---\npriority: high\n---\nx"),
            (
                "# Do it\n**Priority**: low\nthe priority: none",
                "# Do it\n**Priority**: high\nthe priority: none",
            ),
            ("---\r\na: b\r\n---\r\nx", "---\r\npriority: high\r\na: b\r\n---\r\nx"),
            (
                "x\n<!-- tollgate c-1 -->\n**Priority**: low\n",
                "---\npriority: high\n---\nx\n<!-- tollgate c-1 -->\n**Priority**: low\n",
            ),
        ] {
            assert_eq!(high(text).as_deref(), Some(wanted), "{text:?}");
        }
        for unclear in
            ["---\npriority: low\n---\n**Priority**: low\n", "---\npriority: banana\n---\n", "\n---\nx"]
        {
            assert_eq!(high(unclear), None, "{unclear:?}");
        }
    }
}
