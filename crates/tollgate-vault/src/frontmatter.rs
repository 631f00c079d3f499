//! The words a task's author wrote in frontmatter or in bold: `action: send_email`, `**Action**: send_email`. Pure.
//!
//! Read is the plain part of YAML that people write by hand: one key a line, scalars, lists. What an own key holds
//! must be understood or the task is [`UnreadableTask`]: a sensitive action that was misread as none would be anybody's to
//! execute. So is an action in a place where it may or may not count. What other keys hold is passed over.

use std::borrow::Cow;
use std::collections::HashSet;

/// The keys that say what is to be done.
pub(crate) const ACTION: [&str; 2] = ["action", "actiontype"];

/// Why a task cannot be read. A sentence for its author.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnreadableTask(pub String);

impl UnreadableTask {
    pub(crate) fn at(line: usize, what: &str) -> Self {
        Self(format!("line {line} {what}"))
    }
}

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

/// A key that an author wrote. It is lower case, without `_`, `-` and spaces.
#[derive(Debug)]
pub(crate) struct FoundValue {
    pub(crate) line: usize,
    pub(crate) key: String,
    pub(crate) value: Value,
}

/// All that an author wrote, key by key.
#[derive(Debug, Default)]
pub(crate) struct Words(Vec<FoundValue>);

