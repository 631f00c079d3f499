//! Text that is safe to show.
//!
//! File names, ledger lines and the bytes of files come from others. On a terminal, control characters in them could
//! rewrite what is on the screen, and marks of writing direction could make a name look like another.

/// Whether a terminal would do something else with it than show it.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Marks, embeddings, overrides and isolates of writing direction.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Separators of lines and paragraphs, and the byte order mark, which nobody sees.
            | '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// The text on one line, with everything visible.
pub(crate) fn plain(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if acts(c) { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    safe
}

/// JSON text that means the same and is safe to show. The marks can only be inside its strings.
pub(crate) fn plain_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        // All of them are in the first plane, so four digits are enough.
        if acts(c) { safe.push_str(&format!("\\u{:04x}", u32::from(c))) } else { safe.push(c) }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_acts_gets_through() {
        for c in (0..0x11_0000).filter_map(char::from_u32).filter(|c| acts(*c)) {
            let text = format!("a{c}b");
            assert!(!plain(&text).contains(c));
            let json = plain_json(&serde_json::to_string(&text).unwrap());
            assert!(!json.contains(c));
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }

    #[test]
    fn plain_text_stays() {
        assert_eq!(plain("größe 尺寸 🙂 `x`"), "größe 尺寸 🙂 `x`");
        assert_eq!(plain("a\nb\x1b[2J"), "a\\nb\\u{1b}[2J");
    }
}
