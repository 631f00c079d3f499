//! The arguments of a program: options, their values, and operands, as `getopt_long` reads them.

use super::word::Word;

/// The arguments of a program.
#[derive(Debug, Default)]
pub(super) struct ProgramArgs {
    pub(super) operands: Vec<Word>,
    /// The letter or the name of each option, without dashes, and its value.
    options: Vec<(String, Option<Word>)>,
}

/// The options of a program whose value may be the next word. All others have theirs in the same word, or none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Valued {
    pub(super) letters: &'static str,
    pub(super) names: &'static [&'static str],
}

impl ProgramArgs {
    /// The arguments of a program that accepts options after operands.
    pub(super) fn of(words: &[Word], valued: Valued) -> Self {
        let (mut given, mut rest) = (Self::default(), words);
        loop {
            let (operands, has_ended) = given.options(rest, valued);
            let count = if has_ended { operands.len() } else { operands.len().min(1) };
            given.operands.extend_from_slice(&operands[..count]);
            rest = &operands[count..];
            if rest.is_empty() {
                return given;
            }
        }
    }

    /// The options before the first operand, and the words from there on.
    pub(super) fn before_operands(words: &[Word], valued: Valued) -> (Self, &[Word]) {
        let mut given = Self::default();
        let (rest, _) = given.options(words, valued);
        (given, rest)
    }

    /// Adds the options at the beginning. Returns the rest, and whether `--` ended the options.
    fn options<'w>(&mut self, words: &'w [Word], valued: Valued) -> (&'w [Word], bool) {
        let mut rest = words;
        while let [word, after @ ..] = rest {
            rest = match word.as_text() {
                Some("--") => return (after, true),
                Some(text) if text.starts_with("--") => self.long(&text[2..], after, valued.names),
                Some(text) if text.len() > 1 && text.starts_with('-') => {
                    self.short(&text[1..], after, valued.letters)
                }
                _ => break,
            };
        }
        (rest, false)
    }

    fn long<'w>(&mut self, option: &str, after: &'w [Word], names: &[&str]) -> &'w [Word] {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(Word::text(value))),
            None => (option, None),
        };
        // The beginning of a name is enough.
        let full = names.iter().find(|full| full.starts_with(name));
        let takes_next = full.is_some() && value.is_none();
        let value = value.or_else(|| after.first().filter(|_| takes_next).cloned());
        self.options.push(((*full.unwrap_or(&name)).to_owned(), value));
        after.get(usize::from(takes_next)..).unwrap_or_default()
    }

    fn short<'w>(&mut self, text: &str, after: &'w [Word], valued: &str) -> &'w [Word] {
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            let (rest, is_valued) = (letters.as_str(), valued.contains(letter));
            // `-n5`, `-i.bak`
            let has_value = !rest.is_empty() && (is_valued || !rest.starts_with(char::is_alphanumeric));
            let value =
                if has_value { Some(Word::text(rest)) } else { after.first().filter(|_| is_valued).cloned() };
            self.options.push((letter.to_string(), value));
            if has_value || is_valued {
                return after.get(usize::from(!has_value)..).unwrap_or_default();
            }
        }
        after
    }

    /// Whether one of these options is given, by its letter or by at least three letters of its name.
    pub(super) fn has(&self, options: &[&str]) -> bool {
        self.find(options).is_some()
    }

    /// The value of the last of these options.
    pub(super) fn value(&self, options: &[&str]) -> Option<&Word> {
        self.find(options)?.as_ref()
    }

    fn find(&self, options: &[&str]) -> Option<&Option<Word>> {
        let is_one = |given: &str| {
            options.iter().any(|option| given == *option || given.len() > 2 && option.starts_with(given))
        };
        self.options.iter().rev().find(|(given, _)| is_one(given)).map(|(_, value)| value)
    }
}
