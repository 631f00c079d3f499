//! Text in an argument.

use crate::words;

/// Text that a person or an agent writes. It may begin with `-`, like a list. A single word that begins with `--` is an option
/// whose place is elsewhere, or is misspelt.
pub(super) fn prose(text: &str) -> Result<String, String> {
    let is_option = text.starts_with("--")
        && text[2..].starts_with(|c: char| c.is_ascii_alphabetic())
        && !text.contains(char::is_whitespace);
    if is_option { Err(words::not_prose(text)) } else { Ok(text.to_owned()) }
}
