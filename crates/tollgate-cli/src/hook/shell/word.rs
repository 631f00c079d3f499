//! The value of a word, where its text alone tells it.

use tree_sitter::Node;

use super::{Reader, children, slice};

/// A word of a command.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Word {
    /// Its value is known.
    Text {
        /// The value.
        text: String,
        /// The same with everything quoted that was, if what is not quoted makes it a pattern.
        pattern: Option<String>,
    },
    /// It depends on what nobody can tell from the text.
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

/// A value under way: as text, and as a pattern.
#[derive(Default)]
struct Value {
    text: String,
    pattern: String,
    is_pattern: bool,
}

impl Value {
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

impl Reader {
    pub(super) fn word(&self, node: Node<'_>, text: &str) -> Word {
        let mut value = Value::default();
        match self.add(node, text, &mut value, 0) {
            Some(()) => Word::Text { text: value.text, pattern: value.is_pattern.then_some(value.pattern) },
            None => Word::Unknown,
        }
    }

    fn add(&self, node: Node<'_>, text: &str, value: &mut Value, depth: usize) -> Option<()> {
        if depth > 8 {
            return None;
        }
        let raw = slice(node, text);
        match node.kind() {
            "word" | "number" | "variable_name" | "special_variable_name" => self.bare(raw, value)?,
            "raw_string" => value.quoted(raw.strip_prefix('\'')?.strip_suffix('\'')?),
            "ansi_c_string" => {
                let inner = raw.strip_prefix("$'")?.strip_suffix('\'')?;
                // What needs decoding is seldom the name of a file.
                value.quoted((!inner.contains('\\')).then_some(inner)?);
            }
            "string" => {
                // By position: white space between the parts belongs to the value.
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
                // `{a,b}` makes several words of one, which is not followed.
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

    /// A word without quotes: backslashes, the home, patterns.
    fn bare(&self, raw: &str, value: &mut Value) -> Option<()> {
        let mut rest = raw;
        if value.text.is_empty()
            && let Some(below) = raw.strip_prefix('~')
        {
            if !below.is_empty() && !below.starts_with('/') {
                // Somebody else's home.
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

/// What a backslash means inside of double quotes.
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
