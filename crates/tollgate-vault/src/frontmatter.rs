//! The words a task's author wrote in frontmatter or in bold: `action: send_email`, `**Action**: send_email`. Pure.
//!
//! Read is the plain part of YAML that people write by hand: one key a line, scalars, lists. What an own key holds
//! must be understood or the task is [`Broken`]: a sensitive action that was misread as none would be anybody's to
//! execute. What other keys hold is passed over.

/// The keys that say what is to be done.
pub(crate) const ACTION: [&str; 2] = ["action", "actiontype"];

/// Why a task cannot be read. A sentence for its author.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub String);

/// What an author wrote under one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// One word or sentence. Empty for `key:` and `key: null`.
    One(String),
    /// Several.
    Many(Vec<String>),
    /// Something that is not read, with the line it is on.
    Odd(usize),
}

/// All that an author wrote, key by key. Keys are lower case, without `_`, `-` and spaces.
#[derive(Debug, Default)]
pub(crate) struct Words {
    front: Vec<(String, Value)>,
    bold: Vec<(String, Value)>,
}

impl Words {
    /// Reads the author's part of a file. `cut` says that there was more than was handed in.
    pub(crate) fn read(text: &str, cut: bool) -> Result<Self, Broken> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut words = Self::default();
        let mut lines = (1..).zip(text.lines()).peekable();
        if lines.next_if(|(_, first)| first.trim_end() == "---").is_some() {
            words.read_front(&mut lines, cut)?;
        }
        words.read_bold(lines.map(|(number, line)| (number, line.trim())));
        Ok(words)
    }

    /// The first of these keys that is there: frontmatter before bold, then in the order given.
    pub(crate) fn get<'a>(&self, keys: &[&'a str]) -> Option<(&'a str, &Value)> {
        [&self.front, &self.bold].into_iter().find_map(|part| {
            let found = |key: &&'a str| part.iter().find(|(k, _)| k == *key).map(|(_, value)| (*key, value));
            keys.iter().find_map(found)
        })
    }

    fn read_front<'a>(
        &mut self,
        lines: &mut impl Iterator<Item = (usize, &'a str)>,
        cut: bool,
    ) -> Result<(), Broken> {
        for (number, line) in lines {
            let trimmed = line.trim();
            let broken = |what: &str| Broken(format!("line {number} of its frontmatter {what}"));
            let item = trimmed.strip_prefix('-').filter(|rest| rest.is_empty() || rest.starts_with(' '));
            if matches!(line.trim_end(), "---" | "...") {
                return Ok(());
            } else if trimmed.is_empty() || trimmed.starts_with('#') {
                continue;
            } else if let Some(item) = item {
                let (_, value) = self.front.last_mut().ok_or_else(|| broken("is a list without a key"))?;
                add_item(value, item.trim(), number);
            } else if line.starts_with([' ', '\t'])
                && (self.front.is_empty()
                    || split_key(trimmed).is_some_and(|(key, _)| ACTION.contains(&&*key)))
            {
                // Whether it belongs to the key above or stands on its own is not certain. An action that is misread as
                // part of another value would be no action, and anybody's to execute.
                return Err(broken("is indented"));
            } else if line.starts_with([' ', '\t']) || matches!(trimmed, "]" | "}" | "]," | "},") {
                // Belongs to the key above: the rest of an object, of a folded text. A list of objects keeps its first
                // line; anything else under a key of ours is not understood.
                if let Some((_, value @ (Value::One(_) | Value::Odd(_)))) = self.front.last_mut() {
                    *value = Value::Odd(number);
                }
            } else {
                let (key, value) = split_key(line).ok_or_else(|| broken("is not `key: value`"))?;
                if self.front.iter().any(|(k, _)| *k == key) {
                    return Err(Broken(format!("`{key}` is in its frontmatter twice")));
                }
                self.front.push((key, scalar_or_list(value).unwrap_or(Value::Odd(number))));
            }
        }
        let rest = if cut { " within the first 64 KiB" } else { "" };
        Err(Broken(format!("its frontmatter has no closing `---`{rest}")))
    }

    fn read_bold<'a>(&mut self, lines: impl Iterator<Item = (usize, &'a str)>) {
        let mut fenced = false;
        for (number, line) in lines {
            fenced ^= line.starts_with("```") || line.starts_with("~~~");
            let line = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).unwrap_or(line);
            // `**Action**: x` and `**Action:** x`
            let Some((key, rest)) = line.strip_prefix("**").and_then(|rest| rest.split_once("**")) else {
                continue;
            };
            let value = if key.ends_with(':') { Some(rest) } else { rest.trim_start().strip_prefix(':') };
            let key = normal(key.trim_end_matches(':'));
            let Some(value) = value.filter(|_| !fenced) else { continue };
            let value = Value::One(value.trim().trim_matches('`').trim().to_owned());
            match self.bold.iter_mut().find(|(k, _)| *k == key) {
                None => self.bold.push((key, value)),
                // Two answers to one question. Which of them holds is not certain.
                Some((_, there)) if *there != value => *there = Value::Odd(number),
                Some(_) => {}
            }
        }
    }
}

