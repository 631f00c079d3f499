//! The value of a word, if its text alone determines it.

use std::path::PathBuf;

use tree_sitter::Node;

use super::environment::{Environment, OWN_NAME};
use super::glob;
use super::tree::{children, name_of, slice};
use super::word::{Quotes, Word};

/// A value under construction, as text and as a pattern.
#[derive(Default)]
struct WordValue {
    text: String,
    pattern: String,
    is_pattern: bool,
}

impl WordValue {
    fn into_word(self) -> Word {
        Word::Text { text: self.text, pattern: self.is_pattern.then_some(self.pattern) }
    }

    fn quoted(&mut self, text: &str) {
        self.text.push_str(text);
        for c in text.chars() {
            if "*?[]\\".contains(c) {
                self.pattern.push('\\');
            }
            self.pattern.push(c);
        }
    }
}

impl Environment {
    pub(super) fn word(&self, node: Node<'_>, text: &str) -> Word {
        let raw = slice(node, text);
        // `find -exec cp {} {}.bak`: empty braces expand to nothing else.
        if raw.contains("{}") && !raw.contains(['$', '`', '"', '\'', '\\', '*', '?', '[', ',']) {
            return Word::text(raw);
        }
        let mut value = WordValue::default();
        match self.add(node, text, &mut value, Quotes::Outside, 0) {
            Some(()) => value.into_word(),
            None => Word::Unknown,
        }
    }

    /// The words that a word of a command becomes: usually one.
    pub(super) fn words(&self, node: Node<'_>, text: &str) -> Vec<Word> {
        let raw = slice(node, text);
        if ["$@", "$*", "${@}", "${*}", "\"$@\"", "\"${@}\""].contains(&raw) {
            return self.positional.clone().unwrap_or_else(|| vec![Word::Unknown]);
        }
        if let Some(word) = self.agent_name(node, text) {
            return vec![word];
        }
        if let Some(texts) = braces(raw) {
            return texts.iter().map(|text| self.unquoted(text)).collect();
        }
        match node.kind() {
            // Without quotes, a value is split into words, and these may be patterns.
            "simple_expansion" | "expansion" if !self.variables.contains_key("IFS") => {
                match self.expansion(raw) {
                    Some(value) => value.split_whitespace().map(|text| self.unquoted(text)).collect(),
                    None => vec![Word::Unknown],
                }
            }
            _ => vec![self.word(node, text)],
        }
    }

    /// `--agent "$TOLLGATE_AGENT"`: the name that the shell has, unless the command changes it. The name in `--agent=$X` is
    /// empty if it is not known, so that the option is not lost.
    fn agent_name(&self, node: Node<'_>, text: &str) -> Option<Word> {
        let raw = slice(node, text);
        let (option, value) = raw.split_at(if raw.starts_with("--agent=") { "--agent=".len() } else { 0 });
        let is_value = || Some(slice(node.prev_named_sibling()?, text) == "--agent");
        // What these print is not the name of an agent.
        let prints = || Some(["echo", "printf"].contains(&name_of(node.parent()?, text).as_str()));
        if option.is_empty() && !(value.contains('$') && is_value()?) || prints()? {
            return None;
        }
        let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
        let is_own = ["$TOLLGATE_AGENT", "${TOLLGATE_AGENT}"].contains(&bare);
        if is_own && self.given_agent().is_none() {
            return Some(Word::text(&format!("{option}{OWN_NAME}")));
        }
        let is_lost = !option.is_empty() && self.word(node, text) == Word::Unknown;
        is_lost.then(|| Word::text(option))
    }

    fn unquoted(&self, text: &str) -> Word {
        let mut value = WordValue::default();
        self.bare(text, &mut value).map_or(Word::Unknown, |()| value.into_word())
    }

    /// The files that a word may name.
    pub(super) fn paths(&self, word: Word) -> Vec<PathBuf> {
        self.expand(word).iter().flat_map(|text| self.possible_paths(text)).collect()
    }

    /// The values of a word: several if it is a pattern.
    pub(super) fn expand(&self, word: Word) -> Vec<String> {
        self.globbed(word).into_iter().filter_map(Word::into_text).collect()
    }