impl Words {
    /// Reads the author's part of a file.
    pub(crate) fn read(text: &str) -> Result<Self, UnreadableTask> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        // Old editors end a line with a carriage return alone.
        let text = match text.contains('\r') {
            true => Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n")),
            false => Cow::Borrowed(text),
        };
        if let Some(at) = text.find('\0') {
            let number = 1 + text[..at].matches('\n').count();
            return Err(UnreadableTask::at(number, "has a NUL character: save the file as UTF-8 text"));
        }
        let mut words = Self::default();
        let mut lines = (1..).zip(text.lines()).peekable();
        match lines.clone().find(|(_, line)| !line.trim().is_empty()) {
            Some((1, line)) if line.trim_end() == "---" => {
                lines.next();
                words.read_front(&mut lines)?;
            }
            Some((number, line)) if line.trim() == "---" => {
                let what = "begins frontmatter, which must begin at the start of the first line";
                return Err(UnreadableTask::at(number, what));
            }
            Some((number, line)) if line.trim() == "+++" => {
                return Err(UnreadableTask::at(
                    number,
                    "begins TOML frontmatter: write it in YAML, after `---`",
                ));
            }
            _ => {}
        }
        words.read_bold(lines)?;
        Ok(words)
    }

    /// What stands under these keys, in the order in which it was written.
    pub(crate) fn get(&self, keys: &[&str]) -> impl Iterator<Item = &FoundValue> {
        self.0.iter().filter(move |found| keys.contains(&&*found.key))
    }

    fn read_front<'a>(
        &mut self,
        lines: &mut impl Iterator<Item = (usize, &'a str)>,
    ) -> Result<(), UnreadableTask> {
        // A set, because a text of 1 MiB has room for 150,000 keys.
        let mut keys = HashSet::new();
        for (number, line) in lines {
            let trimmed = line.trim();
            let broken = |what: &str| UnreadableTask(format!("line {number} of its frontmatter {what}"));
            let is_action = |text: &str| split_key(text).is_some_and(|(key, _)| ACTION.contains(&&*key));
            let item = trimmed.strip_prefix('-').filter(|rest| rest.is_empty() || rest.starts_with(' '));
            if matches!(line.trim_end(), "---" | "...") {
                return Ok(());
            } else if trimmed.is_empty() || trimmed.starts_with('#') {
                continue;
            } else if let Some(item) = item.map(str::trim) {
                let FoundValue { value, .. } =
                    self.0.last_mut().ok_or_else(|| broken("is a list without a key"))?;
                if is_action(item) {
                    return Err(broken("has an action in a list"));
                }
                add_item(value, item, number);
            } else if line.starts_with([' ', '\t']) && (self.0.is_empty() || is_action(trimmed)) {
                // Whether it belongs to the key above or stands on its own is not certain. An action that is misread as
                // part of another value would be no action, and anybody's to execute.
                return Err(broken("is indented"));
            } else if line.starts_with([' ', '\t']) || matches!(trimmed, "]" | "}" | "]," | "},") {
                // Belongs to the key above: the rest of an object, of a folded text. A list of objects keeps its first
                // line; anything else under a key of ours is not understood.
                if let Some(FoundValue { value: value @ (Value::One(_) | Value::Odd(_)), .. }) =
                    self.0.last_mut()
                {
                    *value = Value::Odd(number);
                }
            } else {
                let (key, value) = split_key(line).ok_or_else(|| broken("is not `key: value`"))?;
                if !keys.insert(key.clone()) {
                    return Err(broken(&format!("has `{key}` twice")));
                }
                let value = scalar_or_list(value).unwrap_or(Value::Odd(number));
                self.0.push(FoundValue { line: number, key, value });
            }
        }
        Err(UnreadableTask("its frontmatter has no closing `---`".to_owned()))
    }

    fn read_bold<'a>(
        &mut self,
        mut lines: std::iter::Peekable<impl Iterator<Item = (usize, &'a str)> + Clone>,
    ) -> Result<(), UnreadableTask> {
        let mut fence: Option<Fence> = None;
        // An action in a code block is an example, if the block is certainly one.
        let mut quoted = None;
        while let Some((number, line)) = lines.next() {
            if let Some(open) = &fence {
                if open.is_closed_by(line) {
                    (fence, quoted) = (None, None);
                } else if names_action(line) && open.is_certain {
                    quoted = quoted.or(Some(number));
                } else if names_action(line) {
                    return Err(UnreadableTask::at(number, "has an action below an indented code fence"));
                }
                continue;
            }
            fence = Fence::opened_by(line);
            if fence.is_some() {
                continue;
            }
            if line.trim() == "---"
                && let Some(number) = misplaced(lines.clone())
            {
                let what = "has an action in frontmatter that is not at the start of the file";
                return Err(UnreadableTask::at(number, what));
            }
            let Some((key, value)) = bold(line) else {
                if names_action(line) {
                    let what =
                        "has an action in a place where it may not count: begin a line with `**Action**:`";
                    return Err(UnreadableTask::at(number, what));
                }
                continue;
            };
            if ACTION.contains(&&*key) && line.starts_with(char::is_whitespace) {
                return Err(UnreadableTask::at(number, "has an action, but is indented"));
            }
            let below = lines.peek().map_or("", |(_, below)| below.trim());
            let is_answered_below = !below.is_empty() && !below.starts_with("**") && !below.starts_with('#');
            if ACTION.contains(&&*key) && value.is_empty() && is_answered_below {
                return Err(UnreadableTask::at(number, "has no action after `**Action**:`"));
            }
            self.0.push(FoundValue { line: number, key, value: Value::One(value.to_owned()) });
        }
        match quoted {
            Some(number) => {
                Err(UnreadableTask::at(number, "has an action in a code block that is never closed"))
            }
            None => Ok(()),
        }
    }
}

/// The line with an action below a `---` that is not at the start of the file, if what follows looks like frontmatter: keys
/// and lists up to the next `---`, or an action right below it. Any other `---` is a horizontal rule.
fn misplaced<'a>(below: impl Iterator<Item = (usize, &'a str)>) -> Option<usize> {
    let (mut found, mut right_below, mut is_below) = (None, None, true);
    for (number, line) in below {
        let trimmed = line.trim();
        let item = trimmed.strip_prefix("- ").map_or(trimmed, str::trim_start);
        if matches!(trimmed, "---" | "...") {
            return found;
        } else if let Some((key, _)) = split_key(item) {
            if ACTION.contains(&&*key) || key == "type" {
                found = found.or(Some(number));
                right_below = right_below.or(Some(number).filter(|_| is_below && ACTION.contains(&&*key)));
            }
        } else if trimmed.is_empty() {
            is_below = false;
        } else if item == trimmed && !trimmed.starts_with('#') && !line.starts_with([' ', '\t']) {
            break;
        }
    }
    right_below
}

