//! Patterns for one name: `*`, `?`, sets such as `[a-z]` and `[!a-z]`, and a backslash before a character that means itself.
//!
//! A pattern may come from anybody, so the time to match it is limited: at most the product of the lengths of pattern and name.

/// A pattern for one name. A set that is not closed means its characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern(Vec<Letter>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Letter {
    Is(char),
    /// `?`
    One,
    /// `*`
    Many,
    /// `[a-z]`, or with `inverted` `[!a-z]`.
    Among {
        ranges: Vec<(char, char)>,
        inverted: bool,
    },
}

impl NamePattern {
    /// Reads a pattern.
    pub fn new(pattern: &str) -> Self {
        let mut letters = Vec::new();
        let mut rest = pattern.chars();
        while let Some(char) = rest.next() {
            letters.push(match char {
                '?' => Letter::One,
                '*' => Letter::Many,
                '\\' => Letter::Is(rest.next().unwrap_or('\\')),
                '[' => match among(rest.as_str()) {
                    Some((letter, after)) => {
                        rest = after.chars();
                        letter
                    }
                    None => Letter::Is('['),
                },
                char => Letter::Is(char),
            });
        }
        Self(letters)
    }

    /// Whether the pattern matches the whole name.
    pub fn matches(&self, name: &str) -> bool {
        self.matches_within(name, || true)
    }

    /// Whether the pattern matches the whole name. Asks before each comparison whether there is time for it; if not, the answer
    /// does not count.
    pub fn matches_within(&self, name: &str, mut has_time: impl FnMut() -> bool) -> bool {
        let (letters, name) = (&self.0, name.chars().collect::<Vec<char>>());
        if name.is_empty() {
            return letters.is_empty();
        }
        let (mut letter, mut at) = (0, 0);
        // Only the last star is tried again: an earlier one cannot match anything that the last one cannot.
        let mut back: Option<(usize, usize)> = None;
        while at < name.len() && has_time() {
            let matched = match letters.get(letter) {
                Some(Letter::Many) => {
                    back = Some((letter, at));
                    letter += 1;
                    continue;
                }
                Some(Letter::One) => true,
                Some(Letter::Is(char)) => name[at] == *char,
                Some(Letter::Among { ranges, inverted }) => {
                    ranges.iter().any(|&(from, to)| (from..=to).contains(&name[at])) != *inverted
                }
                None => false,
            };
            if matched {
                letter += 1;
                at += 1;
            } else if let Some((many, taken)) = &mut back {
                *taken += 1;
                (letter, at) = (*many + 1, *taken);
            } else {
                return false;
            }
        }
        letters[letter..].iter().all(|letter| *letter == Letter::Many)
    }
}

/// The set after a `[`, and the rest of the text. `None` if the set is not closed.
fn among(text: &str) -> Option<(Letter, &str)> {
    let inner = text.strip_prefix(['!', '^']);
    let inverted = inner.is_some();
    let inner = inner.unwrap_or(text);
    // A `]` right at the start is an ordinary character.
    let skip = usize::from(inner.starts_with(']'));
    let end = skip + inner[skip..].find(']')?;
    let chars: Vec<char> = inner[..end].chars().collect();
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        match chars.get(at + 1..at + 3) {
            Some(['-', to]) => {
                ranges.push((chars[at], *to));
                at += 3;
            }
            _ => {
                ranges.push((chars[at], chars[at]));
                at += 1;
            }
        }
    }
    Some((Letter::Among { ranges, inverted }, &inner[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_in_a_shell() {
        for (pattern, name) in [
            ("*.rs", "a.rs"),
            ("a?c", "abc"),
            ("a?c", "aéc"),
            ("[a-c]x", "bx"),
            ("[!a]x", "bx"),
            ("[^a]x", "bx"),
            ("[]a]", "]"),
            ("[a-]", "-"),
            ("*a*b", "xaab"),
            ("\\*", "*"),
            ("[a", "[a"),
            ("", ""),
        ] {
            assert!(NamePattern::new(pattern).matches(name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("*.rs", "a.rsx"),
            ("a?c", "ac"),
            ("[a-c]x", "dx"),
            ("[!a]x", "ax"),
            ("[z-a]", "b"),
            ("\\*", "a"),
            ("[", "a"),
            ("a", ""),
            ("", "a"),
        ] {
            assert!(!NamePattern::new(pattern).matches(name), "{pattern} {name}");
        }
    }

    #[test]
    fn a_hard_pattern_takes_the_product_of_the_lengths() {
        let mut steps = 0;
        let count = || {
            steps += 1;
            true
        };
        assert!(!NamePattern::new(&"*a".repeat(200)).matches_within(&"a".repeat(150), count));
        assert!(steps <= 400 * 150, "{steps}");
    }
}