    pub(super) fn globbed(&self, word: Word) -> Vec<Word> {
        let Word::Text { text, pattern: Some(pattern) } = word else { return vec![word] };
        let found: Vec<String> = match &self.folder {
            Some(folder) => glob::expand(&pattern, folder),
            None => self.folders.iter().flat_map(|folder| glob::expand_below(&pattern, folder)).collect(),
        };
        match found.is_empty() {
            // A shell also keeps a pattern that matches nothing.
            true => vec![Word::text(&text)],
            false => found.iter().map(|text| Word::text(text)).collect(),
        }
    }

    fn add(
        &self,
        node: Node<'_>,
        text: &str,
        value: &mut WordValue,
        quotes: Quotes,
        depth: usize,
    ) -> Option<()> {
        if depth > 8 {
            return None;
        }
        let raw = slice(node, text);
        match node.kind() {
            "word" | "number" | "variable_name" | "special_variable_name" => self.bare(raw, value)?,
            "raw_string" => value.quoted(raw.strip_prefix('\'')?.strip_suffix('\'')?),
            "ansi_c_string" => value.quoted(&decoded(raw.strip_prefix("$'")?.strip_suffix('\'')?)?),
            "string" => {
                // By position, because white space between the parts belongs to the value.
                let mut at = node.start_byte() + 1;
                for part in children(node) {
                    value.quoted(&unescaped(text.get(at..part.start_byte())?));
                    match part.kind() {
                        "string_content" => value.quoted(&unescaped(slice(part, text))),
                        _ => self.add(part, text, value, Quotes::Inside, depth + 1)?,
                    }
                    at = part.end_byte();
                }
                value.quoted(&unescaped(text.get(at..node.end_byte().checked_sub(1)?)?));
            }
            "concatenation" => {
                // `{a,b}` expands to several words, and not all forms of it are supported.
                if raw.contains('{') && !raw.contains("${") {
                    return None;
                }
                for part in children(node) {
                    self.add(part, text, value, quotes, depth + 1)?;
                }
            }
            "command_substitution" => value.quoted(self.folder_from(raw)?.to_str()?),
            "simple_expansion" | "expansion" => {
                let found = self.expansion(raw)?;
                // Without quotes it may become several words.
                let is_one = !self.variables.contains_key("IFS")
                    && !found.contains(|c: char| c.is_whitespace() || "*?[".contains(c));
                value.quoted(&Some(found).filter(|_| is_one || quotes == Quotes::Inside)?);
            }
            _ => return None,
        }
        Some(())
    }

    /// The value of `$x` or `${x}`, or of `${x:-default}` if the command does not set the variable.
    fn expansion(&self, raw: &str) -> Option<String> {
        let inner = match raw.strip_prefix("${") {
            Some(inner) => inner.strip_suffix('}')?,
            None => raw.strip_prefix('$')?,
        };
        let end = inner.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(inner.len());
        let (name, rest) = inner.split_at(end);
        let value = self.value(name);
        if rest.is_empty() {
            return value.map(str::to_owned);
        }
        let is_argument = name.parse::<usize>().is_ok();
        if name.is_empty() || self.unknown.contains(name) || value.is_none() && is_argument {
            return None;
        }
        let default = [":-", ":=", "-", "="].iter().find_map(|operator| rest.strip_prefix(operator))?;
        let is_plain = !default.contains(['~', '$', '`', '"', '\'', '\\', '*', '?', '[']);
        let value = value.filter(|value| !value.is_empty() || !rest.starts_with(':'));
        value.or(Some(default).filter(|_| is_plain)).map(str::to_owned)
    }

    /// A word without quotes: backslashes, `~`, patterns.
    fn bare(&self, raw: &str, value: &mut WordValue) -> Option<()> {
        let mut rest = raw;
        if value.text.is_empty()
            && let Some(below) = raw.strip_prefix('~')
        {
            if !below.is_empty() && !below.starts_with('/') {
                // The home folder of another user.
                return None;
            }
            value.quoted(self.home.as_ref()?.to_str()?);
            rest = below;
        }
        if rest.contains('{') && rest.contains(',') {
            return None;
        }
        let mut letters = rest.chars();
        while let Some(c) = letters.next() {
            match c {
                '\\' => match letters.next() {
                    Some('\n') => {}
                    Some(c) => value.quoted(c.encode_utf8(&mut [0; 4])),
                    None => value.quoted("\\"),
                },
                '*' | '?' | '[' => {
                    value.is_pattern = true;
                    value.text.push(c);
                    value.pattern.push(c);
                }
                ']' => {
                    value.text.push(c);
                    value.pattern.push(c);
                }
                c => value.quoted(c.encode_utf8(&mut [0; 4])),
            }
        }
        Some(())
    }
}