/// A code block, from its first line.
struct Fence {
    mark: char,
    len: usize,
    /// Indented this far, the line may be something else.
    is_certain: bool,
}

impl Fence {
    fn opened_by(line: &str) -> Option<Self> {
        let trimmed = line.trim_start();
        let mark = trimmed.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let rest = trimmed.trim_start_matches(mark);
        let (len, indent) = (trimmed.len() - rest.len(), &line[..line.len() - trimmed.len()]);
        let is_inline = mark == '`' && rest.contains('`');
        let is_certain = indent.len() < 4 && !indent.contains('\t');
        (len >= 3 && !is_inline).then_some(Self { mark, len, is_certain })
    }

    fn is_closed_by(&self, line: &str) -> bool {
        let line = line.trim();
        line.len() >= self.len && line.chars().all(|c| c == self.mark)
    }
}

/// The key and the value of `**Action**: x` or `**Action:** x`, also as an item of a list.
fn bold(line: &str) -> Option<(String, &str)> {
    let line = line.trim();
    let line = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).unwrap_or(line);
    let (key, rest) = line.strip_prefix("**").and_then(|rest| rest.split_once("**"))?;
    let value = if key.ends_with(':') { Some(rest) } else { rest.trim_start().strip_prefix(':') };
    let value = value?.trim().trim_matches(['`', '*', '"']).trim();
    Some((normal(key.trim_end_matches(':')), value))
}

