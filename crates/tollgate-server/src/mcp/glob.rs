//! Glob patterns on relative paths, as the reference server's clients write them.
//!
//! `*` and `?` stay within a name, `**` as a whole name is any number of names, `[a-z]` and `[!a-z]` are one character,
//! `{a,b}` is either. A leading `!` turns the pattern around, a leading `#` makes it a remark that matches nothing. Names
//! that begin with a dot are names like others. Pure, and never slower than the product of pattern and path.

/// More alternatives than this in one pattern are an accident or an attack: then braces stand for themselves.
const ALTERNATIVES: usize = 1024;

/// A pattern.
#[derive(Debug, Clone)]
pub(crate) struct Glob {
    /// Each alternative as the names it is made of.
    alternatives: Vec<Vec<Name>>,
    inverted: bool,
}

/// What one name of a path must be.
#[derive(Debug, Clone, PartialEq)]
enum Name {
    /// `**`: any number of names.
    Any,
    Letters(Vec<Letter>),
}

#[derive(Debug, Clone, PartialEq)]
enum Letter {
    Is(char),
    One,
    Many,
    Among { ranges: Vec<(char, char)>, inverted: bool },
}

impl Glob {
    pub(crate) fn new(pattern: &str) -> Self {
        if pattern.starts_with('#') {
            return Self { alternatives: Vec::new(), inverted: false };
        }
        let plain = pattern.trim_start_matches('!');
        let inverted = (pattern.len() - plain.len()) % 2 == 1;
        let expanded = expand(plain).unwrap_or_else(|| vec![plain.to_owned()]);
        Self { alternatives: expanded.iter().map(|pattern| names(pattern)).collect(), inverted }
    }

    pub(crate) fn matches(&self, path: &str) -> bool {
        let path: Vec<&str> = path.split('/').collect();
        self.alternatives.iter().any(|names| match_names(names, &path)) != self.inverted
    }
}

fn names(pattern: &str) -> Vec<Name> {
    let mut names: Vec<Name> = Vec::new();
    for (index, part) in pattern.split('/').enumerate() {
        match part {
            "**" => names.push(Name::Any),
            // `a//b` is `a/b`; a slash in front or at the end is kept, and matches no relative path.
            "" if index > 0 && index < pattern.matches('/').count() => {}
            ".." if matches!(names.last(), Some(Name::Letters(_))) => drop(names.pop()),
            part => names.push(Name::Letters(letters(part))),
        }
    }
    // What ends in `**` is below what is before it, not that itself.
    if names.len() > 1 && names.last() == Some(&Name::Any) {
        names.push(Name::Letters(vec![Letter::Many]));
    }
    names
}

fn letters(part: &str) -> Vec<Letter> {
    let mut letters = Vec::new();
    let mut rest = part.chars();
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
    letters
}

