//! Words: quotes, patterns, variables and substitutions in them.

use std::path::Path;

use super::{Parser, Unclear};
use crate::hook::shell::word::Word;

/// A word under construction, as text and as a pattern.
#[derive(Default)]
struct WordValue {
    text: String,
    pattern: String,
    is_pattern: bool,
    is_unknown: bool,
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

impl<'t> Parser<'t> {
    /// The text of a here-document, if it is known. Its lines follow the current one.
    pub(super) fn here_document(&mut self, end: &Word, indented: bool) -> Result<Option<String>, Unclear> {
        let (line, start) = match self.document {
            Some((line, behind)) => (line, behind),
            None => self.rest().find('\n').map(|at| (self.at + at, self.at + at + 1)).ok_or(Unclear)?,
        };
        let is_quoted = end.raw.contains(['\'', '"', '\\']);
        let end = end.as_text().map_or(end.raw.as_str(), |end| end);
        let plain = |line: &'t str| if indented { line.trim_start_matches('\t') } else { line };
        let (mut text, mut at) = (String::new(), start);
        for line_of_text in self.text[start..].split_inclusive('\n') {
            at += line_of_text.len();
            if plain(line_of_text).trim_end_matches('\n') != end {
                text.push_str(plain(line_of_text));
                continue;
            }
            self.document = Some((line, at));
            if is_quoted {
                return Ok(Some(text));
            }
            let mut inner =
                Parser { home: self.home, depth: self.depth, words: self.words, ..Parser::of(&text) };
            inner.expand(|inner| inner.rest().is_empty(), &mut WordValue::default())?;
            self.substitutions.append(&mut inner.substitutions);
            self.words = inner.words;
            return Ok(Some(text).filter(|text| !text.contains(['$', '`', '\\'])));
        }
        Err(Unclear)
    }

    /// The next word. `None` if an operator is next.
    pub(super) fn word(&mut self) -> Result<Option<Word>, Unclear> {
        let (start, mut value) = (self.at, WordValue::default());
        let (mut braces, mut has_braces) = (Vec::new(), false);
        if self.rest().starts_with('~') {
            let name =
                self.rest().split(|c: char| c == '/' || c.is_whitespace() || ";&|()<>".contains(c)).next();
            match self.home.and_then(Path::to_str).filter(|_| name == Some("~")) {
                Some(home) => value.quoted(home),
                None => value.is_unknown = true,
            }
            self.at += 1;
        }
        loop {
            if self.rest().starts_with("<(") || self.rest().starts_with(">(") {
                self.at += 2;
                value.is_unknown = true;
                self.substitution()?;
                continue;
            }
            let Some(c) = self.rest().chars().next().filter(|c| !" \t\r\n;&|()<>".contains(*c)) else {
                // `x=(a b)`
                if self.rest().starts_with('(') && self.text[start..self.at].ends_with('=') {
                    self.at += 1;
                    value.is_unknown = true;
                    self.balanced('(', ')')?;
                    continue;
                }
                break;
            };
            self.at += c.len_utf8();
            match c {
                '\\' => match self.next() {
                    Some('\n') => {}
                    Some(c) => value.quoted(c.encode_utf8(&mut [0; 4])),
                    None => value.quoted("\\"),
                },
                '\'' => self.literal(&mut value)?,
                '"' => self.expand(|parser| parser.eat("\""), &mut value)?,
                '$' if self.rest().starts_with('\'') => {
                    // Escapes are not decoded.
                    let quoted = value.text.len();
                    self.at += 1;
                    self.literal(&mut value)?;
                    value.is_unknown |= value.text[quoted..].contains('\\');
                }
                '$' => self.dollar(&mut value)?,
                '`' => self.backticks(&mut value)?,
                '*' | '?' | '[' | ']' => {
                    value.is_pattern |= c != ']';
                    value.text.push(c);
                    value.pattern.push(c);
                }
                c => {
                    match c {
                        '{' => braces.push((self.at, value.pattern.len())),
                        // `{a,b}` and `{1..3}` become several words.
                        '}' if let Some((at, start)) = braces.pop()
                            && [",", ".."].iter().any(|list| self.text[at..self.at - 1].contains(list)) =>
                        {
                            value.pattern.truncate(start);
                            value.pattern.push('*');
                            (value.is_pattern, value.is_unknown, has_braces) = (true, true, true);
                            continue;
                        }
                        _ => {}
                    }
                    value.quoted(c.encode_utf8(&mut [0; 4]));
                }
            }
        }
        if self.at == start {
            return Ok(None);
        }
        self.words = self.words.checked_sub(1).ok_or(Unclear)?;
        let raw = self.text[start..self.at].to_owned();
        let WordValue { text, pattern, is_pattern, is_unknown } = value;
        let value = Some(text).filter(|text| !is_unknown && !text.contains('\0'));
        let pattern = Some(pattern).filter(|_| is_pattern && (value.is_some() || has_braces));
        Ok(Some(Word { raw, value, pattern }))
    }