/// Whether a line begins with an action in bold, after any signs: of a quote, a numbered list, a task list, a table.
fn names_action(line: &str) -> bool {
    let Some((head, _)) = line.split_once([':', '\u{ff1a}']) else { return false };
    let Some(at) = head.find("**").or_else(|| head.find("__")) else { return false };
    let is_sign = |c: char| !c.is_alphabetic() || matches!(c, 'x' | 'X');
    let key = normal(head[at..].trim_matches(|c: char| !c.is_alphabetic()));
    head[..at].chars().all(is_sign) && ACTION.contains(&&*key)
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

    fn all(text: &str, key: &str) -> Vec<Value> {
        Words::read(text).unwrap().get(&[key]).map(|found| found.value.clone()).collect()
    }

    fn one(text: &str, key: &str) -> Option<Value> {
        all(text, key).pop()
    }

    #[test]
    fn both_spellings_are_read() {
        let is = |word: &str| Some(Value::One(word.into()));
        assert_eq!(one("---\naction: send_email\n---\n", "action"), is("send_email"));
        assert_eq!(one("\u{feff}---\r\naction: send_email\r\n---\r\n", "action"), is("send_email"));
        assert_eq!(one("---\raction: send_email\r---\r", "action"), is("send_email"));
        assert_eq!(one("---\n\"Action\": 'pay # this' # note\n---", "action"), is("pay # this"));
        assert_eq!(one("---\naction: ~\n---", "action"), is(""));
        assert_eq!(one("---\nblocked_by: \"[[a]]\"\n---", "blockedby"), is("[[a]]"));
        assert_eq!(one("# T\n\n**Action**: `pay`\n", "action"), is("pay"));
        assert_eq!(one("\n\n**Action**: **pay**\n", "action"), is("pay"));
        assert_eq!(one("- **Action Type:** pay", "actiontype"), is("pay"));
        assert_eq!(one("**Action**:\n\ntext", "action"), is(""));
        assert_eq!(one("- [x] all\n  **Priority**: high", "priority"), is("high"));
        assert_eq!(one("**bold** text: no key", "bold"), None);
        assert_eq!(all("---\naction: a\n---\n**Action**: b", "action").len(), 2);
    }

    #[test]
    fn an_action_in_a_code_block_is_an_example() {
        for text in [
            "```\n**Action**: b\n```",
            "~~~ text\n```\n**Action**: b\n~~~",
            "````\n```\n**Action**: b\n```\n````",
        ] {
            assert_eq!(one(text, "action"), None, "{text}");
        }
        for text in ["```\n~~~\n```\n**Action**: b", "```x``` y\n**Action**: b", "``\n**Action**: b"] {
            assert_eq!(one(text, "action"), Some(Value::One("b".into())), "{text}");
        }
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
    fn a_horizontal_rule_is_not_frontmatter() {
        for text in [
            "# T\n\n---\n\ntext\n\n---\n",
            "T\n---\n\nWe wait for an answer.\naction: none of ours",
            "a\n\n---\n\nAction: only a word, far below a rule\n",
            "a\n---\nNote: x\nprose in between\n\naction: pay\n---",
            "---\ntitle: x\n---\n# T\n---\ntext\n---",
            "# T\n```\n---\naction: pay\n---\n```",
            "# T\n---\nsummary: no key of ours\n---",
        ] {
            assert_eq!(one(text, "action"), None, "{text}");
        }
    }

    #[test]
    fn a_text_of_many_keys_is_read_in_a_moment() {
        let keys: String = (0..150_000).map(|key| format!("{key}:\n")).collect();
        let began = std::time::Instant::now();
        assert_eq!(one(&format!("---\n{keys}---\n"), "149999"), Some(Value::One(String::new())));
        let rules = "---\na: b\n".repeat(100_000);
        assert_eq!(one(&format!("# T\n{rules}"), "action"), None);
        // A second in a debug build. Quadratic, it would be minutes.
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    }

    #[test]
    fn what_is_not_understood_is_not_guessed() {
        for (text, word) in [
            ("---\naction: pay\n# no end", "closing"),
            ("---\njust words\n---", "line 2"),
            ("---\n{action: pay}\n---", "line 2"),
            ("---\n- a\n---", "without a key"),
            ("---\naction: a\naction: b\n---", "line 3 of its frontmatter has `action` twice"),
            ("---\naction:pay\n---", "line 2"),
            ("---\n  action: pay\n---", "line 2"),
            ("---\n\taction: pay\n---", "line 2"),
            ("---\ntitle: x\n  action: pay\n---", "line 3"),
            ("---\ntitle:\n  Action_Type: pay\n---", "line 3"),
            ("---\nsteps:\n  - action: pay\n---", "line 3"),
            ("\n---\naction: pay\n---", "line 2"),
            (" ---\naction: pay\n---", "line 1"),
            ("+++\naction = 'pay'\n+++", "line 1"),
            ("*\0*\0A\0", "line 1"),
            ("# T\n\t**Action**: pay", "line 2"),
            ("# T\n  **Action**: pay", "line 2"),
            ("# T\n    - **Action**: pay", "line 2"),
            ("> **Action**: pay", "line 1"),
            ("1. **Action**: pay", "line 1"),
            ("- [ ] **Action Type:** pay", "line 1"),
            ("__Action__: pay", "line 1"),
            ("**Action**\u{ff1a} pay", "line 1"),
            ("**Action**:\n- pay", "line 1"),
            ("```\n**Action**: pay", "line 2"),
            ("    ```\n**Action**: pay\n    ```", "line 2"),
            ("# T\n---\naction: pay\n---", "line 3"),
            ("# T\n\n---\ntitle: x\n\nAction_Type: pay\n---\ntext", "line 6"),
            ("text\n\n---\nsteps:\n  - x\n  - action: pay\n...", "line 6"),
            ("text\n ---\n# a comment\ntype: email\n--- ", "line 4"),
            ("---\ntitle: x\n---\n---\naction: pay\n---", "line 5"),
            ("# T\n---\naction: pay\nno end", "line 3"),
        ] {
            let UnreadableTask(why) = Words::read(text).unwrap_err();
            assert!(why.contains(word), "{text:?}: {why}");
        }
        for odd in ["&x pay", "!!str pay", "|\n  pay", "{a: b}", "\"p\\u0061y\"", "\n  nested: pay", "[a"] {
            let text = format!("---\naction: {odd}\n---");
            assert!(matches!(one(&text, "action"), Some(Value::Odd(_))), "{text:?}");
        }
    }
}
