//! The value of a word, if its text alone determines it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tree_sitter::Node;

use super::glob;
use super::tree::{children, slice};

/// The known part of a shell's environment.
#[derive(Debug, Clone)]
pub(super) struct Environment {
    /// The current folder; `None` if it is not known.
    pub(super) folder: Option<PathBuf>,
    pub(super) home: Option<PathBuf>,
    /// Variables with a known value.
    pub(super) variables: HashMap<String, String>,
}

/// A word of a command.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Word {
    /// Its value is known.
    Text {
        /// The value.
        text: String,
        /// If the word is a pattern: the value with its quoted characters escaped.
        pattern: Option<String>,
    },
    /// Its value is not in the text.
    Unknown,
}

impl Word {
    pub(super) fn text(text: &str) -> Self {
        Self::Text { text: text.to_owned(), pattern: None }
    }

    pub(super) fn into_text(self) -> Option<String> {
        match self {
            Self::Text { text, .. } => Some(text),
            Self::Unknown => None,
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text, .. } => Some(text),
            Self::Unknown => None,
        }
    }
}

/// A value under construction, as text and as a pattern.
#[derive(Default)]
struct WordValue {
    text: String,
    pattern: String,
    is_pattern: bool,
}

impl WordValue {
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
        let mut value = WordValue::default();
        match self.add(node, text, &mut value, 0) {
            Some(()) => Word::Text { text: value.text, pattern: value.is_pattern.then_some(value.pattern) },
            None => Word::Unknown,
        }
    }

    /// The files that a word names.
    pub(super) fn paths(&self, word: Word) -> Vec<PathBuf> {
        self.expand(word).iter().filter_map(|text| self.path(text)).collect()
    }

    pub(super) fn path(&self, text: &str) -> Option<PathBuf> {
        if text.is_empty() || text.contains('\0') {
            return None;
        }
        let path = Path::new(text);
        if path.is_absolute() { Some(path.to_owned()) } else { Some(self.folder.as_ref()?.join(path)) }
    }

    /// The values of a word: several if it is a pattern.
    pub(super) fn expand(&self, word: Word) -> Vec<String> {
        self.globbed(word).into_iter().filter_map(Word::into_text).collect()
    }

    pub(super) fn globbed(&self, word: Word) -> Vec<Word> {
        let Word::Text { text, pattern: Some(pattern) } = word else { return vec![word] };
        let found = self.folder.as_ref().map(|folder| glob::expand(&pattern, folder)).unwrap_or_default();
        match found.is_empty() {
            // A shell also keeps a pattern that matches nothing.
            true => vec![Word::text(&text)],
            false => found.iter().map(|text| Word::text(text)).collect(),
        }
    }

    fn add(&self, node: Node<'_>, text: &str, value: &mut WordValue, depth: usize) -> Option<()> {
        if depth > 8 {
            return None;
        }
        let raw = slice(node, text);
        match node.kind() {
            "word" | "number" | "variable_name" | "special_variable_name" => self.bare(raw, value)?,
            "raw_string" => value.quoted(raw.strip_prefix('\'')?.strip_suffix('\'')?),
            "ansi_c_string" => {
                let inner = raw.strip_prefix("$'")?.strip_suffix('\'')?;
                // A file name seldom needs escapes, so they are not decoded.
                value.quoted((!inner.contains('\\')).then_some(inner)?);
            }
            "string" => {
                // By position, because white space between the parts belongs to the value.
                let mut at = node.start_byte() + 1;
                for part in children(node) {
                    value.quoted(&unescaped(text.get(at..part.start_byte())?));
                    match part.kind() {
                        "string_content" => value.quoted(&unescaped(slice(part, text))),
                        _ => self.add(part, text, value, depth + 1)?,
                    }
                    at = part.end_byte();
                }
                value.quoted(&unescaped(text.get(at..node.end_byte().checked_sub(1)?)?));
            }
            "concatenation" => {
                // `{a,b}` expands to several words, which is not supported.
                if raw.contains('{') && !raw.contains("${") {
                    return None;
                }
                for part in children(node) {
                    self.add(part, text, value, depth + 1)?;
                }
            }
            "simple_expansion" => value.quoted(self.variable(raw.strip_prefix('$')?)?),
            "expansion" => value.quoted(self.variable(raw.strip_prefix("${")?.strip_suffix('}')?)?),
            _ => return None,
        }
        Some(())
    }

    fn variable(&self, name: &str) -> Option<&str> {
        if let Some(value) = self.variables.get(name) {
            return Some(value);
        }
        match name {
            "HOME" => self.home.as_ref()?.to_str(),
            "PWD" => self.folder.as_ref()?.to_str(),
            _ => None,
        }
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
fn unescaped(text: &str) -> String {
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
