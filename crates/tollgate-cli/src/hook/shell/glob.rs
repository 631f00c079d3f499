//! Patterns of file names, as a shell expands them: `*`, `?`, `[a-z]`.

use std::path::{Path, PathBuf};

/// The largest number of matches of a pattern.
const MOST: usize = 10_000;

/// The paths that match, spelled as the pattern is, in the order of their names. If there are too many: everything in the folder
/// before the first pattern, `folder/.`. `looks`: how many names may still be compared.
pub(super) fn expand(pattern: &str, folder: &Path, looks: &mut usize) -> Vec<String> {
    let absolute = pattern.starts_with('/');
    let is_pattern = |part: &str| part.contains(['*', '?', '[']);
    let start: PathBuf = if absolute { "/".into() } else { PathBuf::new() };
    let fixed = pattern.split('/').take_while(|part| !is_pattern(part)).map(unquoted);
    let too_many = || fixed.fold(start.clone(), |path, part| path.join(part)).join(".");
    let mut found = vec![start.clone()];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let mut next = Vec::new();
        for path in found {
            if !is_pattern(part) {
                next.push(path.join(unquoted(part)));
                continue;
            }
            let Ok(entries) = std::fs::read_dir(folder.join(&path)) else { continue };
            let part: Vec<char> = part.chars().collect();
            for entry in entries.flatten() {
                *looks = looks.saturating_sub(1);
                if *looks == 0 || next.len() == MOST {
                    return vec![too_many().to_string_lossy().into_owned()];
                }
                let Ok(name) = entry.file_name().into_string() else { continue };
                let hidden = name.starts_with('.') && part[0] != '.';
                if !hidden && matches(&part, &name.chars().collect::<Vec<_>>()) {
                    next.push(path.join(name));
                }
            }
        }
        next.sort();
        found = next;
    }
    found.retain(|path| folder.join(path).symlink_metadata().is_ok());
    found.into_iter().filter_map(|path| path.into_os_string().into_string().ok()).collect()
}

fn unquoted(part: &str) -> String {
    let mut letters = part.chars();
    let mut text = String::new();
    while let Some(c) = letters.next() {
        match c {
            '\\' => text.extend(letters.next()),
            c => text.push(c),
        }
    }
    text
}

/// Whether a text matches a pattern. A star also matches slashes.
pub(in crate::hook) fn matches_text(pattern: &str, text: &str) -> bool {
    matches(&pattern.chars().collect::<Vec<_>>(), &text.chars().collect::<Vec<_>>())
}

/// Whether a name matches. Only the last star backtracks, so the time is bounded by the product of the lengths.
fn matches(pattern: &[char], name: &[char]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match one(&pattern[p..], name[n]) {
            GlobStep::Letter(length) => (p, n) = (p + length, n + 1),
            GlobStep::Star => {
                star = Some((p + 1, n));
                p += 1;
            }
            GlobStep::No => match star {
                Some((after, at)) => {
                    star = Some((after, at + 1));
                    (p, n) = (after, at + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

enum GlobStep {
    /// This number of characters of the pattern match the character.
    Letter(usize),
    Star,
    No,
}

fn one(pattern: &[char], letter: char) -> GlobStep {
    match pattern {
        [] => GlobStep::No,
        ['*', ..] => GlobStep::Star,
        ['?', ..] => GlobStep::Letter(1),
        ['\\', c, ..] if *c == letter => GlobStep::Letter(2),
        ['[', rest @ ..] => {
            let Some(end) = rest.iter().skip(1).position(|c| *c == ']').map(|at| at + 1) else {
                return if letter == '[' { GlobStep::Letter(1) } else { GlobStep::No };
            };
            let (not, set) = match rest[0] {
                '!' | '^' => (true, &rest[1..end]),
                _ => (false, &rest[..end]),
            };
            let mut inside = false;
            let mut at = 0;
            while at < set.len() {
                if at + 2 < set.len() && set[at + 1] == '-' {
                    inside |= (set[at]..=set[at + 2]).contains(&letter);
                    at += 3;
                } else {
                    inside |= set[at] == letter;
                    at += 1;
                }
            }
            if inside == not { GlobStep::No } else { GlobStep::Letter(end + 2) }
        }
        [c, ..] if *c == letter => GlobStep::Letter(1),
        _ => GlobStep::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_in_a_shell() {
        let is = |pattern: &str, name: &str| {
            matches(&pattern.chars().collect::<Vec<_>>(), &name.chars().collect::<Vec<_>>())
        };
        for (pattern, name) in [
            ("*.rs", "a.rs"),
            ("a?c", "abc"),
            ("[a-c]x", "bx"),
            ("[!a]x", "bx"),
            ("*a*b", "xaab"),
            ("\\*", "*"),
        ] {
            assert!(is(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("*.rs", "a.rsx"), ("a?c", "ac"), ("[a-c]x", "dx"), ("[!a]x", "ax"), ("\\*", "a"), ("[", "a")]
        {
            assert!(!is(pattern, name), "{pattern} {name}");
        }
        assert!(!is(&"*a".repeat(200), &"a".repeat(150)), "and that quickly");
    }

    #[test]
    fn mutated_patterns_are_expanded_without_a_panic() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.rs", "b.rs", "[x]", "sub-folder", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaab"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let patterns = ["*.rs", "src/**/[a-z]*.{rs,md}", "[!a-c]?\\*", "*a*a*a*a*b", "./[[]x]", "[]-a]*/x"];
        tollgate_fuzz::fuzz("shell glob", &patterns, |bytes| {
            assert!(expand(&String::from_utf8_lossy(bytes), folder.path(), &mut 100_000).len() <= MOST);
        });
    }
}