/// Removes the backslashes that have a meaning inside double quotes.
pub(super) fn unescaped(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(c) = letters.next() {
        match (c, letters.peek()) {
            ('\\', Some('\n')) => drop(letters.next()),
            ('\\', Some(next @ ('"' | '\\' | '$' | '`'))) => {
                value.push(*next);
                letters.next();
            }
            (c, _) => value.push(c),
        }
    }
    value
}

/// The text of `$'...'`; `None` if it has an escape that is not supported.
fn decoded(text: &str) -> Option<String> {
    let mut value = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        value.extend_from_slice(&rest.as_bytes()[..at]);
        let escape = rest[at + 1..].chars().next()?;
        rest = &rest[at + 1 + escape.len_utf8()..];
        let mut number = |radix: u32, before: &str, most: usize| {
            let length = rest.chars().take(most).take_while(|c| c.is_digit(radix)).count();
            let number = u32::from_str_radix(&format!("{before}{}", &rest[..length]), radix).ok();
            rest = &rest[length..];
            number
        };
        match escape {
            'a' => value.push(7),
            'b' => value.push(8),
            'e' | 'E' => value.push(27),
            'f' => value.push(12),
            'n' => value.push(b'\n'),
            'r' => value.push(b'\r'),
            't' => value.push(b'\t'),
            'v' => value.push(11),
            '\\' | '\'' | '"' | '?' => value.push(escape as u8),
            'x' => value.push(u8::try_from(number(16, "", 2)?).ok()?),
            'u' | 'U' => {
                let letter = char::from_u32(number(16, "", if escape == 'u' { 4 } else { 8 })?)?;
                value.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            }
            '0'..='7' => {
                value.push(u8::try_from(number(8, escape.encode_utf8(&mut [0; 4]), 2)? & 0xff).ok()?);
            }
            _ => return None,
        }
    }
    value.extend_from_slice(rest.as_bytes());
    String::from_utf8(value).ok()
}

/// The words that `a{b,c}d` becomes. `None` if this is not its form, or if it has quotes or expansions as well.
fn braces(raw: &str) -> Option<Vec<String>> {
    if raw.len() > LONGEST_BRACES || !raw.contains('{') || raw.contains(['\'', '"', '$', '\\', '`']) {
        return None;
    }
    if raw.matches('{').count() > MOST_LISTS {
        return None;
    }
    let mut done = Vec::new();
    let mut open = vec![raw.to_owned()];
    while let Some(text) = open.pop() {
        match first_list(&text) {
            Some((before, list, after)) => {
                let texts = list.iter().map(|item| format!("{before}{item}{after}"));
                open.extend(texts.rev());
            }
            None => done.push(text),
        }
        if open.len() + done.len() > MOST_BRACES {
            return None;
        }
    }
    // `{1..3}` is not supported.
    (done.len() > 1 && !done.iter().any(|text| text.contains(".."))).then_some(done)
}

/// The largest number of words that one word with braces becomes. No person or model writes more.
const MOST_BRACES: usize = 100;

/// The longest word with braces that is expanded, and the largest number of `{` in it. The value of a longer one is not known.
const LONGEST_BRACES: usize = 4_096;
const MOST_LISTS: usize = 64;

/// The first `{a,b}`: what is before it, its items, and what is after it.
fn first_list(text: &str) -> Option<(&str, Vec<&str>, &str)> {
    // Each `{` that is not closed yet, and the commas directly in it.
    let mut open: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut first: Option<(usize, Vec<usize>, usize)> = None;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => open.push((at, Vec::new())),
            b',' => open.last_mut().into_iter().for_each(|(_, commas)| commas.push(at)),
            b'}' => {
                let Some((start, commas)) = open.pop().filter(|(_, commas)| !commas.is_empty()) else {
                    continue;
                };
                if first.as_ref().is_none_or(|(other, ..)| start < *other) {
                    first = Some((start, commas, at));
                }
                if open.is_empty() {
                    break;
                }
            }
            _ => {}
        }
    }
    let (start, commas, end) = first?;
    let ends = commas.iter().copied().chain([end]);
    let starts = [start].into_iter().chain(commas.iter().copied());
    let items = starts.zip(ends).map(|(from, to)| &text[from + 1..to]).collect();
    Some((&text[..start], items, &text[end + 1..]))
}
