//! Patterns of file names, as a shell expands them: `*`, `?`, `[a-z]`.

use std::path::{Path, PathBuf};

use tollgate_base::glob::NamePattern;

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
            let names = NamePattern::new(part);
            for entry in entries.flatten() {
                *looks = looks.saturating_sub(1);
                if *looks == 0 || next.len() == MOST {
                    return vec![too_many().to_string_lossy().into_owned()];
                }
                let Ok(name) = entry.file_name().into_string() else { continue };
                let hidden = name.starts_with('.') && !part.starts_with('.');
                if !hidden && names.matches(&name) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
