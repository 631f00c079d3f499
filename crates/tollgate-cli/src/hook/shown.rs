//! How much of a file an agent was shown, and other comparisons of texts.

use std::path::Path;

use tollgate::turn::{Extent, TEXT_PER_FILE};

use crate::host::event::Shown;

/// How much of a file the agent was shown.
pub(super) fn shown(shown: &Shown, path: &Path, planned: Extent) -> Option<Extent> {
    match shown {
        Shown::AsAsked => Some(planned),
        Shown::InPart => Some(Extent::Part),
        Shown::Nothing => None,
        Shown::Text(output) => {
            let Ok(found) = std::fs::metadata(path) else { return Some(planned) };
            if found.len() > TEXT_PER_FILE as u64 {
                let whole = planned == Extent::Whole && output.len() as u64 >= found.len();
                return if whole {
                    Some(Extent::Whole)
                } else {
                    (!output.is_empty()).then_some(Extent::Part)
                };
            }
            match std::fs::read(path).map(String::from_utf8) {
                Ok(Ok(content)) => shown_in(output, &content),
                // The file is not text, so it cannot be compared with the output.
                _ => (!output.is_empty()).then_some(Extent::Part),
            }
        }
    }
}

/// How much of a file an output shows. It shows the whole file if all lines appear in order, perhaps with something before or
/// after each (a line number, a file name). Otherwise it shows a part, if there is any output.
pub(super) fn shown_in(output: &str, content: &str) -> Option<Extent> {
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

/// Whether two texts are the same, apart from line ends and byte order marks, which programs change.
pub(super) fn is_same_text(known: &[u8], replaced: &str) -> bool {
    let Ok(known) = std::str::from_utf8(known) else { return true };
    let plain = |text: &str| text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    plain(known).trim_end_matches('\n') == plain(replaced).trim_end_matches('\n')
}

/// Whether a text may be what a formatter made of another one: formatters change spaces, line ends and punctuation, and leave letters and
/// digits where they are.
pub(super) fn is_formatted(text: &str, formatted: &str) -> bool {
    let letters = |text: &'_ str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
    letters(text) == letters(formatted)
}

/// Whether a text contains this word, and not only as a part of a longer name.
pub(super) fn has_word(text: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    !word.is_empty()
        && text.match_indices(word).any(|(at, _)| {
            let (before, after) = (text[..at].chars().next_back(), text[at + word.len()..].chars().next());
            // A full stop may also end a sentence.
            (!before.is_some_and(is_name) || is_default(&text[..at]))
                && !after.is_some_and(|c| is_name(c) && c != '.')
        })
}

/// Whether a shell takes what follows this text for the default of a variable: `${x:-`, `${x-`.
fn is_default(text: &str) -> bool {
    let Some(text) = text.strip_suffix('-') else { return false };
    let name = text.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_');
    text.ends_with(':') || name.ends_with("${")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formatter_leaves_letters_and_digits_where_they_are() {
        for formatted in ["f(a, 'b');\n", "f(\n    a,\n    \"b\",\n)\n", "f(a,\"b\")\r\n"] {
            assert!(is_formatted("f(a,\"b\")\n", formatted), "{formatted}");
        }
        for other in ["f(a,\"c\")\n", "f(a,\"b\")\ng()\n", "f(a)\n", ""] {
            assert!(!is_formatted("f(a,\"b\")\n", other), "{other}");
        }
    }

    #[test]
    fn a_part_of_a_name_is_not_a_word() {
        for (text, word) in [
            ("python3 fix.py a.txt", "a.txt"),
            ("open('src/a.rs')", "src/a.rs"),
            ("see a.txt.", "a.txt"),
            ("echo > ${1:-a.txt}", "a.txt"),
            ("echo > ${f_1-a.txt}", "a.txt"),
        ] {
            assert!(has_word(text, word), "{text}");
        }
        for (text, word) in
            [("cat", "a"), ("aa.txt", "a.txt"), ("a.txt2", "a.txt"), ("b-a.txt", "a.txt"), ("", "a")]
        {
            assert!(!has_word(text, word), "{text}");
        }
    }

    #[test]
    fn an_output_shows_a_file_whole_or_in_part() {
        assert_eq!(shown_in("one\ntwo\n", "one\ntwo\n"), Some(Extent::Whole));
        assert_eq!(shown_in("     1\tone\n     2\t\n     3\ttwo\n", "one\n\ntwo\n"), Some(Extent::Whole));
        assert_eq!(shown_in("head\none\ntwo\ntail", "one\ntwo"), Some(Extent::Whole));
        assert_eq!(shown_in("one\n", "one\ntwo\n"), Some(Extent::Part));
        assert_eq!(shown_in("two\none\n", "one\ntwo\n"), Some(Extent::Part));
        assert_eq!(shown_in("", "one\n"), None);
        assert_eq!(shown_in("", ""), Some(Extent::Whole));
    }
}
