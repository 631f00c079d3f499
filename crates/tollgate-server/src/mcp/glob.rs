//! Glob patterns on relative paths, with the rules of the reference server (minimatch).
//!
//! `*` and `?` match inside a name. `**` as a whole name matches any number of names. `[a-z]` and `[!a-z]` match one
//! character. `{a,b}` matches either. A leading `!` inverts the pattern, and a pattern with a leading `#` matches nothing.
//! Names that start with a dot are not special. Pure; the time for one path is at most the product of pattern and path,
//! and [`Steps`] limits the time for all paths of a search.
//!
//! The `globset` crate cannot replace this file: its `?` matches one byte and not one character, and it rejects
//! patterns such as `{a` and `[a`, which the reference server takes literally.

use std::cell::Cell;
use std::fmt;

use tollgate_base::glob::NamePattern;

/// The longest pattern, in bytes. No path is longer.
const LONGEST: usize = 4096;

/// The size of all alternatives of one pattern, in bytes, after its braces are expanded. `{a,b}` repeated 100 times has
/// 2^100 alternatives.
const EXPANDED: usize = 64 << 10;

/// The most patterns in one call.
pub(crate) const MOST: usize = 256;

/// The comparisons that one search may make: a few seconds. A search for `**/*.rs` among a million files needs a fifth of
/// that.
const STEPS: u64 = 500_000_000;

/// What is left of the comparisons that a search may make.
pub(crate) struct Steps(Cell<u64>);

impl Steps {
    /// All of them.
    pub(crate) fn new() -> Self {
        Self(Cell::new(STEPS))
    }

    /// Takes one. False if there are none left.
    fn take(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left > 0
    }

    /// Whether a match was given up, so that the result of the search is not complete.
    pub(crate) fn are_used_up(&self) -> bool {
        self.0.get() == 0
    }
}

/// A pattern.
#[derive(Debug, Clone)]
pub(crate) struct Glob {
    /// The names of each alternative.
    alternatives: Vec<Vec<Name>>,
    inverted: bool,
}

/// The pattern is too long, or it has too many alternatives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooComplex;

impl fmt::Display for TooComplex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expanded = EXPANDED >> 10;
        write!(
            f,
            "the glob pattern is too long: at most {LONGEST} bytes, {expanded} KiB with all braces expanded"
        )
    }
}

/// A pattern for one name of a path.
#[derive(Debug, Clone, PartialEq)]
enum Name {
    /// `**`: any number of names.
    Any,
    One(NamePattern),
}

impl Glob {
    pub(crate) fn new(pattern: &str) -> Result<Self, TooComplex> {
        if pattern.len() > LONGEST {
            return Err(TooComplex);
        }
        if pattern.starts_with('#') {
            return Ok(Self { alternatives: Vec::new(), inverted: false });
        }
        let plain = pattern.trim_start_matches('!');
        let inverted = (pattern.len() - plain.len()) % 2 == 1;
        let expanded = expand(plain)?;
        Ok(Self { alternatives: expanded.iter().map(|pattern| names(pattern)).collect(), inverted })
    }

    /// Whether the pattern matches. The answer counts only if there are steps left.
    pub(crate) fn matches(&self, path: &str, steps: &Steps) -> bool {
        let path: Vec<&str> = path.split('/').collect();
        self.alternatives.iter().any(|names| match_names(names, &path, steps)) != self.inverted
    }
}

fn names(pattern: &str) -> Vec<Name> {
    let mut names: Vec<Name> = Vec::new();
    let last = pattern.matches('/').count();
    for (index, part) in pattern.split('/').enumerate() {
        match part {
            "**" => names.push(Name::Any),
            // `a//b` means `a/b`. A slash at the start or the end is kept, and then matches no relative path.
            "" if index > 0 && index < last => {}
            ".." if matches!(names.last(), Some(Name::One(_))) => drop(names.pop()),
            part => names.push(Name::One(NamePattern::new(part))),
        }
    }
    // A final `**` matches what is below the folder, not the folder itself.
    if names.len() > 1 && names.last() == Some(&Name::Any) {
        names.push(Name::One(NamePattern::new("*")));
    }
    names
}

/// All alternatives of the pattern.
fn expand(pattern: &str) -> Result<Vec<String>, TooComplex> {
    let mut done = Vec::new();
    let mut open = vec![pattern.to_owned()];
    let mut size = pattern.len();
    while let Some(pattern) = open.pop() {
        let Some((before, inner, after)) = braces(&pattern) else {
            done.push(pattern);
            continue;
        };
        // An empty alternative takes memory, too.
        size += inner.iter().map(|inner| before.len() + inner.len() + after.len() + 1).sum::<usize>();
        size -= pattern.len();
        if size > EXPANDED {
            return Err(TooComplex);
        }
        open.extend(inner.iter().rev().map(|inner| format!("{before}{inner}{after}")));
    }
    Ok(done)
}