/// What stands between brackets, and what follows them. None if they are not closed.
fn among(text: &str) -> Option<(Letter, &str)> {
    let inner = text.strip_prefix(['!', '^']);
    let inverted = inner.is_some();
    let inner = inner.unwrap_or(text);
    // A bracket that comes first is a character like others.
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

/// Each of the alternatives in braces. None if there are too many.
fn expand(pattern: &str) -> Option<Vec<String>> {
    let mut done = Vec::new();
    let mut open = vec![pattern.to_owned()];
    while let Some(pattern) = open.pop() {
        match braces(&pattern) {
            None => done.push(pattern),
            Some((before, inner, after)) => {
                open.extend(inner.iter().rev().map(|inner| format!("{before}{inner}{after}")));
            }
        }
        if done.len() + open.len() > ALTERNATIVES {
            return None;
        }
    }
    Some(done)
}

/// The first pair of braces with a comma between them: what is before, the alternatives, what is after.
fn braces(pattern: &str) -> Option<(&str, Vec<&str>, &str)> {
    let mut from = 0;
    while let Some(start) = pattern[from..].find('{').map(|at| from + at) {
        let mut depth = 0_usize;
        let mut commas = vec![start];
        for (at, char) in pattern[start..].char_indices().map(|(at, char)| (start + at, char)) {
            match char {
                '{' => depth += 1,
                ',' if depth == 1 => commas.push(at),
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                if commas.len() > 1 {
                    commas.push(at);
                    let inner = commas.windows(2).map(|pair| &pattern[pair[0] + 1..pair[1]]).collect();
                    return Some((&pattern[..start], inner, &pattern[at + 1..]));
                }
                break;
            }
        }
        from = start + 1;
    }
    None
}

/// `**` goes back only to the last `**`: an earlier one could do nothing that the last one cannot.
fn match_names(names: &[Name], path: &[&str]) -> bool {
    let (mut name, mut part) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while part < path.len() {
        match names.get(name) {
            Some(Name::Any) => {
                back = Some((name, part));
                name += 1;
            }
            Some(Name::Letters(letters)) if match_letters(letters, path[part]) => {
                name += 1;
                part += 1;
            }
            _ => match &mut back {
                Some((any, taken)) => {
                    *taken += 1;
                    (name, part) = (*any + 1, *taken);
                }
                None => return false,
            },
        }
    }
    names[name..].iter().all(|name| *name == Name::Any)
}

/// The same, for `*` within a name.
fn match_letters(letters: &[Letter], name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    if name.is_empty() {
        return letters.is_empty();
    }
    let (mut letter, mut at) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while at < name.len() {
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

#[cfg(test)]
mod tests {
    use super::*;

    const PATHS: &[&str] = &[
        "a",
        "b",
        "a/b",
        "a/b/c",
        "x/a",
        "x/a/b",
        "main.rs",
        "src/main.rs",
        ".rs",
        ".x",
        "a/.x",
        "ab",
        "ax",
        "axb",
        "a/x/b",
        "a/b/b",
        "c",
        "é",
        "éa",
        "*",
        "[a",
        "ac",
        "bd",
        "abab",
        "#a",
        "{a",
        "{a}",
        "aa",
        "a/main.rs",
        "-",
        "]",
    ];

    /// What minimatch 10 with `dot` says of these paths.
    #[test]
    fn patterns_match_what_the_reference_matches() {
        let table: &[(&str, &[&str])] = &[
            ("*.rs", &["main.rs", ".rs"]),
            ("**/*.rs", &["main.rs", "src/main.rs", ".rs", "a/main.rs"]),
            ("a/**", &["a/b", "a/b/c", "a/.x", "a/x/b", "a/b/b", "a/main.rs"]),
            ("**/a", &["a", "x/a"]),
            ("**/a/**", &["a/b", "a/b/c", "x/a/b", "a/.x", "a/x/b", "a/b/b", "a/main.rs"]),
            ("a", &["a"]),
            ("a/*", &["a/b", "a/.x", "a/main.rs"]),
            ("*/b", &["a/b"]),
            ("a?", &["ab", "ax", "ac", "aa"]),
            ("[ab]", &["a", "b"]),
            ("[!a]", &["b", "c", "é", "*", "-", "]"]),
            ("[^a]", &["b", "c", "é", "*", "-", "]"]),
            ("[a-c]x", &["ax"]),
            ("{a,b}", &["a", "b"]),
            ("*.{rs,txt}", &["main.rs", ".rs"]),
            ("a/**/b", &["a/b", "a/x/b", "a/b/b"]),
            ("#a", &[]),
            ("", &[]),
            ("a/", &[]),
            ("**/", &[]),
            ("a**", &["a", "ab", "ax", "axb", "ac", "abab", "aa"]),
            ("**a", &["a", "éa", "[a", "#a", "{a", "aa"]),
            ("a**b", &["ab", "axb", "abab"]),
            (".*", &[".rs", ".x"]),
            ("\\*", &["*"]),
            ("[a", &["[a"]),
            ("*[.]rs", &["main.rs", ".rs"]),
            ("a/../b", &["b"]),
            ("{a", &["{a"]),
            ("{a}", &["{a}"]),
            ("a{,b}", &["a", "ab"]),
            ("*/", &[]),
            ("**/.x", &[".x", "a/.x"]),
            ("{a/b,c}", &["a/b", "c"]),
            ("a//b", &["a/b"]),
            ("[]a]", &["a", "]"]),
            ("?a", &["éa", "[a", "#a", "{a", "aa"]),
            ("{a,b}{c,d}", &["ac", "bd"]),
            ("*a*a*", &["abab", "aa"]),
            ("/a", &[]),
            ("[z-a]", &[]),
            ("[a-]", &["a", "-"]),
        ];
        for (pattern, wanted) in table {
            let glob = Glob::new(pattern);
            let found: Vec<&str> = PATHS.iter().copied().filter(|path| glob.matches(path)).collect();
            assert_eq!(found, *wanted, "{pattern}");
        }
        for all in ["**", "**/*"] {
            assert!(PATHS.iter().all(|path| Glob::new(all).matches(path)), "{all}");
        }
        assert!(PATHS.iter().all(|path| Glob::new("!a").matches(path) == (*path != "a")));
    }

    #[test]
    fn hard_patterns_end() {
        assert!(!Glob::new(&"*a".repeat(500)).matches(&"a".repeat(400)));
        assert!(!Glob::new(&"**/a/".repeat(200)).matches(&"a/".repeat(150)));
        assert!(!Glob::new(&"{a,b}".repeat(100)).matches("a"));
        assert!(!Glob::new(&"{".repeat(5000)).matches("a"));
    }
}