    /// The rest of `'...'`.
    fn literal(&mut self, value: &mut WordValue) -> Result<(), Unclear> {
        let mut end = self.rest().find('\'').ok_or(Unclear)?;
        // In `$'...'` a quote may be escaped.
        let is_escaped = |text: &str| (text.len() - text.trim_end_matches('\\').len()) % 2 == 1;
        while self.text[..self.at].ends_with("$'") && is_escaped(&self.rest()[..end]) {
            end += 1 + self.rest()[end + 1..].find('\'').ok_or(Unclear)?;
        }
        value.quoted(&self.rest()[..end]);
        self.at += end + 1;
        Ok(())
    }

    /// Text in double quotes, or in a here-document, up to its end.
    fn expand(&mut self, is_end: impl Fn(&mut Self) -> bool, value: &mut WordValue) -> Result<(), Unclear> {
        while !is_end(self) {
            match self.next().ok_or(Unclear)? {
                '\\' => match self.next() {
                    Some('\n') => {}
                    Some(c @ ('"' | '\\' | '$' | '`')) => value.quoted(c.encode_utf8(&mut [0; 4])),
                    Some(c) => {
                        value.quoted("\\");
                        value.quoted(c.encode_utf8(&mut [0; 4]));
                    }
                    None => value.quoted("\\"),
                },
                '$' => self.dollar(value)?,
                '`' => self.backticks(value)?,
                c => value.quoted(c.encode_utf8(&mut [0; 4])),
            }
        }
        Ok(())
    }

    /// What follows a `$`.
    fn dollar(&mut self, value: &mut WordValue) -> Result<(), Unclear> {
        self.deeper()?;
        let home = self.home.and_then(Path::to_str);
        let mut known = None;
        if self.eat("((") {
            self.arithmetic()?;
        } else if self.eat("(") {
            self.substitution()?;
        } else if self.eat("{HOME}") {
            known = home;
        } else if self.eat("{") {
            self.balanced('{', '}')?;
        } else {
            known = match self.name() {
                "HOME" => home,
                "" if !["@", "*", "#", "?", "-", "$", "!"].iter().any(|name| self.eat(name)) => Some("$"),
                _ => None,
            };
        }
        match known {
            Some(known) => value.quoted(known),
            None => value.is_unknown = true,
        }
        self.depth -= 1;
        Ok(())
    }

    /// Passes the name of a variable.
    fn name(&mut self) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// The rest of `$(...)`, `<(...)` or `>(...)`.
    fn substitution(&mut self) -> Result<(), Unclear> {
        let outer = std::mem::take(&mut self.substitutions);
        let list = self.list(&[")"])?;
        self.substitutions = outer;
        self.substitutions.push(list);
        Ok(())
    }

    /// The rest of a substitution in backticks.
    fn backticks(&mut self, value: &mut WordValue) -> Result<(), Unclear> {
        value.is_unknown = true;
        let mut text = String::new();
        loop {
            match self.next().ok_or(Unclear)? {
                '`' => break,
                '\\' if self.rest().starts_with(['`', '\\', '$']) => text.extend(self.next()),
                c => text.push(c),
            }
        }
        let mut inner = Parser { home: self.home, depth: self.depth, words: self.words, ..Parser::of(&text) };
        let list = inner.list(&[])?;
        self.words = inner.words;
        self.substitutions.push(list);
        Ok(())
    }

    /// The rest of `((...))`.
    pub(super) fn arithmetic(&mut self) -> Result<(), Unclear> {
        self.balanced('(', ')')?;
        if self.eat(")") { Ok(()) } else { Err(Unclear) }
    }

    /// Passes a part in which only quotes and substitutions have a meaning, with its end.
    fn balanced(&mut self, open: char, close: char) -> Result<(), Unclear> {
        let (mut depth, mut value) = (0_usize, WordValue::default());
        loop {
            match self.next().ok_or(Unclear)? {
                c if c == close && depth == 0 => return Ok(()),
                c if c == close => depth -= 1,
                c if c == open => depth += 1,
                '\\' => drop(self.next()),
                '\'' => self.literal(&mut value)?,
                '"' => self.expand(|parser| parser.eat("\""), &mut value)?,
                '$' => self.dollar(&mut value)?,
                '`' => self.backticks(&mut value)?,
                _ => {}
            }
            value.text.clear();
            value.pattern.clear();
        }
    }
}