fn normal(key: &str) -> String {
    key.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

/// `key: value`, `"key": value`, `key :value` is not one.
fn split_key(line: &str) -> Option<(String, &str)> {
    let (key, rest) = match line.chars().next()? {
        quote @ ('"' | '\'') => {
            let (key, rest) = line[1..].split_once(quote)?;
            (key, rest.trim_start().strip_prefix(':')?)
        }
        '{' | '[' | '?' | '&' | '*' | '!' | '|' | '>' | '%' | '@' | '`' => return None,
        _ => line.split_once(':')?,
    };
    let value = rest.is_empty() || rest.starts_with([' ', '\t']);
    (value && !key.trim().is_empty()).then(|| (normal(key.trim()), rest.trim()))
}

/// What stands behind a key; `None` if it is something else.
fn scalar_or_list(text: &str) -> Option<Value> {
    // `[[note]]` is a link to a note, not a list of lists.
    let is_link = text.starts_with("[[") && text.ends_with("]]") && !text.contains("]],");
    match text.strip_prefix('[') {
        Some(_) if is_link => Some(Value::One(text.to_owned())),
        Some(inner) => {
            let items = without_comment(inner).strip_suffix(']')?.split(',').map(|item| scalar(item.trim()));
            let items = items.filter(|item| item.as_ref().is_none_or(|item| !item.is_empty()));
            items.collect::<Option<_>>().map(Value::Many)
        }
        None => scalar(text).map(Value::One),
    }
}

fn add_item(value: &mut Value, item: &str, number: usize) {
    if matches!(value, Value::One(text) if text.is_empty()) {
        *value = Value::Many(Vec::new());
    }
    // An object in a list, as TaskNotes writes dependencies: its `uid` is the note.
    let item = item.strip_prefix("uid:").map_or(item, str::trim);
    match (value, scalar(item)) {
        (Value::Many(items), Some(item)) => items.push(item),
        (value, _) => *value = Value::Odd(number),
    }
}

/// One YAML scalar; `None` if it is something else.
fn scalar(text: &str) -> Option<String> {
    let text = without_comment(text);
    match text.chars().next() {
        Some('"') => {
            let inner = text[1..].strip_suffix('"')?;
            // An escape could hide a character; none is needed in a word of ours.
            (!inner.contains(['\\', '"'])).then(|| inner.to_owned())
        }
        Some('\'') => Some(text[1..].strip_suffix('\'')?.replace("''", "'")),
        Some('{' | '&' | '*' | '!' | '|' | '>' | '%' | '@' | '`') => None,
        Some('[') if !text.starts_with("[[") => None,
        _ if matches!(text, "~" | "null" | "Null" | "NULL") => Some(String::new()),
        _ => Some(text.to_owned()),
    }
}

fn without_comment(text: &str) -> &str {
    if text.starts_with('#') {
        return "";
    }
    let quoted = text.chars().next().filter(|c| matches!(c, '"' | '\''));
    // A `#` inside quotes is text.
    let from = quoted.and_then(|quote| text[1..].find(quote).map(|at| at + 2)).unwrap_or(0);
    text[from..].find(" #").map_or(text, |at| &text[..from + at]).trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str, key: &str) -> Option<Value> {
        Words::read(text, false).unwrap().get(&[key]).map(|(_, value)| value.clone())
    }

    #[test]
    fn both_spellings_are_read() {
        let is = |word: &str| Some(Value::One(word.into()));
        assert_eq!(one("---\naction: send_email\n---\n", "action"), is("send_email"));
        assert_eq!(one("\u{feff}---\r\naction: send_email\r\n---\r\n", "action"), is("send_email"));
        assert_eq!(one("---\n\"Action\": 'pay # this' # note\n---", "action"), is("pay # this"));
        assert_eq!(one("---\naction: ~\n---", "action"), is(""));
        assert_eq!(one("---\nblocked_by: \"[[a]]\"\n---", "blockedby"), is("[[a]]"));
        assert_eq!(one("# T\n\n**Action**: `pay`\n", "action"), is("pay"));
        assert_eq!(one("- **Action Type:** pay", "actiontype"), is("pay"));
        assert_eq!(one("---\naction: a\n---\n**Action**: b", "action"), is("a"));
        assert_eq!(one("```\n**Action**: b\n```", "action"), None);
        assert_eq!(one("**bold** text: no key", "bold"), None);
    }

    #[test]
    fn lists_are_read() {
        let many = |words: &[&str]| Some(Value::Many(words.iter().map(|w| (*w).to_owned()).collect()));
        assert_eq!(one("---\nafter: [a, \"b\"]\n---", "after"), many(&["a", "b"]));
        assert_eq!(one("---\nafter:\n  - a\n- b # c\n---", "after"), many(&["a", "b"]));
        assert_eq!(
            one("---\nafter:\n  - uid: \"[[a]]\"\n    reltype: FINISHTOSTART\n---", "after"),
            many(&["[[a]]"])
        );
        assert_eq!(one("---\ntags: [\n  a\n]\nafter: []\n---", "after"), many(&[]));
    }

    #[test]
    fn what_is_not_understood_is_not_guessed() {
        for (text, word) in [
            ("---\naction: pay\n# no end", "closing"),
            ("---\njust words\n---", "line 2"),
            ("---\n{action: pay}\n---", "line 2"),
            ("---\n- a\n---", "without a key"),
            ("---\naction: a\naction: b\n---", "twice"),
            ("---\naction:pay\n---", "line 2"),
            ("---\n  action: pay\n---", "line 2"),
            ("---\n\taction: pay\n---", "line 2"),
            ("---\ntitle: x\n  action: pay\n---", "line 3"),
            ("---\ntitle:\n  Action_Type: pay\n---", "line 3"),
        ] {
            let Broken(why) = Words::read(text, false).unwrap_err();
            assert!(why.contains(word), "{text:?}: {why}");
        }
        for odd in ["&x pay", "!!str pay", "|\n  pay", "{a: b}", "\"p\\u0061y\"", "\n  nested: pay", "[a"] {
            let text = format!("---\naction: {odd}\n---");
            assert!(matches!(one(&text, "action"), Some(Value::Odd(_))), "{text:?}");
        }
        // The same twice is certain, two different answers are not.
        assert_eq!(one("**Action**: a\n**Action**: `a`", "action"), Some(Value::One("a".into())));
        assert_eq!(one("**Action**: a\n**Action**: b", "action"), Some(Value::Odd(2)));
    }
}
