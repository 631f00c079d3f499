//! Where a substitution ends in a text that the grammar does not divide.

/// What ends a part of a text.
#[derive(Clone, Copy, PartialEq)]
enum Until {
    Bracket,
    Brace,
    Quote,
    /// The `'` of `$'...'`, in which backslashes count.
    AnsiQuote,
    DoubleQuote,
    Backtick,
}

/// The length of the substitution at the beginning of a text: `$(...)`, `<(...)`, `>(...)` or one in backticks. `None` if it
/// does not end. It is only nearly exact: the `)` of a pattern in `case` may end it too early.
pub(super) fn length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_backtick = bytes.first() == Some(&b'`');
    let mut open = vec![if is_backtick { Until::Backtick } else { Until::Bracket }];
    let mut at = if is_backtick { 1 } else { 2 };
    while let (Some(byte), Some(until)) = (bytes.get(at), open.last().copied()) {
        let next = bytes.get(at + 1);
        at += 1;
        let plain = matches!(until, Until::Bracket | Until::Brace);
        match (byte, until) {
            (b'\\', _) if until != Until::Quote => at += 1,
            (b')', Until::Bracket)
            | (b'}', Until::Brace)
            | (b'\'', Until::Quote | Until::AnsiQuote)
            | (b'"', Until::DoubleQuote)
            | (b'`', Until::Backtick) => {
                open.pop();
                if open.is_empty() {
                    return Some(at);
                }
            }
            (_, Until::Quote | Until::AnsiQuote | Until::Backtick) => {}
            (b'`', _) => open.push(Until::Backtick),
            (b'$', _) if matches!(next, Some(b'(' | b'{')) => {
                open.push(if next == Some(&b'(') { Until::Bracket } else { Until::Brace });
                at += 1;
            }
            (b'$', _) if plain && next == Some(&b'\'') => {
                open.push(Until::AnsiQuote);
                at += 1;
            }
            (b'(', Until::Bracket) => open.push(Until::Bracket),
            (b'\'', _) if plain => open.push(Until::Quote),
            (b'"', _) if until != Until::DoubleQuote => open.push(Until::DoubleQuote),
            // A comment.
            (b'#', Until::Bracket) if bytes[at - 2].is_ascii_whitespace() || bytes[at - 2] == b';' => {
                at += bytes[at..].iter().position(|byte| *byte == b'\n')?;
            }
            _ => {}
        }
    }
    None
}
