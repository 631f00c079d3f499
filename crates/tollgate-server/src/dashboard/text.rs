//! Untrusted text on a page: every character is visible, and none has an effect. Also times as ages, names as addresses.
//!
//! The templates escape markup. What remains are characters that change how a browser shows the text and that nobody sees:
//! control characters, and direction marks that make one name look like another. Pages show their code points instead.

use jiff::Timestamp;
use maud::{Markup, PreEscaped, Render, html};
use tollgate::visible::is_invisible;

/// For an attribute, which cannot contain elements.
pub(super) use tollgate::visible::plain;

/// Whether a page shows the character's code point instead. Tabs and line ends are ordinary text.
fn acts(c: char) -> bool {
    is_invisible(c) && !matches!(c, '\t' | '\n')
}

/// Untrusted text, for a template.
pub(super) struct SafeText<'a>(pub(super) &'a str);

impl Render for SafeText<'_> {
    fn render_to(&self, buffer: &mut String) {
        let mut rest = self.0;
        while let Some(at) = rest.find(acts) {
            rest[..at].render_to(buffer);
            let mut chars = rest[at..].chars();
            if let Some(c) = chars.next() {
                // CR LF is a line end; CR alone is a control character.
                if !(c == '\r' && chars.as_str().starts_with('\n')) {
                    let code = format!("U+{:04X}", u32::from(c));
                    html! { span.mark title="invisible character" { (code) } }.render_to(buffer);
                }
            }
            rest = chars.as_str();
        }
        rest.render_to(buffer);
    }
}

/// A time, to the second.
pub(super) fn exact(time: Timestamp) -> String {
    jiff::fmt::temporal::DateTimePrinter::new().precision(Some(0)).timestamp_to_string(&time)
}

/// A time as an age, with the exact time on hover. The page's script updates the age.
pub(super) fn age(then: Timestamp, now: Timestamp) -> Markup {
    let exact = exact(then);
    html! { time datetime=(exact) title=(exact) { (age_words(now.duration_since(then).as_secs())) } }
}

/// A time as an age inside a sentence, such as `5 s ago`.
pub(super) fn ago(then: Timestamp, now: Timestamp) -> Markup {
    let exact = exact(then);
    let words = match age_words(now.duration_since(then).as_secs()) {
        words if words == "now" => "just now".to_owned(),
        words => format!("{words} ago"),
    };
    html! { time datetime=(exact) title=(exact) data-ago { (words) } }
}

/// An age in few words. `script.js` has the same rule.
pub(super) fn age_words(seconds: i64) -> String {
    match seconds {
        ..5 => "now".to_owned(),
        5..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Encodes text for a path or a query: everything except letters, digits and `-._~` becomes `%XX`.
pub(super) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// A number and its noun.
pub(super) fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// The end of what a failed command printed.
pub(super) fn printed(output: &str) -> Markup {
    html! { pre.output tabindex="0" role="region" aria-label="Output of the command" { (SafeText(output)) } }
}

/// HTML that this server made from escaped parts.
pub(super) fn made(html: String) -> Markup {
    PreEscaped(html)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_has_an_effect() {
        for c in (0..0x11_0000).filter_map(char::from_u32).filter(|c| acts(*c)) {
            let text = format!("a{c}b");
            assert!(!SafeText(&text).render().into_string().contains(c), "{c:?}");
            assert!(!plain(&text).contains(c), "{c:?}");
        }
        let shown = SafeText("<script>\u{202e}gpj\x1b[2J</script>").render().into_string();
        assert_eq!(
            shown,
            "&lt;script&gt;<span class=\"mark\" title=\"invisible character\">U+202E</span>gpj\
             <span class=\"mark\" title=\"invisible character\">U+001B</span>[2J&lt;/script&gt;"
        );
    }

    #[test]
    fn plain_text_stays_unchanged() {
        let text = "größe 尺寸 🙂 `x`\n\tמשהו\r\nend";
        assert_eq!(SafeText(text).render().into_string(), text.replace("\r\n", "\n"));
        assert_eq!(SafeText("a\rb").render().into_string().matches("U+000D").count(), 1);
    }

    #[test]
    fn ages_are_short() {
        for (seconds, words) in [
            (-7, "now"),
            (4, "now"),
            (5, "5 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3599, "59 min"),
            (3600, "1 h"),
            (86_400, "1 d"),
            (40 * 86_400, "40 d"),
        ] {
            assert_eq!(age_words(seconds), words);
        }
    }

    #[test]
    fn addresses_hold_any_name() {
        assert_eq!(encode("a b/ö?.md"), "a%20b%2F%C3%B6%3F.md");
    }
}
