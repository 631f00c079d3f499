//! The arguments of a program: options, their values, and operands, as `getopt_long` reads them.

use super::word::Word;

/// The arguments of a program.
#[derive(Debug, Default)]
pub(super) struct ProgramArgs {
    pub(super) operands: Vec<Word>,
    /// The letter or the name of each option, without dashes, and its value.
    options: Vec<(String, Option<Word>)>,
}

/// The options of a program that take a value. All others take none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Valued {
    /// Letters as for `getopt`: `a:` takes the rest of its word, or the next word; `a::` only the rest of its word, which may
    /// be empty; `a#` only the digits that follow.
    pub(super) letters: &'static str,
    /// Names whose value may be the next word.
    pub(super) names: &'static [&'static str],
}

pub(super) const NONE: Valued = Valued { letters: "", names: &[] };

/// How an option takes its value.
#[derive(PartialEq)]
enum OptionValue {
    None,
    HereOrNext,
    Here,
    Digits,
}

impl Valued {
    fn of_letter(&self, letter: char) -> OptionValue {
        let Some(at) = self.letters.find(letter).filter(|_| letter.is_ascii_alphanumeric()) else {
            return OptionValue::None;
        };
        match &self.letters[at + 1..] {
            rest if rest.starts_with("::") => OptionValue::Here,
            rest if rest.starts_with('#') => OptionValue::Digits,
            _ => OptionValue::HereOrNext,
        }
    }
}

impl ProgramArgs {
    /// The arguments of a program that accepts options after operands.
    pub(super) fn of(words: &[Word], valued: Valued) -> Self {
        let mut given = Self::default();
        let mut rest = words;
        loop {
            let (operands, ended) = given.options(rest, valued);
            match operands {
                [] => return given,
                all if ended => {
                    given.operands.extend_from_slice(all);
                    return given;
                }
                [operand, more @ ..] => {
                    given.operands.push(operand.clone());
                    rest = more;
                }
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
                Some(option) if option.starts_with("--") => self.long(&option[2..], after, valued.names),
                Some(option) if option.len() > 1 && option.starts_with('-') => {
                    self.short(&option[1..], after, valued)
                }
                _ => break,
            };
        }
        (rest, false)
    }

    fn long<'w>(&mut self, option: &str, after: &'w [Word], names: &[&str]) -> &'w [Word] {
        if let Some((name, value)) = option.split_once('=') {
            let full = names.iter().find(|full| full.starts_with(name)).unwrap_or(&name);
            self.options.push(((*full).to_owned(), Some(Word::text(value))));
            return after;
        }
        // The beginning of a name is enough.
        match (names.iter().find(|full| full.starts_with(option)), after) {
            (Some(full), [value, after @ ..]) => {
                self.options.push(((*full).to_owned(), Some(value.clone())));
                after
            }
            _ => {
                self.options.push((option.to_owned(), None));
                after
            }
        }
    }

    fn short<'w>(&mut self, letters: &str, after: &'w [Word], valued: Valued) -> &'w [Word] {
        let mut rest = letters.chars();
        while let Some(letter) = rest.next() {
            let name = letter.to_string();
            match valued.of_letter(letter) {
                OptionValue::None => self.options.push((name, None)),
                OptionValue::Digits => {
                    self.options.push((name, None));
                    rest = rest.as_str().trim_start_matches(|c: char| c.is_ascii_digit()).chars();
                }
                OptionValue::HereOrNext if rest.as_str().is_empty() => {
                    self.options.push((name, after.first().cloned()));
                    return after.get(1..).unwrap_or_default();
                }
                OptionValue::HereOrNext | OptionValue::Here => {
                    self.options.push((name, Some(Word::text(rest.as_str()))));
                    return after;
                }
            }
        }
        after
    }

    /// Whether one of these options is given, by its letter or by at least three letters of its name.
    pub(super) fn has(&self, options: &[&str]) -> bool {
        self.options.iter().any(|(given, _)| is_one(given, options))
    }

    /// The value of the last of these options.
    pub(super) fn value(&self, options: &[&str]) -> Option<&Word> {
        self.options
            .iter()
            .rev()
            .find(|(given, _)| is_one(given, options))
            .and_then(|(_, value)| value.as_ref())
    }
}

fn is_one(given: &str, options: &[&str]) -> bool {
    options.iter().any(|option| given == *option || given.len() > 2 && option.starts_with(given))
}
