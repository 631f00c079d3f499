//! Untrusted text, with every character visible.
//!
//! File names, ledger lines and the bytes of files come from others. Control characters in them could rewrite what is on a
//! terminal. Direction marks and characters without width could make one name look like another.

use jiff::Timestamp;

/// Every character that nobody sees, in order: what Unicode 16 calls `Default_Ignorable_Code_Point` (characters without
/// width, fillers, variation selectors, direction marks, tags, and what is reserved for more of them), and a few more,
/// which have a comment. `tests::the_table_has_every_default_ignorable_character` compares it with Unicode's own data.
const INVISIBLE: &[(u32, u32)] = &[
    (0xad, 0xad),
    (0x34f, 0x34f),
    (0x61c, 0x61c),
    (0x115f, 0x1160),
    (0x17b4, 0x17b5),
    (0x180b, 0x180f),
    (0x200b, 0x200f),
    (0x2028, 0x202e), // 2028 and 2029: separators of lines and paragraphs
    (0x2060, 0x206f),
    (0x2800, 0x2800), // a Braille pattern without dots
    (0x3164, 0x3164),
    (0xfe00, 0xfe0f),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0xfff0, 0xfffb), // fff9 to fffb: marks of annotations
    (0x1_bca0, 0x1_bca3),
    (0x1_d159, 0x1_d159), // a musical note without a head
    (0x1_d173, 0x1_d17a),
    (0xe_0000, 0xe_0fff),
];

/// Whether a terminal or a browser acts on the character, or shows nothing for it. Tabs and line ends count, too.
pub fn is_invisible(c: char) -> bool {
    let code = u32::from(c);
    let after = INVISIBLE.partition_point(|(first, _)| *first <= code);
    c.is_control() || after > 0 && code <= INVISIBLE[after - 1].1
}

/// The number of characters in a text that nobody sees, besides tabs and line ends.
pub fn count_invisible(text: &str) -> usize {
    let line_ends = text.matches("\r\n").count();
    text.chars().filter(|c| is_invisible(*c) && !matches!(c, '\t' | '\n')).count() - line_ends
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

/// How long ago something was, for people and models.
pub fn ago(now: Timestamp, then: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7_200 => format!("{} min ago", seconds / 60),
        7_200..172_800 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} days ago", seconds / 86_400),
    }
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
    fn the_table_has_every_default_ignorable_character() {
        use regex_syntax::hir::{Class, HirKind};
        let class = regex_syntax::parse(r"[\p{Default_Ignorable_Code_Point}\p{Bidi_Control}\p{Cc}]").unwrap();
        let HirKind::Class(Class::Unicode(class)) = class.kind() else { panic!("{class:?}") };
        let mut known = 0;
        for range in class.ranges() {
            for c in range.start()..=range.end() {
                known += 1;
                assert!(is_invisible(c), "U+{:04X}", u32::from(c));
            }
        }
        let ours = (0..0x11_0000).filter_map(char::from_u32).filter(|c| is_invisible(*c)).count();
        // And 2028, 2029, 2800, fff9 to fffb, 1d159.
        assert_eq!((known, ours), (known, known + 7));
        assert!(INVISIBLE.is_sorted() && INVISIBLE.windows(2).all(|two| two[0].1 < two[1].0));
    }

    #[test]
    fn hidden_text_of_every_kind_is_found() {
        // What an attacker can hide text with, or between the letters of a name.
        let known = [
            '\u{ad}',
            '\u{34f}',
            '\u{61c}',
            '\u{115f}',
            '\u{1160}',
            '\u{17b4}',
            '\u{180e}',
            '\u{200b}',
            '\u{200c}',
            '\u{200d}',
            '\u{200f}',
            '\u{202e}',
            '\u{2060}',
            '\u{2062}',
            '\u{2063}',
            '\u{2064}',
            '\u{2066}',
            '\u{206a}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{ffa0}',
            '\u{e0041}',
            '\u{e0100}',
        ];
        assert_eq!(known.len(), 24);
        for c in known.into_iter().chain(['\u{1}', '\u{7f}', '\u{9b}', '\u{e01ef}', '\u{2800}', '\u{1d173}'])
        {
            assert!(is_invisible(c), "U+{:04X}", u32::from(c));
            assert!(!plain(&format!("a{c}b")).contains(c));
        }
        assert_eq!(count_invisible("a\tb\r\nc\n"), 0);
        assert_eq!(count_invisible("a\rb\u{ad}\u{e0100}\r\n"), 3);
    }

    #[test]
    fn visible_text_stays_unchanged() {
        assert_eq!(plain("größe 尺寸 🙂 `x`"), "größe 尺寸 🙂 `x`");
        assert_eq!(plain("a\nb\x1b[2J\u{e0041}"), "a\\nb\\u{1b}[2J\\u{e0041}");
        assert_eq!(plain_json("\"🙂\u{e0041}\""), "\"🙂\\udb40\\udc41\"");
    }
}
