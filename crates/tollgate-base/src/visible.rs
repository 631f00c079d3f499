//! Untrusted text, with every character visible.
//!
//! File names, ledger lines and the bytes of files come from others. Control characters in them could rewrite what is on a
//! terminal. Direction marks and characters without width could make one name look like another.

/// Whether a terminal or a browser acts on the character instead of showing it. Tabs and line ends count, too.
pub fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Direction marks, embeddings, overrides and isolates.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Separators, characters without width, and tags.
            | '\u{200b}' | '\u{2028}' | '\u{2029}' | '\u{2060}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// The text on one line, with every character visible.
pub fn plain(text: &str) -> String {
    escaped(text, |c| c.escape_default().collect())
}

/// JSON text with the same meaning and every character visible. Invisible characters occur only inside its strings.
pub fn plain_json(json: &str) -> String {
    escaped(json, |c| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect())
}

fn escaped(text: &str, escape: impl Fn(char) -> String) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_invisible(c) { escaped.push_str(&escape(c)) } else { escaped.push(c) }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_is_visible() {
        for c in (0..0x11_0000).filter_map(char::from_u32).filter(|c| is_invisible(*c)) {
            let text = format!("a{c}b");
            assert!(!plain(&text).contains(c), "{c:?}");
            let json = plain_json(&serde_json::to_string(&text).unwrap());
            assert!(!json.contains(c), "{c:?}");
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }

    #[test]
    fn visible_text_stays_unchanged() {
        assert_eq!(plain("größe 尺寸 🙂 `x`"), "größe 尺寸 🙂 `x`");
        assert_eq!(plain("a\nb\x1b[2J\u{e0041}"), "a\\nb\\u{1b}[2J\\u{e0041}");
        assert_eq!(plain_json("\"🙂\u{e0041}\""), "\"🙂\\udb40\\udc41\"");
    }
}