/// The first pair of braces with a comma between them: the text before it, its alternatives, the text after it.
fn braces(pattern: &str) -> Option<(&str, Vec<&str>, &str)> {
    // One pass: a `}` closes the last open `{`. Each entry is the position of a `{` and of the commas directly in it.
    let mut open: Vec<Vec<usize>> = Vec::new();
    let mut first: Option<(Vec<usize>, usize)> = None;
    for (at, char) in pattern.char_indices() {
        match char {
            '{' => open.push(vec![at]),
            ',' => open.last_mut().into_iter().for_each(|pair| pair.push(at)),
            '}' => {
                let Some(pair) = open.pop() else { continue };
                if pair.len() > 1 && first.as_ref().is_none_or(|(first, _)| pair[0] < first[0]) {
                    first = Some((pair, at));
                }
            }
            _ => {}
        }
    }
    let (mut cuts, end) = first?;
    cuts.push(end);
    let inner = cuts.windows(2).map(|pair| &pattern[pair[0] + 1..pair[1]]).collect();
    Some((&pattern[..cuts[0]], inner, &pattern[end + 1..]))
}

/// Backtracks only to the last `**`: an earlier one cannot match anything that the last one cannot.
fn match_names(names: &[Name], path: &[&str], steps: &Steps) -> bool {
    let (mut name, mut part) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while part < path.len() && steps.take() {
        match names.get(name) {
            Some(Name::Any) => {
                back = Some((name, part));
                name += 1;
            }
            Some(Name::One(pattern)) if pattern.matches_within(path[part], || steps.take()) => {
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

    /// The paths that minimatch 10 matches with the option `dot`.
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
            let glob = Glob::new(pattern).unwrap();
            let found: Vec<&str> =
                PATHS.iter().copied().filter(|path| glob.matches(path, &Steps::new())).collect();
            assert_eq!(found, *wanted, "{pattern}");
        }
        for all in ["**", "**/*"] {
            assert!(PATHS.iter().all(|path| Glob::new(all).unwrap().matches(path, &Steps::new())), "{all}");
        }
        assert!(
            PATHS.iter().all(|path| Glob::new("!a").unwrap().matches(path, &Steps::new()) == (*path != "a"))
        );
    }

    #[test]
    fn braces_are_expanded_from_the_outside() {
        for (pattern, wanted) in [
            ("{a,{b,c}d}", &["a", "bd", "cd"][..]),
            ("{{a,b}", &["{a", "{b"]),
            ("{{a,b}}", &["{a}", "{b}"]),
            ("}{a,b}{", &["}a{", "}b{"]),
            ("{a,b},{c", &["a,{c", "b,{c"]),
        ] {
            assert_eq!(expand(pattern).unwrap(), wanted, "{pattern}");
        }
    }

    #[test]
    fn hard_patterns_end() {
        let matches = |pattern: &str, path: &str| Glob::new(pattern).unwrap().matches(path, &Steps::new());
        assert!(!matches(&"*a".repeat(500), &"a".repeat(400)));
        assert!(!matches(&"**/a/".repeat(200), &"a/".repeat(150)));
        assert!(!matches(&"{".repeat(LONGEST), "a"));
        assert!(matches(&format!("{}a{}", "{".repeat(1000), ",}".repeat(1000)), "a"));
    }

    #[test]
    fn a_search_has_a_limited_number_of_steps() {
        let glob = Glob::new(&"*a".repeat(2000)).unwrap();
        let steps = Steps(Cell::new(1_000_000));
        let path = format!("{}b", "a".repeat(250));
        let mut count = 0;
        while !steps.are_used_up() {
            glob.matches(&path, &steps);
            count += 1;
        }
        assert!(count > 1, "{count}");
        let began = std::time::Instant::now();
        for _ in 0..10_000 {
            glob.matches(&path, &steps);
        }
        assert!(began.elapsed().as_secs() < 5, "nothing is compared any more: {:?}", began.elapsed());
    }

    #[test]
    fn patterns_that_are_too_complex_are_refused() {
        for pattern in
            ["a".repeat(LONGEST + 1), "{a,b}".repeat(100), "{,}".repeat(1000), "x".repeat(100 << 10)]
        {
            assert_eq!(Glob::new(&pattern).unwrap_err(), TooComplex);
        }
        assert!(Glob::new(&"a".repeat(LONGEST)).is_ok());
        // 32 patterns.
        let expanded =
            |bytes: usize| Glob::new(&format!("{}{}", "{a,b}".repeat(5), "x".repeat(bytes / 32 - 5)));
        assert!(expanded(EXPANDED).is_ok());
        assert_eq!(expanded(EXPANDED + 32).unwrap_err(), TooComplex);
    }

    #[test]
    fn mutated_patterns_are_matched_without_a_panic() {
        let patterns = [
            "**/*.rs",
            "src/{a,b{c,d}}/[!a-z]?.md",
            "!#x",
            "{a,b}{c,d}{e,f}",
            "**/a/**/b/**",
            "[a-\\]",
            "*a*a*a*b",
        ];
        tollgate_fuzz::fuzz("glob", &patterns, |bytes| {
            let steps = Steps::new();
            if let Ok(glob) = Glob::new(&String::from_utf8_lossy(bytes)) {
                for path in ["src/a/main.rs", "aaaaaaaaaaaaaaaaaaaaaaaaaaa/b", "", "é/.x"] {
                    glob.matches(path, &steps);
                }
            }
        });
    }
}
